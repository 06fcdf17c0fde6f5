// SPDX-License-Identifier: Apache-2.0
#include "diff/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "diff/internal/comparer.h"
#include "diff/internal/judge.h"
#include "diff/internal/recording.h"
#include "diff/thresholds.h"

namespace kansoku::diff {
namespace {

constexpr std::array<std::string_view, kKindCount> kKindNames{
    "kernel",   "copy",      "graph", "stream wait", "collective",
    "operator", "host call", "range", "function"};
constexpr std::array<std::string_view, kLaneCount> kLaneNames{"device", "main thread", "samples"};
constexpr std::array<std::string_view, 5> kMatchNames{"same", "renumbered", "template", "place",
                                                      "none"};

Side side_of(const Sides& sides, bool before) {
  Side out;
  for (std::size_t r = 0; r < sides.recordings.size(); ++r) {
    if (sides.is_before(r) != before) continue;
    const Recording& recording = sides.recordings[r];
    const KeptSteps& kept = sides.kept[r];
    out.labels.push_back(recording.label);
    out.steps += kept.count;
    out.ranks = recording.ranks.size();
    out.stalls += kept.stalls;
    out.stall_ms += kept.stall_ms;
    out.found_by = recording.found_by;
  }
  out.stall_ms /= static_cast<double>(std::max<std::size_t>(1, out.labels.size()));
  return out;
}

void compare_steps(const Sides& sides, Comparison& out) {
  out.step.before = sides.step_before_ms;
  out.step.after = sides.step_after_ms;
  out.queue.before = sides.queue_before_ms;
  out.queue.after = sides.queue_after_ms;
  out.has_queue = std::all_of(sides.recordings.begin(), sides.recordings.end(),
                              [](const Recording& recording) { return recording.has_queue; });
  const Difference difference = step_difference(sides);
  out.step.p = put(difference, 0, out.step);
  out.step.is_significant = out.step.p <= kFamilyErrorMax;
}

void add_notes(const Sides& sides, Comparison& out) {
  if (out.before.ranks != out.after.ranks) {
    out.notes.push_back(fmt::format("{} ranks before, {} after: means of all ranks are compared",
                                    out.before.ranks, out.after.ranks));
  }
  if (out.before.found_by != out.after.found_by) {
    out.notes.push_back(fmt::format("steps are found by {} before, by {} after",
                                    out.before.found_by, out.after.found_by));
  }
  const bool is_one_each =
      sides.before_count == 1 && sides.recordings.size() == 2 && !sides.is_exact;
  if (is_one_each) {
    out.notes.emplace_back(
        "one recording a side: how far equal runs differ is not seen here, it is taken from "
        "thresholds; give several with --base and --new");
  }
  if (out.device_clock_apart) {
    out.notes.emplace_back(
        "the device has a clock of its own: its milliseconds are no part of the step's");
  }
}

}  // namespace

std::string_view kind_name(Kind kind) {
  return kKindNames[static_cast<std::size_t>(kind)];
}

std::string_view lane_name(Lane lane) {
  return kLaneNames[static_cast<std::size_t>(lane)];
}

std::string_view match_name(Match match) {
  return kMatchNames[static_cast<std::size_t>(match)];
}

bool Comparison::has_findings() const {
  const bool is_shared = std::any_of(commons.begin(), commons.end(), [&](const Common& common) {
    return common.lane == Lane::kDevice ? device_clock_exact : has_queue;
  });
  // A step that changed with all of its device's work is the machine's.
  const bool is_step = step.is_significant && (commons.empty() || is_shared);
  return is_step || batch || is_shared ||
         std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.is_significant; });
}

Result<Comparison> compare(std::span<const Input> before, std::span<const Input> after,
                           const Options& options) {
  Comparison out;
  std::vector<Recording> recordings;
  for (const auto& side : {before, after}) {
    for (const Input& input : side) {
      TRY(auto recording, read_recording(input, options));
      out.notes.insert(out.notes.end(), recording.notes.begin(), recording.notes.end());
      if (recording.found_by.empty())
        out.missing.push_back(fmt::format("{}: no steps were found", input.label));
      recordings.push_back(std::move(recording));
    }
  }
  if (before.empty() || after.empty()) out.missing.emplace_back("a side without a recording");
  if (!out.missing.empty()) return out;
  const Sides sides = make_sides(std::move(recordings), before.size(), options);
  out.before = side_of(sides, true);
  out.after = side_of(sides, false);
  out.device_clock_apart = sides.is_clock_apart();
  out.device_clock_exact = sides.is_exact;
  compare_steps(sides, out);
  judge(sides, draft_rows(sides), out);
  add_notes(sides, out);
  return out;
}

}  // namespace kansoku::diff
