// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kansoku::stats {

/// Location and spread of the other members of a group, as one member sees them.
struct Peers {
  double centre{0};  // median of the others
  double spread{0};  // median absolute deviation of the others from it, not scaled
};

/// One entry for each of `values`: centre and spread of all the others, so that a member does not
/// hide itself. Zeros for fewer than two values. `values`: finite, in any order. O(n log n): one
/// sort serves all. Pure; any thread.
[[nodiscard]] std::vector<Peers> leave_one_out(std::span<const double> values);

/// The probability that one member of `member_count` equal ones has `own` or more of `total` events
/// that fall on members by chance: the upper tail of a binomial distribution. 1 for no member.
/// `own` <= `total`; `total` at most 2^20. Pure; any thread.
[[nodiscard]] double chance_of_share(std::uint64_t own, std::uint64_t total,
                                     std::uint64_t member_count);

}  // namespace kansoku::stats
