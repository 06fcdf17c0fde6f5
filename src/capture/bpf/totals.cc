// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "capture/bpf/engine.h"

namespace kansoku::capture::bpf {
namespace {

double lower_ns(std::uint32_t bucket) {
  if (bucket == 0) return 0;
  const std::uint32_t quarter = (bucket - 1) % 4;
  const auto power = static_cast<int>(WIRE_BUCKET_FIRST_POWER + (bucket - 1) / 4);
  return std::ldexp(1 + 0.25 * quarter, power);
}

}  // namespace

double bucket_upper_ns(std::uint32_t bucket) {
  return bucket + 1 >= WIRE_BUCKETS ? std::numeric_limits<double>::infinity()
                                    : lower_ns(bucket + 1);
}

double bucket_quantile_ns(std::span<const std::uint32_t> buckets, double share) {
  std::uint64_t total = 0;
  for (const std::uint32_t count : buckets)
    total += count;
  if (total == 0) return 0;
  const double wanted = std::clamp(share, 0.0, 1.0) * static_cast<double>(total);
  double below = 0;
  std::uint32_t last = 0;
  for (std::uint32_t i = 0; i < buckets.size(); ++i) {
    if (buckets[i] == 0) continue;
    last = i;
    const double here = buckets[i];
    if (below + here >= wanted) {
      const double low = lower_ns(i);
      const double high = i + 1 >= WIRE_BUCKETS ? low : bucket_upper_ns(i);
      return low + (high - low) * std::max(0.0, wanted - below) / here;
    }
    below += here;
  }
  return lower_ns(last);
}

}  // namespace kansoku::capture::bpf
