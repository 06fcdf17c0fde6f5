// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/internal/observe/counter.h"

#include <algorithm>
#include <array>
#include <utility>

#include "gpu/exec/internal/decode/fusion.h"
#include "gpu/exec/internal/ops/control.h"

namespace kansoku::gpu::exec {
namespace {

constexpr std::uint64_t kSectorBytesLog2 = 5;

const Code* run_counted(Warp& warp, const Code* code) {
  const CompiledFunction& function = *warp.frame->function;
  const CountedCode& counted =
      function.counted[static_cast<std::size_t>(code - function.code.data())];
  const Code* const next = counted.original(warp, code);
  if (next == nullptr && will_run_again(warp)) return next;
  warp.executed += counted.instructions;
  warp.cycles += counted.latency_cycles;
  warp.block->issue16 += counted.issue16;
  return next;
}

/// An access whose costs depend on its addresses.
const Code* run_counted_access(Warp& warp, const Code* code) {
  const CompiledFunction& function = *warp.frame->function;
  const auto index = static_cast<std::size_t>(code - function.code.data());
  Counter& counter = *warp.block->counter;
  const Counter::Work work = counter.look(warp, code, function.info[index]);
  const Code* const next = function.counted[index].original(warp, code);
  counter.add(warp, work);
  return next;
}

/// The addresses in a 64-bit register, in whichever way it holds them.
class Addresses {
 public:
  Addresses(const Warp& warp, std::uint16_t slot, std::int64_t offset)
      : warp_(warp),
        is_affine_(warp.held[slot] != Held::kValues),
        affine_(warp.affine[slot]),
        values_(
            reinterpret_cast<const std::uint64_t*>(warp.lanes + std::size_t{slot} * kSlotBytes)),
        offset_(static_cast<std::uint64_t>(offset)) {}

  [[nodiscard]] std::uint64_t of(std::uint32_t lane) const {
    if (!is_affine_) return values_[lane] + offset_;
    return affine_.base + affine_.stride * (lane & (warp_.columns - 1)) +
           affine_.row * (lane >> warp_.columns_log2) + offset_;
  }
  /// Distinct sectors that these lanes access; an access is aligned and so lies in one.
  [[nodiscard]] std::uint32_t sectors(std::uint32_t mask) const {
    const bool is_row = is_affine_ && warp_.columns == kLanes && mask == ~std::uint32_t{0};
    if (is_row && affine_.stride <= std::uint64_t{1} << kSectorBytesLog2) {
      const std::uint64_t first = of(0) >> kSectorBytesLog2;
      return static_cast<std::uint32_t>((of(kLanes - 1) >> kSectorBytesLog2) - first) + 1;
    }
    // A table of twice as many places as there can be sectors; 0: free.
    constexpr int kPlacesLog2 = 6;
    std::array<std::uint64_t, std::size_t{1} << kPlacesLog2> seen{};
    std::uint32_t count = 0;
    std::uint64_t last = 0;
    for (; mask != 0; mask &= mask - 1) {
      const std::uint64_t sector = (of(first_lane_of(mask)) >> kSectorBytesLog2) + 1;
      if (sector == last) continue;
      last = sector;
      std::size_t place = (sector * 0x9e3779b97f4a7c15U) >> (64 - kPlacesLog2);  // by golden ratio
      while (seen[place] != 0 && seen[place] != sector)
        place = (place + 1) % seen.size();
      count += seen[place] == 0 ? 1U : 0U;
      seen[place] = sector;
    }
    return count;
  }

 private:
  const Warp& warp_;
  const bool is_affine_;
  const Affine affine_;
  const std::uint64_t* const values_;
  const std::uint64_t offset_;
};

CostClass class_of_space(MemorySpace space, std::uint64_t first_address, CodeInfo::Access access) {
  if (space == MemorySpace::kGeneric) {
    const std::uint64_t window = first_address - kSharedWindowBegin;
    space = window < kWindowBytes       ? MemorySpace::kShared
            : window < 2 * kWindowBytes ? MemorySpace::kLocal
                                        : MemorySpace::kGlobal;
  }
  if (space == MemorySpace::kGlobal)
    return access == CodeInfo::Access::kAtomic ? CostClass::kAtomic : CostClass::kGlobal;
  return space == MemorySpace::kShared ? CostClass::kShared : CostClass::kOther;
}

/// Puts counters in front of the codes of a function.
class CounterPlacer {
 public:
  CounterPlacer(CompiledFunction& function, const CycleCosts* costs)
      : function_(function), costs_(costs) {}

  void place() {
    function_.counted.resize(function_.code.size());
    bool is_open = false;  // the run that began at `first` goes on
    std::size_t first = 0;
    for (std::size_t i = 0; i < function_.code.size(); ++i) {
      const CodeInfo& info = function_.info[i];
      const bool is_guarded = i > 0 && function_.code[i - 1].run == run_guard;
      // Guards, joins and the further codes of an instruction are not of the text. The target of a
      // branch is a join, or has a branch in front of it.
      if (!info.is_first) is_open = false;
      if (!info.is_first) continue;
      if (depends_on_addresses(info)) {
        stand_before(i, run_counted_access);
        if (is_guarded) is_open = false;
        continue;
      }
      const bool is_alone = is_guarded || may_stop(info) || reads_clock(function_.code[i]);
      if (is_alone || !is_open) {
        first = i;
        stand_before(i, run_counted);
      }
      is_open = !is_alone;
      add(function_.counted[first], info);
    }
  }

