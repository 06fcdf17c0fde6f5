// SPDX-License-Identifier: Apache-2.0
#include "detect/detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <limits>
#include <set>

#include "common/rng.h"
#include "detect/detector_job_for_test.h"
#include "detect/internal/evidence.h"

namespace kansoku::detect {
namespace {

TEST(Detector, LearnsThenTellsAFaultOnOneRankWithinFiveSeconds) {
  Job job(4);
  job.go(299);
  EXPECT_EQ(job.detector.status().state, Detector::State::kLearning);
  EXPECT_EQ(job.detector.model(), nullptr);
  job.go(301);
  ASSERT_EQ(job.detector.status().state, Detector::State::kWatching);
  ASSERT_NE(job.detector.model(), nullptr);
  EXPECT_THAT(job.all, testing::IsEmpty());
  const std::int64_t begin = job.now_ns;
  const auto fault = [](int, Window& window) {
    if (window.rank != 2) return;
    window.values[at("tcp_retransmits")] = 210;
    window.values[at("collective_p99")] = 0.038;
  };
  job.go(5, fault);
  ASSERT_FALSE(job.all.empty());
  job.go(25, fault);
  const Job::Told told = job.all.back();
  EXPECT_EQ(word_of(told.kind), "communication_inefficiency");
  EXPECT_THAT(told.ranks, testing::ElementsAre(2));
  EXPECT_THAT(told.pids, testing::ElementsAre(102));
  EXPECT_EQ(told.begin_ns, begin);
  EXPECT_EQ(told.end_ns, 0);
  EXPECT_THAT(told.summary, testing::HasSubstr("rank 2"));
  EXPECT_THAT(told.summary, testing::HasSubstr("TCP retransmits"));
  EXPECT_THAT(told.summary, testing::HasSubstr("CPU normal"));
  EXPECT_THAT(told.suggestion, testing::HasSubstr("profile --job "));
  job.go(60);
  EXPECT_EQ(job.all.back().end_ns, begin + 30 * kSecond);
  EXPECT_EQ(job.ids().size(), 1U);
  EXPECT_FALSE(job.open().has_value());
}

TEST(Detector, WhoTheOthersWaitForIsNamed) {
  Job job(4);
  job.go(600);
  // All ranks are slow; the victims wait in backward, the culprit in its input.
  job.go(30, [](int, Window& window) {
    window.values[at("step_mean")] = 1.2;
    window.values[at("step_rate")] = 0.8;
    if (window.rank == 3) {
      window.values[at("cpu_wait")] = 0.9;
    } else {
      window.values[at("backward_mean")] = 1.1;
      window.values[at("collective_p99")] = 1.0;
    }
  });
  ASSERT_FALSE(job.all.empty());
  EXPECT_THAT(job.all.back().ranks, testing::ElementsAre(3));
  EXPECT_THAT(job.all.back().pids, testing::ElementsAre(103));
}

TEST(Detector, TheOneThatWaitsForItsInputIsNamedNotThoseThatWaitForIt) {
  WaitingJob job;
  job.go_on(20, [](int, Window& window) {
    WaitingJob::slow(window);
    if (window.rank == 2) window.values[at("collective_share")] = 1.9;  // odd in how it waits
    if (window.rank != 1) return;
    window.values[at("collective_share")] = 0.1;
    window.values[at("input_share")] = 0.85;
  });
  ASSERT_FALSE(job.all.empty());
  EXPECT_EQ(word_of(job.all.back().kind), "input_starvation");
  EXPECT_THAT(job.all.back().ranks, testing::ElementsAre(1));
}

TEST(Detector, WhoWaitsLeastIsNamedThoughNothingElseShows) {
  WaitingJob job;
  job.go_on(20, [](int, Window& window) {
    WaitingJob::slow(window);
    if (window.rank == 2) window.values[at("collective_share")] = 2.5;  // odd in how it waits
    if (window.rank == 3) window.values[at("collective_share")] = 0.1;
  });
  ASSERT_FALSE(job.all.empty());
  EXPECT_THAT(job.all.back().ranks, testing::ElementsAre(3));
  EXPECT_EQ(word_of(job.all.back().kind), "latency_spike");
}

TEST(Detector, WhereAllWaitForEachOtherNobodyIsNamed) {
  WaitingJob job;
  job.go_on(20, [](int, Window& window) {
    WaitingJob::slow(window);
    window.values[at("tcp_rtt")] = window.rank == 2 ? 0.02 : 0.006;
  });
  ASSERT_FALSE(job.all.empty());
  EXPECT_THAT(job.all.back().ranks, testing::IsEmpty());
  EXPECT_EQ(word_of(job.all.back().kind), "communication_inefficiency");
}

TEST(Detector, TwoWindowsFarFromAllModesAreEnough) {
  WaitingJob job;
  job.go_on(1, [](int, Window& window) { WaitingJob::slow(window); });
  EXPECT_THAT(job.all, testing::IsEmpty());
  job.go_on(1, [](int, Window& window) { WaitingJob::slow(window); });
  EXPECT_EQ(job.all.size(), 1U);
}

TEST(Detector, ASuddenFaultInAJobThatHasBecomeSlowerIsAnIncidentOfItsOwn) {
  Job job(2);
  job.go(1200);
  double factor = 1;  // grows so slowly that the mixture follows
  const auto slower = [&](int, Window& window) {
    window.values[at("step_mean")] *= factor;
    window.values[at("step_rate")] /= factor;
  };
  for (; factor < 3 && !job.open(); factor *= 1.0005)
    job.go(10, slower);
  ASSERT_TRUE(job.open().has_value());
  const std::uint64_t slow = job.open()->id;
  ASSERT_THAT(job.open()->tests, testing::ElementsAre("job"));
  job.go(10, [&](int second, Window& window) {
    slower(second, window);
    if (window.rank == 1) window.values[at("cpu_wait")] = 2;
  });
  ASSERT_TRUE(job.open().has_value());
  EXPECT_NE(job.open()->id, slow);
  EXPECT_THAT(job.open()->ranks, testing::ElementsAre(1));
}

TEST(Detector, ASingleFeatureBeyondAllHealthIsEnoughWhateverTheMixtureSays) {
  Job job(2);
  RandomStream noise(3, "test.noise");  // the more features, the less a single one weighs
  const auto never = [&](int, Window& window) {
    window.values[at("gpu_throttled")] = 0;
    for (const char* name : {"forward_mean", "launch_mean", "sync_mean", "switches", "preemptions",
                             "minor_faults", "tcp_bytes", "read_bytes", "gpu_pcie_bytes"})
      window.values[at(name)] = 1e6 * std::exp(0.5 * normal(noise));
  };
  job.go(600, never);
  double score = 0;
  job.go(10, [&](int, Window& window) {
    never(0, window);
    if (window.rank == 1) window.values[at("gpu_throttled")] = 0.085;
  });
  for (const auto& rank : job.detector.status().ranks)
    if (rank.rank == 1) score = rank.score;
  EXPECT_LT(score, job.detector.status().threshold);
  ASSERT_EQ(job.ids().size(), 1U);
  EXPECT_THAT(job.all.back().ranks, testing::ElementsAre(1));
}

TEST(Detector, AWorseFaultInAnIncidentThatGoesOnIsOneOfItsOwn) {
  Job job(2);
  job.go(600);
  const auto first = [](int, Window& window) { window.values[at("backward_mean")] *= 1.5; };
  job.go(60, first);
  ASSERT_TRUE(job.open().has_value());
  const std::uint64_t id = job.open()->id;
  job.go(60, first);
  EXPECT_EQ(job.open()->id, id);  // the same for as long as it lasts
  const std::int64_t begin_ns = job.now_ns;
  const auto second_one = [&](int second, Window& window) {
    first(second, window);
    if (window.rank == 1) window.values[at("collective_p99")] = 4;
  };
  job.go(5, second_one);
  ASSERT_TRUE(job.open().has_value());
  EXPECT_THAT(job.open()->ranks, testing::IsEmpty()) << "one of two is worse by chance";
  job.go(5, second_one);
  ASSERT_TRUE(job.open().has_value());
  EXPECT_NE(job.open()->id, id);
  EXPECT_GE(job.open()->begin_ns, begin_ns - 1'000'000'000);
  EXPECT_THAT(job.open()->ranks, testing::ElementsAre(1));
  const auto first_over = std::find_if(job.all.begin(), job.all.end(), [&](const auto& one) {
    return one.id == id && one.end_ns != 0;
  });
  ASSERT_NE(first_over, job.all.end());
  EXPECT_LE(first_over->end_ns, begin_ns) << "one after the other";
}

TEST(Detector, WhatWasNotSeenInAnIncidentIsNoOtherFault) {
  Job job(2);
  job.go(600);
  const auto slow = [](int, Window& window) { window.values[at("backward_mean")] *= 1.5; };
  job.go(30, [&](int second, Window& window) {
    slow(second, window);
    window.values[at("collective_p99")] = kNan;  // as of a process that stands still
  });
  ASSERT_EQ(job.ids().size(), 1U);
  job.go(10, [&](int second, Window& window) {
    slow(second, window);
    window.values[at("collective_p99")] = 4;
  });
  EXPECT_EQ(job.ids().size(), 1U);
}

TEST(Detector, AFaultThatUnfoldsInItsFirstWindowsIsOneIncident) {
  Job job(2);
  job.go(600);
  job.go(12, [](int second, Window& window) {
    window.values[at("backward_mean")] *= 1.5;
    if (second >= 4 && window.rank == 1) window.values[at("collective_p99")] = 4;
  });
  EXPECT_EQ(job.ids().size(), 1U);
}

TEST(Detector, WhatIsHardlyOddJustBeforeAFaultIsNotItsBegin) {
  Job job(2);
  const auto hardly = [](int, Window& window) { window.values[at("cpu_wait")] = 0.45; };
  job.go(600);
  job.go(1, hardly);
  job.go(1);
  job.go(1, hardly);
  const std::int64_t begin_ns = job.now_ns;
  job.go(5, [](int, Window& window) { window.values[at("backward_mean")] *= 8; });
  ASSERT_EQ(job.ids().size(), 1U);
  EXPECT_EQ(job.all.back().begin_ns, begin_ns);
}

TEST(Detector, AQuietWindowAmongFiveSavesOnlyWhatIsHardlyOdd) {
  const auto incidents_of = [](double cpu_wait, bool has_quiet_one) {
    const auto odd = [&](int, Window& window) { window.values[at("cpu_wait")] = cpu_wait; };
    Job job(2, 1, std::chrono::minutes{30});  // long enough to know how rare odd windows are
    job.go(1900);
    job.go(1, odd);
    if (has_quiet_one) {
      job.go(1);
    } else {
      job.go(1, odd);
    }
    job.go(3, odd);
    job.go(60);
    return job.ids().size();
  };
  EXPECT_EQ(incidents_of(0.7, true), 0U);
  EXPECT_EQ(incidents_of(0.7, false), 1U);
  EXPECT_EQ(incidents_of(1.2, true), 1U);
}

TEST(Detector, WhatIsHardlyOddKeepsNoSevereIncidentOpenAndIsNotPartOfIt) {
  Job job(2);
  job.go(600);
  job.go(20, [](int, Window& window) {
    window.values[at("backward_mean")] *= 8;
    window.values[at("collective_p99")] *= 100;
    window.values[at("cpu_wait")] = 5;
  });
  ASSERT_EQ(job.ids().size(), 1U);
  const std::int64_t over_ns = job.now_ns;
  const std::uint64_t severe = *job.ids().begin();
  const auto hardly = [](int, Window& window) { window.values[at("cpu_wait")] = 0.45; };
  job.go(60, hardly);
  const auto told = std::find_if(job.all.rbegin(), job.all.rend(),
                                 [&](const auto& one) { return one.id == severe; });
  EXPECT_GT(told->end_ns, 0);
  EXPECT_LE(told->end_ns, over_ns);
  ASSERT_EQ(job.ids().size(), 2U);
  EXPECT_TRUE(job.open().has_value());
  EXPECT_NE(job.open()->id, severe);
  EXPECT_LE(job.open()->begin_ns, over_ns + 12'000'000'000) << "once it is over";
}

TEST(Detector, AJobThatRunsFasterIsNoIncident) {
  Job job(2);
  job.go(600);
  job.go(120, [](int, Window& window) {
    for (const char* time : {"step_mean", "backward_mean", "collective_p99", "collective_mean"})
      window.values[at(time)] *= 0.4;
    window.values[at("step_rate")] *= 2.5;
    window.values[at("cpu_cores")] *= 2;  // follows from the pace
  });
  EXPECT_THAT(job.all, testing::IsEmpty());
}

TEST(Detector, AnErrorThatHardwareReportsIsToldAtOnce) {
  Job job(2);
  const auto healthy = [](int, Window& window) { window.values[at("gpu_xid")] = 0; };
  job.go(600, healthy);
  job.go(1, [](int, Window& window) { window.values[at("gpu_xid")] = window.rank == 1 ? 1 : 0; });
  ASSERT_EQ(job.all.size(), 1U);
  EXPECT_EQ(word_of(job.all[0].kind), "hardware_fault");
  EXPECT_THAT(job.all[0].ranks, testing::ElementsAre(1));
}

TEST(Detector, AnErrorThatHardwareReportsIsToldThoughAnIncidentIsOpen) {
  Job job(2);
  const auto slow = [](int, Window& window) {
    window.values[at("gpu_xid")] = 0;
    window.values[at("backward_mean")] *= 1.5;
  };
  const auto error = [&](int second, Window& window) {
    slow(second, window);
    if (window.rank == 1) window.values[at("gpu_xid")] = 1;
  };
  job.go(600, [](int, Window& window) { window.values[at("gpu_xid")] = 0; });
  job.go(60, slow);
  ASSERT_EQ(job.ids().size(), 1U);
  job.go(1, error);
  ASSERT_EQ(job.ids().size(), 2U);
  EXPECT_EQ(word_of(job.all.back().kind), "hardware_fault");
  EXPECT_THAT(job.all.back().ranks, testing::ElementsAre(1));
  job.go(9, slow);
  job.go(1, error);  // the same again
  EXPECT_EQ(job.ids().size(), 2U);
}

TEST(Detector, ARestartWithinThePauseIsTheSameIncidentALaterOneIsNot) {
  Job job(4);
  const auto fault = [](int, Window& window) {
    if (window.rank == 1) window.values[at("cpu_wait")] = 1.5;
  };
  job.go(600);
  job.go(10, fault);
  job.go(12);
  job.go(10, fault);
  job.go(100);
  EXPECT_EQ(job.ids().size(), 1U);
  job.go(10, fault);
  job.go(100);
  EXPECT_EQ(job.ids().size(), 2U);
  EXPECT_EQ(word_of(job.all.back().kind), "resource_contention");
}

TEST(Detector, RareOutliersMakeNoAlarmInAMillionWindows) {
  auto detector = *Detector::create(known_features(), {.job = "j"});
  RandomStream random(7, "test.outliers");
  Window window{-1, 4711, std::vector<double>(known_features().size(), kNan)};
  std::size_t told = 0;
  for (std::int64_t second = 0; second < 1'000'000; ++second) {
    const double outlier = random.uniform() < 0.005 ? 3 : 1;
    window.values[at("step_mean")] = 0.2 * outlier * std::exp(0.02 * normal(random));
    window.values[at("cpu_cores")] = 1.1 * std::exp(0.02 * normal(random));
    told += detector.on_windows(kStart + second * kSecond, std::span(&window, 1)).size();
  }
  EXPECT_EQ(told, 0U);
  EXPECT_GT(detector.status().flagged, 4000U);
}

// A rank that faults more in each step than it did takes longer in its forward pass too.
TEST(Detector, PageFaultsAreTheKernelsAndNoPhase) {
  const auto faulting = [](int rank, double faults, double system) {
    return [=](int, Window& window) {
      window.values[at("faults_per_step")] = window.rank == rank ? faults : 60;
      window.values[at("system_share")] = window.rank == rank ? system : 0.1;
      window.values[at("forward_mean")] = window.rank == rank && faults > 60 ? 0.2 : 0.1;
      if (faults > 60) window.values[at("step_mean")] = 0.3;
    };
  };
  Job job(4);
  job.go(600, faulting(2, 60, 0.1));
  job.go(10, faulting(2, 2200, 0.45));
  ASSERT_TRUE(job.open().has_value());
  EXPECT_EQ(word_of(job.open()->kind), "page_faults");
  EXPECT_THAT(job.open()->ranks, testing::ElementsAre(2)) << "the kernel counts them by process";
}

TEST(Detector, TimeInTheKernelIsNoPhase) {
  Job job(1);
  const auto in_kernel = [](double share, double forward) {
    return [=](int, Window& window) {
      window.values[at("system_share")] = share;
      window.values[at("forward_mean")] = forward;
    };
  };
  job.go(600, in_kernel(0.1, 0.1));
  job.go(20, in_kernel(0.1, 0.2));
  EXPECT_EQ(word_of(job.all.back().kind), "slow_forward");
  job.go(60, in_kernel(0.1, 0.1));
  job.go(20, in_kernel(0.6, 0.2));
  EXPECT_EQ(word_of(job.all.back().kind), "kernel_time");
}

// Now one of equal ranks is the slowest and now another, by luck one of them more often.
TEST(Detector, RanksThatAreSlowInTurnAreNotNamed) {
  Job job(3);
  const auto in_turn = [](bool is_slow) {
    return [=](int second, Window& window) {
      const bool is_its_turn = is_slow && window.rank == (second % 5 < 3 ? 2 : 1);
      window.values[at("optimizer_share")] = is_its_turn ? 0.5 : 0.1;
      if (is_slow) window.values[at("step_mean")] = 0.3;
    };
  };
  job.go(600, in_turn(false));
  job.go(60, in_turn(true));
  ASSERT_FALSE(job.all.empty());
  for (const auto& told : job.all)
    EXPECT_THAT(told.ranks, testing::IsEmpty()) << told.summary;
}

Job::Change optimizer_share_of(int rank, double share) {
  return [=](int, Window& window) {
    window.values[at("optimizer_share")] = window.rank == rank ? share : 0.1;
    if (share > 0.1) window.values[at("step_mean")] = 0.3;
  };
}

// One rank has the work of its optimizer alone: named from the eighth window on.
TEST(Detector, ARankThatIsSlowInEveryWindowIsNamed) {
  Job job(4);
  job.go(600, optimizer_share_of(3, 0.1));
  job.go(6, optimizer_share_of(3, 0.5));
  ASSERT_TRUE(job.open().has_value());
  EXPECT_THAT(job.open()->ranks, testing::IsEmpty());
  job.go(4, optimizer_share_of(3, 0.5));
  EXPECT_THAT(job.open()->ranks, testing::ElementsAre(3));
  EXPECT_EQ(word_of(job.open()->kind), "slow_optimizer");
  job.go(130, optimizer_share_of(3, 0.5));  // longer than any bound of the evidence
  job.go(20, optimizer_share_of(3, 0.1));
  EXPECT_THAT(job.all.back().ranks, testing::ElementsAre(3));
  EXPECT_EQ(word_of(job.all.back().kind), "slow_optimizer");
}

// The quiet windows at its end are no windows in which the other one was slower.
TEST(Detector, OfTwoTheOneThatWasSlowKeepsItsName) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Job job(2, seed);
    job.go(600, optimizer_share_of(1, 0.1));
    job.go(22, optimizer_share_of(1, 0.5));
    job.go(20, optimizer_share_of(1, 0.1));
    EXPECT_THAT(job.all.back().ranks, testing::ElementsAre(1)) << "seed " << seed;
  }
}

// One rank waits for its input and another for processors: each is named, by its own test.
TEST(Detector, ARankThatIsComparedIsNotHeldAgainstOneThatIsSeen) {
  Job job(5);
  const auto both = [](bool is_on) {
    return [=](int, Window& window) {
      window.values[at("input_share")] = is_on && window.rank == 1 ? 0.8 : 0.02;
      window.values[at("throttled_share")] = is_on && window.rank == 3 ? 0.9 : 0.0;
      if (is_on) window.values[at("step_mean")] = 0.6;
    };
  };
  job.go(600, both(false));
  job.go(30, both(true));
  ASSERT_TRUE(job.open().has_value());
  EXPECT_THAT(job.open()->ranks, testing::ElementsAre(1, 3));
}

// By luck of the heap one rank always faults more: that is no news when the links are slow.
TEST(Detector, ARankThatAlwaysFaultedMoreIsNotNamedForAnotherFault) {
  Job job(4);
  const auto luck = [](bool is_slow) {
    return [=](int, Window& window) {
      window.values[at("faults_per_step")] = window.rank == 2 ? 2900 : 10;
      window.values[at("tcp_rtt")] = is_slow ? 0.02 : 0.0005;
      if (is_slow) window.values[at("step_mean")] = 0.5;
    };
  };
  job.go(600, luck(false));
  job.go(20, luck(true));
  ASSERT_TRUE(job.open().has_value());
  EXPECT_EQ(word_of(job.open()->kind), "communication_inefficiency");
  EXPECT_THAT(job.open()->ranks, testing::IsEmpty());
}

TEST(Detector, OutliersInThreeOfTenWindowsOfOneRankAreOneAlarm) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    Job job(8, seed);
    job.go(600);
    RandomStream random(seed, "test.burst");
    job.go(80, [&](int, Window& window) {
      if (window.rank == 5 && random.uniform() < 0.3) window.values[at("collective_p99")] = 0.05;
    });
    job.go(100);
    EXPECT_EQ(job.ids().size(), 1U) << "seed " << seed;
    ASSERT_FALSE(job.all.empty());
    EXPECT_THAT(job.all.back().ranks, testing::ElementsAre(5)) << "seed " << seed;
  }
}

