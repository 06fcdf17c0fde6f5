// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace kansoku::gpu::exec {

inline constexpr std::uint32_t kLanes = 32;
inline constexpr std::size_t kSlotBytes = 128;  // 32 lanes of 32 bits; 64-bit registers take two

struct Warp;
struct Code;

/// Executes one instruction for the active lanes; gives the next one, or null to stop the warp
/// (Warp::stop says why).
using Handler = const Code* (*)(Warp&, const Code*);

/// One decoded instruction. Slots are numbers of 128-byte pieces of the warp's register file,
/// predicates numbers of lane masks.
struct Code {
  Handler run{nullptr};
  std::uint16_t d{0}, a{0}, b{0}, c{0};
  std::int32_t offset{0};  // of an address; target of a branch, relative to this code
  std::uint32_t site{0};   // memory instructions: number within the function, for range caches
  std::uint32_t line{0};   // of the PTX text
  std::uint32_t extra{0};  // by opcode: special register, call site, flags
};

/// Type of a lane of a register: 16-bit values lie zero-extended in 32 bits.
template <class T>
using Container = std::conditional_t<(sizeof(T) > 4), std::uint64_t, std::uint32_t>;

}  // namespace kansoku::gpu::exec
