// SPDX-License-Identifier: Apache-2.0
#include "capture/metric.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace kansoku::capture {
namespace {

Pack pack_of(std::initializer_list<FunctionProbes> functions) {
  Pack out;
  out.functions = functions;
  return out;
}

FunctionProbes probes_of(const std::string& metric, const std::string& category) {
  FunctionProbes out;
  out.metric = metric;
  out.category = category;
  return out;
}

TEST(MetricTable, HasWhatPacksNameAndWhatFollowsFromSteps) {
  FunctionProbes step = probes_of("step", "backward"), scope = probes_of("", "step");
  step.steps = true;
  scope.kind = ProbeKind::kScope;
  scope.scopes = {{"a", "input"}, {"b", "optimizer"}};
  scope.is_helper = true;
  Pack pack = pack_of({step, scope, probes_of("launch", "cuda")});
  UsdtProbes& gc = pack.usdt.emplace_back();
  gc.metric = "gc";
  gc.is_helper = true;
  const MetricTable table({pack, pack});
  for (const char* name :
       {"block", "stop", "step", "step_interval", "step_gap", "input", "optimizer", "launch", "gc"})
    EXPECT_TRUE(table.index(name).has_value()) << name;
  EXPECT_EQ(table.size(), 9U) << "each once";
  EXPECT_FALSE(table.index("launch_gap").has_value());
  const std::size_t metric = *table.index("step");
  EXPECT_EQ(table.interval_of(metric), table.index("step_interval"));
  EXPECT_EQ(table.gap_of(metric), table.index("step_gap"));
  EXPECT_TRUE(table.is_work(metric));
  EXPECT_TRUE(table.is_work(*table.index("launch")));
  EXPECT_EQ(table.category(*table.index("launch")), "cuda");
  for (const char* name : {"input", "optimizer", "gc", "block", "stop", "step_gap"})
    EXPECT_FALSE(table.is_work(*table.index(name))) << name;
}

TEST(MetricTable, WhatOneProbeCallsWorkIsWork) {
  FunctionProbes helper = probes_of("copy", "c");
  helper.is_helper = true;
  const MetricTable table({pack_of({helper, probes_of("copy", "c")})});
  EXPECT_TRUE(table.is_work(*table.index("copy")));
}

TEST(MetricTable, LeavesOutAndCountsWhatIsBeyondTheLimit) {
  Pack pack;
  for (std::size_t i = 0; i < MetricTable::kMetricsMax; ++i)
    pack.functions.push_back(probes_of(fmt::format("m{}", i), "c"));
  const MetricTable table({pack});
  EXPECT_EQ(table.size(), MetricTable::kMetricsMax);
  EXPECT_EQ(table.left_out(), 2U) << "two are the host's";
}

}  // namespace
}  // namespace kansoku::capture
