// SPDX-License-Identifier: Apache-2.0
#include "detect/iteration_detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/rng.h"
#include "detect/incident.h"

namespace kansoku::detect {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kMs = 1'000'000;

/// Feeds whole iterations and counts the signals.
class Job {
 public:
  explicit Job(std::vector<std::uint32_t> word, const IterationOptions& options = {})
      : detector(options), word_(std::move(word)) {}

  void iterate(int count, double length_ms, double jitter = 0) {
    for (int i = 0; i < count; ++i) {
      const double factor = 1 + jitter * (2 * rng_.uniform() - 1) * std::sqrt(3.0);
      const double step_ns = length_ms * kMs * factor / static_cast<double>(word_.size());
      for (const std::uint32_t token : word_) {
        take(detector.on_event(token, static_cast<std::int64_t>(now_ns)));
        now_ns += step_ns;
      }
    }
  }
  void event(std::uint32_t token) {
    take(detector.on_event(token, static_cast<std::int64_t>(now_ns)));
    now_ns += kMs;
  }
  void take(IterationSignal signal) {
    slow += signal == IterationSignal::kSlow ? 1 : 0;
    learned += signal == IterationSignal::kLearned ? 1 : 0;
    forgotten += signal == IterationSignal::kForgotten ? 1 : 0;
  }

  IterationDetector detector;
  double now_ns{1e9};
  int slow{0}, learned{0}, forgotten{0};

 private:
  std::vector<std::uint32_t> word_;
  Rng rng_{5};
};

TEST(IterationDetector, LearnsTheWordAndItsLength) {
  Job job({1, 3, 3, 2});
  job.iterate(9, 40);
  EXPECT_EQ(job.learned, 0);  // nine repeats are one short of ten
  job.iterate(1, 40);
  EXPECT_EQ(job.learned, 1);
  EXPECT_THAT(job.detector.word(), ElementsAre(1, 3, 3, 2));
  job.iterate(60, 40);
  EXPECT_NEAR(job.detector.mean_ns(), 40.0 * kMs, 1.0);
}

// Gradient accumulation and pipelines repeat an event several times within a word.
TEST(IterationDetector, LearnsEveryPeriodUpToItsLimit) {
  for (std::uint32_t period = 2; period <= 64; ++period) {
    std::vector<std::uint32_t> word{0};
    Rng rng(period);
    for (std::uint32_t i = 1; i < period; ++i)
      word.push_back(1 + static_cast<std::uint32_t>(rng.below(3)));
    Job job(word);
    job.iterate(12, 50);
    EXPECT_EQ(job.learned, 1) << "period " << period;
    EXPECT_EQ(job.detector.word().size(), period);
  }
  std::vector<std::uint32_t> longer(65, 1);
  longer[0] = 0;
  Job job(longer);
  job.iterate(40, 50);
  EXPECT_EQ(job.learned, 0);
}

TEST(IterationDetector, DoesNotTakeALoopInsideForTheIteration) {
  std::vector<std::uint32_t> word;
  for (int i = 0; i < 16; ++i)
    word.insert(word.end(), {1, 2});
  word.push_back(3);
  Job job(word);
  job.iterate(30, 100);
  EXPECT_EQ(job.detector.word().size(), 33U);
  EXPECT_EQ(job.slow, 0);
}

TEST(IterationDetector, IsQuietOverAMillionJitteringIterations) {
  Job job({1, 2});
  job.iterate(1'000'000, 50, 0.03);
  EXPECT_EQ(job.slow, 0);
}

TEST(IterationDetector, SeesSixPercentWithinSixtyIterations) {
  for (const double jitter : {0.0, 0.01, 0.03}) {
    Job job({1, 2});
    job.iterate(400, 50, jitter);
    ASSERT_EQ(job.slow, 0);
    job.iterate(60, 53.0 + (jitter > 0 ? 0.6 : 0.0), jitter);
    EXPECT_EQ(job.slow, 1) << "jitter " << jitter;
  }
}

// More ranks than processors: means of fifty iterations wander by several percent, which is far
// more than iterations that scatter on their own would let expect.
TEST(IterationDetector, WhatSwingsAnywayIsNotSlowUntilItSwingsMore) {
  Job job({1, 2});
  const auto swing = [&](int count, double length_ms) {
    for (int i = 0; i < count; ++i)
      job.iterate(1, length_ms * (1 + 0.06 * std::sin(i / 60.0)), 0.02);
  };
  swing(20'000, 50);
  EXPECT_EQ(job.slow, 0);
  swing(400, 65);
  EXPECT_EQ(job.slow, 1);
}

// How far means swing has to be known first.
TEST(IterationDetector, WaitsForEnoughOfThePast) {
  for (const int before : {60, 200}) {
    Job job({1, 2});
    job.iterate(before, 50);
    job.iterate(60, 60);
    EXPECT_EQ(job.slow, before > 100 ? 1 : 0);
  }
}

TEST(IterationDetector, DoesNotSeeFourPercent) {
  Job job({1, 2});
  job.iterate(400, 50);
  job.iterate(2000, 52);
  EXPECT_EQ(job.slow, 0);
}

TEST(IterationDetector, TellsALastingChangeOnce) {
  Job job({1, 2});
  job.iterate(300, 50, 0.02);
  job.iterate(5000, 100, 0.02);  // the batch was doubled
  EXPECT_EQ(job.slow, 1);
  EXPECT_NEAR(job.detector.baseline_ns() / kMs, 100, 3);
}

TEST(IterationDetector, LeavesIterationsWithStrayEventsOut) {
  Job job({1, 2});
  job.iterate(200, 50);
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 30; ++i)
      job.event(7);  // an evaluation loop
    job.iterate(20, 50);
  }
  EXPECT_EQ(job.slow, 0);
  EXPECT_EQ(job.forgotten, 0);
  EXPECT_NEAR(job.detector.mean_ns() / kMs, 50, 0.1);
}

