// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "diagnose/internal/steps/job.h"
#include "diagnose/pattern.h"
#include "trace/model.h"

namespace kansoku::diagnose {

/// The behaviour of every rank of a recording over one window.
struct RecordedPatterns {
  std::vector<Pattern> ranks;      // in the order of JobData::ranks
  std::vector<std::string> names;  // by function
};

/// Operators and collectives from probes, Python from stack samples (equal functions have equal
/// call stacks, lines aside), input from the data loader's steps. `use` is the share of an
/// execution in which its thread was on a processor, known for main threads with scheduler events,
/// else 0.
[[nodiscard]] RecordedPatterns recorded_patterns(const trace::Trace& trace, const JobData& job,
                                                 std::int64_t begin_ns, std::int64_t end_ns);

}  // namespace kansoku::diagnose
