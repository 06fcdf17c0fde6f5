// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/fgd.h"

#include <cmath>

namespace kansoku::simulate::placement {
namespace {

int score_of(double frag_before, double frag_after) {
  const double sigmoid = 1.0 / (1.0 + std::exp((frag_after - frag_before) / kWholeGpu));
  return static_cast<int>(sigmoid * kScoreMax);
}

}  // namespace

Fgd::Fgd(std::span<const TypicalPod> typical) : table_(typical) {}

// One GPU loses the share and all see less CPU: the row after, with one entry exchanged.
Fgd::Choice Fgd::best_gpu(const Request& request, const Node& node) const {
  using Table = internal::FragTable;
  const double before = Table::sum(table_.row(node.gpu_model, node.cpu_left), node);
  const Table::Row row = table_.row(node.gpu_model, node.cpu_left - request.cpu_milli);
  const double untouched = Table::sum(row, node);
  Choice best;
  std::int32_t last_left = -1;
  for (std::int32_t gpu = 0; gpu < node.gpus; ++gpu) {
    const std::int32_t left = node.gpu_left[gpu];
    // A GPU like the one before scores the same and loses the tie.
    if (left < request.gpu_milli || left == last_left) continue;
    last_left = left;
    double after = untouched - row.waste[left] + row.waste[left - request.gpu_milli];
    if (left == kWholeGpu) after += row.whole[node.gpus_idle] - row.whole[node.gpus_idle - 1];
    const int score = score_of(before, after);
    if (score > best.score) best = {score, gpu};
  }
  return best;
}

int Fgd::score(const Request& request, const Node& node, const NodePool& /*pool*/) const {
  using Table = internal::FragTable;
  if (request.is_share()) return best_gpu(request, node).score;
  const double before = Table::sum(table_.row(node.gpu_model, node.cpu_left), node);
  const Table::Row row = table_.row(node.gpu_model, node.cpu_left - request.cpu_milli);
  double after = Table::sum(row, node);
  if (request.gpus > 0) {
    after += row.whole[node.gpus_idle] - row.whole[node.gpus_idle - request.gpus];
    after -= request.gpus * row.waste[kWholeGpu];
  }
  return score_of(before, after);
}

std::uint32_t Fgd::gpus(const Request& request, const Node& node) const {
  if (!request.is_share()) return tightest_gpus(request, node);
  return 1U << best_gpu(request, node).gpu;
}

}  // namespace kansoku::simulate::placement
