// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/exec/internal/decode/compiled.h"
#include "gpu/exec/internal/warp.h"

namespace kansoku::gpu::exec {

/// Why a group of lanes does not run.
enum class Waiting : std::uint8_t { kNot, kWarpSync, kBarrier, kMissing };

/// Lanes of a warp that stand at one place.
struct Group {
  std::uint32_t mask{0};
  const Code* pc{nullptr};
  Frame* frame{nullptr};
  Waiting waiting{Waiting::kNot};
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

/// A warp with what only the scheduler and control flow look at.
struct WarpContext : Warp {
  std::vector<Group> groups;  // those that do not run now
  FramePool frames;
  const Code* resume{nullptr};  // where the running group goes on after it stopped
  Frame* entry{nullptr};        // the kernel's, kept from block to block
  const Code* begin{nullptr};   // of the next block: behind the prologue, once that has run
};

/// Makes the frame the one in hand.
void use_frame(WarpContext& warp, Frame* frame);

/// Runs one group of the warp after the other until the warp has to wait for its block, has ended
/// or failed, or has gone around enough loops; Warp::stop says which.
void run_warp(WarpContext& warp);

}  // namespace kansoku::gpu::exec
