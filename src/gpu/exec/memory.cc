// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "gpu/exec/internal/warp.h"

namespace kansoku::gpu::exec {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kAddressFactor = 8;  // addresses for each byte of capacity, before reuse

std::uint64_t rounded_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

struct Memory::State {
  std::byte* base{nullptr};
  std::uint64_t reserved_bytes{0}, capacity{0}, used{0};
  std::uint64_t next{0};                        // offset of the next allocation
  std::map<std::uint64_t, std::uint64_t> live;  // begin -> end
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (base != nullptr) munmap(base, reserved_bytes);
  }

  /// Offset of a free place for `span` bytes; reserved_bytes if there is none.
  [[nodiscard]] std::uint64_t place_for(std::uint64_t span) const {
    if (span <= reserved_bytes - next) return next;
    // Addresses are used up: the first gap that is large enough.
    const auto origin = reinterpret_cast<std::uint64_t>(base);
    std::uint64_t at = 0;
    for (const auto& [begin, end] : live) {
      if (begin - origin >= at + span) return at;
      at = rounded_up(end - origin, kPage) + kGuardBytes;
    }
    return at + span <= reserved_bytes ? at : reserved_bytes;
  }
};

Memory::Memory(std::unique_ptr<State> state) : state_(std::move(state)) {}
Memory::Memory(Memory&&) noexcept = default;
Memory& Memory::operator=(Memory&&) noexcept = default;
Memory::~Memory() = default;

Result<Memory> Memory::create(std::uint64_t capacity_bytes) {
  auto state = std::make_unique<State>();
  state->capacity = capacity_bytes;
  state->reserved_bytes = rounded_up(capacity_bytes, kPage) * kAddressFactor + kPage;
  void* const base = mmap(nullptr, state->reserved_bytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return Error{kansoku::Code::kUnavailable,
                 fmt::format("reserve {} bytes of addresses for a software device: {}",
                             state->reserved_bytes, std::strerror(errno)),
                 "give the device less memory"};
  }
  state->base = static_cast<std::byte*>(base);
  return Memory(std::move(state));
}

Result<std::uint64_t> Memory::allocate(std::uint64_t bytes) {
  CHECK(bytes > 0);
  State& state = *state_;
  if (bytes > state.capacity - state.used) {
    return Error{kansoku::Code::kLimit,
                 fmt::format("allocate {} bytes on the software device: {} of {} bytes are in use",
                             bytes, state.used, state.capacity)};
  }
  const std::uint64_t mapped = rounded_up(bytes, kPage);
  const std::uint64_t offset = state.place_for(mapped + kGuardBytes);
  if (offset == state.reserved_bytes) {
    return Error{
        kansoku::Code::kLimit,
        fmt::format("allocate {} bytes on the software device: no piece this large is free",
                    bytes)};
  }
  std::byte* const begin = state.base + offset;
  if (mprotect(begin, mapped, PROT_READ | PROT_WRITE) != 0) {
    return Error{kansoku::Code::kLimit, fmt::format("allocate {} bytes on the software device: {}",
                                                    bytes, std::strerror(errno))};
  }
  state.next = std::max(state.next, offset + mapped + kGuardBytes);
  state.used += bytes;
  const auto address = reinterpret_cast<std::uint64_t>(begin);
  state.live.emplace(address, address + bytes);
  return address;
}

Result<void> Memory::free(std::uint64_t address) {
  State& state = *state_;
  const auto found = state.live.find(address);
  if (found == state.live.end()) {
    return Error{
        kansoku::Code::kNotFound,
        fmt::format("free 0x{:x} on the software device: no allocation begins there", address)};
  }
  const std::uint64_t bytes = found->second - found->first;
  auto* const begin = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
  // Gives the pages back and leaves the addresses reserved.
  void* const again = mmap(begin, rounded_up(bytes, kPage), PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  CHECK(again == begin);
  state.used -= bytes;
  state.live.erase(found);
  return {};
}

Memory::Range Memory::find(std::uint64_t address) const {
  auto after = state_->live.upper_bound(address);
  if (after == state_->live.begin()) return {};
  --after;
  return address < after->second ? Range{after->first, after->second} : Range{};
}

std::vector<Memory::Range> Memory::ranges() const {
  std::vector<Range> all;
  all.reserve(state_->live.size());
  for (const auto& [begin, end] : state_->live)
    all.push_back({begin, end});
  return all;
}

std::uint64_t Memory::capacity_bytes() const {
  return state_->capacity;
}
std::uint64_t Memory::used_bytes() const {
  return state_->used;
}

}  // namespace kansoku::gpu::exec
