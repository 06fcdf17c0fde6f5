// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "diagnose/diagnose.h"
#include "diagnose/internal/causes/context.h"

namespace kansoku::diagnose {

/// How the ranks arrive at the whole collectives inside the counted steps.
struct Lateness {
  std::vector<double> mean_wait_ms;      // by rank index: for the last rank to arrive
  std::vector<std::size_t> last_counts;  // by rank index: how often this rank was the last
  std::size_t instance_count{0};
};
/// `only` (may be empty: all): by step, 1 for steps that count.
[[nodiscard]] Lateness measure_lateness(const Context& context, const std::vector<bool>& only);

/// A culprit lets others wait: its own wait must be the smallest, but for noise. `slower` ranks (a
/// flag a rank) are left out: a culprit waits for a slower one.
[[nodiscard]] bool waits_least(const Lateness& lateness, std::size_t rank, double excess_ms,
                               const std::vector<bool>& slower);
/// Adds how `rank` (an index) arrives to the evidence.
void add_lateness(const Context& context, const Lateness& lateness, std::size_t rank,
                  Finding& finding);

/// "rank 3", of the rank with that index; "the process" if it tells no rank.
[[nodiscard]] std::string subject(const Context& context, std::size_t rank);

/// "a step of 48.1 ms", "a window of 100 ms".
[[nodiscard]] std::string a_step(const Context& context);
/// "per step", "in each 100 ms".
[[nodiscard]] std::string per_step(const Context& context);

/// One phase or total of all ranks as a [rank][step] table.
[[nodiscard]] RankSeries work_series(const Context& context);
[[nodiscard]] RankSeries phase_series(const Context& context, Phase phase);
[[nodiscard]] double mean_of_others(const std::vector<double>& values, std::size_t rank);
/// Limits from which a rank's work is an excess over its peers'.
[[nodiscard]] stats::OutlierTest excess_options(const Context& context, const Options& options);
/// The finding that names a rank (by number); null if there is none. Borrowed from `findings`.
[[nodiscard]] Finding* finding_of(std::vector<Finding>& findings, std::int32_t rank);

/// Ranks that work for longer than their peers (slow_*, asymmetry and their explanations).
void find_slow_ranks(const Context& context, const Options& options, std::vector<Finding>& findings,
                     std::vector<std::string>& notes);

/// Ranks that do the same work, compared: slow_* and their explanations, the kernel's work. For
/// windows of time: ranks that spend them unlike their peers.
void compare_ranks(const Context& context, const Options& options, std::vector<Finding>& findings,
                   std::vector<std::string>& notes);

/// Adds the causes that need no equal ranks to what the comparison found (locks, processors,
/// quotas, common input, links), unsorted; `notes` gets observations without a name. For windows of
/// time: the causes that need no steps.
void find_causes(const Context& context, const Options& options, std::vector<Finding>& findings,
                 std::vector<std::string>& notes);

}  // namespace kansoku::diagnose
