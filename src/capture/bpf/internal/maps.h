// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bpf/libbpf.h>

#include <cstdint>
#include <span>

#include "common/bytes.h"
#include "common/result.h"

namespace kansoku::capture::bpf {

/// Writes entry `index` of the map `probes`; kLimit from `index_end` on.
[[nodiscard]] Result<void> describe_probe(bpf_map* probes, std::uint32_t index,
                                          std::uint32_t index_end, ByteSpan description);
/// The map `processes` of internal/observed.bpf.h.
[[nodiscard]] Result<void> observe_process(bpf_map* processes, std::int32_t pid);
void forget_process(bpf_map* processes, std::int32_t pid);
/// Sums of the map `losses` over all processors, as many as `totals` has; 0 for what cannot be
/// read.
void read_losses(bpf_map* losses, std::span<std::uint64_t> totals);

}  // namespace kansoku::capture::bpf
