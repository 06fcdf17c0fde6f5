// SPDX-License-Identifier: Apache-2.0
#include "diagnose/profile.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/rng.h"
#include "diagnose/internal/profile/profile_job.h"

namespace kansoku::diagnose {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::int64_t kProfileMs = 1'000'000;
constexpr std::string_view kLoaderNext =
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";

/// A profile as slices; the process of rank r has number 100 + r.
class Profile {
 public:
  explicit Profile(int rank_count) {
    for (int r = 0; r < rank_count; ++r) {
      trace::Process process;
      process.pid = 100 + r;
      process.rank = r;
      trace_.processes.push_back(process);
      trace::Track track;
      track.kind = trace::TrackKind::kThread;
      track.pid = track.tid = process.pid;
      trace_.tracks.push_back(track);
    }
  }
  void add(int rank, std::string_view category, std::string_view name, std::int64_t begin_ns,
           std::int64_t duration_ns) {
    trace::SliceTable& slices = trace_.slices;
    slices.start_ns.push_back(begin_ns);
    slices.duration_ns.push_back(duration_ns);
    slices.track.push_back(trace::TrackId{static_cast<std::uint32_t>(rank)});
    slices.name.push_back(trace_.strings.intern(name));
    slices.category.push_back(trace_.strings.intern(category));
    slices.arg_begin.push_back(0);
    slices.arg_count.push_back(0);
  }
  /// Adds an argument to the last slice.
  void say(std::string_view key, std::string_view text) {
    trace::ArgValue arg;
    arg.kind = trace::ArgValue::Kind::kString;
    arg.key = trace_.strings.intern(key);
    arg.text = trace_.strings.intern(text);
    trace_.slices.arg_begin.back() = static_cast<std::uint32_t>(trace_.args.size());
    trace_.slices.arg_count.back() = 1;
    trace_.args.push_back(arg);
  }
  void shuffle(std::uint64_t seed) {
    Rng rng(seed);
    trace::SliceTable& slices = trace_.slices;
    for (std::size_t i = slices.size(); i > 1; --i) {
      const std::size_t j = rng.below(i);
      std::swap(slices.start_ns[i - 1], slices.start_ns[j]);
      std::swap(slices.duration_ns[i - 1], slices.duration_ns[j]);
      std::swap(slices.track[i - 1], slices.track[j]);
      std::swap(slices.name[i - 1], slices.name[j]);
      std::swap(slices.category[i - 1], slices.category[j]);
    }
  }
  void without_ranks() {
    for (trace::Process& process : trace_.processes)
      process.rank = trace::kNoRank;
  }
  void lose(std::size_t rank, double share) { trace_.processes[rank].unreadable_share = share; }
  [[nodiscard]] const trace::Trace& trace() const { return trace_; }

 private:
  trace::Trace trace_;
};

Diagnosis run_profile(const Profile& profile) {
  const auto out = diagnose_profile(profile.trace(), {});
  if (!out) {
    ADD_FAILURE() << out.error().what;
    return {};
  }
  return *out;
}

/// Ten steps of 10 ms: `input_ms` in the loader, then an operator up to the end. The device
/// computes from `busy_from_ms` to the end of the step.
Profile with_loader(std::int64_t input_ms, std::int64_t busy_from_ms, int rank_count = 1) {
  Profile profile(rank_count);
  for (int rank = 0; rank < rank_count; ++rank) {
    for (std::int64_t step = 0; step < 10; ++step) {
      const std::int64_t begin = step * 10 * kProfileMs;
      profile.add(rank, "user_annotation", fmt::format("ProfilerStep#{}", step), begin,
                  10 * kProfileMs);
      profile.add(rank, "user_annotation", kLoaderNext, begin, input_ms * kProfileMs);
      profile.add(rank, "cpu_op", "aten::conv2d", begin + input_ms * kProfileMs,
                  (10 - input_ms) * kProfileMs);
      if (busy_from_ms < 10) {
        profile.add(rank, "kernel", "sgemm", begin + busy_from_ms * kProfileMs,
                    (10 - busy_from_ms) * kProfileMs);
      }
    }
  }
  return profile;
}

// 4 of 10 ms a step in the loader, the device busy for the other 6.
TEST(Profile, LoaderStallsAreACommonInput) {
  const Diagnosis d = run_profile(with_loader(4, 4));
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_EQ(d.findings[0].kind, "common_input");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(0));
  EXPECT_EQ(d.findings[0].function, kLoaderNext);
  EXPECT_NEAR(d.findings[0].share, 0.4, 1e-9);
  EXPECT_NEAR(d.findings[0].cost_ms_per_step, 4, 1e-9);
  EXPECT_EQ(d.findings[0].confidence, 1.0);
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("num_workers")));
  EXPECT_EQ(d.steps.count, 10U);
  EXPECT_NEAR(d.steps.mean_ms, 10, 1e-9);
  EXPECT_THAT(d.notes, Contains(HasSubstr("device is idle for 40 %")));
}

