// SPDX-License-Identifier: Apache-2.0
// The same cases on every device that there is: the software device always, a GPU through NVIDIA's
// driver where one is found (needs gpu). Each example kernel is compared with a plain
// double-precision computation, every element of it.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <optional>
#include <sstream>
#include <thread>

#include "common/rng.h"
#include "cuda/driver_device.h"
#include "cuda/fakes.h"
#include "cuda/fatbin.h"

namespace kansoku::cuda {
namespace {

using ::testing::HasSubstr;

std::string ptx(const std::string& name) {
  std::ifstream file(fmt::format("{}/tests/data/ptx/{}.ptx", KANSOKU_SOURCE_DIR, name));
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << name;
  return std::move(text).str();
}

class DeviceTest : public ::testing::TestWithParam<std::string> {
 public:
  /// Software devices that are this process's alone.
  static void SetUpTestSuite() {
    folder_ = (std::filesystem::temp_directory_path() / "kansoku-device-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    setenv("KANSOKU_SOFTGPU_DIR", folder_.c_str(), 1);
    setenv("KANSOKU_SOFTGPU_MEMORY", "1G", 1);
  }
  static void TearDownTestSuite() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

 protected:
  void SetUp() override {
    const bool is_software = GetParam() != "gpu";
    auto driver = load_driver(is_software ? KANSOKU_SOFTGPU_LIBCUDA : "libcuda.so.1");
    if (!driver && !is_software) GTEST_SKIP() << "needs gpu: " << driver.error().what;
    ASSERT_TRUE(driver) << driver.error().what;
    const auto count = count_devices(*driver);
    if (!is_software && (!count || *count == 0)) GTEST_SKIP() << "needs gpu: no device";
    if (GetParam() == "failing")
      failing_.emplace(*driver, FailingDriver::kNever, FailingDriver::Mode::kOnce);
    driver_ = failing_ ? failing_->driver() : *driver;
    auto device = open_device(driver_, 0);
    ASSERT_TRUE(device) << device.error().what;
    device_ = std::move(*device);
    // A library of this name that is loaded already answers for the other one, too.
    if (!is_software && device_->info().value().name == "Kansoku software device")
      GTEST_SKIP() << "needs gpu: the software device was loaded first";
  }

  template <class T>
  OwnedMemory to_device(const std::vector<T>& values) {
    auto memory = make_memory(*device_, values.size() * sizeof(T));
    EXPECT_TRUE(memory) << (memory ? "" : memory.error().what);
    EXPECT_TRUE(upload(*device_, memory->get(), std::as_bytes(std::span(values))));
    return std::move(*memory);
  }
  template <class T>
  std::vector<T> from_device(const OwnedMemory& memory, std::size_t count) {
    std::vector<T> values(count);
    const auto status = download(*device_, std::as_writable_bytes(std::span(values)), memory.get());
    EXPECT_TRUE(status) << (status ? "" : status.error().what);
    return values;
  }
  void run(const std::string& file, const std::string& kernel, const LaunchShape& shape,
           const KernelArguments& arguments) {
    auto module = make_module(*device_, ptx(file));
    ASSERT_TRUE(module) << module.error().what;
    const auto id = device_->find_kernel(module->get(), kernel);
    ASSERT_TRUE(id) << id.error().what;
    const auto launched = device_->launch(*id, shape, arguments, StreamId{});
    ASSERT_TRUE(launched) << launched.error().what;
    const auto done = device_->synchronize();
    ASSERT_TRUE(done) << done.error().what;
  }
  static std::vector<float> random(std::size_t count, std::uint64_t seed, double from = -1,
                                   double to = 1) {
    Rng rng(seed);
    std::vector<float> values(count);
    for (float& value : values)
      value = static_cast<float>(from + (to - from) * rng.uniform());
    return values;
  }
  /// Every element within `absolute` + `relative` * |wanted|.
  static void expect_near(const std::vector<float>& got, const std::vector<double>& wanted,
                          double absolute, double relative) {
    ASSERT_EQ(got.size(), wanted.size());
    std::size_t wrong = 0;
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double error = std::abs(static_cast<double>(got[i]) - wanted[i]);
      worst = std::max(worst, error);
      if (!(error <= absolute + relative * std::abs(wanted[i]))) ++wrong;
    }
    EXPECT_EQ(wrong, 0U) << "of " << got.size() << "; worst error " << worst;
  }

