// SPDX-License-Identifier: Apache-2.0
#include "detect/internal/growth_watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "detect/internal/evidence.h"

namespace kansoku::detect {
namespace {

constexpr double kFasterThanNormal = 1.5;

}  // namespace

void GrowthWatch::end(std::int64_t wall_ns, std::size_t column, MemberKey key,
                      std::vector<trace::IncidentRecord>& out) {
  const auto known = growing_.find(column);
  if (known == growing_.end() || known->second.members.erase(key) == 0) return;
  if (!known->second.members.empty()) return;  // others still grow
  known->second.record.end_ns = std::max(wall_ns, known->second.record.begin_ns);
  out.push_back(known->second.record);
  growing_.erase(known);
}

void GrowthWatch::tell(std::size_t column, const Window& window, const Growth& found,
                       std::vector<trace::IncidentRecord>& out) {
  Growing& growing = growing_[column];
  growing.members.insert(key_of(window));
  growing.bytes_per_second = std::max(growing.bytes_per_second, found.bytes_per_second);
  trace::IncidentRecord& record = growing.record;
  const bool is_new = record.id.empty();
  if (is_new) {
    record.host = options_.host;
    record.job = options_.job;
    record.begin_ns = found.begin_ns;
    record.kind = "memory_growth";
    record.id = trace::incident_id(options_.host, options_.job, record.begin_ns,
                                   record.kind + "." + columns_[column].name);
    record.tests = {"growth"};
  }
  const bool is_known =
      std::find(record.pids.begin(), record.pids.end(), window.pid) != record.pids.end();
  if (!is_known) {
    record.pids.push_back(window.pid);
    const bool has_rank =
        std::find(record.ranks.begin(), record.ranks.end(), window.rank) != record.ranks.end();
    if (window.rank >= 0 && !has_rank) record.ranks.push_back(window.rank);
  }
  ++record.window_count;
  record.evidence = {{columns_[column].name, columns_[column].unit,
                      std::string(layer_name(columns_[column].layer)), found.before, found.now, 1}};
  record.summary = fmt::format(
      "{}: {} {} -> {}, growing by {} a minute",
      record.ranks.empty() ? fmt::format("pid {}", fmt::join(record.pids, ", "))
                           : fmt::format("rank {}", fmt::join(record.ranks, ", ")),
      columns_[column].name == "resident_bytes" ? "resident memory" : "memory on the device",
      format_value(found.before, "bytes"), format_value(found.now, "bytes"),
      format_value(found.bytes_per_second * 60, "bytes"));
  record.suggestion = suggestion_of(record);
  if (is_new || !is_known) out.push_back(record);
}

void GrowthWatch::look(std::int64_t wall_ns, const Window& window,
                       std::vector<trace::IncidentRecord>& out) {
  const MemberKey key = key_of(window);
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c].use != Use::kGrowth) continue;
    GrowthTest& test = tests_[key].try_emplace(c, GrowthOptions{}).first->second;
    const std::uint64_t judged = test.judged();
    const auto found = test.add(wall_ns, window.values[c]);
    if (test.judged() == judged) continue;
    const auto normal = normal_.find(c);
    const bool is_normal = found && normal != normal_.end() &&
                           found->bytes_per_second <= kFasterThanNormal * normal->second;
    if (found && !is_normal) {
      tell(c, window, *found, out);
    } else {
      end(wall_ns, c, key, out);
    }
  }
}

void GrowthWatch::forget(std::int64_t wall_ns, MemberKey key,
                         std::vector<trace::IncidentRecord>& out) {
  for (std::size_t c = 0; c < columns_.size(); ++c)
    end(wall_ns, c, key, out);
  tests_.erase(key);
}

void GrowthWatch::finish(std::int64_t wall_ns, std::vector<trace::IncidentRecord>& out) {
  for (auto& [column, growing] : growing_) {
    growing.record.end_ns = std::max(wall_ns, growing.record.begin_ns);
    out.push_back(growing.record);
  }
  growing_.clear();
}

bool GrowthWatch::label(std::string_view incident_id, std::string_view label) {
  bool is_known = false;
  for (auto& [column, growing] : growing_) {
    if (growing.record.id != incident_id) continue;
    growing.record.label = label;
    is_known = true;
  }
  return is_known;
}

void GrowthWatch::take_operators_word(std::int64_t wall_ns,
                                      std::vector<trace::IncidentRecord>& out) {
  for (auto one = growing_.begin(); one != growing_.end();) {
    auto& [column, growing] = *one;
    if (growing.record.label != "false") {
      ++one;
      continue;
    }
    double& normal = normal_[column];
    normal = std::max(normal, growing.bytes_per_second);
    growing.record.end_ns = std::max(wall_ns, growing.record.begin_ns);
    out.push_back(growing.record);
    one = growing_.erase(one);
  }
}

std::vector<trace::IncidentRecord> GrowthWatch::open() const {
  std::vector<trace::IncidentRecord> out;
  for (const auto& [column, growing] : growing_)
    out.push_back(growing.record);
  return out;
}

}  // namespace kansoku::detect
