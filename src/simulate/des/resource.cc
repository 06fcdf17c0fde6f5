// SPDX-License-Identifier: Apache-2.0
#include "simulate/des/resource.h"

#include <algorithm>

namespace kansoku::simulate::des {

void Resource::Request::cancel() {
  env_->withdraw(*this);
  if (queued_) {
    const bool was_first = resource_.first_ == this;
    unlink();
    if (was_first) resource_.release(0);  // who stood behind may fit now
  } else if (std::exchange(granted_, false)) {
    resource_.release(units_);
  }
}

bool PreemptiveResource::Order::operator()(const Request* a, const Request* b) const {
  return a->priority_ < b->priority_ || (a->priority_ == b->priority_ && a->ticket_ < b->ticket_);
}

PreemptiveResource::Request PreemptiveResource::request(std::int64_t priority, std::int64_t units) {
  return {*this, priority, units};
}

bool PreemptiveResource::holds(const Held& held) const {
  return held && std::any_of(holders_.begin(), holders_.end(),
                             [&](const Holder& holder) { return holder.ticket == held.ticket_; });
}

void PreemptiveResource::grant(Request& request) {
  take(request.units_);
  request.granted_ = true;
  holders_.insert({request.priority_, request.ticket_, request.units_, request.process_});
}

void PreemptiveResource::give_back(Held& held) {
  const auto found = std::find_if(holders_.begin(), holders_.end(), [&](const Holder& holder) {
    return holder.ticket == held.ticket_;
  });
  if (found == holders_.end()) return;  // taken away
  take(-found->units);
  holders_.erase(found);
  grant_waiting();
}

void PreemptiveResource::grant_waiting() {
  while (!waiting_.empty() && (*waiting_.begin())->units_ <= free()) {
    Request& next = **waiting_.begin();
    waiting_.erase(waiting_.begin());
    next.queued_ = false;
    queued_.change(env_.now(), -1);
    grant(next);
    env_.post(next);
  }
}

bool PreemptiveResource::make_room(const Request& request) {
  std::int64_t reachable = free();
  for (auto holder = holders_.rbegin();
       holder != holders_.rend() && holder->priority > request.priority_; ++holder)
    reachable += holder->units;
  if (reachable < request.units_) return false;
  while (free() < request.units_) {
    const Holder victim = *holders_.rbegin();
    holders_.erase(std::prev(holders_.end()));
    take(-victim.units);
    ++preemptions_;
    env_.interrupt(victim.process);
  }
  return true;
}

bool PreemptiveResource::Request::begin_now() {
  const bool first =
      resource_.waiting_.empty() || priority_ < (*resource_.waiting_.begin())->priority_;
  if (!first) return false;
  const bool room = units_ <= resource_.free() ||
                    (resource_.mode_ == Mode::kPreemptive && resource_.make_room(*this));
  if (!room) return false;
  resource_.grant(*this);
  return true;
}

void PreemptiveResource::Request::enqueue() {
  resource_.waiting_.insert(this);
  queued_ = true;
  resource_.queued_.change(env_->now(), 1);
}

void PreemptiveResource::Request::cancel() {
  env_->withdraw(*this);
  if (queued_) {
    const bool was_first = *resource_.waiting_.begin() == this;
    resource_.waiting_.erase(this);
    queued_ = false;
    resource_.queued_.change(env_->now(), -1);
    if (was_first) resource_.grant_waiting();
  } else {
    static_cast<void>(take());  // its Held gives the units back
  }
}

}  // namespace kansoku::simulate::des
