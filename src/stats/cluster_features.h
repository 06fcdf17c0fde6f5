// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "common/result.h"
#include "stats/mixture.h"

namespace kansoku::stats {

namespace internal {
class MarginalLikelihood;
}

/// A summary of rows that can be merged with others: at most `clusters` micro-clusters, each with
/// its number of rows, mean and scatter matrix (the sums that a Gaussian needs), so that nothing
/// is lost of the rows' first and second moments. Rows come one by one; when there are too many
/// clusters, two become one, wherever they are: of each cluster and its 8 nearest (Ward 1963) the
/// pair whose union is best explained as one Gaussian (internal/marginal_likelihood.h). That needs
/// features standardised to a variance of about 1. Memory is bounded by `clusters` and
/// `dimensions`. The same rows in the same order give the same summary; another order gives another
/// one with the same total moments. A value type; not shared between threads while it is written. A
/// row costs O(clusters x dimensions + dimensions^3). Source: cluster features of BIRCH (Zhang,
/// Ramakrishnan and Livny 1996); the criterion after Heller and Ghahramani 2005.
class ClusterFeatures {
 public:
  static constexpr int kDimensionsMax = 256;
  /// clusters x dimensions x (dimensions + 1) / 2, the doubles of all scatter matrices: 32 MiB.
  static constexpr std::size_t kScatterValuesMax = std::size_t{4} << 20U;
  /// Values beyond it are refused: squares of distances are made in single precision.
  static constexpr double kMagnitudeMax = 1e15;
  /// In one summary: exact as a double.
  static constexpr std::uint64_t kRowsMax = std::uint64_t{1} << 53U;

  /// kLimit for dimensions outside 1..kDimensionsMax, no clusters, or more than kScatterValuesMax
  /// allows.
  [[nodiscard]] static Result<ClusterFeatures> make(int dimensions, std::size_t clusters);

  /// Adds one row of `dimensions` values. kCorrupt for one that is not finite or over
  /// kMagnitudeMax: nothing is added then.
  [[nodiscard]] Result<void> add(std::span<const double> row);
  /// Adds the clusters of another summary one by one. kUnsupported for other dimensions,
  /// kLimit for over kRowsMax rows in all; nothing is added then.
  [[nodiscard]] Result<void> merge(const ClusterFeatures& other);
  /// Merges until at most `clusters` (at least 1) are left; the capacity stays.
  void reduce(std::size_t clusters);
  /// Merges until `encode` gives at most `bytes`, or one cluster is left.
  void reduce_to_bytes(std::size_t bytes);

  [[nodiscard]] int dimensions() const { return static_cast<int>(dimensions_); }
  /// Rows that were added, in all clusters.
  [[nodiscard]] std::uint64_t rows() const { return rows_; }
  [[nodiscard]] std::size_t size() const { return live_; }
  /// The clusters, in the order of their slots; each has a row at least.
  struct Cluster {
    std::uint64_t rows;
    std::span<const double> mean;     // d
    std::span<const double> scatter;  // sums of products of offsets from the mean, lower triangle
  };
  [[nodiscard]] std::vector<Cluster> clusters() const;

  /// The summary as bytes, little-endian: version, dimensions, number of clusters; of each cluster
  /// the rows (variable length), the mean in single precision, and the columns of the Cholesky
  /// factor of its covariance that are not zero, in 16 bits of floating point with 8 of precision.
  /// With 16 features a cluster of one row takes 65 bytes and one of many rows about 341.
  [[nodiscard]] std::string encode() const;
  /// The length of `encode`'s result, or somewhat more where rows are equal.
  [[nodiscard]] std::size_t encoded_bytes_max() const;
  /// kCorrupt with the offset for anything but the bytes of a summary, kUnsupported for a newer
  /// version, kLimit for more clusters than kScatterValuesMax or `clusters_max` allow. The result
  /// has no room for more clusters than it came with.
  [[nodiscard]] static Result<ClusterFeatures> decode(ByteSpan untrusted, std::size_t clusters_max);

 private:
  ClusterFeatures(std::size_t dimensions, std::size_t clusters);

  std::size_t take_slot();
  void put(std::uint64_t rows, std::span<const double> mean, std::span<const double> scatter);
  void place_point(std::size_t slot);
  void merge_cheapest();
  void join(std::size_t into, std::size_t from);
  /// The slot whose union with `slot` is cheapest, and its cost.
  void find_nearest(std::size_t slot);
  /// The scatter of two clusters together, into `scratch_`.
  void unite_scatter(std::size_t into, std::size_t from);
  void encode_cluster(std::size_t slot, std::string& out) const;
  [[nodiscard]] Result<void> decode_cluster(ByteReader& reader, std::vector<double>& mean,
                                            std::vector<double>& scatter);
  [[nodiscard]] std::size_t encoded_cluster_bytes(std::uint64_t rows) const;

  std::size_t dimensions_;
  std::size_t capacity_;
  std::size_t stride_;  // slots, rounded up to whole blocks: capacity + 1 at least
  std::size_t live_{0};
  std::size_t used_{0};  // slots from here on were never used
  std::uint64_t rows_{0};
  std::uint32_t version_{0};  // of the last change of a slot
  std::vector<std::size_t> free_;
  std::vector<std::uint64_t> counts_;  // by slot, 0 where it is free
  std::vector<double> means_;          // by slot, d each
  std::vector<double> scatters_;       // by slot, triangle(d) each
  std::vector<double> likelihoods_;    // by slot
  std::shared_ptr<const internal::MarginalLikelihood> likelihood_;
  std::vector<double> scratch_, work_;  // triangle(d) each
  // For the search of neighbours, by slot.
  std::vector<float> points_;        // feature by feature, `stride_` slots each
  std::vector<float> inverse_rows_;  // 1 / rows; infinite where free
  std::vector<float> costs_;         // of the union with `nearest_`, or a bound below it
  std::vector<std::uint32_t> nearest_;
  std::vector<std::uint32_t> nearest_version_;  // of the neighbour when it was found
  std::vector<std::uint32_t> versions_;
};

/// EM over a summary: each cluster is a Gaussian blob whose rows share their responsibilities, so
/// the expectation is of the log density over the blob, with the scatter inside it, and the
/// maximisation keeps all second moments. `log_likelihood` and `bic` are of this lower bound.
/// `options.start` has to be k-means++ and `threads` is not used. kLimit for fewer clusters than
/// components or outside the limits of `fit_mixture`; otherwise as there. Deterministic for a seed.
[[nodiscard]] Result<MixtureFit> fit_mixture(const ClusterFeatures& features,
                                             const MixtureOptions& options);

/// The same from a given mixture instead of a start of its own (`options.components`, `start`,
/// `starts` and `seed` unused). kUnsupported for other dimensions.
[[nodiscard]] Result<MixtureFit> refine_mixture(const ClusterFeatures& features, Mixture start,
                                                const MixtureOptions& options);

}  // namespace kansoku::stats
