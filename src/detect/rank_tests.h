// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "detect/table.h"

namespace kansoku::detect {

/// Steps [begin, end) of a cube.
struct Range {
  std::size_t begin{0}, end{0};
  [[nodiscard]] std::size_t size() const { return end - begin; }
};
/// Windows of `length` steps inside of `range`, each `stride` after the one before.
[[nodiscard]] std::vector<Range> windows_of(Range range, std::size_t length, std::size_t stride);

/// How one rank differs from its peers in one window and column, in multiples of the column's
/// scale. With d = value - median over the other ranks, step by step:
struct PeerEntry {
  double persistent{0};  // the quartile of d nearer to zero if both have one sign, else 0: the
                         // level held in three of four steps at least
  double tail{0};        // the 90th percentile of d: rare long steps
};
/// One window's differences, ranks x columns; entries of missing values are 0.
struct PeerWindow {
  std::vector<PeerEntry> entries;
  std::size_t columns{0};
  [[nodiscard]] const PeerEntry& at(std::size_t rank, std::size_t column) const {
    return entries[rank * columns + column];
  }
};

/// Normal differences between ranks, learnt from healthy windows; part of a job's model. By column.
struct PeerModel {
  std::vector<double> scales;      // in the column's unit
  std::vector<double> persistent;  // cuts, in scales
  std::vector<double> tail;
  std::uint32_t windows{0};  // that the cuts were learnt of
  // By how much each rank always differs from its peers (it writes the checkpoints, its device is
  // nearer), for the ranks that the cuts were learnt of; may be empty.
  std::vector<std::int32_t> ranks;
  std::vector<double> offsets;  // ranks x columns, in units

  [[nodiscard]] bool empty() const { return scales.empty(); }
};

/// Scales: 1.4826 MAD of the differences between ranks in `healthy`, at least the column's floor,
/// and 1 % of the largest median among times (of its own median for other units): below that a
/// difference does not matter.
[[nodiscard]] std::vector<double> peer_scales(const Cube& cube, std::span<const Column> columns,
                                              Range healthy);
/// `offsets`: ranks x columns, in units, taken off the differences (a rank's own past:
/// difference-in-differences); empty: none.
[[nodiscard]] PeerWindow peer_window(const Cube& cube, Range window, std::span<const double> scales,
                                     std::span<const double> offsets = {});
/// Median difference of each rank from its peers in `range`, ranks x columns, in units.
[[nodiscard]] std::vector<double> peer_offsets(const Cube& cube, Range range);

/// Cuts such that a healthy window exceeds one with probability `alpha` by the tail of the
/// windows' largest entries; never below 4 scales; 6 or 1.5 times the largest entry with fewer than
/// eight windows.
[[nodiscard]] PeerModel learn_peers(const Cube& cube, std::span<const double> scales,
                                    std::span<const Range> windows, double alpha,
                                    std::span<const double> offsets = {});
/// Both models' cuts, the higher of each; scales and offsets of `model`.
[[nodiscard]] PeerModel stricter(const PeerModel& model, const PeerModel& other);

/// The ranks that stand out of one window.
struct PeerVerdict {
  std::vector<std::size_t> ranks;  // indices; empty: none, or too many to call them single
  std::size_t column{0};           // in which the first of them stands out most
  double excess{0};                // its entry over the cut; below 1: nothing
  bool is_tail{false};
};
/// Ranks over a cut whose entry is at least half of the largest in that column. With fewer than
/// three ranks, or if more than a quarter of them (at least one) stand out, no rank is named.
[[nodiscard]] PeerVerdict judge_peers(const PeerWindow& window, std::size_t rank_count,
                                      const PeerModel& model, bool with_tail);

/// Long steps of single ranks, too few for a window to show them.
struct SeldomRank {
  std::size_t rank{0};    // index
  std::size_t column{0};  // in which they are longest
  std::vector<std::size_t> steps;
};
/// By column in seconds, the ranks with steps in `range` that are longer than their peers by
/// kLongStepMin of `pace` (the median step, in seconds), in more steps than chance puts on one.
/// None with fewer than three ranks. In the order of ranks.
[[nodiscard]] std::vector<SeldomRank> find_seldom(const Cube& cube, std::span<const Column> columns,
                                                  Range range, double pace);

/// Result of a test that `range` can serve as a rank's own past: the medians of its parts over all
/// ranks.
struct Stationarity {
  bool is_stationary{true};
  std::string reason;  // why not
};
/// `column`: the step time, or its substitute. Not stationary if the
/// medians of its quarters, or the 20th and 80th percentile of its steps, differ by more than a
/// quarter of the whole median.
[[nodiscard]] Stationarity check_stationarity(const Cube& cube, Range range, std::size_t column);

/// Median of a column over the ranks and steps of a window; NaN without values.
[[nodiscard]] double window_median(const Cube& cube, Range window, std::size_t column);

}  // namespace kansoku::detect
