// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "simulate/des/engine.h"

namespace kansoku::simulate::des {

/// Something that happens once; any number of processes can wait for it. Outlives its waits, except
/// that the environment may outlive it.
class Event {
 public:
  class Happened;
  explicit Event(Environment& env) : env_(env) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// Lets everybody who waits go on, in the order in which they began to; again: nothing.
  void trigger();
  [[nodiscard]] bool triggered() const { return triggered_; }
  /// `co_await` gives a Wake; at once if it has happened.
  [[nodiscard]] Happened happened();

 private:
  Environment& env_;
  bool triggered_{false};
  std::vector<Wait*> waiting_;
};

class Event::Happened final : public Awaitable<Event::Happened> {
 public:
  explicit Happened(Event& event) : Awaitable(event.env_), event_(event) {}

 private:
  friend class Awaitable<Happened>;
  friend class Group;
  [[nodiscard]] bool begin_now() const { return event_.triggered_; }
  void enqueue() { event_.waiting_.push_back(this); }
  void cancel() override {
    env_->withdraw(*this);
    std::erase(event_.waiting_, this);
  }
  [[nodiscard]] Wake result() const { return wake_; }
  Event& event_;
};

inline Event::Happened Event::happened() {
  return Happened(*this);
}

inline void Event::trigger() {
  if (triggered_) return;
  triggered_ = true;
  for (Wait* const wait : waiting_)
    env_.post(*wait);
  waiting_.clear();
}

}  // namespace kansoku::simulate::des
