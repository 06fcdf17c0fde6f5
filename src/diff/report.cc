// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "common/text.h"
#include "diff/diff.h"
#include "diff/thresholds.h"

namespace kansoku::diff {
namespace {

constexpr std::size_t kRowsTextMax = 20, kRenamedMax = 8;
constexpr std::size_t kRowsJsonMax = 500;

double rounded(double value) {
  return std::round(value * 1e6) / 1e6;
}

Json optional_json(const std::optional<double>& value) {
  return value ? Json(rounded(*value)) : Json();
}

Json change_json(const Change& change) {
  return Json::object()
      .set("before", rounded(change.before))
      .set("after", rounded(change.after))
      .set("ratio", optional_json(change.ratio))
      .set("low", optional_json(change.low))
      .set("high", optional_json(change.high))
      .set("p", change.is_tested ? Json(change.p) : Json())
      .set("significant", change.is_significant);
}

Json side_json(const Side& side) {
  return Json::object()
      .set("files", Json::array_of(side.labels))
      .set("steps", static_cast<std::uint64_t>(side.steps))
      .set("ranks", static_cast<std::uint64_t>(side.ranks))
      .set("found_by", side.found_by)
      .set("stalls", static_cast<std::uint64_t>(side.stalls))
      .set("stall_ms", rounded(side.stall_ms));
}

Json lane_json(const LaneSum& sum, Lane lane) {
  return Json::object()
      .set("lane", lane_name(lane))
      .set("before_ms", rounded(sum.before_ms))
      .set("after_ms", rounded(sum.after_ms))
      .set("explained_ms", rounded(sum.explained_ms))
      .set("others_ms", rounded(sum.others_ms))
      .set("uncovered_ms", optional_json(sum.uncovered_ms));
}

Json batch_json(const std::optional<Batch>& batch) {
  if (!batch) return {};
  return Json::object()
      .set("factor", rounded(batch->factor))
      .set("unit", batch->unit)
      .set("scaled", static_cast<std::uint64_t>(batch->scaled))
      .set("otherwise", static_cast<std::uint64_t>(batch->otherwise))
      .set("unchanged", static_cast<std::uint64_t>(batch->unchanged))
      .set("bytes_factor", optional_json(batch->bytes_factor));
}

/// Six digits are plenty, and short times keep theirs.
std::string time_text(double ms) {
  const double size = std::abs(ms);
  if (size >= 1000) return fmt::format("{:.2f} s", ms / 1000);
  if (size >= 100) return fmt::format("{:.1f} ms", ms);
  if (size >= 0.1) return fmt::format("{:.2f} ms", ms);
  return fmt::format("{:.2f} us", ms * 1000);
}

std::string more_text(double ms) {
  return (ms >= 0 ? "+" : "") + time_text(ms);
}

std::string percent(double ratio) {
  return fmt::format("{:+.1f} %", 100 * (ratio - 1));
}

/// "+10.2 % (95 %: +9.1 % .. +11.3 %)".
std::string effect_text(const Change& change) {
  if (!change.ratio) return {};
  if (!change.low || *change.high - *change.low < 1e-4) return percent(*change.ratio);
  return fmt::format("{} (95 %: {} .. {})", percent(*change.ratio), percent(*change.low),
                     percent(*change.high));
}

std::string count_text(double count) {
  return std::abs(count - std::round(count)) < 0.005 ? fmt::format("{:.0f}", count)
                                                     : fmt::format("{:.2f}", count);
}

std::string share_text(const Comparison& comparison, const Row& row) {
  const bool apart = row.lane == Lane::kDevice && comparison.device_clock_apart;
  const LaneSum& lane = comparison.lanes[static_cast<std::size_t>(row.lane)];
  const double more = row.lane_after_ms - row.lane_before_ms;
  const double step = comparison.step.after - comparison.step.before;
  const double whole = apart ? lane.after_ms - lane.before_ms : step;
  const double base = apart ? lane.before_ms : comparison.step.before;
  if (std::abs(whole) < 0.002 * base) return {};
  return fmt::format(", {:.0f} % of the {} change", 100 * more / whole,
                     apart ? "device time's" : "step's");
}

std::string name_line(const Row& row) {
  std::string out = fmt::format("{} {}", kind_name(row.kind), printable(row.shown));
  if (!row.caller.empty()) out += fmt::format(", called by {}", printable(row.caller));
  if (row.rank) out += fmt::format(", on rank {} alone", *row.rank);
  return out + ": " + row.what;
}

std::vector<std::string> row_lines(const Comparison& comparison, const Row& row) {
  std::vector<std::string> out;
  const double more = row.lane_after_ms - row.lane_before_ms;
  std::string sum =
      fmt::format("{} -> {} a step", time_text(row.before_ms), time_text(row.after_ms));
  if (row.lane_before_ms + row.lane_after_ms > 0)
    sum += fmt::format(": {}{}", more_text(more), share_text(comparison, row));
  out.push_back(sum);
  if (row.match == Match::kNone) return out;
  if (row.lane == Lane::kSamples) {
    out.push_back(effect_text(row.call));
    return out;
  }
  if (row.calls.is_significant) {
    out.push_back(fmt::format("calls a step {} -> {}", count_text(row.calls.before),
                              count_text(row.calls.after)));
  }
  if (row.size.is_significant) {
    std::string text =
        fmt::format("{} a call {} -> {}, x{:.3g}", row.size_unit, count_text(row.size.before),
                    count_text(row.size.after), row.size.ratio.value_or(0));
    if (row.before_shape != row.after_shape)
      text += fmt::format("; {} -> {}", printable(row.before_shape), printable(row.after_shape));
    out.push_back(std::move(text));
  }
  if (row.call.ratio && row.is_per_work) {
    out.push_back(fmt::format("each call {} -> {}; per unit of work: {}",
                              time_text(row.call.before), time_text(row.call.after),
                              effect_text(row.call)));
  } else if (row.call.ratio && row.size.is_significant) {
    out.push_back(fmt::format("each call of a shape that both have: {}", effect_text(row.call)));
  } else if (row.call.ratio) {
    out.push_back(fmt::format("each call {} -> {}, {}", time_text(row.call.before),
                              time_text(row.call.after), effect_text(row.call)));
  }
  return out;
}

void add_summary(const Comparison& c, std::string& out) {
  const auto side = [](const Side& s, std::string_view title) {
    std::string text = fmt::format("{}", title);
    for (const std::string& label : s.labels)
      text += " " + printable(label);
    text += fmt::format(": {} steps", s.steps);
    if (s.ranks > 1) text += fmt::format(" of {} ranks", s.ranks);
    if (s.stalls > 0)
      text += fmt::format("; {} stalls left out ({} a step)", s.stalls, more_text(s.stall_ms));
    return text + "\n";
  };
  out += side(c.before, "before") + side(c.after, "after ");
  out += fmt::format("step   {} -> {}: {}{}; found by {}\n", time_text(c.step.before),
                     time_text(c.step.after), effect_text(c.step),
                     c.step.is_significant ? "" : ", not significant", printable(c.after.found_by));
  if (c.has_queue)
    out += fmt::format("       of it, waiting for a processor: {} -> {}; left out of all below\n",
                       time_text(c.queue.before), time_text(c.queue.after));
}

std::string batch_line(const Batch& batch) {
  std::string out = fmt::format("batch or shape changed: {} x{:.3g} in {} rows", batch.unit,
                                batch.factor, batch.scaled);
  if (batch.otherwise > 0) out += fmt::format(", by other factors in {}", batch.otherwise);
  if (batch.unchanged > 0) out += fmt::format(", as before in {}", batch.unchanged);
  if (batch.bytes_factor) out += fmt::format("; bytes of copies x{:.3g}", *batch.bytes_factor);
  return out;
}

/// New, removed and other names of kernels, told as one.
struct Build {
  std::size_t added{0}, removed{0}, renamed{0}, renumbered{0};
};

Build build_of(const Comparison& c) {
  Build out;
  for (const Row& row : c.rows) {
    if (row.kind != Kind::kKernel) continue;
    if (row.is_significant && row.what == "new") ++out.added;
    if (row.is_significant && row.what == "removed") ++out.removed;
    if (row.match == Match::kTemplate || row.match == Match::kPlace) ++out.renamed;
    if (row.match == Match::kNumbers) ++out.renumbered;
  }
  return out;
}

std::string common_line(const Common& common) {
  return fmt::format(
      "{}{}: all of {} rows take x{:.3f} (95 %: {:.3f} .. {:.3f}): the machine (its clock, its "
      "neighbours), or more work in every call; taken off below",
      lane_name(common.lane), common.rank ? fmt::format(" of rank {}", *common.rank) : "",
      common.rows, common.factor.after, common.factor.low.value_or(0),
      common.factor.high.value_or(0));
}

/// Lines on all rows together.
std::vector<std::string> summary_lines(const Comparison& c) {
  std::vector<std::string> out;
  if (c.batch) out.push_back(batch_line(*c.batch));
  const Build build = build_of(c);
  if (build.added + build.removed + build.renamed > 0) {
    out.push_back(fmt::format("kernels changed: {} new, {} removed, {} under another name",
                              build.added, build.removed, build.renamed));
  }
  std::size_t shown = 0;
  for (const Row& row : c.rows) {
    const bool is_other = row.match == Match::kTemplate || row.match == Match::kPlace;
    if (row.kind != Kind::kKernel || !is_other || ++shown > kRenamedMax) continue;
    out.push_back(fmt::format("{} is now {}{}", printable(row.before_shown), printable(row.shown),
                              row.match == Match::kPlace ? " (a guess, by its place)" : ""));
  }
  if (build.renumbered > 0)
    out.push_back(
        fmt::format("{} kernels only have other numbers in their names", build.renumbered));
  for (const Common& common : c.commons)
    out.push_back(common_line(common));
  return out;
}

std::string headline(const Comparison& c) {
  if (!c.missing.empty()) return "not enough data";
  if (!c.has_findings())
    return c.commons.empty() ? "nothing significant" : "nothing significant beside the machine";
  const Build build = build_of(c);
  if (c.batch)
    return fmt::format("the batch or shape changed: {} x{:.3g}", c.batch->unit, c.batch->factor);
  std::size_t rows = 0;
  const Row* first = nullptr;
  for (const Row& row : c.rows) {
    if (!row.is_significant || row.is_by_batch) continue;
    if (first == nullptr) first = &row;
    ++rows;
  }
  if (build.added + build.removed > 0) {
    return fmt::format("the kernels changed: {} new, {} removed, {} under another name",
                       build.added, build.removed, build.renamed);
  }
  if (first == nullptr) {
    return c.commons.empty() ? "the step changed, and nothing that was recorded tells why"
                             : "everything changed by one factor";
  }
  const std::string more = rows > 1 ? fmt::format(", and {} more", rows - 1) : std::string();
  return name_line(*first) + more;
}

void add_rows(const Comparison& c, std::string& out) {
  std::size_t shown = 0, significant = 0, by_batch = 0;
  double by_batch_ms = 0;
  for (const Row& row : c.rows) {
    if (row.is_by_batch) {
      ++by_batch;
      by_batch_ms += row.lane_after_ms - row.lane_before_ms;
      continue;
    }
    if (!row.is_significant || ++significant > kRowsTextMax) continue;
    out += fmt::format("{:3}. {}\n", ++shown, name_line(row));
    for (const std::string& line : row_lines(c, row))
      out += "     " + line + "\n";
  }
  if (significant > shown)
    out += fmt::format("     ... and {} more; --json has them\n", significant - shown);
  if (by_batch > 0)
    out += fmt::format("     {} rows scale with the batch: {} a step\n", by_batch,
                       more_text(by_batch_ms));
}

void add_lanes(const Comparison& c, std::string& out) {
  for (std::size_t i = 0; i < kLaneCount; ++i) {
    const LaneSum& sum = c.lanes[i];
    if (!sum.is_known) continue;
    const auto lane = static_cast<Lane>(i);
    const std::string rest = lane == Lane::kDevice ? "idle or unseen" : "outside of all calls";
    out += fmt::format("{:12} {} a step: {} explained above, {} in rows without a sure change",
                       lane_name(lane), more_text(sum.after_ms - sum.before_ms),
                       more_text(sum.explained_ms), more_text(sum.others_ms));
    if (sum.uncovered_ms && lane != Lane::kSamples)
      out += fmt::format("; {} {}", more_text(*sum.uncovered_ms), rest);
    out += "\n";
  }
}

Json row_json(const Comparison& comparison, const Row& row) {
  const auto lines = row.is_significant ? row_lines(comparison, row) : std::vector<std::string>{};
  return Json::object()
      .set("evidence", Json::array_of(lines))
      .set("kind", kind_name(row.kind))
      .set("lane", lane_name(row.lane))
      .set("name", row.shown)
      .set("before_name", row.before_name)
      .set("after_name", row.after_name)
      .set("match", match_name(row.match))
      .set("caller", row.caller)
      .set("what", row.what)
      .set("significant", row.is_significant)
      .set("by_batch", row.is_by_batch)
      .set("per_work", row.is_per_work)
      .set("rank", row.rank ? Json(*row.rank) : Json())
      .set("before_ms", rounded(row.before_ms))
      .set("after_ms", rounded(row.after_ms))
      .set("lane_before_ms", rounded(row.lane_before_ms))
      .set("lane_after_ms", rounded(row.lane_after_ms))
      .set("calls", change_json(row.calls))
      .set("call_ms", change_json(row.call))
      .set("size", change_json(row.size))
      .set("size_unit", row.size_unit)
      .set("before_shape", row.before_shape)
      .set("after_shape", row.after_shape);
}

}  // namespace

Json to_json(const Comparison& c) {
  Json lanes = Json::array(), commons = Json::array(), rows = Json::array();
  for (std::size_t i = 0; i < kLaneCount; ++i) {
    if (c.lanes[i].is_known) lanes.push(lane_json(c.lanes[i], static_cast<Lane>(i)));
  }
  for (const Common& common : c.commons) {
    commons.push(Json::object()
                     .set("lane", lane_name(common.lane))
                     .set("rank", common.rank ? Json(*common.rank) : Json())
                     .set("rows", static_cast<std::uint64_t>(common.rows))
                     .set("factor", change_json(common.factor)));
  }
  for (std::size_t i = 0; i < std::min(c.rows.size(), kRowsJsonMax); ++i)
    rows.push(row_json(c, c.rows[i]));
  return Json::object()
      .set("schema", "kansoku.diff/1")
      .set("verdict", !c.missing.empty()   ? "not_enough_data"
                      : c.has_findings()   ? "changed"
                      : !c.commons.empty() ? "machine"
                                           : "nothing_significant")
      .set("headline", headline(c))
      .set("summary", Json::array_of(summary_lines(c)))
      .set("before", side_json(c.before))
      .set("after", side_json(c.after))
      .set("step_ms", change_json(c.step))
      .set("queue_ms", c.has_queue ? change_json(c.queue) : Json())
      .set("device_clock", c.device_clock_apart ? "own" : "host")
      .set("device_clock_exact", c.device_clock_exact)
      .set("batch", batch_json(c.batch))
      .set("common", commons)
      .set("lanes", lanes)
      .set("rows", rows)
      .set("rows_left_out",
           static_cast<std::uint64_t>(c.rows.size() - std::min(c.rows.size(), kRowsJsonMax)))
      .set("comparisons", static_cast<std::uint64_t>(c.comparisons))
      .set("untested", static_cast<std::uint64_t>(c.untested))
      .set("family_error", kFamilyErrorMax)
      .set("notes", Json::array_of(c.notes))
      .set("missing", Json::array_of(c.missing));
}

std::string to_text(const Comparison& c) {
  std::string out;
  out = headline(c) + "\n";
  if (!c.missing.empty()) {
    for (const std::string& line : c.missing)
      out += "  " + printable(line) + "\n";
  } else {
    add_summary(c, out);
    for (const std::string& line : summary_lines(c))
      out += line + "\n";
    add_rows(c, out);
    if (c.has_findings()) add_lanes(c, out);
    out += fmt::format(
        "{} comparisons, at most {:.0f} % of equal runs show any; {} rows too short "
        "or too rare\n",
        c.comparisons, 100 * kFamilyErrorMax, c.untested);
  }
  for (const std::string& note : c.notes)
    out += "note: " + printable(note) + "\n";
  if (!out.empty()) out.pop_back();
  return out;
}

}  // namespace kansoku::diff
