// SPDX-License-Identifier: Apache-2.0
// One launch of `kansoku gpu run` on devices that fail, say little or never end.
#include "cli/gpu/gpu_launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <sstream>

#include "cuda/driver_device.h"
#include "cuda/fakes.h"
#include "cuda/fatbin.h"
#include "gpu/ptx/parser.h"

namespace kansoku::cli {
namespace {

using ::testing::HasSubstr;
using Mode = cuda::FailingDriver::Mode;

std::string text_of(const std::string& name) {
  std::ifstream file(std::string(KANSOKU_SOURCE_DIR) + "/tests/data/ptx/" + name + ".ptx");
  std::stringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

GpuLaunch launch_of(const std::string& text) {
  const auto module = gpu::ptx::parse_module(text);
  EXPECT_TRUE(module) << (module ? "" : module.error().what);
  const auto kernel = choose_kernel("file", "", kernels_of(*module));
  EXPECT_TRUE(kernel);
  return {{text}, *kernel, {{1, 1, 1}, {32, 1, 1}, 0}, {}};
}

std::vector<GpuArgument> arguments_of(const std::vector<std::string>& texts) {
  std::vector<GpuArgument> arguments;
  for (const std::string& text : texts)
    arguments.push_back(parse_gpu_argument(text).value());
  return arguments;
}

/// A kernel is looked at again at once, on a clock that goes on as if there had been a wait.
class GpuLaunchTest : public ::testing::Test {
 protected:
  Result<double> run(cuda::Device& device, const GpuLaunch& launch,
                     std::vector<GpuArgument> arguments) {
    return launch_on(device, launch, arguments,
                     {clock_, [this](BootTime until) { clock_.advance(until - clock_.now()); },
                      [this](const Error& error) { left_ = error; }});
  }
  ManualClock clock_;
  std::optional<Error> left_;  // with what the process would have been left
  const std::vector<std::string> four_{"zero:128", "zero:128", "zero:128", "i32:32"};
};

TEST_F(GpuLaunchTest, TheDeclarationServesWhereTheDriverTellsNoLayout) {
  cuda::RecordingDevice device;
  const std::string text =
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u32 k_0, "
      ".param .u64 k_1, .param .align 16 .b8 k_2[8], .param .f32 k_3) { ret; }\n";
  const GpuLaunch launch = launch_of(text);
  const auto ran = run(device, launch, arguments_of({"i32:7", "zero:16", "u64:1", "f32:1.5"}));
  ASSERT_TRUE(ran) << ran.error().what;
  EXPECT_THAT(device.calls(), ::testing::Contains(HasSubstr("launch k 1x1x1 32x1x1 28 stream")))
      << "0 to 4, 8 to 16, 16 to 24, 24 to 28";
  EXPECT_EQ(device.live_count(), 0U);
}

TEST_F(GpuLaunchTest, ArgumentsThatNobodyCanPlaceAreRefused) {
  cuda::RecordingDevice device;
  GpuLaunch launch{{"machine code"}, {"k", {}}, {}, {}};
  const auto refused = run(device, launch, arguments_of({"i32:7"}));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().what,
              HasSubstr("1 arguments are given, and neither the driver nor PTX tells"));
  EXPECT_TRUE(run(device, launch, {})) << "one without parameters runs";
  EXPECT_EQ(device.live_count(), 0U);
}

TEST_F(GpuLaunchTest, ArgumentsOfAnotherSizeOrNumberAreRefused) {
  cuda::RecordingDevice device;
  const GpuLaunch launch = launch_of(text_of("vector_add"));
  const auto few = run(device, launch, arguments_of({"zero:4"}));
  ASSERT_FALSE(few);
  EXPECT_THAT(few.error().what, HasSubstr("kernel vector_add takes 4 arguments, 1 are given"));
  const auto wide = run(device, launch, arguments_of({"zero:4", "zero:4", "zero:4", "i64:1"}));
  ASSERT_FALSE(wide);
  EXPECT_THAT(wide.error().what, HasSubstr("argument 3 of kernel vector_add has 4 bytes, 8 are"));
  EXPECT_EQ(device.live_count(), 0U);
}

TEST_F(GpuLaunchTest, AKernelIsNamedWhereThereAreSeveral) {
  const std::vector<GpuKernel> two{{"a", {}}, {"b", {{0, 4}}}};
  EXPECT_EQ(choose_kernel("f", "", two).error().what, "f has several kernels");
  EXPECT_EQ(choose_kernel("f", "b", two)->parameters.size(), 1U);
  EXPECT_EQ(choose_kernel("f", "c", two)->name, "c") << "the driver may know it";
  EXPECT_EQ(choose_kernel("f", "", {}).error().what, "f has no kernel");
  EXPECT_EQ(choose_kernel("f", "", {two[0], two[0]})->name, "a") << "one, for two architectures";
}

/// Its kernels never end.
class EndlessDevice final : public cuda::RecordingDevice {
 public:
  using RecordingDevice::is_done;
  Result<bool> is_done(cuda::EventId) override { return false; }
};

TEST_F(GpuLaunchTest, BeyondTheLimitTheProcessIsLeftBeforeAnythingIsGivenBack) {
  EndlessDevice device;
  GpuLaunch launch = launch_of(text_of("vector_add"));
  launch.limit = std::chrono::seconds{60};
  std::size_t live = 0;
  auto arguments = arguments_of(four_);
  const BootTime begin = clock_.now();
  const auto ran =
      launch_on(device, launch, arguments,
                {clock_, [this](BootTime until) { clock_.advance(until - clock_.now()); },
                 [&](const Error&) { live = device.live_count(); }});
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().code, Code::kTimeout);
  EXPECT_EQ(ran.error().what, "time-out: kernel vector_add still runs after 60.0 s");
  EXPECT_EQ(clock_.now() - begin, launch.limit) << "not later than one look";
  EXPECT_EQ(live, 7U) << "module, three buffers, stream, two events";
  EXPECT_EQ(device.live_count(), 0U);
}

TEST_F(GpuLaunchTest, EveryCallOfTheDriverFailsOnceAndItsErrorComesBack) {
  const auto driver = cuda::load_driver(KANSOKU_SOFTGPU_LIBCUDA);
  ASSERT_TRUE(driver) << driver.error().what;
  const GpuLaunch launch = launch_of(text_of("vector_add"));
  std::uint64_t failed = 0;
  for (std::uint64_t nth = 1;; ++nth) {
    const cuda::FailingDriver failing(*driver, nth, Mode::kOnce);
    {
      const auto device = cuda::open_device(failing.driver(), 0, cuda::ContextKind::kOwn);
      const auto ran = device ? run(**device, launch, arguments_of(four_)) : device.error();
      if (!ran) {
        ++failed;
        EXPECT_THAT(ran.error().what, HasSubstr("CUDA_ERROR_UNKNOWN")) << nth;
      }
    }
    if (!failing.has_failed()) break;
    cuda::CUcontext left = nullptr;  // a context that could not be taken off the thread
    while (driver->ctx_pop(&left) == cuda::CUDA_SUCCESS)
      static_cast<void>(driver->ctx_destroy(left));
  }
  EXPECT_GT(failed, 40U);
  EXPECT_FALSE(left_) << "a failure is no time-out";
}

TEST_F(GpuLaunchTest, AFatbinWithoutCodeForTheDeviceIsPassedOver) {
  const auto driver = cuda::load_driver(KANSOKU_SOFTGPU_LIBCUDA);
  ASSERT_TRUE(driver) << driver.error().what;
  const auto device = cuda::open_device(*driver, 0);
  ASSERT_TRUE(device) << device.error().what;
  GpuLaunch launch = launch_of(text_of("vector_add"));
  const std::string empty = cuda::write_fatbin({{launch.images[0], 120}}, {}).value();
  launch.images.insert(launch.images.begin(), {empty, text_of("sgemm")});
  const auto ran = run(**device, launch, arguments_of(four_));
  EXPECT_TRUE(ran) << ran.error().what;
  launch.images.pop_back();
  const auto missing = run(**device, launch, arguments_of(four_));
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().what, HasSubstr("CUDA_ERROR_NO_BINARY_FOR_GPU"));
}

}  // namespace
}  // namespace kansoku::cli
