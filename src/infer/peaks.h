// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "common/time.h"
#include "infer/report.h"

namespace kansoku::infer {

/// Measures the peak rates of this machine on `threads` threads: bytes read from memory beyond its
/// caches, and single-precision multiply-adds in registers, two FLOPs each, with the widest
/// instructions that it has. Takes some 300 ms and 64 MiB a thread; other load lowers it. Blocks.
[[nodiscard]] Peaks measure_peaks(std::uint32_t threads, const Clock& clock);

}  // namespace kansoku::infer
