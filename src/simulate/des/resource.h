// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "simulate/des/engine.h"
#include "simulate/des/queue.h"

namespace kansoku::simulate::des {

class Held;

/// Integral over time of a level, exact: the sum of level times nanoseconds.
class TimeIntegral {
 public:
  void change(Nanos now, std::int64_t by) {
    sum_ += static_cast<Wide>(level_) * (now - since_).count();
    since_ = now;
    level_ += by;
  }
  [[nodiscard]] Wide at(Nanos now) const {
    return sum_ + static_cast<Wide>(level_) * (now - since_).count();
  }
  [[nodiscard]] std::int64_t level() const { return level_; }
  /// Mean level over `from`..`now` given the integral at `from`; 0 for an empty span.
  [[nodiscard]] double mean(Nanos now, Nanos from = Nanos{0}, Wide at_from = 0) const {
    if (now <= from) return 0;
    return static_cast<double>(at(now) - at_from) / static_cast<double>((now - from).count());
  }

 private:
  Wide sum_{0};
  Nanos since_{0};
  std::int64_t level_{0};
};

/// Common part of all resources: `capacity` equal units, of which a request takes some. The
/// invariant
/// 0 <= busy <= capacity is CHECKed at every change.
class ResourceBase {
 public:
  ResourceBase(const ResourceBase&) = delete;
  ResourceBase& operator=(const ResourceBase&) = delete;

  [[nodiscard]] Environment& environment() const { return env_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::int64_t capacity() const { return capacity_; }
  [[nodiscard]] std::int64_t busy() const { return busy_.level(); }
  [[nodiscard]] std::int64_t queue_length() const { return queued_.level(); }
  /// Units x time and requests x time so far.
  [[nodiscard]] const TimeIntegral& busy_integral() const { return busy_; }
  [[nodiscard]] const TimeIntegral& queue_integral() const { return queued_; }

 protected:
  friend class Held;
  ResourceBase(Environment& env, std::int64_t capacity, std::string name)
      : env_(env), name_(std::move(name)), capacity_(capacity) {
    CHECK(capacity >= 0);
  }
  virtual ~ResourceBase() = default;

  virtual void give_back(Held& held) = 0;
  /// False if the units of this ticket were taken away.
  [[nodiscard]] virtual bool owns(std::uint64_t) const { return true; }
  void take(std::int64_t units) {
    busy_.change(env_.now(), units);
    CHECK(busy_.level() >= 0 && busy_.level() <= capacity_);
  }
  [[nodiscard]] std::int64_t free() const { return capacity_ - busy_.level(); }

  Environment& env_;
  std::string name_;
  std::int64_t capacity_;
  TimeIntegral busy_, queued_;
};

/// Units of a resource that are held; given back when it goes out of scope, or by release().
/// Move-only. False if nothing is held: the request was interrupted, it was released, or a
/// preemption took the units away.
class [[nodiscard]] Held {
 public:
  Held() = default;
  Held(ResourceBase& resource, std::int64_t units, std::uint64_t ticket = 0)
      : resource_(&resource), env_(&resource.env_), units_(units), ticket_(ticket) {}
  Held(Held&& other) noexcept
      : resource_(std::exchange(other.resource_, nullptr)),
        env_(other.env_),
        units_(other.units_),
        ticket_(other.ticket_) {}
  Held& operator=(Held&& other) noexcept {
    Held moved(std::move(other));
    std::swap(resource_, moved.resource_);
    std::swap(env_, moved.env_);
    std::swap(units_, moved.units_);
    std::swap(ticket_, moved.ticket_);
    return *this;
  }
  ~Held() { release(); }

  explicit operator bool() const {
    return resource_ != nullptr && (ticket_ == 0 || resource_->owns(ticket_));
  }
  [[nodiscard]] std::int64_t units() const { return *this ? units_ : 0; }
  /// Gives the units back now. Nothing happens if none are held, or while the environment closes.
  void release() {
    if (resource_ == nullptr) return;
    if (!env_->closing()) resource_->give_back(*this);
    resource_ = nullptr;
  }

 private:
  friend class Resource;
  friend class PreemptiveResource;
  ResourceBase* resource_{nullptr};
  Environment* env_{nullptr};
  std::int64_t units_{0};
  std::uint64_t ticket_{0};  // 0: cannot be taken away
};

/// A counted resource, first come first served: whoever is first in the queue goes first, also if
/// a later request would fit. Outlives every request and Held of it, except that the environment
/// may outlive it.
class Resource final : public ResourceBase {
 public:
  class Request;
  Resource(Environment& env, std::int64_t capacity, std::string name = {})
      : ResourceBase(env, capacity, std::move(name)) {}

  /// 1 <= units <= capacity (CHECKed). `co_await` gives a Held.
  [[nodiscard]] Request request(std::int64_t units = 1);

 private:
  void give_back(Held& held) override { release(held.units_); }
  void release(std::int64_t units);