TEST(IterationDetector, LearnsAnewWhenTheWordChanges) {
  Job job({1, 2});
  job.iterate(100, 50);
  for (int i = 0; i < 1000; ++i)
    job.event(3 + static_cast<std::uint32_t>(i % 4));
  EXPECT_EQ(job.forgotten, 1);
  EXPECT_EQ(job.learned, 2);
  EXPECT_THAT(job.detector.word().size(), 4U);
}

TEST(IterationDetector, TellsThatEventsStoppedOnce) {
  Job job({1, 2});
  job.iterate(100, 1000);
  const std::int64_t last = job.detector.last_event_ns();
  EXPECT_EQ(job.detector.on_time(last + 4999 * kMs), IterationSignal::kNone);
  EXPECT_EQ(job.detector.on_time(last + 5000 * kMs), IterationSignal::kBlocked);
  EXPECT_EQ(job.detector.on_time(last + 9000 * kMs), IterationSignal::kNone);
  job.iterate(1, 1000);
  EXPECT_EQ(job.detector.on_time(job.detector.last_event_ns() + 6000 * kMs),
            IterationSignal::kBlocked);
}

TEST(IterationDetector, ShortIterationsWaitForTheFloor) {
  Job job({1, 2});
  job.iterate(100, 10);
  const std::int64_t last = job.detector.last_event_ns();
  EXPECT_EQ(job.detector.on_time(last + 1999 * kMs), IterationSignal::kNone);
  EXPECT_EQ(job.detector.on_time(last + 2000 * kMs), IterationSignal::kBlocked);
}

TEST(IncidentWatch, ManyRanksMakeOneIncident) {
  IncidentWatch watch({});
  std::int64_t now = 1'000'000'000;
  int incidents = 0;
  for (int i = 0; i < 1000; ++i) {
    for (const std::int32_t member : {10, 11, 12, 13}) {
      incidents += watch.on_event(member, 1, now + member).has_value() ? 1 : 0;
      incidents += watch.on_event(member, 2, now + member + 10 * kMs).has_value() ? 1 : 0;
    }
    now += (i < 300 ? 20 : 30) * kMs;
  }
  EXPECT_EQ(incidents, 1);
  EXPECT_EQ(watch.detectors().size(), 4U);
}

TEST(IncidentWatch, BlockedComesThroughThePauseAfterSlow) {
  IncidentWatch watch({});
  std::int64_t now = 1'000'000'000;
  bool was_slow = false;
  for (int i = 0; i < 500; ++i) {
    was_slow = watch.on_event(1, 1, now).has_value() || was_slow;
    was_slow = watch.on_event(1, 2, now + kMs).has_value() || was_slow;
    now += (i < 300 ? 20 : 30) * kMs;
  }
  EXPECT_TRUE(was_slow);
  const auto blocked = watch.on_time(now + 3000 * kMs);
  ASSERT_TRUE(blocked);
  EXPECT_EQ(blocked->kind, Incident::Kind::kBlocked);
  EXPECT_FALSE(watch.on_time(now + 4000 * kMs));
}

/// Two events an iteration of 20 ms each, from `now` on.
std::int64_t iterate(IncidentWatch& watch, std::int32_t member, int count, std::int64_t now) {
  for (int i = 0; i < count; ++i, now += 20 * kMs) {
    static_cast<void>(watch.on_event(member, 1, now));
    static_cast<void>(watch.on_event(member, 2, now + kMs));
  }
  return now;
}

/// Asked ten times a second; how often it says that somebody stands still.
int blocked_between(IncidentWatch& watch, std::int64_t from, std::int64_t to) {
  int count = 0;
  for (std::int64_t now = from; now < to; now += 100 * kMs)
    count += watch.on_time(now).has_value() ? 1 : 0;
  return count;
}

TEST(IncidentWatch, AStandstillInThePauseIsToldAfterIt) {
  IncidentWatch watch({});
  std::int64_t now = iterate(watch, 1, 300, 1'000'000'000);
  watch.settle(now);  // a window was taken: 60 s of pause
  now = iterate(watch, 1, 100, now);
  EXPECT_EQ(blocked_between(watch, now, now + 50'000 * kMs), 0);
  EXPECT_EQ(blocked_between(watch, now + 50'000 * kMs, now + 300'000 * kMs), 1);
}

TEST(IncidentWatch, AStandstillThatBeganInAWindowIsToldAfterIt) {
  IncidentWatch watch({});
  const std::int64_t now = iterate(watch, 1, 300, 1'000'000'000);
  watch.settle(now + 10'000 * kMs);  // no event since `now`
  EXPECT_EQ(blocked_between(watch, now + 10'000 * kMs, now + 300'000 * kMs), 1);
}

TEST(IncidentWatch, RanksThatStandStillOneAfterTheOtherAreOneIncident) {
  IncidentWatch watch({});
  std::int64_t now = 1'000'000'000;
  for (int i = 0; i < 300; ++i, now += 20 * kMs) {
    for (const std::int32_t member : {1, 2}) {
      static_cast<void>(watch.on_event(member, 1, now + member));
      static_cast<void>(watch.on_event(member, 2, now + member + kMs));
    }
  }
  iterate(watch, 2, 20, now);  // the second one goes on for a moment
  EXPECT_EQ(blocked_between(watch, now, now + 300'000 * kMs), 1);
}

}  // namespace
}  // namespace kansoku::detect