  Driver driver_;
  std::optional<FailingDriver> failing_;
  std::unique_ptr<Device> device_;  // ends before the driver

 private:
  static inline std::string folder_;
};

TEST_P(DeviceTest, SaysWhatItIs) {
  const auto info = device_->info();
  ASSERT_TRUE(info) << info.error().what;
  EXPECT_FALSE(info->name.empty());
  EXPECT_GE(info->compute_major, 7U);
  EXPECT_GE(info->driver_version, 12000);
  EXPECT_EQ(info->uuid.size(), 32U);
  fmt::print("{}: {}, sm_{}{}, driver {}\n", GetParam(), info->name, info->compute_major,
             info->compute_minor, info->driver_version);
}

TEST_P(DeviceTest, VectorAdd) {
  const std::size_t n = 100'003;
  const auto a = random(n, 1), b = random(n, 2);
  const auto da = to_device(a), db = to_device(b), dc = to_device(std::vector<float>(n));
  run("vector_add", "vector_add", {{392, 1, 1}, {256, 1, 1}},
      KernelArguments().add(da.get()).add(db.get()).add(dc.get()).add(static_cast<int>(n)));
  std::vector<double> wanted(n);
  for (std::size_t i = 0; i < n; ++i)
    wanted[i] = static_cast<double>(a[i] + b[i]);  // one rounding, the same one
  expect_near(from_device<float>(dc, n), wanted, 0, 0);
}

TEST_P(DeviceTest, Sgemm) {
  const int n = 96;
  const auto size = static_cast<std::size_t>(n * n);
  const auto a = random(size, 3), b = random(size, 4);
  const auto da = to_device(a), db = to_device(b), dc = to_device(std::vector<float>(size));
  run("sgemm", "sgemm", {{6, 6, 1}, {16, 16, 1}},
      KernelArguments().add(da.get()).add(db.get()).add(dc.get()).add(n));
  std::vector<double> wanted(size);
  for (std::size_t row = 0; row < 96; ++row) {
    for (std::size_t column = 0; column < 96; ++column) {
      for (std::size_t k = 0; k < 96; ++k)
        wanted[row * 96 + column] +=
            static_cast<double>(a[row * 96 + k]) * static_cast<double>(b[k * 96 + column]);
    }
  }
  expect_near(from_device<float>(dc, size), wanted, 1e-5, 1e-6);
}

TEST_P(DeviceTest, Softmax) {
  const std::size_t rows = 37, columns = 200;
  const auto in = random(rows * columns, 5, -20, 20);
  const auto din = to_device(in), dout = to_device(std::vector<float>(in.size()));
  run("softmax", "softmax", {{37, 1, 1}, {32, 1, 1}},
      KernelArguments().add(din.get()).add(dout.get()).add(static_cast<int>(columns)));
  std::vector<double> wanted(in.size());
  for (std::size_t row = 0; row < rows; ++row) {
    const float* const begin = in.data() + row * columns;
    const double most = static_cast<double>(*std::max_element(begin, begin + columns));
    double sum = 0;
    for (std::size_t i = 0; i < columns; ++i)
      sum += wanted[row * columns + i] = std::exp(static_cast<double>(begin[i]) - most);
    for (std::size_t i = 0; i < columns; ++i)
      wanted[row * columns + i] /= sum;
  }
  expect_near(from_device<float>(dout, in.size()), wanted, 1e-12, 1e-5);
}

TEST_P(DeviceTest, Histogram) {
  Rng rng(6);
  std::vector<unsigned char> bytes(123'457);
  for (unsigned char& byte : bytes)
    byte = static_cast<unsigned char>(rng.uniform() * rng.uniform() * 256);
  const auto din = to_device(bytes);
  const auto dout = to_device(std::vector<unsigned>(256));
  run("histogram", "histogram", {{20, 1, 1}, {256, 1, 1}},
      KernelArguments().add(din.get()).add(dout.get()).add(static_cast<int>(bytes.size())));
  std::vector<unsigned> wanted(256);
  for (const unsigned char byte : bytes)
    ++wanted[byte];
  EXPECT_EQ(from_device<unsigned>(dout, 256), wanted);
}

TEST_P(DeviceTest, Reduction) {
  const auto values = random(1'000'001, 7);
  const auto din = to_device(values), dout = to_device(std::vector<float>(1));
  run("reduction", "reduce_sum", {{64, 1, 1}, {256, 1, 1}},
      KernelArguments().add(din.get()).add(dout.get()).add(static_cast<int>(values.size())));
  const double wanted = std::accumulate(values.begin(), values.end(), 0.0);
  const double size = std::accumulate(
      values.begin(), values.end(), 0.0,
      [](double sum, float value) { return sum + std::abs(static_cast<double>(value)); });
  expect_near(from_device<float>(dout, 1), {wanted}, 1e-7 * size, 0);
}

TEST_P(DeviceTest, LayerNorm) {
  const std::size_t rows = 19, columns = 300;
  const auto in = random(rows * columns, 8, -3, 5), scale = random(columns, 9),
             shift = random(columns, 10);
  const auto din = to_device(in), dscale = to_device(scale), dshift = to_device(shift),
             dout = to_device(std::vector<float>(in.size()));
  run("layer_norm", "layer_norm", {{19, 1, 1}, {32, 1, 1}},
      KernelArguments()
          .add(din.get())
          .add(dscale.get())
          .add(dshift.get())
          .add(dout.get())
          .add(static_cast<int>(columns))
          .add(1e-5F));
  std::vector<double> wanted(in.size());
  for (std::size_t row = 0; row < rows; ++row) {
    double mean = 0, variance = 0;
    for (std::size_t i = 0; i < columns; ++i)
      mean += static_cast<double>(in[row * columns + i]) / static_cast<double>(columns);
    for (std::size_t i = 0; i < columns; ++i)
      variance += std::pow(static_cast<double>(in[row * columns + i]) - mean, 2) /
                  static_cast<double>(columns);
    for (std::size_t i = 0; i < columns; ++i) {
      wanted[row * columns + i] = (static_cast<double>(in[row * columns + i]) - mean) /
                                      std::sqrt(variance + 1e-5) * static_cast<double>(scale[i]) +
                                  static_cast<double>(shift[i]);
    }
  }
  expect_near(from_device<float>(dout, in.size()), wanted, 3e-6, 1e-6);
}

TEST_P(DeviceTest, ImagesInFatbinsLoadInEveryCompression) {
  for (const auto compression : {Compression::kNone, Compression::kLz4, Compression::kZstd}) {
    const auto image = write_fatbin({{ptx("vector_add"), 70}}, compression);
    ASSERT_TRUE(image);
    const auto module = make_module(*device_, *image);
    ASSERT_TRUE(module) << module.error().what;
    EXPECT_TRUE(device_->find_kernel(module->get(), "vector_add"));
    const auto missing = device_->find_kernel(module->get(), "no_such_kernel");
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().code, Code::kNotFound);
  }
}

TEST_P(DeviceTest, AKernelWithoutParametersRuns) {
  const auto module = make_module(
      *device_,
      ".version 7.0\n.target sm_70\n.address_size 64\n.global .align 4 .u32 count;\n"
      ".visible .entry add_one() { .reg .u32 %r<2>; atom.global.add.u32 %r1, [count], 1; "
      "ret; }\n");
  ASSERT_TRUE(module) << module.error().what;
  const auto kernel = device_->find_kernel(module->get(), "add_one");
  ASSERT_TRUE(kernel) << kernel.error().what;
  LaunchShape shape;
  shape.block = {32, 1, 1};
  const auto launched = device_->launch(*kernel, shape, {}, StreamId{});
  ASSERT_TRUE(launched) << launched.error().what;
  const auto count = device_->find_variable(module->get(), "count");
  ASSERT_TRUE(count) << count.error().what;
  std::uint32_t counted = 0;
  ASSERT_TRUE(device_->copy_to_host(std::as_writable_bytes(std::span(&counted, 1)), count->address,
                                    StreamId{}));
  ASSERT_TRUE(device_->synchronize());
  EXPECT_EQ(counted, 32U);
}

TEST_P(DeviceTest, StreamsAreOrderedByEvents) {
  const std::size_t n = 1 << 18;
  const auto first = make_stream(*device_).value(), second = make_stream(*device_).value();
  const auto begin = make_event(*device_).value(), end = make_event(*device_).value();
  const auto a = make_memory(*device_, n).value(), b = make_memory(*device_, n).value();
  std::vector<std::byte> result(n);
  ASSERT_TRUE(device_->record(begin.get(), first.get()));
  for (int round = 1; round <= 20; ++round)
    ASSERT_TRUE(device_->fill(a.get(), static_cast<std::uint8_t>(round), n, first.get()));
  ASSERT_TRUE(device_->record(end.get(), first.get()));
  ASSERT_TRUE(device_->wait(second.get(), end.get()));
  ASSERT_TRUE(device_->copy_on_device(b.get(), a.get(), n, second.get()));
  ASSERT_TRUE(device_->copy_to_host(result, b.get(), second.get()));
  ASSERT_TRUE(device_->synchronize(second.get()));
  EXPECT_TRUE(std::all_of(result.begin(), result.end(),
                          [](std::byte byte) { return byte == std::byte{20}; }));
  const auto ms = device_->elapsed_ms(begin.get(), end.get());
  ASSERT_TRUE(ms);
  EXPECT_GE(*ms, 0.0);
}

TEST_P(DeviceTest, RefusesWhatDoesNotFit) {
  const auto info = device_->info().value();
  const auto memory = device_->allocate(info.memory_bytes * 2);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code, Code::kLimit);
  const auto module = device_->load_module("this is no PTX");
  ASSERT_FALSE(module);
  EXPECT_THAT(module.error().what, HasSubstr("CUDA_ERROR_INVALID"));
  const auto small = make_memory(*device_, 16).value();
  std::vector<std::byte> bytes(1 << 20);
  EXPECT_TRUE(device_->copy_to_device(small.get(), std::span(bytes).first(16), StreamId{}));
  EXPECT_TRUE(device_->synchronize());
}

TEST_P(DeviceTest, ThreadsShareADevice) {
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const auto stream = make_stream(*device_);
      const auto memory = make_memory(*device_, 4096);
      if (!stream || !memory) return;
      std::vector<std::byte> bytes(4096);
      for (int round = 0; round < 20; ++round) {
        const auto value = static_cast<std::uint8_t>(t * 20 + round);
        if (!device_->fill(memory->get(), value, 4096, stream->get()) ||
            !device_->copy_to_host(bytes, memory->get(), stream->get()) ||
            !device_->synchronize(stream->get()))
          return;
        if (std::any_of(bytes.begin(), bytes.end(),
                        [&](std::byte byte) { return byte != std::byte{value}; }))
          return;
      }
      ++good;
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(good, 4);
}

TEST_P(DeviceTest, WhatIsCurrentStaysIt) {
  const auto own = open_device(driver_, 0, ContextKind::kOwn);
  ASSERT_TRUE(own) << own.error().what;
  CUcontext mine = nullptr, popped = nullptr;
  ASSERT_EQ(driver_.ctx_create(&mine, 0, 0), CUDA_SUCCESS);
  ASSERT_TRUE(device_->memory_info() && (*own)->memory_info());
  ASSERT_EQ(driver_.ctx_pop(&popped), CUDA_SUCCESS);
  EXPECT_EQ(popped, mine);
  EXPECT_NE(driver_.ctx_pop(&popped), CUDA_SUCCESS) << "nothing was current before";
  EXPECT_EQ(driver_.ctx_destroy(mine), CUDA_SUCCESS);
}

TEST_P(DeviceTest, ContextsEndWithWhatTheyHave) {
  const auto before = device_->memory_info();
  ASSERT_TRUE(before);
  {
    const auto own = open_device(driver_, 0, ContextKind::kOwn);
    ASSERT_TRUE(own) << own.error().what;
    ASSERT_TRUE((*own)->allocate(64 << 20));
    EXPECT_LE(device_->memory_info()->free_bytes + (64 << 20), before->free_bytes);
  }
  EXPECT_EQ(device_->memory_info()->free_bytes, before->free_bytes);
  EXPECT_EQ(before->total_bytes, device_->info()->memory_bytes);
}

TEST_P(DeviceTest, EventsAndStreamsSayWhetherTheyAreDone) {
  const auto priorities = device_->priorities();
  ASSERT_TRUE(priorities);
  EXPECT_LE(priorities->greatest, priorities->least);
  const auto stream = make_stream(*device_, {false, priorities->greatest});
  ASSERT_TRUE(stream) << stream.error().what;
  EventPool events(*device_);
  const auto event = events.take();
  ASSERT_TRUE(event);
  EXPECT_TRUE(device_->is_done(*event).value()) << "never recorded";
  const auto memory = make_memory(*device_, 1 << 20).value();
  ASSERT_TRUE(device_->fill(memory.get(), 1, 1 << 20, stream->get()));
  ASSERT_TRUE(device_->record(*event, stream->get()));
  while (!device_->is_done(*event).value()) {
  }
  ASSERT_TRUE(device_->synchronize(stream->get()));
  EXPECT_TRUE(device_->is_done(stream->get()).value());
  events.give_back(*event);
  EXPECT_EQ(events.take().value(), *event);
  events.give_back(*event);
}

TEST_P(DeviceTest, KernelsTellTheirLayout) {
  const auto module = make_module(*device_, ptx("vector_add"));
  ASSERT_TRUE(module) << module.error().what;
  const auto kernel = device_->find_kernel(module->get(), "vector_add").value();
  const auto info = device_->kernel_info(kernel);
  ASSERT_TRUE(info) << info.error().what;
  EXPECT_GE(info->threads_max, 256U);
  EXPECT_GT(info->registers, 0U);
  ASSERT_EQ(info->parameters.size(), 4U);
  KernelArguments arguments;
  const auto memory = to_device(std::vector<float>(8));
  const std::uint64_t address = memory.get();
  const int count = 8;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(info->parameters[i].offset, 8 * i);
    EXPECT_EQ(info->parameters[i].bytes, 8U);
    ASSERT_TRUE(
        arguments.add_bytes(std::as_bytes(std::span(&address, 1)), info->parameters[i].offset));
  }
  EXPECT_EQ(info->parameters[3].bytes, 4U);
  ASSERT_TRUE(arguments.add_bytes(std::as_bytes(std::span(&count, 1)), info->parameters[3].offset));
  ASSERT_TRUE(device_->launch(kernel, {{1, 1, 1}, {8, 1, 1}}, arguments, StreamId{}));
  EXPECT_EQ(from_device<float>(memory, 8), std::vector<float>(8));
}

