// SPDX-License-Identifier: Apache-2.0
#include "capture/cuda/stuck.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kansoku::capture::cuda {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000, kNow = 1000 * kSecond;

StreamInfo stream(std::uint32_t index, std::uint64_t seconds, bool is_begun) {
  StreamInfo out;
  out.index = index;
  out.waiting_since_ns = kNow - seconds * kSecond;
  out.is_begun = is_begun;
  out.what = WIRE_CUDA_LAUNCH;
  out.kernel = index;
  out.suspects = {WIRE_CUDA_LAUNCH << 16 | index};
  return out;
}

std::optional<History> short_ones(std::uint32_t /*what*/, std::uint32_t /*kernel*/) {
  return History{100, 1e6};
}
std::optional<History> long_ones(std::uint32_t /*what*/, std::uint32_t /*kernel*/) {
  return History{100, 2e9};
}
std::optional<History> nothing(std::uint32_t /*what*/, std::uint32_t /*kernel*/) {
  return std::nullopt;
}

TEST(Stuck, NeedsTheFloorAndTenTimesItsOwnPast) {
  EXPECT_TRUE(find_stuck({stream(1, 4, true)}, kNow, short_ones).empty());
  ASSERT_EQ(find_stuck({stream(1, 6, true)}, kNow, short_ones).size(), 1U);
  EXPECT_TRUE(find_stuck({stream(1, 19, true)}, kNow, long_ones).empty());
  const auto late = find_stuck({stream(1, 21, true)}, kNow, long_ones);
  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late[0].kind, StuckKind::kStuck);
  EXPECT_DOUBLE_EQ(late[0].deadline_s, 20);
  EXPECT_DOUBLE_EQ(late[0].seconds, 21);
}

TEST(Stuck, IsUnknownWithoutAPast) {
  const auto found = find_stuck({stream(1, 60, true)}, kNow, nothing);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kind, StuckKind::kUnknown);
  const auto few = [](std::uint32_t, std::uint32_t) {
    return std::optional(History{kHistoryLeast - 1, 1});
  };
  EXPECT_EQ(find_stuck({stream(1, 60, true)}, kNow, few).at(0).kind, StuckKind::kUnknown);
}

TEST(Stuck, IsNotWhatWaitsForAnother) {
  const auto found = find_stuck({stream(1, 60, false), stream(2, 30, true), stream(3, 40, true)},
                                kNow, short_ones);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].stream.index, 3U);
  EXPECT_EQ(found[1].stream.index, 2U);
  EXPECT_EQ(found[2].stream.index, 1U);
  EXPECT_EQ(found[2].kind, StuckKind::kBehind);
}

TEST(Stuck, CountsFromTheEndOfTheOneInFront) {
  StreamInfo deep = stream(1, 60, true);  // launched long ago into a deep queue
  deep.done_ns = kNow - 2 * kSecond;
  EXPECT_TRUE(find_stuck({deep}, kNow, short_ones).empty());
}

TEST(Stuck, IsOneOfThoseThatWereNotTimed) {
  StreamInfo sampled = stream(1, 6, false);
  sampled.is_mark = true;  // an event behind the two that were not timed
  sampled.suspects = {WIRE_CUDA_COPY << 16 | 0xffff, WIRE_CUDA_LAUNCH << 16 | 7};
  const auto found = find_stuck({sampled}, kNow, short_ones);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kind, StuckKind::kStuck);
  ASSERT_EQ(found[0].suspects.size(), 2U);
  EXPECT_EQ(found[0].suspects[1].kernel, 7U);
  // The deadline is that of the longest of them.
  const auto slow_copies = [](std::uint32_t what, std::uint32_t) {
    return std::optional(History{100, what == WIRE_CUDA_COPY ? 2e9 : 1e6});
  };
  EXPECT_TRUE(find_stuck({sampled}, kNow, slow_copies).empty());
  // A timed one that has not begun is none of them.
  sampled.is_mark = false;
  ASSERT_EQ(find_stuck({sampled}, kNow, short_ones).at(0).suspects.size(), 1U);
  EXPECT_EQ(find_stuck({sampled}, kNow, short_ones).at(0).suspects[0].what, WIRE_CUDA_COPY);
}