TEST(Detector, SteadyGrowthOfMemoryIsTold) {
  Job job(2);
  job.go(1800);
  ASSERT_THAT(job.all, testing::IsEmpty());
  job.go(1200, [](int second, Window& window) {
    if (window.rank == 1) window.values[at("resident_bytes")] += 1e6 * second;
  });
  ASSERT_EQ(job.ids().size(), 1U);
  EXPECT_EQ(word_of(job.all.back().kind), "memory_growth");
  EXPECT_THAT(job.all.back().ranks, testing::ElementsAre(1));
  EXPECT_THAT(job.all.back().summary, testing::HasSubstr("MB a minute"));
  EXPECT_GT(job.all.back().evidence.at(0).seen, job.all.back().evidence.at(0).normal + 64e6);
}

TEST(Detector, GrowthThatIsLabelledFalseIsNormalUntilItIsFaster) {
  Job job(2);
  job.go(600);
  double bytes = 0, speed = 1e6;
  const auto grow = [&](int, Window& window) {
    if (window.rank == 1) window.values[at("resident_bytes")] += bytes += speed;
  };
  job.go(1200, grow);
  ASSERT_FALSE(job.all.empty());
  const std::uint64_t id = job.all.back().id;
  ASSERT_EQ(job.growing().size(), 1U);
  EXPECT_EQ(job.growing()[0].id, id);
  EXPECT_TRUE(job.detector.take_label(id, true));
  job.go(1, grow);
  EXPECT_EQ(job.all.back().id, id);
  EXPECT_NE(job.all.back().end_ns, 0);
  EXPECT_TRUE(job.growing().empty());
  const std::size_t told = job.all.size();
  job.go(1200, grow);
  EXPECT_EQ(job.all.size(), told) << "it is normal now";
  speed = 4e6;
  job.go(1200, grow);
  EXPECT_GT(job.all.size(), told);
}

