// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/bytes.h"
#include "common/result.h"
#include "trace/model.h"

namespace kansoku::gpu::activity {

struct KinetoOptions {
  std::optional<std::int32_t> rank;  // of a recording with several: the others are left out
};

/// Counts of written and left-out events.
struct KinetoCounts {
  std::uint64_t event_count{0};     // slices, instants and counters
  std::uint64_t device_count{0};    // operations of devices among them
  std::uint64_t flow_count{0};      // arrows from launches to operations
  std::uint64_t left_out_count{0};  // rows with impossible times or tracks
  std::uint64_t sample_count{0};    // stack samples, which the format has no place for
  std::uint64_t moved_count{0};     // operations whose stream another process uses, too
};

/// The ranks that a recording holds, in order; kNoRank is none.
[[nodiscard]] std::vector<std::int32_t> ranks_of(const trace::Trace& trace);

/// Writes the events of one rank as Chrome JSON in the form of PyTorch's profiler
/// (docs/export-kineto.md lists the fields), in pieces of at most 256 KiB: memory does not grow
/// with the trace, but for its texts. kUnsupported if there are several ranks and none is chosen,
/// kNotFound for a rank that is not there, kCorrupt as read_device_work(); errors of the sink come
/// back as they are. Deterministic; any thread.
[[nodiscard]] Result<KinetoCounts> write_kineto(const trace::Trace& trace,
                                                const KinetoOptions& options, ByteSink& sink);

}  // namespace kansoku::gpu::activity
