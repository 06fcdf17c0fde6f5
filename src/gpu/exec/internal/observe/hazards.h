// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/exec/fault_kind.h"
#include "gpu/exec/internal/warp.h"

namespace kansoku::gpu::exec {

/// One lane's access to shared memory.
struct SharedAccess {
  std::uint32_t warp{0}, lane{0};
  std::uint32_t line{0};
  std::uint64_t offset{0};
  std::uint32_t bytes{0};
  bool is_store{false};
  bool is_strong{false};         // atomic, volatile, relaxed: does not race with its like
  std::uint64_t instruction{0};  // lanes of one instruction do not race with each other here
};

struct Hazard {
  FaultKind kind{FaultKind::kNone};
  SharedAccess access, other;
  std::uint64_t block{0};
};

/// Accesses of a block's threads to shared memory, byte by byte: the last writer and readers, and
/// any barrier between. Order comes from bar.sync (of whole warps) and bar.warp.sync (of lanes);
/// one that a program makes with flags in memory is not understood. Source: the idea of logical
/// clocks compared at each access is FastTrack's (Flanagan and Freund, PLDI 2009); clocks by warp
/// and by lane of a warp, instead of one vector a thread, are ours.
class SharedHazards {
 public:
  explicit SharedHazards(std::uint32_t shared_bytes);

  void begin_block(std::uint64_t number);
  /// All lanes of these warps have met; `is_everybody`: nobody else is left in the block.
  void block_barrier(std::uint32_t warps, bool is_everybody);
  void warp_barrier(std::uint32_t warp, std::uint32_t lanes);
  void access(const SharedAccess& access);
  /// Two lanes of one store instruction wrote different values to one place.
  void collision(const SharedAccess& access, std::uint32_t other_lane);

  /// Counts it and keeps one of each pair of lines.
  void add(const Hazard& hazard);
  [[nodiscard]] std::vector<Hazard> take() { return std::move(hazards_); }
  [[nodiscard]] std::uint64_t count() const { return count_; }

 private:
  static constexpr std::uint32_t kWarpsMax = 32;  // of a block
  /// The last access of a kind to a byte; of another epoch, none.
  struct Mark {
    std::uint64_t epoch{0}, instruction{0};
    std::uint32_t warp_clock{0}, lane_clock{0};
    std::uint32_t line{0};
    std::uint8_t warp{0}, lane{0};
    bool is_strong{false};
  };
  struct Cell {
    std::uint64_t written_in{0};  // serial of the block
    Mark store;
    std::array<Mark, 2> loads;  // the last two, of different threads
  };
  using Lanes = std::array<std::array<std::uint32_t, kLanes>, kLanes>;

  [[nodiscard]] bool is_ordered(const Mark& mark, const SharedAccess& access) const;
  [[nodiscard]] Mark mark_of(const SharedAccess& access) const;
  void race(const SharedAccess& access, const Mark& other, bool is_other_store);
  [[nodiscard]] bool touch(Cell& cell, const SharedAccess& access, bool is_known);

  std::vector<Cell> cells_;
  std::uint64_t serial_{0}, block_{0};
  std::uint64_t epoch_{0};  // one more after each barrier of the whole block
  // Clocks that warp w knows of warp v, and lane m of lane l within a warp; they never go back.
  std::array<std::array<std::uint32_t, kWarpsMax>, kWarpsMax> known_{};
  std::unique_ptr<std::array<Lanes, kWarpsMax>> lanes_known_;
  std::vector<Hazard> hazards_;
  std::uint64_t count_{0};
};

}  // namespace kansoku::gpu::exec
