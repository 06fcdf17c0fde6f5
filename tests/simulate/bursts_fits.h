// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bursts_weeks.h"
#include "common/result.h"

namespace kansoku::simulate {

/// Prints how well families and mixtures describe durations, on all of them and on a random and a
/// temporal split, and which family is closest in each hour of week, as Markdown.
[[nodiscard]] Result<void> print_fits(const Recording& recording);

}  // namespace kansoku::simulate
