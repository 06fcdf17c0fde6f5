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

/// What one pod asks of one node.
struct Request {
  std::int64_t cpu_milli{0};
  std::int64_t memory_mib{0};
  std::int32_t gpus{0};
  std::int32_t gpu_milli{0};   // of each GPU; < kWholeGpu only with gpus == 1
  std::uint64_t gpu_types{0};  // bit i: GPU model i is allowed; 0 = any
  friend auto operator<=>(const Request&, const Request&) = default;
};

/// Where a request went: the node and its GPUs.
struct Placed {
  std::uint32_t node{0};
  std::uint32_t gpus{0};  // bit i: GPU i
};

/// A node's capacity and what is left of it.
struct Node {
  std::string name;
  std::uint32_t gpu_model{0};  // index of the model, for Request::gpu_types; 63 at most
  std::int32_t gpus{0};
  std::int64_t cpu_milli{0}, memory_mib{0};
  std::int64_t cpu_left{0}, memory_left{0};
  std::int32_t gpu_left[kGpusPerNodeMax]{};  // thousandths, each GPU
  std::int32_t gpu_left_sum{0};
  bool up{true};             // a node that is down takes nothing
  std::uint64_t version{0};  // changes with every change of the node: for caches of scores
};

/// The nodes of a cluster, and the only place where their capacity changes. Node indices stay
/// valid. Not shared between threads.
class NodePool {
 public:
  /// Capacity from `node`; the left and sum fields are set here. CHECKs the limits above.
  std::uint32_t add(Node node);

  [[nodiscard]] std::span<const Node> nodes() const { return nodes_; }
  [[nodiscard]] const Node& node(std::uint32_t index) const { return nodes_[index]; }
  /// True if the node, as it is now, can take the request (CPU, memory, GPU type, GPUs).
  [[nodiscard]] bool fits(const Request& request, std::uint32_t node) const;
  /// Takes the resources; CHECKs that they are there.
  void take(const Request& request, Placed where);
  /// Gives them back; CHECKs that no capacity is exceeded.
  void give_back(const Request& request, Placed where);
  void set_up(std::uint32_t node, bool up);

  [[nodiscard]] std::int64_t gpu_milli_total() const { return gpu_milli_total_; }
  [[nodiscard]] std::int64_t gpu_milli_used() const { return gpu_milli_used_; }
  [[nodiscard]] std::int64_t cpu_milli_used() const { return cpu_milli_used_; }

 private:
  std::vector<Node> nodes_;
  std::int64_t gpu_milli_total_{0}, gpu_milli_used_{0}, cpu_milli_used_{0};
};

}  // namespace kansoku::simulate::placement
