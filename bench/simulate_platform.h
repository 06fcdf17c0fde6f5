// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"

namespace kansoku::bench {

/// Prints `bench simulate/platform ...`: `rounds` runs with and without records, `share` of a year
/// each, timed by `processor_seconds`.
[[nodiscard]] Result<void> platform_year(int rounds, double share, double (*processor_seconds)());

}  // namespace kansoku::bench
