// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/standstill/standstill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

namespace kansoku::diagnose {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using trace::SampleState;

using NamedFrame = std::pair<std::string_view, std::string_view>;  // function, file
using NamedFrames = std::vector<NamedFrame>;

constexpr std::string_view kTensor = "/usr/lib/python3/dist-packages/torch/_tensor.py";
constexpr std::string_view kGraph = "/usr/lib/python3/dist-packages/torch/autograd/__init__.py";
constexpr std::string_view kC10d =
    "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py";

const NamedFrames kBackward{
    {"train", "/app/train.py"}, {"Tensor.backward", kTensor}, {"backward", kGraph}};
const NamedFrames kBarrier{{"train", "/app/train.py"}, {"barrier", kC10d}};
const NamedFrames kOwn{{"train", "/app/train.py"}, {"cleanup", "/app/train.py"}};
const NamedFrames kLock{{"train", "/app/train.py"},
                        {"Condition.wait", "/usr/lib/python3.11/threading.py"}};

/// A job of which only stacks are known: 200 samples of each rank in four seconds.
class StandstillTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kEveryNs = 20'000'000;

  trace::StackId stack_of(const NamedFrames& frames) {
    trace::StackTable& stacks = trace_.stacks;
    if (stacks.begin.empty()) stacks.begin.push_back(0);
    for (const auto& [function, file] : frames) {
      stacks.frames.push_back(trace::FrameId{static_cast<std::uint32_t>(trace_.frames.size())});
      trace_.frames.push_back({trace_.strings.intern(function), trace_.strings.intern(file), 7});
    }
    stacks.begin.push_back(static_cast<std::uint32_t>(stacks.frames.size()));
    return trace::StackId{static_cast<std::uint32_t>(stacks.size() - 1)};
  }

  RankData& add(const NamedFrames& frames, SampleState state, std::size_t count = 200) {
    RankData rank;
    rank.rank = static_cast<std::int32_t>(job_.ranks.size());
    rank.pid = rank.main_tid = 100 + rank.rank;
    const trace::StackId stack = stack_of(frames);
    for (std::size_t i = 0; i < count; ++i) {
      const auto time_ns = static_cast<std::int64_t>(1 + i) * kEveryNs;
      rank.samples.push_back({time_ns, stack, state, false});
      job_.end_ns = std::max(job_.end_ns, time_ns);
    }
    job_.ranks.push_back(std::move(rank));
    return job_.ranks.back();
  }

  void add_waiting(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      add(kBackward, SampleState::kSleeping);
  }

  /// Samples of a thread of a rank in the trace, asleep all the time.
  void add_thread(const RankData& rank, const NamedFrames& frames) {
    add_thread(rank, rank.pid + 1000, frames);
  }
  void add_thread(const RankData& rank, std::int32_t tid, const NamedFrames& frames) {
    const trace::StackId stack = stack_of(frames);
    trace::SampleTable& table = trace_.samples;
    for (const ThreadSample& sample : rank.samples) {
      table.time_ns.push_back(sample.time_ns);
      table.pid.push_back(rank.pid);
      table.tid.push_back(tid);
      table.stack.push_back(stack);
      table.state.push_back(SampleState::kSleeping);
      table.holds_gil.push_back(0);
      table.is_native.push_back(0);
    }
  }

  /// The call that the kernel tells of its main thread.
  void add_wait(const RankData& rank, std::string_view call) {
    trace_.tracks.push_back({});
    trace_.tracks.back().tid = trace_.tracks.back().pid = rank.pid;
    for (const ThreadSample& sample : rank.samples) {
      trace::ArgValue arg;
      arg.kind = trace::ArgValue::Kind::kString;
      arg.key = trace_.strings.intern("call");
      arg.text = trace_.strings.intern(call);
      auto& instants = trace_.instants;
      instants.time_ns.push_back(sample.time_ns);
      instants.track.push_back(
          trace::TrackId{static_cast<std::uint32_t>(trace_.tracks.size() - 1)});
      instants.name.push_back(trace_.strings.intern("wait"));
      instants.arg_begin.push_back(static_cast<std::uint32_t>(trace_.args.size()));
      instants.arg_count.push_back(1);
      trace_.args.push_back(arg);
    }
  }

