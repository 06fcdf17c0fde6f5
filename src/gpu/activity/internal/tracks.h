// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trace/model.h"

namespace kansoku::gpu::activity {

/// Later times are no times: sums of two still fit.
inline constexpr std::int64_t kTimeMaxNs = std::int64_t{1} << 61;

/// The process of a track, also of one that only stands below a process's track; 0 if there is
/// none.
[[nodiscard]] inline std::int32_t process_of_track(const trace::Trace& trace, trace::TrackId id) {
  constexpr int kDepthMax = 8;
  for (int depth = 0; depth < kDepthMax && id.raw < trace.tracks.size(); ++depth) {
    const trace::Track& track = trace.tracks[id.raw];
    const bool says = track.pid != 0 || track.kind == trace::TrackKind::kProcess ||
                      track.kind == trace::TrackKind::kThread;
    if (says) return track.pid;
    id = track.parent;
  }
  return 0;
}

}  // namespace kansoku::gpu::activity
