// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "diagnose/diagnose.h"
#include "diagnose/internal/causes/context.h"

namespace kansoku::diagnose {

/// Functions of the job's own code in which every rank sleeps, outside of input and communication.
/// A note, no finding: that may be how the job waits for a device or a service, and nothing here
/// says how long it should take.
void note_common_waits(const Context& context, std::vector<std::string>& notes);

}  // namespace kansoku::diagnose