 private:
  [[nodiscard]] bool depends_on_addresses(const CodeInfo& info) const {
    const bool is_of_block = info.space != MemorySpace::kGeneric &&
                             info.space != MemorySpace::kGlobal &&
                             info.access != CodeInfo::Access::kAsyncCopy;
    return costs_ != nullptr && info.access != CodeInfo::Access::kNone && !is_of_block;
  }
  /// Lanes part here, or wait for others.
  static bool may_stop(const CodeInfo& info) {
    return info.cost == CostClass::kControl || info.cost == CostClass::kBarrier ||
           info.cost == CostClass::kExchange || info.cost == CostClass::kMatrix;
  }
  /// The clock that it reads must count all that has run.
  static bool reads_clock(const Code& code) {
    if (code.run != run_special) return false;
    const std::string_view name = ptx::special_name(static_cast<ptx::Special>(code.extra));
    return name.starts_with("%clock") || name.starts_with("%globaltimer");
  }
  void stand_before(std::size_t index, Handler counter) {
    function_.counted[index].original = std::exchange(function_.code[index].run, counter);
  }
  void add(CountedCode& counted, const CodeInfo& info) const {
    ++counted.instructions;
    if (costs_ == nullptr) return;
    const bool is_access = info.access != CodeInfo::Access::kNone;
    const CostClass which = is_access ? class_of_space(info.space, 0, info.access) : info.cost;
    const ClassCost& cost = costs_->classes[static_cast<std::size_t>(which)];
    counted.issue16 += cost.issue16;
    counted.latency_cycles += cost.latency_cycles;
  }

  CompiledFunction& function_;
  const CycleCosts* const costs_;
};

}  // namespace

std::string_view cost_class_name(CostClass which) {
  static constexpr std::array<std::string_view, kCostClasses> kNames{
      "arithmetic", "multiply", "conversion", "special", "division", "half",  "double", "exchange",
      "matrix",     "control",  "barrier",    "shared",  "global",   "other", "atomic"};
  return kNames[static_cast<std::size_t>(which)];
}

std::unique_ptr<CompiledModule> counted_copy(const CompiledModule& module, const CycleCosts* costs,
                                             Isa isa) {
  auto copy = std::make_unique<CompiledModule>(module);
  for (CompiledFunction& function : copy->functions) {
    function.prologue = 0;  // every block is counted alike
    CounterPlacer(function, costs).place();
    fuse_sequences(function, isa);  // only code without counters
  }
  return copy;
}

Counter::Counter(const CycleCosts* costs, std::uint32_t sm_count) : costs_(costs) {
  counts_.sms.resize(sm_count);
}

Counter::Work Counter::look(const Warp& warp, const Code* code, const CodeInfo& info) const {
  Work work{info.cost, 0};
  if (costs_ == nullptr || info.access == CodeInfo::Access::kNone) return work;
  // For a copy from global to shared memory, the global side: c holds the lanes that do copy.
  const bool is_copy = info.access == CodeInfo::Access::kAsyncCopy;
  const Addresses addresses(warp, is_copy ? code->b : code->a,
                            is_copy ? static_cast<std::int32_t>(code->site) : code->offset);
  const MemorySpace space = is_copy ? MemorySpace::kGlobal : info.space;
  work.cost = class_of_space(space, addresses.of(first_lane_of(warp.mask)), info.access);
  if (work.cost == CostClass::kGlobal || work.cost == CostClass::kAtomic)
    work.sectors = addresses.sectors(warp.mask);
  return work;
}

void Counter::add(Warp& warp, const Work& work) {
  ++warp.executed;
  if (costs_ == nullptr) return;
  const auto index = static_cast<std::size_t>(work.cost);
  const ClassCost& cost = costs_->classes[index];
  counts_.sectors += work.sectors;
  warp.cycles += cost.latency_cycles;
  warp.block->issue16 += cost.issue16;
}

void Counter::end_block(const BlockState& block, std::uint64_t latency_cycles) {
  SmCounts& sm = counts_.sms[block.number % counts_.sms.size()];
  ++sm.blocks;
  sm.issue16 += block.issue16;
  sm.latency_cycles += latency_cycles;
  sm.latency_cycles_max = std::max(sm.latency_cycles_max, latency_cycles);
}

void Counter::add_to(LaunchCounts& out) const {
  out.sectors += counts_.sectors;
  out.sms.resize(std::max(out.sms.size(), counts_.sms.size()));
  for (std::size_t i = 0; i < counts_.sms.size(); ++i) {
    const SmCounts& from = counts_.sms[i];
    SmCounts& to = out.sms[i];
    to.blocks += from.blocks;
    to.issue16 += from.issue16;
    to.latency_cycles += from.latency_cycles;
    to.latency_cycles_max = std::max(to.latency_cycles_max, from.latency_cycles_max);
  }
}

}  // namespace kansoku::gpu::exec
