// SPDX-License-Identifier: Apache-2.0
// Any bytes as a summary: refused with a reason, or one that can be merged, fitted, and written
// again in no more bytes than it promises.
#include "stats/cluster_features.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/check.h"

using kansoku::Code;
using kansoku::stats::ClusterFeatures;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 4096) return 0;
  const auto features =
      ClusterFeatures::decode(std::as_bytes(std::span<const std::uint8_t>(data, size)), 64);
  if (!features) {
    CHECK(features.error().code == Code::kCorrupt || features.error().code == Code::kUnsupported ||
          features.error().code == Code::kLimit);
    return 0;
  }
  std::uint64_t rows = 0;
  for (const ClusterFeatures::Cluster& cluster : features->clusters()) {
    rows += cluster.rows;
    for (const double value : cluster.scatter)
      CHECK(std::isfinite(value));
  }
  CHECK(rows == features->rows());
  const std::string bytes = features->encode();
  CHECK(bytes.size() <= features->encoded_bytes_max());
  const auto again = ClusterFeatures::decode(kansoku::as_bytes(bytes), 64);
  CHECK(again && again->rows() == rows);
  ClusterFeatures merged = *ClusterFeatures::make(features->dimensions(), 3);
  const bool fits = merged.merge(*features).has_value();
  CHECK(fits && merged.size() <= 3 && merged.rows() == rows);
  if (features->dimensions() > 32) return 0;
  kansoku::stats::MixtureOptions options;
  options.iterations_max = 3;
  const auto fit = fit_mixture(merged, options);
  CHECK(!fit || !std::isnan(fit->log_likelihood));
  return 0;
}
