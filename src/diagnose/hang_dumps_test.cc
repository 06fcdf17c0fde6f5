// SPDX-License-Identifier: Apache-2.0
#include "diagnose/hang_dumps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace kansoku::diagnose {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using trace::import::DumpEntry;
using trace::import::DumpGroup;
using trace::import::FlightDump;

constexpr std::int64_t kSecondNs = 1'000'000'000;

struct Group {
  std::string name;
  std::vector<std::int32_t> ranks;
};

/// A dump of `rank` that knows `groups`; the local id of a group is its place in the list.
class Dump {
 public:
  Dump(std::int32_t rank, const std::vector<Group>& groups) {
    dump_.rank = rank;
    for (const Group& group : groups) {
      dump_.groups.push_back(
          {.name = group.name, .description = "d" + group.name, .ranks = group.ranks});
    }
  }
  /// How far the rank has come in a group.
  Dump& status(const std::string& group, std::int64_t enqueued, std::int64_t completed) {
    dump_.status.push_back(
        {.local_id = id_of(group), .enqueued = enqueued, .started = -1, .completed = completed});
    // A finished operation tells which group the local id means.
    add(group, "nccl:all_reduce", completed, "completed");
    return *this;
  }
  Dump& pending(const std::string& group, std::int64_t seq,
                const std::string& name = "nccl:all_reduce", const std::string& sizes = "[[4]]") {
    DumpEntry& entry = add(group, name, seq, "scheduled");
    entry.input_sizes = entry.output_sizes = sizes;
    entry.is_p2p = name.find("->") != std::string::npos || name.find("<-") != std::string::npos;
    if (entry.is_p2p) std::swap(entry.p2p_seq, entry.collective_seq);
    return *this;
  }
  Dump& completed(const std::string& group, std::int64_t seq) {
    add(group, "nccl:all_reduce", seq, "completed");
    return *this;
  }
  /// As version 1 numbers: transfers take numbers, too.
  Dump& counts_together() {
    dump_.counts_together = true;
    return *this;
  }
  Dump& bad_entries(std::uint64_t count) {
    dump_.bad_entries = count;
    return *this;
  }
  Dump& created(std::int64_t at_ns) {
    dump_.entries.back().created_ns = at_ns;
    return *this;
  }
  Dump& frames(std::vector<std::string> functions, const std::string& file = "train.py") {
    for (std::string& function : functions)
      dump_.entries.back().frames.push_back({std::move(function), file, 7});
    return *this;
  }
  operator FlightDump() const { return dump_; }  // NOLINT(google-explicit-constructor)

 private:
  [[nodiscard]] std::int64_t id_of(const std::string& group) const {
    for (std::size_t i = 0; i < dump_.groups.size(); ++i) {
      if (dump_.groups[i].name == group) return static_cast<std::int64_t>(i);
    }
    return -1;
  }
  DumpEntry& add(const std::string& group, const std::string& name, std::int64_t seq,
                 const std::string& state) {
    DumpEntry entry;
    entry.local_id = id_of(group);
    entry.group_name = group;
    entry.group_description = "d" + group;
    entry.name = name;
    entry.state = state;
    entry.collective_seq = seq;
    entry.op_id = static_cast<std::int64_t>(dump_.entries.size());
    entry.created_ns = 100 * kSecondNs + entry.op_id;
    entry.timeout_ms = 180'000;
    entry.input_dtypes = "[Float]";
    dump_.entries.push_back(entry);
    return dump_.entries.back();
  }
  FlightDump dump_;
};

Diagnosis run_dumps(std::vector<FlightDump> dumps) {
  const auto out = diagnose_dumps(dumps);
  if (!out) {
    ADD_FAILURE() << out.error().what;
    return {};
  }
  // Nothing depends on the order in which the files come.
  std::reverse(dumps.begin(), dumps.end());
  const auto again = diagnose_dumps(dumps);
  EXPECT_EQ(to_json(*again).dump(), to_json(*out).dump());
  return *out;
}

const std::vector<Group> kWorld{{"0", {0, 1, 2, 3}}};