TEST(Stuck, OfForgottenOnesIsTheLongestOfAll) {
  StreamInfo sampled = stream(1, 6, false);
  sampled.suspects_unknown = 3;
  EXPECT_EQ(find_stuck({sampled}, kNow, short_ones).at(0).kind, StuckKind::kStuck);
  const auto slow_others = [](std::uint32_t what, std::uint32_t) {
    return std::optional(History{100, what == kAnyOperation ? 2e9 : 1e6});
  };
  EXPECT_TRUE(find_stuck({sampled}, kNow, slow_others).empty());
  const auto unknown_others = [](std::uint32_t what, std::uint32_t kernel) {
    return what == kAnyOperation ? std::nullopt : short_ones(what, kernel);
  };
  EXPECT_EQ(find_stuck({sampled}, kNow, unknown_others).at(0).kind, StuckKind::kUnknown);
}

TEST(Stuck, IsUnknownOfWhatIsLargerThanAnyBefore) {
  StreamInfo large = stream(1, 60, true);
  large.suspects = {21U << 20 | WIRE_CUDA_LAUNCH << 16 | 1};
  const auto up_to = [](std::uint32_t size) {
    return [size](std::uint32_t, std::uint32_t) { return std::optional(History{100, 1e6, size}); };
  };
  EXPECT_EQ(find_stuck({large}, kNow, up_to(21)).at(0).kind, StuckKind::kStuck);
  EXPECT_EQ(find_stuck({large}, kNow, up_to(20)).at(0).kind, StuckKind::kUnknown);
}

TEST(Stuck, NamesTheGraphThatRuns) {
  StreamInfo graph = stream(1, 6, true);
  graph.what = WIRE_CUDA_GRAPH_LAUNCH;
  graph.kernel = WIRE_CUDA_NO_KERNEL;  // the list alone knows which
  graph.suspects = {WIRE_CUDA_LAUNCH << 16 | 1, WIRE_CUDA_GRAPH_LAUNCH << 16 | 5};
  const auto found = find_stuck({graph}, kNow, short_ones);
  ASSERT_EQ(found.size(), 1U);
  ASSERT_EQ(found[0].suspects.size(), 1U);
  EXPECT_EQ(found[0].suspects[0].kernel, 5U);
}

bool is_host_function(const Suspect& one) {
  return one.what == WIRE_CUDA_HOST_FUNCTION;
}

TEST(Ranks, StandWhereTheirOldestOperationIs) {
  constexpr std::uint32_t kMeet = WIRE_CUDA_HOST_FUNCTION << 16 | 0xffff;
  StreamInfo meets = stream(1, 6, true);
  meets.what = WIRE_CUDA_HOST_FUNCTION;
  meets.suspects = {kMeet};
  EXPECT_EQ(rank_at({meets}, kNow, is_host_function), RankAt::kCollective);
  EXPECT_EQ(rank_at({stream(1, 6, true)}, kNow, is_host_function), RankAt::kOperation);
  StreamInfo before =
      meets;  // the collective is timed and has not begun: the kernel before it runs
  before.is_begun = false;
  before.suspects = {WIRE_CUDA_LAUNCH << 16 | 1, kMeet};
  EXPECT_EQ(rank_at({before}, kNow, is_host_function), RankAt::kOperation);
  before.is_mark = true;  // none of them was timed
  EXPECT_EQ(rank_at({before}, kNow, is_host_function), RankAt::kUnclear);
  StreamInfo done = stream(1, 0, false);
  done.waiting_since_ns = 0;
  done.suspects.clear();
  EXPECT_EQ(rank_at({done}, kNow, is_host_function), RankAt::kNoWork);
  // The stream that waits for the other one's collective is behind it.
  StreamInfo behind = stream(2, 6, false);
  behind.suspects.insert(behind.suspects.begin(), WIRE_CUDA_EVENT << 16 | 0xffff);
  EXPECT_EQ(rank_at({meets, behind}, kNow, is_host_function), RankAt::kCollective);
  EXPECT_EQ(rank_at({behind}, kNow, is_host_function), RankAt::kOperation);
  behind.suspects.push_back(kMeet);  // nobody else has work: the event came long ago
  behind.is_mark = true;
  EXPECT_EQ(rank_at({behind}, kNow, is_host_function), RankAt::kUnclear);
  meets.behind = {kMeet, WIRE_CUDA_LAUNCH << 16 | 1, kMeet};
  EXPECT_EQ(pending_collectives({meets, behind}, is_host_function), 4U);
}

