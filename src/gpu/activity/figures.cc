// SPDX-License-Identifier: Apache-2.0
#include "gpu/activity/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "common/parse.h"
#include "gpu/activity/internal/names.h"

namespace kansoku::gpu::activity {
namespace {

constexpr std::string_view kModeKey = "kansoku.cuda.mode";
// Streams whose device times are on an axis of their own, as under the software device's model
// clock, say so at the end of their track's name.

constexpr std::array<FigureRow, kFigureCount> kRows{{
    // figure, name, outside, sampled, every, graphs, one clock, misses whole graphs, needs
    {Figure::kLaunches, "launches", true, false, true, true, false, false, "host calls"},
    {Figure::kKernelTimes, "kernel p50, p99, shape", false, true, true, true, false, true, ""},
    {Figure::kKernelTotals, "kernel count, total", false, false, true, true, false, true, ""},
    {Figure::kCopyBytes, "bytes of copies", true, false, true, true, false, true, "bytes"},
    {Figure::kCopyRates, "bytes/s of copies", false, true, true, true, false, true, "bytes"},
    {Figure::kBusBandwidth, "bus bandwidth", false, true, true, true, false, true,
     "counts, types and group sizes"},
    {Figure::kFlops, "FLOP/s of matrix products", false, false, true, true, false, true, "shapes"},
    {Figure::kIssueLatency, "issue latency", false, true, true, true, true, false,
     "correlation numbers"},
    {Figure::kShortKernels, "kernels shorter than their launch", false, true, true, true, false,
     true, "correlation numbers"},
    {Figure::kQueueLength, "queue length", false, false, true, true, true, false,
     "correlation numbers"},
    {Figure::kBusyIdle, "busy and idle time", false, false, true, true, false, false, ""},
    {Figure::kOverlap, "overlap of computation and communication", false, false, true, true, false,
     true, ""},
    {Figure::kVoid, "void share", false, false, true, true, true, false, "steps"},
    {Figure::kIdleCauses, "idle time by cause", false, false, true, true, true, false,
     "host calls"},
    {Figure::kLaunchBound, "launch-bound stretches", false, false, true, true, true, false,
     "correlation numbers"},
    {Figure::kExposedCopies, "copies that could overlap", false, false, true, true, false, true,
     ""},
    {Figure::kOperators, "device time of operators", false, false, true, true, false, false,
     "operators and correlation numbers"},
    {Figure::kMemory, "memory", true, true, true, true, false, false, "allocations or a counter"},
}};

constexpr bool rows_are_in_order() {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<std::size_t>(kRows[i].figure) != i) return false;
  }
  return true;
}
static_assert(rows_are_in_order());

Mode mode_of(std::string_view text, Recorded& recorded) {
  if (text == "outside") return Mode::kOutside;
  if (text == "every") return Mode::kEvery;
  if (text == "graphs") return Mode::kGraphs;
  constexpr std::string_view kSampled = "sampled";
  if (!text.starts_with(kSampled)) return Mode::kUnknown;
  text.remove_prefix(kSampled.size());
  recorded.one_in = 0;
  if (text.starts_with(":")) recorded.one_in = parse_int<std::uint64_t>(text.substr(1)).value_or(0);
  return Mode::kSampled;
}

bool mode_allows(const FigureRow& row, Mode mode) {
  switch (mode) {
    case Mode::kOutside:
      return row.outside;
    case Mode::kSampled:
      return row.sampled;
    case Mode::kEvery:
      return row.every;
    case Mode::kGraphs:
      return row.graphs;
    case Mode::kUnknown:  // figures that hold in every mode
      return row.outside && row.sampled && row.every && row.graphs;
    case Mode::kNone:
      return false;
  }
  return false;
}

bool has_device_clock(const trace::Trace& trace, const DeviceWork& work) {
  std::set<trace::TrackId> tracks;
  for (const Op& op : work.ops)
    tracks.insert(trace.slices.track[op.slice]);
  return std::any_of(tracks.begin(), tracks.end(), [&](trace::TrackId track) {
    if (track.raw >= trace.tracks.size()) return false;
    const trace::StringId name = trace.tracks[track.raw].name;
    return name.raw < trace.strings.size() && is_device_clock(trace.str(name));
  });
}

bool has_launches(const DeviceWork& work) {
  return std::any_of(work.calls.begin(), work.calls.end(),
                     [](const Call& call) { return call.what == CallClass::kLaunch; });
}

/// Graphs without any node inside, in their stream.
std::uint64_t whole_graphs(const DeviceWork& work) {
  std::uint64_t count = 0;
  for (const Stream& stream : work.streams) {
    for (std::size_t i = 0; i < stream.ops.size(); ++i) {
      const Op& graph = work.ops[stream.ops[i]];
      if (graph.what != OpClass::kGraph) continue;
      const Op* const next = i + 1 < stream.ops.size() ? &work.ops[stream.ops[i + 1]] : nullptr;
      const bool has_nodes = next != nullptr && next->what != OpClass::kGraph &&
                             next->time.begin_ns < graph.time.end_ns;
      count += has_nodes ? 0 : 1;
    }
  }
  return count;
}

}  // namespace

const std::array<FigureRow, kFigureCount>& figure_rows() {
  return kRows;
}

Recorded recorded_of(const trace::Trace& trace, const DeviceWork& work) {
  Recorded recorded;
  recorded.whole_graph_count = whole_graphs(work);
  recorded.is_one_clock = !has_device_clock(trace, work);
  const auto mode = trace.metadata.find(std::string(kModeKey));
  if (mode != trace.metadata.end()) {
    recorded.mode = mode_of(mode->second, recorded);
    recorded.is_untimed = work.ops.empty() && has_launches(work);
  } else if (!work.ops.empty()) {
    recorded.mode = Mode::kEvery;  // a profiler lists every operation
    recorded.is_imported = true;
  } else if (!work.calls.empty()) {
    recorded.mode = Mode::kOutside;
  }
  return recorded;
}

std::string mode_text(const Recorded& recorded) {
  switch (recorded.mode) {
    case Mode::kNone:
      return "none";
    case Mode::kOutside:
      return "outside";
    case Mode::kSampled:
      return recorded.one_in == 0 ? std::string("sampled")
                                  : fmt::format("sampled:{}", recorded.one_in);
    case Mode::kEvery:
      return "every";
    case Mode::kGraphs:
      return "graphs";
    case Mode::kUnknown:
      break;
  }
  return "unknown";
}

FigureState state_of(Figure figure, const Recorded& recorded) {
  const FigureRow& row = kRows[static_cast<std::size_t>(figure)];
  FigureState state{.name = row.name};
  if (!mode_allows(row, recorded.mode)) {
    state.why = recorded.mode == Mode::kNone
                    ? std::string("the recording holds no CUDA")
                    : fmt::format("not in a recording of mode {}", mode_text(recorded));
  } else if (!row.outside && recorded.is_untimed) {
    state.why = "no operation of the recording has a time";
  } else if (row.needs_one_clock && !recorded.is_one_clock) {
    state.why = "device times are on a clock of their own";
  } else if (row.misses_whole_graphs && recorded.whole_graph_count > 0) {
    state.is = FigureState::Is::kPartly;
    state.why = fmt::format("without what ran in {} graph launches that are recorded as a whole",
                            recorded.whole_graph_count);
  } else {
    state.is = FigureState::Is::kKnown;
  }
  return state;
}

bool is_allowed(Figure figure, const Recorded& recorded) {
  return state_of(figure, recorded).is != FigureState::Is::kUnknown;
}

}  // namespace kansoku::gpu::activity
