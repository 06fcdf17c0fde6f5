// SPDX-License-Identifier: Apache-2.0
#include "gpu/activity/internal/memory_figures.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "gpu/activity/internal/device_figures.h"
#include "gpu/activity/internal/tracks.h"
#include "gpu/activity/thresholds.h"
#include "stats/summary.h"

namespace kansoku::gpu::activity {
namespace {

constexpr std::string_view kCounterName = "device memory, live";
constexpr std::size_t kHoldersMax = 8;
constexpr std::size_t kStackDepthMax = 8;
constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 56;
constexpr std::size_t kFailuresMax = 64;
constexpr std::size_t kCurvePoints = 400;

struct Point {
  std::int64_t time_ns{0};
  std::uint64_t bytes{0};
};

/// An allocation that is live, or a release of one.
struct Change {
  std::int64_t time_ns{0};
  std::uint32_t call{0};
  std::uint64_t bytes{0};
  bool is_release{false};
};

using Holders = std::map<std::string, MemoryHolder>;

std::vector<MemoryHolder> largest(const Holders& holders) {
  std::vector<MemoryHolder> out;
  for (const auto& [stack, holder] : holders) {
    if (holder.bytes > 0) out.push_back(holder);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const MemoryHolder& a, const MemoryHolder& b) { return a.bytes > b.bytes; });
  if (out.size() > kHoldersMax) out.resize(kHoldersMax);
  return out;
}

/// A loop without steps has rounds all the same: from one launch of a kernel to the next.
struct Rounds {
  std::string_view kernel;
  std::vector<stats::Interval> all;
};

/// Rounds by the kernel with the fewest launches that is launched all the time, at least in
/// kRoundPartsMin of as many equal parts: one of a layer is launched more often than one of a step.
Rounds rounds_of(const Input& in, std::int32_t pid) {
  constexpr std::size_t kParts = 20;
  std::map<trace::StringId, std::vector<std::int64_t>> launches;
  std::int64_t first_ns = std::numeric_limits<std::int64_t>::max(), last_ns = 0;
  for (const Call& call : in.work.calls) {
    if (call.what != CallClass::kLaunch || in.work.threads[call.thread].pid != pid) continue;
    first_ns = std::min(first_ns, call.time.begin_ns);
    last_ns = std::max(last_ns, call.time.begin_ns);
  }
  if (first_ns >= last_ns) return {};
  for (const Op& op : in.work.ops) {
    if (op.call == kNoIndex || op.what == OpClass::kCopy || op.what == OpClass::kSet) continue;
    const Call& call = in.work.calls[op.call];
    if (call.what == CallClass::kLaunch && in.work.threads[call.thread].pid == pid)
      launches[in.trace.slices.name[op.slice]].push_back(call.time.begin_ns);
  }
  Rounds out;
  std::vector<std::int64_t> best;
  for (auto& [name, times] : launches) {
    std::sort(times.begin(), times.end());
    std::set<std::int64_t> parts;
    for (const std::int64_t at_ns : times)
      parts.insert((at_ns - first_ns) /
                   ((last_ns - first_ns) / static_cast<std::int64_t>(kParts) + 1));
    if (parts.size() < kRoundPartsMin || (!best.empty() && times.size() >= best.size())) continue;
    best = std::move(times);
    out.kernel = in.args.string(name);
  }
  for (std::size_t i = 1; i < best.size(); ++i)
    out.all.push_back({best[i - 1], best[i]});
  return out;
}

class ProcessMemory {
 public:
  ProcessMemory(const Input& in, std::int32_t pid) : in_(in), pid_(pid) {}
  void add_point(Point point) { points_.push_back(point); }
  void add_call(std::uint32_t call) { calls_.push_back(call); }
  std::optional<MemoryFigures> figures();

