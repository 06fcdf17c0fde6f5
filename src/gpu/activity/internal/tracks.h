// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trace/model.h"

namespace kansoku::gpu::activity {

/// Later times are no times: sums of two still fit.
inline constexpr std::int64_t kTimeMaxNs = std::int64_t{1} << 61;

}  // namespace kansoku::gpu::activity
