// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "diagnose/internal/profile/profile_job.h"

namespace kansoku::diagnose {

/// Ranks that the others wait for in their collectives.
struct LateRanks {
  std::size_t matched_count{0};     // collectives that all ranks took part in
  std::vector<std::int32_t> ranks;  // the one that waits least, and those that wait hardly more
  double support{0};     // share of bootstrap samples of the collectives in which they wait least
  double last_share{0};  // share of collectives in which one of them arrived last
  double own_wait_ms{0}, peers_wait_ms{0};  // a step: mean of these, mean of the others
  double cost_ms{0};                        // a step: the others' waiting above their own
  double cost_share{0};                     // of the step
  double residual_ms{0};                    // of the alignment of clocks: 1.4826 MAD
  std::vector<std::string> notes;
};

/// Matches the n-th collective of a name on every rank, aligns the ranks' clocks by the ends of
/// collectives (which all ranks see at nearly the same time), and measures how long each rank waits
/// for the last one. Deterministic for `seed`.
[[nodiscard]] LateRanks measure_late_ranks(std::span<const ProfiledRank> ranks, std::uint64_t seed);

}  // namespace kansoku::diagnose