  Standstill find() { return find_standstill(trace_, job_); }

  trace::Trace trace_;
  JobData job_;
};

TEST_F(StandstillTest, ARankOfARecordingIsToldWhatItSleepsInToo) {
  for (const bool has_helper : {false, true}) {
    trace_ = {};
    job_ = {};
    const RankData rank = add(kOwn, SampleState::kSleeping);
    add_wait(rank, "futex");
    if (has_helper) job_.ranks[0].helpers_running.push_back(IntervalSet::of({{0, job_.end_ns}}));
    Finding finding;
    finding.verdict = "missing_rank";
    tell_sleep(trace_, job_, job_.ranks[0], kEveryNs, finding);
    EXPECT_EQ(finding.verdict, has_helper ? "missing_rank" : "deadlock");
    EXPECT_EQ(finding.evidence.size(), has_helper ? 0U : 1U);
  }
}

TEST_F(StandstillTest, TheRankThatSleepsElsewhereIsNamedWithItsOwnLine) {
  add_waiting(3);
  add(kOwn, SampleState::kSleeping);
  const Standstill found = find();
  ASSERT_TRUE(found.hang);
  const Finding& finding = found.hang->finding;
  EXPECT_EQ(finding.kind, "hang");
  EXPECT_EQ(finding.verdict, "missing_rank");
  EXPECT_THAT(finding.ranks, ElementsAre(3));
  EXPECT_EQ(finding.function, "cleanup");
  EXPECT_EQ(finding.line, 7U);
  EXPECT_EQ(finding.basis, Basis::kObservation);
  EXPECT_THAT(
      finding.evidence,
      Contains(HasSubstr("asleep in backward, called from train (/app/train.py:7): rank 0, 1, 2")));
  EXPECT_THAT(finding.evidence, Contains(HasSubstr("since when is not known")));
  EXPECT_FALSE(found.all_move);
}

TEST_F(StandstillTest, AStoppedRankIsNamedEvenIfItStoodInTheCollective) {
  add_waiting(2);
  add(kBackward, SampleState::kStopped);
  const Standstill found = find();
  ASSERT_TRUE(found.hang);
  EXPECT_EQ(found.hang->finding.kind, "stopped");
  EXPECT_EQ(found.hang->finding.verdict, "dead_process");
  EXPECT_THAT(found.hang->finding.ranks, ElementsAre(2));
}

TEST_F(StandstillTest, ARankAtWorkIsToldAndNotNamed) {
  add_waiting(3);
  add(kOwn, SampleState::kRunning);
  const Standstill found = find();
  EXPECT_FALSE(found.hang);
  EXPECT_THAT(
      found.note,
      HasSubstr("rank 0, 1, 2 wait for rank 3, which is at work in cleanup (/app/train.py:7)"));
}

// A sleeping rank may wait for the one that works, in a way that its stack does not show.
TEST_F(StandstillTest, BesideARankAtWorkNobodyIsNamed) {
  add_waiting(2);
  add(kOwn, SampleState::kSleeping);
  add(kOwn, SampleState::kRunning);
  const Standstill found = find();
  EXPECT_FALSE(found.hang);
  EXPECT_THAT(found.note, HasSubstr("wait for rank 3"));
}

TEST_F(StandstillTest, ARankWhoseWorkerComputesIsAtWork) {
  add_waiting(2);
  RankData& rank = add(kOwn, SampleState::kSleeping);
  rank.workers.push_back({900, {}});
  for (const ThreadSample& sample : rank.samples)
    rank.workers.back().samples.push_back({sample.time_ns, sample.stack, SampleState::kRunning});
  EXPECT_FALSE(find().hang);
  for (ThreadSample& sample : job_.ranks.back().workers.back().samples)
    sample.state = SampleState::kSleeping;
  EXPECT_TRUE(find().hang);
  job_.ranks.back().workers.push_back({901, {}});
  EXPECT_TRUE(find().hang) << "one that has ended before";
}

TEST_F(StandstillTest, AWaitForALockIsADeadlock) {
  add_waiting(2);
  add(kLock, SampleState::kSleeping);
  const Standstill found = find();
  ASSERT_TRUE(found.hang);
  EXPECT_EQ(found.hang->finding.verdict, "deadlock");
  EXPECT_EQ(found.hang->finding.function, "train");
}

