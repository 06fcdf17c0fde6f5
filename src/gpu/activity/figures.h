// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/activity/device_work.h"
#include "trace/model.h"

namespace kansoku::gpu::activity {

/// How much of the device work a recording holds (metadata `kansoku.cuda.mode`).
enum class Mode : std::uint8_t {
  kNone,     // no CUDA at all
  kOutside,  // host calls only
  kSampled,  // one launch in N was timed
  kEvery,    // every operation; a graph as a whole
  kGraphs,   // also the nodes of graphs
  kUnknown,  // a mode that this program does not know
};

struct Recorded {
  Mode mode{Mode::kNone};
  std::uint64_t one_in{1};             // of kSampled; 0: it varied
  bool is_imported{false};             // a profiler's file: it has every operation
  bool is_one_clock{true};             // device times lie on the host's clock
  bool is_untimed{false};              // launches, and no operation with a time: all were lost
  std::uint64_t whole_graph_count{0};  // launches of graphs whose nodes are not there
};
[[nodiscard]] Recorded recorded_of(const trace::Trace& trace, const DeviceWork& work);
[[nodiscard]] std::string mode_text(const Recorded& recorded);

enum class Figure : std::uint8_t {
  kLaunches,
  kKernelTimes,
  kKernelTotals,
  kCopyBytes,
  kCopyRates,
  kBusBandwidth,
  kFlops,
  kIssueLatency,
  kShortKernels,
  kQueueLength,
  kBusyIdle,
  kOverlap,
  kVoid,
  kIdleCauses,
  kLaunchBound,
  kExposedCopies,
  kOperators,
  kMemory,
};
inline constexpr std::size_t kFigureCount = 18;

/// Which figure exists in which mode; docs/cuda-report.md shows it.
struct FigureRow {
  Figure figure;
  std::string_view name;
  bool outside, sampled, every, graphs;
  bool needs_one_clock;      // compares host times with device times
  bool misses_whole_graphs;  // without the kernels inside a graph shown as a whole
  std::string_view needs;    // besides the mode
};
[[nodiscard]] const std::array<FigureRow, kFigureCount>& figure_rows();

struct FigureState {
  std::string_view name;
  enum class Is : std::uint8_t { kKnown, kPartly, kUnknown } is{Is::kUnknown};
  std::string why{};  // of kPartly and kUnknown
};

/// State of a figure by the mode of a recording; the row's `needs` is looked at elsewhere.
[[nodiscard]] FigureState state_of(Figure figure, const Recorded& recorded);
[[nodiscard]] bool is_allowed(Figure figure, const Recorded& recorded);

}  // namespace kansoku::gpu::activity
