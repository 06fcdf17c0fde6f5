// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "diagnose/internal/steps/job.h"

namespace kansoku::diagnose {

/// Joins each receive with its wait, then the sends of each rank with the receives of the other: by
/// group, tag and order, as the transport does. Fills `messages` of the job, `other` of calls and
/// waits, `sent_ns` of waits, and counts those whose other side was not seen. A peer that its group
/// does not tell is not guessed.
void match_messages(JobData& job);

/// One end of a channel from one rank to another, in order. A receive has `awaited_ns` and
/// `done_ns`.
struct ChannelEnd {
  std::int64_t begin_ns{0}, done_ns{0};
};
/// How many of the first `sends` (negative: `receives`) have no other side: the recording begins,
/// or events were lost, between them. No message is received before it is sent; of the shifts that
/// agree with that, none if both sides have as many, else the one with the least time between.
/// Nothing: no shift up to 256 agrees. Exposed for tests.
[[nodiscard]] std::optional<int> channel_shift(const std::vector<ChannelEnd>& sends,
                                               const std::vector<ChannelEnd>& receives);

}  // namespace kansoku::diagnose