TEST_F(StandstillTest, AFutexIsALockOfTheProgramsOwn) {
  for (const std::string_view call : {"futex", "write", "recvfrom"}) {
    job_.ranks.clear();
    trace_ = {};
    add_waiting(2);
    add(kOwn, SampleState::kSleeping);
    add_wait(job_.ranks.back(), call);
    const Standstill found = find();
    if (call == "recvfrom") {
      EXPECT_FALSE(found.hang) << "somebody outside may answer";
      EXPECT_THAT(found.note, HasSubstr("which is asleep in recvfrom in cleanup"));
      continue;
    }
    ASSERT_TRUE(found.hang);
    const bool is_lock = call == "futex";
    EXPECT_EQ(found.hang->finding.verdict, is_lock ? "deadlock" : "missing_rank");
    EXPECT_THAT(found.hang->finding.evidence,
                Contains(HasSubstr(is_lock ? "for a lock or a condition" : "in write")));
  }
}

TEST_F(StandstillTest, TheOneInAnotherCollectiveIsNamed) {
  add_waiting(3);
  add(kBarrier, SampleState::kSleeping);
  const Standstill found = find();
  ASSERT_TRUE(found.hang);
  EXPECT_EQ(found.hang->finding.verdict, "mismatched_collective");
  EXPECT_THAT(found.hang->finding.ranks, ElementsAre(3));
}

TEST_F(StandstillTest, ARankWhoseOtherThreadIsInACollectiveIsInIt) {
  add({{"train", "/app/train.py"}, {"all_reduce", kC10d}}, SampleState::kSleeping);
  add({{"train", "/app/train.py"}, {"all_reduce", kC10d}}, SampleState::kSleeping);
  const RankData& rank = add(kLock, SampleState::kSleeping);
  add_thread(rank, {{"reduce", "/app/train.py"}, {"broadcast", kC10d}});
  const Standstill found = find();
  ASSERT_TRUE(found.hang);
  EXPECT_EQ(found.hang->finding.verdict, "mismatched_collective");
  EXPECT_THAT(found.hang->finding.ranks, ElementsAre(2));
  EXPECT_EQ(found.hang->finding.function, "reduce");
}

TEST_F(StandstillTest, TwoThreadsOfARankInCommunicationNameNobody) {
  for (int i = 0; i < 3; ++i) {
    const RankData& rank =
        add({{"train", "/app/train.py"}, {"all_reduce", kC10d}}, SampleState::kSleeping);
    add_thread(rank, {{"reduce", "/app/train.py"}, {"broadcast", kC10d}});
  }
  const Standstill found = find();
  ASSERT_TRUE(found.hang);
  EXPECT_EQ(found.hang->finding.verdict, "mismatched_collective");
  EXPECT_THAT(found.hang->finding.ranks, IsEmpty());
  EXPECT_THAT(found.hang->finding.evidence, Contains(HasSubstr("two threads of rank 0")));
}

TEST_F(StandstillTest, TheTrainingThreadIsNotBesideItself) {
  add_waiting(3);
  for (const RankData& rank : job_.ranks)
    add_thread(rank, rank.main_tid, kBackward);
  EXPECT_FALSE(find().hang);
}

TEST_F(StandstillTest, WrappersOfTorchDistributedWaitForOthers) {
  const NamedFrames sharded{
      {"train", "/app/train.py"},
      {"wait_for_unshard",
       "/usr/lib/python3/dist-packages/torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py"}};
  add(sharded, SampleState::kSleeping);
  add(sharded, SampleState::kSleeping);
  add(kOwn, SampleState::kSleeping);
  const Standstill found = find();
  ASSERT_TRUE(found.hang);
  EXPECT_THAT(found.hang->finding.ranks, ElementsAre(2));
}

