// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/internal/block_runner.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "gpu/exec/internal/observe/counter.h"
#include "gpu/exec/internal/observe/observer.h"
#include "gpu/exec/internal/ops/control.h"

namespace kansoku::gpu::exec {
namespace {

constexpr std::uint64_t kTurnsPerLook = 256;  // at the clock
constexpr std::size_t kArenaAlign = 64;

}  // namespace

BlockRunner::BlockRunner(const LaunchState& launch, const CompiledFunction& kernel,
                         std::uint32_t site_count, std::uint32_t local_bytes, Observer* observer,
                         Counter* counter, std::function<bool()> is_over)
    : launch_(launch),
      kernel_(kernel),
      is_over_(std::move(is_over)),
      thread_count_(launch.block[0] * launch.block[1] * launch.block[2]),
      range_cache_(std::max(site_count, 1U)),
      shared_(std::make_unique_for_overwrite<std::byte[]>(launch.total_shared_bytes + kArenaAlign)),
      local_bytes_(local_bytes) {
  const std::uint32_t warp_count = (thread_count_ + kLanes - 1) / kLanes;
  local_ = std::make_unique<std::byte[]>(std::size_t{warp_count} * kLanes * local_bytes);
  for (std::uint32_t i = 0; i < warp_count; ++i)
    warps_.push_back(std::make_unique_for_overwrite<WarpContext>());
  block_.launch = &launch_;
  block_.observer = observer;
  block_.counter = counter;
  block_.range_cache = range_cache_.data();
  auto address = reinterpret_cast<std::uintptr_t>(shared_.get());
  address += (kArenaAlign - address % kArenaAlign) % kArenaAlign;
  block_.shared = reinterpret_cast<std::byte*>(address);
}

void BlockRunner::begin(std::uint64_t number) {
  is_new_ = true;
  block_.number = number;
  block_.arrived = {};
  block_.issue16 = 0;
  block_.index = {static_cast<std::uint32_t>(number % launch_.grid[0]),
                  static_cast<std::uint32_t>(number / launch_.grid[0] % launch_.grid[1]),
                  static_cast<std::uint32_t>(number / launch_.grid[0] / launch_.grid[1])};
  // The initial contents of shared memory are not defined; the same every time are better.
  std::memset(block_.shared, 0, launch_.total_shared_bytes);
  for (std::uint32_t i = 0; i < warps_.size(); ++i)
    begin_warp(*warps_[i], i);
  if (block_.observer != nullptr) block_.observer->begin_block(block_);
}

void BlockRunner::begin_warp(WarpContext& warp, std::uint32_t index) {
  const std::uint32_t left = thread_count_ - index * kLanes;
  const std::uint32_t mask = left >= kLanes ? ~0U : (1U << left) - 1;
  warp.block = &block_;
  warp.index = index;
  warp.whole = mask;
  warp.carry = 0;
  warp.executed = warp.cycles = 0;
  warp.groups.clear();
  warp.stop = Stop::kNone;
  // Narrow blocks put several lines of threads into a warp.
  const std::uint32_t width = launch_.block[0];
  warp.columns = width < kLanes && std::has_single_bit(width) ? width : kLanes;
  warp.columns_log2 = static_cast<std::uint32_t>(std::countr_zero(warp.columns));
  warp.local = local_.get() + std::size_t{index} * kLanes * local_bytes_;
  warp.local_stride = local_bytes_;
  if (warp.entry == nullptr) {
    warp.frames.reset();
    warp.entry = warp.frames.enter(kernel_, nullptr);
    warp.entry->affine[kernel_.frame_slot] = {0, 0, 0};
    warp.entry->held[kernel_.frame_slot] = Held::kAffine;
    warp.begin = kernel_.code.data();
  }
  use_frame(warp, warp.entry);
  warp.mask = mask;
  warp.resume = warp.begin;
  warp.is_together = true;
  warp.begin = kernel_.code.data() + kernel_.prologue;  // registers of this frame stay
}

void BlockRunner::end_block() {
  std::uint64_t cycles = 0;
  for (const auto& warp : warps_)
    cycles = std::max(cycles, warp->cycles);
  block_.counter->end_block(block_, cycles);
}

BlockRunner::Step BlockRunner::fail(const WarpContext& warp) {
  fault_ = warp.fault;
  fault_warp_ = warp.index;
  // Frames of calls that never returned.
  for (auto& entry : warps_)
    entry->entry = nullptr;
  return Step::kFault;
}

bool BlockRunner::release_barriers() {
  std::uint32_t live = 0;
  struct Arrivals {
    std::uint32_t waiting{0}, expected{0}, votes{0}, warps{0};
    std::uint64_t cycles{0};  // of the last one to come
  };
  std::array<Arrivals, kBarriers> barriers{};
  for (const auto& warp : warps_) {
    const auto threads = static_cast<std::uint32_t>(std::popcount(warp->whole));
    live += threads;
    if (warp->whole == 0 || warp->stop != Stop::kBarrier) continue;
    Arrivals& arrived = barriers[warp->barrier];
    arrived.waiting += threads;
    arrived.votes += warp->barrier_votes;
    arrived.cycles = std::max(arrived.cycles, warp->cycles);
    arrived.expected = std::max(arrived.expected, warp->barrier_count);
  }
  bool is_released = false;
  for (const auto& warp : warps_) {
    if (warp->whole == 0 || warp->stop != Stop::kBarrier) continue;
    Arrivals& arrived = barriers[warp->barrier];
    const BlockState::Arrived& passed = block_.arrived[warp->barrier];
    const std::uint32_t expected = std::max(arrived.expected, passed.expected);
    if (arrived.waiting + passed.threads < (expected == 0 ? live : expected)) continue;
    warp->barrier_true = arrived.votes;
    warp->barrier_arrived = arrived.waiting;
    warp->cycles = arrived.cycles;
    warp->stop = Stop::kNone;
    arrived.warps |= std::uint32_t{1} << warp->index;
    is_released = true;
  }
  for (std::uint32_t i = 0; i < kBarriers; ++i) {
    const Arrivals& arrived = barriers[i];
    if (arrived.warps == 0) continue;
    if (block_.observer != nullptr) {
      block_.observer->block_barrier(arrived.warps | block_.arrived[i].warps,
                                     arrived.waiting == live);
    }
    block_.arrived[i] = {};
  }
  return is_released;
}

bool BlockRunner::release_all() {
  std::uint32_t live = 0, votes = 0, barrier = kBarriers;
  std::uint64_t cycles = 0;
  for (const auto& warp : warps_) {
    if (warp->whole == 0) continue;
    if (barrier == kBarriers) barrier = warp->barrier;
    const bool is_plain = warp->stop == Stop::kBarrier && warp->barrier_count == 0;
    if (!is_plain || warp->barrier != barrier) return false;
    live += static_cast<std::uint32_t>(std::popcount(warp->whole));
    votes += warp->barrier_votes;
    cycles = std::max(cycles, warp->cycles);
  }
  if (barrier == kBarriers || block_.arrived[barrier].warps != 0 || block_.observer != nullptr)
    return false;
  for (const auto& warp : warps_) {
    warp->barrier_true = votes;
    warp->barrier_arrived = live;
    warp->cycles = cycles;
    warp->stop = Stop::kNone;
  }
  return true;
}

BlockRunner::Step BlockRunner::step() {
  const auto is_over = [&](WarpContext& warp, const Code& at, std::uint32_t lane) {
    if (++turns_ % kTurnsPerLook != 0 || !is_over_()) return false;
    warp.fault = {FaultKind::kTimeout, at.line, lane, 0, 0, false};
    return true;
  };
  // A grid of blocks that end at once has no turns.
  if (std::exchange(is_new_, false) && is_over(*warps_.front(), kernel_.code.front(), 0))
    return fail(*warps_.front());
  bool has_run = false, is_any_left = false, is_any_waiting = false;
  for (const auto& warp : warps_) {
    if (warp->whole == 0) continue;
    is_any_left = true;
    if (warp->stop == Stop::kBarrier) {
      is_any_waiting = true;
      continue;
    }
    has_run = true;
    run_warp(*warp);
    if (warp->stop == Stop::kFault) return fail(*warp);
    // A loop with a barrier in it never yields.
    const bool has_ended_turn = warp->stop == Stop::kYield || warp->stop == Stop::kBarrier;
    if (has_ended_turn && is_over(*warp, *warp->resume, first_lane_of(warp->mask)))
      return fail(*warp);
  }
  if (!is_any_left) {
    if (block_.counter != nullptr) end_block();
    return Step::kDone;
  }
  if (release_all()) return Step::kRunning;
  // Others that run may wait in a loop for what stands behind the barrier.
  const bool may_release = !has_run || is_any_waiting;
  if ((may_release && release_barriers()) || has_run) return Step::kRunning;
  // Everybody waits at a barrier that not enough threads can reach any more.
  for (const auto& warp : warps_) {
    if (warp->whole == 0) continue;
    warp->fault = {
        FaultKind::kDeadlock, warp->resume->line, first_lane_of(warp->whole), 0, 0, false};
    return fail(*warp);
  }
  return Step::kDone;
}

}  // namespace kansoku::gpu::exec
