// SPDX-License-Identifier: Apache-2.0
#include "infer/device.h"

#include <gtest/gtest.h>

#include "infer/run_for_test.h"

namespace kansoku::infer {
namespace {

constexpr std::uint32_t kCaller = 101;

/// A model whose graph is one product and one addition, computed by kernels.
class DeviceFiguresTest : public testing::Test {
 protected:
  DeviceFiguresTest() {
    recording_.node(
        1, 0,
        {"MUL_MAT", "product", "F32 4x1x1x1 16", {"F32 8x4x1x1 128 =w", "F32 8x1x1x1 32 =x"}});
    recording_.node(1, 1, {"ADD", "sum", "F32 4x1x1x1 16"});
    stream_ = recording_.custom_track("GPU 0 stream 7");
  }
  /// From `begin`, 100 ns long, with a split that takes all of it.
  void micro_batch(std::int64_t begin, std::uint64_t tokens = 1) {
    recording_.decode({begin, begin + 100}, static_cast<std::int64_t>(tokens));
    recording_.micro_batch({begin, begin + 100}, tokens, 1, "");
    recording_.split({begin + 1, begin + 99}, 1);
  }
  void launch(std::string_view call, std::int64_t at, std::uint32_t tid = kCaller) {
    const auto thread = recording_.thread_track(static_cast<std::int32_t>(tid));
    recording_.slice(thread, {at, at + 2}, call, "cuda_runtime",
                     {trace::Arg::uint(recording_.key("correlation"), ++correlation_)});
  }
  void on_device(std::string_view category, std::string_view name, const Span& span,
                 std::uint64_t kernels = 0) {
    std::vector<trace::Arg> args{trace::Arg::uint(recording_.key("correlation"), correlation_)};
    if (kernels != 0) args.push_back(trace::Arg::uint(recording_.key("kernels"), kernels));
    recording_.slice(stream_, span, name, category, args);
  }
  void kernel(std::string_view name, std::int64_t at, std::int64_t ns) {
    launch("cudaLaunchKernel", at);
    on_device("kernel", name, {next_device_, next_device_ + ns});
    next_device_ += ns + 1;
  }
  [[nodiscard]] DeviceFigures figures() {
    const infer::Run run = recording_.run();
    auto all = device_figures(run);
    EXPECT_TRUE(all.has_value()) << all.error().what;
    EXPECT_EQ(all->size(), 1U);
    return all->empty() ? DeviceFigures{} : all->front();
  }
  RecordingForTest recording_;
  trace::TrackHandle stream_{};
  std::uint64_t correlation_{0};
  std::int64_t next_device_{1000};
};

TEST_F(DeviceFiguresTest, KernelsBelongToTheMicroBatchThatCalledForThem) {
  micro_batch(10);
  kernel("mul_mat_vec_f<float>", 20, 40);
  kernel("k_bin_bcast<op_add, float>", 30, 10);
  micro_batch(200);
  kernel("mul_mat_vec_f<float>", 210, 60);
  kernel("k_bin_bcast<op_add, float>", 220, 10);
  kernel("fill", 400, 5);  // between micro-batches
  const DeviceFigures all = figures();
  ASSERT_EQ(all.phases.size(), 1U);
  const DevicePhase& phase = all.phases[0];
  EXPECT_EQ(phase.phase, Phase::kDecode);
  EXPECT_EQ(phase.micro_batches, 2U);
  EXPECT_EQ(phase.tokens, 2);
  EXPECT_EQ(phase.launches, 4U);
  EXPECT_EQ(phase.kernels, 4U);
  EXPECT_EQ(phase.kernels_least, 2U);
  EXPECT_EQ(phase.kernels_most, 2U);
  EXPECT_EQ(phase.kernel_ns, 120);
  EXPECT_EQ(all.outside, 1U);
  ASSERT_EQ(all.kernels.size(), 2U) << "fill is nobody's";
  EXPECT_EQ(all.kernels[0].name, "mul_mat_vec_f<float>");
  EXPECT_EQ(all.kernels[0].count, 2U);
  EXPECT_DOUBLE_EQ(all.kernels[0].share, 100.0 / 120);
  ASSERT_EQ(all.decoding.size(), 2U);
  EXPECT_EQ(all.decoding[0].kernel_ns, 50);
  EXPECT_EQ(all.decoding[1].kernel_ns, 70);
}

TEST_F(DeviceFiguresTest, KernelsAreToldToTheNodesOfTheirSplit) {
  micro_batch(10);
  kernel("mul_mat_vec_f<float>", 20, 40);
  kernel("k_bin_bcast<op_add, float>", 30, 10);
  micro_batch(200);
  kernel("something_else", 210, 60);
  const DeviceFigures all = figures();
  ASSERT_EQ(all.phases.size(), 1U);
  EXPECT_EQ(all.phases[0].placed, 1U);
  EXPECT_EQ(all.phases[0].unplaced, 1U) << "two nodes, and a kernel that fits neither";
  ASSERT_EQ(all.operators.size(), 2U);
  EXPECT_EQ(all.operators[0].op, "MUL_MAT");
  EXPECT_EQ(all.operators[0].ns, 40);
  EXPECT_EQ(all.operators[0].flops, 2 * 8 * 4);
  EXPECT_EQ(all.operators[1].op, "ADD");
}

TEST_F(DeviceFiguresTest, AGraphCountsWithTheKernelsThatItHolds) {
  micro_batch(10);
  launch("cudaGraphLaunch", 20);
  on_device("cuda_graph", "graph", {1000, 1100}, 21);
  const DeviceFigures all = figures();
  ASSERT_EQ(all.phases.size(), 1U);
  EXPECT_EQ(all.phases[0].launches, 1U);
  EXPECT_EQ(all.phases[0].graphs, 1U);
  EXPECT_EQ(all.phases[0].kernels, 21U);
  EXPECT_EQ(all.phases[0].timed, 0U) << "its nodes would have times of their own";
  EXPECT_TRUE(all.kernels.empty());
}

TEST_F(DeviceFiguresTest, PhasesAreApart) {
  micro_batch(10, 16);
  kernel("mul_mat_f<float>", 20, 100);
  micro_batch(200);
  kernel("mul_mat_f<float>", 210, 10);
  const DeviceFigures all = figures();
  ASSERT_EQ(all.phases.size(), 2U);
  EXPECT_EQ(all.phases[0].phase, Phase::kDecode);
  EXPECT_EQ(all.phases[1].phase, Phase::kPrefill);
  EXPECT_EQ(all.phases[1].tokens, 16);
  ASSERT_EQ(all.kernels.size(), 2U);
  EXPECT_EQ(all.kernels[0].phase, Phase::kPrefill) << "by time";
  EXPECT_EQ(all.decoding.size(), 1U);
}

TEST_F(DeviceFiguresTest, AnotherThreadsLaunchIsOutside) {
  micro_batch(10);
  launch("cudaLaunchKernel", 20, 999);
  on_device("kernel", "k", {1000, 1010});
  const DeviceFigures all = figures();
  EXPECT_TRUE(all.phases.empty());
  EXPECT_EQ(all.outside, 1U);
}

TEST_F(DeviceFiguresTest, AreEmptyWithoutADevice) {
  micro_batch(10);
  const DeviceFigures all = figures();
  EXPECT_TRUE(all.phases.empty());
  EXPECT_TRUE(all.kernels.empty());
  EXPECT_EQ(all.outside, 0U);
}

}  // namespace
}  // namespace kansoku::infer
