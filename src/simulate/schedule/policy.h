// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "common/result.h"
#include "common/time.h"

namespace kansoku::simulate::schedule {

/// A request that waits for its resources.
struct Waiting {
  std::uint64_t ticket{0};  // rises with arrival; unique
  Nanos since{0};
  Nanos estimate{0};         // how long it will hold them, as far as known
  std::int64_t units{1};     // slots, or GPU milli
  std::int64_t priority{0};  // smaller goes first
  std::uint32_t group{0};    // virtual cluster or user
  double potential{0};       // expected gain of model performance
  Nanos trained{0};          // when the model that it renews was trained
  void* owner{nullptr};      // the caller's
};

/// View of the cluster for a policy, at the moment of a decision.
class View {
 public:
  View() = default;
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  virtual ~View() = default;
  [[nodiscard]] virtual Nanos now() const = 0;
  /// True if the request can start at this moment: resources, quota and placement.
  [[nodiscard]] virtual bool fits(const Waiting& waiting) = 0;
  [[nodiscard]] virtual std::int64_t units_free() const = 0;
  /// Units held by the group, each weighted by the time it was held: fair share divides this.
  [[nodiscard]] virtual double usage(std::uint32_t group) const = 0;
  /// Calls `visit(expected end, units)` for running tasks, by rising expected end.
  class EndVisitor {
   public:
    virtual ~EndVisitor() = default;
    /// False: enough seen.
    virtual bool ends(Nanos at, std::int64_t units) = 0;
  };
  virtual void visit_ends(EndVisitor& visitor) const = 0;
};

/// The order in which requests start. One object a queue; holds copies of the waiting requests.
/// Ties go to the smaller ticket. Not shared between threads. A new policy = one header with its
/// class, one line in policy.cc, one hand-worked test.
class Policy {
 public:
  Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;
  virtual ~Policy() = default;
  virtual void add(const Waiting& waiting) = 0;
  /// `waiting` as it was added.
  virtual void remove(const Waiting& waiting) = 0;
  [[nodiscard]] virtual bool empty() const = 0;
  /// The request to start now, or nothing if nobody may. The caller starts it and calls remove.
  [[nodiscard]] virtual std::optional<Waiting> pick(View& view) = 0;
  /// The request that is next but may not fit: the one that preemption makes room for.
  [[nodiscard]] virtual std::optional<Waiting> head(View& view) = 0;
};

/// "fifo", "priority", "shortest", "fair_share", "backfill", "improvement".
[[nodiscard]] std::span<const std::string_view> policy_names();
/// kNotFound names the policies there are.
[[nodiscard]] Result<std::unique_ptr<Policy>> make_policy(std::string_view name);

}  // namespace kansoku::simulate::schedule
