// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/ptx/ir.h"

namespace kansoku::gpu::ptx {

/// Instructions [begin, end) that run one after the other; edges go between first and last.
struct Block {
  std::uint32_t begin{0}, end{0};
  std::vector<std::uint32_t> successors, predecessors;  // blocks; each once
  bool may_end{false};                                  // some threads end here
};

/// Control-flow graph of one body. Block 0 is the entry. A guarded branch has its target first and
/// the next block second; a block that ends a thread (ret, exit, trap, running off the end) has no
/// successor unless it is guarded, and `may_end` either way. Indirect branches may go to every
/// label.
struct Cfg {
  std::vector<Block> blocks;
  std::vector<std::uint32_t> block_of;            // by instruction
  std::vector<std::uint32_t> reverse_post_order;  // blocks that can be reached from the entry
};

/// Linear in the size of the body. An empty body has no blocks. Pure; any thread.
[[nodiscard]] Cfg build_cfg(const Function& function);

/// Immediate dominators: by block, kNoIndex for the entry and for blocks that cannot be reached.
/// Source: Cooper, Harvey, Kennedy, "A Simple, Fast Dominance Algorithm" (2001).
[[nodiscard]] std::vector<std::uint32_t> immediate_dominators(const Cfg& cfg);

/// Immediate post-dominators: by block; blocks.size() stands for the end of the thread. Blocks from
/// which no path ends have the end too: threads that never end never meet again.
[[nodiscard]] std::vector<std::uint32_t> immediate_post_dominators(const Cfg& cfg);

/// True if every path from the entry to `b` goes through `a` (or b == a).
[[nodiscard]] bool dominates(const std::vector<std::uint32_t>& immediate, std::uint32_t a,
                             std::uint32_t b);

}  // namespace kansoku::gpu::ptx
