// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "sys/procfs.h"

namespace kansoku::capture::hang {

/// A call of torch.distributed, as PyTorch's Flight Recorder keeps it.
struct FlightCall {
  std::uint64_t id{0};  // number in its process
  std::uint64_t group_id{0};
  std::string group, description;  // name and description of its process group
  std::string name;                // "gloo:all_reduce"
  std::uint64_t collective_seq{0}, p2p_seq{0}, op_id{0};
  std::int64_t created_ns{0};  // since 1970
  std::int64_t timeout_ms{0};
  bool is_p2p{false}, is_retired{false};
  std::vector<std::int64_t> input_dims, output_dims;  // of each tensor: how many sizes it has
  std::vector<std::int64_t> sizes;                    // of all tensors, end to end
};

struct FlightGroup {
  std::string name, description;
  std::vector<std::int32_t> ranks;
};

/// Calls that the recorder holds, by id; its groups.
struct FlightMemory {
  std::vector<FlightCall> calls;
  std::vector<FlightGroup> groups;
  std::uint64_t bad_calls{0};  // whose bytes are no call
  std::int64_t read_ns{0};     // since 1970
};

/// Header of the recorder's object in PyTorch 2.15. Nothing if `untrusted` (at least
/// flight_head_bytes()) is none: a flag, a vector of entries, their greatest number, and two
/// counters, that fit each other.
struct FlightHead {
  std::uint64_t entries_begin{0}, entry_count{0}, made{0};
  std::uint64_t groups_root{0};  // of a red-black tree
};
[[nodiscard]] std::size_t flight_head_bytes();
[[nodiscard]] std::optional<FlightHead> flight_head(ByteSpan untrusted, std::uint64_t most_entries);

/// Calls and groups of the recorder with that header in a process's memory.
[[nodiscard]] FlightMemory read_flight_object(std::int32_t pid, const FlightHead& head);

/// Calls that a process's Flight Recorder holds, from its memory: without a dump, and without the
/// process doing anything. Nothing if it has no PyTorch with a layout that is known, or keeps no
/// calls. What changes while it is read is left out, or counted. Untrusted input; any thread.
[[nodiscard]] std::optional<FlightMemory> read_flight_memory(const sys::Procfs& procfs,
                                                             std::int32_t pid);

}  // namespace kansoku::capture::hang