TEST(Detector, WhatToRunNextIsOfTheProcessWhereNoJobIsTold) {
  trace::IncidentFacts facts;
  EXPECT_THAT(suggestion_of("python3/1234", facts), testing::HasSubstr("--pid 1234 "));
  const std::string job = "10.0.0.1:29500";
  EXPECT_THAT(suggestion_of(job, facts), testing::HasSubstr("profile --job 10.0.0.1:29500 "));
  facts.pids = {7};
  EXPECT_THAT(suggestion_of(job, facts), testing::HasSubstr("--pid 7 "));
  facts.ranks = {3};
  EXPECT_THAT(suggestion_of(job, facts), testing::HasSubstr("profile --job 10.0.0.1:29500 "));
}

TEST(Detector, GrowthIsOfARankWhereNoPidIsKnown) {
  Job job(2);
  job.go(600);
  job.go(800, [](int second, Window& window) {
    window.pid = 0;  // as of recorded windows
    if (window.rank == 0) window.values[at("resident_bytes")] += 2e5 * second;
  });
  const auto told = std::find_if(job.all.begin(), job.all.end(), [](const auto& one) {
    return one.kind == trace::IncidentKind::kMemoryGrowth;
  });
  ASSERT_NE(told, job.all.end());
  EXPECT_THAT(told->ranks, testing::ElementsAre(0));
}

