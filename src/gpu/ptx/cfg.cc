// SPDX-License-Identifier: Apache-2.0
#include "gpu/ptx/cfg.h"

#include <algorithm>
#include <utility>

namespace kansoku::gpu::ptx {
namespace {

bool ends_thread(Op op) {
  return op == Op::kRet || op == Op::kExit || op == Op::kTrap;
}
bool ends_block(Op op) {
  return ends_thread(op) || op == Op::kBra || op == Op::kBrx;
}

void add_edge(Cfg& cfg, std::uint32_t from, std::uint32_t to) {
  auto& successors = cfg.blocks[from].successors;
  if (std::find(successors.begin(), successors.end(), to) != successors.end()) return;
  successors.push_back(to);
  cfg.blocks[to].predecessors.push_back(from);
}

/// Depth first from `root` along `next`, children in their order; the post-order.
template <class Next>
std::vector<std::uint32_t> post_order(std::uint32_t root, std::size_t count, const Next& next) {
  std::vector<std::uint32_t> order;
  std::vector<bool> seen(count, false);
  std::vector<std::pair<std::uint32_t, std::size_t>> stack{{root, 0}};
  seen[root] = true;
  while (!stack.empty()) {
    auto& [node, child] = stack.back();
    const std::vector<std::uint32_t>& children = next(node);
    if (child == children.size()) {
      order.push_back(node);
      stack.pop_back();
      continue;
    }
    const std::uint32_t to = children[child++];
    if (seen[to]) continue;
    seen[to] = true;
    stack.emplace_back(to, 0);
  }
  return order;
}

/// Dominators of a graph given by post-order and predecessors. kNoIndex for the root and for what
/// is not in the order.
template <class Previous>
std::vector<std::uint32_t> dominators_of(const std::vector<std::uint32_t>& order, std::size_t count,
                                         const Previous& previous) {
  std::vector<std::uint32_t> number(count, kNoIndex), immediate(count, kNoIndex);
  for (std::size_t i = 0; i < order.size(); ++i)
    number[order[i]] = static_cast<std::uint32_t>(i);
  const std::uint32_t root = order.back();
  immediate[root] = root;
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (std::size_t i = order.size() - 1; i-- > 0;) {
      const std::uint32_t node = order[i];
      std::uint32_t found = kNoIndex;
      for (const std::uint32_t from : previous(node)) {
        if (number[from] == kNoIndex || immediate[from] == kNoIndex) continue;
        std::uint32_t a = from, b = found;
        while (b != kNoIndex && a != b) {
          std::uint32_t& lower = number[a] < number[b] ? a : b;
          lower = immediate[lower];
        }
        found = a;
      }
      has_changed = has_changed || immediate[node] != found;
      immediate[node] = found;
    }
  }
  immediate[root] = kNoIndex;
  return immediate;
}

std::vector<bool> block_begins(const Function& function) {
  std::vector<bool> begins(function.instructions.size() + 1, false);
  begins[0] = true;
  for (const Label& label : function.labels)
    begins[label.instruction] = true;
  for (std::size_t i = 0; i < function.instructions.size(); ++i) {
    if (ends_block(function.instructions[i].op)) begins[i + 1] = true;
  }
  return begins;
}

void add_edges(const Function& function, Cfg& cfg, std::uint32_t block) {
  Block& here = cfg.blocks[block];
  const auto block_at = [&](std::uint32_t instruction) {
    return instruction < cfg.block_of.size() ? cfg.block_of[instruction] : kNoIndex;
  };
  const auto go_to = [&](std::uint32_t instruction) {
    const std::uint32_t to = block_at(instruction);
    if (to == kNoIndex) {
      cfg.blocks[block].may_end = true;  // behind the last instruction
    } else {
      add_edge(cfg, block, to);
    }
  };
  const Instruction& last = function.instructions[here.end - 1];
  const std::uint32_t next = here.end;
  here.may_end = ends_thread(last.op);
  if (last.op == Op::kBra) {
    for (std::size_t i = 0; i < last.operand_count; ++i) {
      const Operand& target = function.operand(last, i);
      if (target.kind == OperandKind::kLabel) go_to(function.labels[target.index].instruction);
    }
  } else if (last.op == Op::kBrx) {
    for (const Label& label : function.labels)
      go_to(label.instruction);
  }
  if (!ends_block(last.op) || last.guard != kNoIndex) go_to(next);
}

}  // namespace

Cfg build_cfg(const Function& function) {
  Cfg cfg;
  const std::size_t count = function.instructions.size();
  if (count == 0) return cfg;
  const std::vector<bool> begins = block_begins(function);
  cfg.block_of.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (begins[i]) cfg.blocks.push_back({i, i, {}, {}, false});
    cfg.blocks.back().end = i + 1;
    cfg.block_of[i] = static_cast<std::uint32_t>(cfg.blocks.size() - 1);
  }
  for (std::uint32_t block = 0; block < cfg.blocks.size(); ++block)
    add_edges(function, cfg, block);
  cfg.reverse_post_order = post_order(0, cfg.blocks.size(),
                                      [&](std::uint32_t node) -> const std::vector<std::uint32_t>& {
                                        return cfg.blocks[node].successors;
                                      });
  std::reverse(cfg.reverse_post_order.begin(), cfg.reverse_post_order.end());
  return cfg;
}

std::vector<std::uint32_t> immediate_dominators(const Cfg& cfg) {
  if (cfg.blocks.empty()) return {};
  std::vector<std::uint32_t> order(cfg.reverse_post_order.rbegin(), cfg.reverse_post_order.rend());
  return dominators_of(order, cfg.blocks.size(),
                       [&](std::uint32_t node) -> const std::vector<std::uint32_t>& {
                         return cfg.blocks[node].predecessors;
                       });
}

std::vector<std::uint32_t> immediate_post_dominators(const Cfg& cfg) {
  const std::size_t count = cfg.blocks.size();
  if (count == 0) return {};
  // The reversed graph, with the end of the thread as its root: node `count`.
  const auto end = static_cast<std::uint32_t>(count);
  std::vector<std::vector<std::uint32_t>> next(count + 1), previous(count + 1);
  for (std::uint32_t block = 0; block < count; ++block) {
    const Block& here = cfg.blocks[block];
    for (const std::uint32_t to : here.successors) {
      next[to].push_back(block);
      previous[block].push_back(to);
    }
    if (here.may_end) {
      next[end].push_back(block);
      previous[block].push_back(end);
    }
  }
  const auto order = post_order(
      end, count + 1,
      [&](std::uint32_t node) -> const std::vector<std::uint32_t>& { return next[node]; });
  auto immediate = dominators_of(
      order, count + 1,
      [&](std::uint32_t node) -> const std::vector<std::uint32_t>& { return previous[node]; });
  immediate.pop_back();
  std::replace(immediate.begin(), immediate.end(), kNoIndex, end);
  return immediate;
}

bool dominates(const std::vector<std::uint32_t>& immediate, std::uint32_t a, std::uint32_t b) {
  while (b != a && b < immediate.size())
    b = immediate[b];
  return a == b;
}

}  // namespace kansoku::gpu::ptx
