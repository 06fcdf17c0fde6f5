// SPDX-License-Identifier: Apache-2.0
#include "export/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "export/internal/utf8.h"

namespace kansoku::exporter {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr MetricDef kGauge{"kansoku_step_mean_seconds", "seconds", MetricType::kGauge, "Help."};
constexpr MetricDef kTimes{"kansoku_wait_seconds", "seconds", MetricType::kHistogram, "Help."};

std::string rank(int number) {
  return std::to_string(number);
}

TEST(MetricNames, FollowUnits) {
  EXPECT_EQ(feature_metric("step_mean", "s"), "kansoku_step_mean_seconds");
  EXPECT_EQ(feature_metric("launch_rate", "1/s"), "kansoku_launch_rate_per_second");
  EXPECT_EQ(feature_metric("read_bytes", "bytes/s"), "kansoku_read_bytes_per_second");
  EXPECT_EQ(feature_metric("resident_bytes", "bytes"), "kansoku_resident_bytes");
  EXPECT_EQ(feature_metric("gpu_memory_used", "bytes"), "kansoku_gpu_memory_used_bytes");
  EXPECT_EQ(feature_metric("thread_count", ""), "kansoku_threads");
  EXPECT_EQ(unit_word("parsec"), "");
  EXPECT_TRUE(is_metric_name("a_1"));
  for (const char* name : {"", "1a", "a-b", "a b", "ä"})
    EXPECT_FALSE(is_metric_name(name)) << name;
}

TEST(MetricSet, KeepsItsLimitAndCountsWhatItDrops) {
  for (const int offered : {2, 3, 4}) {
    MetricSet set(3);
    for (int i = 0; i < offered; ++i)
      set.add(kGauge, {{"rank", rank(i)}}, i);
    EXPECT_EQ(set.series_count(), std::min<std::size_t>(3, static_cast<std::size_t>(offered)));
    EXPECT_EQ(set.dropped_count(), offered == 4 ? 1U : 0U);
  }
}

TEST(MetricSet, CountsTheBucketsOfHistograms) {
  MetricSet set(4);
  set.add(kTimes, {}, {.bounds = {1, 2}, .counts = {1, 2, 3}, .sum = 9});
  EXPECT_EQ(set.series_count(), 3U);
  set.add(kTimes, {{"rank", "1"}}, {.bounds = {1}, .counts = {1, 2}, .sum = 9});
  EXPECT_EQ(set.dropped_count(), 2U);
  set.add(kTimes, {}, {.bounds = {1, 2, 3, 4}, .counts = {1, 2, 3, 4, 5}, .sum = 9});
  EXPECT_EQ(set.series_count(), 0U);  // the same series, grown past the limit
}

TEST(MetricSet, ReplacesTheSameLabelsInAnyOrderAndSkipsNan) {
  MetricSet set;
  set.add(kGauge, {{"rank", "0"}, {"job", "a"}}, 1);
  set.add(kGauge, {{"job", "a"}, {"rank", "0"}}, 2);
  set.add(kGauge, {{"job", "b"}}, std::numeric_limits<double>::quiet_NaN());
  const auto families = set.families();
  ASSERT_EQ(families.size(), 1U);
  ASSERT_EQ(families[0].samples.size(), 1U);
  EXPECT_EQ(families[0].samples[0].value, 2);
}

TEST(MetricSet, CleansLabelValues) {
  MetricSet set;
  set.add(kGauge, {{"job", "a\xFF" + std::string(300, 'b')}}, 1);
  const std::string value = set.families().at(0).samples.at(0).labels.at(0).second;
  EXPECT_EQ(value.size(), MetricSet::kLabelBytesMax);
  EXPECT_TRUE(
      value.starts_with("a\xEF\xBF\xBD"
                        "b"));
}

TEST(CleanUtf8, ReplacesWhatIsNoUtf8) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(internal::clean_utf8("ü観🐢", 100), "ü観🐢");
  EXPECT_EQ(internal::clean_utf8("ü", 1), "");  // not half a letter
  EXPECT_EQ(internal::clean_utf8(std::string_view("a\0b", 3), 100), "a" + bad + "b");
  EXPECT_EQ(internal::clean_utf8("\xC0\x80", 100), bad + bad);              // zero, too long
  EXPECT_EQ(internal::clean_utf8("\xED\xA0\x80", 100), bad + bad + bad);    // half a pair
  EXPECT_EQ(internal::clean_utf8("\xF4\x90\x80\x80", 9), bad + bad + bad);  // beyond, and cut
  EXPECT_EQ(internal::clean_utf8("\xE2\x82", 100), bad + bad);              // ends within
}

TEST(MetricBoard, ShowsTheLatestAndAllThatWasDropped) {
  MetricBoard board;
  EXPECT_THAT(board.latest()->families(), IsEmpty());
  const auto full = [] {
    MetricSet set(1);
    set.add(kGauge, {{"rank", "0"}}, 1);
    set.add(kGauge, {{"rank", "1"}}, 1);
    return set;
  };
  board.publish(full());
  const auto before = board.latest();
  board.publish(full());
  const auto dropped = [](const MetricSet& set) {
    const auto families = set.families();
    EXPECT_EQ(families.at(0).name, "kansoku_export_dropped_series");
    return families.at(0).samples.at(0).value;
  };
  EXPECT_EQ(dropped(*board.latest()), 2);
  EXPECT_EQ(dropped(*before), 1);  // still whole for who holds it
}

}  // namespace
}  // namespace kansoku::exporter