TEST(Detector, AStoppedProcessIsSaidToBeStopped) {
  Job job(4);
  const auto runs = [](int, Window& window) { window.values[at("stopped_share")] = 0; };
  job.go(600, runs);
  job.go(10, [](int, Window& window) {
    const bool is_stopped = window.rank == 3;
    window.values[at("stopped_share")] = is_stopped ? 1 : 0;
    if (is_stopped) window.values[at("cpu_cores")] = 0;
    window.values[at("step_rate")] = 0;
    window.values[at("step_mean")] = kNan;
  });
  ASSERT_FALSE(job.all.empty());
  EXPECT_THAT(job.all.back().ranks, testing::ElementsAre(3));
  EXPECT_THAT(job.all.back().summary, testing::HasSubstr("stopped by a signal"));
}

TEST(Detector, OddInputIsCountedAndHarmless) {
  Job job(3);
  job.go(400);
  const auto before = job.detector.status().skipped;
  Window window{0, 100, std::vector<double>(3, 1.0)};
  EXPECT_TRUE(job.detector.on_windows(kStart - 5, std::span(&window, 1)).empty());  // back in time
  EXPECT_TRUE(job.detector.on_windows(job.now_ns + 1, std::span(&window, 1)).empty());  // too short
  EXPECT_EQ(job.detector.status().skipped, before + 2);
  EXPECT_TRUE(job.detector.on_windows(job.now_ns + 2, {}).empty());
  job.go(20, [](int second, Window& odd) {
    odd.pid = 1000 + second;  // a new process each second, without a rank
    odd.rank = -1;
    const double kinds[]{kNan, -1e300, std::numeric_limits<double>::infinity()};
    for (double& value : odd.values)
      value = kinds[second % 3];
  });
  job.second += 100'000;  // the machine slept
  job.go(400);
  EXPECT_LE(job.detector.status().ranks.size(), 3U);
}

