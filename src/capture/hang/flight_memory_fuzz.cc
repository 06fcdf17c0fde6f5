// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "capture/hang/flight_memory.h"

// The input lies where a recorder would have its header and entries; words that are small are made
// addresses within it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kansoku::capture::hang;
  static std::array<std::byte, 16384> memory{};
  memory.fill(std::byte{0});
  std::memcpy(memory.data(), data, std::min(size, memory.size()));
  const auto base = reinterpret_cast<std::uintptr_t>(memory.data());
  for (std::size_t at = 0; at + 8 <= memory.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, memory.data() + at, sizeof word);
    if (word >> 16 != 0x4b4e) continue;
    word = base + (word & 0x3fff);
    std::memcpy(memory.data() + at, &word, sizeof word);
  }
  auto heads = flight_heads(std::span(memory).first(flight_head_bytes()), 2000);
  heads.push_back({0, base + 512, 16, 20, base + 256, 3});
  heads.push_back({1, base + 512, 16, 20, base + 256, 3});
  for (const FlightHead& one : heads) {
    const FlightMemory found = read_flight_object(::getpid(), one);
    if (found.dump.entries.size() + found.dump.bad_entries < one.entry_count) __builtin_trap();
  }
  return 0;
}