 private:
  void replay();
  void find_leak(MemoryFigures& out) const;
  void find_failures(MemoryFigures& out) const;
  [[nodiscard]] std::int64_t last_call_ns() const {
    return in_.work.calls.empty() ? 0 : in_.work.calls.back().time.begin_ns;
  }
  [[nodiscard]] std::string stack_of(const Call& call) const;
  [[nodiscard]] std::optional<std::uint64_t> live_at(std::int64_t time_ns) const;
  /// By allocation stack, of what was allocated after `from_ns` and lives at `at_ns`.
  [[nodiscard]] Holders holders_at(std::int64_t from_ns, std::int64_t at_ns) const;

  struct Live {  // an allocation, from its begin to its release
    std::int64_t from_ns, until_ns;
    std::uint64_t bytes;
    std::uint32_t call;
  };

  const Input& in_;
  std::int32_t pid_;
  std::vector<Point> points_;  // of the counter, or of the calls
  bool is_by_calls_{false};
  std::vector<std::uint32_t> calls_;  // allocations and releases, by begin
  std::vector<Live> allocations_;     // whose address is known
};

/// The stack that the recording names, else the slices around the call, innermost first.
std::string ProcessMemory::stack_of(const Call& call) const {
  if (const auto said = in_.args.text(call.slice, ArgName::kStack); !said.empty())
    return std::string(said);
  std::string out;
  std::size_t depth = 0;
  for (std::uint32_t at = in_.host.parent(call.slice); at != kNoIndex && depth < kStackDepthMax;
       at = in_.host.parent(at), ++depth) {
    const std::string_view name = in_.args.string(in_.trace.slices.name[at]);
    if (name.starts_with("ProfilerStep#")) continue;
    out += (out.empty() ? "" : " < ") + std::string(name);
  }
  return out;
}

/// Live bytes from calls: exact where addresses are known, or where releases tell their bytes.
void ProcessMemory::replay() {
  std::map<std::uint64_t, std::size_t> by_address;
  std::uint64_t live = 0;
  bool is_complete = true;
  std::vector<Point> points;
  for (const std::uint32_t i : calls_) {
    const Call& call = in_.work.calls[i];
    if (call.is_open || in_.args.number(call.slice, ArgName::kReturn).value_or(0) != 0) continue;
    const auto address = in_.args.count(call.slice, ArgName::kAddress);
    const auto bytes = in_.args.count(call.slice, ArgName::kBytes);
    if (call.what == CallClass::kAlloc) {
      if (!bytes || *bytes > kBytesMax) {
        is_complete = false;
        continue;
      }
      if (address) by_address[*address] = allocations_.size();
      if (address) allocations_.push_back({call.time.end_ns, std::int64_t{1} << 62, *bytes, i});
      live += *bytes;
    } else {
      const auto known = address ? by_address.find(*address) : by_address.end();
      std::uint64_t freed = bytes.value_or(0);
      if (known != by_address.end()) {
        freed = allocations_[known->second].bytes;
        allocations_[known->second].until_ns = call.time.begin_ns;
        by_address.erase(known);
      } else if (!bytes && !(address && *address == 0)) {
        is_complete = false;  // of something from before the recording, or of we know not what
      }
      live -= std::min(live, freed);
    }
    points.push_back({call.time.end_ns, live});
  }
  if (points_.empty() && is_complete && !points.empty()) {
    points_ = std::move(points);
    is_by_calls_ = true;
  }
}

std::optional<std::uint64_t> ProcessMemory::live_at(std::int64_t time_ns) const {
  const auto after =
      std::upper_bound(points_.begin(), points_.end(), time_ns,
                       [](std::int64_t at, const Point& point) { return at < point.time_ns; });
  if (after == points_.begin()) return std::nullopt;
  return (after - 1)->bytes;
}

Holders ProcessMemory::holders_at(std::int64_t from_ns, std::int64_t at_ns) const {
  Holders holders;
  for (const Live& live : allocations_) {
    if (live.from_ns < from_ns || live.from_ns > at_ns || live.until_ns <= at_ns) continue;
    const std::string stack = stack_of(in_.work.calls[live.call]);
    MemoryHolder& holder = holders[stack];
    holder.stack = stack;
    holder.bytes += live.bytes;
    ++holder.count;
  }
  return holders;
}

void ProcessMemory::find_leak(MemoryFigures& out) const {
  const ProcessSteps* const of = steps_of(in_, pid_);
  const Rounds rounds = of == nullptr ? rounds_of(in_, pid_) : Rounds{};
  std::vector<double> least;
  std::int64_t first_ns = 0, last_ns = 0;
  for (const stats::Interval& step : of == nullptr ? rounds.all : of->steps) {
    const auto begin_bytes = live_at(step.begin_ns);
    if (!begin_bytes) continue;
    std::uint64_t bytes = *begin_bytes;
    auto at =
        std::upper_bound(points_.begin(), points_.end(), step.begin_ns,
                         [](std::int64_t ns, const Point& point) { return ns < point.time_ns; });
    for (; at != points_.end() && at->time_ns < step.end_ns; ++at)
      bytes = std::min(bytes, at->bytes);
    if (least.empty()) first_ns = step.begin_ns;
    last_ns = step.end_ns;
    least.push_back(static_cast<double>(bytes));
  }
  const auto rate = leak_of(least);
  if (!rate) return;
  out.leak = Leak{.per = of == nullptr ? std::string(rounds.kernel) : "step",
                  .bytes_per_step = *rate,
                  .step_count = least.size(),
                  .growers = largest(holders_at(first_ns, last_ns))};
}

void ProcessMemory::find_failures(MemoryFigures& out) const {
  constexpr std::int64_t kOutOfMemory = 2;  // of the runtime and of the driver
  for (const std::uint32_t i : calls_) {
    const Call& call = in_.work.calls[i];
    const auto ret = in_.args.number(call.slice, ArgName::kReturn);
    if (call.what != CallClass::kAlloc || ret != kOutOfMemory || call.is_nested) continue;
    if (out.failures.size() >= kFailuresMax) return;
    FailedAllocation failure;
    failure.time_ns = call.time.begin_ns;
    failure.requested_bytes = in_.args.count(call.slice, ArgName::kRequested);
    if (!failure.requested_bytes)
      failure.requested_bytes = in_.args.count(call.slice, ArgName::kBytes);
    failure.live_bytes = live_at(call.time.begin_ns);
    failure.holders = largest(holders_at(0, call.time.begin_ns));
    failure.is_survived =
        std::any_of(in_.work.calls.begin(), in_.work.calls.end(), [&](const Call& later) {
          return later.what == CallClass::kLaunch && later.time.begin_ns > call.time.end_ns &&
                 in_.work.threads[later.thread].pid == pid_;
        });
    out.failures.push_back(std::move(failure));
  }
}

/// The greatest value of each of kCurvePoints pieces of the time from the first point to `end_ns`,
/// and the last one before where a piece has none.
std::vector<MemoryPoint> curve_of(const std::vector<Point>& points, std::int64_t end_ns) {
  std::vector<MemoryPoint> out;
  if (points.empty()) return out;
  const std::int64_t begin_ns = points.front().time_ns;
  const auto length_ns = std::max(
      static_cast<double>(std::max(end_ns, points.back().time_ns)) - static_cast<double>(begin_ns),
      1.0);
  std::size_t next = 0;
  std::uint64_t last = points.front().bytes;
  for (std::size_t i = 0; i < kCurvePoints; ++i) {
    const double until_ns = length_ns * static_cast<double>(i + 1) / kCurvePoints;
    std::uint64_t most = last;
    for (; next < points.size(); ++next) {
      const Point& point = points[next];
      if (static_cast<double>(point.time_ns - begin_ns) > until_ns) break;
      most = std::max(most, point.bytes);
      last = point.bytes;
    }
    out.push_back({length_ns * static_cast<double>(i) / kCurvePoints / 1e6, most});
  }
  return out;
}

std::optional<MemoryFigures> ProcessMemory::figures() {
  std::stable_sort(points_.begin(), points_.end(),
                   [](const Point& a, const Point& b) { return a.time_ns < b.time_ns; });
  replay();
  MemoryFigures out;
  out.pid = pid_;
  out.source = points_.empty() ? "none" : is_by_calls_ ? "calls" : "counter";
  out.point_count = points_.size();
  for (const Point& point : points_) {
    if (point.bytes <= out.high_water_bytes && out.high_water_ns != 0) continue;
    out.high_water_bytes = point.bytes;
    out.high_water_ns = point.time_ns;
  }
  if (!points_.empty()) {
    out.last_bytes = points_.back().bytes;
    if (in_.options.with_view) out.curve = curve_of(points_, last_call_ns());
    out.holders = largest(holders_at(0, out.high_water_ns));
    find_leak(out);
  }
  find_failures(out);
  if (points_.empty() && out.failures.empty()) return std::nullopt;
  return out;
}

}  // namespace

