// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "common/bytes.h"
#include "common/result.h"
#include "trace/writer.h"

namespace kansoku::trace {

/// Point at which a Writer goes on behind a recording: a file is a row of packets, so packets with
/// a sequence and tracks of their own can follow.
struct AppendPoint {
  std::size_t whole_bytes{0};  // of the file; a torn packet follows
  bool is_torn{false};
  WriterOptions options;                          // with a sequence and uuids that are free
  std::map<std::int32_t, TrackHandle> processes;  // the tracks of the file's processes
};

/// Finds the numbers that a file uses; its bytes are borrowed for the call. kCorrupt as
/// read_trace(); kUnsupported if it leaves no number free that a Writer has: not written by
/// Kansoku. A process is never declared again: a viewer takes a second track of one for another
/// process with the same number.
[[nodiscard]] Result<AppendPoint> append_point(ByteSpan untrusted);

}  // namespace kansoku::trace
