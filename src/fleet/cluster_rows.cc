// SPDX-License-Identifier: Apache-2.0
#include "fleet/cluster_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <utility>

#include "common/varint.h"

namespace kansoku::fleet {
namespace {

constexpr double kPresentShare = 0.9;
constexpr std::size_t kFeaturesMin = 2;
constexpr std::size_t kAxisBytesMax = 5 + 1 + 2 * 4;

void append_float(std::string& to, double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  for (unsigned shift = 0; shift < 32; shift += 8)
    to.push_back(static_cast<char>(bits >> shift));
}

double float_at(ByteSpan bytes) {
  std::uint32_t bits = 0;
  for (unsigned i = 0; i < 4; ++i)
    bits |= static_cast<std::uint32_t>(bytes[i]) << (8 * i);
  return static_cast<double>(std::bit_cast<float>(bits));
}

Error corrupt(std::string_view what) {
  return Error{Code::kCorrupt, fmt::format("read cluster features: {}", what)};
}

std::size_t head_bytes(std::size_t features) {
  return 1 + features * kAxisBytesMax;
}

}  // namespace

double ClusterAxis::of(double value) const {
  if (scale == Scale::kLog) return std::log(std::max(value, 0.0) + floor) / unit;
  return value / unit;
}

double ClusterAxis::value_of(double coordinate) const {
  if (scale == Scale::kLog) return std::max(0.0, std::exp(coordinate * unit) - floor);
  return coordinate * unit;
}

std::string encode_cluster_part(std::span<const std::uint32_t> features,
                                std::span<const ClusterAxis> axes,
                                const stats::ClusterFeatures& rows) {
  std::string out;
  append_varint(out, features.size());
  for (std::size_t i = 0; i < features.size(); ++i) {
    append_varint(out, features[i]);
    out.push_back(static_cast<char>(axes[i].scale));
    append_float(out, axes[i].floor);
    append_float(out, axes[i].unit);
  }
  return out + rows.encode();
}

Result<ClusterPart> decode_cluster_part(ByteSpan untrusted, std::size_t feature_count) {
  const auto count = take_varint(untrusted);
  if (!count || *count == 0) return corrupt("no features");
  if (*count > ClusterRows::kFeaturesMax)
    return Error{Code::kLimit, "read cluster features: too many features"};
  std::vector<std::uint32_t> features;
  std::vector<ClusterAxis> axes;
  for (std::uint64_t i = 0; i < *count; ++i) {
    const auto feature = take_varint(untrusted);
    if (!feature || *feature >= feature_count || untrusted.size() < 9) return corrupt("an axis");
    if (!features.empty() && *feature <= features.back()) return corrupt("order of features");
    const auto scale = static_cast<ClusterAxis::Scale>(untrusted[0]);
    const ClusterAxis axis{scale, float_at(untrusted.subspan(1)), float_at(untrusted.subspan(5))};
    untrusted = untrusted.subspan(9);
    if (scale != ClusterAxis::Scale::kLinear && scale != ClusterAxis::Scale::kLog)
      return corrupt("a scale is unknown");
    const bool makes_sense = axis.floor >= 0 && axis.floor <= 1e15 && axis.unit >= 1e-15 &&
                             axis.unit <= 1e15 &&
                             (scale == ClusterAxis::Scale::kLinear || axis.floor > 0);
    if (!makes_sense) return corrupt("an axis is invalid");
    features.push_back(static_cast<std::uint32_t>(*feature));
    axes.push_back(axis);
  }
  TRY(auto rows, stats::ClusterFeatures::decode(untrusted, ClusterRows::kClusters));
  if (static_cast<std::size_t>(rows.dimensions()) != features.size())
    return corrupt("rows with other dimensions");
  return ClusterPart{std::move(features), std::move(axes), std::move(rows)};
}

/// By what was there since the counts began; empty: too few.
std::vector<std::uint32_t> ClusterRows::choice(std::span<const ClusterAxis> axes) const {
  std::vector<std::uint32_t> out;
  const double least = kPresentShare * static_cast<double>(windows_);
  for (std::size_t i = 0; i < axes.size() && out.size() < kFeaturesMax; ++i) {
    const bool is_there = static_cast<double>(present_[i]) >= least;
    if (axes[i].scale != ClusterAxis::Scale::kNone && is_there)
      out.push_back(static_cast<std::uint32_t>(i));
  }
  if (out.size() < kFeaturesMin) out.clear();
  return out;
}

void ClusterRows::choose(std::span<const ClusterAxis> axes) {
  features_ = choice(axes);
  windows_ = incomplete_ = 0;
  present_.assign(axes.size(), 0);
  rows_.reset();
  if (features_.empty()) return;
  auto made = stats::ClusterFeatures::make(static_cast<int>(features_.size()), kClusters);
  if (made) rows_.emplace(std::move(*made));
}

void ClusterRows::add(std::span<const double> values, std::span<const ClusterAxis> axes) {
  if (values.size() != axes.size() || axes.empty()) return;
  present_.resize(axes.size());
  ++windows_;
  for (std::size_t i = 0; i < values.size(); ++i)
    present_[i] += std::isfinite(values[i]) ? 1 : 0;
  if (!rows_) {
    if (windows_ >= kChooseWindows) choose(axes);
    return;
  }
  std::vector<double> row;
  for (const std::uint32_t feature : features_)
    row.push_back(axes[feature].of(values[feature]));
  // A value that is not there makes the row one that is not taken.
  if (!rows_->add(row)) ++incomplete_;
}

std::string ClusterRows::encode(std::span<const ClusterAxis> axes, std::size_t bytes) const {
  const std::size_t head = head_bytes(features_.size());
  if (empty() || bytes <= head) return "";
  std::vector<ClusterAxis> own;
  for (const std::uint32_t feature : features_)
    own.push_back(axes[feature]);
  stats::ClusterFeatures rows = *rows_;
  if (rows.encoded_bytes_max() > bytes - head) rows.reduce_to_bytes(bytes - head);
  std::string out = encode_cluster_part(features_, own, rows);
  return out.size() <= bytes ? out : "";
}

void ClusterRows::end_period(std::span<const ClusterAxis> axes) {
  if (!rows_) return;
  const bool is_unfit = 2 * incomplete_ > windows_;
  if (!is_unfit && windows_ >= kChooseWindows && axes.size() == present_.size()) {
    const auto also = choice(axes);
    std::vector<std::uint32_t> both;
    std::set_union(features_.begin(), features_.end(), also.begin(), also.end(),
                   std::back_inserter(both));
    both.resize(std::min(both.size(), kFeaturesMax));  // the most telling ones
    features_ = std::move(both);
  }
  windows_ = incomplete_ = 0;
  std::fill(present_.begin(), present_.end(), 0);
  rows_.reset();
  if (is_unfit) {
    features_.clear();
    return;
  }
  auto made = stats::ClusterFeatures::make(static_cast<int>(features_.size()), kClusters);
  if (made) rows_.emplace(std::move(*made));
}

}  // namespace kansoku::fleet
