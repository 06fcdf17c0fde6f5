// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "gpu/exec/address_range.h"
#include "gpu/exec/fault_kind.h"
#include "gpu/exec/internal/decode/code.h"

namespace kansoku {
class Clock;  // by name only: its header has functions, and this one is compiled for several
              // machines
}

namespace kansoku::gpu::exec {

struct CompiledFunction;
struct CompiledModule;
class Counter;
struct CycleCosts;
class Observer;

/// base + stride * column + row * line, modulo the width of the register, where the lanes are laid
/// out in lines of Warp::columns (the x extent of narrow blocks, else 32).
struct Affine {
  std::uint64_t base{0}, stride{0}, row{0};
};

/// How a register is held.
enum class Held : std::uint8_t {
  kValues,  // 32 values
  kAffine,  // base and stride; the lanes are stale
  kBoth,
};

enum class Stop : std::uint8_t {
  kNone,
  kYield,     // the quantum is over
  kJoin,      // other groups of lanes may come to this place
  kWarpSync,  // waits for other lanes of the warp
  kBarrier,   // waits for the block
  kMissing,   // at a barrier, waits for the other lanes of its own warp
  kExit,      // these lanes have ended
  kFault,
};

struct FaultSite {
  FaultKind kind{FaultKind::kNone};
  std::uint32_t line{0};
  std::uint32_t lane{0};
  std::uint64_t address{0};
  std::uint32_t bytes{0};
  bool is_store{false};
};

/// Generic addresses of shared and local memory; nothing is ever mapped there.
inline constexpr std::uint64_t kWindowBytes = std::uint64_t{1} << 32;
inline constexpr std::uint64_t kSharedWindowBegin = std::uint64_t{0x7e00} << 32;
inline constexpr std::uint64_t kLocalWindowBegin = kSharedWindowBegin + kWindowBytes;

inline constexpr std::uint32_t kBarriers = 16;  // of a block

/// State that all warps of a launch share and none changes.
struct LaunchState {
  const CompiledModule* module{nullptr};
  /// Ranges of one memory: sorted, apart.
  struct Ranges {
    const AddressRange* first{nullptr};
    std::size_t count{0};
  };
  const Ranges* ranges{nullptr};  // the device's own, then those of its peers
  std::size_t memory_count{0};
  const std::byte* params{nullptr};
  std::uint64_t param_bytes{0};
  std::array<std::uint32_t, 3> grid{}, block{};
  std::uint32_t dynamic_shared_bytes{0};
  std::uint32_t total_shared_bytes{0};
  std::uint32_t sm_count{1};
  std::uint64_t grid_id{0};
  // %globaltimer: virtual time if there are costs, else the clock's, else instructions of the warp.
  const Clock* clock{nullptr};
  const CycleCosts* costs{nullptr};
  std::uint64_t begin_ns{0};
  /// Workspace of a cooperative launch, at %envreg1 and %envreg2, zeroed before the launch begins;
  /// else 0.
  std::uint64_t workspace{0};
  using Write = void (*)(void* context, const char* text, std::size_t bytes);
  Write print{nullptr}, complain{nullptr};  // null: nowhere
  void* print_context{nullptr};             // of print and complain
};

/// State that the warps of a block share; one thread runs them all.
struct BlockState {
  const LaunchState* launch{nullptr};
  std::byte* shared{nullptr};
  std::array<std::uint32_t, 3> index{};
  std::uint64_t number{0};
  AddressRange* range_cache{nullptr};  // by Code::site: where the last access went
  Counter* counter{nullptr};           // null: nobody counts
  std::uint64_t issue16{0};            // of this block, by its counter
  Observer* observer{nullptr};         // null: nobody looks
  /// By barrier: who has arrived and did not wait, since the barrier let somebody go on.
  struct Arrived {
    std::uint32_t threads{0}, expected{0}, warps{0};
  };
  std::array<Arrived, kBarriers> arrived{};
};

/// Registers of one call, for all lanes of a warp.
struct Frame {
  const CompiledFunction* function{nullptr};
  Frame* caller{nullptr};
  const Code* return_to{nullptr};
  std::byte* lanes{nullptr};  // slot_count * kSlotBytes, aligned to 64
  Held* held{nullptr};        // by slot
  Affine* affine{nullptr};    // by slot
  std::uint32_t* predicates{nullptr};
  std::uint32_t local_base{0};    // into the thread's local memory
  std::uint32_t lanes_inside{0};  // that have not returned
};

/// 32 threads in lock-step. A plain record: handlers for several instruction sets work on it.
struct Warp {
  // The frame in hand, spread out for speed.
  std::byte* lanes{nullptr};
  Held* held{nullptr};
  Affine* affine{nullptr};
  std::uint32_t* predicates{nullptr};
  std::uint32_t mask{0};   // lanes that run now
  std::uint32_t whole{0};  // lanes that have not exited: if mask == whole, others need not be kept
  std::uint32_t carry{0};  // CC.CF by lane
  std::uint32_t index{0};  // within the block
  std::uint32_t columns{kLanes}, columns_log2{5};  // a power of two
  std::uint32_t active_for{0};
  alignas(64) std::array<std::uint32_t, kLanes> active{};  // ~0 or 0 by lane, for mask active_for
  BlockState* block{nullptr};
  Frame* frame{nullptr};
  std::byte* local{nullptr};  // local memory: local_stride bytes a lane
  std::uint32_t local_stride{0};
  Stop stop{Stop::kNone};
  FaultSite fault;
  std::uint32_t rounds_left{0};  // backward branches until the warp yields
  std::uint32_t barrier{0}, barrier_count{0};
  std::uint32_t barrier_votes{0};                     // lanes that arrived with a true predicate
  std::uint32_t barrier_true{0}, barrier_arrived{0};  // of all warps, once the barrier let them go
  std::uint64_t turns{0};                             // quanta that ended
  // Totals of this block, by its counter: %clock, and the cycles that a model gives them.
  std::uint64_t executed{0}, cycles{0};
};

}  // namespace kansoku::gpu::exec