TEST(Detector, MemoryThatGrowsInSeveralProcessesIsOneIncidentUntilTheLastOfThemStops) {
  Job job(3);
  job.go(600);
  double grown[3] = {0, 0, 0};
  const auto grow = [&](std::initializer_list<int> ranks) {
    return [&, growing = std::set<int>(ranks)](int, Window& window) {
      double& bytes = grown[window.rank];
      if (growing.count(window.rank) != 0) bytes += 4e6;
      window.values[at("resident_bytes")] += bytes;
    };
  };
  const auto growth = [&] {
    std::vector<Job::Told> out;
    for (const auto& one : job.all)
      if (one.kind == trace::IncidentKind::kMemoryGrowth) out.push_back(one);
    return out;
  };
  job.go(900, grow({0, 2}));
  ASSERT_FALSE(growth().empty());
  const std::uint64_t id = growth().back().id;
  EXPECT_THAT(growth().back().ranks, testing::UnorderedElementsAre(0, 2));
  job.go(900, grow({2}));
  EXPECT_EQ(growth().back().end_ns, 0) << "rank 2 grows on";
  job.go(1200, grow({}));
  EXPECT_NE(growth().back().end_ns, 0);
  for (const auto& one : growth())
    EXPECT_EQ(one.id, id);
}

