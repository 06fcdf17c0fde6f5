// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpu_check {

/// SplitMix64: the same numbers in each run and on each machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    state_ += 0x9e3779b97f4a7c15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  double between(double low, double high) {
    return low + (high - low) * (static_cast<double>(bits() >> 11) / 9007199254740992.0);
  }
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(bits() % count); }

 private:
  std::uint64_t state_;
};

}  // namespace gpu_check