TEST(HangDumps, ARankThatNeverArrivesIsMissing) {
  const Diagnosis d =
      run_dumps({Dump(0, kWorld).pending("0", 5).frames({"all_reduce", "main"}),
                 Dump(1, kWorld).pending("0", 5),
                 Dump(2, kWorld)
                     .status("0", 4, 4)
                     .frames({"wrapper", "barrier"},
                             "/opt/lib/python3.11/site-packages/torch/distributed/c10d_logger.py")
                     .frames({"load", "train", "main"}),
                 Dump(3, kWorld).pending("0", 5)});
  ASSERT_EQ(d.findings.size(), 1U);
  const Finding& finding = d.findings[0];
  EXPECT_EQ(finding.kind, "hang");
  EXPECT_EQ(finding.verdict, "missing_rank");
  EXPECT_THAT(finding.ranks, ElementsAre(2));
  EXPECT_EQ(finding.basis, Basis::kObservation);
  EXPECT_EQ(finding.share, 1.0);
  EXPECT_EQ(finding.function, "load");  // its own last operation, innermost own frame
  EXPECT_EQ(finding.file, "train.py");
  EXPECT_EQ(finding.line, 7U);
  EXPECT_THAT(finding.stack, ElementsAre("main", "train", "load"));
  EXPECT_THAT(d.victims, ElementsAre(0, 1, 3));
  EXPECT_THAT(finding.evidence, Contains(HasSubstr("nccl:all_reduce 5 of group 0 (d0) by rank 0")));
  EXPECT_EQ(d.ranks.size(), 4U);
}

// 0 waits for 1 in A, 1 for 2 in B, 2 for 3 in C; 3 waits for nobody. Nobody but 3 is named.
TEST(HangDumps, AChainOverGroupsEndsAtOneRank) {
  const std::vector<Group> groups{{"A", {0, 1}}, {"B", {1, 2}}, {"C", {2, 3}}};
  const Diagnosis d = run_dumps(
      {Dump(0, groups).pending("A", 3), Dump(1, groups).status("A", 2, 2).pending("B", 7),
       Dump(2, groups).status("B", 6, 6).pending("C", 1), Dump(3, groups).status("C", 0, 0)});
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_EQ(d.findings[0].verdict, "missing_rank");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(3));
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("3 of 3 waiting ranks")));
  EXPECT_THAT(d.victims, ElementsAre(0, 1, 2));
}

// As before, but two ranks of another group wait for reasons that do not lead to rank 3: of five
// waiting ranks three lead there.
TEST(HangDumps, WaitsThatLeadElsewhereAreCounted) {
  const std::vector<Group> groups{{"A", {0, 1}}, {"B", {1, 2}}, {"C", {2, 3}}, {"D", {4, 5}}};
  const Diagnosis d = run_dumps(
      {Dump(0, groups).pending("A", 3), Dump(1, groups).status("A", 2, 2).pending("B", 7),
       Dump(2, groups).status("B", 6, 6).pending("C", 1), Dump(3, groups).status("C", 0, 0),
       Dump(4, groups).pending("D", 1), Dump(5, groups).pending("D", 1)});
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(3));
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("3 of 5 waiting ranks")));
}

// Rank 2 has handed over operation 5 like the others, who completed it and wait in 6.
TEST(HangDumps, ADeviceThatStandsStill) {
  const Diagnosis d = run_dumps({Dump(0, kWorld).status("0", 6, 5).pending("0", 6),
                                 Dump(1, kWorld).status("0", 6, 5).pending("0", 6),
                                 Dump(2, kWorld).status("0", 5, 4).pending("0", 5),
                                 Dump(3, kWorld).status("0", 6, 5).pending("0", 6)});
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_EQ(d.findings[0].verdict, "stuck_device");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(2));
  EXPECT_EQ(d.findings[0].function, "nccl:all_reduce");  // there are no frames
  EXPECT_THAT(d.victims, ElementsAre(0, 1, 3));
}

// Dumps of a job that runs, one a moment before the others.
TEST(HangDumps, PeersThatWaitForNobodyAreNoProofOfAStuckDevice) {
  const Diagnosis d = run_dumps(
      {Dump(0, kWorld).status("0", 5, 4).pending("0", 5), Dump(1, kWorld).status("0", 5, 5),
       Dump(2, kWorld).status("0", 5, 4).pending("0", 5), Dump(3, kWorld).status("0", 5, 5)});
  EXPECT_THAT(d.findings, IsEmpty());
  EXPECT_THAT(d.notes, Contains(HasSubstr("rank 0, 2: peers have completed")));
}

