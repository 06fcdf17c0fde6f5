// SPDX-License-Identifier: Apache-2.0
#include "cuda/fakes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "cuda/driver_device.h"

namespace kansoku::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A small protocol, as users of a device write it: everything is owned, every failure passed up.
Result<int> double_on_device(Device& device, int value) {
  TRY(const auto module, make_module(device, ".version 8.0"));
  TRY(const auto stream, make_stream(device));
  TRY(const auto memory, make_memory(device, sizeof value));
  TRY_VOID(device.copy_to_device(memory.get(), std::as_bytes(std::span(&value, 1)), stream.get()));
  TRY(const auto kernel, device.find_kernel(module.get(), "twice"));
  TRY_VOID(device.launch(kernel, {{1, 1, 1}, {32, 1, 1}}, KernelArguments().add(memory.get()),
                         stream.get()));
  int result = 0;
  TRY_VOID(device.copy_to_host(std::as_writable_bytes(std::span(&result, 1)), memory.get(),
                               stream.get()));
  TRY_VOID(device.synchronize(stream.get()));
  return result;
}

TEST(RecordingDeviceTest, WritesEveryCallDown) {
  RecordingDevice device;
  EXPECT_EQ(double_on_device(device, 21).value(), 21);  // nothing is executed
  EXPECT_EQ(device.live_count(), 0U);
  EXPECT_THAT(device.calls(), ElementsAre("load_module 12", "create_stream", "allocate 4",
                                          "copy_to_device 0x1000 4 stream 2", "find_kernel 1 twice",
                                          "launch twice 1x1x1 32x1x1 8 stream 2",
                                          "copy_to_host 0x1000 4 stream 2", "synchronize stream 2",
                                          "free 0x1000", "destroy_stream 2", "unload_module 1"));
}

TEST(RecordingDeviceTest, RefusesWhatAGpuWould) {
  RecordingDevice device;
  const auto pointer = device.allocate(8).value();
  EXPECT_TRUE(device.fill(pointer, 1, 8, {}));
  EXPECT_FALSE(device.fill(pointer, 1, 9, {}));
  EXPECT_FALSE(device.free(pointer + 4));
  EXPECT_TRUE(device.free(pointer));
  EXPECT_FALSE(device.free(pointer));
  EXPECT_THAT(device.destroy_stream(StreamId{77}).error().what,
              HasSubstr("CUDA_ERROR_INVALID_HANDLE (400)"));
}

TEST(RecordingDeviceTest, MapsWhatWasReserved) {
  RecordingDevice device;
  const auto at = device.reserve(0x2000, 0).value();
  const auto physical = device.create_physical(0x2000).value();
  EXPECT_FALSE(device.fill(at, 1, 8, {}));
  EXPECT_TRUE(device.map(at, 0x2000, physical));
  EXPECT_FALSE(device.map(at, 0x2000, physical));
  EXPECT_TRUE(device.protect(at, 0x2000, Access::kReadWrite));
  EXPECT_TRUE(device.fill(at, 1, 0x2000, {}));
  EXPECT_FALSE(device.unreserve(at, 0x2000));
  EXPECT_TRUE(device.unmap(at, 0x2000));
  EXPECT_TRUE(device.unreserve(at, 0x2000));
  EXPECT_TRUE(device.release_physical(physical));
  EXPECT_EQ(device.live_count(), 0U);
}

TEST(EventPoolTest, EventsAreUsedAgain) {
  RecordingDevice device;
  {
    EventPool pool(device);
    const auto a = pool.take().value(), b = pool.take().value();
    EXPECT_NE(a, b);
    pool.give_back(a);
    EXPECT_EQ(pool.take().value(), a);
    EXPECT_EQ(pool.made(), 2U);
    pool.give_back(a);
    pool.give_back(b);
  }
  EXPECT_EQ(device.live_count(), 0U);
}

TEST(DriverTest, AMissingLibraryIsUnavailable) {
  const auto driver = load_driver("/nowhere/libcuda.so.1");
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, Code::kUnavailable);
  const auto wrong = load_driver("libc.so.6");
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().what, HasSubstr("it lacks cuInit"));
}

TEST(KernelArgumentsTest, BytesLieWhereTheLayoutHasThem) {
  KernelArguments arguments;
  const std::array<std::byte, 3> bytes{std::byte{1}, std::byte{2}, std::byte{3}};
  EXPECT_TRUE(arguments.add_bytes(bytes, 0));
  EXPECT_TRUE(arguments.add_bytes(bytes, 8));
  EXPECT_FALSE(arguments.add_bytes(bytes, 10));
  ASSERT_EQ(arguments.bytes().size(), 11U);
  EXPECT_EQ(arguments.bytes()[2], std::byte{3});
  EXPECT_EQ(arguments.bytes()[3], std::byte{0});
  EXPECT_EQ(arguments.bytes()[8], std::byte{1});
}

TEST(KernelArgumentsTest, AlignEachToItsSize) {
  KernelArguments arguments;
  arguments.add(std::int32_t{1}).add(std::uint64_t{2}).add('c').add(std::int16_t{3});
  EXPECT_EQ(arguments.bytes().size(), 4U + 4U + 8U + 1U + 1U + 2U);
}

}  // namespace
}  // namespace kansoku::cuda
