// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kansoku {

/// Instruction sets of processors, each with all of those before it. Hot loops are compiled once
/// for each and give the same bits with all; the owner of the loops names exceptions.
enum class Isa : std::uint8_t { kV2, kV3, kV4 };

/// "x86-64-v3"; any thread.
[[nodiscard]] std::string_view isa_name(Isa isa);
[[nodiscard]] std::optional<Isa> isa_from_name(std::string_view name);
/// The best that this machine has.
[[nodiscard]] Isa best_isa();

}  // namespace kansoku
