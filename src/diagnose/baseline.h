// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "common/json.h"
#include "common/result.h"
#include "diagnose/diagnose.h"

namespace kansoku::diagnose {

/// Baseline of a job: figures of a healthy run, to compare later runs with: schema
/// "kansoku.baseline/2". Fails with kNotFound if the diagnosis has no steps, and with kUnsupported
/// if it has findings: a baseline must be healthy.
[[nodiscard]] Result<Json> make_baseline(const Diagnosis& diagnosis);

/// A finding of kind "regression" if the median step is longer than the baseline's by more than
/// kSlowdownMin and their 95 % intervals lie apart, with the phase and the function that grew most;
/// nothing otherwise. kUnsupported if `untrusted` is no baseline or of another number of ranks.
/// Source: FLARE's comparison with healthy history (second-hand); the test is ours.
[[nodiscard]] Result<std::optional<Finding>> compare_with_baseline(const Diagnosis& diagnosis,
                                                                   const Json& untrusted);

/// Adds it to the findings. If waiting for a processor grew most, and a finding says who has it,
/// the comparison is a line of that finding.
void add_regression(Diagnosis& diagnosis, Finding regression);

}  // namespace kansoku::diagnose
