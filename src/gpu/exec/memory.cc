// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "common/check.h"

namespace kansoku::gpu::exec {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kReserveBytesMax = std::uint64_t{1} << 46;  // half of a process's addresses
constexpr std::uint64_t kAddressFactor = 8;  // addresses for each byte of capacity, before reuse

std::uint64_t rounded_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

void* pointer_to(std::uint64_t address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

/// Gives the pages back and leaves the addresses reserved.
void withdraw(std::uint64_t address, std::uint64_t bytes) {
  void* const again = mmap(pointer_to(address), bytes, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  CHECK(again == pointer_to(address));
}

constexpr int kReserve = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

/// Exactly `bytes` of addresses at `hint`, or none: 0.
std::uint64_t reserve_at(std::uint64_t hint, std::uint64_t bytes) {
  void* const place =
      mmap(pointer_to(hint), bytes, PROT_NONE, kReserve | MAP_FIXED_NOREPLACE, -1, 0);
  if (place == MAP_FAILED) return 0;
  const auto address = reinterpret_cast<std::uint64_t>(place);
  if (address == hint) return address;
  munmap(place, bytes);  // a kernel that takes it for a hint only
  return 0;
}

/// `bytes` of addresses that begin at a multiple of `align`, a power of two; 0 if there are none.
std::uint64_t reserve_anywhere(std::uint64_t bytes, std::uint64_t align) {
  const std::uint64_t wanted = bytes + align;
  void* const place = mmap(nullptr, wanted, PROT_NONE, kReserve, -1, 0);
  if (place == MAP_FAILED) return 0;
  const auto begin = reinterpret_cast<std::uint64_t>(place);
  const std::uint64_t address = rounded_up(begin, align);
  if (address > begin) munmap(place, address - begin);
  if (const std::uint64_t rest = begin + wanted - (address + bytes); rest > 0)
    munmap(pointer_to(address + bytes), rest);
  return address;
}

}  // namespace

struct Memory::State {
  enum class Use : std::uint8_t { kDevice, kHost, kForeign, kReserved };
  struct Block {
    std::uint64_t end{0};
    Use use{Use::kDevice};
  };
  struct Mapping {
    std::uint64_t end{0};
    bool is_accessible{false};
  };

  mutable std::mutex mutex;
  std::uint64_t base{0}, reserved_bytes{0}, capacity{0};
  std::uint64_t used{0}, next{0};                   // guarded by mutex; next: offset
  std::map<std::uint64_t, Block> blocks;            // guarded by mutex; by begin
  std::map<std::uint64_t, Mapping> mappings;        // guarded by mutex; within reserved blocks
  std::uint32_t holds{0};                           // guarded by mutex
  std::map<std::uint64_t, std::uint64_t> withheld;  // guarded by mutex; gone, but held: begin, end
  bool is_protection_late{false};                   // guarded by mutex
  mutable Ranges listed;                            // guarded by mutex; null: not since a change
  std::vector<Range> released;                      // guarded by mutex; reserved before, but held

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (base != 0) munmap(pointer_to(base), reserved_bytes);
    for (const auto& [begin, block] : blocks) {
      if (block.use == Use::kReserved) return_addresses({begin, block.end});
    }
    for (const Range& range : released)
      return_addresses(range);
  }

  /// Returns a reservation, with the guard behind it.
  static void return_addresses(Range range) {
    munmap(pointer_to(range.begin), range.end - range.begin + kGuardBytes);
  }
  /// True if it is an address for allocations.
  [[nodiscard]] bool is_inside(std::uint64_t address) const {
    return address - base < reserved_bytes;
  }

  /// Address of a free place for `span` bytes, a multiple of the page; 0 if there is none.
  [[nodiscard]] std::uint64_t place_for(std::uint64_t span) {
    if (span > reserved_bytes) return 0;
    if (next <= reserved_bytes - span) {
      next += span;
      return base + next - span;
    }
    // Addresses are used up: the first gap that is large enough between blocks and what is held.
    std::uint64_t at = base;
    auto gone = withheld.begin();
    const auto passes_gone_before = [&](std::uint64_t limit) {
      for (; gone != withheld.end() && gone->first < limit; ++gone) {
        if (!is_inside(gone->first)) continue;
        if (gone->first >= at + span) return false;
        at = std::max(at, rounded_up(gone->second, kPage) + kGuardBytes);
      }
      return true;
    };
    for (const auto& [begin, block] : blocks) {
      if (!is_inside(begin)) continue;
      if (!passes_gone_before(begin) || begin >= at + span) return at;
      at = std::max(at, rounded_up(block.end, kPage) + kGuardBytes);
    }
    if (!passes_gone_before(UINT64_MAX)) return at;
    return at + span <= base + reserved_bytes ? at : 0;
  }

  /// Gives pages back, at once or when nobody holds them any more.
  void give_back(Range range) {
    if (holds == 0) {
      withdraw(range.begin, range.end - range.begin);
      return;
    }
    std::uint64_t& end = withheld[range.begin];
    end = std::max(end, range.end);
  }
  /// Something new lies there.
  void forget_withheld(Range range) {
    auto each = withheld.lower_bound(range.begin);
    if (each != withheld.begin() && std::prev(each)->second > range.begin) --each;
    while (each != withheld.end() && each->first < range.end) {
      const auto [begin, end] = *each;
      each = withheld.erase(each);
      if (begin < range.begin) withheld[begin] = range.begin;
      if (end > range.end) each = withheld.emplace(range.end, end).first;
    }
  }
  void let_go() {
    if (--holds != 0) return;
    for (const auto& [begin, end] : withheld)
      withdraw(begin, end - begin);
    withheld.clear();
    for (const Range& range : released)
      return_addresses(range);
    released.clear();
    if (!std::exchange(is_protection_late, false)) return;
    for (const auto& [begin, mapping] : mappings) {
      if (mapping.is_accessible) continue;
      CHECK(mprotect(pointer_to(begin), mapping.end - begin, PROT_NONE) == 0);
    }
  }

  [[nodiscard]] bool overlaps_block(Range range) const {
    const auto after = blocks.lower_bound(range.end);
    return after != blocks.begin() && std::prev(after)->second.end > range.begin;
  }
  [[nodiscard]] bool overlaps_mapping(Range range) const {
    const auto after = mappings.lower_bound(range.end);
    return after != mappings.begin() && std::prev(after)->second.end > range.begin;
  }
  /// True if `range` is made of whole mappings without a gap.
  [[nodiscard]] bool is_mapped_whole(Range range) const {
    std::uint64_t at = range.begin;
    while (at < range.end) {
      const auto found = mappings.find(at);
      if (found == mappings.end()) return false;
      at = found->second.end;
    }
    return at == range.end && range.begin < range.end;
  }
};

Memory::Hold::Hold(const Memory& memory) : state_(memory.state_.get()) {
  const std::scoped_lock lock(state_->mutex);
  ++state_->holds;
}
Memory::Hold::~Hold() {
  if (state_ == nullptr) return;
  const std::scoped_lock lock(state_->mutex);
  state_->let_go();
}

Memory::Memory(std::unique_ptr<State> state) : state_(std::move(state)) {}
Memory::Memory(Memory&&) noexcept = default;
Memory& Memory::operator=(Memory&&) noexcept = default;
Memory::~Memory() = default;

Result<Memory> Memory::create(std::uint64_t capacity_bytes, std::uint64_t base) {
  auto state = std::make_unique<State>();
  state->capacity = capacity_bytes;
  state->reserved_bytes = rounded_up(capacity_bytes, kPage) * kAddressFactor + kGranule;
  state->base = base != 0 ? reserve_at(base, state->reserved_bytes)
                          : reserve_anywhere(state->reserved_bytes, kPage);
  if (state->base == 0) {
    return Error{
        kansoku::Code::kUnavailable,
        fmt::format("reserve {} bytes of addresses for a software device{}: {}",
                    state->reserved_bytes, base != 0 ? fmt::format(" at 0x{:x}", base) : "",
                    std::strerror(errno)),
        base != 0 ? "choose another base" : "give the device less memory"};
  }
  return Memory(std::move(state));
}

Result<std::uint64_t> Memory::allocate(std::uint64_t bytes, Kind kind) {
  CHECK(bytes > 0);
  State& state = *state_;
  const std::scoped_lock lock(state.mutex);
  if (kind == Kind::kDevice && bytes > state.capacity - state.used) {
    return Error{kansoku::Code::kLimit,
                 fmt::format("allocate {} bytes on the software device: {} of {} bytes are in use",
                             bytes, state.used, state.capacity)};
  }
  if (bytes > state.reserved_bytes)
    return Error{kansoku::Code::kLimit, fmt::format("allocate {} bytes: too many", bytes)};
  const std::uint64_t mapped = rounded_up(bytes, kPage);
  const std::uint64_t address = state.place_for(mapped + kGuardBytes);
  if (address == 0) {
    return Error{
        kansoku::Code::kLimit,
        fmt::format("allocate {} bytes on the software device: no free block is large enough",
                    bytes)};
  }
  if (mprotect(pointer_to(address), mapped, PROT_READ | PROT_WRITE) != 0) {
    return Error{kansoku::Code::kLimit, fmt::format("allocate {} bytes on the software device: {}",
                                                    bytes, std::strerror(errno))};
  }
  if (kind == Kind::kDevice) state.used += bytes;
  state.listed = nullptr;
  state.blocks.emplace(
      address, State::Block{address + bytes,
                            kind == Kind::kDevice ? State::Use::kDevice : State::Use::kHost});
  return address;
}

Result<void> Memory::free(std::uint64_t address) {
  State& state = *state_;
  const std::scoped_lock lock(state.mutex);
  const auto found = state.blocks.find(address);
  if (found == state.blocks.end() ||
      (found->second.use != State::Use::kDevice && found->second.use != State::Use::kHost)) {
    return Error{
        kansoku::Code::kNotFound,
        fmt::format("free 0x{:x} on the software device: no allocation begins there", address)};
  }
  const std::uint64_t bytes = found->second.end - address;
  state.give_back({address, address + rounded_up(bytes, kPage)});
  if (found->second.use == State::Use::kDevice) state.used -= bytes;
  state.listed = nullptr;
  state.blocks.erase(found);
  return {};
}

Result<void> Memory::add_foreign(Range range) {
  State& state = *state_;
  const std::scoped_lock lock(state.mutex);
  if (range.begin >= range.end || state.overlaps_block(range))
    return Error{kansoku::Code::kLimit,
                 fmt::format("register 0x{:x}: overlaps other memory", range.begin)};
  state.listed = nullptr;
  state.blocks.emplace(range.begin, State::Block{range.end, State::Use::kForeign});
  return {};
}

Result<void> Memory::remove_foreign(std::uint64_t begin) {
  State& state = *state_;
  const std::scoped_lock lock(state.mutex);
  const auto found = state.blocks.find(begin);
  if (found == state.blocks.end() || found->second.use != State::Use::kForeign)
    return Error{kansoku::Code::kNotFound, fmt::format("unregister 0x{:x}: not registered", begin)};
  state.listed = nullptr;
  state.blocks.erase(found);
  return {};
}

Result<std::uint64_t> Memory::reserve(std::uint64_t bytes, std::uint64_t align,
                                      std::uint64_t hint) {
  CHECK(align >= kGranule && (align & (align - 1)) == 0);
  State& state = *state_;
  const std::scoped_lock lock(state.mutex);
  std::uint64_t address = 0;
  if (bytes != 0 && bytes % kGranule == 0 && bytes <= kReserveBytesMax) {
    const std::uint64_t wanted = bytes + kGuardBytes;
    if (hint != 0 && hint % align == 0) address = reserve_at(hint, wanted);
    if (address == 0) address = reserve_anywhere(wanted, align);
  }
  if (address == 0)
    return Error{kansoku::Code::kLimit, fmt::format("reserve {} bytes of addresses", bytes)};
  state.blocks.emplace(address, State::Block{address + bytes, State::Use::kReserved});
  return address;
}

Result<void> Memory::release(Range range) {
  State& state = *state_;
  const std::scoped_lock lock(state.mutex);
  const auto found = state.blocks.find(range.begin);
  if (found == state.blocks.end() || found->second.use != State::Use::kReserved ||
      found->second.end != range.end)
    return Error{kansoku::Code::kNotFound,
                 fmt::format("release 0x{:x}: not reserved", range.begin)};
  if (state.overlaps_mapping(range))
    return Error{kansoku::Code::kLimit, fmt::format("release 0x{:x}: still mapped", range.begin)};
  state.blocks.erase(found);
  if (state.holds == 0) {
    State::return_addresses(range);
  } else {
    state.released.push_back(range);
  }
  return {};
}

Result<void> Memory::map(Range range, int fd, std::uint64_t file_offset) {
  State& state = *state_;
  const std::scoped_lock lock(state.mutex);
  auto holder = state.blocks.upper_bound(range.begin);
  const bool is_inside = range.begin < range.end && range.begin % kGranule == 0 &&
                         range.end % kGranule == 0 && holder != state.blocks.begin() &&
                         (--holder)->second.use == State::Use::kReserved &&
                         range.end <= holder->second.end;
  if (!is_inside)
    return Error{kansoku::Code::kNotFound, fmt::format("map at 0x{:x}: not reserved", range.begin)};
  if (state.overlaps_mapping(range))
    return Error{kansoku::Code::kLimit, fmt::format("map at 0x{:x}: already mapped", range.begin)};
  void* const place = mmap(pointer_to(range.begin), range.end - range.begin, PROT_NONE,
                           MAP_SHARED | MAP_FIXED, fd, static_cast<off_t>(file_offset));
  if (place == MAP_FAILED)
    return Error{kansoku::Code::kUnavailable,
                 fmt::format("map at 0x{:x}: {}", range.begin, std::strerror(errno))};
  state.forget_withheld(range);
  state.mappings.emplace(range.begin, State::Mapping{range.end, false});
  return {};
}

Result<void> Memory::unmap(Range range) {
  State& state = *state_;
  const std::scoped_lock lock(state.mutex);
  if (!state.is_mapped_whole(range))
    return Error{kansoku::Code::kNotFound, fmt::format("unmap 0x{:x}: not mapped", range.begin)};
  state.give_back(range);
  state.listed = nullptr;
  state.mappings.erase(state.mappings.find(range.begin), state.mappings.lower_bound(range.end));
  return {};
}

Result<void> Memory::set_accessible(Range range, bool is_accessible) {
  State& state = *state_;
  const std::scoped_lock lock(state.mutex);
  if (!state.is_mapped_whole(range))
    return Error{kansoku::Code::kNotFound,
                 fmt::format("access to 0x{:x}: not mapped", range.begin)};
  const bool is_late = !is_accessible && state.holds != 0;
  state.is_protection_late = state.is_protection_late || is_late;
  if (!is_late && mprotect(pointer_to(range.begin), range.end - range.begin,
                           is_accessible ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
    return Error{kansoku::Code::kUnavailable,
                 fmt::format("access to 0x{:x}: {}", range.begin, std::strerror(errno))};
  state.listed = nullptr;
  const auto end = state.mappings.lower_bound(range.end);
  for (auto each = state.mappings.find(range.begin); each != end; ++each)
    each->second.is_accessible = is_accessible;
  return {};
}

Result<void> Memory::charge(std::uint64_t bytes) {
  const std::scoped_lock lock(state_->mutex);
  if (bytes > state_->capacity - state_->used) {
    return Error{kansoku::Code::kLimit,
                 fmt::format("allocate {} bytes on the software device: {} of {} bytes are in use",
                             bytes, state_->used, state_->capacity)};
  }
  state_->used += bytes;
  return {};
}

void Memory::discharge(std::uint64_t bytes) {
  const std::scoped_lock lock(state_->mutex);
  CHECK(bytes <= state_->used);
  state_->used -= bytes;
}

Memory::Range Memory::find(std::uint64_t address) const {
  const std::scoped_lock lock(state_->mutex);
  auto after = state_->blocks.upper_bound(address);
  if (after == state_->blocks.begin()) return {};
  --after;
  if (address >= after->second.end) return {};
  if (after->second.use != State::Use::kReserved) return {after->first, after->second.end};
  auto mapping = state_->mappings.upper_bound(address);
  if (mapping == state_->mappings.begin()) return {};
  --mapping;
  return address < mapping->second.end && mapping->second.is_accessible
             ? Range{mapping->first, mapping->second.end}
             : Range{};
}

Memory::Ranges Memory::ranges() const {
  const State& state = *state_;
  const std::scoped_lock lock(state.mutex);
  if (state.listed != nullptr) return state.listed;
  auto all = std::make_shared<std::vector<Range>>();
  all->reserve(state.blocks.size() + state.mappings.size());
  for (const auto& [begin, block] : state.blocks) {
    if (block.use != State::Use::kReserved) all->push_back({begin, block.end});
  }
  for (const auto& [begin, mapping] : state.mappings) {
    if (mapping.is_accessible) all->push_back({begin, mapping.end});
  }
  if (!state.mappings.empty()) {
    std::sort(all->begin(), all->end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
  }
  state.listed = std::move(all);
  return state.listed;
}

bool Memory::is_own(std::uint64_t address) const {
  const State& state = *state_;
  if (state.is_inside(address)) return true;
  const std::scoped_lock lock(state.mutex);
  const auto after = state.blocks.upper_bound(address);
  if (after == state.blocks.begin()) return false;
  const auto& block = std::prev(after)->second;
  return block.use == State::Use::kReserved && address < block.end;
}
std::uint64_t Memory::capacity_bytes() const {
  return state_->capacity;
}
std::uint64_t Memory::used_bytes() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->used;
}

}  // namespace kansoku::gpu::exec
