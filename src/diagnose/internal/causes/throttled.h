// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "diagnose/diagnose.h"
#include "diagnose/internal/causes/context.h"

namespace kansoku::diagnose {

/// A rank that its processor quota held back while its peers were not ("cpu_throttled").
[[nodiscard]] std::optional<Finding> find_throttled(const Context& context, const Options& options);

}  // namespace kansoku::diagnose
