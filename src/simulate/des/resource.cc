// SPDX-License-Identifier: Apache-2.0
#include "simulate/des/resource.h"

#include <algorithm>

namespace kansoku::simulate::des {

void Resource::Request::cancel() {
  env_->withdraw(*this);
  if (queued_) {
    unlink();
    resource_.release(0);  // if it was the first, who stood behind may fit now
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

void PreemptiveResource::grant(Request& request) {
  take(request.units_);
  request.granted_ = true;
  if (mode_ != Mode::kPreemptive) return;
  const auto place =
      holders_.insert({request.priority_, request.ticket_, request.units_, request.process_}).first;
  by_ticket_.emplace(request.ticket_, place);
}

void PreemptiveResource::give_back(Held& held) {
  if (held.ticket_ != 0) {
    const auto found = by_ticket_.find(held.ticket_);
    if (found == by_ticket_.end()) return;  // taken away
    holders_.erase(found->second);
    by_ticket_.erase(found);
  }
  take(-held.units_);
  grant_waiting();
}

void PreemptiveResource::grant_waiting() {
  // Whom make_room interrupts may stand in this queue too: it leaves, which comes back here, while
  // the units that were freed are promised already.
  if (granting_) return;
  granting_ = true;
  while (!waiting_.empty() && make_room(**waiting_.begin())) {
    Request& next = **waiting_.begin();
    waiting_.erase(waiting_.begin());
    next.queued_ = false;
    queued_.change(env_.now(), -1);
    grant(next);
    env_.post(next);
  }
  granting_ = false;
}

bool PreemptiveResource::make_room(const Request& request) {
  if (request.units_ <= free()) return true;
  if (mode_ != Mode::kPreemptive) return false;
  const auto other = [&](const Holder& holder) { return holder.process != request.process_; };
  std::int64_t reachable = free();
  for (auto holder = holders_.rbegin();
       holder != holders_.rend() && holder->priority > request.priority_; ++holder)
    if (other(*holder)) reachable += holder->units;
  if (reachable < request.units_) return false;
  while (free() < request.units_) {
    const auto worst = std::find_if(holders_.rbegin(), holders_.rend(), other);
    const Holder victim = *worst;
    by_ticket_.erase(victim.ticket);
    holders_.erase(std::next(worst).base());
    take(-victim.units);
    ++preemptions_;
    env_.preempt(victim.process);
  }
  return true;
}

bool PreemptiveResource::Request::begin_now() {
  if (granted_ && (resource_.mode_ == Mode::kPriority || resource_.owns(ticket_))) return true;
  granted_ = false;
  ticket_ = ++resource_.tickets_;
  const bool first =
      resource_.waiting_.empty() || priority_ < (*resource_.waiting_.begin())->priority_;
  if (!first) return false;
  resource_.granting_ = true;
  const bool room = resource_.make_room(*this);
  if (room) resource_.grant(*this);
  resource_.granting_ = false;
  if (room) resource_.grant_waiting();  // a victim may have held more than was needed
  return room;
}

void PreemptiveResource::Request::enqueue() {
  resource_.waiting_.insert(this);
  queued_ = true;
  resource_.queued_.change(env_->now(), 1);
}

void PreemptiveResource::Request::cancel() {
  env_->withdraw(*this);
  if (queued_) {
    resource_.waiting_.erase(this);
    queued_ = false;
    resource_.queued_.change(env_->now(), -1);
    resource_.grant_waiting();  // if it was the first, who stood behind may fit now
  } else {
    static_cast<void>(take());  // its Held gives the units back
  }
}

}  // namespace kansoku::simulate::des
