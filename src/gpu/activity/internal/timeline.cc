// SPDX-License-Identifier: Apache-2.0
#include "gpu/activity/internal/timeline.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "gpu/activity/internal/spread.h"

namespace kansoku::gpu::activity {
namespace {

using stats::Interval;

constexpr std::int64_t kColumns = 1000;  // that a page can draw apart
constexpr std::size_t kLanesMax = 12;
// Without steps: so many stretches, each long enough to show a loop and short enough to be read.
constexpr std::int64_t kStretches = 40;
constexpr std::int64_t kStretchMinNs = 5'000'000, kStretchMaxNs = 250'000'000;

std::int64_t length(Interval time) {
  return time.end_ns - time.begin_ns;
}

/// Without steps: the stretch with the least work.
Interval idlest(const DeviceTime& time, Interval window) {
  const std::int64_t part_ns =
      std::clamp(length(window) / kStretches, kStretchMinNs, kStretchMaxNs);
  if (length(window) <= part_ns) return window;
  Interval best{window.begin_ns, window.begin_ns + part_ns};
  std::int64_t best_ns = -1;
  for (std::int64_t at_ns = window.begin_ns; at_ns + part_ns <= window.end_ns; at_ns += part_ns) {
    const Interval part{at_ns, at_ns + part_ns};
    const std::int64_t idle_ns = part_ns - time.busy.measure_ns(part);
    if (idle_ns > best_ns) std::tie(best_ns, best) = std::pair(idle_ns, part);
  }
  return best;
}

/// The operations of a stream in `part`; neighbours that are narrower than a column are one span.
std::vector<TimelineSpan> spans_of(const Input& in, const Stream& stream, Interval part) {
  const std::int64_t column_ns = std::max<std::int64_t>(1, length(part) / kColumns);
  std::vector<TimelineSpan> out;
  std::int64_t last_end_ns = 0, longest_ns = 0;
  for (const std::uint32_t i : stream.ops) {
    const Op& op = in.work.ops[i];
    const Interval shown{std::max(op.time.begin_ns, part.begin_ns),
                         std::min(op.time.end_ns, part.end_ns)};
    if (shown.begin_ns >= shown.end_ns) continue;
    const bool is_joined = !out.empty() && out.back().what == op.what &&
                           shown.begin_ns - last_end_ns < column_ns && length(shown) < column_ns &&
                           longest_ns < column_ns;
    last_end_ns = std::max(last_end_ns, shown.end_ns);
    if (is_joined) {
      TimelineSpan& span = out.back();
      span.us = us_of(last_end_ns - part.begin_ns) - span.begin_us;
      ++span.count;
      if (length(shown) <= longest_ns) continue;
      longest_ns = length(shown);
      span.name = in.args.string(in.trace.slices.name[op.slice]);
      continue;
    }
    longest_ns = length(shown);
    out.push_back({.begin_us = us_of(shown.begin_ns - part.begin_ns),
                   .us = us_of(length(shown)),
                   .what = op.what,
                   .name = std::string(in.args.string(in.trace.slices.name[op.slice])),
                   .count = 1});
  }
  return out;
}

std::vector<TimelineLane> lanes_of(const Input& in, const Device& device, Interval part,
                                   std::size_t& lane_count) {
  const auto index = static_cast<std::uint32_t>(&device - in.work.devices.data());
  std::vector<std::pair<double, TimelineLane>> lanes;
  for (const Stream& stream : streams_of(in.work, index)) {
    TimelineLane lane{.stream = stream.number, .spans = spans_of(in, stream, part)};
    if (lane.spans.empty()) continue;
    double us = 0;
    for (const TimelineSpan& span : lane.spans)
      us += span.us;
    lanes.emplace_back(us, std::move(lane));
  }
  lane_count = lanes.size();
  std::stable_sort(lanes.begin(), lanes.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  if (lanes.size() > kLanesMax) lanes.resize(kLanesMax);
  std::vector<TimelineLane> out;
  out.reserve(lanes.size());
  for (auto& [us, lane] : lanes)
    out.push_back(std::move(lane));
  std::stable_sort(out.begin(), out.end(), [](const TimelineLane& a, const TimelineLane& b) {
    return a.stream < b.stream;
  });
  return out;
}

}  // namespace

DeviceTimeline timeline_of(const Input& in, const Device& device, const DeviceTime& time,
                           Interval window, IdleCauses* causes, const Stretches& stretches) {
  DeviceTimeline out;
  out.pid = device.pid;
  out.rank = device.rank;
  out.ordinal = device.ordinal;
  Interval part{};
  if (const ProcessSteps* const steps = steps_of(in, device.pid); steps != nullptr) {
    out.step_count = steps->steps.size();
    for (std::size_t i = 0; i < steps->steps.size(); ++i) {
      if (length(steps->steps[i]) <= length(part)) continue;
      part = steps->steps[i];
      out.step = i;
    }
  } else {
    part = idlest(time, window);
  }
  out.us = us_of(length(part));
  out.lanes = lanes_of(in, device, part, out.lane_count);
  out.has_idle = causes != nullptr;
  if (causes == nullptr) return out;
  const std::int64_t column_ns = std::max<std::int64_t>(1, length(part) / kColumns);
  for (const IdleCauses::Gap& gap : causes->gaps(device, part, stretches)) {
    if (length(gap.time) < column_ns) continue;
    out.idle.push_back({.begin_us = us_of(gap.time.begin_ns - part.begin_ns),
                        .us = us_of(length(gap.time)),
                        .cause = gap.cause,
                        .function = std::string(gap.function)});
  }
  return out;
}

}  // namespace kansoku::gpu::activity
