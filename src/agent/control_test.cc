// SPDX-License-Identifier: Apache-2.0
#include "agent/control.h"

#include <gtest/gtest.h>

#include <string>

namespace kansoku::agent {
namespace {

struct Fake {
  store::IncidentFilter asked;
  std::string labelled;
  int paused{0}, resumed{0};
  bool asks_while_paused{false};
  ControlActions actions{
      [this] {
        StatusView view;
        view.host = "h";
        view.figures.lowered_probes = 3;
        view.figures.slowness = 4;
        Delivery& webhook = view.deliveries.emplace_back();
        webhook.target = "webhook";
        webhook.counts.failed = 2;
        webhook.counts.last_error = "404";
        view.is_paused = asks_while_paused;
        view.jobs.emplace_back().detector.growing.resize(2);
        view.jobs.back().detector.ranks.push_back({3, 7, 12.5, true});
        return view;
      },
      [this](const store::IncidentFilter& filter) -> Result<std::vector<trace::IncidentRecord>> {
        asked = filter;
        return std::vector<trace::IncidentRecord>(2);
      },
      [this](std::string_view id, std::string_view label) -> Result<bool> {
        if (id == "over") return false;
        if (id != "known") return Error{Code::kNotFound, "no such incident"};
        labelled = std::string(label);
        return true;
      },
      [this](bool is_paused) { ++(is_paused ? paused : resumed); }};
};

Json ask(const std::string& line, const Fake& fake) {
  const auto parsed = Json::parse(answer(line, fake.actions));
  EXPECT_TRUE(parsed.has_value());
  return *parsed;
}

TEST(Control, AnswersStatusWithItsSchema) {
  const Fake fake;
  const Json said = ask(R"({"do": "status"})", fake);
  EXPECT_TRUE(said.at("ok").as_bool());
  EXPECT_EQ(said.at("status").at("schema").as_string(), "kansoku.watch_status/1");
  EXPECT_EQ(said.at("status").at("host").as_string(), "h");
  EXPECT_EQ(said.at("status").at("lowered_probes").as_int(), 3);
  EXPECT_EQ(said.at("status").at("look_every").as_int(), 4);
  EXPECT_EQ(said.at("status").at("deliveries").at(0).at("failed").as_int(), 2);
  EXPECT_EQ(said.at("status").at("deliveries").at(0).at("problem").as_string(), "404");
  EXPECT_EQ(said.at("status").at("jobs").at(0).at("incidents").size(), 2U);
}

TEST(Control, ScoresOfBeforeAPauseAreNotTold) {
  Fake fake;
  const auto rank = [&] {
    return ask(R"({"do": "status"})", fake).at("status").at("jobs").at(0).at("ranks").at(0);
  };
  EXPECT_EQ(rank().at("score").as_double(), 12.5);
  EXPECT_TRUE(rank().at("flagged").as_bool());
  fake.asks_while_paused = true;
  EXPECT_FALSE(rank().at("score").is_number());
  EXPECT_FALSE(rank().at("flagged").as_bool());
}

TEST(Control, PassesOnWhatIsAskedAndBoundsIt) {
  const Fake fake;
  const Json said = ask(
      R"({"do": "incidents", "job": "j", "kind": "k", "open": true, "since_ns": "12", "count": 1e9})",
      fake);
  EXPECT_EQ(said.at("incidents").size(), 2U);
  EXPECT_EQ(fake.asked.job, "j");
  EXPECT_EQ(fake.asked.kind, "k");
  EXPECT_TRUE(fake.asked.only_open);
  EXPECT_EQ(fake.asked.since_ns, 12);
  EXPECT_LE(fake.asked.count_max, 10'000U);
}

TEST(Control, LabelsOnlyWithWordsThatItKnows) {
  const Fake fake;
  EXPECT_TRUE(ask(R"({"do": "label", "id": "known", "label": "false"})", fake).at("ok").as_bool());
  EXPECT_EQ(fake.labelled, "false");
  const Json over = ask(R"({"do": "label", "id": "over", "label": "false"})", fake);
  EXPECT_TRUE(over.at("ok").as_bool());
  EXPECT_FALSE(over.at("learnt").as_bool());
  EXPECT_FALSE(ask(R"({"do": "label", "id": "known", "label": "x"})", fake).at("ok").as_bool());
  const Json unknown = ask(R"({"do": "label", "id": "z", "label": "ack"})", fake);
  EXPECT_FALSE(unknown.at("ok").as_bool());
  EXPECT_EQ(unknown.at("error").as_string(), "no such incident");
}

TEST(Control, PausesAndResumes) {
  const Fake fake;
  static_cast<void>(ask(R"({"do": "pause"})", fake));
  static_cast<void>(ask(R"({"do": "resume"})", fake));
  EXPECT_EQ(fake.paused, 1);
  EXPECT_EQ(fake.resumed, 1);
}

TEST(Control, HostileLinesGetAnErrorAndNothingElse) {
  const Fake fake;
  for (const std::string& line :
       {std::string(), std::string("\0\xff", 2), std::string("[]"), std::string("{}"),
        std::string(R"({"do": 1})"), std::string(R"({"do": "shutdown"})"), std::string(1000, '['),
        std::string(R"({"do": "label"})")}) {
    EXPECT_FALSE(ask(line, fake).at("ok").as_bool()) << line;
  }
  EXPECT_EQ(fake.paused + fake.resumed, 0);
  EXPECT_TRUE(fake.labelled.empty());
}

}  // namespace
}  // namespace kansoku::agent
