// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/internal/frag_table.h"

#include <algorithm>
#include <map>

namespace kansoku::simulate::placement::internal {
namespace {

constexpr std::size_t kWasteRow = kWholeGpu + 1;
constexpr std::size_t kWholeRow = kGpusPerNodeMax + 1;

bool is_for_model(const Request& request, std::uint32_t gpu_model) {
  return request.gpu_types == 0 || ((request.gpu_types >> gpu_model) & 1U) != 0;
}

}  // namespace

FragTable::FragTable(std::span<const TypicalPod> typical) {
  for (const TypicalPod& pod : typical) {
    if (pod.request.gpus > 0) cpu_levels_.push_back(pod.request.cpu_milli);
  }
  std::sort(cpu_levels_.begin(), cpu_levels_.end());
  cpu_levels_.erase(std::unique(cpu_levels_.begin(), cpu_levels_.end()), cpu_levels_.end());
  const std::size_t levels = cpu_levels_.size() + 1;
  // Models are alike when the same typical pods may use them.
  std::map<std::vector<bool>, std::uint32_t> sets;
  for (std::uint32_t model = 0; model <= kGpuModelMax; ++model) {
    std::vector<bool> usable;
    for (const TypicalPod& pod : typical)
      usable.push_back(is_for_model(pod.request, model));
    const auto [set, is_new] = sets.emplace(usable, static_cast<std::uint32_t>(sets.size()));
    set_of_model_[model] = set->second;
    if (!is_new) continue;
    for (std::size_t level = 0; level < levels; ++level) {
      const std::size_t at = set->second * levels + level;
      waste_.resize((at + 1) * kWasteRow);
      whole_.resize((at + 1) * kWholeRow);
      fill(typical, model, level, at);
    }
  }
}

void FragTable::fill(std::span<const TypicalPod> typical, std::uint32_t gpu_model,
                     std::size_t level, std::size_t at) {
  const auto fits_cpu = [&](const Request& request) {
    return level > 0 && request.cpu_milli <= cpu_levels_[level - 1];
  };
  std::vector<double> usable(kWasteRow, 0.0);
  double* whole = &whole_[at * kWholeRow];
  for (const TypicalPod& pod : typical) {
    const Request& request = pod.request;
    if (request.gpus <= 0 || !fits_cpu(request) || !is_for_model(request, gpu_model)) continue;
    if (request.is_share()) {
      for (std::int32_t left = std::max(request.gpu_milli, 0); left <= kWholeGpu; ++left)
        usable[static_cast<std::size_t>(left)] += pod.share;
    } else {
      for (std::int32_t idle = request.gpus; idle <= kGpusPerNodeMax; ++idle)
        whole[idle] += pod.share * kWholeGpu * idle;
    }
  }
  for (std::size_t left = 0; left < kWasteRow; ++left)
    waste_[at * kWasteRow + left] = static_cast<double>(left) * (1.0 - usable[left]);
}

FragTable::Row FragTable::row(std::uint32_t gpu_model, std::int64_t cpu_left) const {
  const auto level = static_cast<std::size_t>(
      std::upper_bound(cpu_levels_.begin(), cpu_levels_.end(), cpu_left) - cpu_levels_.begin());
  const std::size_t at = set_of_model_[gpu_model] * (cpu_levels_.size() + 1) + level;
  return {&waste_[at * kWasteRow], &whole_[at * kWholeRow]};
}

double FragTable::sum(Row row, const Node& node) {
  double sum = 0;
  for (std::int32_t gpu = 0; gpu < node.gpus; ++gpu)
    sum += row.waste[node.gpu_left[gpu]];
  return sum - row.whole[node.gpus_idle];
}

}  // namespace kansoku::simulate::placement::internal
