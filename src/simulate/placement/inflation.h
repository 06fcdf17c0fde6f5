// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "simulate/placement/policy.h"

namespace kansoku::simulate::placement {

/// The experiment of openb: pods arrive one after the other in random order until they ask for
/// more GPUs than there are, none leaves, and pods that do not fit are dropped.
/// Source: Weng et al., USENIX ATC 2023, as its public simulator (hkust-adsl) runs it.
struct NamedRequest {
  std::string name;
  Request request;
};

/// Random choices of one experiment.
struct InflationPlan {
  std::vector<std::uint32_t> arrivals;  // indices of requests, in order of arrival
  // Node i is called "<number[i], four digits>-<its name>", so ties go to a random but fixed node:
  // without this the nodes of one model, which have neighbouring names, would fill one by one.
  std::vector<std::uint32_t> node_number;
};

/// All requests once, shuffled; then copies of random ones until the next would take the GPU milli
/// asked for beyond `load` of those there are (of a request for k GPUs one is counted for that
/// test, all k for the sum); then a permutation of the nodes. The order of `requests` and `nodes`
/// does not matter, their names do. Deterministic for a seed. An empty plan if nothing asks for
/// GPUs or no node has one.
[[nodiscard]] InflationPlan plan_inflation(std::span<const NamedRequest> requests,
                                           std::span<const Node> nodes, double load,
                                           std::uint64_t seed);

/// Curves over the arrived load: entry L is the mean over the records after those arrivals at which
/// the GPU milli asked for so far, in per cent of those there are, round to L (the records within
/// one of L if there are none; NaN if there are none either).
struct InflationCurves {
  std::vector<double> allocation;  // GPU milli taken, in per cent of all
  std::vector<double> frag;        // fragmentation() of all nodes, in per cent of all
  std::vector<double> frag_ratio;  // the same in per cent of the GPU milli left
  std::uint64_t arrived{0}, dropped{0};
};

struct InflationOptions {
  std::uint64_t seed{0};  // of the policy's own chance
  int load_max{130};      // per cent: the last entry of the curves
  bool with_frag{true};   // fill frag and frag_ratio
};

/// Runs a plan. `policy` must be fresh; fragmentation is measured with `typical`.
[[nodiscard]] InflationCurves run_inflation(std::span<const NamedRequest> requests,
                                            std::span<const Node> nodes, const InflationPlan& plan,
                                            Policy& policy, std::span<const TypicalPod> typical,
                                            const InflationOptions& options);

}  // namespace kansoku::simulate::placement
