// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/time.h"
#include "trace/import/flight_recorder.h"
#include "trace/model.h"
#include "trace/writer.h"

namespace kansoku::trace::import {

/// Category of the instants that hold it in a recording.
inline constexpr std::string_view kFlightCategory = "kansoku.flight";

/// Calls that a process's Flight Recorder held when a recording ended.
struct RecordedFlight {
  /// Use of storage while the process was observed.
  enum class Storage : std::uint8_t { kUnknown, kStill, kMoves };
  std::int32_t pid{0};
  std::int64_t read_ns{0};  // since 1970
  Storage storage{Storage::kUnknown};
  FlightDump dump;  // of no rank, without frames, types, status and versions
};

/// Writes instants of kFlightCategory on a track of the process: one a call in their order, some a
/// group, one for the rest. Texts are cut as the writer cuts them.
void write_recorded_flight(Writer& writer, const RecordedFlight& flight, BootTime now);

/// Calls that a recording holds, by process, ascending; of a process that was written twice, the
/// last. Odd events are left out, and counted as its bad entries. Pure; any thread.
[[nodiscard]] std::vector<RecordedFlight> read_recorded_flight(const Trace& trace);

}  // namespace kansoku::trace::import
