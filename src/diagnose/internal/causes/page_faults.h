// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diagnose/diagnose.h"
#include "diagnose/internal/causes/context.h"

namespace kansoku::diagnose {

/// Ranks that lose time to page faults ("page_faults"): more than the rank that loses least, or all
/// of them where each loses enough.
[[nodiscard]] std::optional<Finding> find_page_faults(const Context& context,
                                                      const Options& options);

/// An excess of work_without_kernel() that faults may explain all the same, in milliseconds: their
/// price is not known better.
[[nodiscard]] double fault_doubt_ms(const Context& context);

}  // namespace kansoku::diagnose
