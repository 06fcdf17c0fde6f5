// SPDX-License-Identifier: Apache-2.0
#include "fleet/summary.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/rng.h"

namespace kansoku::fleet {
namespace {

const std::string kSketchBytes = "\x01\x02\x03", kJson = R"({"id":"a"})";

Summary full_summary() {
  Summary summary;
  summary.host = "node1";
  summary.boot_id = "b-1";
  summary.epoch_ns = 1'700'000'000'000'000'000;
  summary.sequence = 41;
  summary.begin_ns = summary.epoch_ns + 60'000'000'000;
  summary.end_ns = summary.begin_ns + 60'000'000'000;
  summary.features = {"iteration_s", "gpu_busy_ratio"};
  summary.jobs = {{"key", "train", 16, {0, 1, 7, 2'147'483'647}}, {"k2", "", 0, {}}};
  summary.dropped = {.rank_sketches = 3, .windows = 700};
  summary.parts = {{PartKind::kCounters, kNoIndex, kAllRanks, kNoIndex, {}},
                   {PartKind::kSketch, 0, 7, 1, as_bytes(kSketchBytes)},
                   {PartKind::kSketch, 1, kAllRanks, 0, as_bytes(kSketchBytes)},
                   {PartKind::kSketch, 1, -1, 0, {}},
                   {PartKind::kClusterFeatures, 1, kAllRanks, kNoIndex, as_bytes(kSketchBytes)},
                   {PartKind::kIncident, kNoIndex, kAllRanks, kNoIndex, as_bytes(kJson)},
                   {PartKind::kIncident, 0, kAllRanks, kNoIndex, as_bytes(kJson)}};
  return summary;
}

TEST(Summary, ComesBack) {
  const Summary summary = full_summary();
  const auto bytes = encode_summary(summary);
  ASSERT_TRUE(bytes.has_value());
  const auto again = decode_summary(as_bytes(*bytes));
  ASSERT_TRUE(again.has_value()) << again.error().what;
  EXPECT_EQ(again->host, "node1");
  EXPECT_EQ(again->boot_id, "b-1");
  EXPECT_EQ(again->epoch_ns, summary.epoch_ns);
  EXPECT_EQ(again->sequence, 41U);
  EXPECT_EQ(again->begin_ns, summary.begin_ns);
  EXPECT_EQ(again->end_ns, summary.end_ns);
  EXPECT_EQ(again->features, summary.features);
  EXPECT_EQ(again->jobs[0].ranks, summary.jobs[0].ranks);
  EXPECT_EQ(again->jobs[0].world_size, 16);
  EXPECT_EQ(again->dropped.windows, 700U);
  ASSERT_EQ(again->parts.size(), summary.parts.size());
  for (std::size_t i = 0; i < summary.parts.size(); ++i) {
    EXPECT_EQ(again->parts[i].kind, summary.parts[i].kind);
    EXPECT_EQ(again->parts[i].job, summary.parts[i].job);
    EXPECT_EQ(again->parts[i].rank, summary.parts[i].rank);
    EXPECT_EQ(again->parts[i].feature, summary.parts[i].feature);
    EXPECT_EQ(as_text(again->parts[i].bytes), as_text(summary.parts[i].bytes));
  }
  EXPECT_EQ(encode_summary(*again).value(), *bytes);
}

TEST(Summary, RefusesEveryCutAndSurvivesEveryBitFlip) {
  const std::string bytes = encode_summary(full_summary()).value();
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(decode_summary(as_bytes(bytes).first(length)).has_value()) << length;
  EXPECT_FALSE(decode_summary(as_bytes(bytes + "x")).has_value());
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string bent = bytes;
    bent[bit / 8] = static_cast<char>(bent[bit / 8] ^ (1 << (bit % 8)));
    const auto summary = decode_summary(as_bytes(bent));
    if (summary) {
      EXPECT_EQ(encode_summary(*summary).value(), bent);
    }
  }
}

TEST(Summary, SaysWhatIsWrong) {
  std::string bytes = encode_summary(full_summary()).value();
  bytes[3] = '2';
  EXPECT_EQ(decode_summary(as_bytes(bytes)).error().code, Code::kUnsupported);
  EXPECT_EQ(decode_summary(as_bytes("hello")).error().code, Code::kCorrupt);
  EXPECT_EQ(decode_summary(as_bytes(std::string(kSummaryBytesMax + 1, 'K'))).error().code,
            Code::kLimit);
  Summary summary = full_summary();
  summary.host = "no\nnewlines";
  EXPECT_EQ(encode_summary(summary).error().code, Code::kLimit);
  summary = full_summary();
  summary.jobs[0].ranks.clear();
  for (std::int32_t i = 0; i <= static_cast<std::int32_t>(kSummaryRanksMax); ++i)
    summary.jobs[0].ranks.push_back(i);
  EXPECT_EQ(encode_summary(summary).error().code, Code::kLimit);
  summary.jobs[0].ranks.pop_back();
  EXPECT_TRUE(decode_summary(as_bytes(encode_summary(summary).value())).has_value());
}

TEST(Summary, CountersComeBackInOrderOnly) {
  const Counters counters{{"a", 1}, {"b", std::uint64_t{1} << 48}};
  EXPECT_EQ(decode_counters(as_bytes(encode_counters(counters))).value(), counters);
  EXPECT_FALSE(decode_counters(as_bytes(encode_counters({{"b", 1}, {"a", 1}}))).has_value());
  EXPECT_FALSE(decode_counters(as_bytes(encode_counters({{"a", ~std::uint64_t{0}}}))).has_value());
}

}  // namespace
}  // namespace kansoku::fleet
