// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"
#include "export/internal/figure.h"

namespace kansoku::exporter {

/// One thing that has figures: a cluster, a task, a family of models.
struct Entity {
  std::string name;  // without the kind: "training", "build.preprocess"
  std::vector<Figure> figures;
  /// By the last part of the metric's name, "wait_mean_s"; an unknown figure if there is none.
  [[nodiscard]] const Figure& figure(std::string_view metric) const;
  [[nodiscard]] double mean(std::string_view metric) const { return figure(metric).mean; }
};

/// The list "metrics" of a kansoku.simulation/1, sorted out by the first part of the names
/// ("cluster.NAME.utilisation"), entities in the order of the file.
class Metrics {
 public:
  static constexpr std::size_t kReadMax = 20'000;

  [[nodiscard]] static Metrics from(const Json& untrusted_list);

  [[nodiscard]] const std::vector<Entity>& of(std::string_view kind) const;
  [[nodiscard]] std::vector<std::string> kinds() const;
  [[nodiscard]] std::size_t left_out() const { return left_out_; }
  [[nodiscard]] bool empty() const { return by_kind_.empty(); }

 private:
  std::map<std::string, std::vector<Entity>, std::less<>> by_kind_;
  std::size_t left_out_{0};
};

/// The same list as a plain sequence with whole names, at most Metrics::kReadMax.
[[nodiscard]] std::vector<Figure> figures_of(const Json& untrusted_list);

/// A metric's name in words: "mean time in the system of build".
[[nodiscard]] std::string in_words(std::string_view metric);

}  // namespace kansoku::exporter
