// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kansoku::gpu::activity {

/// Bus bandwidth is this factor times S / t, for `ranks` ranks and the names of collective_of().
/// S is the whole array: of allgather, reducescatter and alltoall the parts of all ranks together.
/// Nothing for other operations and for no ranks. Source: nccl-tests, doc/PERFORMANCE.md.
[[nodiscard]] std::optional<double> bus_factor_of(std::string_view collective, std::uint64_t ranks);

/// S from the bytes that NCCL's call names: its count of allgather, reducescatter and alltoall is
/// one rank's part, so S is that times the ranks: nothing without them.
[[nodiscard]] std::optional<std::uint64_t> whole_bytes_of(std::string_view collective,
                                                          std::uint64_t call_bytes,
                                                          std::optional<std::uint64_t> ranks);

}  // namespace kansoku::gpu::activity
