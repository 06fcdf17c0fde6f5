// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/json.h"
#include "export/internal/figure.h"

namespace kansoku::exporter {

using FigureMap = std::map<std::string, Figure, std::less<>>;

/// A kansoku.simulation_sweep/1, read with bounds.
struct Sweep {
  static constexpr std::size_t kAxesMax = 8, kVariantsMax = 1000, kComparisonsMax = 200'000;

  struct Axis {
    std::string key, name;  // `name`: as much of the key's end as tells the axes apart
    std::vector<std::string> values;
  };
  struct Variant {
    std::size_t index{0};
    std::vector<std::string> values;  // by axis
    std::int64_t replications{0};
    bool stopped{false};
    FigureMap figures;
    [[nodiscard]] const Figure& figure(std::string_view metric) const;
  };
  std::vector<Axis> axes;
  std::vector<Variant> variants;          // by rising index
  std::vector<std::string> metric_names;  // of the first variant, in its order
  std::size_t total{0}, variants_left_out{0};
  bool compared{false};                          // the file has comparisons
  std::map<std::size_t, FigureMap> differences;  // by variant, to the first; with n >= 2
  std::map<std::size_t, std::int64_t> replications;

  [[nodiscard]] const Figure& difference(std::size_t variant, std::string_view metric) const;
  /// "slots = 4, intensity = 0.8"
  [[nodiscard]] std::string label(const std::vector<std::string>& values) const;
  /// The values of variant `index`: all combinations are numbered, the last axis fastest.
  [[nodiscard]] std::vector<std::string> values_of(std::size_t index) const;
  /// Indices below `total` that no variant has; none if variants were left out in reading.
  [[nodiscard]] std::vector<std::size_t> missing() const;
};
[[nodiscard]] Sweep read_sweep(const Json& untrusted);

/// Which way a metric is better.
enum class Better { kLower, kHigher, kNeither };
struct MainMetric {
  std::string name;
  Better better{Better::kNeither};
};
/// The metrics that a person asks for first, of those that differ between variants; `others` gets
/// how many more differ.
[[nodiscard]] std::vector<MainMetric> main_metrics(const Sweep& sweep, std::size_t& others);

/// How the variants lie on an axis of numbers: `x` such an axis and, if there is a second one,
/// `lines`.
struct NumericAxes {
  std::size_t x{0};
  std::optional<std::size_t> lines;
};
/// Nothing if they do not: more than two axes, texts, or fewer than three numbers.
[[nodiscard]] std::optional<NumericAxes> numeric_axes(const Sweep& sweep);
[[nodiscard]] std::optional<double> number_from(std::string_view untrusted);

}  // namespace kansoku::exporter
