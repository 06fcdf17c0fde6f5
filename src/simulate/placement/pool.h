// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/check.h"

namespace kansoku::simulate::placement {

inline constexpr std::int32_t kWholeGpu = 1000;  // thousandths
inline constexpr int kGpusPerNodeMax = 32;
inline constexpr std::uint32_t kGpuModelMax = 63;

/// Request of one pod to one node.
struct Request {
  std::int64_t cpu_milli{0};
  std::int64_t memory_mib{0};
  std::int32_t gpus{0};
  std::int32_t gpu_milli{0};   // of each GPU; < kWholeGpu only with gpus == 1
  std::uint64_t gpu_types{0};  // bit i: GPU model i is allowed; 0 = any
  friend auto operator<=>(const Request&, const Request&) = default;

  /// A part of one GPU.
  [[nodiscard]] bool is_share() const { return gpus == 1 && gpu_milli < kWholeGpu; }
  /// Sum of all its GPUs.
  [[nodiscard]] std::int64_t gpu_milli_sum() const { return std::int64_t{gpus} * gpu_milli; }
  /// Its kind of GPU use: 0 = a share, k = k whole GPUs. Only for gpus > 0.
  [[nodiscard]] int gpu_class() const { return is_share() ? 0 : gpus; }
};

/// Place of a request: the node and its GPUs.
struct Placed {
  std::uint32_t node{0};
  std::uint32_t gpus{0};  // bit i: GPU i
};

/// A node's capacity and the rest of it. All after `gpu_model` .. `memory_mib` is kept by the pool.
struct Node {
  std::string name;
  std::uint32_t gpu_model{0};  // index of the model, for Request::gpu_types
  std::int32_t gpus{0};
  std::int64_t cpu_milli{0}, memory_mib{0};
  std::int64_t cpu_left{0}, memory_left{0};
  std::int32_t gpu_left[kGpusPerNodeMax]{};  // thousandths, each GPU
  std::int32_t gpu_left_sum{0};
  std::int32_t gpu_left_max{0};  // of one GPU
  std::int32_t gpus_idle{0};     // with all of their thousandths left
  // Requests with GPUs that are on the node, by Request::gpu_class().
  std::uint32_t class_count[kGpusPerNodeMax + 1]{};
  bool up{true};             // a node that is down takes nothing
  std::uint64_t version{0};  // number of the pool's latest change to this node
};

/// The nodes of a cluster, and the only place where their capacity changes. Node indices stay
/// valid. Not shared between threads.
class NodePool {
 public:
  /// How many of the latest changes `changed_node` knows.
  static constexpr std::uint64_t kJournal = 4096;

  /// Capacity from `node`; all other fields are set here. CHECKs the limits above.
  std::uint32_t add(Node node);

  [[nodiscard]] std::span<const Node> nodes() const { return nodes_; }
  [[nodiscard]] const Node& node(std::uint32_t index) const { return nodes_[index]; }
  /// True if the node, as it is now, can take the request (CPU, memory, GPU type, GPUs). False for
  /// a request that makes no sense: negative amounts, a share of several GPUs. O(1).
  [[nodiscard]] bool fits(const Request& request, std::uint32_t node) const;
  /// Takes the resources; CHECKs that they are there.
  void take(const Request& request, Placed where);
  /// Gives them back, also on a node that is down; CHECKs that no capacity is exceeded.
  void give_back(const Request& request, Placed where);
  void set_up(std::uint32_t node, bool up);

  /// Changes so far, of any node; change number k (from 1) was of the node `changed_node(k)`, known
  /// for the latest kJournal of them. So a cache repairs stale entries without asking every node.
  [[nodiscard]] std::uint64_t change_count() const { return change_count_; }
  [[nodiscard]] std::uint32_t changed_node(std::uint64_t number) const;

  /// Scale of scores: the largest node, but not less than openb's (128 CPUs, 8 GPUs), for which the
  /// policies were published.
  [[nodiscard]] std::int64_t cpu_milli_scale() const { return cpu_milli_scale_; }
  [[nodiscard]] std::int64_t gpu_milli_scale() const { return gpu_milli_scale_; }

  [[nodiscard]] std::int64_t gpu_milli_total() const { return gpu_milli_total_; }
  [[nodiscard]] std::int64_t gpu_milli_used() const { return gpu_milli_used_; }
  [[nodiscard]] std::int64_t cpu_milli_used() const { return cpu_milli_used_; }

 private:
  void note_change(std::uint32_t node);

  std::vector<Node> nodes_;
  std::vector<std::uint32_t> journal_ = std::vector<std::uint32_t>(kJournal);
  std::uint64_t change_count_{0};
  std::int64_t cpu_milli_scale_{128'000}, gpu_milli_scale_{8'000};
  std::int64_t gpu_milli_total_{0}, gpu_milli_used_{0}, cpu_milli_used_{0};
};

}  // namespace kansoku::simulate::placement
