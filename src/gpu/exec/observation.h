// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "gpu/exec/fault.h"
#include "gpu/exec/memory.h"

namespace kansoku::gpu::exec {

/// Observations that a launch makes of itself. Each slows it down, none changes its results; a
/// launch that asks for nothing pays nothing.
struct Observe {
  bool hazards{false};      // races and uninitialised reads in shared memory
  bool profile{false};      // counts of instructions, divergence, coalescing, bank conflicts
  bool access_sets{false};  // which bytes of global memory are read and written
  [[nodiscard]] bool any() const { return hazards || profile || access_sets; }
};

enum class InstructionClass : std::uint8_t {
  kInteger,
  kFloat,
  kConversion,
  kMove,
  kGlobalLoad,
  kGlobalStore,
  kSharedLoad,
  kSharedStore,
  kOtherMemory,  // local, parameters, constants
  kAtomic,
  kControl,
  kBarrier,
  kWarp,  // shuffles, votes, matrices
  kCount
};
/// "global load"; any thread.
[[nodiscard]] std::string_view class_name(InstructionClass which);

struct InstructionCount {
  std::uint64_t warps{0};    // times a warp executed it
  std::uint64_t threads{0};  // lanes that were active, added up
};

/// Counts of one launch. A sector is 32 bytes of global memory that lie aligned; "needed" is the
/// smallest number that could hold the bytes asked for. A pass of shared memory serves one word of
/// each of 32 banks.
struct Profile {
  std::array<InstructionCount, static_cast<std::size_t>(InstructionClass::kCount)> classes{};
  struct Line {
    std::uint32_t line{0};  // of the PTX text
    InstructionCount count;
  };
  std::vector<Line> lines;  // that were executed, by line
  std::uint64_t branches{0}, divergent_branches{0};
  std::uint64_t global_requests{0}, global_sectors{0}, global_sectors_needed{0};
  std::uint64_t shared_requests{0}, shared_passes{0}, shared_passes_needed{0};

  [[nodiscard]] InstructionCount total() const;
};

/// Bytes of global memory, apart and by address. An atomic operation reads and writes.
struct AccessSets {
  std::vector<Memory::Range> read, written;
  /// Inputs of the launch: read before this launch had written them. With several workers, bytes
  /// that one block writes and another reads are in here too.
  std::vector<Memory::Range> read_first;
};

struct Observations {
  std::vector<Fault> hazards;     // one a pair of lines, in the order of blocks; kHazardsMax
  std::uint64_t hazard_count{0};  // all that were seen
  Profile profile;
  AccessSets sets;
  static constexpr std::size_t kHazardsMax = 100;
};

}  // namespace kansoku::gpu::exec
