// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "common/bytes.h"
#include "common/result.h"
#include "trace/model.h"

namespace kansoku::trace {

struct ReadOptions {
  std::uint64_t events_max{400'000'000};  // slices, instants, samples, switches together, and their
                                          // parts: arguments, tracks, stack frames
  std::uint64_t inflated_chunk_bytes_max{
      16U << 20};  // one compressed packet; Perfetto writes less than 512 KB
  std::uint64_t strings_bytes_max{1ULL << 30};
  std::uint32_t stack_frames_max{4096};
  std::uint32_t args_per_event_max{256};
  std::uint32_t sequences_max{1U << 16};  // writers of one trace; Perfetto has one a thread
};

STAT(trace_truncated_tail, kDataLoss, kImport,
     "the file ends inside a packet (the recorder was killed); everything before it was read");
STAT(trace_end_without_begin, kNotice, kImport, "slice ends whose begin lies before the recording");
STAT(trace_unknown_reference, kDataLoss, kImport,
     "events that refer to a name, track or stack that the trace never declared");
STAT(trace_cut_events, kDataLoss, kImport,
     "stack frames, arguments and flows of single events beyond the reader's limits were left out");

/// Reads a Perfetto trace (ours or another's: track events, perf samples, ftrace sched events) into
/// columns. `untrusted` is the whole file and is borrowed for the call. A packet cut off at the
/// very end is counted as trace_truncated_tail; any other damage is kCorrupt and names the byte
/// offset in the file; over a limit is kLimit. Deterministic; any thread. Memory is bounded by the
/// limits in `options`.
[[nodiscard]] Result<Trace> read_trace(ByteSpan untrusted, const ReadOptions& options = {});

}  // namespace kansoku::trace
