// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/result.h"
#include "diagnose/diagnose.h"
#include "trace/import/flight_recorder.h"

namespace kansoku::diagnose {

/// Origin of dumps.
enum class DumpSource : std::uint8_t {
  kFiles,   // written at a timeout, maybe not by all ranks: a finding says what to look for next
  kMemory,  // read from the ranks at one moment
};

/// "group 0 (default_pg)".
[[nodiscard]] std::string group_text(const trace::import::DumpEntry& entry);

/// Explains a hang from the Flight Recorder dumps of its ranks: who waits for whom in which
/// operation, and at whom the waiting ends. One finding of kind "hang" a verdict, nothing found if
/// no rank waits. kNotFound without a dump, kCorrupt if two dumps are of the same rank or one has
/// none. Deterministic; pure; any thread. Method: docs/hangs.md.
[[nodiscard]] Result<Diagnosis> diagnose_dumps(std::span<const trace::import::FlightDump> dumps,
                                               DumpSource source = DumpSource::kFiles);

}  // namespace kansoku::diagnose
