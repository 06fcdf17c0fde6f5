// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "simulate/placement/inflation.h"

namespace kansoku::simulate::placement {

inline constexpr std::array<std::string_view, 4> kLists{"default", "gpushare100", "gpushare40",
                                                        "cpu100"};
struct PolicyName {
  std::string_view ours, published;
};
inline constexpr std::array<PolicyName, 6> kPolicies{{{"random", "01-Random"},
                                                      {"dot_prod", "02-DotProd"},
                                                      {"gpu_clustering", "03-GpuClustering"},
                                                      {"gpu_packing", "04-GpuPacking"},
                                                      {"best_fit", "05-BestFit"},
                                                      {"fgd", "06-FGD"}}};
inline constexpr std::array<std::string_view, 3> kMetrics{"allocation", "frag", "frag_ratio"};
inline constexpr int kFirstSeed = 42, kSeeds = 10, kLoadMax = 130;
inline constexpr double kLoad = 1.3;

/// The lists of pods, the nodes with GPUs and the published curves of openb.
struct OpenbData {
  struct List {
    std::vector<NamedRequest> pods;
    std::vector<TypicalPod> typical;
  };
  std::map<std::string_view, List> lists;
  std::vector<Node> nodes;
  // By metric, list, policy and seed: entry L is the value at L % arrived load.
  std::map<std::tuple<std::string, std::string, std::string, int>, std::vector<double>> published;

  [[nodiscard]] const std::vector<double>& curve(std::string_view metric, std::string_view list,
                                                 const PolicyName& policy, int seed) const;
};

/// From <folder>/alibaba_openb_v2023/; without curves if anything is missing there.
[[nodiscard]] OpenbData read_openb(const std::string& folder);

/// The three curves in the order of kMetrics.
[[nodiscard]] std::array<const std::vector<double>*, 3> by_metric(const InflationCurves& curves);

}  // namespace kansoku::simulate::placement
