// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gpu/exec/internal/warp_context.h"

namespace kansoku::gpu::exec {

/// Runs blocks of one launch, one at a time; each worker thread has its own.
class BlockRunner {
 public:
  /// `site_count`: of the function with most of them. `observer`, `counter`: null, or of this
  /// worker. `is_over`: asked now and then; true ends the block with a time-out.
  BlockRunner(const LaunchState& launch, const CompiledFunction& kernel, std::uint32_t site_count,
              std::uint32_t local_bytes, Observer* observer, Counter* counter,
              std::function<bool()> is_over);

  /// Begins with block `number`.
  void begin(std::uint64_t number);
  enum class Step { kRunning, kDone, kFault };
  /// Lets each warp run a while. kFault: `fault` and `fault_warp` have the fault.
  [[nodiscard]] Step step();
  [[nodiscard]] const FaultSite& fault() const { return fault_; }
  [[nodiscard]] std::uint32_t fault_warp() const { return fault_warp_; }
  [[nodiscard]] const BlockState& block() const { return block_; }

 private:
  void begin_warp(WarpContext& warp, std::uint32_t index);
  void end_block();
  [[nodiscard]] Step fail(const WarpContext& warp);
  /// The common case: every warp that is left waits at one barrier for all, and goes on. False:
  /// something else is so, and nothing has happened.
  [[nodiscard]] bool release_all();
  /// True if a barrier let somebody go on.
  [[nodiscard]] bool release_barriers();

  const LaunchState& launch_;
  const CompiledFunction& kernel_;
  std::function<bool()> is_over_;
  BlockState block_;
  std::uint32_t thread_count_{0};
  std::vector<AddressRange> range_cache_;
  std::unique_ptr<std::byte[]> shared_;
  std::unique_ptr<std::byte[]> local_;
  std::uint32_t local_bytes_;
  std::vector<std::unique_ptr<WarpContext>> warps_;
  std::uint64_t turns_{0};
  bool is_new_{false};  // the block has not run yet
  FaultSite fault_;
  std::uint32_t fault_warp_{0};
};

}  // namespace kansoku::gpu::exec
