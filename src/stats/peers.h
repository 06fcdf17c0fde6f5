// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stats/thresholds.h"

namespace kansoku::stats {

/// Location and spread of the other members of a group, as one member sees them.
struct Peers {
  double centre{0};  // median of the others
  double spread{0};  // median absolute deviation of the others from it, not scaled
};

/// The centres alone, as leave_one_out has them.
[[nodiscard]] std::vector<double> centres_of_others(std::span<const double> values);

/// One entry for each of `values`: centre and spread of all the others, so that a member does not
/// hide itself. Zeros for fewer than two values. `values`: finite, in any order. O(n log n): one
/// sort serves all. Pure; any thread.
[[nodiscard]] std::vector<Peers> leave_one_out(std::span<const double> values);

/// The probability that one member of `member_count` equal ones has `own` or more of `total` events
/// that fall on members by chance: the upper tail of a binomial distribution. 1 for no member.
/// `own` <= `total`; `total` at most 2^20. Pure; any thread.
[[nodiscard]] double chance_of_share(std::uint64_t own, std::uint64_t total,
                                     std::uint64_t member_count);

/// One quantity of equal members, step by step: [member][step], of one unit, all of one length.
using MemberSeries = std::vector<std::vector<double>>;

struct OutlierTest {
  double least{0};  // mean excess, in the unit of the series
  double confidence_min{kConfidenceMin};
  double clip_share{0};    // tails of each member's excess that are clipped before averaging
  bool asks_blocks{true};  // for chance: in how many blocks of the steps the member is greatest
  std::uint32_t resample_count{2000};
  std::uint64_t seed{1};
};

struct Outlier {
  std::size_t member{0};
  double excess{0};  // mean a step over the median of the others
  double confidence{0};
};

/// excess[m][s] = values[m][s] - median over the other members of values[.][s]; zeros for one
/// member. Pure; any thread.
[[nodiscard]] MemberSeries excess_over_peers(const MemberSeries& values);

/// The same of one member, without the others'. `member` < values.size().
[[nodiscard]] std::vector<double> excess_of(const MemberSeries& values, std::size_t member);

/// Members whose mean excess passes the least one and is above that of all ordinary members in at
/// least `confidence_min` of the block-bootstrap resamples over steps, and in more blocks of the
/// steps than kBlameChanceMax of all healthy groups show if each block draws its greatest member
/// anew. At most half of the members, one of two or three. `known` ones are already explained: not
/// reported and not compared with. By excess, greatest first. Deterministic for a seed; O(members x
/// steps^(2/3) x resamples). Pure; any thread.
[[nodiscard]] std::vector<Outlier> find_outliers(const MemberSeries& excess,
                                                 const std::vector<bool>& known,
                                                 const OutlierTest& test);

/// By member of `suspects`, the part of healthy groups that show one member above all who are not
/// suspects in as many blocks of the steps if each block draws its greatest member anew: a suspect
/// is blamed up to kBlameChanceMax. 1 with fewer than kBlocksMin steps. `values` as in
/// find_outliers; `suspects` are indices. Pure; any thread.
[[nodiscard]] std::vector<double> chances_of_blocks(const MemberSeries& values,
                                                    const std::vector<std::size_t>& suspects);

/// A member with long steps now and then: too seldom for a mean to show them.
struct SeldomLong {
  std::size_t member{0};
  std::vector<bool> steps;  // the long ones
  double long_excess{0};    // mean over the long steps
  double excess{0};         // the same, spread over all steps
  double chance{0};         // that as many fall on one member of equal ones
};
/// Members with more steps above `least` than kBlameChanceMax of all healthy groups show. Steps in
/// a row count as one: whatever makes one long for seconds is no chance a step. None in fewer than
/// kBlocksMin steps, `known` ones not. In the order of members. Pure; any thread.
[[nodiscard]] std::vector<SeldomLong> find_seldom_long(const MemberSeries& excess, double least,
                                                       const std::vector<bool>& known);

/// The steps above `least`.
[[nodiscard]] std::vector<bool> steps_above(const std::vector<double>& excess, double least);

/// The mean of those values whose step is chosen; 0 of none.
[[nodiscard]] double mean_over(const std::vector<double>& values, const std::vector<bool>& steps);

/// The values less `more`, of the same shape; 0 at least.
[[nodiscard]] MemberSeries without(MemberSeries values, const MemberSeries& more);

/// Mean over the steps of the greatest value of all members; at least one member.
[[nodiscard]] double mean_of_greatest(const MemberSeries& values);

/// The share of the positive excess that the greatest steps (kTopStepShare) carry; 0 if there is
/// none.
[[nodiscard]] double concentration(const std::vector<double>& excess);

}  // namespace kansoku::stats
