// SPDX-License-Identifier: Apache-2.0
#include "diff/internal/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "common/text.h"
#include "common/time.h"
#include "diff/internal/events.h"
#include "diff/internal/names.h"
#include "diff/internal/queue_times.h"
#include "diff/internal/steps.h"
#include "diff/thresholds.h"

namespace kansoku::diff {
namespace {

constexpr std::uint32_t kNoUnit = UINT32_MAX;
constexpr std::size_t kStepsMax = 20'000;  // later ones are left out, and a note says so

template <class First, class... Rest>
bool same_size(const First& first, const Rest&... rest) {
  return ((rest.size() == first.size()) && ...);
}

Result<void> check_columns(const trace::Trace& t) {
  const auto& s = t.slices;
  const auto& p = t.samples;
  const bool whole =
      same_size(s.start_ns, s.duration_ns, s.track, s.name, s.category, s.arg_begin, s.arg_count) &&
      same_size(p.time_ns, p.pid, p.tid, p.stack, p.state, p.is_native) &&
      same_size(t.switches.time_ns, t.switches.prev_tid, t.switches.next_tid,
                t.switches.prev_state) &&
      same_size(t.wakes.time_ns, t.wakes.tid);
  if (!whole) return Error{Code::kCorrupt, "diff: columns of a table differ in length"};
  return {};
}

/// Gives each instant of a track to the innermost event that covers it, if its thread was not in
/// the queue. `events`: of one rank, by begin, the longer one first.
void own_times(const trace::Trace& trace, const QueueTimes& queue, std::vector<Event>& events) {
  std::map<std::uint32_t, std::vector<Event*>> open;  // by track
  for (Event& event : events) {
    const std::int32_t tid = trace.tracks[event.track].tid;
    const auto active_ns = [&](std::int64_t end_ns) {
      return end_ns - event.begin_ns - queue.within(tid, event.begin_ns, end_ns);
    };
    event.active_ns = static_cast<double>(active_ns(event.end_ns));
    event.lane_ns = event.active_ns;
    auto& stack = open[event.track];
    while (!stack.empty() && stack.back()->end_ns <= event.begin_ns)
      stack.pop_back();
    if (!stack.empty()) {
      stack.back()->lane_ns -=
          static_cast<double>(active_ns(std::min(event.end_ns, stack.back()->end_ns)));
    }
    stack.push_back(&event);
  }
  for (Event& event : events) {
    if (!event.on_main) event.lane_ns = 0;  // the lane is the main thread
  }
}

/// Gives each instant of a device to the operations that run then, in equal parts. `events`: by
/// rank, then begin.
void shared_times(std::vector<Event>& events, const std::vector<Item>& items) {
  const auto later = [](const Event* a, const Event* b) { return a->end_ns > b->end_ns; };
  std::vector<Event*> live;  // a heap, the next to end at the top
  std::int64_t at = 0;
  std::uint32_t rank = 0;
  const auto advance = [&](std::int64_t to) {
    const double each = static_cast<double>(to - at) / static_cast<double>(live.size());
    for (Event* event : live)
      event->lane_ns += each;
    at = to;
  };
  const auto end_until = [&](std::int64_t time_ns) {
    while (!live.empty() && live.front()->end_ns <= time_ns) {
      advance(live.front()->end_ns);
      std::pop_heap(live.begin(), live.end(), later);
      live.pop_back();
    }
  };
  for (Event& event : events) {
    event.active_ns = static_cast<double>(event.end_ns - event.begin_ns);
    if (items[event.item].kind == Kind::kStreamWait) continue;  // the device is not busy
    if (event.rank != rank) end_until(INT64_MAX);
    rank = event.rank;
    end_until(event.begin_ns);
    if (!live.empty()) advance(event.begin_ns);
    at = event.begin_ns;
    live.push_back(&event);
    std::push_heap(live.begin(), live.end(), later);
  }
  end_until(INT64_MAX);
}

/// All threads of the ranks' processes; the main thread's number is the process's.
std::set<std::int32_t> threads_of(const trace::Trace& trace, const RankTable& ranks) {
  std::set<std::int32_t> out;
  for (const auto& [pid, rank] : ranks.index_of_pid)
    out.insert(pid);
  for (const trace::Track& track : trace.tracks) {
    if (track.kind == trace::TrackKind::kThread && ranks.has(track.pid)) out.insert(track.tid);
  }
  return out;
}

class Builder {
 public:
  Builder(const trace::Trace& trace, EventTable events, Steps steps)
      : trace_(trace),
        events_(std::move(events)),
        steps_(std::move(steps)),
        queue_(trace, threads_of(trace, events_.ranks)) {}
  void build(Recording& out);

 private:
  void place_steps(Recording& out);
  [[nodiscard]] std::uint32_t unit_of(std::uint32_t rank, std::int64_t time_ns) const;
  void add_events(Recording& out);
  void add_places(Recording& out);
  void add_samples(Recording& out);
  void add(std::uint32_t item, std::uint32_t unit, std::uint32_t shape, double ns, double lane_ns,
           double size);
  void finish(Recording& out);

