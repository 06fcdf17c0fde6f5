// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "diagnose/diagnose.h"
#include "diagnose/internal/causes/context.h"

namespace kansoku::diagnose {

/// Ranks from whose hosts the hypervisor takes the processors away ("stolen"), as the kernels count
/// it. Nothing where no kernel of the job counts any.
[[nodiscard]] std::optional<Finding> find_stolen(const Context& context);

}  // namespace kansoku::diagnose