TEST_P(DeviceTest, HostMemoryIsReachedDirectly) {
  const auto pinned = device_->allocate_host(4096);
  ASSERT_TRUE(pinned) << pinned.error().what;
  const auto memory = make_memory(*device_, 4096).value();
  std::fill(pinned->begin(), pinned->end(), std::byte{7});
  ASSERT_TRUE(device_->copy_to_device(memory.get(), *pinned, StreamId{}));
  std::vector<std::byte> own(4096);
  ASSERT_TRUE(device_->register_host(own));
  EXPECT_FALSE(device_->register_host(own)) << "it is registered";
  ASSERT_TRUE(device_->copy_to_host(own, memory.get(), StreamId{}));
  ASSERT_TRUE(device_->synchronize());
  EXPECT_EQ(own, std::vector<std::byte>(4096, std::byte{7}));
  EXPECT_TRUE(device_->unregister_host(own.data()));
  EXPECT_FALSE(device_->unregister_host(own.data()));
  EXPECT_TRUE(device_->free_host(pinned->data()));
}

TEST_P(DeviceTest, AddressesAndMemoryByThemselves) {
  const std::size_t bytes = device_->granularity().value();
  ASSERT_GT(bytes, 0U);
  const auto at = device_->reserve(2 * bytes, 0);
  ASSERT_TRUE(at) << at.error().what;
  const auto physical = device_->create_physical(bytes);
  ASSERT_TRUE(physical);
  for (const DevicePointer place : {*at, *at + bytes}) {
    ASSERT_TRUE(device_->map(place, bytes, *physical));
    ASSERT_TRUE(device_->protect(place, bytes, Access::kReadWrite));
  }
  ASSERT_TRUE(device_->fill(*at, 5, 64, StreamId{}));
  std::array<std::byte, 64> seen{};
  ASSERT_TRUE(download(*device_, seen, *at + bytes)) << "the same memory at two places";
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](std::byte b) { return b == std::byte{5}; }));
  EXPECT_FALSE(device_->unreserve(*at, 2 * bytes)) << "it is mapped";
  EXPECT_TRUE(device_->release_physical(*physical));
  for (const DevicePointer place : {*at, *at + bytes})
    EXPECT_TRUE(device_->unmap(place, bytes));
  ASSERT_TRUE(device_->unreserve(*at, 2 * bytes));
  const auto again = device_->reserve(2 * bytes, *at);
  ASSERT_TRUE(again);
  EXPECT_TRUE(device_->unreserve(*again, 2 * bytes));
}