  const trace::Trace& trace_;
  EventTable events_;
  Steps steps_;
  QueueTimes queue_;
  std::vector<std::optional<std::uint32_t>> kept_;  // by rank of the events: index into the output
  std::size_t step_count_{0};
  std::vector<std::map<std::pair<std::uint32_t, std::uint32_t>, Cell>> cells_;  // by item
};

void Builder::place_steps(Recording& out) {
  kept_.resize(steps_.ranks.size());
  for (std::size_t r = 0; r < steps_.ranks.size(); ++r) {
    if (steps_.ranks[r].empty()) continue;
    kept_[r] = static_cast<std::uint32_t>(out.ranks.size());
    out.ranks.push_back(events_.ranks.numbers[r]);
    step_count_ = steps_.ranks[r].size();
  }
  if (step_count_ > kStepsMax) {
    out.notes.push_back(fmt::format("{}: the first {} of {} steps are compared", out.label,
                                    kStepsMax, step_count_));
    step_count_ = kStepsMax;
  }
  out.step_count = step_count_;
  out.step_ms.resize(out.unit_count());
  for (std::size_t r = 0; r < steps_.ranks.size(); ++r) {
    if (!kept_[r]) continue;
    for (std::size_t s = 0; s < step_count_; ++s) {
      const auto [begin_ns, end_ns] = steps_.ranks[r][s];
      out.step_ms[*kept_[r] * step_count_ + s] = static_cast<double>(end_ns - begin_ns) / kNsPerMs;
    }
  }
  out.has_queue = queue_.is_known() && !steps_.on_device_clock;
  out.queue_ms.resize(out.unit_count());
  for (const auto& [pid, r] : events_.ranks.index_of_pid) {
    if (!kept_[r] || !out.has_queue) continue;
    for (std::size_t s = 0; s < step_count_; ++s) {
      const auto [begin_ns, end_ns] = steps_.ranks[r][s];
      out.queue_ms[*kept_[r] * step_count_ + s] +=
          static_cast<double>(queue_.within(pid, begin_ns, end_ns)) / kNsPerMs;
    }
  }
}

std::uint32_t Builder::unit_of(std::uint32_t rank, std::int64_t time_ns) const {
  if (rank >= kept_.size() || !kept_[rank]) return kNoUnit;
  const auto& steps = steps_.ranks[rank];
  const auto end = steps.begin() + static_cast<std::ptrdiff_t>(step_count_);
  auto after = std::upper_bound(steps.begin(), end, time_ns,
                                [](std::int64_t t, const auto& step) { return t < step.first; });
  if (after == steps.begin()) return kNoUnit;
  --after;
  if (time_ns >= after->second) return kNoUnit;
  return *kept_[rank] * static_cast<std::uint32_t>(step_count_) +
         static_cast<std::uint32_t>(after - steps.begin());
}

void Builder::add(std::uint32_t item, std::uint32_t unit, std::uint32_t shape, double ns,
                  double lane_ns, double size) {
  Cell& cell = cells_[item][{unit, shape}];
  cell.unit = unit;
  cell.shape = shape;
  cell.calls += 1;
  cell.ms += ns / kNsPerMs;
  cell.lane_ms += lane_ns / kNsPerMs;
  cell.size += size;
}

/// Device work belongs to the step that launched it; the host's clock and the device's then need
/// not agree.
void Builder::add_events(Recording& out) {
  for (const Lane lane : {Lane::kDevice, Lane::kHost}) {
    for (const Event& event : lane == Lane::kDevice ? events_.device : events_.host) {
      if (lane == Lane::kHost && steps_.on_device_clock) break;
      const bool by_launch = event.launch_ns != kNoTime && !steps_.on_device_clock;
      if (lane == Lane::kDevice && !by_launch && events_.device_clock_apart &&
          !steps_.on_device_clock)
        continue;
      const std::uint32_t unit = unit_of(event.rank, by_launch ? event.launch_ns : event.begin_ns);
      if (unit == kNoUnit) continue;
      const bool counts = lane == Lane::kDevice || event.on_main;
      out.has_lane[static_cast<std::size_t>(lane)] |= counts;
      add(event.item, unit, event.shape, event.active_ns, event.lane_ns,
          events_.items[event.item].shapes[event.shape].size);
    }
  }
}

/// The mean place of each device item in its step, to tell kernels that change their names.
void Builder::add_places(Recording& out) {
  std::map<std::uint32_t, std::vector<std::uint32_t>> order;  // by unit: items
  for (const Event& event : events_.device) {
    const bool by_launch = event.launch_ns != kNoTime && !steps_.on_device_clock;
    const std::uint32_t unit = unit_of(event.rank, by_launch ? event.launch_ns : event.begin_ns);
    if (unit != kNoUnit) order[unit].push_back(event.item);
  }
  std::vector<std::pair<double, double>> sums(events_.items.size());
  for (const auto& [unit, items] : order) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      sums[items[i]].first += static_cast<double>(i) / static_cast<double>(items.size());
      sums[items[i]].second += 1;
    }
  }
  for (std::size_t i = 0; i < out.items.size(); ++i)
    out.items[i].place = sums[i].second > 0 ? sums[i].first / sums[i].second : 0;
}

