// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/bytes.h"
#include "sys/procfs.h"
#include "trace/import/flight_recorder.h"

namespace kansoku::capture::hang {

/// Calls that the recorder holds, in their order, and its groups; of no rank. `bad_entries` are
/// those whose bytes are no call.
struct FlightMemory {
  trace::import::FlightDump dump;
  std::int64_t read_ns{0};  // since 1970
};

/// Header of the recorder's object in PyTorch 2.9 to 2.15.
struct FlightHead {
  std::size_t layout{0};  // of the versions that are known
  std::uint64_t entries_begin{0}, entry_count{0}, made{0};
  std::uint64_t groups_root{0};  // of a red-black tree
  std::uint64_t next{0};         // entry that the next call takes: the room is a ring
};
[[nodiscard]] std::size_t flight_head_bytes();
/// One for each layout that fits; none if `untrusted` (at least flight_head_bytes()) is no header:
/// a flag, a vector of entries, their greatest number, and two counters, that fit each other.
[[nodiscard]] std::vector<FlightHead> flight_heads(ByteSpan untrusted, std::uint64_t most_entries);

/// Calls and groups of the recorder with that header in a process's memory: the newest 20,000
/// calls. Without groups where most of the calls are none, which is another object.
[[nodiscard]] FlightMemory read_flight_object(std::int32_t pid, const FlightHead& head);

/// Calls that a process's Flight Recorder holds, from its memory: without a dump, and without the
/// process doing anything. Nothing if it has no PyTorch with a layout that is known, or keeps no
/// calls. What changes while it is read is left out, or counted. Untrusted input; any thread.
[[nodiscard]] std::optional<FlightMemory> read_flight_memory(const sys::Procfs& procfs,
                                                             std::int32_t pid);

}  // namespace kansoku::capture::hang