// The same stalls, but the device has work all the while: nobody waits for the input.
TEST(Profile, ALoaderUnderABusyDeviceIsNoFinding) {
  EXPECT_THAT(run_profile(with_loader(4, 0)).findings, IsEmpty());
  // Half a millisecond of 10 is below the share that counts.
  EXPECT_THAT(run_profile(with_loader(0, 1)).findings, IsEmpty());
}

// Without a device the loader goes before the operators that prepare the batch in it.
TEST(Profile, WithoutADeviceTheLoaderCounts) {
  const Diagnosis d = run_profile(with_loader(4, 10));
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_NEAR(d.findings[0].share, 0.4, 1e-9);
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("the model waits for its batch")));
}

// On one rank of three only: not common.
TEST(Profile, TheLongestIdleTimeIsToldWhereverItLies) {
  Profile profile(1);
  const auto steps = [&](std::int64_t from_ms) {
    for (std::int64_t step = 0; step < 10; ++step) {
      const std::int64_t begin = (from_ms + step * 10) * kProfileMs;
      profile.add(0, "user_annotation", fmt::format("ProfilerStep#{}", step), begin,
                  10 * kProfileMs);
      profile.add(0, "kernel", "sgemm", begin, 10 * kProfileMs);
    }
  };
  profile.add(0, "python_function", "load_model", 0, 2000 * kProfileMs);
  steps(2000);
  EXPECT_THAT(run_profile(profile).notes,
              Contains(HasSubstr("takes 2000.0 ms, in front of its first operation: the host is in "
                                 "load_model")));
  Profile behind = with_loader(0, 0);
  behind.add(0, "user_annotation", "evaluate", 100 * kProfileMs, 50 * kProfileMs);
  const Diagnosis d = run_profile(behind);
  EXPECT_THAT(d.notes, Contains(HasSubstr("takes 50.0 ms, behind its last operation: the host is "
                                          "in evaluate")));
  EXPECT_THAT(d.notes, Contains(HasSubstr("idle for 0 % of the window"))) << "that of the steps";
  EXPECT_THAT(run_profile(with_loader(0, 0)).notes,
              Not(Contains(HasSubstr("its longest time without work"))));
}

TEST(Profile, StepsOfSeveralProcessesAreNoOneRank) {
  Profile profile = with_loader(0, 0, 2);
  profile.without_ranks();
  const ProfileJob job = read_profile_job(profile.trace());
  EXPECT_THAT(job.ranks, IsEmpty());
  EXPECT_THAT(job.notes, ElementsAre(HasSubstr("the steps of 2 processes (pid 100, 101)")));
}

TEST(Profile, InputMustBeCommon) {
  Profile profile = with_loader(4, 4, 3);
  for (std::int64_t step = 0; step < 10; ++step)
    profile.add(1, "kernel", "sgemm", step * 10 * kProfileMs, 4 * kProfileMs);
  for (const Finding& finding : run_profile(profile).findings)
    EXPECT_NE(finding.kind, "common_input");
}

