// SPDX-License-Identifier: Apache-2.0
#include "detect/internal/growth_watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "detect/internal/evidence.h"
#include "detect/internal/words.h"
#include "detect/thresholds.h"

namespace kansoku::detect {
namespace {

// Growth is over after so many blocks without: a pause is part of the data for twelve.
constexpr std::size_t kEndedMax = 16;

}  // namespace

void GrowthWatch::end(std::int64_t wall_ns, std::size_t column, MemberKey key,
                      std::vector<Observation>& out) {
  const auto known = growing_.find(column);
  if (known == growing_.end() || known->second.members.erase(key) == 0) return;
  if (known->second.members.empty()) close(wall_ns, column, out);  // else others still grow
}

void GrowthWatch::close(std::int64_t wall_ns, std::size_t column, std::vector<Observation>& out) {
  Growing& growing = growing_.at(column);
  growing.facts.end_ns = std::max(wall_ns, growing.facts.begin_ns);
  out.push_back({growing.episode, true, growing.facts});
  ended_.push_back({growing.episode, column, growing.bytes_per_second});
  if (ended_.size() > kEndedMax) ended_.pop_front();
  growing_.erase(column);
}

bool GrowthWatch::may_still_grow(std::size_t column, MemberKey key) {
  const auto known = growing_.find(column);
  if (known == growing_.end()) return false;
  const auto member = known->second.members.find(key);
  return member != known->second.members.end() && ++member->second < kBlocksWithout;
}

void GrowthWatch::report_growth(std::size_t column, const Window& window, const Growth& found,
                                std::vector<Observation>& out) {
  Growing& growing = growing_[column];
  growing.members[key_of(window)] = 0;
  growing.bytes_per_second = std::max(growing.bytes_per_second, found.bytes_per_second);
  trace::IncidentFacts& facts = growing.facts;
  const bool is_new = growing.episode == 0;
  if (is_new) {
    growing.episode = ++last_episode_;
    facts.begin_ns = found.begin_ns;
    facts.kind = trace::IncidentKind::kMemoryGrowth;
    facts.tests = {"growth"};
  }
  const bool is_known =
      std::find(facts.pids.begin(), facts.pids.end(), window.pid) != facts.pids.end();
  if (!is_known) {
    facts.pids.push_back(window.pid);
    const bool has_rank =
        std::find(facts.ranks.begin(), facts.ranks.end(), window.rank) != facts.ranks.end();
    if (window.rank >= 0 && !has_rank) facts.ranks.push_back(window.rank);
  }
  ++facts.window_count;
  facts.evidence = {{columns_[column].name, columns_[column].unit,
                     std::string(layer_name(columns_[column].layer)), found.before, found.now, 1}};
  facts.summary = fmt::format(
      words::kGrows,
      words::ranks_text(facts.ranks, fmt::format(words::kProcess, fmt::join(facts.pids, ", "))),
      columns_[column].name == "resident_bytes" ? words::kResidentMemory : words::kDeviceMemory,
      format_value(found.before, "bytes"), format_value(found.now, "bytes"),
      format_value(found.bytes_per_second * 60, "bytes"));
  facts.suggestion = suggestion_of(job_, facts);
  if (is_new || !is_known) out.push_back({growing.episode, true, facts});
}

void GrowthWatch::on_window(std::int64_t wall_ns, const Window& window,
                            std::vector<Observation>& out) {
  const MemberKey key = key_of(window);
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c].use != Use::kGrowth) continue;
    GrowthTest& test = tests_[key].try_emplace(c, GrowthOptions{}).first->second;
    const std::uint64_t judged = test.judged();
    const auto found = test.add(wall_ns, window.values[c]);
    if (test.judged() == judged) continue;
    const auto normal = normal_.find(c);
    const bool is_normal = found && normal != normal_.end() &&
                           found->bytes_per_second <= kBeyondLabel * normal->second;
    if (found && !is_normal) {
      report_growth(c, window, *found, out);
    } else if (is_normal || !may_still_grow(c, key)) {
      end(wall_ns, c, key, out);
    }
  }
}

void GrowthWatch::forget(std::int64_t wall_ns, MemberKey key, std::vector<Observation>& out) {
  for (std::size_t c = 0; c < columns_.size(); ++c)
    end(wall_ns, c, key, out);
  tests_.erase(key);
}

void GrowthWatch::finish(std::int64_t wall_ns, std::vector<Observation>& out) {
  while (!growing_.empty())
    close(wall_ns, growing_.begin()->first, out);
}

bool GrowthWatch::take_label(std::uint64_t episode, bool is_normal) {
  bool is_known = false;
  for (auto& [column, growing] : growing_) {
    if (growing.episode != episode) continue;
    growing.is_normal = is_normal;
    is_known = true;
  }
  for (const Ended& ended : ended_) {
    if (ended.episode != episode) continue;
    if (is_normal) learn_speed(ended.column, ended.bytes_per_second);
    is_known = true;
  }
  return is_known;
}

void GrowthWatch::learn_speed(std::size_t column, double bytes_per_second) {
  double& normal = normal_[column];
  normal = std::max(normal, bytes_per_second);
}

void GrowthWatch::end_normal(std::int64_t wall_ns, std::vector<Observation>& out) {
  std::vector<std::size_t> normal;
  for (const auto& [column, growing] : growing_)
    if (growing.is_normal) normal.push_back(column);
  for (const std::size_t column : normal) {
    learn_speed(column, growing_.at(column).bytes_per_second);
    close(wall_ns, column, out);
  }
}

}  // namespace kansoku::detect
