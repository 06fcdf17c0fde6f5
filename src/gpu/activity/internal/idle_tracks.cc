// SPDX-License-Identifier: Apache-2.0
#include "gpu/activity/internal/idle_tracks.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "gpu/activity/internal/spread.h"

namespace kansoku::gpu::activity {
namespace {

using stats::Interval;

constexpr std::int64_t kShortestNs = 1000;  // narrower ones are below what device clocks tell apart

std::int64_t gap_ns(Interval time) {
  return time.end_ns - time.begin_ns;
}

/// Times of the gap in the recording: its operations may have been moved to fit the host's times.
Interval recorded_time(const Input& in, const IdleCauses::Gap& gap) {
  const auto time_of = [&](std::uint32_t op) { return in.host.time(in.work.ops[op].slice); };
  return {time_of(gap.before).end_ns, time_of(gap.after).begin_ns};
}

/// Drops the gaps that `keeps` refuses, and counts them.
template <typename Keeps>
void drop(IdleTrack& track, Keeps keeps) {
  std::erase_if(track.gaps, [&](const IdleGap& gap) {
    if (keeps(gap)) return false;
    ++track.left_out_count;
    track.left_out_us += us_of(gap_ns(gap.time));
    return true;
  });
}

}  // namespace

IdleTrack idle_track_of(const Input& in, const Device& device, const DeviceTime& time,
                        IdleCauses& causes) {
  IdleTrack out{.pid = device.pid, .ordinal = device.ordinal, .gaps = {}};
  const Stretches stretches = is_allowed(Figure::kLaunchBound, in.recorded)
                                  ? launch_bound_stretches(in, device, time.window)
                                  : Stretches{};
  std::int64_t done_ns = 0;
  for (const IdleCauses::Gap& gap : causes.gaps(device, time.window, stretches)) {
    Interval shown = recorded_time(in, gap);
    shown.begin_ns = std::max(shown.begin_ns, done_ns);
    if (shown.begin_ns >= shown.end_ns) continue;  // moved apart
    done_ns = shown.end_ns;
    if (gap_ns(shown) >= kShortestNs) {
      out.gaps.push_back({shown, gap.cause, std::string(gap.function)});
    } else {
      ++out.left_out_count;
      out.left_out_us += us_of(gap_ns(shown));
    }
  }
  return out;
}

void keep_longest(std::vector<IdleTrack>& tracks, std::size_t slices_max) {
  std::vector<std::int64_t> lengths;
  for (const IdleTrack& track : tracks) {
    for (const IdleGap& gap : track.gaps)
      lengths.push_back(gap_ns(gap.time));
  }
  if (lengths.size() <= slices_max) return;
  const auto limit = lengths.begin() + static_cast<std::ptrdiff_t>(slices_max);
  std::nth_element(lengths.begin(), limit, lengths.end(), std::greater<>());
  const std::int64_t limit_ns = *limit;  // the longest that is left out
  // Among equally long ones, the first stay.
  std::size_t room = slices_max - static_cast<std::size_t>(std::count_if(
                                      lengths.begin(), lengths.end(),
                                      [&](std::int64_t ns) { return ns > limit_ns; }));
  for (IdleTrack& track : tracks) {
    drop(track, [&](const IdleGap& gap) {
      const std::int64_t ns = gap_ns(gap.time);
      if (ns != limit_ns) return ns > limit_ns;
      if (room == 0) return false;
      --room;
      return true;
    });
  }
}

}  // namespace kansoku::gpu::activity
