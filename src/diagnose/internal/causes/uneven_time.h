// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "diagnose/diagnose.h"
#include "diagnose/internal/causes/context.h"

namespace kansoku::diagnose {

/// Windows of equal length in the time in which every rank was seen, as a table of steps; the time
/// until a rank's last Python import is left out as its start. Empty without scheduler events of
/// every rank, or if that time is too short.
[[nodiscard]] StepTable time_windows(const trace::Trace& trace, const JobData& job);

/// Ranks that have processors for longer than their peers ("uneven_time"), in windows of time; not
/// located. `notes` gets how the ranks spend their time if none is named: of two ranks none is, and
/// none that sleeps for longer.
[[nodiscard]] std::vector<Finding> find_uneven_time(const Context& context, const Options& options,
                                                    std::vector<std::string>& notes);

}  // namespace kansoku::diagnose
