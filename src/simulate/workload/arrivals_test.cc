// SPDX-License-Identifier: Apache-2.0
#include "simulate/workload/arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <map>

#include "simulate/workload/internal/week.h"
#include "simulate/workload/jobs_for_test.h"
#include "stats/fit.h"

namespace kansoku::simulate {
namespace {

using internal::kDayNs;
using internal::kHourNs;
using internal::kWeekNs;
using Kind = ArrivalModel::Kind;
using testing::HasSubstr;

constexpr Nanos kWeek{kWeekNs};

ArrivalModel model_of(Kind kind) {
  ArrivalModel model;
  model.kind = kind;
  return model;
}

ArrivalModel fitted(Kind kind, const Workload& workload, const ArrivalFitOptions& options = {}) {
  auto model = fit_arrivals(kind, workload, 0, workload.jobs.size(), options);
  EXPECT_TRUE(model) << model.error().what;
  return model ? *model : ArrivalModel{};
}

std::vector<double> counts_per_hour(const std::vector<Job>& jobs, std::size_t hours) {
  std::vector<double> counts(hours);
  for (const Job& job : jobs)
    counts[static_cast<std::size_t>(job.submit.count() / kHourNs)] += 1;
  return counts;
}

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values)
    sum += value;
  return sum;
}

TEST(ArrivalKind, NamesGoBothWays) {
  for (const Kind kind :
       {Kind::kConstant, Kind::kRenewal, Kind::kHourOfWeekPoisson, Kind::kHourOfWeekRenewal,
        Kind::kSessions, Kind::kDayBlocks, Kind::kReplay})
    EXPECT_EQ(kind_from_name(kind_name(kind)), kind);
  EXPECT_EQ(kind_from_name("poisson"), std::nullopt);
}

