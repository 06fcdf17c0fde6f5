// SPDX-License-Identifier: Apache-2.0
#include "simulate/workload/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "simulate/workload/gang_replay.h"
#include "simulate/workload/internal/week.h"
#include "simulate/workload/jobs_for_test.h"
#include "stats/fit.h"

namespace kansoku::simulate {
namespace {

using ArrivalKind = ArrivalModel::Kind;
using testing::HasSubstr;

constexpr Nanos kModelWeek{internal::kWeekNs};

WorkloadFit fitted_workload(const Workload& workload, ArrivalKind kind = ArrivalKind::kSessions) {
  WorkloadFitOptions options;
  options.arrivals = kind;
  options.components = 4;
  auto fit = fit_workload(workload, options);
  EXPECT_TRUE(fit) << fit.error().what;
  return fit ? *std::move(fit) : WorkloadFit{};
}

TEST(WorkloadModel, JsonGoesBothWays) {
  const Workload workload = bursty_workload(2, 3);
  for (const ArrivalKind kind : {ArrivalKind::kSessions, ArrivalKind::kHourOfWeekPoisson}) {
    const WorkloadModel model = fitted_workload(workload, kind).model;
    const std::string text = model.to_json().dump();
    const auto parsed = Json::parse(text);
    ASSERT_TRUE(parsed);
    const auto read = WorkloadModel::from_json(*parsed);
    ASSERT_TRUE(read) << read.error().what;
    EXPECT_EQ(read->to_json().dump(), text);
    const Workload a = synthesize(model, kModelWeek, 5);
    const Workload b = synthesize(*read, kModelWeek, 5);
    ASSERT_EQ(a.jobs.size(), b.jobs.size());
    for (std::size_t i = 0; i < a.jobs.size(); ++i) {
      EXPECT_EQ(a.jobs[i].submit, b.jobs[i].submit);
      EXPECT_EQ(a.jobs[i].duration, b.jobs[i].duration);
      EXPECT_EQ(a.jobs[i].gpus, b.jobs[i].gpus);
    }
  }
}

TEST(WorkloadModel, ErrorsNameTheKey) {
  const Json good = fitted_workload(bursty_workload(2, 3)).model.to_json();
  const auto error = [&](std::string_view key, Json value) {
    Json bad = good;
    bad.set(key, std::move(value));
    const auto read = WorkloadModel::from_json(bad);
    EXPECT_FALSE(read) << key;
    return read ? std::string() : read.error().what;
  };
  EXPECT_EQ(error("schema", "x/1"), "schema: \"x/1\" is not \"kansoku.workload_model/2\"");
  EXPECT_EQ(error("weeks", 1), "weeks: unknown key");
  EXPECT_THAT(error("duration", Json::object().set("family", "weibul")), HasSubstr("duration: "));
  EXPECT_EQ(
      error("duration",
            Json::object().set("family", "burr_xii").set("c", 0.8).set("d", 1.2).set("scale", 9.0)),
      "duration: its mean is infinite: give a cap");
  EXPECT_EQ(error("gpus", Json::array().push(Json::object().set("gpus", 1).set("share", 0.5))),
            "gpus: shares sum to 0.5, not 1");
  EXPECT_EQ(error("gpus", Json::array().push(Json::object().set("gpu", 1))),
            "gpus[0].gpu: unknown key");
  EXPECT_THAT(error("arrivals", Json::object().set("kind", "sessions")), HasSubstr("arrivals."));
}

TEST(WorkloadFit, FindsTheDurationsAndWhatIsKept) {
  const Workload workload = bursty_workload(12, 3);
  const WorkloadFit fit = fitted_workload(workload);
  const Json duration = fit.report.at("duration");
  EXPECT_EQ(fit.report.at("schema").as_string(), "kansoku.workload_fit/2");
  EXPECT_EQ(duration.at("families").size(), 8);
  double last_aic = -1e300;
  for (std::size_t i = 0; i < duration.at("families").size(); ++i) {
    EXPECT_GE(duration.at("families").at(i).at("aic").as_double(), last_aic);
    last_aic = duration.at("families").at(i).at("aic").as_double();
  }
  EXPECT_LT(duration.at("families").at(std::size_t{0}).at("ks_held_out").as_double(), 0.05);
  EXPECT_LT(duration.at("ks_between_parts").as_double(), 0.2);
  EXPECT_EQ(duration.at("chosen").at("qq").size(), 19);
  EXPECT_EQ(duration.at("censored_share").as_double(-1), 0);
  EXPECT_GT(fit.report.at("hours_of_week").at("hours").as_int(), 100);
  const Json kept = fit.report.at("arrivals").at("statistics");
  for (const char* key : {"jobs", "index_of_dispersion", "log_gap_autocorrelation_1",
                          "duration_intraclass", "offered_gpus"})
    EXPECT_TRUE(kept.at(key).at("kept").as_bool()) << key << ": " << kept.at(key).dump();
  double shares = 0;
  for (const auto& [gpus, share] : fit.model.gpus)
    shares += share;
  EXPECT_NEAR(shares, 1, 1e-12);
}

TEST(WorkloadFit, CountsCensoredDurations) {
  Workload workload = bursty_workload(2, 3);
  for (std::size_t i = 0; i < workload.jobs.size(); ++i)
    workload.jobs[i].censored = i % 4 == 0;
  EXPECT_NEAR(fitted_workload(workload).report.at("duration").at("censored_share").as_double(),
              0.25, 0.01);
}

TEST(WorkloadFit, RefusesTooFewDurations) {
  Workload workload = bursty_workload(1, 3);
  for (std::size_t i = 19; i < workload.jobs.size(); ++i)
    workload.jobs[i].duration = Nanos{-1};
  const auto fit = fit_workload(workload, {});
  ASSERT_FALSE(fit);
  EXPECT_EQ(fit.error().code, Code::kLimit);
  EXPECT_THAT(fit.error().what, HasSubstr("19 jobs with a duration"));
}

TEST(WorkloadFit, SameSeedSameBytes) {
  const Workload workload = bursty_workload(2, 3);
  EXPECT_EQ(fitted_workload(workload).report.dump(), fitted_workload(workload).report.dump());
}

// Times only: shapes come from the fits, drawn independently.
TEST(Synthesize, DrawsShapesWhereArrivalsDoNot) {
  WorkloadModel model;
  model.arrivals.kind = ArrivalKind::kRenewal;
  model.arrivals.gap = stats::Distribution::exponential(30);
  model.arrivals.epoch_in_week_s = 3600;
  model.duration = stats::Distribution::exponential(500);
  model.gpus = {{1, 0.75}, {8, 0.25}};
  const Workload workload = synthesize(model, kModelWeek, 1);
  EXPECT_EQ(workload.epoch_in_week_s, 3600);
  double seconds = 0;
  double eight = 0;
  for (const Job& job : workload.jobs) {
    seconds += internal::seconds(job.duration);
    eight += job.gpus == 8 ? 1 : 0;
    EXPECT_EQ(job.gpu_milli, 1000);
  }
  const auto n = static_cast<double>(workload.jobs.size());
  EXPECT_NEAR(seconds / n, 500, 4 * 500 / std::sqrt(n));
  EXPECT_NEAR(eight / n, 0.25, 4 * std::sqrt(0.1875 / n));
}

// The joint draw matters: with durations shuffled among the jobs of the model queues differ.
TEST(Synthesize, ShuffledDurationsGiveOtherQueues) {
  const WorkloadModel model = fitted_workload(bursty_workload(8, 3)).model;
  WorkloadModel shuffled = model;
  auto& jobs = shuffled.arrivals.jobs;
  RandomStream random(1, "shuffle");
  for (std::size_t i = jobs.size(); i > 1; --i)
    std::swap(jobs[i - 1].duration, jobs[random.below(i)].duration);
  double ratio = 0;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Workload joint = synthesize(model, 8 * kModelWeek, seed);
    Workload independent = synthesize(shuffled, 8 * kModelWeek, seed);
    const int gpus = gpus_for_load(joint.jobs, 8 * kModelWeek, 0.6);
    ratio += std::log(replay_gangs(independent.jobs, gpus).mean_wait_s /
                      replay_gangs(joint.jobs, gpus).mean_wait_s);
  }
  EXPECT_GT(std::abs(ratio / 5), 0.2);
}

TEST(Assets, FitDrawAndJson) {
  RandomStream random(3, "assets");
  std::vector<double> rows;
  for (int i = 0; i < 3000; ++i) {
    const double x = stats::normal_quantile(random.uniform());
    const double y = stats::normal_quantile(random.uniform());
    rows.insert(rows.end(), {std::exp(7 + x), std::exp(2 + 0.5 * y), std::exp(10 + x + 0.5 * y)});
  }
  const auto model = fit_assets(rows, 2, 1);
  ASSERT_TRUE(model) << model.error().what;
  double log_rows = 0;
  double log_bytes = 0;
  const auto assets = synthesize_assets(*model, 20'000, 4);
  for (const Asset& asset : assets) {
    log_rows += std::log(asset.rows) / 20'000;
    log_bytes += std::log(asset.bytes) / 20'000;
  }
  EXPECT_NEAR(log_rows, 7, 0.08);
  EXPECT_NEAR(log_bytes, 10, 0.1);
  const std::string text = model->to_json().dump();
  const auto read = AssetModel::from_json(*Json::parse(text));
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(read->to_json().dump(), text);
  rows[4] = 0;
  EXPECT_EQ(fit_assets(rows, 2, 1).error().what, "fit assets: columns of asset 1 are not above 0");
  EXPECT_THAT(AssetModel::from_json(Json::object()).error().what, HasSubstr("schema"));
}

}  // namespace
}  // namespace kansoku::simulate
