// SPDX-License-Identifier: Apache-2.0
#include "fleet/in_process_bus.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "fleet/internal/endpoint.h"

namespace kansoku::fleet {

struct InProcessHub::State {
  struct Listener {
    const void* owner;
    Bus::SubscriptionId id;
    std::string pattern;
    std::shared_ptr<internal::Inbox> inbox;
  };
  std::mutex mu;
  std::vector<Listener> listeners;  // in order of subscribing
  std::uint64_t next_name{0};
};

class InProcessHub::Connection final : public internal::Endpoint {
 public:
  Connection(std::shared_ptr<State> state, const Clock& clock, const BusLimits& limits,
             std::string name)
      : Endpoint(clock, limits, std::move(name)), state_(std::move(state)) {}

  ~Connection() override {
    const std::lock_guard lock(state_->mu);
    std::erase_if(state_->listeners, [this](const auto& entry) { return entry.owner == this; });
  }

  [[nodiscard]] Result<void> flush(Nanos /*deadline*/) override { return {}; }

  [[nodiscard]] BusStatus status() const override {
    BusStatus status;
    status.is_connected = true;
    status.connects = 1;
    status.sent = sent_;
    status.received = inbox()->received();
    status.dropped_incoming = inbox()->dropped();
    return status;
  }

 protected:
  void send(BusMessage message) override {
    ++sent_;
    const std::lock_guard lock(state_->mu);
    bool has_listener = false;
    for (const State::Listener& listener : state_->listeners) {
      if (!subject_fits(listener.pattern, message.subject)) continue;
      listener.inbox->push({listener.id, message});
      has_listener = true;
    }
    if (has_listener || message.reply.empty()) return;
    for (const State::Listener& listener : state_->listeners) {
      if (subject_fits(listener.pattern, message.reply))
        listener.inbox->push({listener.id, {message.reply, "", ""}, true});
    }
  }

  void listen(SubscriptionId id, const std::string& pattern) override {
    const std::lock_guard lock(state_->mu);
    state_->listeners.push_back({this, id, pattern, inbox()});
  }

  void forget(SubscriptionId id) override {
    const std::lock_guard lock(state_->mu);
    std::erase_if(state_->listeners,
                  [&](const auto& entry) { return entry.owner == this && entry.id == id; });
  }

 private:
  std::shared_ptr<State> state_;
  std::uint64_t sent_{0};
};

InProcessHub::InProcessHub() : state_(std::make_shared<State>()) {}
InProcessHub::~InProcessHub() = default;

std::unique_ptr<Bus> InProcessHub::connect(const Clock& clock, const BusLimits& limits) {
  std::string name;
  {
    const std::lock_guard lock(state_->mu);
    name = "local" + std::to_string(state_->next_name++);
  }
  return std::make_unique<Connection>(state_, clock, limits, std::move(name));
}

}  // namespace kansoku::fleet