TEST(Profile, TheOrderOfEventsDoesNotMatter) {
  Profile profile = with_loader(4, 4, 3);
  // The device's copy of a step begins before the host's: it belongs to the window in any order.
  profile.add(0, "gpu_user_annotation", "ProfilerStep#0", -5 * kProfileMs, 10 * kProfileMs);
  const std::string in_order = to_json(run_profile(profile)).dump();
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    profile.shuffle(seed);
    EXPECT_EQ(to_json(run_profile(profile)).dump(), in_order) << seed;
  }
}

// Three ranks; rank 1 spends 3 ms of each 10 in a copy that the others do not have.
TEST(Profile, ARankUnlikeItsPeersIsNamed) {
  Profile profile(3);
  for (int rank = 0; rank < 3; ++rank) {
    for (std::int64_t step = 0; step < 20; ++step) {
      const std::int64_t begin = step * 10 * kProfileMs;
      profile.add(rank, "user_annotation", fmt::format("ProfilerStep#{}", step), begin,
                  10 * kProfileMs);
      profile.add(rank, "kernel", "sgemm", begin, 7 * kProfileMs);
      profile.add(rank, rank == 1 ? "gpu_memcpy" : "kernel", rank == 1 ? "Memcpy HtoD" : "sgemm",
                  begin + 7 * kProfileMs, 3 * kProfileMs);
    }
  }
  const Diagnosis d = run_profile(profile);
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_EQ(d.findings[0].kind, "slow_worker");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(1));
  EXPECT_EQ(d.findings[0].function, "Memcpy HtoD");
  EXPECT_NEAR(d.findings[0].share, 0.3, 1e-6);
  EXPECT_NEAR(d.findings[0].cost_ms_per_step, 3, 1e-5);
}

/// Steps of 20 ms that end in a collective; `late` arrives 5 ms after the others.
Profile with_late_rank(int rank_count, int late) {
  Profile profile(rank_count);
  for (int rank = 0; rank < rank_count; ++rank) {
    const std::int64_t clock_ns = rank * (777 * kProfileMs);
    for (std::int64_t step = 0; step < 20; ++step) {
      const std::int64_t begin = clock_ns + step * 20 * kProfileMs;
      const std::int64_t work = (rank == late ? 15 : 10) * kProfileMs;
      profile.add(rank, "user_annotation", fmt::format("ProfilerStep#{}", step), begin,
                  20 * kProfileMs);
      profile.add(rank, "kernel", "sgemm", begin, work);
      profile.add(rank, "kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", begin + work,
                  20 * kProfileMs - work);
    }
  }
  return profile;
}

// The others wait 5 of 20 ms for rank 2, though every rank's clock says something else.
/// Twelve steps of 20 ms on four ranks; on rank 2 a function of the program's own calls sleep() for
/// 8 ms in the first `slow_steps`. `has_steps`: the profiler marks them.
Profile with_hook(std::int64_t slow_steps, bool has_steps) {
  Profile profile(4);
  for (int rank = 0; rank < 4; ++rank) {
    for (std::int64_t step = 0; step < 12; ++step) {
      const std::int64_t begin = step * 20 * kProfileMs;
      if (has_steps)
        profile.add(rank, "user_annotation", fmt::format("ProfilerStep#{}", step), begin,
                    20 * kProfileMs);
      profile.add(rank, "cpu_op", "aten::mm", begin, 10 * kProfileMs);
      if (rank != 2 || step >= slow_steps) continue;
      profile.add(rank, "python_function", "model.py(45): slow_hook", begin + 11 * kProfileMs,
                  9 * kProfileMs);
      profile.add(rank, "python_function", "<built-in function sleep>", begin + 11 * kProfileMs,
                  8 * kProfileMs);
    }
  }
  return profile;
}

