// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/internal/decode/register_slots.h"

#include <algorithm>
#include <array>
#include <queue>
#include <utility>

#include "gpu/ptx/liveness.h"

namespace kansoku::gpu::exec {
namespace {

/// The instructions between which a register is in use, as if the text ran from its begin to its
/// end: whoever is alive where a block begins or ends is so there.
struct Life {
  std::uint32_t first{ptx::kNoIndex}, last{0};
  void include(std::uint32_t instruction) {
    first = std::min(first, instruction);
    last = std::max(last, instruction);
  }
};

std::vector<Life> lives_of(const ptx::Function& function, const ptx::Cfg& cfg,
                           const std::vector<bool>& is_kept) {
  std::vector<Life> lives(function.registers.size());
  const ptx::Liveness live = ptx::compute_liveness(function, cfg);
  for (std::size_t b = 0; b < cfg.blocks.size(); ++b) {
    for (const std::uint32_t index : live.in[b].members())
      lives[index].include(cfg.blocks[b].begin);
    for (const std::uint32_t index : live.out[b].members())
      lives[index].include(cfg.blocks[b].end - 1);
  }
  const auto count = static_cast<std::uint32_t>(function.instructions.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    const ptx::Access access = ptx::registers_of(function, function.instructions[i]);
    for (const auto* const list : {&access.reads, &access.writes}) {
      for (const std::uint32_t index : *list)
        lives[index].include(i);
    }
    if (!is_kept[i]) continue;
    for (const std::uint32_t index : access.writes)
      lives[index] = {0, count};
  }
  return lives;
}

}  // namespace

RegisterSlots assign_slots(const ptx::Function& function, const ptx::Cfg& cfg,
                           const std::vector<bool>& is_kept) {
  RegisterSlots out;
  out.slots.resize(function.registers.size());
  const std::vector<Life> lives = lives_of(function, cfg, is_kept);
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < out.slots.size(); ++i) {
    if (function.registers[i].type == ptx::Type::kPred) {
      out.slots[i] = out.predicate_count++;
    } else {
      order.push_back(i);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return lives[a].first < lives[b].first;
  });
  using Ending = std::pair<std::uint32_t, std::uint32_t>;  // last instruction, register
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> in_use;
  std::array<std::vector<std::uint32_t>, 2> free;  // of 32 bits, of 64
  const auto width_of = [&](std::uint32_t index) -> std::size_t {
    return ptx::bits_of(function.registers[index].type) == 64 ? 1 : 0;
  };
  for (const std::uint32_t index : order) {
    while (!in_use.empty() && in_use.top().first < lives[index].first) {
      const std::uint32_t ended = in_use.top().second;
      in_use.pop();
      free[width_of(ended)].push_back(out.slots[ended]);
    }
    auto& own = free[width_of(index)];
    if (own.empty()) {
      out.slots[index] = out.slot_count;
      out.slot_count += static_cast<std::uint32_t>(width_of(index) + 1);
    } else {
      out.slots[index] = own.back();
      own.pop_back();
    }
    in_use.emplace(lives[index].last, index);
  }
  return out;
}

}  // namespace kansoku::gpu::exec