TEST(Ranks, MissIsTheOneThatIsInNoCollective) {
  using testing::ElementsAre;
  using testing::IsEmpty;
  const RankLook waits{RankAt::kCollective, false, false, 11, 1},
      done{RankAt::kNoWork, false, false, 10, 0}, runs{RankAt::kOperation, false, false, 11, 1},
      stopped{RankAt::kCollective, false, true, 11, 1}, gone{RankAt::kNoWork, true, false, 0, 0};
  EXPECT_THAT(find_missing({waits, waits, done, waits}), ElementsAre(2));
  EXPECT_THAT(find_missing({runs, waits}), ElementsAre(0));
  EXPECT_THAT(find_missing({waits, stopped, waits}), ElementsAre(1));
  EXPECT_THAT(find_missing({waits, gone}), ElementsAre(1));
  EXPECT_THAT(find_missing({waits, waits}), IsEmpty());
  const RankLook unclear{RankAt::kUnclear, false, false, 11, 1};
  EXPECT_THAT(find_missing({waits, unclear, done}), ElementsAre(2));
  EXPECT_THAT(find_missing({waits, unclear, waits}), ElementsAre(1));
  EXPECT_THAT(find_missing({unclear, unclear}), IsEmpty());
  EXPECT_THAT(find_missing({done, runs}), IsEmpty());  // nobody waits for another
  // All are in one: who handed over fewer, if they were counted from one moment on.
  const RankLook more{RankAt::kCollective, false, false, 13, 3},
      later{RankAt::kCollective, false, false, 5, 1};
  EXPECT_THAT(find_missing({more, waits, more}), ElementsAre(1));
  EXPECT_THAT(find_missing({more, later}), IsEmpty());
}

TEST(Stuck, IsSoughtAmongAllThatTheHostWaitsFor) {
  StreamInfo unknown = stream(1, 0, false);  // none of its operations was timed
  unknown.waiting_since_ns = 0;
  EXPECT_TRUE(find_stuck({unknown}, kNow, short_ones).empty());
  const auto found = find_stuck({unknown}, kNow, short_ones, kNow - 6 * kSecond);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kind, StuckKind::kStuck);
  EXPECT_DOUBLE_EQ(found[0].seconds, 6);
  unknown.suspects.clear();
  EXPECT_TRUE(find_stuck({unknown}, kNow, short_ones, kNow - 6 * kSecond).empty());
}

TEST(Stuck, IsNotBehindAShortOneOrAnotherDevice) {
  StreamInfo sampled = stream(1, 60, false), fresh = stream(2, 1, true),
             other = stream(3, 60, true);
  other.context = 1;
  const auto found = find_stuck({sampled, fresh, other}, kNow, short_ones);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].kind, StuckKind::kStuck);
  EXPECT_EQ(found[1].kind, StuckKind::kStuck);
}

TEST(Stuck, IsNotTheStreamThatWaitsForAnEventOfAnother) {
  StreamInfo waiting = stream(1, 60, false), first = stream(2, 30, false);
  waiting.suspects.insert(waiting.suspects.begin(), WIRE_CUDA_EVENT << 16 | 0xffff);
  const auto found = find_stuck({waiting, first}, kNow, short_ones);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].stream.index, 2U);
  EXPECT_EQ(found[0].kind, StuckKind::kStuck);
  EXPECT_EQ(found[1].kind, StuckKind::kBehind);
  // Nobody else has work: it waits for an event that will not come.
  EXPECT_EQ(find_stuck({waiting}, kNow, short_ones).at(0).kind, StuckKind::kStuck);
}

TEST(Stuck, OfTimesThatMakeNoSenseIsNothing) {
  StreamInfo odd = stream(1, 0, true);
  odd.waiting_since_ns = kNow + kSecond;
  EXPECT_TRUE(find_stuck({odd, stream(2, 0, true)}, kNow, nothing).empty());
  StreamInfo future = stream(1, 60, true);
  future.done_ns = kNow * 2;
  EXPECT_TRUE(find_stuck({future}, kNow, short_ones).empty());
}

}  // namespace
}  // namespace kansoku::capture::cuda
