// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace kansoku::gpu::exec {

/// Kinds of work that a model of a GPU's time tells apart.
enum class CostClass : std::uint8_t {
  kArithmetic,  // integers, single precision, logic, comparisons, moves
  kMultiply,    // of integers
  kConversion,
  kSpecial,   // sine to reciprocal root, approximate
  kDivision,  // and exact roots: sequences on hardware
  kHalf,      // f16, bf16, pairs of them
  kDouble,
  kExchange,  // between lanes: shuffles, votes
  kMatrix,
  kControl,
  kBarrier,
  kShared,  // accesses, by memory
  kGlobal,
  kOther,  // local, parameters, constants
  kAtomic,
  kCount
};
inline constexpr std::size_t kCostClasses = static_cast<std::size_t>(CostClass::kCount);
/// "arithmetic"; any thread.
[[nodiscard]] std::string_view cost_class_name(CostClass which);

/// Cost of one warp instruction. Integers, so that sums do not depend on their order.
struct ClassCost {
  std::uint32_t issue16{0};         // sixteenths of a cycle that its multiprocessor is busy
  std::uint32_t latency_cycles{0};  // until its warp goes on
  friend bool operator==(const ClassCost&, const ClassCost&) = default;
};
struct CycleCosts {
  std::array<ClassCost, kCostClasses> classes{};
  std::uint32_t clock_mhz{1};
  friend bool operator==(const CycleCosts&, const CycleCosts&) = default;
};

/// Work of the blocks of one multiprocessor: block b is number b % count.
struct SmCounts {
  std::uint64_t blocks{0};
  std::uint64_t issue16{0};
  std::uint64_t latency_cycles{0};      // of each block that of its slowest warp, added up
  std::uint64_t latency_cycles_max{0};  // of its slowest block
};
/// Counts of a launch for a model of its time. The sums do not depend on the order in which blocks
/// run, or on the workers that run them.
struct LaunchCounts {
  std::uint64_t sectors{0};  // 32 bytes of global memory, once for each access of a warp
  std::vector<SmCounts> sms;
};

}  // namespace kansoku::gpu::exec
