// SPDX-License-Identifier: Apache-2.0
#include "softcuda/internal/timeline.h"

#include <algorithm>
#include <utility>

namespace kansoku::softcuda {

struct Moment {
  std::size_t device{0};
  std::uint64_t number{0};                     // in the order of submission
  std::uint64_t host_ns{0};                    // when it was submitted
  std::vector<std::shared_ptr<Moment>> after;  // until it is settled
  std::vector<Part> parts;                     // from when it has run until it is settled
  bool has_run{false}, is_settled{false};
  bool waits{false}, is_left_out{false};
  std::uint64_t end_ns{0};
};

Timeline::Timeline(Options options)
    : options_(std::move(options)), devices_(options_.device_count) {
  for (OfDevice& device : devices_)
    device.engines.sms.resize(std::max(options_.sm_count, 1U));
}

std::shared_ptr<Moment> Timeline::submit(std::size_t device,
                                         std::vector<std::shared_ptr<Moment>> after) {
  auto moment = std::make_shared<Moment>();
  std::erase(after, nullptr);
  moment->device = device;
  moment->after = std::move(after);
  const std::scoped_lock lock(mutex_);
  moment->number = ++submitted_;
  moment->host_ns = host_ns_;
  devices_[device].pending.push_back(moment);
  return moment;
}

void Timeline::note_wait(Moment& moment) {
  const std::scoped_lock lock(mutex_);
  moment.waits = true;
}

void Timeline::finish(const std::shared_ptr<Moment>& moment, std::vector<Part> parts) {
  const std::scoped_lock lock(mutex_);
  moment->parts = std::move(parts);
  moment->has_run = true;
  if (moment->is_left_out) devices_[moment->device].late.push_back(moment);
  settle_in_order();
}

std::uint64_t Timeline::end_of(const std::shared_ptr<Moment>& moment) {
  std::unique_lock lock(mutex_);
  wait(lock, *moment, [&] { return moment->is_settled; });
  return moment->end_ns;
}

void Timeline::reach(const std::shared_ptr<Moment>& moment) {
  const std::uint64_t end = end_of(moment);
  const std::scoped_lock lock(mutex_);
  host_ns_ = std::max(host_ns_, end);
}

std::uint64_t Timeline::begin_of(const std::shared_ptr<Moment>& moment,
                                 const std::vector<Part>& so_far, const Part& next) {
  std::unique_lock lock(mutex_);
  OfDevice& device = devices_[moment->device];
  const auto is_outside_known = [](const Part& part) {
    return part.outside == nullptr || part.outside->is_settled;
  };
  wait(lock, *moment, [&] {
    const bool is_its_turn = moment->is_left_out || device.pending.front() == moment;
    return is_its_turn && is_known(*moment) &&
           std::all_of(so_far.begin(), so_far.end(), is_outside_known) && is_outside_known(next);
  });
  Engines engines = device.engines;
  std::vector<Part> parts = so_far;
  parts.push_back(next);
  return place_all(engines, parts, begin_of(*moment)).back().begin;
}

std::uint64_t Timeline::host_ns() const {
  const std::scoped_lock lock(mutex_);
  return host_ns_;
}

Span Timeline::place(Engines& engines, const Part& part, std::uint64_t ready) {
  const std::uint64_t asked = ready + part.lead_ns;
  if (part.engine == Engine::kNone) return {ready, asked, asked + part.ns};
  if (part.engine != Engine::kCompute) {
    std::uint64_t& free = engines.free[static_cast<std::size_t>(part.engine)];
    const std::uint64_t begin = std::max(asked, free);
    free = begin + part.ns;
    return {ready, begin, free};
  }
  // The multiprocessors that are free first.
  auto& sms = engines.sms;
  const std::size_t count = std::clamp<std::size_t>(part.sm_count, 1, sms.size());
  const std::uint64_t begin = std::max(asked, sms[count - 1]);
  std::fill_n(sms.begin(), count, begin + part.ns);
  std::sort(sms.begin(), sms.end());
  return {ready, begin, begin + part.ns};
}

std::vector<Span> Timeline::place_all(Engines& engines, const std::vector<Part>& parts,
                                      std::uint64_t begin) {
  std::vector<Span> spans;
  for (const Part& part : parts) {
    std::uint64_t ready = begin;
    for (const std::uint32_t before : part.after)
      ready = std::max(ready, spans[before].end);
    if (part.outside != nullptr) ready = std::max(ready, part.outside->end_ns);
    spans.push_back(place(engines, part, ready));
  }
  return spans;
}

bool Timeline::is_known(const Moment& moment) {
  const auto is_settled = [](const std::shared_ptr<Moment>& other) { return other->is_settled; };
  return std::all_of(moment.after.begin(), moment.after.end(), is_settled) &&
         std::all_of(moment.parts.begin(), moment.parts.end(), [&](const Part& part) {
           return part.outside == nullptr || part.outside->is_settled;
         });
}

std::uint64_t Timeline::begin_of(const Moment& moment) {
  std::uint64_t begin = moment.host_ns;
  for (const std::shared_ptr<Moment>& other : moment.after)
    begin = std::max(begin, other->end_ns);
  return begin;
}

void Timeline::settle(Moment& moment) {
  const std::uint64_t begin = begin_of(moment);
  const auto spans = place_all(devices_[moment.device].engines, moment.parts, begin);
  moment.end_ns = begin;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    moment.end_ns = std::max(moment.end_ns, spans[i].end);
    if (moment.parts[i].stamp != nullptr) *moment.parts[i].stamp = spans[i].end;
    if (moment.parts[i].placed) moment.parts[i].placed(spans[i]);
  }
  moment.is_settled = true;
  // A chain of them would never end.
  moment.after.clear();
  moment.parts.clear();
}

void Timeline::settle_in_order() {
  bool has_changed = true;
  while (has_changed) {
    has_changed = false;
    for (OfDevice& device : devices_) {
      auto& pending = device.pending;
      while (!pending.empty() && pending.front()->has_run && is_known(*pending.front())) {
        settle(*pending.front());
        pending.pop_front();
        has_changed = true;
      }
      // Others in front of them may wait for these, so there is no order among them.
      for (const auto& moment : device.late) {
        if (!is_known(*moment)) continue;
        settle(*moment);
        has_changed = true;
      }
      std::erase_if(device.late, [](const auto& moment) { return moment->is_settled; });
    }
  }
  settled_.notify_all();
}

void Timeline::wait(std::unique_lock<std::mutex>& lock, const Moment& moment,
                    const std::function<bool()>& is_done) {
  constexpr int kSlices = 10;
  const auto any_before = [&](const auto& predicate) {
    return std::any_of(devices_.begin(), devices_.end(), [&](const OfDevice& device) {
      return std::any_of(device.pending.begin(), device.pending.end(), [&](const auto& other) {
        return other->number < moment.number && !other->has_run && predicate(*other);
      });
    });
  };
  for (int i = 0; i < kSlices; ++i) {
    if (settled_.wait_for(lock, options_.patience / kSlices, is_done)) return;
    if (any_before([](const Moment& other) { return other.waits; })) break;
  }
  if (options_.on_guess) options_.on_guess();
  for (OfDevice& device : devices_) {
    std::erase_if(device.pending, [&](const std::shared_ptr<Moment>& other) {
      if (other->number >= moment.number || other->has_run) return false;
      other->is_left_out = true;
      return true;
    });
  }
  settle_in_order();
}

}  // namespace kansoku::softcuda
