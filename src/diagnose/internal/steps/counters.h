// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string_view>

#include "diagnose/internal/steps/job.h"
#include "trace/model.h"

namespace kansoku::diagnose {

/// By rank number, by how much a counter of its process (or of a track below) grows a nanosecond of
/// `within`, in the counter's unit. Ranks with fewer than two values of it are left out.
[[nodiscard]] std::map<std::int32_t, double> growth_of(const trace::Trace& trace,
                                                       const JobData& job, std::string_view counter,
                                                       Interval within = {0, kTimeMaxNs});

}  // namespace kansoku::diagnose