std::optional<double> leak_of(std::span<const double> bytes_of_steps) {
  constexpr std::size_t kQuarters = 4;
  const std::size_t count = bytes_of_steps.size();
  if (count < kLeakStepsMin) return std::nullopt;
  // Rises from begin to end of each quarter; the last step of one is the first of the next.
  std::array<double, kQuarters> rises{};
  for (std::size_t q = 0; q < kQuarters; ++q) {
    const std::size_t from = q * (count - 1) / kQuarters;
    const std::size_t to = (q + 1) * (count - 1) / kQuarters;
    rises[q] = bytes_of_steps[to] - bytes_of_steps[from];
  }
  const double rise = bytes_of_steps.back() - bytes_of_steps.front();
  const double per_step = rise / static_cast<double>(count - 1);
  if (per_step < static_cast<double>(kLeakBytesPerStepMin)) return std::nullopt;
  const double least = kLeakSteadyShareMin * rise / static_cast<double>(kQuarters);
  for (const double of_quarter : rises) {
    if (of_quarter < least) return std::nullopt;
  }
  return per_step;
}

std::vector<MemoryFigures> memory_figures(const Input& in) {
  std::map<std::int32_t, ProcessMemory> processes;
  const auto of = [&](std::int32_t pid) -> ProcessMemory& {
    return processes.try_emplace(pid, in, pid).first->second;
  };
  const trace::StringId counter = in.trace.strings.find(kCounterName);
  const trace::CounterTable& table = in.trace.counters;
  const bool is_whole = table.track.size() == table.size() && table.value.size() == table.size();
  for (std::size_t i = 0; is_whole && counter.raw != 0 && i < table.size(); ++i) {
    if (table.track[i].raw >= in.trace.tracks.size()) continue;
    const trace::Track& track = in.trace.tracks[table.track[i].raw];
    const bool is_usable = track.name == counter && table.value[i] >= 0 &&
                           table.value[i] < static_cast<double>(kBytesMax);
    if (is_usable)
      of(process_of_track(in.trace, table.track[i]))
          .add_point({table.time_ns[i], static_cast<std::uint64_t>(table.value[i])});
  }
  for (std::uint32_t i = 0; i < in.work.calls.size(); ++i) {
    const Call& call = in.work.calls[i];
    const bool is_memory = call.what == CallClass::kAlloc || call.what == CallClass::kFree;
    const std::int32_t pid = in.work.threads[call.thread].pid;
    if (is_memory && !call.is_nested) of(pid).add_call(i);
  }
  std::vector<MemoryFigures> out;
  std::map<std::int32_t, std::int32_t> ranks;
  for (const trace::Process& process : in.trace.processes)
    ranks.emplace(process.pid, process.rank);
  for (auto& [pid, memory] : processes) {
    auto figures = memory.figures();
    if (!figures) continue;
    if (const auto rank = ranks.find(pid); rank != ranks.end()) figures->rank = rank->second;
    out.push_back(std::move(*figures));
  }
  return out;
}

}  // namespace kansoku::gpu::activity
