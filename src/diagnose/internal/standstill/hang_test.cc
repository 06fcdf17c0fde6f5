// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/standstill/hang.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <iterator>
#include <limits>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "diagnose/synthetic_for_test.h"
#include "trace/merge.h"

namespace kansoku::diagnose {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::size_t kHangRanks = 4;

/// Four ranks whose collectives are given by who is in them; ends 20 s after the last whole one.
class HangTest : public ::testing::Test {
 protected:
  HangTest() {
    job_.op_names = {"allreduce", "barrier"};
    job_.end_ns = 30 * kSecond;
    for (std::size_t r = 0; r < kHangRanks; ++r) {
      RankData rank;
      rank.rank = static_cast<std::int32_t>(r);
      rank.pid = static_cast<std::int32_t>(100 + r);
      job_.ranks.push_back(rank);
    }
  }

  void add(std::uint32_t op, std::int64_t time_ns, const std::set<std::size_t>& ranks) {
    Instance instance;
    instance.op = op;
    instance.ranks.resize(kHangRanks);
    instance.first_ns = instance.last_ns = time_ns;
    instance.is_complete = ranks.size() == kHangRanks;
    for (const std::size_t r : ranks) {
      instance.ranks[r].arrive_ns = time_ns;
      instance.ranks[r].is_present = true;
      instance.ranks[r].is_open = !instance.is_complete;
      CollectiveEvent event;
      event.op = op;
      event.time = {time_ns, job_.end_ns};
      event.is_open = !instance.is_complete;
      job_.ranks[r].collectives.push_back(event);
    }
    collectives_.instances.push_back(instance);
  }

  /// One of a group of some ranks.
  void add_of(const std::set<std::size_t>& members, std::int64_t time_ns,
              const std::set<std::size_t>& ranks) {
    add(0, time_ns, ranks);
    Instance& instance = collectives_.instances.back();
    instance.is_member.assign(kHangRanks, false);
    for (const std::size_t r : members)
      instance.is_member[r] = true;
    instance.is_complete = ranks == members;
    for (const std::size_t r : ranks)
      instance.ranks[r].is_open = job_.ranks[r].collectives.back().is_open = !instance.is_complete;
  }

  /// `rank` waits for a message of `other` from then on.
  void await(std::size_t rank, std::int64_t time_ns, std::optional<std::size_t> other) {
    MessageEvent event;
    event.time = {time_ns, job_.end_ns};
    event.is_open = event.on_main = true;
    event.other = other;
    job_.ranks[rank].messages.push_back(event);
  }

  std::optional<Hang> find() { return find_hang(trace_, job_, collectives_, 50); }

