// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "common/rng.h"
#include "detect/detector_job_for_test.h"

namespace kansoku::detect {
namespace {

TEST(DetectorLearning, AHealthyDayIsQuietWhateverItsTails) {
  Job job(2);
  job.go(86'400);
  EXPECT_LE(job.ids().size(), 1U);
  const auto status = job.detector.status();
  EXPECT_GT(status.refreshes, 5U);
  EXPECT_LE(status.alarms_per_day, 1);
  EXPECT_LE(status.alarms_low, status.alarms_per_day);
  EXPECT_GE(status.alarms_high, status.alarms_per_day);
}

TEST(DetectorLearning, AfterADayItIsAsWideAwakeAsBefore) {
  Job job(2);
  const auto still = [](double gc_share) {
    return [gc_share](int, Window& window) { window.values[at("gc_share")] = gc_share; };
  };
  job.go(86'400, still(0));
  const std::size_t told = job.all.size();
  job.go(3, still(2.1 * known_features()[at("gc_share")].floor));
  EXPECT_EQ(job.all.size(), told) << "what meant nothing yesterday means nothing today";
  job.go(60, still(0));
  job.go(10, [](int, Window& window) {
    window.values[at("gc_share")] = 0;
    if (window.rank == 1) window.values[at("cpu_wait")] = 0.7;
  });
  EXPECT_GT(job.all.size(), told) << "and what was told is told";
}

TEST(DetectorLearning, ARampOfOnePerMilleIsFoundThoughTheMixtureAdapts) {
  Job job(2);
  job.go(1200);
  ASSERT_THAT(job.all, testing::IsEmpty());
  job.go(500, [](int second, Window& window) {
    const double factor = std::pow(1.001, second);
    for (const char* name : {"step_mean", "backward_mean"})
      window.values[at(name)] *= factor;
    window.values[at("step_rate")] /= factor;
  });
  ASSERT_FALSE(job.all.empty());
  EXPECT_THAT(job.all.back().tests, testing::Contains("job"));
}

TEST(DetectorLearning, PhasesOfTheLearningTimeAreNormalLater) {
  Job job(2);
  const auto evaluates = [&](int, Window& window) {
    if (job.second % 100 >= 10) return;
    window.values[at("step_mean")] = kNan;
    window.values[at("step_rate")] = 0;
    window.values[at("backward_mean")] = kNan;
    window.values[at("cpu_cores")] *= 0.6;
  };
  job.go(4000, evaluates);
  EXPECT_THAT(job.all, testing::IsEmpty());
}

TEST(DetectorLearning, ProcessesThatComeAndGoWhileNothingCanBeLearntAreForgotten) {
  Job job(1, 1, std::chrono::minutes{1});
  job.go(600, [](int second, Window& window) {
    window = {-1, 1000 + second, std::vector<double>(known_features().size(), kNan)};
  });
  EXPECT_EQ(job.detector.status().state, Detector::State::kLearning);
  EXPECT_LE(job.detector.status().ranks.size(), 60U);
}

TEST(DetectorLearning, MoreProcessesThanItFollowsAreCountedWhileItLearns) {
  Job job(1100, 1, std::chrono::minutes{1});
  job.go(2);
  EXPECT_EQ(job.detector.status().ranks.size(), 1024U);
  EXPECT_EQ(job.detector.status().skipped, 2U * 76U);
}

TEST(DetectorLearning, SameWindowsSameBytes) {
  std::vector<std::string> texts;
  for (int i = 0; i < 2; ++i) {
    Job job(4, 9);
    job.go(1500);
    job.go(20, [](int, Window& window) {
      if (window.rank == 0) window.values[at("cpu_wait")] = 2;
    });
    job.go(60);
    std::string text = job.detector.model()->to_text();
    for (const Job::Told& one : job.all)
      text += std::to_string(one.id) + one.summary + std::to_string(one.end_ns);
    texts.push_back(text);
    EXPECT_FALSE(job.all.empty());
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(DetectorLearning, AStoredModelWatchesFromTheFirstWindow) {
  Job first(4);
  first.go(400);
  const auto stored = JobModel::from_text(first.detector.model()->to_text());
  ASSERT_TRUE(stored.has_value()) << stored.error().what;
  Job second(4, 2);
  second.detector = *Detector::create(known_features(), {.job = "j"}, *stored);
  EXPECT_EQ(second.detector.status().state, Detector::State::kWatching);
  second.go(10, [](int, Window& window) {
    window.values[at("cpu_wait")] = 2;  // while its ranks start
  });
  EXPECT_THAT(second.all, testing::IsEmpty());
  second.go(10, [](int, Window& window) {
    if (window.rank == 2) window.values[at("cpu_wait")] = 2;
  });
  ASSERT_FALSE(second.all.empty());
  EXPECT_THAT(second.all.back().ranks, testing::ElementsAre(2));
  const auto other = Detector::create(known_features().first(5), {}, *stored);
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code, Code::kUnsupported);
}

TEST(DetectorLearning, WhereARankAlwaysDiffersIsPartOfTheStoredModel) {
  WaitingJob first;
  const auto stored = JobModel::from_text(first.detector.model()->to_text());
  ASSERT_TRUE(stored.has_value()) << stored.error().what;
  EXPECT_THAT(stored->parts().peers.ranks, testing::ElementsAre(0, 1, 2, 3));
  first.detector = *Detector::create(known_features(), {.job = "j"}, *stored);
  first.go_on(300);
  EXPECT_THAT(first.all, testing::IsEmpty());
  first.go_on(20, [](int, Window& window) {  // now as its peers always are
    if (window.rank == 0) window.values[at("cpu_cores")] /= 1.5;
  });
  ASSERT_FALSE(first.all.empty());
  EXPECT_THAT(first.all.back().tests, testing::Contains("rank"));
}

TEST(DetectorLearning, WhatIsLabelledFalseIsLearntAtTheNextRefresh) {
  Job job(2);
  const auto other = [](int, Window& window) { window.values[at("cpu_wait")] = 1.5; };
  job.go(600);
  job.go(100, other);
  job.go(30);
  ASSERT_EQ(job.ids().size(), 1U);
  EXPECT_FALSE(job.detector.take_label(99, true));
  EXPECT_TRUE(job.detector.take_label(job.all.back().id, true));
  const auto refreshes = job.detector.status().refreshes;
  job.go(1500);
  ASSERT_GT(job.detector.status().refreshes, refreshes);
  job.go(100, other);
  EXPECT_EQ(job.ids().size(), 1U);
}

TEST(DetectorLearning, WhatIsLabelledFalseIsLearntThoughTheFeatureNeverMovedBefore) {
  Job job(2);
  const auto calm = [](int, Window& window) { window.values[at("gpu_ecc_errors")] = 0; };
  const auto other = [](int, Window& window) { window.values[at("gpu_ecc_errors")] = 0.6; };
  job.go(600, calm);
  job.go(100, other);
  job.go(30, calm);
  ASSERT_EQ(job.ids().size(), 1U);
  EXPECT_TRUE(job.detector.take_label(job.all.back().id, true));
  const auto refreshes = job.detector.status().refreshes;
  job.go(1500, calm);
  ASSERT_GT(job.detector.status().refreshes, refreshes);
  job.go(100, other);
  EXPECT_EQ(job.ids().size(), 1U);
}

// The other batch size that the job has from now on: it would never end by itself.
TEST(DetectorLearning, WhatIsLabelledFalseWhileItLastsIsLearntAtOnce) {
  Job job(2);
  const auto other = [](int, Window& window) {
    for (const auto feature : {"step_mean", "backward_mean", "collective_p99"})
      window.values[at(feature)] *= 1.5;
    window.values[at("step_rate")] /= 1.5;
  };
  job.go(900);
  job.go(100, other);
  ASSERT_TRUE(job.open().has_value());
  const std::uint64_t id = job.open()->id;
  const auto refreshes = job.detector.status().refreshes;
  EXPECT_TRUE(job.detector.take_label(id, true));
  job.go(1, other);
  EXPECT_EQ(job.detector.status().refreshes, refreshes + 1);
  EXPECT_NE(job.all.back().end_ns, 0);
  EXPECT_EQ(job.all.back().id, id);
  job.go(600, other);
  EXPECT_FALSE(job.open().has_value());
  EXPECT_LE(job.ids().size(), 2U) << "at most the job's pace is told once more";
  job.go(30, [&](int second, Window& window) {
    other(second, window);
    if (window.rank == 1) window.values[at("cpu_wait")] = 3;
  });
  EXPECT_TRUE(job.open().has_value()) << "what is odd still is";
}

// A stored model, and a run that differs from its first window on: nothing healthy is known yet.
TEST(DetectorLearning, WhatIsLabelledFalseEarlyInARunIsLearntOnceThereIsEnoughOfIt) {
  const auto other = [](int, Window& window) { window.values[at("cpu_wait")] = 1.5; };
  Job job(2);
  job.go(600);
  const JobModel model = *job.detector.model();
  job.detector = *Detector::create(known_features(), {.job = "j"}, model);
  job.go(20, other);
  ASSERT_EQ(job.ids().size(), 1U);
  const std::uint64_t id = job.all.back().id;
  EXPECT_TRUE(job.detector.take_label(id, true));
  job.go(1, other);
  EXPECT_TRUE(job.open().has_value()) << "too few windows to learn from";
  job.go(100, other);
  EXPECT_EQ(job.detector.status().refreshes, 1U);
  EXPECT_FALSE(job.open().has_value());
  EXPECT_EQ(job.ids().size(), 1U);
}

TEST(DetectorLearning, ALabelGivenWhileAnIncidentPausesHoldsWhenItGoesOn) {
  const auto other = [](int, Window& window) { window.values[at("cpu_wait")] = 1.5; };
  Job job(2);
  job.go(900);
  job.go(60, other);
  ASSERT_TRUE(job.open().has_value());
  const std::uint64_t id = job.open()->id;
  while (job.open().has_value())
    job.go(1);
  EXPECT_TRUE(job.detector.take_label(id, true));
  const auto refreshes = job.detector.status().refreshes;
  job.go(10, other);
  EXPECT_EQ(job.detector.status().refreshes, refreshes + 1);
  EXPECT_FALSE(job.open().has_value());
  EXPECT_EQ(job.ids().size(), 1U);
}

TEST(DetectorLearning, WhatLoadsBeforeTheFirstStepIsNeitherLearntNorAlarming) {
  const auto loads = [](int, Window& window) {
    for (const char* name :
         {"step_mean", "step_rate", "backward_mean", "collective_p99", "collective_mean"})
      window.values[at(name)] = kNan;
    window.values[at("resident_growth")] = 1e8;
    window.values[at("cpu_cores")] = 6;
  };
  const auto runs = [](int, Window& window) { window.values[at("resident_growth")] = 0; };
  Job job(2);
  job.go(200, loads);
  job.go(420, runs);  // the first five minutes end in the midst
  ASSERT_EQ(job.detector.status().state, Detector::State::kWatching);
  job.go(60, [&](int second, Window& window) {
    runs(second, window);
    window.values[at("backward_mean")] *= 3;
  });
  ASSERT_FALSE(job.all.empty()) << "steps are part of the model";
  const JobModel model = *job.detector.model();
  Job next(2, 2);
  next.detector = *Detector::create(known_features(), {.job = "j"}, model);
  next.go(200, loads);
  EXPECT_THAT(next.all, testing::IsEmpty());
  next.go(60, runs);
  EXPECT_THAT(next.all, testing::IsEmpty());
  next.go(20, [&](int second, Window& window) {
    runs(second, window);
    window.values[at("cpu_wait")] = window.rank == 1 ? 2 : 0.02;
  });
  EXPECT_FALSE(next.all.empty());
  // Nor is it taken for healthy when the model is refreshed.
  Job later(2, 3);
  later.detector = *Detector::create(known_features(), {.job = "j"}, model);
  later.go(500, loads);
  later.go(900, runs);
  ASSERT_GT(later.detector.status().refreshes, 0U);
  const JobModel::Parts& before = model.parts();
  const JobModel::Parts& after = later.detector.model()->parts();
  const double distance = before.threshold - before.level;
  EXPECT_NEAR(after.level, before.level, 0.5 * distance);
  EXPECT_NEAR(after.threshold, before.threshold, distance);
}

TEST(DetectorLearning, StepsThatTheModelNeverSawAreLearntOnceThereAreEnoughOfThem) {
  Job job(2);
  job.go(600, without_steps);
  ASSERT_EQ(job.detector.status().state, Detector::State::kWatching);
  const auto refreshes = job.detector.status().refreshes;
  job.go(310);
  EXPECT_EQ(job.detector.status().state, Detector::State::kLearning);
  EXPECT_NE(job.detector.status().refreshes, refreshes) << "so that it is stored";
  job.go(400);
  ASSERT_EQ(job.detector.status().state, Detector::State::kWatching);
  const std::size_t told = job.all.size();
  job.go(60, [](int, Window& window) { window.values[at("step_mean")] *= 3; });
  EXPECT_GT(job.all.size(), told);
}

TEST(DetectorLearning, AModelThatIsLearntAnewHearsOfLabelsToo) {
  Job job(2);
  job.go(600, without_steps);
  job.go(20, [](int second, Window& window) {
    without_steps(second, window);
    window.values[at("cpu_wait")] = 3;
  });
  job.go(30, without_steps);
  ASSERT_EQ(job.ids().size(), 1U);
  EXPECT_TRUE(job.detector.take_label(job.all.back().id, true));
  job.go(900, without_steps);  // learnt
  job.go(310);                 // unknown steps
  ASSERT_EQ(job.detector.status().state, Detector::State::kLearning);
  const auto refreshes = job.detector.status().refreshes;
  job.go(1200);
  ASSERT_GT(job.detector.status().refreshes, refreshes);
  const JobModel::Parts& parts = job.detector.model()->parts();
  const auto wait =
      std::find_if(parts.coordinates.begin(), parts.coordinates.end(),
                   [](const Coordinate& one) { return one.column == at("cpu_wait"); });
  ASSERT_NE(wait, parts.coordinates.end());
  EXPECT_GT(parts.cuts[static_cast<std::size_t>(wait - parts.coordinates.begin())],
            wait->of(3, parts.columns[wait->column]));
}

TEST(DetectorLearning, ADifferenceBetweenRanksThatTheModelDoesNotKnowIsLearntFirst) {
  WaitingJob first;
  const JobModel model = *first.detector.model();
  first.detector = *Detector::create(known_features(), {.job = "j"}, model);
  const auto elsewhere = [](int, Window& window) { window.rank += 8; };  // this host's ranks now
  for (int i = 0; i < 300; ++i)
    first.go(1, [&](int second, Window& window) {
      // as go_on does it: one of them always does more than its peers
      window.values[at("collective_share")] = 0.5;
      window.values[at("input_share")] = 0.02;
      window.values[at("tcp_rtt")] = window.rank == 0 ? 4e-3 : 1e-3;
      if (window.rank == 0) window.values[at("cpu_cores")] *= 1.5;
      elsewhere(second, window);
    });
  EXPECT_THAT(first.all, testing::IsEmpty());
  first.go(20, [&](int second, Window& window) {
    window.values[at("collective_share")] = 0.5;
    window.values[at("input_share")] = 0.02;
    window.values[at("tcp_rtt")] = window.rank == 0 ? 4e-3 : 1e-3;
    elsewhere(second, window);  // now it does as much as they
  });
  ASSERT_FALSE(first.all.empty());
  EXPECT_THAT(first.all.back().tests, testing::Contains("rank"));
}

TEST(DetectorLearning, ARankThatStandsOutAndIsLabelledFalseIsNotToldAgain) {
  WaitingJob job;
  const auto other = [](int, Window& window) {
    if (window.rank == 2) window.values[at("cpu_cores")] *= 2;
  };
  job.go_on(60, other);
  ASSERT_TRUE(job.open().has_value());
  ASSERT_THAT(job.open()->tests, testing::Contains("rank"));
  EXPECT_TRUE(job.detector.take_label(job.open()->id, true));
  const std::size_t ids = job.ids().size();
  job.go_on(300, other);
  EXPECT_FALSE(job.open().has_value());
  EXPECT_EQ(job.ids().size(), ids);
}

TEST(DetectorLearning, AFewWindowsThatAreLabelledFalseAreLearntAndRemembered) {
  Job job(4);
  const auto other = [](int, Window& window) {
    if (window.rank == 1) window.values[at("cpu_wait")] = 1.5;
  };
  job.go(600);
  job.go(6, other);
  job.go(60);
  ASSERT_EQ(job.ids().size(), 1U);
  EXPECT_TRUE(job.detector.take_label(job.all.back().id, true));
  job.go(1500);
  job.go(6, other);
  job.go(60);
  EXPECT_EQ(job.ids().size(), 1U);
  job.go(40'000);  // a day's worth of refreshes or so
  job.go(6, other);
  EXPECT_EQ(job.ids().size(), 1U);
}

TEST(DetectorLearning, AnErrorThatIsLabelledFalseIsNotToldAgainUnlessThereAreMore) {
  Job job(2);
  const auto errors = [](double count) {
    return [count](int, Window& window) { window.values[at("gpu_xid")] = count; };
  };
  job.go(600, errors(0));
  job.go(1, errors(1));
  job.go(30, errors(0));
  ASSERT_EQ(job.ids().size(), 1U);
  EXPECT_TRUE(job.detector.take_label(job.all.back().id, true));
  job.go(1500, errors(0));
  job.go(1, errors(1));
  job.go(30, errors(0));
  EXPECT_EQ(job.ids().size(), 1U);
  job.go(1, errors(5));
  EXPECT_EQ(job.ids().size(), 2U);
}

TEST(DetectorLearning, AModelOfOtherWindowsOrFloorsIsRefused) {
  Job job(2);
  job.go(400);
  const JobModel model = *job.detector.model();
  const auto longer =
      Detector::create(known_features(), {.job = "j", .window = std::chrono::seconds{5}}, model);
  ASSERT_FALSE(longer.has_value());
  EXPECT_EQ(longer.error().code, Code::kUnsupported);
  JobModel::Parts parts = model.parts();
  parts.columns[at("cpu_wait")].floor *= 2;
  EXPECT_FALSE(
      Detector::create(known_features(), {.job = "j"}, *JobModel::from_parts(std::move(parts))));
}

}  // namespace
}  // namespace kansoku::detect
