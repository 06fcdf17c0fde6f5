// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kansoku::simulate {

/// The random numbers of the published openb runs (Go's math/rand, seeded), so that they can be
/// repeated seed by seed: an additive lagged Fibonacci generator, y(n) = y(n - 607) + y(n - 273).
/// Its seeding mixes a Lehmer sequence into a fixed state, which is the generator's own
/// after 7.8e12 steps from the Lehmer sequence of 1; that state is computed here, by jumping ahead.
/// Source: the algorithm of Mitchell and Reeds as Go's library documents it.
class PublishedRandom {
 public:
  explicit PublishedRandom(std::uint32_t seed);

  [[nodiscard]] std::uint64_t next_63_bits();
  /// Uniform in [0, bound), bound < 2^31: the remainder of 31 bits, the uneven end rejected.
  [[nodiscard]] std::uint32_t below(std::uint32_t bound);
  /// The same by multiplication of 32 bits (Lemire); shuffles use this one.
  [[nodiscard]] std::uint32_t below_by_product(std::uint32_t bound);

  void shuffle(std::vector<std::uint32_t>& items);
  [[nodiscard]] std::vector<std::uint32_t> permutation(std::uint32_t size);

 private:
  std::vector<std::uint64_t> state_;
  std::size_t tap_, feed_;
};

}  // namespace kansoku::simulate