TEST(HangDumps, UnequalSizesNameTheMinority) {
  const Diagnosis d = run_dumps({Dump(0, kWorld).pending("0", 5), Dump(1, kWorld).pending("0", 5),
                                 Dump(2, kWorld).pending("0", 5),
                                 Dump(3, kWorld).pending("0", 5, "nccl:all_reduce", "[[8]]")});
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_EQ(d.findings[0].verdict, "mismatched_collective");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(3));
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("rank 3: nccl:all_reduce [Float] [[8]]")));
  const Diagnosis even =
      run_dumps({Dump(0, kWorld).pending("0", 5), Dump(1, kWorld).pending("0", 5),
                 Dump(2, kWorld).pending("0", 5, "nccl:all_reduce", "[[8]]"),
                 Dump(3, kWorld).pending("0", 5, "nccl:all_reduce", "[[8]]")});
  ASSERT_EQ(even.findings.size(), 1U);
  EXPECT_THAT(even.findings[0].ranks, ElementsAre(0, 1, 2, 3));  // nobody can say who is wrong
}

TEST(HangDumps, DifferentOperationsAreAMismatch) {
  const Diagnosis d =
      run_dumps({Dump(0, kWorld).pending("0", 5), Dump(1, kWorld).pending("0", 5, "nccl:broadcast"),
                 Dump(2, kWorld).pending("0", 5), Dump(3, kWorld).pending("0", 5)});
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_EQ(d.findings[0].verdict, "mismatched_collective");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(1));
}

// Every rank sends another share to every other one.
/// A rank of three that waits in a coalesced group: its operations, and an entry of its own under
/// one number.
FlightDump in_coalesced_group(std::int32_t rank, const std::vector<Group>& groups) {
  return Dump(rank, groups)
      .status("0", 5, 4)
      .pending("0", 5, "nccl:_all_gather_base")
      .pending("0", 5, "nccl:_all_gather_base", "[[8]]")
      .pending("0", 5, "nccl:coalesced", "[]");
}

TEST(HangDumps, OperationsOfOneCoalescedGroupAreNoMismatch) {
  const std::vector<Group> groups{{"0", {0, 1, 2}}};
  const auto waiting = [&](std::int32_t rank) { return in_coalesced_group(rank, groups); };
  const Diagnosis d = run_dumps({waiting(0), waiting(1), Dump(2, groups).status("0", 4, 4)});
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_EQ(d.findings[0].verdict, "missing_rank");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(2));
  // A dump with the group's entry alone says nothing of the operations.
  const Diagnosis lost = run_dumps(
      {waiting(0), Dump(1, groups).status("0", 5, 4).pending("0", 5, "nccl:coalesced", "[]"),
       Dump(2, groups).status("0", 4, 4)});
  ASSERT_EQ(lost.findings.size(), 1U);
  EXPECT_EQ(lost.findings[0].verdict, "missing_rank");
  // Another size inside of the group is one.
  const Diagnosis other = run_dumps({waiting(0), waiting(1),
                                     Dump(2, groups)
                                         .status("0", 5, 4)
                                         .pending("0", 5, "nccl:_all_gather_base")
                                         .pending("0", 5, "nccl:_all_gather_base", "[[9]]")});
  ASSERT_EQ(other.findings.size(), 1U);
  EXPECT_EQ(other.findings[0].verdict, "mismatched_collective");
  EXPECT_THAT(other.findings[0].ranks, ElementsAre(2));
}

// An entry that was left out may be the very one.
TEST(HangDumps, ARankWithADamagedEntryIsNotBehind) {
  const std::vector<Group> groups{{"0", {0, 1}}};
  const auto dump = Dump(0, groups).status("0", 2, 1).pending("0", 2);
  EXPECT_EQ(run_dumps({dump, Dump(1, groups).status("0", 1, 1)}).findings.size(), 1U);
  const Diagnosis d = run_dumps({dump, Dump(1, groups).status("0", 1, 1).bad_entries(1)});
  EXPECT_THAT(d.findings, IsEmpty());
  EXPECT_THAT(d.notes, Contains(HasSubstr("1 entries were left out")));
}

// The ring drops the oldest first: the rest of a group is no other call.
TEST(HangDumps, ARingThatLostAPartOfACoalescedGroupMakesNoMismatch) {
  const std::vector<Group> groups{{"0", {0, 1, 2}}};
  const Diagnosis d = run_dumps({in_coalesced_group(0, groups),
                                 Dump(1, groups)
                                     .pending("0", 5, "nccl:_all_gather_base", "[[8]]")
                                     .pending("0", 5, "nccl:coalesced", "[]"),
                                 Dump(2, groups).status("0", 4, 4)});
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_EQ(d.findings[0].verdict, "missing_rank");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(2));
}

