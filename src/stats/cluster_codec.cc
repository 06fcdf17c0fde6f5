// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "stats/cluster_features.h"
#include "stats/internal/cholesky.h"

namespace kansoku::stats {
namespace {

using internal::triangle;

// Layout: u8 version, u8 0, u16 dimensions, u32 clusters, then the clusters.
constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 8;
/// A pivot below this share of its diagonal element is what rounding left of a zero.
constexpr double kNoPivot = 1e-12;

template <class T>
void append(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void append_variable(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7U)
    out.push_back(static_cast<char>(value | 0x80U));
  out.push_back(static_cast<char>(value));
}

std::size_t variable_bytes(std::uint64_t value) {
  return value == 0 ? 1 : static_cast<std::size_t>((std::bit_width(value) + 6) / 7);
}

Result<std::uint64_t> read_variable(ByteReader& reader, std::string_view what) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 56; shift += 7) {
    TRY(const auto byte, reader.read<std::uint8_t>(what));
    value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
    if (byte < 0x80) return value;
  }
  return Error{Code::kCorrupt,
               fmt::format("read {} at offset {}: too long", what, reader.offset())};
}

/// The upper half of a float's bits, rounded to even.
std::uint16_t to_short(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);
}

double from_short(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

/// Lower Cholesky factor of a positive semidefinite matrix (packed) over `rows`; columns without a
/// pivot are zero.
std::vector<double> semidefinite_factor(std::span<const double> scatter, std::size_t d,
                                        double rows) {
  std::vector<double> factor(triangle(d));
  for (std::size_t j = 0; j < d; ++j) {
    const double* const pivot_row = factor.data() + triangle(j);
    const double diagonal = scatter[triangle(j) + j] / rows;
    double pivot = diagonal;
    for (std::size_t c = 0; c < j; ++c)
      pivot -= pivot_row[c] * pivot_row[c];
    if (!(pivot > kNoPivot * diagonal)) continue;
    const double root = std::sqrt(pivot);
    for (std::size_t i = j; i < d; ++i) {
      double* const row = factor.data() + triangle(i);
      double value = scatter[triangle(i) + j] / rows;
      for (std::size_t c = 0; c < j; ++c)
        value -= row[c] * pivot_row[c];
      row[j] = i == j ? root : value / root;
    }
  }
  return factor;
}

std::size_t bitmap_bytes(std::size_t d) {
  return (d + 7) / 8;
}

Error bad_clusters(const ByteReader& reader, std::string_view what) {
  return Error{Code::kCorrupt, fmt::format("read summary at offset {}: {}", reader.offset(), what)};
}

}  // namespace

std::size_t ClusterFeatures::encoded_cluster_bytes(std::uint64_t rows) const {
  std::size_t bytes = variable_bytes(rows) + sizeof(float) * dimensions_;
  if (rows < 2) return bytes;
  const std::size_t columns = std::min<std::uint64_t>(rows - 1, dimensions_);
  const std::size_t values = triangle(dimensions_) - triangle(dimensions_ - columns);
  return bytes + bitmap_bytes(dimensions_) + sizeof(std::uint16_t) * values;
}

std::size_t ClusterFeatures::encoded_bytes_max() const {
  std::size_t bytes = kHeaderBytes;
  for (const std::uint64_t rows : counts_)
    bytes += rows > 0 ? encoded_cluster_bytes(rows) : 0;
  return bytes;
}

void ClusterFeatures::encode_cluster(std::size_t slot, std::string& out) const {
  const std::size_t d = dimensions_;
  append_variable(out, counts_[slot]);
  for (std::size_t j = 0; j < d; ++j)
    append(out, static_cast<float>(means_[slot * d + j]));
  if (counts_[slot] < 2) return;
  const std::vector<double> factor =
      semidefinite_factor(std::span(scatters_).subspan(slot * triangle(d), triangle(d)), d,
                          static_cast<double>(counts_[slot]));
  std::string bitmap(bitmap_bytes(d), '\0');
  // No more columns than a cluster of so many rows can have, whatever rounding left.
  std::size_t columns = static_cast<std::size_t>(std::min<std::uint64_t>(counts_[slot] - 1, d));
  for (std::size_t j = 0; j < d && columns > 0; ++j) {
    if (to_short(factor[triangle(j) + j]) == 0) continue;
    bitmap[j / 8] = static_cast<char>(bitmap[j / 8] | static_cast<char>(1U << (j % 8)));
    --columns;
  }
  out += bitmap;
  for (std::size_t j = 0; j < d; ++j) {
    if ((static_cast<unsigned char>(bitmap[j / 8]) >> (j % 8) & 1U) == 0) continue;
    for (std::size_t i = j; i < d; ++i)
      append(out, to_short(factor[triangle(i) + j]));
  }
}

