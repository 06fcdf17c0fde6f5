// SPDX-License-Identifier: Apache-2.0
#include "diff/internal/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "diagnose/step_times.h"
#include "diff/internal/names.h"
#include "diff/thresholds.h"

namespace kansoku::diff {
namespace {

using Intervals = std::vector<std::pair<std::int64_t, std::int64_t>>;

constexpr std::size_t kTokensMax = 200'000;  // operations of a rank in which a word is looked for
constexpr std::size_t kCandidatesMax = 200;

bool is_step_slice(std::string_view name, std::string_view category, const std::string& wanted) {
  if (!wanted.empty()) return name == wanted || unnumbered(name) == wanted;
  // A device repeats the host's annotation in a category of its own.
  return name.starts_with("ProfilerStep#") && category != "gpu_user_annotation";
}

std::vector<Intervals> named_slices(const trace::Trace& trace, const RankTable& ranks,
                                    const std::string& wanted) {
  std::vector<Intervals> out(ranks.numbers.size());
  for (std::size_t i = 0; i < trace.slices.size(); ++i) {
    if (trace.slices.track[i].raw >= trace.tracks.size() || trace.slices.duration_ns[i] < 0)
      continue;
    const auto name = trace.slices.name[i], category = trace.slices.category[i];
    if (name.raw >= trace.strings.size() || category.raw >= trace.strings.size()) continue;
    if (!is_step_slice(trace.str(name), trace.str(category), wanted)) continue;
    const auto rank = ranks.index_of_pid.find(process_of_track(trace, trace.slices.track[i]));
    if (rank == ranks.index_of_pid.end()) continue;
    const std::int64_t begin_ns = trace.slices.start_ns[i];
    out[rank->second].emplace_back(begin_ns, begin_ns + trace.slices.duration_ns[i]);
  }
  for (Intervals& rank : out)
    std::sort(rank.begin(), rank.end());
  return out;
}

/// From the begin of one to that of the next: the time between two steps is part of the first.
void join(Intervals& steps) {
  for (std::size_t i = 0; i + 1 < steps.size(); ++i)
    steps[i].second = steps[i + 1].first;
}

/// All ranks that have steps get as many as the rank with fewest.
bool level(std::vector<Intervals>& ranks) {
  std::size_t fewest = std::numeric_limits<std::size_t>::max();
  for (const Intervals& rank : ranks) {
    if (!rank.empty()) fewest = std::min(fewest, rank.size());
  }
  if (fewest == std::numeric_limits<std::size_t>::max() || fewest < kStepsMin) return false;
  for (Intervals& rank : ranks)
    rank.resize(std::min(rank.size(), fewest));
  return true;
}

Result<std::vector<Intervals>> diagnosed_steps(const trace::Trace& trace, const RankTable& ranks,
                                               std::vector<std::string>& notes) {
  std::vector<Intervals> out(ranks.numbers.size());
  TRY(const auto job, diagnose::step_times(trace, {}));
  for (const diagnose::RankStepTimes& rank : job.ranks) {
    const auto index = ranks.index_of_pid.find(rank.pid);
    if (index == ranks.index_of_pid.end()) continue;
    for (std::size_t s = 0; s < rank.begin_ns.size(); ++s) {
      const std::int64_t begin_ns = rank.begin_ns[s];
      out[index->second].emplace_back(begin_ns, begin_ns + std::llround(rank.step_ms[s] * 1e6));
    }
  }
  notes.insert(notes.end(), job.notes.begin(), job.notes.end());
  return out;
}

/// Hashes of runs of tokens in constant time.
class RunHash {
 public:
  explicit RunHash(const std::vector<std::uint32_t>& tokens) : sums_(1), powers_(1, 1) {
    for (const std::uint32_t token : tokens) {
      sums_.push_back(sums_.back() * kBase + token + 1);
      powers_.push_back(powers_.back() * kBase);
    }
  }
  [[nodiscard]] std::uint64_t of(std::size_t begin, std::size_t end) const {
    return sums_[end] - sums_[begin] * powers_[end - begin];
  }