// Transfers took numbers of their own on each rank there: a number says nothing of the others.
TEST(HangDumps, NobodyIsBehindWhereNumbersMeanOtherOperations) {
  const std::vector<Group> groups{{"0", {0, 1}}};
  const Diagnosis d = run_dumps({Dump(0, groups)
                                     .status("0", 7, 6)
                                     .pending("0", 3, "nccl:send 0->1")
                                     .pending("0", 7)
                                     .counts_together(),
                                 Dump(1, groups).status("0", 5, 5).counts_together()});
  for (const Finding& finding : d.findings)
    EXPECT_NE(finding.function, "nccl:all_reduce");
  EXPECT_THAT(d.notes, Contains(HasSubstr("numbers transfers and collectives together")));
}

TEST(HangDumps, UnequalSizesOfAllToAllAreNoMismatch) {
  const Diagnosis d = run_dumps({Dump(0, kWorld).pending("0", 5, "nccl:all_to_all", "[[1]]"),
                                 Dump(1, kWorld).pending("0", 5, "nccl:all_to_all", "[[2]]"),
                                 Dump(2, kWorld).pending("0", 5, "nccl:all_to_all", "[[3]]"),
                                 Dump(3, kWorld).pending("0", 5, "nccl:all_to_all", "[[4]]")});
  EXPECT_THAT(d.findings, IsEmpty());
  EXPECT_THAT(d.notes,
              Contains(HasSubstr("and none has completed them: these dumps do not say why")));
}

TEST(HangDumps, ARankWithoutADumpIsBlamedOnlyIfNothingElseExplains) {
  const Diagnosis d = run_dumps({Dump(0, kWorld).pending("0", 5), Dump(1, kWorld).pending("0", 5),
                                 Dump(3, kWorld).pending("0", 5)});
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_EQ(d.findings[0].verdict, "dead_process");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(2));
  const Diagnosis both =
      run_dumps({Dump(0, kWorld).pending("0", 5), Dump(1, kWorld).status("0", 4, 4),
                 Dump(3, kWorld).pending("0", 5)});
  ASSERT_EQ(both.findings.size(), 1U);
  EXPECT_EQ(both.findings[0].verdict, "missing_rank");
  EXPECT_THAT(both.findings[0].ranks, ElementsAre(1));
  EXPECT_THAT(both.notes, Contains("no dump of rank 2"));
}

// 0 calls A then B, 1 calls B then A.
TEST(HangDumps, RanksThatWaitForEachOtherAreADeadlock) {
  const std::vector<Group> groups{{"A", {0, 1}}, {"B", {0, 1}}, {"C", {1, 2}}};
  const Diagnosis d =
      run_dumps({Dump(0, groups).pending("A", 3).status("B", 3, 3),
                 Dump(1, groups).pending("B", 4).status("A", 2, 2).status("C", 8, 8),
                 Dump(2, groups).pending("C", 9)});
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_EQ(d.findings[0].verdict, "deadlock");
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(0, 1));
  EXPECT_THAT(d.victims, ElementsAre(2));
}

// The numbers in "send 0->1" are places in the group, not ranks.
TEST(HangDumps, TransfersWaitForTheOtherEnd) {
  const std::vector<Group> groups{{"P", {4, 7}}};
  for (const char* name : {"nccl:send 0->1", "nccl:recv 0<-1"}) {
    const Diagnosis d = run_dumps({Dump(4, groups).pending("P", 2, name), Dump(7, groups)});
    ASSERT_EQ(d.findings.size(), 1U) << name;
    EXPECT_EQ(d.findings[0].verdict, "missing_rank");
    EXPECT_THAT(d.findings[0].ranks, ElementsAre(7));
  }
  // Places that do not exist, or its own, are nobody.
  for (const char* name :
       {"nccl:send 0->2", "nccl:send 0->x", "nccl:send 1->0", "nccl:send 0->-1"}) {
    const Diagnosis d = run_dumps({Dump(4, groups).pending("P", 2, name), Dump(7, groups)});
    EXPECT_THAT(d.findings, IsEmpty()) << name;
  }
}

// The operation handed over first holds up the rest, whatever the order of the ring.
TEST(HangDumps, TheFirstPendingOperationCounts) {
  const std::vector<Group> groups{{"A", {0, 1}}, {"B", {0, 2}}};
  const Diagnosis d =
      run_dumps({Dump(0, groups).pending("B", 1).created(50).pending("A", 1).created(20),
                 Dump(1, groups).status("A", 0, 0), Dump(2, groups).status("B", 0, 0)});
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(1));
}