TEST(Detector, GrowthThatHoldsItsBreathIsOneIncident) {
  for (const int breath : {50, 60, 100, 150}) {  // seconds in which it gives some memory back
    Job job(2);
    job.go(600);
    double grown = 0;
    job.go(3000, [&](int second, Window& window) {
      if (window.rank != 1) return;
      grown += second % 1000 < 1000 - breath ? 1e6 : -1e6;
      window.values[at("resident_bytes")] += grown;
    });
    std::set<std::uint64_t> ids;
    for (const auto& one : job.all)
      if (one.kind == trace::IncidentKind::kMemoryGrowth) ids.insert(one.id);
    EXPECT_EQ(ids.size(), 1U) << breath;
  }
}

TEST(Detector, GrowthThatIsOverCanStillBeLabelledFalse) {
  Job job(2);
  job.go(600);
  double grown = 0;
  const auto grow = [&](int, Window& window) {
    if (window.rank == 1) window.values[at("resident_bytes")] += grown += 1e6;
  };
  const auto rest = [&](int, Window& window) {
    if (window.rank == 1) window.values[at("resident_bytes")] += grown;
  };
  job.go(900, grow);
  job.go(900, rest);
  ASSERT_FALSE(job.all.empty());
  const std::uint64_t id = job.all.back().id;
  ASSERT_NE(job.all.back().end_ns, 0);
  EXPECT_TRUE(job.detector.take_label(id, true));
  const std::size_t told = job.all.size();
  job.go(900, grow);
  EXPECT_EQ(job.all.size(), told);
}

