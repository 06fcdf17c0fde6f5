// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "common/result.h"
#include "diagnose/diagnose.h"
#include "trace/model.h"

namespace kansoku::diagnose {

/// Diagnoses an operation timeline of a pipeline- and data-parallel job by what-if simulation: one
/// slow worker, stages of unequal work, micro-batches of unequal work, or nothing found. No value
/// if `trace` is no such timeline. Fails as what_if() does. Deterministic for `options.seed`; pure;
/// any thread.
[[nodiscard]] Result<std::optional<Diagnosis>> diagnose_timeline(const trace::Trace& trace,
                                                                 const Options& options);

}  // namespace kansoku::diagnose
