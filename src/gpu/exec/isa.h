// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kansoku::gpu::exec {

/// Which instruction set the lane loops were compiled for. All give the same bits; only sin and cos
/// of angles beyond 2^17 are the mathematical library's, which may differ from machine to machine.
enum class Isa : std::uint8_t { kV2, kV3, kV4 };

/// "x86-64-v3"; any thread.
[[nodiscard]] std::string_view isa_name(Isa isa);
[[nodiscard]] std::optional<Isa> isa_from_name(std::string_view name);
/// The best that this machine has.
[[nodiscard]] Isa best_isa();

}  // namespace kansoku::gpu::exec
