// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/pool.h"

#include <algorithm>
#include <utility>

namespace kansoku::simulate::placement {
namespace {

bool is_sound(const Request& request) {
  if (request.cpu_milli < 0 || request.memory_mib < 0) return false;
  if (request.gpus < 0 || request.gpus > kGpusPerNodeMax) return false;
  if (request.gpus == 0) return true;
  if (request.gpu_milli <= 0 || request.gpu_milli > kWholeGpu) return false;
  return request.gpu_milli == kWholeGpu || request.gpus == 1;
}

void sum_up_gpus(Node& node) {
  node.gpu_left_sum = node.gpu_left_max = node.gpus_idle = 0;
  for (std::int32_t gpu = 0; gpu < node.gpus; ++gpu) {
    node.gpu_left_sum += node.gpu_left[gpu];
    node.gpu_left_max = std::max(node.gpu_left_max, node.gpu_left[gpu]);
    node.gpus_idle += node.gpu_left[gpu] == kWholeGpu ? 1 : 0;
  }
}

bool has_gpu(Placed where, std::int32_t gpu) {
  return ((where.gpus >> gpu) & 1U) != 0;
}

// As many GPUs as asked for, all of them the node's.
bool names_gpus_of(const Request& request, Placed where, const Node& node) {
  std::int32_t count = 0;
  for (std::int32_t gpu = 0; gpu < kGpusPerNodeMax; ++gpu) {
    if (!has_gpu(where, gpu)) continue;
    if (gpu >= node.gpus) return false;
    ++count;
  }
  return count == request.gpus;
}

}  // namespace

std::uint32_t NodePool::add(Node node) {
  CHECK(node.gpus >= 0 && node.gpus <= kGpusPerNodeMax);
  CHECK(node.gpu_model <= kGpuModelMax);
  CHECK(node.cpu_milli >= 0 && node.memory_mib >= 0);
  node.cpu_left = node.cpu_milli;
  node.memory_left = node.memory_mib;
  std::fill(std::begin(node.gpu_left), std::end(node.gpu_left), 0);
  std::fill_n(std::begin(node.gpu_left), node.gpus, kWholeGpu);
  std::fill(std::begin(node.class_count), std::end(node.class_count), 0U);
  sum_up_gpus(node);
  cpu_milli_scale_ = std::max(cpu_milli_scale_, node.cpu_milli);
  gpu_milli_scale_ = std::max(gpu_milli_scale_, std::int64_t{node.gpus} * kWholeGpu);
  gpu_milli_total_ += std::int64_t{node.gpus} * kWholeGpu;
  const auto index = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back(std::move(node));
  note_change(index);
  return index;
}

void NodePool::note_change(std::uint32_t node) {
  nodes_[node].version = ++change_count_;
  journal_[change_count_ % kJournal] = node;
}

std::uint32_t NodePool::changed_node(std::uint64_t number) const {
  CHECK(number >= 1 && number <= change_count_ && change_count_ - number < kJournal);
  return journal_[number % kJournal];
}

bool NodePool::fits(const Request& request, std::uint32_t node) const {
  const Node& n = nodes_[node];
  if (!n.up || request.cpu_milli > n.cpu_left || request.memory_mib > n.memory_left) return false;
  if (!is_sound(request)) return false;
  if (request.gpus == 0) return true;
  if (request.gpu_types != 0 && ((request.gpu_types >> n.gpu_model) & 1U) == 0) return false;
  return request.is_share() ? request.gpu_milli <= n.gpu_left_max : request.gpus <= n.gpus_idle;
}

void NodePool::take(const Request& request, Placed where) {
  CHECK(where.node < nodes_.size());
  CHECK(fits(request, where.node));
  Node& node = nodes_[where.node];
  CHECK(names_gpus_of(request, where, node));
  node.cpu_left -= request.cpu_milli;
  node.memory_left -= request.memory_mib;
  for (std::int32_t gpu = 0; gpu < node.gpus; ++gpu) {
    if (!has_gpu(where, gpu)) continue;
    CHECK(node.gpu_left[gpu] >= request.gpu_milli);
    node.gpu_left[gpu] -= request.gpu_milli;
  }
  if (request.gpus > 0) {
    sum_up_gpus(node);
    ++node.class_count[request.gpu_class()];
    gpu_milli_used_ += request.gpu_milli_sum();
  }
  cpu_milli_used_ += request.cpu_milli;
  note_change(where.node);
}

void NodePool::give_back(const Request& request, Placed where) {
  CHECK(where.node < nodes_.size());
  Node& node = nodes_[where.node];
  CHECK(is_sound(request) && names_gpus_of(request, where, node));
  CHECK(request.cpu_milli <= node.cpu_milli - node.cpu_left);
  CHECK(request.memory_mib <= node.memory_mib - node.memory_left);
  node.cpu_left += request.cpu_milli;
  node.memory_left += request.memory_mib;
  for (std::int32_t gpu = 0; gpu < node.gpus; ++gpu) {
    if (!has_gpu(where, gpu)) continue;
    node.gpu_left[gpu] += request.gpu_milli;
    CHECK(node.gpu_left[gpu] <= kWholeGpu);
  }
  if (request.gpus > 0) {
    sum_up_gpus(node);
    CHECK(node.class_count[request.gpu_class()] > 0);
    --node.class_count[request.gpu_class()];
    gpu_milli_used_ -= request.gpu_milli_sum();
  }
  cpu_milli_used_ -= request.cpu_milli;
  note_change(where.node);
}

void NodePool::set_up(std::uint32_t node, bool up) {
  CHECK(node < nodes_.size());
  if (nodes_[node].up == up) return;
  nodes_[node].up = up;
  note_change(node);
}

}  // namespace kansoku::simulate::placement
