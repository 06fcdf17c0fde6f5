// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/profile/late_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "common/rng.h"

namespace kansoku::diagnose {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kLateMs = 1'000'000;
constexpr std::int64_t kPeriodNs = 20 * kLateMs;

struct Case {
  std::size_t rank_count{4}, count{40}, step_count{10};
  std::function<std::int64_t(std::size_t rank, std::size_t n)> late_ns;
  std::function<std::int64_t(std::size_t rank)> clock_ns{[](std::size_t) { return 0; }};
};

/// Collectives every 20 ms that all ranks leave together 1 ms after the last one arrives.
std::vector<ProfiledRank> ranks_of(const Case& c) {
  std::vector<ProfiledRank> ranks(c.rank_count);
  for (std::size_t n = 0; n < c.count; ++n) {
    const std::int64_t base = static_cast<std::int64_t>(n) * kPeriodNs;
    std::int64_t last = 0;
    for (std::size_t r = 0; r < c.rank_count; ++r)
      last = std::max(last, c.late_ns(r, n));
    for (std::size_t r = 0; r < c.rank_count; ++r) {
      const std::int64_t shift = base + c.clock_ns(r);
      ranks[r].collectives.push_back({shift + c.late_ns(r, n), shift + last + kLateMs, 3});
    }
  }
  for (std::size_t r = 0; r < c.rank_count; ++r) {
    ranks[r].rank = static_cast<std::int32_t>(10 + r);
    ranks[r].begin_ns = c.clock_ns(r);
    ranks[r].end_ns = c.clock_ns(r) + static_cast<std::int64_t>(c.count) * kPeriodNs;
    ranks[r].steps.resize(c.step_count);
  }
  return ranks;
}

// Rank 2 (number 12) comes 5 ms late to each of 40 collectives in 10 steps: the others wait
// 40 * 5 / 10 = 20 ms a step for it, which is 20 of 80 ms; it waits for nobody.
TEST(LateRanks, TheLateOneIsNamedWhateverTheClocksSay) {
  for (const bool clocks_differ : {false, true}) {
    Case c;
    c.late_ns = [](std::size_t rank, std::size_t) { return rank == 2 ? 5 * kLateMs : 0; };
    if (clocks_differ) {
      c.clock_ns = [](std::size_t rank) {
        return static_cast<std::int64_t>(rank * rank) * 1'234'567'891 - 3'000'000'000;
      };
    }
    const LateRanks late = measure_late_ranks(ranks_of(c), 1);
    EXPECT_EQ(late.matched_count, 40U);
    EXPECT_THAT(late.ranks, ElementsAre(12));
    EXPECT_EQ(late.support, 1.0);
    EXPECT_EQ(late.last_share, 1.0);
    EXPECT_DOUBLE_EQ(late.own_wait_ms, 0);
    EXPECT_NEAR(late.peers_wait_ms, 20, 1e-5);
    EXPECT_NEAR(late.cost_ms, 20, 1e-5);
    EXPECT_NEAR(late.cost_share, 0.25, 1e-6);
    EXPECT_NEAR(late.residual_ms, 0, 1e-9);
    EXPECT_THAT(late.notes, IsEmpty());
  }
}

// Two ranks with equally more work are last by 0.1 of 5 ms, one in a third of the collectives.
TEST(LateRanks, EquallyLateOnesAreNamedTogether) {
  Case c;
  c.rank_count = 6;
  c.late_ns = [](std::size_t rank, std::size_t n) {
    return rank < 4 ? 0 : 5 * kLateMs + ((n % 3 == 0) == (rank == 4) ? kLateMs / 10 : 0);
  };
  const LateRanks late = measure_late_ranks(ranks_of(c), 1);
  EXPECT_THAT(late.ranks, ElementsAre(14, 15));
  EXPECT_EQ(late.support, 1.0);
  EXPECT_EQ(late.last_share, 1.0);
  EXPECT_NEAR(late.own_wait_ms, 0.2, 1e-5);
  EXPECT_NEAR(late.peers_wait_ms, 20.4, 1e-5);
}

// Every rank is the late one now and then: whoever leads, the steps drawn anew name others.
TEST(LateRanks, RandomLatenessHasLowSupport) {
  std::size_t confident = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Case c;
    c.late_ns = [&](std::size_t rank, std::size_t n) {
      return Rng(seed, n).below(4) == rank ? 5 * kLateMs : 0;
    };
    confident += measure_late_ranks(ranks_of(c), 1).support >= 0.95 ? 1 : 0;
  }
  EXPECT_LE(confident, 2U);  // of 20, at a confidence of 0.95
}