TEST(Profile, ASlowFunctionIsNamedByTheProgramsOwnThatCallsIt) {
  for (const bool has_steps : {true, false}) {
    const Diagnosis d = run_profile(with_hook(12, has_steps));
    ASSERT_EQ(d.findings.size(), 1U) << has_steps;
    EXPECT_EQ(d.findings[0].kind, "slow_worker");
    EXPECT_THAT(d.findings[0].ranks, ElementsAre(2));
    EXPECT_EQ(d.findings[0].function, "slow_hook");
    EXPECT_EQ(d.findings[0].file, "model.py");
    EXPECT_EQ(d.findings[0].line, 45U);
    EXPECT_THAT(d.findings[0].evidence,
                Contains("its time is in <built-in function sleep>, called from there"));
    EXPECT_NEAR(d.findings[0].cost_ms_per_step, has_steps ? 8 : 12 * 8, 0.1);
  }
}

// A fifth of the window, and in two steps of twelve: chance, or a start.
TEST(Profile, AFunctionOfFewStepsNamesNobody) {
  for (const bool has_steps : {true, false})
    EXPECT_THAT(run_profile(with_hook(2, has_steps)).findings, IsEmpty()) << has_steps;
}

// Two long steps fill the window: twelve of sixteen equal parts of it are slow.
TEST(Profile, AFunctionOfFewStepsNamesNobodyHoweverLongTheyAre) {
  Profile profile(4);
  for (int rank = 0; rank < 4; ++rank) {
    std::int64_t begin = 0;
    for (std::int64_t step = 0; step < 12; ++step) {
      const std::int64_t length = (step < 2 ? 400 : 20) * kProfileMs;
      profile.add(rank, "user_annotation", fmt::format("ProfilerStep#{}", step), begin, length);
      profile.add(rank, "cpu_op", "aten::mm", begin, 10 * kProfileMs);
      if (rank == 2 && step < 2)
        profile.add(rank, "python_function", "model.py(45): slow_hook", begin + 10 * kProfileMs,
                    length - 10 * kProfileMs);
      begin += length;
    }
  }
  EXPECT_THAT(run_profile(profile).findings, IsEmpty());
}

TEST(Profile, ASlowFunctionOfTheProgramsOwnIsNamedItself) {
  Profile profile(4);
  for (int rank = 0; rank < 4; ++rank) {
    for (std::int64_t i = 0; i < 12; ++i) {
      const std::int64_t begin = i * 20 * kProfileMs;
      profile.add(rank, "cpu_op", "aten::mm", begin, 10 * kProfileMs);
      if (rank == 2)
        profile.add(rank, "python_function", "model.py(45): slow_hook", begin + 11 * kProfileMs,
                    8 * kProfileMs);
    }
  }
  const Diagnosis d = run_profile(profile);
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_EQ(d.findings[0].function, "slow_hook");
  EXPECT_EQ(d.findings[0].file, "model.py");
  EXPECT_EQ(d.findings[0].line, 45U);
  EXPECT_THAT(d.findings[0].evidence, Not(Contains(HasSubstr("called from there"))));
}

TEST(Profile, ALateRankIsNamed) {
  const Diagnosis d = run_profile(with_late_rank(4, 2));
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_EQ(d.findings[0].kind, "slow_worker");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(2));
  EXPECT_NEAR(d.findings[0].cost_ms_per_step, 5, 1e-5);
  EXPECT_NEAR(d.findings[0].share, 0.25, 1e-6);
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("last to arrive in 100 %")));
  EXPECT_THAT(run_profile(with_late_rank(4, -1)).findings, IsEmpty());
  const Diagnosis two = run_profile(with_late_rank(2, 1));
  ASSERT_EQ(two.findings.size(), 1U);
  EXPECT_EQ(two.findings[0].kind, "asymmetry");
}

// Whatever the library: oneCCL's kernels are known by their argument alone.
TEST(Profile, AKernelThatSaysItsCollectiveIsOne) {
  for (const bool says_it : {true, false}) {
    Profile profile(4);
    for (int rank = 0; rank < 4; ++rank) {
      for (std::int64_t i = 0; i < 12; ++i) {
        const std::int64_t begin = i * 20 * kProfileMs, work = (rank == 2 ? 10 : 5) * kProfileMs;
        profile.add(rank, "kernel", "gemm", begin, work);
        profile.add(rank, "kernel", "oneccl_allreduce_topo", begin + work, 12 * kProfileMs - work);
        if (says_it) profile.say("Collective name", "allreduce");
      }
    }
    const Diagnosis d = run_profile(profile);
    ASSERT_EQ(d.findings.size(), 1U);
    EXPECT_THAT(d.findings[0].ranks, ElementsAre(2));
    EXPECT_EQ(d.findings[0].evidence.size(), says_it ? 3U : 1U) << "who waits, by which clocks";
  }
}

