// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "common/result.h"
#include "stats/cluster_features.h"

namespace kansoku::fleet {

/// How a feature's values become a coordinate that hosts have in common: no host's own scaling, so
/// that their rows can be merged.
struct ClusterAxis {
  enum class Scale : std::uint8_t { kNone, kLinear, kLog };  // kNone: not in cluster features
  Scale scale{Scale::kNone};
  double floor{0};  // kLog: ln(value + floor), values below 0 as 0
  double unit{1};   // of the coordinate, above 0: the least difference that matters

  [[nodiscard]] double of(double value) const;
  /// The value at a coordinate.
  [[nodiscard]] double value_of(double coordinate) const;
  bool operator==(const ClusterAxis&) const = default;
};

/// Contents of a kClusterFeatures part: rows of all ranks of a job on a host in one period.
struct ClusterPart {
  std::vector<std::uint32_t> features;  // in Summary::features, ascending; one a dimension
  std::vector<ClusterAxis> axes;        // of these features
  stats::ClusterFeatures rows;
};
[[nodiscard]] std::string encode_cluster_part(std::span<const std::uint32_t> features,
                                              std::span<const ClusterAxis> axes,
                                              const stats::ClusterFeatures& rows);
/// `feature_count`: of the message. kCorrupt: not the bytes of a part, or an axis that makes no
/// sense; kLimit: more than ClusterRows::kFeaturesMax features or kClusters clusters.
[[nodiscard]] Result<ClusterPart> decode_cluster_part(ByteSpan untrusted,
                                                      std::size_t feature_count);

/// Cluster features of one job in the making. Chooses the features by the data: of the first
/// windows, the most telling ones (those that come first) that nine of ten windows have. Windows
/// that lack one of them are left out; if most do, features are chosen anew. Features that nine of
/// ten windows of a later period have are taken in for the next: the first windows of a job are of
/// its start.
/// Deterministic; not shared between threads.
class ClusterRows {
 public:
  static constexpr std::size_t kFeaturesMax = 16;
  static constexpr std::size_t kClusters = 16;  // a summary
  static constexpr std::uint64_t kChooseWindows = 30;

  /// One window of one rank, one value an axis; NaN: not seen.
  void add(std::span<const double> values, std::span<const ClusterAxis> axes);
  /// The part, in at most `bytes`; empty if there are no rows, or not even one cluster fits.
  [[nodiscard]] std::string encode(std::span<const ClusterAxis> axes, std::size_t bytes) const;
  [[nodiscard]] bool empty() const { return !rows_ || rows_->rows() == 0; }
  /// The next period begins.
  void end_period(std::span<const ClusterAxis> axes);

 private:
  [[nodiscard]] std::vector<std::uint32_t> choice(std::span<const ClusterAxis> axes) const;
  void choose(std::span<const ClusterAxis> axes);

  std::vector<std::uint64_t> present_;  // windows with a value, by axis
  std::uint64_t windows_{0}, incomplete_{0};
  std::vector<std::uint32_t> features_;  // chosen
  std::optional<stats::ClusterFeatures> rows_;
};

}  // namespace kansoku::fleet
