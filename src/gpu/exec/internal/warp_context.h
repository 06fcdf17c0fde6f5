// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/check.h"
#include "gpu/exec/internal/decode/compiled.h"
#include "gpu/exec/internal/warp.h"

namespace kansoku::gpu::exec {

/// Why a group of lanes does not run.
enum class Waiting : std::uint8_t { kNot, kWarpSync, kMissing };

/// Lanes of a warp that stand at one place.
struct Group {
  std::uint32_t mask;
  const Code* pc;
  Frame* frame;
  Waiting waiting;
};

/// The groups that do not run now. They lie apart and none is empty, so there are never more than
/// lanes. Written field by field: a copy of a whole record would wait for its pieces.
class GroupList {
 public:
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] Group& operator[](std::size_t index) { return groups_[index]; }
  [[nodiscard]] const Group& operator[](std::size_t index) const { return groups_[index]; }
  [[nodiscard]] Group* begin() { return groups_.data(); }
  [[nodiscard]] Group* end() { return groups_.data() + count_; }
  void clear() { count_ = 0; }
  void add(std::uint32_t mask, const Code* pc, Frame* frame, Waiting waiting) {
    DCHECK(count_ < kLanes);
    Group& group = groups_[count_++];
    group.mask = mask;
    group.pc = pc;
    group.frame = frame;
    group.waiting = waiting;
  }
  /// The others keep their order.
  void remove(std::size_t index) {
    --count_;
    for (std::size_t i = index; i < count_; ++i)
      groups_[i] = groups_[i + 1];
  }

 private:
  std::size_t count_{0};
  std::array<Group, kLanes> groups_;  // the first count_ mean something
};

/// Frames of a warp, used again and again. Bounded by depth.
class FramePool {
 public:
  static constexpr std::size_t kDepthMax = 256;

  /// Registers for a call of `function`, constants set; null if the stack is too deep.
  [[nodiscard]] Frame* enter(const CompiledFunction& function, Frame* caller);
  void leave(Frame* frame);
  /// All frames are free again.
  void reset();

 private:
  struct Storage {
    Frame frame;
    std::unique_ptr<std::byte[]> bytes;
    std::size_t lanes_bytes{0};
    std::vector<Held> held;
    std::vector<Affine> affine;
    std::vector<std::uint32_t> predicates;
  };
  std::vector<std::unique_ptr<Storage>> storage_;
  std::vector<Frame*> free_;
};

/// A warp with the state that only the scheduler and control flow look at.
struct WarpContext : Warp {
  const Code* resume{nullptr};  // the running group goes on there after a stop
  /// All lanes that are left stand at `resume`, in the frame in hand; there are no groups.
  bool is_together{false};
  GroupList groups;
  FramePool frames;
  Frame* entry{nullptr};       // the kernel's, kept from block to block
  const Code* begin{nullptr};  // of the next block: behind the prologue, once that has run
};

/// Makes the frame the one in hand.
void use_frame(WarpContext& warp, Frame* frame);

/// Runs one group of the warp after the other until the warp has to wait for its block, has ended
/// or failed, or has gone around enough loops; Warp::stop says which.
void run_warp(WarpContext& warp);

}  // namespace kansoku::gpu::exec
