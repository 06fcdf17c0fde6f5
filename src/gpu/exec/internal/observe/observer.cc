// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/internal/observe/observer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include "gpu/exec/internal/observe/counter.h"
#include "gpu/exec/internal/ops/control.h"
#include "gpu/exec/internal/ops/float_ops.h"

namespace kansoku::gpu::exec {
namespace {

using Access = CodeInfo::Access;
using ptx::Op;

constexpr std::uint64_t kSectorBytes = 32;
constexpr std::uint32_t kBanks = 32, kBankBytes = 4;

const Code* run_observed(Warp& warp, const Code* code) {
  return warp.block->observer->run(warp, code);
}

bool is_shared_address(std::uint64_t address) {
  return address - kSharedWindowBegin < kWindowBytes;
}

MemorySpace accessed_space(const CodeInfo& info, std::uint64_t first_address) {
  if (info.space != MemorySpace::kGeneric) return info.space;
  if (is_shared_address(first_address)) return MemorySpace::kShared;
  return first_address - kLocalWindowBegin < kWindowBytes ? MemorySpace::kLocal
                                                          : MemorySpace::kGlobal;
}

InstructionClass class_of_access(const CodeInfo& info, MemorySpace space) {
  if (info.access == Access::kAtomic) return InstructionClass::kAtomic;
  const bool is_store = info.access == Access::kStore;
  if (space == MemorySpace::kGlobal)
    return is_store ? InstructionClass::kGlobalStore : InstructionClass::kGlobalLoad;
  if (space == MemorySpace::kShared)
    return is_store ? InstructionClass::kSharedStore : InstructionClass::kSharedLoad;
  return InstructionClass::kOtherMemory;
}

InstructionClass class_of(const CodeInfo& info) {
  switch (info.op) {
    case Op::kMov:
    case Op::kSelp:
    case Op::kSlct:
    case Op::kPrmt:
      return InstructionClass::kMove;
    case Op::kCvt:
    case Op::kCvta:
    case Op::kIsspacep:
      return InstructionClass::kConversion;
    case Op::kBra:
    case Op::kBrx:
    case Op::kCall:
    case Op::kRet:
    case Op::kExit:
    case Op::kTrap:
    case Op::kBrkpt:
    case Op::kNanosleep:
      return InstructionClass::kControl;
    case Op::kBar:
    case Op::kBarrier:
    case Op::kMembar:
    case Op::kFence:
      return InstructionClass::kBarrier;
    case Op::kShfl:
    case Op::kVote:
    case Op::kMatch:
    case Op::kActivemask:
    case Op::kRedux:
    case Op::kElect:
    case Op::kMma:
      return InstructionClass::kWarp;
    case Op::kCp:
      return InstructionClass::kOtherMemory;  // commit and wait; copies are accesses
    default:
      return info.is_float ? InstructionClass::kFloat : InstructionClass::kInteger;
  }
}

void add(InstructionCount& to, const InstructionCount& from) {
  to.warps += from.warps;
  to.threads += from.threads;
}

/// Aligned units of `unit` bytes that the lanes touch, each once.
std::vector<std::uint64_t> units_touched(std::uint32_t mask,
                                         const std::array<std::uint64_t, kLanes>& addresses,
                                         std::uint32_t bytes, std::uint64_t unit) {
  std::vector<std::uint64_t> units;
  for (; mask != 0; mask &= mask - 1) {
    const std::uint64_t begin = addresses[first_lane_of(mask)];
    for (std::uint64_t at = begin / unit; at <= (begin + bytes - 1) / unit; ++at)
      units.push_back(at);
  }
  std::sort(units.begin(), units.end());
  units.erase(std::unique(units.begin(), units.end()), units.end());
  return units;
}

}  // namespace

std::string_view class_name(InstructionClass which) {
  static constexpr std::array<std::string_view, static_cast<std::size_t>(InstructionClass::kCount)>
      kNames{"integer",      "float",       "conversion",   "move",         "global load",
             "global store", "shared load", "shared store", "other memory", "atomic",
             "control",      "barrier",     "warp"};
  return kNames[static_cast<std::size_t>(which)];
}

InstructionCount Profile::total() const {
  InstructionCount total;
  for (const InstructionCount& count : classes)
    add(total, count);
  return total;
}

std::unique_ptr<CompiledModule> observed_copy(const CompiledModule& module) {
  auto copy = std::make_unique<CompiledModule>(module);
  for (CompiledFunction& function : copy->functions) {
    for (Code& code : function.code) {
      function.originals.push_back(code.run);
      // The scheduler knows joins by their handler.
      if (!is_join(&code)) code.run = run_observed;
    }
  }
  return copy;
}

Observer::Observer(const LaunchState& launch, const Observe& what) : launch_(launch), what_(what) {
  if (what.profile) {
    for (const CompiledFunction& function : launch.module->functions)
      counts_.push_back({std::vector<InstructionCount>(function.code.size())});
  }
  if (what.hazards) hazards_.emplace(launch.total_shared_bytes);
}

void Observer::begin_block(const BlockState& block) {
  if (hazards_) hazards_->begin_block(block.number);
}

void Observer::block_barrier(std::uint32_t warps, bool is_everybody) {
  if (hazards_) hazards_->block_barrier(warps, is_everybody);
}

void Observer::went_around_barrier(const Warp& warp, std::uint32_t barrier_line,
                                   std::uint32_t exit_line) {
  if (!hazards_) return;
  SharedAccess ended;
  ended.warp = warp.index;
  ended.lane = first_lane_of(warp.mask);
  ended.line = barrier_line;
  SharedAccess other;
  other.line = exit_line;
  hazards_->add({FaultKind::kBarrierDivergence, ended, other, warp.block->number});
}

Observer::Touched Observer::touched_by(Warp& warp, const Code* code, const CodeInfo& info) const {
  Touched touched;
  touched.mask = warp.mask;
  touched.bytes = std::uint32_t{info.bytes} * info.count;
  const std::uint64_t* const registers = in<std::uint64_t>(warp, code->a);
  for (std::uint32_t i = 0; i < kLanes; ++i)
    touched.addresses[i] =
        registers[i] + static_cast<std::uint64_t>(static_cast<std::int64_t>(code->offset));
  if (info.access == Access::kMatrixLoad) {
    const std::uint32_t rows = 8 * (code->extra & 7);
    if (rows < kLanes) touched.mask &= (std::uint32_t{1} << rows) - 1;
  }
  if (info.access == Access::kAsyncCopy) touched.bytes = code->extra;
  return touched;
}

const Code* Observer::run(Warp& warp, const Code* code) {
  const CompiledFunction& function = *warp.frame->function;
  const auto index = static_cast<std::size_t>(code - function.code.data());
  Counter* const counter = warp.block->counter;
  if (counter == nullptr || !function.info[index].is_first) return run_one(warp, code);
  const Counter::Work work = counter->look(warp, code, function.info[index]);
  const Code* const next = run_one(warp, code);
  if (next != nullptr || !will_run_again(warp)) counter->add(warp, work);
  return next;
}

const Code* Observer::run_one(Warp& warp, const Code* code) {
  const CompiledFunction& function = *warp.frame->function;
  const auto index = static_cast<std::size_t>(code - function.code.data());
  const CodeInfo& info = function.info[index];
  const Handler original = function.originals[index];
  if (what_.profile) count(warp, code, info);
  if (info.access == Access::kNone) {
    const std::uint32_t mask = warp.mask;
    const Code* const next = original(warp, code);
    if (hazards_ && next != nullptr && original == run_warp_barrier)
      hazards_->warp_barrier(warp.index, mask);
    return next;
  }
  const Touched touched = touched_by(warp, code, info);
  Touched from;
  if (info.access == Access::kAsyncCopy) {
    from = touched;
    const std::uint64_t* const sources = in<std::uint64_t>(warp, code->b);
    const std::uint32_t* const wanted =
        code->c != 0xffff ? in<std::uint32_t>(warp, code->c) : nullptr;
    for (std::uint32_t i = 0; i < kLanes; ++i) {
      from.addresses[i] = sources[i] + static_cast<std::uint64_t>(static_cast<std::int64_t>(
                                           static_cast<std::int32_t>(code->site)));
      if (wanted != nullptr && wanted[i] == 0) from.mask &= ~(std::uint32_t{1} << i);
    }
  }
  const Code* const next = original(warp, code);
  if (next == nullptr) return next;  // a fault: nothing was touched
  if (info.access == Access::kAsyncCopy) {
    note_copy(warp, code, touched, from);
  } else {
    note_memory(warp, code, info, touched);
  }
  return next;
}

void Observer::count(Warp& warp, const Code* code, const CodeInfo& info) {
  if (!info.is_first) return;
  const CompiledFunction& function = *warp.frame->function;
  const auto function_index =
      static_cast<std::size_t>(&function - launch_.module->functions.data());
  const auto index = static_cast<std::size_t>(code - function.code.data());
  const InstructionCount once{1, static_cast<std::uint64_t>(std::popcount(warp.mask))};
  add(counts_[function_index].by_code[index], once);
  if (info.access != Access::kNone) {
    const std::uint64_t first = in<std::uint64_t>(warp, code->a)[first_lane_of(warp.mask)];
    const InstructionClass which = class_of_access(info, accessed_space(info, first));
    add(profile_.classes[static_cast<std::size_t>(which)], once);
    return;
  }
  add(profile_.classes[static_cast<std::size_t>(class_of(info))], once);
  if (function.originals[index] != run_branch_if || info.op != Op::kBra) return;
  const std::uint32_t predicate = warp.predicates[code->d];
  const std::uint32_t taken = warp.mask & (code->extra != 0 ? ~predicate : predicate);
  ++profile_.branches;
  if (taken != 0 && taken != warp.mask) ++profile_.divergent_branches;
}

void Observer::note_memory(Warp& warp, const Code* code, const CodeInfo& info,
                           const Touched& touched) {
  if (info.space != MemorySpace::kGeneric && info.space != MemorySpace::kGlobal &&
      info.space != MemorySpace::kShared)
    return;
  // Lanes of a generic access may go to different memories.
  Touched shared = touched, global = touched;
  for (std::uint32_t rest = touched.mask; rest != 0; rest &= rest - 1) {
    const std::uint32_t i = first_lane_of(rest);
    const MemorySpace space = accessed_space(info, touched.addresses[i]);
    if (space != MemorySpace::kShared) shared.mask &= ~(std::uint32_t{1} << i);
    if (space != MemorySpace::kGlobal) global.mask &= ~(std::uint32_t{1} << i);
    if (info.space == MemorySpace::kGeneric) shared.addresses[i] -= kSharedWindowBegin;
  }
  if (shared.mask != 0) {
    note_shared(warp, code, info, shared);
    if (hazards_ && info.access == Access::kStore) note_collisions(warp, code, info, shared);
  }
  if (global.mask != 0) note_global(info, global);
}

void Observer::note_copy(Warp& warp, const Code* code, const Touched& to, const Touched& from) {
  CodeInfo store;
  store.access = Access::kStore;
  note_shared(warp, code, store, to);
  CodeInfo load;
  load.access = Access::kLoad;
  if (from.mask != 0) note_global(load, from);
}

void Observer::note_shared(const Warp& warp, const Code* code, const CodeInfo& info,
                           const Touched& touched) {
  if (what_.profile) {
    const auto words = units_touched(touched.mask, touched.addresses, touched.bytes, kBankBytes);
    std::array<std::uint32_t, kBanks> by_bank{};
    for (const std::uint64_t word : words)
      ++by_bank[word % kBanks];
    ++profile_.shared_requests;
    profile_.shared_passes += *std::max_element(by_bank.begin(), by_bank.end());
    profile_.shared_passes_needed += (words.size() + kBanks - 1) / kBanks;
  }
  if (!hazards_) return;
  SharedAccess access;
  access.warp = warp.index;
  access.line = code->line;
  access.instruction = ++instruction_;
  access.bytes = touched.bytes;
  access.is_store = info.access == Access::kStore || info.access == Access::kAtomic;
  access.is_strong = info.is_strong || info.access == Access::kAtomic;
  for (std::uint32_t rest = touched.mask; rest != 0; rest &= rest - 1) {
    access.lane = first_lane_of(rest);
    access.offset = touched.addresses[access.lane];
    if (info.access == Access::kAtomic) {  // reads what must be there already
      access.is_store = false;
      hazards_->access(access);
      access.is_store = true;
    }
    hazards_->access(access);
  }
}

/// The last lane's value has stayed: whoever wrote another one to the same place lost it. Lanes
/// that wrote the same are left in peace.
void Observer::note_collisions(Warp& warp, const Code* code, const CodeInfo& info,
                               const Touched& touched) {
  std::map<std::uint64_t, std::uint32_t> last;  // offset -> lane
  for (std::uint32_t rest = touched.mask; rest != 0; rest &= rest - 1) {
    const std::uint32_t lane = first_lane_of(rest);
    const auto [found, is_new] = last.emplace(touched.addresses[lane], lane);
    if (is_new) continue;
    for (std::uint32_t nth = 0; nth < info.count; ++nth) {
      const std::uint16_t slot = nth == 0   ? code->d
                                 : nth == 1 ? code->b
                                 : nth == 2 ? code->c
                                            : static_cast<std::uint16_t>(code->extra);
      const auto value = [&](std::uint32_t of) {
        return info.bytes == 8 ? in<std::uint64_t>(warp, slot)[of]
                               : in<std::uint32_t>(warp, slot)[of];
      };
      const std::uint64_t bits =
          info.bytes == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * info.bytes)) - 1;
      if (((value(lane) ^ value(found->second)) & bits) == 0) continue;
      SharedAccess access;
      access.warp = warp.index;
      access.lane = lane;
      access.line = code->line;
      access.offset = touched.addresses[lane];
      access.bytes = touched.bytes;
      access.is_store = true;
      hazards_->collision(access, found->second);
      break;
    }
    found->second = lane;
  }
}

