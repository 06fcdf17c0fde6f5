// SPDX-License-Identifier: Apache-2.0
#include "agent/governor.h"

#include <fmt/format.h>

#include <algorithm>

namespace kansoku::agent {
namespace {

// Weight of one window in the moving mean: an occasional write (history, a model) is no reason to
// look less often, a cost of every second is.
constexpr double kForget = 0.02;
constexpr int kFirstWindows = 10;
constexpr int kSlownessMax = 8;
constexpr int kCalmWindows = 60;  // below half of the budget, before looking more often again

}  // namespace

void Governor::judge_own(double window_s, double own_cpu_s) {
  // The first looks read every library; that is paid once.
  if (++windows_ <= kFirstWindows) return;
  const double share = window_s > 0 ? own_cpu_s / window_s : 0;
  own_share_ += std::max(kForget, 1.0 / (windows_ - kFirstWindows)) * (share - own_share_);
  if (windows_ <= 2 * kFirstWindows) return;
  if (own_share_ > options_.budget) {
    calm_windows_ = 0;
    if (share > options_.budget && slowness_ < kSlownessMax) slowness_ *= 2;
  } else if (own_share_ < options_.budget / 2 && slowness_ > 1 && ++calm_windows_ >= kCalmWindows) {
    calm_windows_ = 0;
    slowness_ /= 2;
  }
}

std::vector<Governor::Change> Governor::on_window(BootTime now, double window_s,
                                                  std::span<const Entry> entries,
                                                  double own_cpu_s) {
  judge_own(window_s, own_cpu_s);
  states_.resize(entries.size());
  std::vector<Change> changes;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    State& state = states_[i];
    if (state.is_off) {
      if (now < state.retry_at) continue;
      state.is_off = false;
      changes.push_back({i, true, fmt::format("{}: tried again", entries[i].name)});
      continue;
    }
    const double cost = static_cast<double>(entries[i].hits) * entries[i].call_s / window_s;
    if (cost <= options_.budget) continue;
    state.retry_after = std::clamp(state.retry_after * 2, options_.retry_first, options_.retry_max);
    state.retry_at = now + state.retry_after;
    state.is_off = true;
    changes.push_back(
        {i, false,
         fmt::format("{}: {:.0f} hits/s cost {:.1f} % of a core in one process, budget {:.1f} %; "
                     "off for {} s",
                     entries[i].name, static_cast<double>(entries[i].hits) / window_s, cost * 100,
                     options_.budget * 100,
                     std::chrono::duration_cast<std::chrono::seconds>(state.retry_after).count())});
  }
  return changes;
}

std::size_t Governor::lowered_count() const {
  return static_cast<std::size_t>(
      std::count_if(states_.begin(), states_.end(), [](const State& s) { return s.is_off; }));
}

}  // namespace kansoku::agent
