// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "diagnose/internal/standstill/hang.h"

namespace kansoku::diagnose {

/// Answer of the stacks of a job of which nothing was seen to begin or end.
struct Standstill {
  std::optional<Hang> hang;
  std::string note;      // that others wait, where nobody can be named; empty: nobody waits
  bool all_move{false};  // the stacks of all ranks changed
  std::vector<RankPlace> places;  // none if nobody waits
};

/// Adds to a finding on a rank since when it stands, if it has slept outside of communication all
/// the time: the kernel's wait, a lock that this tells, and the place of the worker that it waits
/// for.
void tell_sleep(const trace::Trace& trace, const JobData& job, const RankData& rank,
                std::int64_t since_ns, Finding& finding);

/// Compares where the training threads of the ranks were, for at least kStandstillMinMs and in
/// nearly all samples: asleep in communication, asleep elsewhere, stopped, or at work. Those that
/// sleep elsewhere or are stopped hold up those that sleep in communication. One at work may come
/// yet, and so may one that sleeps in a call that somebody outside ends: a note tells of them, and
/// of ranks without stacks. Since when, the recording does not know. Empty if nobody waits all the
/// time.
[[nodiscard]] Standstill find_standstill(const trace::Trace& trace, const JobData& job);

}  // namespace kansoku::diagnose
