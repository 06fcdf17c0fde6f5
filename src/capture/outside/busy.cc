// SPDX-License-Identifier: Apache-2.0
#include "capture/outside/busy.h"

#include <algorithm>

namespace kansoku::capture::outside {

namespace {

constexpr std::size_t kSpansMax = 1024;

std::uint64_t about(const Call& call) {
  return call.entry->scope == Scope::kEvent ? call.number(Key::kEvent) : call.number(Key::kStream);
}

}  // namespace

// A later interval may reach back over earlier ones, as waits of several threads do.
void BusyClock::Union::add(BootTime begin, BootTime end) {
  if (cuts) begin = std::max(begin, floor_);
  if (end <= begin) return;
  while (!spans_.empty() && spans_.back().second >= begin) {
    begin = std::min(begin, spans_.back().first);
    end = std::max(end, spans_.back().second);
    spans_.pop_back();
  }
  spans_.emplace_back(begin, end);
  if (spans_.size() < kSpansMax) return;
  const std::size_t half = spans_.size() / 2;
  for (std::size_t i = 0; i < half; ++i)
    folded_ += spans_[i].second - spans_[i].first;
  floor_ = spans_[half - 1].second;
  spans_.erase(spans_.begin(), spans_.begin() + static_cast<std::ptrdiff_t>(half));
}

Nanos BusyClock::Union::total() const {
  Nanos out = folded_;
  for (const auto& [begin, end] : spans_)
    out += end - begin;
  return out;
}

BusyClock::BusyClock(BootTime begin, bool is_whole, Nanos wait_overhead)
    : begin_(begin), wait_overhead_(wait_overhead) {
  if (!is_whole) before_ = begin;
  lower_.cuts = true;  // too little is right there, and too much here
}

void BusyClock::on_work(const StreamId& stream, BootTime begin, bool is_work) {
  const auto found = pending_.find(stream);
  if (found == pending_.end()) {
    if (pending_.size() >= kHandlesMax) {
      is_known_ = false;
      return;
    }
    pending_.emplace(stream, Pending{begin, begin, is_work});
    return;
  }
  found->second.since = std::min(found->second.since, begin);
  found->second.last = std::max(found->second.last, begin);
  found->second.is_work = found->second.is_work && is_work;
}

void BusyClock::on_event_record(std::uint64_t event, const StreamId& stream, BootTime begin) {
  if (records_.size() >= kHandlesMax && !records_.contains(event)) {
    records_.clear();  // waits for those cover nothing any more
  }
  records_[event] = {stream, begin};
}

// Its work goes on, and no wait for it can come: only one for the context covers it.
void BusyClock::on_stream_end(const StreamId& stream) {
  const auto found = pending_.find(stream);
  if (found == pending_.end()) return;
  before_ = std::min(before_.value_or(found->second.since), found->second.since);
  pending_.erase(found);
}

void BusyClock::cover(const StreamId& stream, BootTime before, BootTime end) {
  const auto found = pending_.find(stream);
  if (found == pending_.end() || found->second.since >= before) return;
  upper_.add(found->second.since, end);
  if (found->second.last < before) {
    pending_.erase(found);
    return;
  }
  // More came meanwhile: when, is not kept; not before.
  found->second.since = before;
}

void BusyClock::cover_call(const Call& call, BootTime before, BootTime end) {
  switch (call.entry->scope) {
    case Scope::kContext: {
      if (before_) upper_.add(*before_, end);
      before_.reset();
      std::vector<StreamId> streams;
      for (const auto& [stream, pending] : pending_)
        streams.push_back(stream);
      for (const StreamId& stream : streams)
        cover(stream, before, end);
      return;
    }
    case Scope::kEvent: {
      const auto record = records_.find(call.number(Key::kEvent));
      if (record != records_.end())
        cover(record->second.stream, std::min(record->second.begin, before), end);
      return;
    }
    default:
      cover(stream_of(call), before, end);
  }
}

bool BusyClock::has_pending(const Call& call, BootTime before) const {
  const auto is_pending = [&](const StreamId& stream, BootTime until) {
    const auto found = pending_.find(stream);
    return found != pending_.end() && found->second.since < until;
  };
  switch (call.entry->scope) {
    case Scope::kContext:
      return std::any_of(pending_.begin(), pending_.end(),
                         [&](const auto& one) { return one.second.since < before; });
    case Scope::kEvent: {
      const auto record = records_.find(call.number(Key::kEvent));
      return record != records_.end() &&
             is_pending(record->second.stream, std::min(record->second.begin, before));
    }
    default:
      return is_pending(stream_of(call), before);
  }
}

// A kernel may wait for work of another stream that is none.
bool BusyClock::is_all_work() const {
  return !before_ && std::all_of(pending_.begin(), pending_.end(),
                                 [](const auto& one) { return one.second.is_work; });
}

void BusyClock::add_lower(BootTime begin, BootTime end) {
  if (end - begin > wait_overhead_) lower_.add(begin, end - wait_overhead_);
}

void BusyClock::on_wait(const Call& call, BootTime end) {
  asking_.erase(call.tid);
  // A copy waits for itself, too.
  const BootTime before = call.begin + Nanos{call.entry->kind == Kind::kCopy ? 1 : 0};
  if (has_pending(call, before) && is_all_work()) add_lower(call.begin, end);
  cover_call(call, before, end);
}

void BusyClock::on_query(const Call& call, BootTime end, bool is_ready) {
  const auto found = asking_.find(call.tid);
  const bool is_same = found != asking_.end() && found->second.about == about(call) &&
                       found->second.scope == call.entry->scope;
  if (!is_ready) {
    const bool is_busy = has_pending(call, call.begin) && is_all_work();
    // From one "not ready" to the next there was work.
    if (is_same && is_busy) add_lower(found->second.since, call.begin);
    if (is_same) {
      found->second.since = call.begin;
    } else if (asking_.size() < kHandlesMax) {
      asking_[call.tid] = {call.begin, about(call), call.entry->scope};
    }
    return;
  }
  if (found != asking_.end()) asking_.erase(found);
  cover_call(call, call.begin, end);
}

BusyBounds BusyClock::bounds(BootTime end) const {
  Union upper = upper_;
  BootTime since = end;
  if (before_) since = std::min(since, *before_);
  for (const auto& [stream, pending] : pending_)
    since = std::min(since, pending.since);
  upper.add(since, end);
  return {.upper = std::min(upper.total(), Nanos{end - begin_}),
          .lower = lower_.total(),
          .observed = end - begin_,
          .is_known = is_known_};
}

}  // namespace kansoku::capture::outside
