// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "common/bytes.h"
#include "common/result.h"
#include "gpu/activity/activity.h"
#include "trace/model.h"

namespace kansoku::gpu::activity {

/// Counts of the additions to a copy of a recording.
struct TracksWritten {
  std::uint64_t idle_track_count{0}, gap_count{0};
  std::uint64_t left_out_count{0};  // gaps that are too short, or too many
  double left_out_us{0};
  std::uint64_t step_count{0};
  std::uint64_t cost_count{0};  // instants of Kansoku's own cost
};

/// Writes the recording with tracks of the figures that `report` derives from it, below their
/// processes (docs/formats/trace.md): idle time of devices by cause, steps, Kansoku's own cost.
/// `recording`: the bytes that `trace` was read from; `report`: of it, with Options::with_tracks.
/// Reports of the copy are those of the recording. kUnsupported if the recording has such tracks
/// already, or leaves no numbers free (trace/append.h); errors of the sink come back as they are.
/// Deterministic; any thread.
[[nodiscard]] Result<TracksWritten> write_tracks(const trace::Trace& trace,
                                                 const WorkReport& report, ByteSpan recording,
                                                 ByteSink& sink);

}  // namespace kansoku::gpu::activity
