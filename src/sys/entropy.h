// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "common/result.h"

namespace kansoku::sys {

/// 64 bits from the kernel's random generator: for secrets and names, never for results
/// (common/rng.h gives numbers that can be repeated). Any thread.
[[nodiscard]] Result<std::uint64_t> random_u64();

}  // namespace kansoku::sys