  trace::Trace trace_;
  JobData job_;
  Collectives collectives_;
};

TEST_F(HangTest, TheRankThatNeverCameIsNamed) {
  add(0, 10 * kSecond, {0, 1, 2, 3});
  add(0, 11 * kSecond, {0, 1, 2});
  const auto hang = find();
  ASSERT_TRUE(hang);
  EXPECT_THAT(hang->finding.ranks, ElementsAre(3));
}

TEST_F(HangTest, TheEndOfAChainOfMessagesIsNamed) {
  await(0, 10 * kSecond, 1);
  await(1, 11 * kSecond, 2);
  await(3, 12 * kSecond, 2);
  const auto hang = find();
  ASSERT_TRUE(hang);
  EXPECT_THAT(hang->finding.ranks, ElementsAre(2));
  EXPECT_DOUBLE_EQ(hang->finding.cost_ms_per_step, 18'000);
  EXPECT_THAT(hang->finding.evidence,
              ::testing::Contains("rank 1 waits for a message of rank 2, for 19.0 s"));
}

TEST_F(HangTest, NobodyIsNamedInACircleOfMessages) {
  for (std::size_t r = 0; r < kHangRanks; ++r)
    await(r, 10 * kSecond, (r + 1) % kHangRanks);
  const auto hang = find();
  ASSERT_TRUE(hang);
  EXPECT_TRUE(hang->finding.ranks.empty());
}

// Rank 2 is awaited in the collective, and waits for a message itself: the sender holds up all.
TEST_F(HangTest, WhoeverWaitsForAMessageLeadsToItsSender) {
  add(0, 10 * kSecond, {0, 1, 2, 3});
  add(0, 11 * kSecond, {0, 1});
  await(2, 12 * kSecond, 3);
  const auto hang = find();
  ASSERT_TRUE(hang);
  EXPECT_THAT(hang->finding.ranks, ElementsAre(3));
}

// Its sender waits for it: it receives what nobody sends.
TEST_F(HangTest, AReceiverOfWhatNobodySendsIsNamed) {
  add(0, 10 * kSecond, {0, 1, 2, 3});
  add(0, 11 * kSecond, {0, 1, 3});
  await(2, 11 * kSecond, 0);
  const auto hang = find();
  ASSERT_TRUE(hang);
  EXPECT_THAT(hang->finding.ranks, ElementsAre(2));
}

// The others of its group have come; ranks of other groups were never asked.
TEST_F(HangTest, OnlyMembersOfTheGroupAreMissing) {
  add(0, 10 * kSecond, {0, 1, 2, 3});
  add(0, 11 * kSecond, {0});
  collectives_.instances.back().is_member = {true, false, true, false};
  const auto hang = find();
  ASSERT_TRUE(hang);
  EXPECT_THAT(hang->finding.ranks, ElementsAre(2));
}

// Two pairs of groups. Rank 0 stands in its own code; ranks 1 and 3 come on to their other groups.
TEST_F(HangTest, AWholeCollectiveOfOtherRanksEndsNoWait) {
  add(0, 10 * kSecond, {0, 1, 2, 3});
  add_of({0, 2}, 11 * kSecond, {2});
  add_of({1, 3}, 11 * kSecond + 1, {1, 3});
  add_of({2, 3}, 12 * kSecond, {3});
  add_of({0, 1}, 12 * kSecond + 1, {1});
  const auto hang = find();
  ASSERT_TRUE(hang);
  EXPECT_THAT(hang->finding.ranks, ElementsAre(0));
}

TEST_F(HangTest, WhoeverWaitsInAnotherGroupLeadsToItsMissingMember) {
  add(0, 10 * kSecond, {0, 1, 2, 3});
  add_of({2, 3}, 11 * kSecond, {3});
  add_of({0, 2}, 12 * kSecond, {2});
  const auto hang = find();
  ASSERT_TRUE(hang);
  EXPECT_THAT(hang->finding.ranks, ElementsAre(0));
}

TEST_F(HangTest, AMemberThatWasNeverSeenHasNotArrived) {
  add(0, 10 * kSecond, {0, 1, 2, 3});
  add_of({2, 3}, 11 * kSecond, {2});
  collectives_.instances.back().is_member[3] = false;
  collectives_.instances.back().unseen_count = 1;
  const auto hang = find();
  ASSERT_TRUE(hang);
  EXPECT_TRUE(hang->finding.ranks.empty());
  EXPECT_THAT(hang->finding.evidence,
              ::testing::Contains(::testing::HasSubstr("seen in none of its calls: 1;")));
}

/// A collective that a rank is still in, by its number in a group.
class MismatchTest : public HangTest {
 protected:
  void enter(std::size_t rank, std::uint32_t op, std::uint64_t seq, const char* group = "0") {
    CollectiveEvent event;
    event.op = op;
    event.seq = seq;
    event.group = trace_.strings.intern(group);
    event.time = {11 * kSecond, job_.end_ns};
    event.is_open = event.has_seq = true;
    job_.ranks[rank].collectives.push_back(event);
  }
};

TEST_F(MismatchTest, ARankInAnotherCallOfThatNumberHasCome) {
  add(0, 10 * kSecond, {0, 1, 2, 3});
  add(0, 11 * kSecond, {0, 1, 3});
  for (const std::size_t r : {0, 1, 3})
    enter(r, 0, 7);
  enter(2, 1, 7);
  const auto hang = find();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->finding.verdict, "mismatched_collective");
  EXPECT_THAT(hang->finding.ranks, ElementsAre(2));
  EXPECT_THAT(hang->finding.evidence, ::testing::Contains("rank 2: barrier"));
}

TEST_F(MismatchTest, OfTwoAndTwoNobodyIsNamed) {
  for (const std::size_t r : {0, 1, 2, 3})
    enter(r, r < 2 ? 0 : 1, 7);
  const auto hang = find();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->finding.verdict, "mismatched_collective");
  EXPECT_TRUE(hang->finding.ranks.empty());
}

