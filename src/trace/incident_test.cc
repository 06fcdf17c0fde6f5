// SPDX-License-Identifier: Apache-2.0
#include "trace/incident.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace kansoku::trace {
namespace {

IncidentRecord example() {
  IncidentRecord out;
  out.id = incident_id("h", "j", 1'700'000'000'123'456'789, "latency_spike");
  out.host = "h";
  out.job = "j";
  out.begin_ns = 1'700'000'000'123'456'789;
  out.kind = IncidentKind::kLatencySpike;
  out.has_effect = false;
  out.ranks = {2, 5};
  out.pids = {4711, 4712};
  out.tests = {"rank", "event"};
  out.score = 12.5;
  out.window_count = 3;
  out.evidence = {{"collective_p99", "s", "collective", 0.004, 0.038, 0.75},
                  {"cpu_cores", "ratio", "host", std::nan(""), 1, 0.25}};
  out.summary = "rank 2: slow";
  out.suggestion = "kansoku record";
  out.label = IncidentLabel::kAcknowledged;
  return out;
}

TEST(Incident, RoundTrip) {
  const IncidentRecord before = example();
  const std::string text = before.to_json().dump();
  EXPECT_THAT(text, testing::HasSubstr("\"begin_ns\":\"1700000000123456789\""));
  const auto json = Json::parse(text);
  ASSERT_TRUE(json.has_value());
  const auto after = IncidentRecord::from_json(*json);
  ASSERT_TRUE(after.has_value()) << after.error().what;
  EXPECT_EQ(after->to_json().dump(), text);
  EXPECT_EQ(after->begin_ns, before.begin_ns);
  EXPECT_EQ(after->ranks, before.ranks);
  EXPECT_EQ(after->evidence.size(), 2U);
  EXPECT_TRUE(std::isnan(after->evidence[1].normal));
  EXPECT_DOUBLE_EQ(after->evidence[0].share, 0.75);
}

TEST(Incident, EveryMemberThatIsMissingOrOfAnotherTypeIsNamed) {
  const Json whole = example().to_json();
  for (const std::string& dropped : whole.keys()) {
    for (const bool has_wrong_type : {false, true}) {
      if (dropped == "effect") continue;  // may be missing
      Json part = Json::object();
      for (const std::string& key : whole.keys())
        if (key != dropped) part.set(key, whole.at(key));
      if (has_wrong_type) part.set(dropped, true);
      const auto read = IncidentRecord::from_json(part);
      ASSERT_FALSE(read.has_value()) << dropped;
      EXPECT_EQ(read.error().code, Code::kCorrupt);
      EXPECT_THAT(read.error().what, testing::HasSubstr(dropped));
    }
  }
  EXPECT_FALSE(IncidentRecord::from_json(Json()).has_value());
}

TEST(Incident, EveryWordIsReadAgainAndOthersAreUnknown) {
  for (std::size_t i = 0; i < kIncidentKinds.size(); ++i)
    EXPECT_EQ(incident_kind(word_of(static_cast<IncidentKind>(i))), static_cast<IncidentKind>(i));
  for (std::size_t i = 0; i < kIncidentLabels.size(); ++i)
    EXPECT_EQ(incident_label(word_of(static_cast<IncidentLabel>(i))),
              static_cast<IncidentLabel>(i));
  EXPECT_EQ(incident_kind("of a later version"), IncidentKind::kUnknown);
  EXPECT_FALSE(incident_label("of a later version").has_value());
}

TEST(Incident, LinesOfEarlierVersionsSayNothingOfAnEffectAndHadOne) {
  Json json = Json::object();
  const Json whole = example().to_json();
  for (const std::string& key : whole.keys())
    if (key != "effect") json.set(key, whole.at(key));
  EXPECT_TRUE(IncidentRecord::from_json(json)->has_effect);
  json.set("effect", false);
  EXPECT_FALSE(IncidentRecord::from_json(json)->has_effect);
  json.set("effect", 1);
  EXPECT_FALSE(IncidentRecord::from_json(json).has_value());
}

TEST(Incident, NumbersBeyondTheirBoundsAreRefused) {
  for (const char* ranks : {"[4294967296]", "[1.5]", "[\"1\"]", "[1e300]"}) {
    Json json = example().to_json();
    json.set("ranks", *Json::parse(ranks));
    EXPECT_FALSE(IncidentRecord::from_json(json).has_value()) << ranks;
  }
  for (const Json& time : {Json("-1"), Json("1x"), Json("99999999999999999999"), Json(5)}) {
    Json json = example().to_json();
    json.set("begin_ns", time);
    EXPECT_FALSE(IncidentRecord::from_json(json).has_value());
  }
}

TEST(Incident, LongTextsAndListsAreCut) {
  Json json = example().to_json();
  json.set("summary", std::string(5000, 'x'));
  Json ranks = Json::array();
  for (int i = 0; i < 2000; ++i)
    ranks.push(i);
  json.set("ranks", ranks);
  const auto read = IncidentRecord::from_json(json);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->summary.size(), 4096U);
  EXPECT_EQ(read->ranks.size(), 1024U);
}

TEST(Incident, IdDependsOnEachPartAndOnWhereOneEnds) {
  const std::string id = incident_id("a", "b", 1, "c");
  EXPECT_EQ(id.size(), 16U);
  EXPECT_EQ(id, incident_id("a", "b", 1, "c"));
  EXPECT_NE(id, incident_id("ab", "", 1, "c"));
  EXPECT_NE(id, incident_id("a", "b", 11, "c"));
  EXPECT_NE(id, incident_id("a", "b1", 1, "c"));
  EXPECT_NE(id, incident_id("a", "b", 1, "d"));
}

}  // namespace
}  // namespace kansoku::trace
