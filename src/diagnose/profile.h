// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"
#include "diagnose/diagnose.h"
#include "trace/model.h"

namespace kansoku::diagnose {

/// Diagnoses traces that a framework's profiler wrote (PyTorch, Kineto), one or more ranks: share
/// of the window in which the device waits for input, ranks that behave unlike their peers,
/// collectives in which peers wait for a late rank. Never fails on odd events; notes name the parts
/// that could not be judged. Deterministic for `options.seed`; pure; any thread. Method:
/// docs/import.md.
[[nodiscard]] Result<Diagnosis> diagnose_profile(const trace::Trace& trace, const Options& options);

}  // namespace kansoku::diagnose
