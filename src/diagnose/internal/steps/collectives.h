// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "diagnose/internal/steps/job.h"

namespace kansoku::diagnose {

/// One rank's part in a collective.
struct Arrival {
  std::int64_t arrive_ns{0};  // issue, or begin of execution where no issue was seen
  std::int64_t end_ns{0};     // end of execution, or of the issue where no execution was seen
  std::uint64_t bytes{0};     // 0: not known
  bool is_present{false};
  bool is_executed{false};  // its execution was seen, not only its issue
  bool is_open{false};      // had not ended when the recording did
};

/// One collective over all ranks.
struct Instance {
  std::uint32_t op{0};
  std::uint64_t bytes{0};
  std::vector<Arrival> ranks;   // by index into JobData::ranks
  std::vector<bool> is_member;  // by rank: of its process group; all, where that is not known
  bool is_complete{false};      // every member is present and none is open
  bool is_of_all{false};        // every rank is a member
  std::size_t unseen_count{0};  // members of its group that were never seen in one of its calls
  std::int64_t first_ns{0};     // earliest arrival
  std::int64_t last_ns{0};      // latest arrival
};

struct Collectives {
  std::vector<Instance> instances;  // by first arrival
  bool by_order{false};             // aligned by position because sequence numbers are missing
};

/// Joins issue and execution slices of each rank, then the ranks' parts of each collective: by
/// (process group, operation, sequence number), where a group is known by its name or else by its
/// number in the order of first use, or by position counted from the end where sequence
/// numbers are missing. Partial instances are kept, not complete. Adds notes to `job`.
[[nodiscard]] Collectives match_collectives(JobData& job);

/// How far `other` is shifted against `base` (elements of `other` to skip at its end, negative:
/// elements of `base`) so that their tails agree best; |shift| <= shift_max. Exposed for tests.
struct TimedWord {
  std::uint64_t word{0};
  std::int64_t end_ns{0};
};
[[nodiscard]] int best_shift(const std::vector<TimedWord>& base,
                             const std::vector<TimedWord>& other, int shift_max);

}  // namespace kansoku::diagnose
