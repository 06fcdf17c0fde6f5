// SPDX-License-Identifier: Apache-2.0
#include "capture/llm/governor.h"

#include <algorithm>
#include <numeric>

namespace kansoku::capture::llm {
namespace {

// Share of the budget for levels that stay on between windows. The rest pays for these.
constexpr double kBaseShare = 0.6;
// Beyond it a quiet process would save for a window without an end.
constexpr double kSavedSecondsMax = 0.1;

double seconds_of(Nanos time) {
  return static_cast<double>(time.count()) / 1e9;
}

}  // namespace

Governor::Governor(const Options& options, BootTime now)
    : options_(options), level_(options.wanted), last_(now), since_(now) {}

trace::ModelLevel Governor::base() const {
  double sum = 0;
  auto out = trace::ModelLevel::kNone;
  for (std::size_t i = 1; i < static_cast<std::size_t>(options_.wanted); ++i) {
    sum += rates_.at(i);
    if (sum > kBaseShare * options_.budget) break;
    out = static_cast<trace::ModelLevel>(i);
  }
  return out;
}

void Governor::enter(trace::ModelLevel level, BootTime now) {
  level_ = level;
  since_ = now;
  spent_ = {};
}

trace::ModelLevel Governor::update(BootTime now, const Cost& cost) {
  const double elapsed = seconds_of(now - last_);
  last_ = now;
  for (std::size_t i = 0; i < kLevels; ++i)
    spent_.at(i) += cost.seconds.at(i);
  const double total =
      std::accumulate(cost.seconds.begin(), cost.seconds.end(), 0.0) + cost.switching;
  balance_ = std::min(balance_ + options_.budget * elapsed - total,
                      std::max(kSavedSecondsMax, window_cost_));
  const double in_window = seconds_of(now - since_);
  if (options_.budget >= 1 || in_window <= 0) return level_;
  const bool is_over = now - since_ >= options_.window;
  if (is_over || level_ != options_.wanted) {
    for (std::size_t i = 0; i <= static_cast<std::size_t>(level_); ++i)
      rates_.at(i) = spent_.at(i) / in_window;
  }
  if (level_ == options_.wanted) {
    if (is_over) {
      window_cost_ =
          std::accumulate(rates_.begin(), rates_.end(), 0.0) * seconds_of(options_.window);
      // A level that the budget covers stays on; else it ends before it owes another window.
      const bool is_covered =
          window_cost_ <= options_.budget * seconds_of(options_.window) && balance_ >= 0;
      if (!is_covered && balance_ < std::min(window_cost_, kSavedSecondsMax)) enter(base(), now);
    }
    return level_;
  }
  if (balance_ >= window_cost_) {
    enter(options_.wanted, now);
  } else if (is_over && base() < level_) {
    enter(base(), now);  // it runs faster than in the window
  }
  return level_;
}

}  // namespace kansoku::capture::llm