TEST(Detector, AnErrorOfADeviceThatWasTakenUpLaterIsToldToo) {
  Job job(2);
  job.go(900);
  job.go(1, [](int, Window& window) { window.values[at("gpu_xid")] = window.rank == 1 ? 1 : 0; });
  ASSERT_EQ(job.all.size(), 1U);
  EXPECT_EQ(word_of(job.all[0].kind), "hardware_fault");
  EXPECT_THAT(job.all[0].ranks, testing::ElementsAre(1)) << "the driver says so";
}

TEST(Detector, WhoIsNamedNoMoreIsTold) {
  WaitingJob job;
  const auto of = [](const std::set<int>& ranks) {
    return [ranks](int, Window& window) {
      if (ranks.count(window.rank) != 0) window.values[at("cpu_wait")] = 2;
    };
  };
  job.go_on(4, of({1, 3}));
  ASSERT_THAT(job.all.back().ranks, testing::ElementsAre(1, 3));
  job.go_on(60, of({3}));
  EXPECT_THAT(job.all.back().ranks, testing::ElementsAre(3));
  EXPECT_EQ(job.all.back().end_ns, 0) << "told while it goes on";
}

TEST(Detector, AnIncidentEndsWithItsRunAndTheNextRunsFaultIsItsOwn) {
  Job job(2);
  job.go(600);
  const auto slow = [](int, Window& window) { window.values[at("backward_mean")] *= 8; };
  const auto next_run = [](int, Window& window) { window.pid += 1000; };
  job.go(20, slow);
  ASSERT_TRUE(job.open().has_value());
  const std::uint64_t id = job.open()->id;
  const std::int64_t over_ns = job.now_ns;
  job.go(1, next_run);  // within the pause in which the same process would go on
  EXPECT_FALSE(job.open().has_value());
  EXPECT_EQ(job.all.back().id, id);
  EXPECT_EQ(job.all.back().end_ns, over_ns);
  job.go(15, next_run);
  const std::int64_t begin_ns = job.now_ns;
  job.go(5, [&](int second, Window& window) {
    next_run(second, window);
    slow(second, window);
  });
  ASSERT_TRUE(job.open().has_value());
  EXPECT_NE(job.open()->id, id);
  EXPECT_EQ(job.open()->begin_ns, begin_ns);
}