// A timeout is no time that was seen: dumps are also written at any other moment.
TEST(HangDumps, SayTheTimeoutAndNotForHowLong) {
  const Diagnosis d = run_dumps({Dump(0, kWorld).pending("0", 5).created(100 * kSecondNs),
                                 Dump(1, kWorld).status("0", 4, 4),
                                 Dump(2, kWorld).pending("0", 5).created(103 * kSecondNs),
                                 Dump(3, kWorld).pending("0", 5).created(0)});
  ASSERT_EQ(d.findings.size(), 1U);
  EXPECT_DOUBLE_EQ(d.findings[0].cost_ms_per_step, 0);
  EXPECT_THAT(d.findings[0].evidence, Contains(HasSubstr("has a timeout of 180 s")));
}

// Healthy ranks whose dumps were written one after the other.
TEST(HangDumps, ADumpOfAnEarlierMomentIsNobodysFault) {
  const auto healthy = [](int rank, std::int64_t at) {
    Dump dump(rank, kWorld);
    for (std::int64_t seq = at - 3; seq < at; ++seq)
      dump.completed("0", seq);
    return dump.pending("0", at);
  };
  const Diagnosis d =
      run_dumps({healthy(0, 405), healthy(1, 420), healthy(2, 431), healthy(3, 455)});
  EXPECT_THAT(d.findings, IsEmpty()) << verdict_text(d);
  EXPECT_THAT(d.notes, Contains(HasSubstr("dumps of rank 0, 1, 2 are older")));
  EXPECT_EQ(d.verdict(), Verdict::kNotEnoughData);
  // One that had completed all it had handed over.
  const Diagnosis idle = run_dumps(
      {Dump(0, kWorld).completed("0", 405), healthy(1, 455), healthy(2, 455), healthy(3, 455)});
  EXPECT_THAT(idle.findings, IsEmpty()) << verdict_text(idle);
  // One operation further, and not completed by anybody: it never came.
  const Diagnosis missing = run_dumps(
      {Dump(0, kWorld).completed("0", 405), healthy(1, 406), healthy(2, 406), healthy(3, 406)});
  ASSERT_EQ(missing.findings.size(), 1U);
  EXPECT_THAT(missing.findings[0].ranks, ElementsAre(0));
  EXPECT_EQ(missing.findings[0].verdict, "missing_rank");
}

// A rank may end an all_to_all without one that has nothing for it.
TEST(HangDumps, AnAllToAllThatOthersEndedSaysNothingOfTheDump) {
  const auto ended = [](int rank) {
    FlightDump dump = Dump(rank, kWorld).completed("0", 9).completed("0", 10).pending("0", 11);
    dump.entries[1].name = "nccl:all_to_all";
    return dump;
  };
  const Diagnosis d = run_dumps({ended(0), ended(1), ended(2), Dump(3, kWorld).completed("0", 9)});
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(3));
}

// The groups are not described: those that were seen to take part belong to one.
TEST(HangDumps, WhoTookPartIsAMember) {
  const std::vector<Group> none;
  const Diagnosis d =
      run_dumps({Dump(0, none).completed("0", 5), Dump(1, none).completed("0", 5).pending("0", 6),
                 Dump(2, none).completed("0", 5).pending("0", 6)});
  ASSERT_EQ(d.findings.size(), 1U) << verdict_text(d);
  EXPECT_THAT(d.findings[0].ranks, ElementsAre(0));
}

TEST(HangDumps, NobodyWaits) {
  const Diagnosis d = run_dumps({Dump(0, kWorld).status("0", 4, 4), Dump(1, kWorld)});
  EXPECT_THAT(d.findings, IsEmpty());
  EXPECT_THAT(d.victims, IsEmpty());
  EXPECT_THAT(d.notes, ElementsAre("0 of 2 ranks wait in an operation"));
}

TEST(HangDumps, RetiredOperationsDoNotWait) {
  FlightDump dump = Dump(0, kWorld).pending("0", 5);
  dump.entries.back().is_retired = true;
  EXPECT_THAT(run_dumps({dump}).notes, ElementsAre("0 of 1 ranks wait in an operation"));
}

TEST(HangDumps, UnusableSetsOfDumpsAreRefused) {
  const auto none = diagnose_dumps({});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, Code::kNotFound);
  const std::vector<FlightDump> twice{Dump(1, kWorld), Dump(1, kWorld)};
  const auto two = diagnose_dumps(twice);
  ASSERT_FALSE(two.has_value());
  EXPECT_EQ(two.error().code, Code::kCorrupt);
  EXPECT_THAT(two.error().what, HasSubstr("two dumps of rank 1"));
  const std::vector<FlightDump> nameless{Dump(-1, kWorld)};
  const auto no_rank = diagnose_dumps(nameless);
  ASSERT_FALSE(no_rank.has_value());
  EXPECT_EQ(no_rank.error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace kansoku::diagnose