TEST_P(DeviceTest, TheGuardRestoresWhatWasCurrentAfterErrorsToo) {
  CUcontext mine = nullptr, popped = nullptr;
  ASSERT_EQ(driver_.ctx_create(&mine, 0, 0), CUDA_SUCCESS);
  const auto module = make_module(*device_, ptx("vector_add"));
  ASSERT_TRUE(module) << module.error().what;
  EXPECT_FALSE(device_->free(0x123));
  EXPECT_FALSE(device_->find_kernel(module->get(), "no_such_kernel"));
  EXPECT_FALSE(device_->load_module("this is no PTX"));
  ASSERT_EQ(driver_.ctx_pop(&popped), CUDA_SUCCESS);
  EXPECT_EQ(popped, mine);
  EXPECT_EQ(driver_.ctx_destroy(mine), CUDA_SUCCESS);
  std::thread([&] {
    EXPECT_TRUE(device_->memory_info());
    CUcontext left = nullptr;
    EXPECT_NE(driver_.ctx_pop(&left), CUDA_SUCCESS) << "nothing was current on this thread";
  }).join();
}

constexpr std::string_view kCounter =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 4 .u32 count;\n"
    ".visible .entry add_one() { .reg .u32 %r<2>; atom.global.add.u32 %r1, [count], 1; ret; }\n";