TEST_F(MismatchTest, NumbersOfOtherGroupsAreOthers) {
  add(0, 10 * kSecond, {0, 1, 2, 3});
  add(0, 11 * kSecond, {0, 1, 3});
  for (const std::size_t r : {0, 1, 3})
    enter(r, 0, 7);
  enter(2, 1, 7, "1");
  const auto hang = find();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->finding.verdict, "missing_rank");
  EXPECT_THAT(hang->finding.ranks, ElementsAre(2));
}

TEST_F(MismatchTest, TwoThreadsInOneGroupAreSaid) {
  for (const std::size_t r : {0, 1, 2, 3}) {
    enter(r, r == 2 ? 1 : 0, 7);
    enter(r, r == 2 ? 0 : 1, 8);
  }
  const auto hang = find();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->finding.verdict, "mismatched_collective");
  EXPECT_THAT(hang->finding.evidence,
              ::testing::Contains(::testing::HasSubstr("two threads of rank 0 wait")));
}

// It ran on into the next collective, and may have entered it before the others entered theirs.
TEST_F(HangTest, TheRankThatLeftOutACollectiveIsTheOddOneOut) {
  for (const bool is_first : {true, false}) {
    collectives_.instances.clear();
    for (RankData& rank : job_.ranks)
      rank.collectives.clear();
    add(0, 10 * kSecond, {0, 1, 2, 3});
    if (is_first) add(0, 11 * kSecond, {1});
    add(1, 11 * kSecond + 1, {0, 2, 3});
    if (!is_first) add(0, 11 * kSecond + 2, {1});
    const auto hang = find();
    ASSERT_TRUE(hang);
    EXPECT_THAT(hang->finding.ranks, ElementsAre(1)) << is_first;
  }
}

TEST_F(HangTest, ARankThatIsNotSampledAnyMoreHasStopped) {
  add(0, 10 * kSecond, {0, 1, 2, 3});
  add(0, 11 * kSecond, {0, 1, 2});
  EXPECT_EQ(find()->finding.kind, "hang") << "nobody is sampled";
  ThreadSample sample;
  sample.time_ns = 20 * kSecond;
  job_.ranks[0].samples.push_back(sample);
  EXPECT_EQ(find()->finding.kind, "stopped");
}

// A training thread that runs Python all the time holds the lock, and keeps nobody from anything.
TEST_F(HangTest, WhoHoldsTheInterpreterLockIsADeadlockUnlessItTrains) {
  using trace::SampleState;
  add(0, 10 * kSecond, {0, 1, 2, 3});
  add(0, 11 * kSecond, {0, 1, 2});
  RankData& missing = job_.ranks[3];
  missing.main_tid = missing.pid;
  const auto verdict = [&](std::int32_t tid, SampleState state) {
    trace_.samples = {};
    for (std::int64_t second = 12; second < 30; ++second) {
      trace::SampleTable& samples = trace_.samples;
      samples.time_ns.push_back(second * kSecond);
      samples.pid.push_back(missing.pid);
      samples.tid.push_back(tid);
      samples.stack.push_back({});
      samples.state.push_back(state);
      samples.holds_gil.push_back(1);
      samples.is_native.push_back(0);
    }
    return find()->finding.verdict;
  };
  EXPECT_EQ(verdict(missing.main_tid, SampleState::kRunning), "missing_rank");
  EXPECT_EQ(verdict(missing.main_tid, SampleState::kSleeping), "deadlock");
  EXPECT_EQ(verdict(missing.main_tid + 1, SampleState::kRunning), "deadlock");
}