TEST(Arrivals, ConstantGapsAreExact) {
  ArrivalModel model = model_of(Kind::kConstant);
  model.gap = stats::Distribution::constant(2.5);
  const auto jobs = jobs_before(model, 0, 1, Nanos{10'000'000'001});
  ASSERT_EQ(jobs.size(), 4);  // 2.5, 5, 7.5, 10
  EXPECT_EQ(jobs[3].submit, Nanos{10'000'000'000});
  model.intensity = 2;
  EXPECT_EQ(jobs_before(model, 0, 1, Nanos{10'000'000'001}).size(), 8);
}

// Exponential gaps of mean 36 s: counts of 100 an hour, variance = mean.
TEST(Arrivals, ExponentialRenewalIsPoisson) {
  ArrivalModel model = model_of(Kind::kRenewal);
  model.gap = stats::Distribution::exponential(36);
  const auto counts = counts_per_hour(jobs_before(model, 0, 7, 12 * kWeek), 12 * 168);
  EXPECT_NEAR(sum_of(counts) / 2016, 100, 3 * std::sqrt(100 / 2016.0));
  EXPECT_NEAR(stats::index_of_dispersion(counts), 1, 0.12);
}

// Renewal theorem: jobs per second = 1 / mean gap.
TEST(Arrivals, RenewalHasItsMeanRate) {
  ArrivalModel model = model_of(Kind::kRenewal);
  model.gap = *stats::Distribution::make(stats::Family::kGamma, {2.0, 30.0});
  for (const double intensity : {1.0, 3.0}) {
    model.intensity = intensity;
    const double expected = 12 * 604'800.0 / 60 * intensity;
    // Variance of a renewal count: n times the squared CV, 1/2 for shape 2.
    EXPECT_NEAR(static_cast<double>(jobs_before(model, 0, 3, 12 * kWeek).size()), expected,
                4 * std::sqrt(expected / 2));
  }
}

TEST(Arrivals, HourOfWeekPoissonFollowsItsProfile) {
  ArrivalModel model = model_of(Kind::kHourOfWeekPoisson);
  model.rates.assign(kHoursOfWeek, 0);
  model.rates[10] = 40;
  model.rates[167] = 90;
  constexpr int kWeeks = 200;
  const auto jobs = jobs_before(model, 0, 5, kWeeks * kWeek);
  const auto profile = arrival_statistics(jobs, 0).hourly_profile;
  EXPECT_NEAR(profile[10], 40, 4 * std::sqrt(40.0 / kWeeks));
  EXPECT_NEAR(profile[167], 90, 4 * std::sqrt(90.0 / kWeeks));
  EXPECT_EQ(profile[11], 0);
  // Uniform in the hour: the mean place is the middle.
  double place = 0;
  for (const Job& job : jobs)
    place += static_cast<double>(job.submit.count() % kHourNs) / static_cast<double>(kHourNs);
  EXPECT_NEAR(place / static_cast<double>(jobs.size()), 0.5, 0.01);
  // Started in the middle of hour 10: half of it is left.
  model.intensity = 1000;
  const auto late = jobs_before(model, 10 * 3600 + 1800, 5, Nanos{kHourNs});
  EXPECT_NEAR(static_cast<double>(late.size()), 20'000, 600);
  EXPECT_LT(late.back().submit, Nanos{kHourNs / 2});
}

TEST(Arrivals, HourOfWeekRenewalUsesTheHourInWhichAGapStartsAndTheCap) {
  ArrivalModel model = model_of(Kind::kHourOfWeekRenewal);
  model.hour_gaps.assign(kHoursOfWeek, stats::Distribution::constant(600));
  model.hour_gaps[0] = stats::Distribution::constant(1200);
  model.hour_gaps[2] = stats::Distribution::constant(1e9);
  model.gap_cap_s = 7200;
  std::vector<std::int64_t> at_s;
  for (const Job& job : jobs_before(model, 0, 1, Nanos{5 * kHourNs}))
    at_s.push_back(job.submit.count() / 1'000'000'000);
  EXPECT_THAT(at_s, testing::ElementsAre(1200, 2400, 3600, 4200, 4800, 5400, 6000, 6600, 7200,
                                         14'400, 15'000, 15'600, 16'200, 16'800, 17'400));
}

TEST(Arrivals, AStreamThatCannotMoveEnds) {
  EXPECT_TRUE(jobs_before(model_of(Kind::kRenewal), 0, 1, kWeek).empty());  // gap 0
  ArrivalModel model = model_of(Kind::kSessions);
  model.rates.assign(kHoursOfWeek, 1);
  EXPECT_TRUE(jobs_before(model, 0, 1, kWeek).empty());
  EXPECT_TRUE(jobs_before(model_of(Kind::kReplay), 0, 1, kWeek).empty());
  EXPECT_TRUE(jobs_before(model_of(Kind::kDayBlocks), 0, 1, kWeek).empty());
}

TEST(ArrivalFit, ReplayIsIdenticalAndScales) {
  const Workload workload = bursty_workload(1, 11);
  ArrivalModel model = fitted(Kind::kReplay, workload);
  const auto jobs = jobs_before(model, 0, 1, 2 * kWeek);
  ASSERT_EQ(jobs.size(), workload.jobs.size());
  const Nanos begin = workload.jobs.front().submit;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(jobs[i].submit, workload.jobs[i].submit - begin);
    EXPECT_EQ(jobs[i].duration, workload.jobs[i].duration);
    EXPECT_EQ(jobs[i].gpus, workload.jobs[i].gpus);
  }
  model.intensity = 2;
  EXPECT_NEAR(internal::seconds(jobs_before(model, 0, 1, kWeek).back().submit),
              internal::seconds(jobs.back().submit) / 2, 1e-6);
}

// Poisson jobs at 60 an hour on Mondays 9:00-10:00, 6 otherwise: the fit gives them back.
TEST(ArrivalFit, HourOfWeekPoissonRecoversRates) {
  ArrivalModel truth = model_of(Kind::kHourOfWeekPoisson);
  truth.rates.assign(kHoursOfWeek, 6);
  truth.rates[9] = 60;
  Workload workload;
  workload.epoch_in_week_s = 3 * 86'400;
  workload.jobs = jobs_before(truth, workload.epoch_in_week_s, 3, 40 * kWeek);
  const ArrivalModel model = fitted(Kind::kHourOfWeekPoisson, workload);
  EXPECT_NEAR(model.rates[9], 60, 5);
  EXPECT_NEAR(sum_of(model.rates), 6 * 167 + 60, 15);
  EXPECT_NEAR(model.span_s, 40 * 604'800.0, 3600.0);
  EXPECT_EQ(model.epoch_in_week_s, 3 * 86'400);
}

TEST(ArrivalFit, HourlyRenewalHasTheRateOfEachHour) {
  Workload workload;
  workload.epoch_in_week_s = 0;
  ArrivalModel truth = model_of(Kind::kHourOfWeekPoisson);
  truth.rates.assign(kHoursOfWeek, 20);
  std::fill_n(truth.rates.begin() + 48, 48, 80);
  workload.jobs = jobs_before(truth, 0, 3, 12 * kWeek);
  ArrivalFitOptions options;
  options.families = {stats::Family::kExponential, stats::Family::kLogNormal};
  const ArrivalModel model = fitted(Kind::kHourOfWeekRenewal, workload, options);
  EXPECT_NEAR(model.hour_gaps[10].mean(), 180, 60);
  EXPECT_NEAR(model.hour_gaps[60].mean(), 45, 12);
  const auto profile = arrival_statistics(jobs_before(model, 0, 1, 50 * kWeek), 0).hourly_profile;
  EXPECT_NEAR(profile[10], 20, 7);
  EXPECT_NEAR(profile[60], 80, 25);
}

TEST(ArrivalFit, InfiniteMeansAreCapped) {
  Workload workload;
  workload.epoch_in_week_s = 0;
  RandomStream random(1, "pareto");
  Nanos at{0};
  for (int i = 0; i < 2000; ++i) {
    Job job;
    job.submit = at;
    workload.jobs.push_back(job);
    at += internal::nanos_of(std::min(std::pow(random.uniform(), -2.0), 1e6));  // b = 0.5
  }
  ArrivalFitOptions options;
  options.families = {stats::Family::kPareto};
  const ArrivalModel model = fitted(Kind::kRenewal, workload, options);
  EXPECT_EQ(model.gap.family(), stats::Family::kPareto);
  EXPECT_NEAR(model.gap.cap(), 1e6, 1);
  EXPECT_TRUE(std::isfinite(model.gap.mean()));
  Json json = model.to_json();
  Json gap = Json::object();
  gap.set("family", "pareto").set("b", 0.5).set("scale", 1.0);
  json.set("gap", gap);
  const auto refused = ArrivalModel::from_json(json);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().what, HasSubstr("arrivals.gap: its mean is infinite"));
}

TEST(ArrivalFit, SessionsKeepOffsetsAndJobs) {
  const Workload workload = bursty_workload(3, 4);
  const ArrivalModel model = fitted(Kind::kSessions, workload);
  std::size_t jobs = 0;
  for (const auto& session : model.sessions) {
    EXPECT_EQ(session.first, jobs);
    EXPECT_EQ(model.jobs[session.first].submit, Nanos{0});
    for (std::uint32_t i = 1; i < session.count; ++i) {
      const Job& before = model.jobs[session.first + i - 1];
      const Job& job = model.jobs[session.first + i];
      EXPECT_EQ(job.group, before.group);
      EXPECT_LE(job.submit - before.submit, Nanos{120'000'000'000});
    }
    jobs += session.count;
  }
  EXPECT_EQ(jobs, workload.jobs.size());
  // The last session may run into a fourth week.
  EXPECT_NEAR(sum_of(model.rates) * 3, static_cast<double>(model.sessions.size()), 5);

  // Each drawn session is a recorded one: its jobs follow the first at the recorded offsets.
  const auto process = start_arrivals(model, 0, RandomStream(9, "arrivals"));
  std::map<const Job*, std::vector<Nanos>> seen;
  for (auto next = process->next(); next && next->at < kWeek; next = process->next()) {
    ASSERT_NE(next->job, nullptr);
    seen[next->job].push_back(next->at);
  }
  for (const auto& session : model.sessions) {
    const auto& starts = seen[&model.jobs[session.first]];
    const auto& ends = seen[&model.jobs[session.first + session.count - 1]];
    for (std::size_t i = 0; i < std::min(starts.size(), ends.size()); ++i) {
      const Nanos length = model.jobs[session.first + session.count - 1].submit;
      EXPECT_EQ(ends[i] - starts[i], length);
    }
    for (const Nanos at : starts)
      EXPECT_EQ(internal::hour_of_week(at.count()), session.hour);
  }
}

// Properties of bursts: the counts' dispersion and the gaps' memory survive, with Poisson arrivals
// they do not.
TEST(ArrivalFit, SessionsKeepBurstsWithinAQuarter) {
  const Workload workload = bursty_workload(12, 4);
  const auto source = arrival_statistics(workload.jobs, 0);
  const auto within = [](double value, double of) { return std::abs(value / of - 1) < 0.25; };
  const auto of_kind = [&](Kind kind) {
    return arrival_statistics(jobs_before(fitted(kind, workload), 0, 2, 12 * kWeek), 0);
  };
  EXPECT_GT(source.index_of_dispersion, 5);
  EXPECT_GT(source.log_gap_autocorrelation_1, 0.1);
  EXPECT_GT(source.duration_intraclass, 0.8);
  const auto sessions = of_kind(Kind::kSessions);
  EXPECT_TRUE(within(sessions.index_of_dispersion, source.index_of_dispersion));
  EXPECT_TRUE(within(sessions.log_gap_autocorrelation_1, source.log_gap_autocorrelation_1));
  EXPECT_TRUE(within(sessions.per_hour_mean, source.per_hour_mean));
  EXPECT_TRUE(within(sessions.session_jobs_mean, source.session_jobs_mean));
  EXPECT_TRUE(within(sessions.duration_intraclass, source.duration_intraclass));
  const auto days = of_kind(Kind::kDayBlocks);
  EXPECT_TRUE(within(days.index_of_dispersion, source.index_of_dispersion));
  const auto poisson = of_kind(Kind::kHourOfWeekPoisson);
  EXPECT_LT(poisson.index_of_dispersion, 0.5 * source.index_of_dispersion);
}

TEST(ArrivalFit, DayBlocksAreWholeDaysOfTheSameWeekday) {
  const Workload workload = bursty_workload(4, 8);
  ArrivalModel model = fitted(Kind::kDayBlocks, workload);
  EXPECT_EQ(model.span_s, 28 * 86'400.0);
  const auto process = start_arrivals(model, 0, RandomStream(1, "arrivals"));
  std::map<std::int64_t, std::int64_t> drawn;  // day of the stream -> recorded day
  for (auto next = process->next(); next && next->at < 4 * kWeek; next = process->next()) {
    const std::int64_t recorded = next->job->submit.count() / kDayNs;
    const auto [place, first] = drawn.try_emplace(next->at.count() / kDayNs, recorded);
    EXPECT_EQ(place->second, recorded);
    EXPECT_EQ(place->first % 7, recorded % 7);
    EXPECT_EQ(next->at.count() % kDayNs, next->job->submit.count() % kDayNs);
  }
  const auto one = jobs_before(model, 0, 1, 20 * kWeek).size();
  model.intensity = 2.5;
  EXPECT_NEAR(static_cast<double>(jobs_before(model, 0, 1, 20 * kWeek).size()),
              2.5 * static_cast<double>(one), 0.1 * static_cast<double>(one));
}

TEST(ArrivalFit, IntensityScalesEveryKind) {
  const Workload workload = bursty_workload(6, 2);
  for (const Kind kind : {Kind::kConstant, Kind::kRenewal, Kind::kHourOfWeekPoisson,
                          Kind::kHourOfWeekRenewal, Kind::kSessions}) {
    ArrivalFitOptions options;
    options.families = {stats::Family::kLogNormal, stats::Family::kExponential};
    ArrivalModel model = fitted(kind, workload, options);
    const auto one = static_cast<double>(jobs_before(model, 0, 1, 30 * kWeek).size());
    model.intensity = 2;
    const auto two = static_cast<double>(jobs_before(model, 0, 2, 30 * kWeek).size());
    EXPECT_NEAR(two / one, 2, 0.2) << kind_name(kind);
  }
}

TEST(Arrivals, SameSeedSameTimesAndNeverFalling) {
  const Workload workload = bursty_workload(2, 2);
  for (const Kind kind : {Kind::kRenewal, Kind::kHourOfWeekPoisson, Kind::kHourOfWeekRenewal,
                          Kind::kSessions, Kind::kDayBlocks, Kind::kReplay}) {
    const ArrivalModel model = fitted(kind, workload);
    const auto a = jobs_before(model, 7000, 1, kWeek);
    const auto b = jobs_before(model, 7000, 1, kWeek);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].submit, b[i].submit);
      if (i > 0) {
        EXPECT_LE(a[i - 1].submit, a[i].submit) << kind_name(kind);
      }
    }
  }
}

TEST(ArrivalFit, TheReadersTimeZoneDoesNotMatter) {
  const Workload workload = bursty_workload(2, 2);
  std::vector<std::string> texts;
  for (const char* zone : {"UTC", "Asia/Tokyo"}) {
    ASSERT_EQ(setenv("TZ", zone, 1), 0);
    tzset();
    texts.push_back(fitted(Kind::kSessions, workload).to_json().dump());
  }
  unsetenv("TZ");
  tzset();
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(ArrivalFit, RefusesWhatItCannotFit) {
  Workload workload = bursty_workload(1, 2);
  EXPECT_EQ(fit_arrivals(Kind::kRenewal, workload, 0, 19).error().code, Code::kLimit);
  EXPECT_EQ(fit_arrivals(Kind::kReplay, workload, 7, 7).error().code, Code::kLimit);
  EXPECT_TRUE(fit_arrivals(Kind::kReplay, workload, 0, 1));
  EXPECT_EQ(fit_arrivals(Kind::kDayBlocks, workload, 0, 30).error().code, Code::kLimit);
  workload.epoch_in_week_s = -1;
  EXPECT_EQ(fit_arrivals(Kind::kSessions, workload, 0, 30).error().code, Code::kUnsupported);
  EXPECT_TRUE(fit_arrivals(Kind::kReplay, workload, 0, 30));
}

// An hour of which the recording holds little must not get a rate per second.
TEST(ArrivalFit, APartOfAnHourCountsAsOne) {
  Workload workload;
  workload.epoch_in_week_s = 0;
  for (int i = 0; i < 30; ++i) {
    Job job;
    job.submit = Nanos{i * 3'600'000'000'000};
    workload.jobs.push_back(job);
  }
  const ArrivalModel model = fitted(Kind::kHourOfWeekPoisson, workload);
  EXPECT_DOUBLE_EQ(model.rates[29], 1);
  EXPECT_DOUBLE_EQ(model.rates[100], 1);  // not covered: the mean
  ArrivalFitOptions options;
  options.window_begin = Nanos{0};
  options.window_end = kWeek;
  EXPECT_DOUBLE_EQ(fitted(Kind::kHourOfWeekPoisson, workload, options).rates[100], 0);
}

TEST(ArrivalJson, GoesBothWaysForEveryKind) {
  const Workload workload = bursty_workload(2, 2);
  for (const Kind kind :
       {Kind::kConstant, Kind::kRenewal, Kind::kHourOfWeekPoisson, Kind::kHourOfWeekRenewal,
        Kind::kSessions, Kind::kDayBlocks, Kind::kReplay}) {
    ArrivalModel model = fitted(kind, workload);
    model.intensity = 1.5;
    const std::string text = model.to_json().dump();
    const auto parsed = Json::parse(text);
    ASSERT_TRUE(parsed);
    const auto read = ArrivalModel::from_json(*parsed);
    ASSERT_TRUE(read) << kind_name(kind) << ": " << read.error().what;
    EXPECT_EQ(read->to_json().dump(), text);
    const auto a = jobs_before(model, 0, 3, kWeek);
    const auto b = jobs_before(*read, 0, 3, kWeek);
    ASSERT_EQ(a.size(), b.size()) << kind_name(kind);
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].submit, b[i].submit);
      EXPECT_EQ(a[i].duration, b[i].duration);
      EXPECT_EQ(a[i].group, b[i].group);
    }
  }
}

TEST(ArrivalJson, ErrorsNameTheKey) {
  const Workload workload = bursty_workload(1, 2);
  const Json good = fitted(Kind::kSessions, workload).to_json();
  const auto error = [&](std::string_view key, Json value) {
    Json bad = good;
    bad.set(key, std::move(value));
    const auto read = ArrivalModel::from_json(bad);
    EXPECT_FALSE(read) << key;
    return read ? std::string() : read.error().what;
  };
  EXPECT_EQ(error("kind", "bursts"), "arrivals.kind: unknown kind \"bursts\"");
  EXPECT_EQ(error("rate", 1), "arrivals.rate: unknown key");
  EXPECT_EQ(error("intensity", 0), "arrivals.intensity: not a number from 1e-06 to 1000");
  EXPECT_EQ(error("rates", Json::array()), "arrivals.rates: not 168 numbers");
  EXPECT_THAT(error("session_jobs", Json::array().push(1)), HasSubstr("arrivals.session_jobs: 1"));
  EXPECT_EQ(error("groups", Json::array()), "arrivals.jobs.group[0]: beyond the groups");
  EXPECT_EQ(error("jobs", 3), "arrivals.jobs: not an object");
  Json jobs = good.at("jobs");
  jobs.set("gpus", Json::array().push(1));
  EXPECT_THAT(error("jobs", jobs), HasSubstr("arrivals.jobs.gpus: 1 elements, but submit_ns has"));
  EXPECT_EQ(ArrivalModel::from_json(Json(1)).error().what, "arrivals: not an object");
  EXPECT_EQ(ArrivalModel::from_json(Json::object()).error().what, "arrivals.kind: missing");
}

// Every second job of a pair has the duration and the GPUs of the first: one session each.
TEST(ArrivalStatistics, ByHand) {
  std::vector<Job> jobs;
  for (int i = 0; i < 4; ++i) {
    Job job;
    job.submit = Nanos{(i / 2) * kHourNs + (i % 2) * 60'000'000'000};
    job.duration = Nanos{i / 2 == 0 ? 1'000'000'000 : 50'000'000'000};
    job.gpus = 1 + i / 2;
    jobs.push_back(job);
  }
  const auto s = arrival_statistics(jobs, 5 * 3600);
  EXPECT_EQ(s.jobs, 4);
  EXPECT_DOUBLE_EQ(s.per_hour_mean, 2);
  EXPECT_DOUBLE_EQ(s.per_hour_max, 2);
  EXPECT_DOUBLE_EQ(s.index_of_dispersion, 0);
  EXPECT_DOUBLE_EQ(s.gap_mean_s, (60 + 3540 + 60) / 3.0);
  EXPECT_DOUBLE_EQ(s.session_jobs_mean, 2);
  EXPECT_DOUBLE_EQ(s.duration_intraclass, 1);
  EXPECT_DOUBLE_EQ(s.same_gpus_share, 1);
  EXPECT_DOUBLE_EQ(s.hourly_profile[5], 2);
  EXPECT_DOUBLE_EQ(s.hourly_profile[6], 2);
  EXPECT_EQ(arrival_statistics({}, 0).jobs, 0);
}

}  // namespace
}  // namespace kansoku::simulate
