// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "common/time.h"
#include "fleet/bus.h"

namespace kansoku::fleet::internal {

/// Something that arrived for one subscription.
struct Arrival {
  Bus::SubscriptionId subscription{0};
  BusMessage message;
  bool has_nobody{false};  // in place of an answer: nobody subscribed
};

/// Queue of arrived messages, filled by other threads; bounded. Any thread.
class Inbox {
 public:
  explicit Inbox(const BusLimits& limits) : limits_(limits) {}

  /// False, and counted, if full.
  bool push(Arrival arrival);
  /// All that has arrived; waits up to `wait` for the first.
  [[nodiscard]] std::deque<Arrival> take(Nanos wait);
  [[nodiscard]] std::uint64_t received() const;
  [[nodiscard]] std::uint64_t dropped() const;
  void count_dropped(std::uint64_t more);

 private:
  const BusLimits limits_;
  mutable std::mutex mu_;
  std::condition_variable arrived_;
  std::deque<Arrival> arrivals_;
  std::size_t bytes_{0};
  std::uint64_t received_{0}, dropped_{0};
};

/// Common part of both buses: checks, subscriptions, requests, handlers. The derived class sends
/// and listens.
class Endpoint : public Bus {
 public:
  /// `own_name`: a word that no other endpoint has, for the subjects of answers.
  Endpoint(const Clock& clock, const BusLimits& limits, std::string own_name);

  [[nodiscard]] Result<void> publish(std::string_view subject, std::string_view bytes) final;
  [[nodiscard]] Result<SubscriptionId> subscribe(std::string_view pattern, Handler handler) final;
  void unsubscribe(SubscriptionId id) final;
  [[nodiscard]] Result<void> request(std::string_view subject, std::string_view bytes,
                                     Nanos deadline, ReplyHandler handler) final;
  std::size_t poll(Nanos wait) final;

 protected:
  /// Takes `message` over, without waiting.
  virtual void send(BusMessage message) = 0;
  /// Has messages that fit `pattern` put into the inbox for `id`, until `forget`.
  virtual void listen(SubscriptionId id, const std::string& pattern) = 0;
  virtual void forget(SubscriptionId id) = 0;

  [[nodiscard]] const std::shared_ptr<Inbox>& inbox() const { return inbox_; }

 private:
  struct Request {
    BootTime until;
    ReplyHandler handler;
  };
  std::size_t run(const Arrival& arrival);
  bool answer(const Arrival& arrival);
  std::size_t expire();

  const Clock& clock_;
  const std::string answers_;  // prefix of the subjects of answers
  std::shared_ptr<Inbox> inbox_;
  std::deque<Arrival> waiting_;  // taken from it, not handled yet
  SubscriptionId next_subscription_{1}, answers_subscription_{0};
  std::map<SubscriptionId, std::shared_ptr<Handler>> handlers_;
  std::uint64_t next_request_{0};
  std::map<std::string, Request, std::less<>> requests_;  // by subject of the answer
};

}  // namespace kansoku::fleet::internal
