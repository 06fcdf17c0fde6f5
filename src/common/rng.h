// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kansoku {

/// Counter-based random stream (Philox4x32-10): the same (seed, stream) gives the same numbers on
/// every machine. Copyable; a copy continues from the same point. Not shared between threads.
/// Source: Salmon et al. 2011, through the Random123 library.
class Rng {
 public:
  explicit Rng(std::uint64_t seed, std::uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  [[nodiscard]] std::uint64_t next_u64();
  /// Uniform in [0, bound) without modulo bias; `bound` >= 1.
  [[nodiscard]] std::uint64_t below(std::uint64_t bound);
  /// Uniform in [0, 1) with 53 random bits.
  [[nodiscard]] double uniform();

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
  std::uint64_t counter_{0};
};

}  // namespace kansoku
