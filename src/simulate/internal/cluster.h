// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/rng.h"
#include "simulate/des/engine.h"
#include "simulate/experiment.h"
#include "simulate/internal/level.h"
#include "simulate/placement/policy.h"
#include "simulate/schedule/policy.h"

namespace kansoku::simulate {

class Cluster;

/// Collector of broken invariants. The first one stops the run.
class Breaches {
 public:
  explicit Breaches(des::Environment& env) : env_(env) {}
  void add(std::string entity, std::string what);
  [[nodiscard]] const std::string& first() const { return first_; }

 private:
  des::Environment& env_;
  std::string first_;
};

/// Demand of a task on a cluster.
struct Demand {
  schedule::Waiting waiting;  // ticket and owner are set by the claim
  placement::Request pod;
  std::int32_t pods{1};
};

/// A task's place in the queue, then its hold on the resources. `co_await` it once; afterwards
/// held() tells whether it still has them: a preemption or a node's failure takes them away and
/// interrupts the process.
class Claim final : public des::Awaitable<Claim> {
 public:
  Claim(Cluster& cluster, const Demand& demand);
  ~Claim() override;

  [[nodiscard]] bool held() const { return state_ == State::kHeld; }
  [[nodiscard]] bool node_failed() const { return node_failed_; }
  /// The slowest of its nodes.
  [[nodiscard]] double speed() const { return speed_; }
  void expect_end(Nanos at);
  void release();

 private:
  friend class des::Awaitable<Claim>;
  friend class Cluster;
  enum class State : std::uint8_t { kNew, kQueued, kHeld, kGone };
  [[nodiscard]] bool begin_now();
  void enqueue();
  void cancel() override;
  static void result() {}

  Cluster& cluster_;
  Demand demand_;
  State state_{State::kNew};
  bool node_failed_{false};
  double speed_{1};
  Nanos expected_end_{Nanos::max()};
  des::ProcessId process_{};
  std::vector<placement::Placed> places_;
};

/// State that the clusters of one replication share.
struct Context {
  Nanos warmup{0}, horizon{0};
  int series_points{0};
  std::uint64_t seed{0};
  std::span<const placement::TypicalPod> typical;
  Breaches* breaches{nullptr};
};

/// A cluster while it runs: capacity, queues by virtual cluster, placement, preemption, failures.
class Cluster {
 public:
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  /// Builds one from its specification; `typical` for placement by fragmentation. kNotFound for an
  /// unknown policy.
  [[nodiscard]] static Result<std::unique_ptr<Cluster>> make(des::Environment& env,
                                                             const ClusterSpec& spec,
                                                             const Context& context);
  ~Cluster();

  /// Starts the processes that let nodes fail, if they do.
  void start_failures();
  /// True if an empty cluster could take it.
  [[nodiscard]] bool could_ever_take(const Demand& demand) const;
  /// The group's number, for quotas and fair share.
  [[nodiscard]] std::uint32_t group(const std::string& name);

  [[nodiscard]] const ClusterSpec& spec() const { return spec_; }
  [[nodiscard]] std::int64_t capacity() const { return capacity_; }
  [[nodiscard]] Level& busy() { return busy_; }
  [[nodiscard]] Level& queued() { return queued_; }
  [[nodiscard]] Level& down() { return down_; }
  [[nodiscard]] std::uint64_t preemptions() const { return preemptions_; }
  [[nodiscard]] std::uint64_t node_failures() const { return node_failures_; }
  [[nodiscard]] std::uint64_t waiting_count() const { return waiting_count_; }
  [[nodiscard]] std::uint64_t running_count() const { return running_count_; }
  [[nodiscard]] std::int64_t units_of(const Demand& demand) const;
  /// Time the group's units were held, in unit seconds.
  [[nodiscard]] double group_usage(std::uint32_t group) const;
  [[nodiscard]] const std::vector<std::string>& groups() const { return group_names_; }

 private:
  friend class Claim;
  class Eyes;  // schedule::View of this cluster
  Cluster(des::Environment& env, const ClusterSpec& spec, const Context& context);
  struct Group {
    std::int64_t quota{INT64_MAX};
    std::size_t queue{0};
    des::TimeIntegral held;
  };

  [[nodiscard]] bool fits(const Claim& claim);
  [[nodiscard]] bool place(const Claim& claim, std::vector<placement::Placed>& places);
  void hold(Claim& claim);
  void unhold(Claim& claim);
  void enqueue(Claim& claim);
  void dequeue(Claim& claim);
  void release(Claim& claim);
  void dispatch();
  [[nodiscard]] Claim* next_to_start();
  [[nodiscard]] bool make_room();
  void evict(Claim& claim, bool node_failed);
  des::Process fail_and_repair(des::Environment& env, std::uint32_t node, RandomStream random);
  void fail_node(std::uint32_t node);

  des::Environment& env_;
  const ClusterSpec& spec_;
  Breaches& breaches_;
  std::uint64_t seed_;
  std::int64_t capacity_{0};
  bool tracks_running_{false};  // backfilling, preemption and failures look at running tasks
  placement::NodePool pool_;
  std::unique_ptr<placement::Policy> placement_;
  RandomStream random_;
  std::vector<std::unique_ptr<schedule::Policy>> queues_;  // one, or one a group with a quota
  std::vector<Group> groups_;
  std::vector<std::string> group_names_;
  std::map<std::string, std::uint32_t, std::less<>> group_numbers_;
  std::map<std::pair<Nanos, std::uint64_t>, Claim*> running_;  // by expected end, ticket
  std::unique_ptr<Eyes> eyes_;
  // The place found by the last successful fits(), for the hold that follows.
  const Claim* placed_for_{nullptr};
  std::vector<placement::Placed> places_;
  // Shapes that did not fit since capacity was last given back.
  std::vector<std::pair<placement::Request, std::int32_t>> hopeless_;
  std::uint64_t tickets_{0}, waiting_count_{0}, running_count_{0};
  std::uint64_t preemptions_{0}, node_failures_{0};
  Level busy_, queued_, down_;
};

}  // namespace kansoku::simulate
