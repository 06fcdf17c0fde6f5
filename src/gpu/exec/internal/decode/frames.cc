// SPDX-License-Identifier: Apache-2.0
// Calls: each has registers of its own, so that lanes may be in different calls at once.
#include <algorithm>
#include <cstring>
#include <utility>

#include "gpu/exec/internal/ops/control.h"
#include "gpu/exec/internal/ops/lane_ops.h"
#include "gpu/exec/internal/warp_context.h"

namespace kansoku::gpu::exec {
namespace {

constexpr std::size_t kFrameAlign = 64;

template <class T>
T* aligned(T* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  return pointer + ((kFrameAlign - address % kFrameAlign) % kFrameAlign);
}

void copy_bytes(Warp& warp, std::uint32_t from, std::uint32_t to, std::uint32_t bytes) {
  for (std::uint32_t rest = warp.mask; rest != 0; rest &= rest - 1) {
    std::byte* const local = warp.local + std::size_t{first_lane_of(rest)} * warp.local_stride;
    std::memcpy(local + to, local + from, bytes);
  }
}

}  // namespace

Frame* FramePool::enter(const CompiledFunction& function, Frame* caller) {
  if (free_.empty()) {
    if (storage_.size() == kDepthMax) return nullptr;
    storage_.push_back(std::make_unique<Storage>());
    free_.push_back(&storage_.back()->frame);
  }
  Frame* const frame = free_.back();
  free_.pop_back();
  const auto owner =
      std::find_if(storage_.begin(), storage_.end(),
                   [&](const std::unique_ptr<Storage>& entry) { return &entry->frame == frame; });
  Storage& storage = **owner;
  const std::size_t bytes = std::size_t{function.slot_count} * kSlotBytes;
  if (storage.lanes_bytes < bytes) {
    storage.bytes = std::make_unique<std::byte[]>(bytes + kFrameAlign);
    storage.lanes_bytes = bytes;
  }
  storage.held.assign(function.slot_count, Held::kValues);
  storage.affine.resize(function.slot_count);
  storage.predicates.resize(std::max<std::size_t>(function.predicate_count, 1));
  *frame = {.function = &function,
            .caller = caller,
            .return_to = nullptr,
            .lanes = aligned(storage.bytes.get()),
            .held = storage.held.data(),
            .affine = storage.affine.data(),
            .predicates = storage.predicates.data(),
            .local_base = 0,
            .lanes_inside = 0};
  for (const CompiledFunction::Constant& constant : function.constants) {
    storage.held[constant.slot] = Held::kAffine;
    storage.affine[constant.slot] = {constant.value, 0, 0};
  }
  return frame;
}

void FramePool::leave(Frame* frame) {
  free_.push_back(frame);
}

void FramePool::reset() {
  free_.clear();
  for (const auto& storage : storage_)
    free_.push_back(&storage->frame);
}

bool CompiledFunction::CallSite::fits(const CompiledFunction& function) const {
  const auto is_argument = [](const Place& own, const Place& its) {
    return own.bytes == its.bytes;
  };
  const auto is_result = [](const Place& own, const Place& its) {
    return own.bytes == 0 || own.bytes == its.bytes;
  };
  return std::equal(arguments.begin(), arguments.end(), function.params.begin(),
                    function.params.end(), is_argument) &&
         std::equal(results.begin(), results.end(), function.returns.begin(),
                    function.returns.end(), is_result);
}

namespace {

const Code* enter_function(WarpContext& warp, const Code* code,
                           const CompiledFunction::CallSite& site, const CompiledFunction& callee) {
  Frame* const caller = warp.frame;
  const std::uint32_t base = caller->local_base + caller->function->local_bytes;
  Frame* const frame =
      callee.local_bytes <= warp.local_stride - base ? warp.frames.enter(callee, caller) : nullptr;
  if (frame == nullptr) {
    warp.stop = Stop::kFault;
    warp.fault = {FaultKind::kStackOverflow, code->line, first_lane_of(warp.mask), 0, 0, false};
    return nullptr;
  }
  frame->return_to = code + 1;
  frame->local_base = base;
  frame->lanes_inside = warp.mask;
  frame->held[callee.frame_slot] = Held::kAffine;
  frame->affine[callee.frame_slot] = {base, 0, 0};
  for (std::size_t i = 0; i < site.arguments.size(); ++i)
    copy_bytes(warp, caller->local_base + site.arguments[i].offset, base + callee.params[i].offset,
               site.arguments[i].bytes);
  use_frame(warp, frame);
  // Functions that call each other take long without any loop: a call is a round like a branch
  // back.
  if (--warp.rounds_left != 0) return callee.code.data();
  warp.stop = Stop::kYield;
  warp.resume = callee.code.data();
  return nullptr;
}

}  // namespace

/// extra: index into CompiledFunction::calls.
const Code* run_call(Warp& plain, const Code* code) {
  auto& warp = static_cast<WarpContext&>(plain);
  const CompiledFunction::CallSite& site = warp.frame->function->calls[code->extra];
  return enter_function(warp, code, site, warp.block->launch->module->functions[site.callee]);
}

/// a: slot of the function's address; extra: as run_call. Lanes that call other functions follow.
const Code* run_call_of_register(Warp& plain, const Code* code) {
  auto& warp = static_cast<WarpContext&>(plain);
  const std::uint64_t* const targets = in<std::uint64_t>(warp, code->a);
  const std::uint32_t first = first_lane_of(warp.mask);
  const std::uint64_t target = targets[first];
  std::uint32_t same = 0;
  for (std::uint32_t i = 0; i < kLanes; ++i)
    same |= static_cast<std::uint32_t>(targets[i] == target) << i;
  const CompiledFunction::CallSite& site = warp.frame->function->calls[code->extra];
  const auto& functions = warp.block->launch->module->functions;
  const std::uint64_t index = (target - kFunctionsBegin) / kFunctionBytes;
  const bool is_function =
      index < functions.size() && function_address(static_cast<std::uint32_t>(index)) == target;
  const CompiledFunction* const callee = is_function ? &functions[index] : nullptr;
  // A refused function has no code.
  if (callee == nullptr || callee->is_entry || callee->code.empty() || !site.fits(*callee)) {
    warp.stop = Stop::kFault;
    warp.fault = {FaultKind::kBadCall, code->line, first, target, 0, false};
    return nullptr;
  }
  if ((warp.mask & ~same) != 0) warp.groups.add(warp.mask & ~same, code, warp.frame, Waiting::kNot);
  warp.mask &= same;
  return enter_function(warp, code, site, *callee);
}

/// At the end of a device function; a kernel ends with run_exit.
const Code* run_return(Warp& plain, const Code* code) {
  static_cast<void>(code);
  auto& warp = static_cast<WarpContext&>(plain);
  Frame* const frame = warp.frame;
  Frame* const caller = frame->caller;
  const Code* const next = frame->return_to;
  const CompiledFunction::CallSite& site = caller->function->calls[(next - 1)->extra];
  for (std::size_t i = 0; i < site.results.size(); ++i) {
    copy_bytes(warp, frame->local_base + frame->function->returns[i].offset,
               caller->local_base + site.results[i].offset, site.results[i].bytes);
  }
  frame->lanes_inside &= ~warp.mask;
  use_frame(warp, caller);
  if (frame->lanes_inside == 0) warp.frames.leave(frame);
  if (warp.groups.empty()) return next;
  // Those still inside may come here too.
  warp.stop = Stop::kJoin;
  warp.resume = next;
  return nullptr;
}

}  // namespace kansoku::gpu::exec
