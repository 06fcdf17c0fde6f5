// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/result.h"
#include "trace/model.h"

namespace kansoku::diagnose {

/// Correction of a host's times, and its greatest error.
struct HostClock {
  std::int64_t shift_ns{0};
  std::int64_t residual_ns{0};  // from the shift to the farther end of the range within the bounds
  std::size_t message_count{0};
  bool is_contradictory{false};  // no shift suits all messages: clocks that drift
};

/// Clocks of the hosts of a merged recording (trace/merge.h) against the first host's, from its
/// collectives: nobody leaves an all-reduce before the last rank has entered it, so each one bounds
/// the offset of two hosts from both sides. The last rank to enter decides how narrow the bounds
/// are; all leave at nearly the same time, so the median difference of leaving, within the bounds,
/// is taken. Hosts are tied to the first one directly or over others, the surest ties first;
/// nothing for a host that no collective ties, or that has no ranks of the job. Fails as reading
/// the job does.
/// Source: the bounds are those of Cristian (1989) for messages; the joining is ours.
[[nodiscard]] Result<std::vector<std::optional<HostClock>>> host_clocks(const trace::Trace& trace,
                                                                        std::size_t host_count);

}  // namespace kansoku::diagnose
