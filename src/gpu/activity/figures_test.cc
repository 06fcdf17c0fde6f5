// SPDX-License-Identifier: Apache-2.0
// Figures that a recording does not hold are unknown, in every mode; the page says the same.
#include "gpu/activity/figures.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "gpu/activity/activity.h"
#include "gpu/activity/recording_for_test.h"

namespace kansoku::gpu::activity {
namespace {

using testing::HasSubstr;
using Is = FigureState::Is;

const FigureState& state(const WorkReport& report, Figure figure) {
  return report.figures.at(static_cast<std::size_t>(figure));
}

/// One of everything: a step with an operator, a product, a collective, copies, allocations.
void everything(Recording& r) {
  r.process(100, 0, 2);
  r.call(100, "cudaMalloc", {0, 1}, {{"bytes", 4096}, {"address", 65536}});
  r.host(100, 100, "cpu_op", "aten::mm", {5, 30}, {{"Input Dims", "[[2, 3], [3, 4]]"}});
  r.kernel(100, 7, "gemm", {10, 15}, {20, 40});
  r.host(100, 100, "collective", "ncclAllReduce", {32, 39}, {{"bytes", 1000}, {"nranks", 2}});
  r.kernel(100, 8, "ncclDevKernel_AllReduce_Sum(x)", {33, 38}, {45, 60});
  r.call(100, "cudaMemcpyAsync", {50, 55},
         {{"correlation", 500}, {"bytes", 100}, {"kind", "HtoD"}});
  r.op(100, 7, "gpu_memcpy", "Memcpy HtoD", {70, 80}, 500,
       {{"bytes", 100}, {"kind", "HtoD"}, {"pageable", 0}});
  r.kernel(100, 7, "gemm", {110, 115}, {120, 140});
}

WorkReport in_mode(const std::string& mode) {
  return report_for_test(
      [&](Recording& r) {
        everything(r);
        r.meta("kansoku.cuda.mode", mode);
      },
      {{0, 100}, {100, 200}});
}

TEST(FiguresTest, WithEveryLaunchEverythingIsKnown) {
  const WorkReport report = in_mode("every");
  for (const FigureState& figure : report.figures)
    EXPECT_EQ(figure.is, Is::kKnown) << figure.name << ": " << figure.why;
  EXPECT_EQ(in_mode("graphs").figures.size(), report.figures.size());
}

TEST(FiguresTest, StatesAreThoseOfTheTable) {
  const std::vector<std::pair<std::string, bool FigureRow::*>> modes{
      {"outside", &FigureRow::outside},
      {"sampled:16", &FigureRow::sampled},
      {"every", &FigureRow::every},
      {"graphs", &FigureRow::graphs}};
  for (const auto& [mode, allows] : modes) {
    const WorkReport report = in_mode(mode);
    for (const FigureRow& row : figure_rows()) {
      EXPECT_EQ(state(report, row.figure).is, row.*allows ? Is::kKnown : Is::kUnknown)
          << mode << ": " << row.name;
    }
  }
}

TEST(FiguresTest, UnknownIsNeverZero) {
  const Json outside = to_json(in_mode("outside"), 100);
  const Json device = outside.at("devices").at(std::size_t{0});
  for (const char* key :
       {"window_us", "busy_us", "idle_us", "compute_us", "void", "overlap", "idle", "gaps",
        "queues", "issue_latency_us", "short_kernel_count", "launch_bound", "copies"})
    EXPECT_TRUE(device.at(key).is_null()) << key;
  EXPECT_TRUE(outside.at("gemms").is_null());
  EXPECT_TRUE(outside.at("operators").is_null());
  EXPECT_EQ(outside.at("launch_count").as_int(), 3);
  EXPECT_EQ(outside.at("copies").at(std::size_t{0}).at("bytes").as_int(), 100);
  EXPECT_TRUE(outside.at("copies").at(std::size_t{0}).at("gb_per_s").is_null());
  EXPECT_EQ(outside.at("memory").at(std::size_t{0}).at("high_water_bytes").as_int(), 4096);

  const Json sampled = to_json(in_mode("sampled:16"), 100);
  EXPECT_EQ(sampled.at("mode").as_string(), "sampled:16");
  EXPECT_TRUE(sampled.at("launch_count").is_null());
  const Json kernel = sampled.at("kernels").at(std::size_t{0});
  EXPECT_FALSE(kernel.at("us").is_null());
  EXPECT_TRUE(kernel.at("total_us").is_null());
  EXPECT_TRUE(sampled.at("copies").at(std::size_t{0}).at("bytes").is_null());
  EXPECT_FALSE(sampled.at("copies").at(std::size_t{0}).at("gb_per_s").is_null());
  EXPECT_FALSE(sampled.at("devices").at(std::size_t{0}).at("issue_latency_us").is_null());
  EXPECT_TRUE(sampled.at("devices").at(std::size_t{0}).at("busy_us").is_null());
}

// A training of PyTorch on a GPU whose operations could not get events: 0 ms of device time would
// be a lie.
TEST(FiguresTest, LaunchesOfWhichNoneHasATimeLeaveTheirFiguresUnknown) {
  const WorkReport report = report_for_test(
      [](Recording& r) {
        r.process(100, 0, 2);
        r.call(100, "cudaMalloc", {0, 1}, {{"bytes", 4096}, {"address", 65536}});
        r.call(100, "cuLaunchKernel", {10, 15}, {{"correlation", 1}});
        r.meta("kansoku.cuda.mode", "every");
      },
      {{0, 100}});
  EXPECT_TRUE(report.recorded.is_untimed);
  for (const FigureRow& row : figure_rows()) {
    if (row.figure == Figure::kCopyBytes) continue;  // there are none
    EXPECT_EQ(state(report, row.figure).is, row.outside ? Is::kKnown : Is::kUnknown) << row.name;
  }
  EXPECT_EQ(state(report, Figure::kKernelTimes).why, "no operation of the recording has a time");
  EXPECT_EQ(to_json(report, 100).at("launch_count").as_int(), 1);
}

TEST(FiguresTest, AClockOfItsOwnLeavesComparisonsWithTheHostUnknown) {
  const WorkReport report = report_for_test(
      [](Recording& r) {
        r.device_clock();
        everything(r);
        r.meta("kansoku.cuda.mode", "every");
      },
      {{0, 100}, {100, 200}});
  for (const FigureRow& row : figure_rows()) {
    EXPECT_EQ(state(report, row.figure).is, row.needs_one_clock ? Is::kUnknown : Is::kKnown)
        << row.name;
  }
  EXPECT_FALSE(report.devices[0].issue_latency_us.has_value());
  EXPECT_FALSE(report.devices[0].idle.has_value());
  EXPECT_TRUE(report.devices[0].busy_us.has_value());
  EXPECT_EQ(report.devices[0].negative_latency_count, 0U);
}

TEST(FiguresTest, ModesThatNobodyKnowsGiveWhatHoldsInAll) {
  const WorkReport report = in_mode("quantum");
  EXPECT_EQ(report.recorded.mode, Mode::kUnknown);
  EXPECT_EQ(state(report, Figure::kMemory).is, Is::kKnown);
  EXPECT_EQ(state(report, Figure::kLaunches).is, Is::kUnknown);
  EXPECT_EQ(state(report, Figure::kBusyIdle).is, Is::kUnknown);
  EXPECT_FALSE(report.devices[0].busy_us.has_value());
}

TEST(FiguresTest, WithoutASourceAFigureIsUnknownAndSaysWhy) {
  const WorkReport report = report_for_test([](Recording& r) {
    r.op(100, 7, "kernel", "a", {0, 10}, 0);
    r.op(100, 7, "gpu_memcpy", "Memcpy HtoD", {10, 20}, 0);
  });
  EXPECT_TRUE(report.recorded.is_imported);
  for (const Figure figure : {Figure::kFlops, Figure::kIssueLatency, Figure::kQueueLength,
                              Figure::kVoid, Figure::kIdleCauses, Figure::kMemory,
                              Figure::kCopyBytes, Figure::kOperators, Figure::kLaunches}) {
    EXPECT_EQ(state(report, figure).is, Is::kUnknown) << state(report, figure).name;
    EXPECT_THAT(state(report, figure).why, HasSubstr("which the recording lacks"));
  }
  EXPECT_EQ(state(report, Figure::kBusyIdle).is, Is::kKnown);
}

TEST(FiguresTest, AGraphAsAWholeLeavesItsKernelsOut) {
  const auto fill = [](Recording& r, bool has_nodes) {
    r.meta("kansoku.cuda.mode", has_nodes ? "graphs" : "every");
    r.call(100, "cudaGraphLaunch", {0, 5}, {{"correlation", 1}});
    r.op(100, 7, "cuda_graph", "graph", {10, 100}, 1);
    if (has_nodes) r.op(100, 7, "kernel", "node", {10, 60}, 1);
  };
  const WorkReport whole = report_for_test([&](Recording& r) { fill(r, false); });
  EXPECT_EQ(state(whole, Figure::kKernelTotals).is, Is::kPartly);
  EXPECT_THAT(state(whole, Figure::kKernelTotals).why, HasSubstr("1 graph launches"));
  EXPECT_EQ(state(whole, Figure::kBusyIdle).is, Is::kKnown);
  EXPECT_NEAR(*whole.devices[0].busy_us, 90, 1e-9);
  const WorkReport nodes = report_for_test([&](Recording& r) { fill(r, true); });
  EXPECT_EQ(state(nodes, Figure::kKernelTotals).is, Is::kKnown);
  EXPECT_NEAR(*nodes.devices[0].busy_us, 90, 1e-9);  // a union: nodes lie in their graph
}

TEST(FiguresTest, ARecordingWithoutCudaHasNone) {
  const WorkReport report = report_for_test([](Recording& r) {
    r.host(100, 100, "step", "Optimizer.step", {0, 1});
  });
  EXPECT_EQ(report.recorded.mode, Mode::kNone);
  for (const FigureState& figure : report.figures)
    EXPECT_EQ(figure.is, Is::kUnknown);
  EXPECT_THAT(to_text(report, 10), HasSubstr("recorded: none"));
}

TEST(FiguresTest, ThePageShowsTheTable) {
  std::ifstream file(KANSOKU_SOURCE_DIR "/docs/cuda-report.md");
  std::stringstream page;
  page << file.rdbuf();
  const auto word = [](bool is_there) { return is_there ? "yes" : "-"; };
  for (const FigureRow& row : figure_rows()) {
    EXPECT_THAT(page.str(),
                HasSubstr(fmt::format("| {} | {} | {} | {} | {} |", row.name, word(row.outside),
                                      word(row.sampled), word(row.every), word(row.graphs))));
  }
}

}  // namespace
}  // namespace kansoku::gpu::activity
