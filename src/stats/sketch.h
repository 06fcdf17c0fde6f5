// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "common/result.h"

namespace kansoku::stats {

/// Quantiles of non-negative values within 1 % relative error, by counting in logarithmic buckets:
/// one counter for each bucket between the smallest and the largest in use, at most some 2,400,
/// whatever the number of values; two sketches merge exactly. Values below kLeast count as 0,
/// values above kMost in the last bucket. A value type. Source: the idea of DDSketch (Masson, Rim
/// and Lee 2019); the fixed range is ours.
class LogSketch {
 public:
  static constexpr double kRelativeError = 0.01, kLeast = 1e-9, kMost = 1e12;
  /// Most values that encoded bytes may claim: 16 million such sketches merge without overflow.
  static constexpr std::uint64_t kEncodedCountMax = std::uint64_t{1} << 40;

  void add(double value, std::uint64_t count = 1);
  void merge(const LogSketch& other);
  [[nodiscard]] std::uint64_t count() const { return zeros_ + above_zero_; }
  /// The value below which a `share` (clamped to 0..1) of all values lies; 0 without values.
  [[nodiscard]] double quantile(double share) const;
  /// Memory of the counters.
  [[nodiscard]] std::size_t memory_bytes() const {
    return sizeof(*this) + buckets_.capacity() * sizeof(std::uint64_t);
  }

  /// Appends all counts to `to`, two bytes for most buckets in use: zeros, then for each bucket
  /// with values the distance from the one before and its count less one, all as varints. Equal
  /// sketches give equal bytes, whatever order they were filled in. A count above kEncodedCountMax
  /// in all would be refused by `decode`.
  void encode(std::string& to) const;
  /// The sketch of the whole of `untrusted`; kCorrupt names the mistake. Bytes have one form:
  /// accepted bytes encode to the same ones again.
  [[nodiscard]] static Result<LogSketch> decode(ByteSpan untrusted);

 private:
  void reach(std::size_t bucket);

  std::uint64_t zeros_{0}, above_zero_{0};
  std::size_t first_{0};                // bucket of buckets_[0]
  std::vector<std::uint64_t> buckets_;  // from the smallest to the largest in use
};

}  // namespace kansoku::stats
