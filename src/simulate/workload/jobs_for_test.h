// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "simulate/workload/arrivals.h"
#include "simulate/workload/workload.h"

namespace kansoku::simulate {

/// Made-up jobs of `weeks` weeks from a Monday 00:00 with the properties of real ones: bursts of
/// one group with like durations and equal GPUs, more of them by day than by night.
[[nodiscard]] Workload bursty_workload(int weeks, std::uint64_t seed);

/// Jobs that a stream gives before `span`; jobs without a recorded one have only their time.
[[nodiscard]] std::vector<Job> jobs_before(const ArrivalModel& model, std::int64_t start_in_week_s,
                                           std::uint64_t seed, Nanos span);

}  // namespace kansoku::simulate
