// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/bytes.h"
#include "common/result.h"

namespace kansoku::trace::import {

/// A process group as one rank describes it.
struct DumpGroup {
  std::string name, description;
  std::vector<std::int32_t> ranks;
};

/// How far a group has come on one rank. The id is local to the rank; see FlightDump::group_of.
struct DumpStatus {
  std::int64_t local_id{0};
  std::int64_t enqueued{-1}, started{-1}, completed{-1};  // last collective; -1: not recorded
};

struct DumpFrame {
  std::string function, file;
  std::uint32_t line{0};
};

/// One operation in the recorder's ring.
struct DumpEntry {
  std::int64_t local_id{0};  // of the group
  std::string group_name, group_description;
  std::string name;   // "nccl:all_reduce", "nccl:send 0->3"; ranks in it count within the group
  std::string state;  // "scheduled", "started", "completed"
  std::int64_t collective_seq{0}, p2p_seq{0}, op_id{0};
  bool is_p2p{false}, is_retired{false};
  std::int64_t created_ns{0}, started_ns{0}, completed_ns{0};  // 0: not recorded
  std::int64_t timeout_ms{0};
  std::string input_sizes, input_dtypes, output_sizes, output_dtypes;  // "[[2048, 5120]]"
  std::vector<DumpFrame> frames;                                       // innermost first
  /// It has not ended, as far as its rank knows.
  [[nodiscard]] bool is_pending() const { return !is_retired && state != "completed"; }
  /// The entry of a coalesced group as a whole, behind those of its operations.
  [[nodiscard]] bool is_of_coalesced() const { return name.ends_with(":coalesced"); }
};

/// Dump that one rank wrote when its job hung.
struct FlightDump {
  std::int32_t rank{-1};
  std::string version, backend_version;
  bool counts_together{false};   // version 1: one counter of a group for collectives and transfers
  std::uint64_t bad_entries{0};  // left out: no group, number, name or state
  std::vector<DumpGroup> groups;
  std::vector<DumpStatus> status;
  std::vector<DumpEntry> entries;
};

struct FlightLimits {
  std::size_t entries_max{1'000'000};
  std::size_t groups_max{100'000};
  std::size_t text_bytes_max{64 << 10};
  std::size_t members_max{256};  // of an entry, a frame, a group
  // Limit of all that is kept: a pickle of a few kilobytes can name one long text a million times.
  std::size_t held_bytes_max{std::size_t{1} << 30};
};

/// Reads a Flight Recorder dump (TORCH_NCCL_TRACE_BUFFER_SIZE, TORCH_NCCL_DUMP_ON_TIMEOUT): a
/// pickle of plain data, or JSON. The rank is the number at the end of `file_name` ("_dump_12",
/// "nccl_trace_rank_3"). An operation inside of a coalesced group has no events of its own and is
/// "scheduled" for ever: it gets the state of the group's own entry, which follows. kCorrupt names
/// the offset or the member, kLimit the limit, kUnsupported a pickle that is more than data or a
/// version that is not known. Deterministic; any thread. Source: the format as
/// PyTorch writes versions 1.4, 2.2 and 2.9.
[[nodiscard]] Result<FlightDump> read_flight_recorder(ByteSpan untrusted,
                                                      std::string_view file_name,
                                                      const FlightLimits& limits);

/// The same in the recorder's JSON form (version 2.9), without frames, status and the rank: what
/// read_flight_recorder() reads of it equals `dump` but for these.
[[nodiscard]] std::string flight_recorder_json(const FlightDump& dump);

}  // namespace kansoku::trace::import
