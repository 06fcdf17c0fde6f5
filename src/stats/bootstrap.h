// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/rng.h"

namespace kansoku::stats {

/// A run of consecutive items `begin .. begin + count` drawn together.
struct Block {
  std::size_t begin{0};
  std::size_t count{0};
};

/// Part of the resamples on each side of an interval that holds 95 % of them.
inline constexpr double kTail = 0.025;

/// Block length ceil(n^(1/3)), at least 1: the rate that keeps short-range dependence between
/// neighbours. Source: rate from Hall, Horowitz and Jing 1995 (recalled: unverified); the factor 1
/// is ours.
[[nodiscard]] std::size_t default_block_length(std::size_t item_count);

/// Circular moving-block bootstrap over `item_count` items in a fixed order: every draw has exactly
/// `item_count` items, every item the same expected weight, and neighbours stay together.
/// Deterministic for a seed. Not shared between threads.
/// Source: Politis and Romano 1992 (recalled: unverified).
class BlockBootstrap {
 public:
  /// `block_length` is clamped to 1 .. item_count.
  BlockBootstrap(std::size_t item_count, std::size_t block_length, std::uint64_t seed);

  /// The next resample. The span is valid until the next call; empty if there are no items.
  [[nodiscard]] std::span<const Block> draw();

 private:
  std::size_t item_count_;
  std::size_t block_length_;
  Rng rng_;
  std::vector<Block> blocks_;
};

/// Sums over blocks in constant time each. Differences of running sums: exact to about 1e-16 of
/// the total.
class PrefixSums {
 public:
  explicit PrefixSums(std::span<const double> values);
  /// Mean over all items of `blocks`, which lie inside the values; 0 for no item.
  [[nodiscard]] double mean(std::span<const Block> blocks) const;

 private:
  std::vector<double> sums_;
};

}  // namespace kansoku::stats
