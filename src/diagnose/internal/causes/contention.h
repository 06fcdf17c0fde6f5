// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "diagnose/diagnose.h"
#include "diagnose/internal/causes/context.h"

namespace kansoku::diagnose {

/// Adds what waits for a processor ("cpu_contention"): a rank that queues for longer than its
/// peers, and ranks that queue for long whatever their peers do, with who has the processor
/// meanwhile. For a rank that `findings` has already, queueing more is a line of evidence. `notes`
/// gets what a job takes from itself, where that is too little for a finding.
void find_contention(const Context& context, const Options& options, std::vector<Finding>& findings,
                     std::vector<std::string>& notes);

}  // namespace kansoku::diagnose
