// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/stages/stages.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "diagnose/thresholds.h"

namespace kansoku::diagnose {
namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

// First messages of one rank in a step.
struct FirstMessages {
  std::int64_t sent_ns{std::numeric_limits<std::int64_t>::max()};
  std::int64_t received_ns{std::numeric_limits<std::int64_t>::max()};
  std::size_t source{kNone};
  [[nodiscard]] bool begins() const { return sent_ns < received_ns; }
};

// Depth of each rank below one that begins; nothing where that is open.
std::vector<std::size_t> depths_of(const std::vector<FirstMessages>& first) {
  std::vector<std::size_t> depths(first.size(), kNone);
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (std::size_t r = 0; r < first.size(); ++r) {
      if (depths[r] != kNone) continue;
      if (first[r].begins())
        depths[r] = 0;
      else if (first[r].source != kNone && depths[first[r].source] != kNone)
        depths[r] = depths[first[r].source] + 1;
      has_changed = has_changed || depths[r] != kNone;
    }
  }
  return depths;
}

// The depth that each rank has in nearly all steps.
std::optional<std::vector<std::size_t>> usual_depths(const JobData& job, const StepTable& steps) {
  std::vector<std::vector<FirstMessages>> first(steps.count(),
                                                std::vector<FirstMessages>(job.ranks.size()));
  for (const Message& message : job.messages) {
    if (const auto s = step_at(steps.ranks[message.from], message.sent_ns)) {
      FirstMessages& sender = first[*s][message.from];
      sender.sent_ns = std::min(sender.sent_ns, message.sent_ns);
    }
    if (const auto s = step_at(steps.ranks[message.to], message.received_ns)) {
      FirstMessages& receiver = first[*s][message.to];
      if (message.received_ns >= receiver.received_ns) continue;
      receiver.received_ns = message.received_ns;
      receiver.source = message.from;
    }
  }
  std::map<std::vector<std::size_t>, std::size_t> counts;
  std::size_t seen = 0;
  for (const std::vector<FirstMessages>& step : first) {
    // Probes come to one rank after the other: a step of which one has nothing tells no order.
    const bool is_seen = std::all_of(step.begin(), step.end(), [](const FirstMessages& rank) {
      return rank.begins() || rank.source != kNone;
    });
    if (!is_seen) continue;
    ++seen;
    ++counts[depths_of(step)];
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const bool is_usual =
      most != counts.end() && seen >= kRepeatCountFloor &&
      static_cast<double>(most->second) >= kNearlyAllShare * static_cast<double>(seen) &&
      std::count(most->first.begin(), most->first.end(), kNone) == 0;
  return is_usual ? std::optional(most->first) : std::nullopt;
}

// Ranks that messages join, by the least rank index of them.
std::vector<std::size_t> joined_by_messages(const JobData& job) {
  std::vector<std::size_t> joined(job.ranks.size());
  std::iota(joined.begin(), joined.end(), std::size_t{0});
  std::set<std::pair<std::size_t, std::size_t>> edges;
  for (const Message& message : job.messages)
    edges.emplace(message.from, message.to);
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    for (const auto& [from, to] : edges) {
      is_changed = is_changed || joined[from] != joined[to];
      joined[from] = joined[to] = std::min(joined[from], joined[to]);
    }
  }
  return joined;
}

// Messages of a step from one rank to another.
double messages_per_step(const JobData& job, const StepTable& steps, std::size_t from,
                         std::size_t to) {
  std::size_t count = 0;
  for (const Message& message : job.messages) {
    if (message.from == from && message.to == to && step_at(steps.ranks[from], message.sent_ns))
      ++count;
  }
  return static_cast<double>(count) / static_cast<double>(steps.count());
}

// A rank with several parts of the model sends each micro-batch on once a part, and what comes back
// from the last stage is that of all parts but the last. Two stages with several parts look alike
// in both directions: not known.
std::size_t micro_batches_of(const JobData& job, const StepTable& steps, const Stages& stages) {
  const std::size_t first = stages.ranks.front().front(), second = stages.ranks[1].front();
  const double on = messages_per_step(job, steps, first, second);
  double count = on;
  if (stages.ranks.size() > 2) {
    count -= messages_per_step(job, steps, stages.ranks.back().front(), first);
  } else {
    const std::vector<Event> backward = outermost(job.ranks[first], EventKind::kBackward);
    const auto in_steps = std::count_if(backward.begin(), backward.end(), [&](const Event& event) {
      return step_at(steps.ranks[first], event.time.begin_ns).has_value();
    });
    if (static_cast<double>(in_steps) < kNearlyAllShare * on * static_cast<double>(steps.count()))
      return 0;
  }
  return static_cast<std::size_t>(std::max(0.0, count) + 0.5);
}

}  // namespace

std::optional<Stages> find_stages(const JobData& job, const StepTable& steps) {
  if (job.messages.empty() || steps.count() == 0) return std::nullopt;
  auto depths = usual_depths(job, steps);
  if (!depths) return std::nullopt;
  Stages out;
  out.stage = std::move(*depths);
  out.ranks.resize(*std::max_element(out.stage.begin(), out.stage.end()) + 1);
  if (out.ranks.size() < 2) return std::nullopt;
  const std::vector<std::size_t> joined = joined_by_messages(job);
  const std::set<std::size_t> pipelines(joined.begin(), joined.end());
  std::set<std::pair<std::size_t, std::size_t>> seats;  // pipeline and stage
  for (std::size_t r = 0; r < joined.size(); ++r) {
    out.ranks[out.stage[r]].push_back(r);
    seats.emplace(joined[r], out.stage[r]);
  }
  const bool is_whole =
      seats.size() == pipelines.size() * out.ranks.size() && seats.size() == joined.size();
  if (!is_whole) return std::nullopt;
  out.micro_batches = micro_batches_of(job, steps, out);
  return out;
}

}  // namespace kansoku::diagnose
