// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "diagnose/diagnose.h"
#include "trace/model.h"

namespace kansoku::diagnose {

/// Trouble with the device work of some processes of one job, as found by the reader of device
/// work.
struct DeviceFinding {
  std::string kind;    // slow_kernel launch_bound copy_bound memory_pressure gpu_starved
  std::string detail;  // the cause within the kind: clocked_lower, synchronisation, leak, ...
  std::vector<std::int32_t> ranks, pids;  // no ranks: the process tells none
  std::optional<double> share;            // of the step or window
  std::string verdict;                    // a sentence
  std::vector<std::string> evidence;
};

/// Judgement of a trace's device work: the processes judged, and the findings.
struct DeviceJudgement {
  std::vector<DeviceFinding> findings;
  std::vector<std::int32_t> pids;  // of all processes whose devices were judged
  std::vector<std::pair<std::int32_t, std::string>> notes{};  // by process
};

/// Joins it with the diagnosis of the same trace. Each finding goes to the job that has its
/// processes; a judged process that is in no job becomes a job of its own. If device and host show
/// the same thing, it is one finding, told by the side that knows the cause, with the other as a
/// line of its evidence. Findings, victims and jobs are put in order anew.
void add_device_findings(const trace::Trace& trace, const DeviceJudgement& judged,
                         Diagnosis& diagnosis);

}  // namespace kansoku::diagnose
