// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

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

/// FNV-1a of a text, for keys that must be the same in every process.
[[nodiscard]] constexpr std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

/// One source of randomness of a simulation: a counter-based stream (Philox4x64-10) whose key is
/// (seed, hash of its name), so that adding a source shifts no other's numbers. Faster than Rng:
/// four numbers a block, kept. Copyable; a copy continues from the same point. Not shared between
/// threads. Source: Salmon et al. 2011, through the Random123 library.
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::string_view name) : key_{seed, hash_of(name)} {}

  [[nodiscard]] std::uint64_t next_u64() {
    if (left_ == 0) refill();
    return block_[--left_];
  }
  /// Uniform in the open interval (0, 1), 53 random bits: safe for log and for quantiles.
  [[nodiscard]] double uniform() {
    return (static_cast<double>(next_u64() >> 11) + 0.5) * 0x1.0p-53;
  }
  /// Uniform in [0, bound) without modulo bias; `bound` >= 1.
  [[nodiscard]] std::uint64_t below(std::uint64_t bound);

 private:
  void refill();

  std::array<std::uint64_t, 2> key_;
  std::array<std::uint64_t, 4> block_{};
  std::uint64_t counter_{0};
  std::uint32_t left_{0};
};

/// Random access to a source of randomness: block `index` is four numbers that depend on (seed,
/// name, index) alone, whatever was asked before. Immutable; any thread. The generator is
/// RandomStream's under another key.
class RandomBlocks {
 public:
  using Block = std::array<std::uint64_t, 4>;
  RandomBlocks(std::uint64_t seed, std::string_view name) : key_{seed, ~hash_of(name)} {}

  [[nodiscard]] Block at(std::uint64_t index) const;
  /// Uniform in the open interval (0, 1), from one number of a block.
  [[nodiscard]] static double uniform(std::uint64_t number) {
    return (static_cast<double>(number >> 11) + 0.5) * 0x1.0p-53;
  }

 private:
  std::array<std::uint64_t, 2> key_;
};

}  // namespace kansoku
