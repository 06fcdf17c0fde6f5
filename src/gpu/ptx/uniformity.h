// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/ptx/cfg.h"
#include "gpu/ptx/ir.h"

namespace kansoku::gpu::ptx {

/// Among which threads a value is the same; a later one holds in smaller groups. Joins take the
/// maximum.
enum class Uniformity : std::uint8_t { kGrid, kBlock, kWarp, kVarying };

/// For each register, the widest group in which all its values are known to agree, among threads
/// that run the reading instruction together. Sound, not complete: memory that may be written is
/// taken for varying, unless the address agrees within the warp and the load reads parameters or
/// constants.
struct UniformityResult {
  std::vector<Uniformity> registers;
  std::vector<Uniformity>
      branches;                    // by block: of the branch at its end; kGrid where there is none
  std::vector<bool> is_divergent;  // by block: some threads of a warp may run it without others
};
[[nodiscard]] UniformityResult analyse_uniformity(const Function& function, const Cfg& cfg);

}  // namespace kansoku::gpu::ptx
