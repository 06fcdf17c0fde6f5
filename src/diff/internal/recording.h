// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/result.h"
#include "diff/diff.h"
#include "trace/model.h"

namespace kansoku::diff {

/// Unit of sizes that are what the operator around a kernel has to do.
inline constexpr std::string_view kUnitWork = "work";

/// Calls and time of one item in one step of one rank, at one shape.
struct Cell {
  std::uint32_t unit{0};   // rank index * steps + step
  std::uint32_t shape{0};  // index into Item::shapes
  double calls{0};
  double ms{0};
  double lane_ms{0};  // shared instants counted once: the lane's cells sum to its covered time
  double size{0};     // of all calls: blocks, bytes or elements
};

struct Shape {
  std::string text;       // "grid 50,1,1 block 256,1,1"; "" if the trace does not say
  double size{0};         // blocks, bytes, elements or work; 0: unknown
  std::string_view unit;  // of a literal
  std::string base;       // without the shapes of the operator
};

/// A kernel, operator, function, ... of one recording.
struct Item {
  Kind kind{Kind::kKernel};
  Lane lane{Lane::kDevice};
  std::string name;    // canonical
  std::string caller;  // of sampled functions
  std::string size_unit;
  std::vector<Shape> shapes;
  std::vector<Cell> cells;  // by unit, then shape
  double place{0};          // mean place among the device operations of its step, 0 .. 1
  double total_ms{0};
};

/// A trace reduced to steps.
struct Recording {
  std::string label;
  std::string found_by;  // "" if there are no steps
  std::vector<std::int32_t> ranks;
  std::size_t step_count{0};     // of each rank
  std::vector<double> step_ms;   // by unit
  std::vector<double> queue_ms;  // by unit: of it, the main thread waits for a processor
  bool has_queue{false};         // the scheduler was recorded
  std::vector<Item> items;       // by lane, kind and name
  std::array<bool, kLaneCount> has_lane{};
  bool device_clock_apart{false};  // device times lie before their launches: another clock
  std::vector<std::string> notes;
  [[nodiscard]] std::size_t unit_count() const { return ranks.size() * step_count; }
};

/// Reads steps, ranks and the work in them. Without steps `found_by` is empty and `notes` say why.
/// kCorrupt: columns of unequal length. Deterministic.
[[nodiscard]] Result<Recording> read_recording(const Input& input, const Options& options);

}  // namespace kansoku::diff
