// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/policy.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <tuple>

#include "simulate/placement/best_fit.h"
#include "simulate/placement/dot_prod.h"
#include "simulate/placement/fgd.h"
#include "simulate/placement/first_fit.h"
#include "simulate/placement/gpu_clustering.h"
#include "simulate/placement/gpu_packing.h"
#include "simulate/placement/random.h"

namespace kansoku::simulate::placement {
namespace {

using Typical = std::span<const TypicalPod>;

template <class P>
std::unique_ptr<Policy> make(Typical typical) {
  if constexpr (std::is_constructible_v<P, Typical>)
    return std::make_unique<P>(typical);
  else
    return std::make_unique<P>();
}

struct Entry {
  std::string_view name;
  std::unique_ptr<Policy> (*make)(Typical);
};
constexpr std::array kPolicies{
    Entry{"random", make<Random>},
    Entry{"dot_prod", make<DotProd>},
    Entry{"gpu_clustering", make<GpuClustering>},
    Entry{"gpu_packing", make<GpuPacking>},
    Entry{"best_fit", make<BestFit>},
    Entry{"fgd", make<Fgd>},
    Entry{"first_fit", make<FirstFit>},
};
constexpr auto kNames = [] {
  std::array<std::string_view, kPolicies.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i)
    names[i] = kPolicies[i].name;
  return names;
}();

bool can_host(const Node& node, const Request& request) {
  if (request.cpu_milli > node.cpu_left) return false;
  if (request.gpu_types != 0 && ((request.gpu_types >> node.gpu_model) & 1U) == 0) return false;
  return request.is_share() ? request.gpu_milli <= node.gpu_left_max
                            : request.gpus <= node.gpus_idle;
}

}  // namespace

std::vector<TypicalPod> typical_pods(std::span<const Request> requests, double coverage) {
  // More CPU, then milli, GPUs, types first: the order of equal counts, and so what is cut off.
  const auto key = [](const Request& r) {
    return std::tuple(-r.cpu_milli, -r.gpu_milli, -r.gpus, ~r.gpu_types);
  };
  std::map<decltype(key(Request{})), TypicalPod> counts;
  for (const Request& request : requests) {
    TypicalPod& pod = counts[key(request)];
    pod.request = request;
    pod.request.memory_mib = 0;
    pod.share += 1;
  }
  std::vector<TypicalPod> pods;
  pods.reserve(counts.size());
  for (const auto& [unused, pod] : counts)
    pods.push_back(pod);
  std::stable_sort(pods.begin(), pods.end(),
                   [](const TypicalPod& a, const TypicalPod& b) { return a.share > b.share; });
  const auto total = static_cast<double>(requests.size());
  double covered = 0;
  std::size_t kept = 0;
  while (kept < pods.size() && covered < coverage * total)
    covered += pods[kept++].share;
  pods.resize(kept);
  for (TypicalPod& pod : pods)
    pod.share /= covered;
  return pods;
}

std::span<const std::string_view> policy_names() {
  return kNames;
}

Result<std::unique_ptr<Policy>> make_policy(std::string_view name,
                                            std::span<const TypicalPod> typical) {
  for (const Entry& entry : kPolicies) {
    if (entry.name == name) return entry.make(typical);
  }
  std::string known;
  for (const std::string_view other : kNames)
    known += (known.empty() ? "" : ", ") + std::string(other);
  return Error{Code::kNotFound, "placement policy " + std::string(name) + ": not found",
               "one of " + known};
}

double fragmentation(const Node& node, std::span<const TypicalPod> typical) {
  double sum = 0;
  for (const TypicalPod& pod : typical) {
    std::int32_t unused = node.gpu_left_sum;
    if (pod.request.gpus > 0 && can_host(node, pod.request)) {
      unused = 0;
      for (std::int32_t gpu = 0; gpu < node.gpus; ++gpu) {
        if (node.gpu_left[gpu] < pod.request.gpu_milli) unused += node.gpu_left[gpu];
      }
    }
    sum += pod.share * unused;
  }
  return sum;
}

}  // namespace kansoku::simulate::placement