void Observer::note_global(const CodeInfo& info, const Touched& touched) {
  if (what_.profile) {
    const auto sectors =
        units_touched(touched.mask, touched.addresses, touched.bytes, kSectorBytes);
    const auto words = units_touched(touched.mask, touched.addresses, touched.bytes, 1);
    ++profile_.global_requests;
    profile_.global_sectors += sectors.size();
    profile_.global_sectors_needed += (words.size() + kSectorBytes - 1) / kSectorBytes;
  }
  if (!what_.access_sets) return;
  for (std::uint32_t rest = touched.mask; rest != 0; rest &= rest - 1) {
    const std::uint64_t address = touched.addresses[first_lane_of(rest)];
    if (info.access != Access::kStore) sets_.load(address, touched.bytes);
    if (info.access == Access::kStore || info.access == Access::kAtomic)
      sets_.store(address, touched.bytes);
  }
}

void Observer::add_to(Observations& out, AccessRecorder& sets, std::vector<Hazard>& hazards) {
  if (what_.profile) {
    std::map<std::uint32_t, InstructionCount> lines;
    for (const Profile::Line& line : out.profile.lines)
      lines[line.line] = line.count;
    for (std::size_t f = 0; f < counts_.size(); ++f) {
      const CompiledFunction& function = launch_.module->functions[f];
      for (std::size_t i = 0; i < counts_[f].by_code.size(); ++i) {
        if (counts_[f].by_code[i].warps != 0)
          add(lines[function.code[i].line], counts_[f].by_code[i]);
      }
    }
    out.profile.lines.clear();
    for (const auto& [line, count] : lines)
      out.profile.lines.push_back({line, count});
    for (std::size_t i = 0; i < profile_.classes.size(); ++i)
      add(out.profile.classes[i], profile_.classes[i]);
    out.profile.branches += profile_.branches;
    out.profile.divergent_branches += profile_.divergent_branches;
    out.profile.global_requests += profile_.global_requests;
    out.profile.global_sectors += profile_.global_sectors;
    out.profile.global_sectors_needed += profile_.global_sectors_needed;
    out.profile.shared_requests += profile_.shared_requests;
    out.profile.shared_passes += profile_.shared_passes;
    out.profile.shared_passes_needed += profile_.shared_passes_needed;
  }
  if (what_.access_sets) sets.merge(sets_);
  if (!hazards_) return;
  out.hazard_count += hazards_->count();
  for (Hazard& hazard : hazards_->take())
    hazards.push_back(hazard);
}

}  // namespace kansoku::gpu::exec
