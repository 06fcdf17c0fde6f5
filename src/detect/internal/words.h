// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "trace/incident.h"

namespace kansoku::detect::words {

// Every sentence of an incident and of a scored run. Format strings of fmt, checked where they are
// used. The descriptions of features stand in their table (detect/feature.cc).

// Incidents.
inline constexpr char kAllRanks[] = "all ranks";
inline constexpr char kProcess[] = "pid {}";
inline constexpr char kStopped[] = "; stopped by a signal";
inline constexpr char kNormal[] = "; {} normal";
inline constexpr char kGrows[] = "{}: {} {} -> {}, growing by {} a minute";
inline constexpr char kResidentMemory[] = "resident memory";
inline constexpr char kDeviceMemory[] = "memory on the device";
inline constexpr char kRecordProcess[] = "kansoku record --pid {} --duration 20s -o job.pftrace";
inline constexpr char kProfileJob[] = "kansoku profile --job {} --window 20s";

// Scored runs.
inline constexpr char kRun[] = "{} steps of {} rank{}";
inline constexpr char kAgainstOwnPast[] = "; {} {:.2f} x its own past";
inline constexpr char kAgainstModel[] = "; {:.2f} x the model, {:.1f} % of points flagged";
inline constexpr char kNote[] = "\nnote: {}";
inline constexpr char kNothingFound[] = "\nnothing found";
inline constexpr char kRunIncident[] = "\nsteps {:.10g} to {:.10g} ({} windows; {}): {}";
inline constexpr char kSeldom[] = " in {} of {} steps";
inline constexpr char kNoSingleRank[] = "no single rank";
inline constexpr char kFewSteps[] =
    "too few steps for a reference of its own: not compared with it";
inline constexpr char kTwoRanks[] = "two ranks: none can be told from its peers";
inline constexpr char kPastNotUsed[] = "its own past is not used: {}";
inline constexpr char kModelNotSteady[] = "the model's healthy run was not steady";

/// "rank 2", "ranks 1, 3"; `none` if there are none.
[[nodiscard]] std::string ranks_text(std::span<const std::int32_t> ranks, std::string_view none);
enum class Names : std::uint8_t {
  kSpoken,     // of features of ours: "TCP retransmits"
  kAsWritten,  // of columns of a table that the user made
};
/// ": collective p99 4.1 ms -> 38 ms, TCP retransmits 0/s -> 210/s": the first three rows that
/// carry a noticeable share. "" if there are none.
[[nodiscard]] std::string changes_text(std::span<const trace::Evidence> rows, Names names);

}  // namespace kansoku::detect::words
