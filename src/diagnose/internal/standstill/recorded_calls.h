// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "diagnose/diagnose.h"
#include "trace/import/recorded_flight.h"

namespace kansoku::diagnose {

/// Joins a job with the calls that its ranks made before the recording began, as far as the
/// recording holds them.
void join_recorded_calls(std::span<const trace::import::RecordedFlight> recorded, Diagnosis& job);

}  // namespace kansoku::diagnose
