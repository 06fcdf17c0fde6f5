// SPDX-License-Identifier: Apache-2.0
#include "stats/sketch.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "common/varint.h"

namespace kansoku::stats {
namespace {

// Bucket i holds (kLeast * g^(i-1), kLeast * g^i] and stands for the value in its middle.
const double kGrowth = (1 + LogSketch::kRelativeError) / (1 - LogSketch::kRelativeError);
const double kLogGrowth = std::log(kGrowth);

std::size_t bucket_of(double value) {
  const double index =
      std::ceil(std::log(std::min(value, LogSketch::kMost) / LogSketch::kLeast) / kLogGrowth);
  return index <= 0 ? 0 : static_cast<std::size_t>(index);
}

const std::size_t kBucketMax = bucket_of(LogSketch::kMost);

}  // namespace

/// Makes room for `bucket`.
void LogSketch::reach(std::size_t bucket) {
  if (buckets_.empty()) first_ = bucket;
  if (bucket < first_) {
    buckets_.insert(buckets_.begin(), first_ - bucket, 0);
    first_ = bucket;
  }
  if (bucket - first_ >= buckets_.size()) buckets_.resize(bucket - first_ + 1);
}

void LogSketch::add(double value, std::uint64_t count) {
  if (!(value >= kLeast)) {
    zeros_ += count;
    return;
  }
  if (count == 0) return;
  const std::size_t bucket = bucket_of(value);
  reach(bucket);
  buckets_[bucket - first_] += count;
  above_zero_ += count;
}

void LogSketch::merge(const LogSketch& other) {
  zeros_ += other.zeros_;
  above_zero_ += other.above_zero_;
  if (other.buckets_.empty()) return;
  reach(other.first_);
  reach(other.first_ + other.buckets_.size() - 1);
  for (std::size_t i = 0; i < other.buckets_.size(); ++i)
    buckets_[other.first_ - first_ + i] += other.buckets_[i];
}

void LogSketch::encode(std::string& to) const {
  append_varint(to, zeros_);
  std::size_t next = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (buckets_[i] == 0) continue;
    append_varint(to, first_ + i - next);
    append_varint(to, buckets_[i] - 1);
    next = first_ + i + 1;
  }
}

Result<LogSketch> LogSketch::decode(ByteSpan untrusted) {
  const auto bad = [](const char* why) {
    return Error{Code::kCorrupt, std::string("read quantile sketch: ") + why};
  };
  LogSketch sketch;
  const auto zeros = take_varint(untrusted);
  if (!zeros || *zeros > kEncodedCountMax) return bad("count of zeros");
  sketch.zeros_ = *zeros;
  std::size_t next = 0;
  while (!untrusted.empty()) {
    const auto distance = take_varint(untrusted);
    if (!distance || *distance > kBucketMax || next + *distance > kBucketMax) return bad("bucket");
    const auto count = take_varint(untrusted);
    if (!count || *count >= kEncodedCountMax || sketch.count() + *count >= kEncodedCountMax)
      return bad("count");
    const std::size_t bucket = next + *distance;
    sketch.reach(bucket);
    sketch.buckets_[bucket - sketch.first_] = *count + 1;
    sketch.above_zero_ += *count + 1;
    next = bucket + 1;
  }
  return sketch;
}

double LogSketch::quantile(double share) const {
  const auto rank = static_cast<std::uint64_t>(
      std::clamp(share, 0.0, 1.0) * static_cast<double>(std::max<std::uint64_t>(count(), 1) - 1));
  std::uint64_t seen = zeros_;
  if (rank < seen) return 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (rank < seen)
      return kLeast * std::pow(kGrowth, static_cast<double>(first_ + i)) * 2 / (1 + kGrowth);
  }
  return 0;
}

}  // namespace kansoku::stats