/// Python functions by the innermost frame of the main thread's stacks: a sample stands for the
/// steps' time divided by the samples in them.
void Builder::add_samples(Recording& out) {
  if (steps_.on_device_clock) return;
  const auto& table = trace_.samples;
  std::vector<std::pair<std::uint32_t, trace::StackId>> taken;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table.is_native[i] != 0 || table.pid[i] != table.tid[i]) continue;
    const auto rank = events_.ranks.index_of_pid.find(table.pid[i]);
    if (rank == events_.ranks.index_of_pid.end()) continue;
    if (table.stack[i].raw >= trace_.stacks.size()) continue;
    const auto time_ns = queue_.sampled_at(table.tid[i], table.time_ns[i]);
    const std::uint32_t unit = time_ns ? unit_of(rank->second, *time_ns) : kNoUnit;
    if (unit != kNoUnit) taken.emplace_back(unit, table.stack[i]);
  }
  if (taken.empty()) return;
  double total_ms = 0;
  for (std::size_t unit = 0; unit < out.unit_count(); ++unit)
    total_ms += out.step_ms[unit] - out.queue_ms[unit];
  const double each_ns = total_ms * kNsPerMs / static_cast<double>(taken.size());
  const auto text_of = [&](trace::StringId id) {
    return id.raw < trace_.strings.size() ? trace_.str(id) : std::string_view();
  };
  const auto name_of = [&](trace::FrameId id) -> std::string {
    if (id.raw >= trace_.frames.size()) return {};
    const trace::Frame& frame = trace_.frames[id.raw];
    const std::string_view file = base_name(text_of(frame.file));
    return file.empty() ? std::string(text_of(frame.function))
                        : fmt::format("{} ({})", text_of(frame.function), file);
  };
  std::map<std::string, std::uint32_t> known;
  std::map<std::uint32_t, std::map<std::string, std::size_t>> callers;
  for (const auto& [unit, stack] : taken) {
    const auto frames = trace_.stacks.at(stack);
    if (frames.empty()) continue;
    const auto [found, is_new] =
        known.try_emplace(name_of(frames.back()), static_cast<std::uint32_t>(out.items.size()));
    if (is_new) {
      Item item;
      item.kind = Kind::kFunction;
      item.lane = Lane::kSamples;
      item.name = found->first;
      item.shapes.emplace_back();
      out.items.push_back(std::move(item));
      cells_.emplace_back();
    }
    if (frames.size() > 1) ++callers[found->second][name_of(frames[frames.size() - 2])];
    add(found->second, unit, 0, each_ns, each_ns, 0);
  }
  for (const auto& [item, counts] : callers) {
    const auto most =
        std::max_element(counts.begin(), counts.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    out.items[item].caller = most->first;
  }
  out.has_lane[static_cast<std::size_t>(Lane::kSamples)] = true;
}

void Builder::finish(Recording& out) {
  std::vector<std::pair<std::size_t, Item>> kept;
  for (std::size_t i = 0; i < out.items.size(); ++i) {
    Item& item = out.items[i];
    for (const auto& [key, cell] : cells_[i]) {
      item.cells.push_back(cell);
      item.total_ms += cell.ms;
    }
    if (!item.cells.empty()) kept.emplace_back(i, std::move(item));
  }
  std::sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second.lane, a.second.kind, a.second.name) <
           std::tie(b.second.lane, b.second.kind, b.second.name);
  });
  out.items.clear();
  for (auto& [number, item] : kept)
    out.items.push_back(std::move(item));
}

void Builder::build(Recording& out) {
  place_steps(out);
  own_times(trace_, queue_, events_.host);
  shared_times(events_.device, events_.items);
  out.items = events_.items;
  cells_.resize(out.items.size());
  add_events(out);
  add_places(out);
  add_samples(out);
  finish(out);
  out.device_clock_apart = events_.device_clock_apart && !steps_.on_device_clock;
}

}  // namespace

Result<Recording> read_recording(const Input& input, const Options& options) {
  TRY_VOID(check_columns(*input.trace));
  Recording out;
  out.label = input.label;
  EventTable events = read_events(*input.trace);
  if (events.odd_times > 0)
    out.notes.push_back(fmt::format("{}: {} slices of impossible times are left out", input.label,
                                    events.odd_times));
  TRY(Steps steps, find_steps(*input.trace, events, options));
  for (const std::string& note : steps.notes)
    out.notes.push_back(fmt::format("{}: {}", input.label, note));
  out.found_by = steps.found_by;
  if (out.found_by.empty()) return out;
  Builder(*input.trace, std::move(events), std::move(steps)).build(out);
  for (const auto& [name, loss] : input.trace->losses) {
    if (loss.count > 0 && loss.severity >= Severity::kDataLoss)
      out.notes.push_back(
          fmt::format("{}: {} lost ({}): {}", input.label, loss.count, name, loss.advice));
  }
  return out;
}

}  // namespace kansoku::diff