TEST(LateRanks, FewCollectivesTellNothing) {
  for (const std::size_t count : {0U, 7U, 8U}) {
    Case c;
    c.count = count;
    c.late_ns = [](std::size_t rank, std::size_t) { return rank == 2 ? 5 * kLateMs : 0; };
    const LateRanks late = measure_late_ranks(ranks_of(c), 1);
    EXPECT_EQ(late.matched_count, count < 8 ? 0U : 8U);
    EXPECT_EQ(late.notes.empty(), count == 8);
  }
}

// A name that one rank has less often cannot be matched; the others still are.
TEST(LateRanks, UnequalNumbersAreLeftOut) {
  Case c;
  c.late_ns = [](std::size_t rank, std::size_t) { return rank == 2 ? 5 * kLateMs : 0; };
  std::vector<ProfiledRank> ranks = ranks_of(c);
  for (ProfiledRank& rank : ranks)
    rank.collectives.push_back({rank.end_ns, rank.end_ns + 1, 4});
  ranks[1].collectives.pop_back();
  const LateRanks late = measure_late_ranks(ranks, 1);
  EXPECT_EQ(late.matched_count, 40U);
  EXPECT_THAT(late.ranks, ElementsAre(12));
  EXPECT_THAT(late.notes,
              Contains(HasSubstr("1 collectives do not count: the ranks have different numbers")));
}

// Ends that scatter by some 0.1 ms are told as such: 1.4826 MAD of their differences.
TEST(LateRanks, TheResidualTellsHowWellTheClocksAlign) {
  Case c;
  c.late_ns = [](std::size_t rank, std::size_t) { return rank == 2 ? 5 * kLateMs : 0; };
  std::vector<ProfiledRank> ranks = ranks_of(c);
  for (std::size_t n = 0; n < 40; ++n)
    ranks[1].collectives[n].end_ns += n % 2 == 0 ? 100'000 : -100'000;
  EXPECT_NEAR(measure_late_ranks(ranks, 1).residual_ms, 1.4826 * 0.1, 1e-9);
}

// Peers compute on while they wait, but for the last millisecond.
TEST(LateRanks, ADelayThatComputationHidesCostsNothing) {
  Case c;
  c.late_ns = [](std::size_t rank, std::size_t) { return rank == 2 ? 5 * kLateMs : 0; };
  auto ranks = ranks_of(c);
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (const ProfiledCollective& one : std::vector(ranks[r].collectives))
      if (r != 2)
        ranks[r].executions.push_back({.begin_ns = one.begin_ns - kLateMs,
                                       .end_ns = one.begin_ns + 4 * kLateMs,
                                       .activity = Activity::kGpuCompute});
  const LateRanks late = measure_late_ranks(ranks, 1);
  EXPECT_THAT(late.ranks, ElementsAre(12));
  EXPECT_NEAR(late.cost_ms, 4, 1e-5);
  // One that computes through all of its waits was late nowhere.
  ranks[0].executions = {
      {.begin_ns = 0, .end_ns = ranks[0].end_ns, .activity = Activity::kGpuCompute}};
  EXPECT_THAT(measure_late_ranks(ranks, 1).ranks, ElementsAre(12));
}

}  // namespace
}  // namespace kansoku::diagnose