  Queue<Request> waiting_;
};

class Resource::Request final : public Awaitable<Resource::Request> {
 public:
  Request(Resource& resource, std::int64_t units)
      : Awaitable(resource.env_), resource_(resource), units_(units) {
    CHECK(units >= 1 && units <= resource.capacity_);
  }
  ~Request() override {
    if (granted_ && !env_->closing()) resource_.release(units_);
  }
  /// The granted units, once; for a request that was awaited in a group.
  [[nodiscard]] Held take() {
    if (!std::exchange(granted_, false)) return {};
    return {resource_, units_};
  }

 private:
  friend class Awaitable<Request>;
  friend class Group;
  friend class Resource;
  friend class Queue<Request>;
  [[nodiscard]] bool begin_now() {
    if (granted_) return true;  // in an earlier await, and not taken
    if (!resource_.waiting_.empty() || units_ > resource_.free()) return false;
    resource_.take(units_);
    granted_ = true;
    return true;
  }
  void enqueue() {
    resource_.waiting_.push_back(*this);
    queued_ = true;
    resource_.queued_.change(env_->now(), 1);
  }
  void unlink() {
    resource_.waiting_.erase(*this);
    queued_ = false;
    resource_.queued_.change(env_->now(), -1);
  }
  void cancel() override;
  [[nodiscard]] Held result() { return take(); }

  Resource& resource_;
  std::int64_t units_;
  bool granted_{false}, queued_{false};
  Request* previous_{nullptr};
  Request* next_{nullptr};
};

inline Resource::Request Resource::request(std::int64_t units) {
  return {*this, units};
}

inline void Resource::release(std::int64_t units) {
  take(-units);
  while (!waiting_.empty() && waiting_.front().units_ <= free()) {
    Request& next = waiting_.front();
    next.unlink();
    take(next.units_);
    next.granted_ = true;
    env_.post(next);
  }
}

/// A counted resource whose queue is ordered by priority (smaller goes first), then by arrival.
/// With Mode::kPreemptive whoever is first in the queue and finds too little free takes units from
/// holders of worse priority, worst and latest first, never from itself: their process is
/// interrupted where it waits (if it runs, where it waits next), and their Held turns false.
/// Nothing is taken unless all that it takes makes enough room.
class PreemptiveResource final : public ResourceBase {
 public:
  class Request;
  enum class Mode : std::uint8_t { kPriority, kPreemptive };
  PreemptiveResource(Environment& env, std::int64_t capacity, Mode mode, std::string name = {})
      : ResourceBase(env, capacity, std::move(name)), mode_(mode) {}

  /// 1 <= units <= capacity (CHECKed). `co_await` gives a Held. With Mode::kPreemptive the process
  /// that asks is the one that is interrupted.
  [[nodiscard]] Request request(std::int64_t priority, std::int64_t units = 1);
  /// True while `held` holds units of this resource: not released, not taken away.
  [[nodiscard]] bool holds(const Held& held) const { return held.resource_ == this && held; }
  [[nodiscard]] std::uint64_t preemption_count() const { return preemptions_; }

 private:
  struct Holder {
    std::int64_t priority{0};
    std::uint64_t ticket{0};
    std::int64_t units{0};
    ProcessId process;
    friend bool operator<(const Holder& a, const Holder& b) {
      return a.priority < b.priority || (a.priority == b.priority && a.ticket < b.ticket);
    }
  };
  struct Order {
    bool operator()(const Request* a, const Request* b) const;
  };
  using Holders = std::set<Holder>;

  void give_back(Held& held) override;
  [[nodiscard]] bool owns(std::uint64_t ticket) const override {
    return by_ticket_.contains(ticket);
  }
  void grant_waiting();
  [[nodiscard]] bool make_room(const Request& request);
  void grant(Request& request);

  Mode mode_;
  bool granting_{false};
  std::uint64_t tickets_{0}, preemptions_{0};
  std::set<Request*, Order> waiting_;
  Holders holders_;  // both only with kPreemptive
  std::unordered_map<std::uint64_t, Holders::iterator> by_ticket_;
};

class PreemptiveResource::Request final : public Awaitable<PreemptiveResource::Request> {
 public:
  Request(PreemptiveResource& resource, std::int64_t priority, std::int64_t units)
      : Awaitable(resource.env_),
        resource_(resource),
        priority_(priority),
        units_(units),
        process_(resource.env_.active()) {
    CHECK(units >= 1 && units <= resource.capacity_);
  }
  ~Request() override {
    if (granted_ && !env_->closing()) static_cast<void>(take());
  }
  /// The granted units, once; for a request that was awaited in a group.
  [[nodiscard]] Held take() {
    if (!std::exchange(granted_, false)) return {};
    return {resource_, units_, resource_.mode_ == Mode::kPreemptive ? ticket_ : 0};
  }

 private:
  friend class Awaitable<Request>;
  friend class Group;
  friend class PreemptiveResource;
  [[nodiscard]] bool begin_now();
  void enqueue();
  void cancel() override;
  [[nodiscard]] Held result() { return take(); }

  PreemptiveResource& resource_;
  std::int64_t priority_;
  std::int64_t units_;
  std::uint64_t ticket_{0};  // of the latest await: the order of arrival, and the grant
  ProcessId process_;
  bool granted_{false}, queued_{false};
};

}  // namespace kansoku::simulate::des