TEST(Detector, ARankThatIsStartedAnewIsNoOtherRun) {
  Job job(2);
  job.go(600);
  job.go(20, [](int, Window& window) { window.values[at("backward_mean")] *= 8; });
  ASSERT_TRUE(job.open().has_value());
  job.go(2, [](int, Window& window) {
    window.values[at("backward_mean")] *= 8;
    if (window.rank == 1) window.pid += 1000;
  });
  EXPECT_TRUE(job.open().has_value());
  EXPECT_EQ(job.ids().size(), 1U);
}

TEST(Detector, WhatCostsTheJobNothingHasNoEffectUntilTheJobIsSlower) {
  Job job(2);
  const auto usual = [](int, Window& window) {
    window.values[at("minor_faults")] = 2000 + window.values[at("cpu_cores")];
  };
  const auto odd = [&](int second, Window& window) {
    usual(second, window);
    if (window.rank == 1) window.values[at("cpu_wait")] = 1.5;
  };
  job.go(600, usual);
  job.go(30, odd);
  ASSERT_TRUE(job.open().has_value());
  EXPECT_FALSE(job.open()->has_effect);
  const std::uint64_t id = job.open()->id;
  const std::int64_t begin_ns = job.now_ns;
  job.go(10, [&](int second, Window& window) {
    odd(second, window);
    window.values[at("step_mean")] *= 1.5;
    window.values[at("step_rate")] /= 1.5;
  });
  ASSERT_TRUE(job.open().has_value());
  EXPECT_TRUE(job.open()->has_effect);
  EXPECT_NE(job.open()->id, id) << "a fault of its own, with a begin of its own";
  EXPECT_GE(job.open()->begin_ns, begin_ns - kSecond);
}

TEST(Detector, WhereTheJobsPaceIsNotKnownWhatIsOddIsTakenForAnEffect) {
  Job job(2);
  job.go(600, without_steps);
  job.go(10, [](int second, Window& window) {
    without_steps(second, window);
    window.values[at("cpu_wait")] = 2;
  });
  ASSERT_TRUE(job.open().has_value());
  EXPECT_TRUE(job.open()->has_effect);
}

TEST(Detector, FastGrowthOfMemoryIsAnEffectUnlessThereIsRoomForLong) {
  const auto told = [](double room_bytes) {
    Job job(2);
    const auto steady = [&](int, Window& window) {
      window.values[at("memory_room")] = room_bytes;
      window.values[at("resident_growth")] = 0;
    };
    job.go(600, steady);
    job.go(6, [&](int second, Window& window) {
      steady(second, window);
      if (window.rank == 0) window.values[at("resident_growth")] = 8e6;
    });
    EXPECT_TRUE(job.open().has_value());
    EXPECT_EQ(job.open()->kind, trace::IncidentKind::kMemoryGrowth);
    return job.open()->has_effect;
  };
  EXPECT_TRUE(told(20e9)) << "full in 40 minutes";
  EXPECT_FALSE(told(200e9)) << "full in 7 hours";
  EXPECT_TRUE(told(kNan)) << "nobody knows";
}

TEST(Detector, ThePhaseThatIsLongerIsTheKind) {
  const auto kind_of = [](const char* feature, double factor) {
    WaitingJob job;
    job.go_on(20, [&](int, Window& window) {
      WaitingJob::slow(window);
      if (window.rank != 3) return;
      window.values[at("collective_share")] = 0.1;
      window.values[at(feature)] *= factor;
    });
    EXPECT_THAT(job.all.back().ranks, testing::ElementsAre(3));
    return job.all.back().kind;
  };
  EXPECT_EQ(kind_of("backward_mean", 9), trace::IncidentKind::kSlowBackward);
  EXPECT_EQ(kind_of("cpu_cores", 1), trace::IncidentKind::kLatencySpike) << "nobody knows which";
}

TEST(Detector, MemoryOfAProcessThatEndedGrowsNoMore) {
  Job job(3);
  job.go(600);
  double grown = 0;
  job.go(900, [&](int, Window& window) {
    if (window.rank == 1) window.values[at("resident_bytes")] += grown += 4e6;
  });
  ASSERT_FALSE(job.all.empty());
  ASSERT_EQ(job.all.back().kind, trace::IncidentKind::kMemoryGrowth);
  const std::uint64_t id = job.all.back().id;
  job.go(5, [](int, Window& window) {
    if (window.rank == 1) window.pid = 777;
  });
  EXPECT_EQ(job.all.back().id, id);
  EXPECT_NE(job.all.back().end_ns, 0);
}

}  // namespace
}  // namespace kansoku::detect