// The call fails at once: the culprit's last sample is of earlier, the others are still inside.
TEST_F(HangTest, AStackFromBeforeTheFailingCallIsNotItsStack) {
  const auto stack_of = [&](std::string_view function) {
    trace::StackTable& stacks = trace_.stacks;
    if (stacks.begin.empty()) stacks.begin.push_back(0);
    for (const std::string_view file : {"job.py", "/usr/lib/python3.11/selectors.py"}) {
      stacks.frames.push_back(trace::FrameId{static_cast<std::uint32_t>(trace_.frames.size())});
      trace_.frames.push_back({trace_.strings.intern(file == "job.py" ? function : "select"),
                               trace_.strings.intern(file), 1});
    }
    stacks.begin.push_back(static_cast<std::uint32_t>(stacks.frames.size()));
    return trace::StackId{static_cast<std::uint32_t>(stacks.size() - 1)};
  };
  add(0, 10 * kSecond, {0, 1, 2, 3});
  add(0, 11 * kSecond, {0, 1, 2, 3});
  collectives_.instances.back().is_complete = false;
  const auto early = stack_of("early"), inside = stack_of("merge");
  for (std::size_t r = 0; r < kHangRanks; ++r) {
    collectives_.instances.back().ranks[r].bytes = r == 1 ? 300 : 100;
    ThreadSample sample;
    sample.time_ns = r == 1 ? 11 * kSecond - 1 : 11 * kSecond + 1;
    sample.stack = r == 1 ? early : inside;
    job_.ranks[r].samples.push_back(sample);
    job_.ranks[r].exit_ns = 12 * kSecond;
    job_.ranks[r].exit_signal = 6;
  }
  const auto hang = find();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->finding.verdict, "mismatched_collective");
  EXPECT_THAT(hang->finding.ranks, ElementsAre(1));
  EXPECT_EQ(hang->finding.function, "merge") << "the job's own, not the library's that waits";
  EXPECT_EQ(hang->finding.stack, std::vector<std::string>{"merge"});
  EXPECT_THAT(
      hang->finding.evidence,
      testing::Contains(testing::HasSubstr("in select (/usr/lib/python3.11/selectors.py:1)")));
  // Nor is code that runs when the program has ended.
  std::vector<ThreadSample>& samples = job_.ranks[1].samples;
  samples.insert(samples.begin(), samples.front());
  samples.push_back({});
  samples.back().time_ns = 11 * kSecond + 2;
  samples.back().stack = stack_of("__del__");
  EXPECT_EQ(find()->finding.function, "merge");
}

// A user, a launcher or the recorder ends a healthy run; some ranks fail at their peers' end first.
TEST_F(HangTest, ARunThatIsEndedHasNoCulprit) {
  for (const auto signal : std::initializer_list<std::uint64_t>{SIGTERM, SIGINT, SIGKILL}) {
    collectives_.instances.clear();
    add(0, 10 * kSecond, {0, 1, 2, 3});
    add(0, 11 * kSecond, {0, 1, 2});
    for (std::size_t r = 0; r < kHangRanks; ++r) {
      job_.ranks[r].exit_ns = 11 * kSecond + static_cast<std::int64_t>(r) * kSecond / 5;
      job_.ranks[r].exit_signal = r == 2 ? std::uint64_t{SIGABRT} : signal;
    }
    job_.end_ns = 11 * kSecond + kSecond / 2;
    EXPECT_FALSE(find()) << signal;
    // One that ended before is why the others were ended.
    job_.ranks[2].exit_ns = 11 * kSecond - 1;
    const auto hang = find();
    ASSERT_TRUE(hang) << signal;
    EXPECT_THAT(hang->finding.ranks, ElementsAre(2));
    EXPECT_EQ(hang->finding.verdict, "dead_process");
    job_.ranks[2].exit_signal = SIGSEGV;
    EXPECT_THAT(find()->finding.ranks, ElementsAre(2));
  }
}