// Three of four ranks are late for the fourth: nobody of them is slow.
TEST(Profile, MostRanksAreNotLate) {
  Profile profile(4);
  for (int rank = 0; rank < 4; ++rank) {
    for (std::int64_t i = 0; i < 12; ++i) {
      const std::int64_t begin = i * 20 * kProfileMs, work = (rank == 1 ? 5 : 10) * kProfileMs;
      profile.add(rank, "kernel", "gemm", begin, work);
      profile.add(rank, "kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", begin + work,
                  12 * kProfileMs - work);
    }
  }
  const Diagnosis d = run_profile(profile);
  EXPECT_THAT(d.findings, IsEmpty());
  EXPECT_THAT(d.notes, Contains(HasSubstr("rank 1 waits 60.00 ms a step in collectives for all")));
}

TEST(Profile, ARankOfWhichMuchCannotBeReadIsNotNamed) {
  Profile profile = with_late_rank(4, 2);
  profile.lose(2, 0.01);
  EXPECT_EQ(run_profile(profile).findings.size(), 1U);
  profile.lose(2, 0.16);
  const Diagnosis d = run_profile(profile);
  EXPECT_THAT(d.findings, IsEmpty());
  EXPECT_THAT(d.notes, Contains(HasSubstr("rank 2: 16 % of the events of its file")));
  EXPECT_EQ(d.verdict(), Verdict::kNothingFound) << "the others were judged";
  for (const std::size_t rank : {0, 1, 3})
    profile.lose(rank, 0.5);
  EXPECT_EQ(run_profile(profile).verdict(), Verdict::kNotEnoughData) << "nobody was";
}

TEST(Profile, TracesOfOtherThingsAreNoted) {
  Profile profile(1);
  EXPECT_THAT(run_profile(profile).notes, Contains(HasSubstr("no operator, kernel or collective")));
  profile.add(0, "other", "x", 0, 5);
  EXPECT_THAT(run_profile(profile).notes, Contains(HasSubstr("no operator, kernel or collective")));
  EXPECT_THAT(run_profile(profile).findings, IsEmpty());
}

TEST(Profile, KnowsTheCategoriesOfOldAndNewProfilers) {
  using enum Activity;
  EXPECT_EQ(activity_of("kernel", "sgemm"), kGpuCompute);
  EXPECT_EQ(activity_of("Kernel", "sgemm"), kGpuCompute);
  EXPECT_EQ(activity_of("gpu_memcpy", "Memcpy HtoD"), kGpuMemory);
  EXPECT_EQ(activity_of("Memset", "Memset"), kGpuMemory);
  EXPECT_EQ(activity_of("cpu_op", "aten::mm"), kCpuOp);
  EXPECT_EQ(activity_of("Operator", "aten::mm"), kCpuOp);
  EXPECT_EQ(activity_of("python_function", "train.py(3): f"), kPython);
  EXPECT_EQ(activity_of("user_annotation", "gloo:all_reduce"), kCollective);
  EXPECT_EQ(activity_of("user_annotation", kLoaderNext), kInput);
  EXPECT_EQ(activity_of("Operator", kLoaderNext), kInput);
  // Frames around others, and what nobody knows.
  EXPECT_EQ(activity_of("user_annotation", "ProfilerStep#3"), std::nullopt);
  EXPECT_EQ(activity_of("cpu_op", "Optimizer.step#SGD.step"), std::nullopt);
  EXPECT_EQ(activity_of("user_annotation", "my phase"), std::nullopt);
  EXPECT_EQ(activity_of("", ""), std::nullopt);
}

}  // namespace
}  // namespace kansoku::diagnose