TEST_P(DeviceTest, SeveralContextsHaveModulesAndMemoryOfTheirOwn) {
  std::vector<std::unique_ptr<Device>> contexts;
  for (int i = 0; i < 3; ++i) {
    auto own = open_device(driver_, 0, ContextKind::kOwn);
    ASSERT_TRUE(own) << own.error().what;
    contexts.push_back(std::move(*own));
  }
  std::vector<std::uint32_t> counted(contexts.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < contexts.size(); ++i) {
    threads.emplace_back([&, i] {
      Device& device = *contexts[i];
      const auto module = make_module(device, kCounter);
      const auto kernel =
          module ? device.find_kernel(module->get(), "add_one") : Result<KernelId>(module.error());
      const auto count = module ? device.find_variable(module->get(), "count")
                                : Result<Device::Variable>(module.error());
      if (!kernel || !count || count->bytes != 4) return;
      for (std::size_t launch = 0; launch <= i; ++launch)
        if (!device.launch(*kernel, {}, {}, StreamId{})) return;
      static_cast<void>(
          download(device, std::as_writable_bytes(std::span(&counted[i], 1)), count->address));
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(counted, (std::vector<std::uint32_t>{1, 2, 3}));
  // One that ends takes nothing from the others.
  const auto memory = make_memory(*contexts[1], 64).value();
  ASSERT_TRUE(contexts[1]->fill(memory.get(), 9, 64, StreamId{}));
  contexts[0].reset();
  std::array<std::byte, 64> seen{};
  ASSERT_TRUE(download(*contexts[1], seen, memory.get()));
  EXPECT_EQ(seen[63], std::byte{9});
}

TEST_P(DeviceTest, StreamsOfEveryPriorityWork) {
  const auto range = device_->priorities();
  ASSERT_TRUE(range) << range.error().what;
  const auto memory = make_memory(*device_, 16).value();
  std::uint8_t value = 0;
  for (int priority = range->greatest; priority <= range->least; ++priority) {
    for (const bool waits : {true, false}) {
      const auto stream = make_stream(*device_, {waits, priority});
      ASSERT_TRUE(stream) << priority << ": " << stream.error().what;
      std::array<std::byte, 16> seen{};
      ASSERT_TRUE(device_->fill(memory.get(), ++value, 16, stream->get()));
      ASSERT_TRUE(device_->copy_to_host(seen, memory.get(), stream->get()));
      ASSERT_TRUE(device_->synchronize(stream->get()));
      EXPECT_EQ(seen[15], std::byte{value});
    }
  }
}

TEST_P(DeviceTest, TheDefaultStreamWaitsForTheOthers) {
  const std::size_t n = 1 << 20;
  const auto stream = make_stream(*device_).value();
  const auto memory = make_memory(*device_, n).value();
  std::vector<std::byte> seen(n);
  for (int round = 1; round <= 20; ++round)
    ASSERT_TRUE(device_->fill(memory.get(), static_cast<std::uint8_t>(round), n, stream.get()));
  ASSERT_TRUE(device_->copy_to_host(seen, memory.get(), StreamId{}));
  ASSERT_TRUE(device_->synchronize(StreamId{}));
  EXPECT_EQ(std::count(seen.begin(), seen.end(), std::byte{20}), 1 << 20);
}

TEST_P(DeviceTest, WhatIsOwnedIsGivenBackOnce) {
  const auto before = device_->memory_info();
  ASSERT_TRUE(before);
  auto first = make_memory(*device_, 32 << 20);
  ASSERT_TRUE(first) << first.error().what;
  OwnedMemory second(std::move(*first));
  EXPECT_EQ(first->get(), 0U);
  EXPECT_NE(second.get(), 0U);
  EXPECT_TRUE(first->finish()) << "it owns nothing any more";
  EXPECT_LT(device_->memory_info()->free_bytes, before->free_bytes);
  const DevicePointer at = second.get();
  EXPECT_TRUE(second.finish());
  EXPECT_TRUE(second.finish());
  EXPECT_EQ(device_->memory_info()->free_bytes, before->free_bytes);
  EXPECT_FALSE(device_->free(at)) << "it is free";
  EventPool events(*device_);
  const EventId one = events.take().value(), two = events.take().value();
  EXPECT_NE(one, two);
  events.give_back(one);
  EXPECT_EQ(events.take().value(), one);
  EXPECT_EQ(events.made(), 2U);
  events.give_back(one);
  events.give_back(two);
}

TEST_P(DeviceTest, KernelsReachPinnedAndRegisteredMemory) {
  const std::size_t n = 1024, bytes = n * sizeof(float);
  const auto pinned = device_->allocate_host(bytes);
  ASSERT_TRUE(pinned) << pinned.error().what;
  std::vector<float> own(n, 2), sum(n);
  auto* const floats = reinterpret_cast<float*>(pinned->data());
  std::fill(floats, floats + n, 1.0F);
  ASSERT_TRUE(device_->register_host(std::as_writable_bytes(std::span(own))));
  const auto out = to_device(sum);
  run("vector_add", "vector_add", {{4, 1, 1}, {256, 1, 1}},
      KernelArguments().add(floats).add(own.data()).add(out.get()).add(static_cast<int>(n)));
  EXPECT_EQ(from_device<float>(out, n), std::vector<float>(n, 3));
  EXPECT_TRUE(device_->unregister_host(reinterpret_cast<std::byte*>(own.data())));
  EXPECT_TRUE(device_->free_host(pinned->data()));
  EXPECT_FALSE(device_->free_host(reinterpret_cast<std::byte*>(own.data())));
}

TEST_P(DeviceTest, WhatIsNotMappedOrAllowedIsRefused) {
  // An access that is not allowed may end the context.
  const auto own = open_device(driver_, 0, ContextKind::kOwn);
  ASSERT_TRUE(own) << own.error().what;
  Device& device = **own;
  const std::size_t bytes = device.granularity().value();
  EXPECT_FALSE(device.create_physical(bytes / 2)) << "no multiple of the granule";
  EXPECT_FALSE(device.reserve(bytes / 2, 0));
  const auto at = device.reserve(2 * bytes, 0);
  ASSERT_TRUE(at) << at.error().what;
  const auto physical = device.create_physical(bytes);
  ASSERT_TRUE(physical) << physical.error().what;
  EXPECT_FALSE(device.protect(*at, bytes, Access::kReadWrite)) << "nothing is mapped there";
  EXPECT_FALSE(device.unmap(*at, bytes));
  ASSERT_TRUE(device.map(*at, bytes, *physical));
  EXPECT_FALSE(device.map(*at, bytes, *physical)) << "it is mapped";
  ASSERT_TRUE(device.protect(*at, bytes, Access::kReadWrite));
  ASSERT_TRUE(device.fill(*at, 7, bytes, StreamId{}));
  ASSERT_TRUE(device.synchronize());
  ASSERT_TRUE(device.protect(*at, bytes, Access::kRead));
  std::array<std::byte, 4> seen{};
  ASSERT_TRUE(download(device, seen, *at + bytes - 4));
  EXPECT_EQ(seen[3], std::byte{7});
  ASSERT_TRUE(device.protect(*at, bytes, Access::kNone));
  const auto written = device.fill(*at, 8, bytes, StreamId{});
  EXPECT_FALSE(written && device.synchronize()) << "nobody may use it";
}

TEST_P(DeviceTest, KernelsTellTheirNeeds) {
  const auto module = make_module(*device_, ptx("sgemm"));
  ASSERT_TRUE(module) << module.error().what;
  const auto info = device_->kernel_info(device_->find_kernel(module->get(), "sgemm").value());
  ASSERT_TRUE(info) << info.error().what;
  EXPECT_EQ(info->shared_bytes, 2048U);
  EXPECT_GE(info->ptx_version, 70U);
  EXPECT_GE(info->binary_version, 60U);
  const auto missing = device_->find_variable(module->get(), "no_such_variable");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kNotFound);
}

/// A small protocol, as users of a device write it: everything is owned, every failure passed up.
Result<int> through_the_device(Device& device, int value) {
  TRY(const auto module,
      make_module(device,
                  ".version 7.0\n.target sm_70\n.address_size 64\n"
                  ".visible .entry twice(.param .u64 at) { .reg .u64 %rd<2>; .reg .u32 %r<2>; "
                  "ld.param.u64 %rd1, [at]; ld.global.u32 %r1, [%rd1]; add.u32 %r1, %r1, %r1; "
                  "st.global.u32 [%rd1], %r1; ret; }\n"));
  TRY(const auto stream, make_stream(device));
  TRY(const auto memory, make_memory(device, 1 << 20));
  TRY_VOID(device.copy_to_device(memory.get(), std::as_bytes(std::span(&value, 1)), stream.get()));
  TRY(const auto kernel, device.find_kernel(module.get(), "twice"));
  TRY_VOID(device.launch(kernel, {}, KernelArguments().add(memory.get()), stream.get()));
  int result = 0;
  TRY_VOID(device.copy_to_host(std::as_writable_bytes(std::span(&result, 1)), memory.get(),
                               stream.get()));
  TRY_VOID(device.synchronize(stream.get()));
  return result;
}

TEST_P(DeviceTest, EveryCallFailsOnceAndNothingIsLeft) {
  if (failing_) GTEST_SKIP() << "one failing driver in a process";
  const auto before = device_->memory_info();
  ASSERT_TRUE(before);
  std::uint64_t failed = 0;
  for (std::uint64_t nth = 1;; ++nth) {
    FailingDriver failing(driver_, nth, FailingDriver::Mode::kOnce);
    {
      const auto device = open_device(failing.driver(), 0, ContextKind::kOwn);
      const auto result = device ? through_the_device(**device, 21) : Result<int>(device.error());
      if (!result) {
        ++failed;
        EXPECT_THAT(result.error().what, HasSubstr("CUDA_ERROR_UNKNOWN"));
      } else {
        EXPECT_EQ(*result, 42);
      }
    }
    if (!failing.has_failed()) break;
    // A context that could not be taken off the thread, or not be ended, is taken off here.
    CUcontext left = nullptr;
    while (driver_.ctx_pop(&left) == CUDA_SUCCESS)
      static_cast<void>(driver_.ctx_destroy(left));
  }
  EXPECT_GT(failed, 15U);
  // At most the last context was not ended, by its own failure: its memory is that of one run.
  EXPECT_LE(before->free_bytes - device_->memory_info()->free_bytes, std::size_t{1} << 20);
}

TEST_P(DeviceTest, StaysMappedWhenItIsClosed) {
  if (GetParam() == "gpu") GTEST_SKIP() << "how NVIDIA's driver does it is its own business";
  // This thread does not use the driver: what a thread has of a library keeps it, too.
  std::thread([&] {
    const auto stream = make_stream(*device_);
    const auto memory = make_memory(*device_, 16);
    ASSERT_TRUE(stream && memory);
    EXPECT_TRUE(device_->fill(memory->get(), 1, 16, stream->get()));
  }).join();
  device_.reset();
  // The closed stream's own thread may not have ended yet.
  EXPECT_NE(dlopen(KANSOKU_SOFTGPU_LIBCUDA, RTLD_NOW | RTLD_NOLOAD), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceTest, ::testing::Values("software", "failing", "gpu"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace kansoku::cuda