TEST(ReadJob, KnowsWhoWasAskedToEndByWhom) {
  trace::Trace trace = make_trace(SyntheticJob{});
  const std::int32_t on_second_host = trace::kPidsPerHost + 3000;
  for (trace::Process& process : trace.processes)
    if (process.pid == 3000) process.pid = on_second_host;
  for (trace::Track& track : trace.tracks) {
    if (track.pid == 3000) track.pid = on_second_host;
    if (track.tid == 3000) track.tid = on_second_host;
  }
  const auto ask = [&](std::int32_t pid, std::int64_t time_ns, std::uint64_t sender) {
    const auto track = std::find_if(trace.tracks.begin(), trace.tracks.end(),
                                    [pid](const trace::Track& t) { return t.tid == pid; });
    trace.instants.time_ns.push_back(time_ns);
    trace.instants.track.push_back(
        {static_cast<std::uint32_t>(std::distance(trace.tracks.begin(), track))});
    trace.instants.name.push_back(trace.strings.intern("asked to end"));
    trace.instants.category.push_back(trace.strings.intern("process"));
    trace.instants.arg_begin.push_back(static_cast<std::uint32_t>(trace.args.size()));
    trace.instants.arg_count.push_back(2);
    for (const auto& [key, value] : {std::pair("signal", std::uint64_t{15}), {"sender", sender}}) {
      trace::ArgValue arg;
      arg.kind = trace::ArgValue::Kind::kUint;
      arg.key = trace.strings.intern(key);
      arg.u64 = value;
      trace.args.push_back(arg);
    }
  };
  ask(1000, 9, 77);
  ask(1000, 7, 78);
  ask(1000, std::numeric_limits<std::int64_t>::min(), 77);
  ask(1000, std::numeric_limits<std::int64_t>::max(), 77);
  ask(on_second_host, 5, 77);
  ask(on_second_host, 6, std::uint64_t{1} << 40);  // no thread
  const auto job = read_job(trace);
  ASSERT_TRUE(job);
  ASSERT_EQ(job->ranks[0].end_signals.size(), 2U);
  EXPECT_EQ(job->ranks[0].end_signals[0].time_ns, 7);
  EXPECT_EQ(job->ranks[0].end_signals[0].sender_tid, 78);
  EXPECT_EQ(job->ranks[0].end_signals[1].signal, 15U);
  ASSERT_EQ(job->ranks[2].end_signals.size(), 1U);
  EXPECT_EQ(job->ranks[2].end_signals[0].sender_tid, trace::kPidsPerHost + 77);
}

TEST(ReadJob, KnowsWhenTheRecorderWasToldToEndIt) {
  trace::Trace trace = make_trace(SyntheticJob{});
  EXPECT_FALSE(read_job(trace)->stopped_ns);
  for (const std::int64_t time_ns : {9, 7}) {
    trace::InstantTable& instants = trace.instants;
    instants.time_ns.push_back(time_ns);
    instants.track.push_back(trace::TrackId{0});
    instants.name.push_back(trace.strings.intern("metadata"));
    instants.category.push_back(trace.strings.intern("kansoku.meta"));
    instants.arg_begin.push_back(static_cast<std::uint32_t>(trace.args.size()));
    instants.arg_count.push_back(2);
    for (const auto& [key, text] : {std::pair("key", "kansoku.stop_signal"), {"value", "15"}}) {
      trace::ArgValue arg;
      arg.kind = trace::ArgValue::Kind::kString;
      arg.key = trace.strings.intern(key);
      arg.text = trace.strings.intern(text);
      trace.args.push_back(arg);
    }
  }
  EXPECT_EQ(read_job(trace)->stopped_ns, 7);
}

// Programs that catch the signal end with a status of their own.
TEST_F(HangTest, WhatEndsOnceTheRecorderWasStoppedSaysNothing) {
  add(0, 10 * kSecond, {0, 1, 2, 3});
  add(0, 11 * kSecond, {0, 1, 2});
  for (std::size_t r = 0; r < kHangRanks; ++r) {
    job_.ranks[r].exit_ns = 11 * kSecond + static_cast<std::int64_t>(r) * kSecond;
    job_.ranks[r].exit_status = 1;
  }
  job_.end_ns = 11 * kSecond + kSecond / 2;
  EXPECT_TRUE(find());
  job_.stopped_ns = 11 * kSecond - 1;
  EXPECT_FALSE(find());
}

// A rank that catches the signal ends with an error of its own, maybe after its peer is gone.
TEST_F(HangTest, ARunWhoseRanksWereAllAskedToEndHasNoCulprit) {
  add(0, 10 * kSecond, {0, 1, 2, 3});
  add(0, 11 * kSecond, {0, 1, 2});
  for (std::size_t r = 0; r < kHangRanks; ++r) {
    job_.ranks[r].exit_ns = 11 * kSecond + static_cast<std::int64_t>(r) * kSecond / 5;
    job_.ranks[r].exit_signal = r == 0 ? SIGINT : 0;
    job_.ranks[r].exit_status = r == 0 ? 0 : 1;
  }
  job_.end_ns = 11 * kSecond + kSecond / 2;
  const auto alone = find();
  ASSERT_TRUE(alone);
  EXPECT_THAT(alone->finding.ranks, ElementsAre(0));
  for (RankData& rank : job_.ranks)
    rank.end_signals.push_back({11 * kSecond - 1, SIGINT, 77});
  EXPECT_FALSE(find());
}

