// SPDX-License-Identifier: Apache-2.0
#include "fleet/internal/endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kansoku::fleet::internal {
namespace {

// Cost of a message beside its bytes, so that empty ones are bounded too.
constexpr std::size_t kMessageOverheadBytes = 128;
constexpr std::size_t kRunMax = 256;  // messages of one poll, so that a backlog holds nobody up

std::size_t cost_of(const BusMessage& message) {
  return message.subject.size() + message.reply.size() + message.bytes.size() +
         kMessageOverheadBytes;
}

Result<void> check(std::string_view subject, std::string_view bytes) {
  if (!is_subject(subject))
    return Error{Code::kUnsupported, fmt::format("publish to \"{}\": not a subject", subject)};
  if (bytes.size() > Bus::kPayloadBytesMax)
    return Error{Code::kLimit, fmt::format("publish to {}: {} bytes, above {}", subject,
                                           bytes.size(), Bus::kPayloadBytesMax)};
  return {};
}

}  // namespace

bool Inbox::push(Arrival arrival) {
  const std::size_t cost = cost_of(arrival.message);
  const std::lock_guard lock(mu_);
  if (arrivals_.size() >= limits_.incoming_messages || cost > limits_.incoming_bytes - bytes_) {
    ++dropped_;
    return false;
  }
  bytes_ += cost;
  ++received_;
  arrivals_.push_back(std::move(arrival));
  arrived_.notify_one();
  return true;
}

std::deque<Arrival> Inbox::take(Nanos wait) {
  std::unique_lock lock(mu_);
  if (arrivals_.empty() && wait > Nanos{})
    arrived_.wait_for(lock, wait, [this] { return !arrivals_.empty(); });
  bytes_ = 0;
  return std::exchange(arrivals_, {});
}

std::uint64_t Inbox::received() const {
  const std::lock_guard lock(mu_);
  return received_;
}

std::uint64_t Inbox::dropped() const {
  const std::lock_guard lock(mu_);
  return dropped_;
}

void Inbox::count_dropped(std::uint64_t more) {
  const std::lock_guard lock(mu_);
  dropped_ += more;
}

Endpoint::Endpoint(const Clock& clock, const BusLimits& limits, std::string own_name)
    : clock_(clock),
      answers_(fmt::format("_INBOX.{}.", own_name)),
      inbox_(std::make_shared<Inbox>(limits)) {}

Result<void> Endpoint::publish(std::string_view subject, std::string_view bytes) {
  TRY_VOID(check(subject, bytes));
  send({std::string(subject), "", std::string(bytes)});
  return {};
}

Result<Bus::SubscriptionId> Endpoint::subscribe(std::string_view pattern, Handler handler) {
  if (!is_subject_pattern(pattern))
    return Error{Code::kUnsupported, fmt::format("subscribe to \"{}\": not a pattern", pattern)};
  const SubscriptionId id = next_subscription_++;
  handlers_[id] = std::make_shared<Handler>(std::move(handler));
  listen(id, std::string(pattern));
  return id;
}

void Endpoint::unsubscribe(SubscriptionId id) {
  if (handlers_.erase(id) > 0) forget(id);
}

Result<void> Endpoint::request(std::string_view subject, std::string_view bytes, Nanos deadline,
                               ReplyHandler handler) {
  TRY_VOID(check(subject, bytes));
  if (requests_.size() >= kRequestsMax)
    return Error{Code::kLimit,
                 fmt::format("ask {}: {} requests are waiting", subject, kRequestsMax)};
  if (answers_subscription_ == 0) {
    answers_subscription_ = next_subscription_++;
    listen(answers_subscription_, answers_ + "*");
  }
  std::string reply = answers_ + std::to_string(next_request_++);
  requests_[reply] = {clock_.now() + deadline, std::move(handler)};
  send({std::string(subject), std::move(reply), std::string(bytes)});
  return {};
}

/// The first answer to a request; what comes later, or for nobody, is no loss.
bool Endpoint::answer(const Arrival& arrival) {
  const auto found = requests_.find(arrival.message.subject);
  if (found == requests_.end()) return false;
  const ReplyHandler handler = std::move(found->second.handler);
  requests_.erase(found);
  if (arrival.has_nobody) {
    handler(Error{Code::kUnavailable, "ask over the bus: no agent listens to that subject",
                  "check that the agent runs"});
  } else {
    handler(arrival.message.bytes);
  }
  return true;
}

std::size_t Endpoint::run(const Arrival& arrival) {
  if (arrival.subscription == answers_subscription_) return answer(arrival) ? 1 : 0;
  const auto found = handlers_.find(arrival.subscription);
  if (found == handlers_.end()) return 0;                  // unsubscribed meanwhile
  const std::shared_ptr<Handler> handler = found->second;  // it may unsubscribe itself
  (*handler)(arrival.message);
  return 1;
}

std::size_t Endpoint::expire() {
  const BootTime now = clock_.now();
  std::vector<ReplyHandler> expired;  // a handler may ask again
  for (auto request = requests_.begin(); request != requests_.end();) {
    const bool is_over = request->second.until <= now;
    if (is_over) expired.push_back(std::move(request->second.handler));
    request = is_over ? requests_.erase(request) : std::next(request);
  }
  for (const ReplyHandler& handler : expired)
    handler(Error{Code::kTimeout, "ask over the bus: no answer in time"});
  return expired.size();
}

std::size_t Endpoint::poll(Nanos wait) {
  for (const auto& [subject, request] : requests_)
    wait = std::min(wait, std::max(request.until - clock_.now(), Nanos{}));
  if (waiting_.empty()) waiting_ = inbox_->take(wait);
  std::size_t count = 0;
  for (std::size_t left = kRunMax; left > 0 && !waiting_.empty(); --left) {
    const Arrival arrival = std::move(waiting_.front());
    waiting_.pop_front();
    count += run(arrival);
  }
  // An answer that waits here came in time.
  return waiting_.empty() ? count + expire() : count;
}

}  // namespace kansoku::fleet::internal