std::string ClusterFeatures::encode() const {
  std::string out;
  out.reserve(encoded_bytes_max());
  append(out, kVersion);
  append(out, std::uint8_t{0});
  append(out, static_cast<std::uint16_t>(dimensions_));
  append(out, static_cast<std::uint32_t>(live_));
  for (std::size_t slot = 0; slot < used_; ++slot) {
    if (counts_[slot] > 0) encode_cluster(slot, out);
  }
  return out;
}

Result<void> ClusterFeatures::decode_cluster(ByteReader& reader, std::vector<double>& mean,
                                             std::vector<double>& scatter) {
  const std::size_t d = dimensions_;
  TRY(const std::uint64_t rows, read_variable(reader, "rows of a cluster"));
  if (rows < 1 || rows > kRowsMax || rows_ > kRowsMax - rows)
    return bad_clusters(reader, fmt::format("a cluster of {} rows", rows));
  for (double& value : mean) {
    TRY(const float read, reader.read<float>("mean of a cluster"));
    value = static_cast<double>(read);
    if (!(std::abs(value) <= kMagnitudeMax)) return bad_clusters(reader, "a mean out of range");
  }
  std::fill(scatter.begin(), scatter.end(), 0.0);
  if (rows > 1) {
    TRY(const ByteSpan bitmap, reader.take(bitmap_bytes(d), "columns of a cluster"));
    std::vector<double> column(d);
    for (std::size_t j = 0; j < d; ++j) {
      if ((std::to_integer<unsigned>(bitmap[j / 8]) >> (j % 8) & 1U) == 0) continue;
      for (std::size_t i = j; i < d; ++i) {
        TRY(const auto bits, reader.read<std::uint16_t>("covariance of a cluster"));
        column[i] = from_short(bits);
        if (!(std::abs(column[i]) <= kMagnitudeMax))
          return bad_clusters(reader, "a covariance out of range");
      }
      for (std::size_t a = j; a < d; ++a) {
        for (std::size_t b = j; b <= a; ++b)
          scatter[triangle(a) + b] += static_cast<double>(rows) * column[a] * column[b];
      }
    }
  }
  put(rows, mean, scatter);
  return {};
}

Result<ClusterFeatures> ClusterFeatures::decode(ByteSpan untrusted, std::size_t clusters_max) {
  ByteReader reader(untrusted);
  TRY(const auto version, reader.read<std::uint8_t>("version of a summary"));
  if (version != kVersion) {
    return Error{Code::kUnsupported,
                 fmt::format("read summary: version {}, not {}", version, kVersion)};
  }
  TRY(const auto zero, reader.read<std::uint8_t>("header of a summary"));
  TRY(const auto dimensions, reader.read<std::uint16_t>("dimensions of a summary"));
  TRY(const auto clusters, reader.read<std::uint32_t>("clusters of a summary"));
  if (zero != 0 || dimensions < 1 || dimensions > kDimensionsMax)
    return bad_clusters(reader, fmt::format("{} dimensions", dimensions));
  const std::size_t least = 1 + sizeof(float) * dimensions;
  if (clusters > reader.remaining() / least)
    return bad_clusters(reader,
                        fmt::format("{} clusters in {} bytes", clusters, reader.remaining()));
  if (clusters > clusters_max) {
    return Error{Code::kLimit,
                 fmt::format("read summary: {} clusters, not up to {}", clusters, clusters_max)};
  }
  TRY(ClusterFeatures features, make(dimensions, std::max<std::uint32_t>(1, clusters)));
  std::vector<double> mean(dimensions), scatter(triangle(dimensions));
  for (std::uint32_t i = 0; i < clusters; ++i)
    TRY_VOID(features.decode_cluster(reader, mean, scatter));
  if (reader.remaining() > 0)
    return bad_clusters(reader, fmt::format("{} bytes too many", reader.remaining()));
  return features;
}

}  // namespace kansoku::stats
