// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <span>

#include "diagnose/diagnose.h"
#include "trace/import/flight_recorder.h"

namespace kansoku::diagnose {

/// Calls that the ranks of a job made, from their Flight Recorders.
struct FlightCalls {
  std::span<const trace::import::FlightDump> dumps;  // one a rank; some may have none
  std::int64_t read_ns{0};                           // since 1970; of the rank that was read last
  std::int64_t first_read_ns{0};        // of the rank that was read first; 0: all were at once
  std::set<std::int32_t> with_storage;  // ranks that read or wrote files while they were looked at
};

/// Joins what the stacks of a job that stands tell with the calls that its ranks made before.
/// Stacks say where a rank is; calls say in which one who waits for whom, and since when:
/// - A finding of the stacks gets the calls that its ranks are awaited in, and when they last made
///   one; its cost is how long the others have waited.
/// - Where stacks name nobody, ranks are named that are in another call than their peers, or
///   behind them, at the place where their stacks stand; so it is where stacks only tell who is in
///   another call than most, since calls know their groups. Only if every rank has waited since
///   before the first was read, and for kStandstillMinMs: ranks are not read at one moment.
/// - A rank at work in one place that has made no call for kHangStepMultiple times its longest
///   pause, of whose calls none was left out, and neither reads nor writes files, hangs; else a
///   note tells both times.
/// Nothing is changed in a job that moves, and little without calls. Pure; any thread.
void join_flight_calls(const FlightCalls& calls, Diagnosis& job);

}  // namespace kansoku::diagnose
