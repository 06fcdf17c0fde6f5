// SPDX-License-Identifier: Apache-2.0
#include "gpu/activity/internal/host_slices.h"

#include <algorithm>

#include "gpu/activity/internal/tracks.h"

namespace kansoku::gpu::activity {

stats::Interval HostSlices::time(std::uint32_t slice) const {
  const std::int64_t begin_ns =
      std::clamp<std::int64_t>(trace_.slices.start_ns[slice], 0, kTimeMaxNs);
  const std::int64_t duration_ns = trace_.slices.duration_ns[slice];
  const std::int64_t end_ns = duration_ns < 0 ? std::clamp(trace_.end_ns, begin_ns, kTimeMaxNs)
                                              : begin_ns + std::min(duration_ns, kTimeMaxNs);
  return {begin_ns, end_ns};
}

HostSlices::HostSlices(const trace::Trace& trace, const DeviceWork& work)
    : trace_(trace), parents_(trace.slices.size(), kNoIndex) {
  std::vector<std::uint32_t> open;
  for (const Thread& thread : work.threads) {
    open.clear();
    for (const std::uint32_t slice : thread.slices) {
      const stats::Interval at = time(slice);
      while (!open.empty() && time(open.back()).end_ns <= at.begin_ns)
        open.pop_back();
      // A slice that only laps over the end of another is not inside it.
      while (!open.empty() && time(open.back()).end_ns < at.end_ns)
        open.pop_back();
      if (!open.empty()) parents_[slice] = open.back();
      open.push_back(slice);
    }
  }
}

}  // namespace kansoku::gpu::activity