// As of a pre-emption notice, or to reload.
TEST_F(HangTest, ASignalThatRanksSurviveIsNotTheEndOfTheRun) {
  add(0, 10 * kSecond, {0, 1, 2, 3});
  add(0, 30 * kSecond, {0, 1, 3});
  for (RankData& rank : job_.ranks) {
    rank.end_signals.push_back({5 * kSecond, SIGTERM, 77});
    rank.exit_ns = 30 * kSecond + kSecond / 2;
    rank.exit_status = 1;
  }
  job_.ranks[2].exit_ns = 30 * kSecond;
  job_.ranks[2].exit_signal = SIGSEGV;
  job_.end_ns = 31 * kSecond;
  const auto hang = find();
  ASSERT_TRUE(hang);
  EXPECT_THAT(hang->finding.ranks, ElementsAre(2));
  EXPECT_EQ(hang->finding.verdict, "dead_process");
}

TEST_F(HangTest, RanksThatAreAskedInSeveralWaysAreEndedTogether) {
  add(0, 10 * kSecond, {0, 1, 2, 3});
  add(0, 11 * kSecond, {0, 1, 2});
  for (std::size_t r = 0; r < kHangRanks; ++r) {
    if (r % 2 == 0) job_.ranks[r].end_signals.push_back({11 * kSecond - 2, SIGHUP, 77});
    job_.ranks[r].end_signals.push_back({11 * kSecond - 1, SIGTERM, 77});
    job_.ranks[r].exit_ns = 11 * kSecond + 1;
    job_.ranks[r].exit_signal = SIGTERM;
  }
  job_.end_ns = 11 * kSecond + kSecond / 2;
  EXPECT_FALSE(find());
}

TEST_F(HangTest, WhoEndedARankIsNamed) {
  add(0, 10 * kSecond, {0, 1, 2, 3});
  add(0, 11 * kSecond, {0, 1, 3});
  job_.ranks[2].exit_ns = 11 * kSecond;
  job_.ranks[2].exit_signal = SIGKILL;
  const auto told = [&](std::int32_t sender) {
    job_.ranks[2].end_signals = {{11 * kSecond, SIGKILL, sender}};
    return find()->finding.evidence.front();
  };
  EXPECT_THAT(told(0), testing::EndsWith("by signal 9, which the kernel sent"));
  trace::Track track;
  track.kind = trace::TrackKind::kThread;
  track.pid = track.tid = 77;
  track.name = trace_.strings.intern("bash");
  trace_.tracks.push_back(track);
  EXPECT_THAT(told(77), testing::EndsWith("by signal 9, which bash (pid 77) sent"));
}

// One rank is killed, the launcher ends the others much later.
TEST_F(HangTest, ARankThatWasKilledAloneIsTheCulprit) {
  add(0, 10 * kSecond, {0, 1, 2, 3});
  add(0, 11 * kSecond, {0, 1, 3});
  for (std::size_t r = 0; r < kHangRanks; ++r) {
    job_.ranks[r].exit_ns = r == 2 ? 11 * kSecond : 20 * kSecond;
    job_.ranks[r].exit_signal = SIGKILL;
  }
  job_.end_ns = 20 * kSecond;
  const auto hang = find();
  ASSERT_TRUE(hang);
  EXPECT_THAT(hang->finding.ranks, ElementsAre(2));
}

TEST_F(HangTest, NothingIsStuckAfterAWholeCollective) {
  add(0, 10 * kSecond, {0, 1, 2});
  add(0, 11 * kSecond, {0, 1, 2, 3});
  for (RankData& rank : job_.ranks) {
    for (CollectiveEvent& event : rank.collectives)
      event.is_open = false;
  }
  EXPECT_FALSE(find());
}

TEST_F(HangTest, RanksThatEndedWellAreNotStuck) {
  add(0, 11 * kSecond, {0, 1, 2});
  ASSERT_TRUE(find());
  for (RankData& rank : job_.ranks)
    rank.exit_ns = 12 * kSecond;
  EXPECT_FALSE(find());
}

}  // namespace
}  // namespace kansoku::diagnose