// A sampler that wakes a thread up sees it asleep; the scheduler saw it run.
TEST_F(StandstillTest, WhoRunsByTheSchedulersEventsIsAtWork) {
  add_waiting(2);
  RankData& rank = add(kOwn, SampleState::kSleeping);
  const stats::IntervalSet half = stats::IntervalSet::of({{0, 2'000'000'000}});
  rank.main.running = half;
  EXPECT_FALSE(find().hang);
  rank.main.running = {};
  rank.helpers_running.push_back(half);
  EXPECT_FALSE(find().hang) << "a thread without Python";
  rank.helpers_running.clear();
  EXPECT_TRUE(find().hang);
}

// As a late look knows it, without the scheduler's events.
TEST_F(StandstillTest, WhoseProcessUsesProcessorsIsAtWork) {
  add_waiting(2);
  const RankData& rank = add(kOwn, SampleState::kSleeping);
  trace::Track track;
  track.pid = rank.pid;
  track.name = trace_.strings.intern("processor time");
  trace_.tracks.push_back(track);
  const auto add_value = [&](std::int64_t time_ns, double ns) {
    trace_.counters.track.push_back({static_cast<std::uint32_t>(trace_.tracks.size() - 1)});
    trace_.counters.time_ns.push_back(time_ns);
    trace_.counters.value.push_back(ns);
  };
  add_value(1'000'000'000, 5e9);
  add_value(3'000'000'000, 5e9 + 4e7);
  EXPECT_TRUE(find().hang) << "a fiftieth of a processor";
  add_value(4'000'000'000, 8e9);
  EXPECT_FALSE(find().hang);
}

TEST_F(StandstillTest, HalfAgainstHalfNamesNobody) {
  add_waiting(2);
  add(kBarrier, SampleState::kSleeping);
  add(kBarrier, SampleState::kSleeping);
  const Standstill found = find();
  EXPECT_FALSE(found.hang);
  EXPECT_THAT(found.note, HasSubstr("all ranks are asleep in communication"));
}

TEST_F(StandstillTest, TheEndsOfAMessageAreNoMismatch) {
  add({{"train", "/app/train.py"}, {"recv", kC10d}}, SampleState::kSleeping);
  add({{"train", "/app/train.py"}, {"recv", kC10d}}, SampleState::kSleeping);
  add({{"train", "/app/train.py"}, {"send", kC10d}}, SampleState::kSleeping);
  EXPECT_FALSE(find().hang);
}

TEST_F(StandstillTest, WhoeverWaitsForAMessageHoldsUpACollective) {
  add_waiting(3);
  add({{"train", "/app/train.py"}, {"recv", kC10d}}, SampleState::kSleeping);
  const Standstill found = find();
  ASSERT_TRUE(found.hang);
  EXPECT_EQ(found.hang->finding.verdict, "missing_rank");
  EXPECT_THAT(found.hang->finding.ranks, ElementsAre(3));
}

TEST_F(StandstillTest, AWorkerThatStandsIsThePlace) {
  constexpr std::string_view kLoader =
      "/usr/lib/python3/dist-packages/torch/utils/data/dataloader.py";
  constexpr std::string_view kQueues = "/usr/lib/python3.11/multiprocessing/queues.py";
  add_waiting(2);
  RankData& rank =
      add({{"train", "/app/train.py"}, {"Loader._try_get_data", kLoader}}, SampleState::kSleeping);
  const trace::StackId idle = stack_of({{"loop", kLoader}, {"Queue.get", kQueues}}),
                       stuck = stack_of({{"loop", kLoader}, {"read_shard", "/app/rows.py"}});
  for (const auto& [pid, stack] : {std::pair(900, idle), std::pair(901, stuck)}) {
    rank.workers.push_back({pid, {}});
    for (const ThreadSample& sample : rank.samples)
      rank.workers.back().samples.push_back({sample.time_ns, stack, SampleState::kSleeping, false});
  }
  add_wait(rank, "poll");
  const Standstill found = find();
  ASSERT_TRUE(found.hang);
  EXPECT_EQ(found.hang->finding.verdict, "stuck_input");
  EXPECT_EQ(found.hang->finding.function, "read_shard");
  EXPECT_THAT(found.hang->finding.evidence, Contains(HasSubstr("process 901")));
}

// Nobody knows whether it has ended, is on another host, or was not asked for.
TEST_F(StandstillTest, ARankThatIsNotThereIsTold) {
  add_waiting(3);
  job_.world_size = 4;
  const Standstill found = find();
  EXPECT_FALSE(found.hang);
  EXPECT_THAT(found.note, HasSubstr("rank 3 is not among them"));
}

TEST_F(StandstillTest, ARankWhoseOtherThreadWorksIsAtWork) {
  add_waiting(2);
  const RankData& rank = add(kLock, SampleState::kSleeping);
  add_thread(rank, {{"evaluate", "/app/train.py"}});
  EXPECT_TRUE(find().hang) << "both of its threads sleep";
  for (SampleState& state : trace_.samples.state)
    state = SampleState::kRunning;
  EXPECT_FALSE(find().hang);
  for (std::size_t i = 0; i < trace_.samples.size(); ++i) {
    trace_.samples.state[i] = SampleState::kSleeping;
    if (i % 2 == 0) trace_.samples.stack[i] = rank.samples.front().stack;
  }
  EXPECT_FALSE(find().hang) << "it sleeps here and there";
}

// Code of the job's own that a collective's wrapper runs is no communication.
TEST_F(StandstillTest, AHookBelowALibraryIsTheJobsOwn) {
  add_waiting(2);
  add({{"train", "/app/train.py"}, {"backward", kGraph}, {"hook", "/app/hooks.py"}},
      SampleState::kSleeping);
  const Standstill found = find();
  ASSERT_TRUE(found.hang);
  EXPECT_EQ(found.hang->finding.function, "hook");
  EXPECT_EQ(found.hang->finding.verdict, "missing_rank");
  job_.ranks.pop_back();
  add({{"train", "/app/train.py"}, {"all_reduce", kC10d}, {"hook", "/app/hooks.py"}},
      SampleState::kSleeping);
  ASSERT_TRUE(find().hang);
  EXPECT_EQ(find().hang->finding.function, "hook");
  EXPECT_EQ(find().hang->finding.verdict, "missing_rank") << "no collective";
}

TEST_F(StandstillTest, PlacesTellWhoWaitsAndWhoStandsInOneFunction) {
  add_waiting(2);
  add(kOwn, SampleState::kRunning);
  const trace::StackId other_line = stack_of(kOwn);
  trace_.frames.back().line = 8;
  for (std::size_t s = 0; s < job_.ranks[2].samples.size(); s += 2)
    job_.ranks[2].samples[s].stack = other_line;
  std::vector<RankPlace> places = find().places;
  ASSERT_EQ(places.size(), 3U);
  EXPECT_TRUE(places[0].waits);
  EXPECT_FALSE(places[0].is_at_work);
  EXPECT_FALSE(places[2].waits);
  EXPECT_TRUE(places[2].is_at_work);
  EXPECT_TRUE(places[2].stands_still) << "a loop has several lines";
  EXPECT_EQ(places[2].function, "cleanup");
  job_.ranks[2].samples.back().stack = stack_of(kLock);
  EXPECT_FALSE(find().places[2].stands_still) << "it came to another function once";
  const trace::StackId without_frames = stack_of({});
  for (ThreadSample& sample : job_.ranks[2].samples)
    sample.stack = without_frames;
  EXPECT_FALSE(find().places[2].stands_still) << "where it is is not known";
}

TEST_F(StandstillTest, StacksThatChangeMove) {
  for (int i = 0; i < 2; ++i) {
    RankData& rank = add(kBackward, SampleState::kSleeping);
    const trace::StackId other = stack_of(kOwn);
    for (std::size_t s = 0; s < rank.samples.size(); s += 2)
      rank.samples[s].stack = other;
  }
  const Standstill found = find();
  EXPECT_FALSE(found.hang);
  EXPECT_THAT(found.note, IsEmpty());
  EXPECT_TRUE(found.all_move);
}

TEST_F(StandstillTest, AShortLookOrARankWithoutStacksTellsNothing) {
  add(kBackward, SampleState::kSleeping, 100);
  add(kOwn, SampleState::kSleeping, 100);
  EXPECT_FALSE(find().hang);
  job_.ranks.clear();
  add_waiting(2);
  add({}, SampleState::kSleeping).samples.clear();
  EXPECT_FALSE(find().hang);
  EXPECT_THAT(find().note, HasSubstr("no Python stacks of rank 2"));
}

}  // namespace
}  // namespace kansoku::diagnose