 private:
  static constexpr std::uint64_t kBase = 0x9E3779B97F4A7C15ULL;
  std::vector<std::uint64_t> sums_, powers_;
};

struct Marker {
  std::uint32_t item{0};
  std::size_t period{0};  // operations of the word; 0: none was found
};

/// How many tokens the commonest word between two of `places` covers, and its length.
std::pair<std::size_t, std::size_t> coverage(const RunHash& hash,
                                             const std::vector<std::size_t>& places) {
  std::map<std::uint64_t, std::pair<std::size_t, std::size_t>> words;  // count, length
  for (std::size_t i = 0; i + 1 < places.size(); ++i) {
    auto& word = words[hash.of(places[i], places[i + 1])];
    word = {word.first + 1, places[i + 1] - places[i]};
  }
  std::pair<std::size_t, std::size_t> best{0, 0};
  for (const auto& [key, word] : words) {
    if (word.first >= kStepsMin) best = std::max(best, {word.first * word.second, word.second});
  }
  return best;
}

/// The shortest word that covers nearly as many operations as any: a layer's word repeats within a
/// step, but leaves out operations of no layer.
Marker find_marker(const std::vector<std::uint32_t>& tokens) {
  std::map<std::uint32_t, std::vector<std::size_t>> places;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    places[tokens[i]].push_back(i);
  std::vector<std::pair<std::size_t, std::uint32_t>> candidates;  // rarest first
  for (const auto& [item, where] : places) {
    if (where.size() > kStepsMin) candidates.emplace_back(where.size(), item);
  }
  std::sort(candidates.begin(), candidates.end());
  candidates.resize(std::min(candidates.size(), kCandidatesMax));
  const RunHash hash(tokens);
  std::vector<std::tuple<std::size_t, std::size_t, std::uint32_t>> found;
  std::size_t most = 0;
  for (const auto& [count, item] : candidates) {
    const auto [covered, period] = coverage(hash, places[item]);
    if (covered > 0) found.emplace_back(covered, period, item);
    most = std::max(most, covered);
  }
  Marker best;
  for (const auto& [covered, period, item] : found) {
    const double share = static_cast<double>(covered) / static_cast<double>(most);
    if (share >= kMarkerCoverMin && (best.period == 0 || period < best.period))
      best = {item, period};
  }
  const double of_all = static_cast<double>(most) / static_cast<double>(tokens.size());
  return of_all >= kMarkerShareMin ? best : Marker{};
}

std::string mark_steps(const EventTable& events, Steps& steps) {
  std::vector<std::vector<const Event*>> ranks(events.ranks.numbers.size());
  std::size_t linked = 0;
  for (const Event& event : events.device) {
    if (events.items[event.item].kind == Kind::kStreamWait) continue;
    ranks[event.rank].push_back(&event);
    if (event.launch_ns != kNoTime) ++linked;
  }
  const bool by_launch = !events.device.empty() && 20 * linked >= 19 * events.device.size();
  const auto time_of = [&](const Event& e) { return by_launch ? e.launch_ns : e.begin_ns; };
  std::vector<std::uint32_t> tokens;
  for (auto& rank : ranks) {
    std::stable_sort(rank.begin(), rank.end(),
                     [&](const Event* a, const Event* b) { return time_of(*a) < time_of(*b); });
    if (!tokens.empty()) continue;
    for (std::size_t i = 0; i < std::min(rank.size(), kTokensMax); ++i)
      tokens.push_back(rank[i]->item);
  }
  if (tokens.empty()) return {};
  const Marker marker = find_marker(tokens);
  if (marker.period == 0) return {};
  steps.ranks.assign(ranks.size(), {});
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    bool is_first = true;
    for (const Event* event : ranks[r]) {
      if (event->item != marker.item || time_of(*event) == kNoTime) continue;
      if (!is_first) steps.ranks[r].emplace_back(time_of(*event), time_of(*event));
      is_first = false;  // the first step warms up
    }
    join(steps.ranks[r]);
    if (!steps.ranks[r].empty()) steps.ranks[r].pop_back();
  }
  if (!level(steps.ranks)) return {};
  steps.on_device_clock = !by_launch && events.device_clock_apart;
  return fmt::format("kernel {}", shown_name(events.items[marker.item].name, 60));
}

}  // namespace

Result<Steps> find_steps(const trace::Trace& trace, const EventTable& events,
                         const Options& options) {
  Steps out;
  out.ranks = named_slices(trace, events.ranks, options.step_name);
  if (!options.step_name.empty()) {
    for (Intervals& rank : out.ranks) {
      join(rank);
      if (!rank.empty()) rank.pop_back();
    }
  }
  if (level(out.ranks)) {
    out.found_by = options.step_name.empty() ? "profiler" : options.step_name;
    return out;
  }
  if (!options.step_name.empty()) {
    out.notes.push_back(
        fmt::format("fewer than {} slices named {}", kStepsMin + 1, options.step_name));
    return out;
  }
  TRY(out.ranks, diagnosed_steps(trace, events.ranks, out.notes));
  if (level(out.ranks)) {
    out.found_by = "the training loop";
    return out;
  }
  out.found_by = mark_steps(events, out);
  if (out.found_by.empty())
    out.notes.emplace_back(
        "no steps: no training loop, no steps of a profiler and no word of kernels that repeats");
  return out;
}

}  // namespace kansoku::diff
