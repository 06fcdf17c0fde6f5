// SPDX-License-Identifier: Apache-2.0
#include "capture/probe_table.h"

#include <gtest/gtest.h>

#include <cstring>

namespace kansoku::capture {
namespace {

std::optional<std::uint32_t> add(ProbeTable& table, std::size_t count, std::size_t numbers_max) {
  return add_probes(table, std::vector<ProbeInfo>(count), numbers_max);
}

TEST(ProbeTable, GivesFreeNumbersAgainThatFollowEachOther) {
  ProbeTable table;
  for (std::uint32_t i = 0; i < 4; ++i)
    EXPECT_EQ(add(table, 1, 6), i);
  table[1].is_free = table[3].is_free = true;
  EXPECT_EQ(add(table, 2, 6), 3U) << "1 is alone";
  EXPECT_EQ(table.size(), 5U);
  EXPECT_EQ(add(table, 1, 6), 1U);
  EXPECT_EQ(add(table, 2, 6), std::nullopt);
  EXPECT_EQ(add(table, 1, 6), 5U);
  EXPECT_EQ(add(table, 1, 6), std::nullopt);
}

TEST(Describe, SaysWhenEachCaptureIsRead) {
  FunctionProbes probes;
  probes.bytes = {"count", "result"};
  probes.type = "type";
  probes.type_values = {{"int8", 1}, {"float64", 8}};
  probes.steps = true;
  const std::vector<CaptureDef> captures{parse_capture("count", "arg0").value(),
                                         parse_capture("result", "ret:u32").value(),
                                         parse_capture("type", "arg1:u32").value()};
  const wire_probe probe = describe(probes, captures, WIRE_SINK_RING | WIRE_SINK_TOTALS, true);
  EXPECT_EQ(probe.sinks, WIRE_SINK_RING | WIRE_SINK_TOTALS);
  EXPECT_EQ(probe.flags, WIRE_PROBE_AT_END | WIRE_PROBE_STEPS);
  EXPECT_EQ(probe.capture_count, 3);
  EXPECT_EQ(probe.at_begin, 0b101);
  EXPECT_EQ(probe.at_end, 0b010);
  EXPECT_EQ(probe.factors, 0b001) << "a result is not known at the begin";
  EXPECT_EQ(probe.type, 3);
  EXPECT_EQ(probe.sizes[0], 1);
  EXPECT_EQ(probe.sizes[1], 8);
  EXPECT_EQ(probe.sizes[2], 1) << "unknown types count as bytes";
}

TEST(Describe, TellsScopesByTheirFirstLetters) {
  FunctionProbes probes;
  probes.kind = ProbeKind::kScope;
  probes.scopes = {{"abc", "input"}, {"0123456789abcdef", "optimizer"}};
  const std::vector<CaptureDef> captures{parse_capture("op", "arg0").value(),
                                         parse_capture("arg_count", "arg2").value(),
                                         parse_capture("name", "arg1:pystr").value()};
  const wire_probe probe = describe(probes, captures, WIRE_SINK_TOTALS, false);
  EXPECT_EQ(probe.flags, WIRE_PROBE_INSTANT | WIRE_PROBE_SCOPE | WIRE_PROBE_TEXT);
  EXPECT_EQ(probe.scope_arguments, 1);
  EXPECT_EQ(probe.scope_name, 2);
  ASSERT_EQ(probe.scope_count, 2);
  EXPECT_EQ(std::memcmp(probe.scopes[0].prefix, "abc\0\0\0\0\0", 8), 0);
  EXPECT_EQ(probe.scopes[0].mask[0], 0xffffffU);
  EXPECT_EQ(probe.scopes[0].mask[1], 0U);
  EXPECT_EQ(std::memcmp(probe.scopes[1].prefix, "0123456789abcdef", 16), 0);
  EXPECT_EQ(probe.scopes[1].mask[1], ~0ULL);
}

}  // namespace
}  // namespace kansoku::capture
