// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/cuda_governor.h"

#include <algorithm>

namespace kansoku::capture {

void CudaGovernor::end_period(BootTime now, std::uint64_t hits) {
  const auto seconds = [](Nanos time) { return 1e-9 * static_cast<double>(time.count()); };
  const auto hits_now = static_cast<double>(hits - hits_before_);
  if (on_in_period_ > Nanos{}) rate_ = hits_now / seconds(on_in_period_);
  // By the cost of the slice, not by its length: probes come and go more slowly than decided.
  const double lasted = seconds(now - period_), cost = hits_now * hit_seconds_ / lasted;
  // If the rate is uneven, slices that follow the last one cost more than the budget on average:
  // the excess is saved later.
  debt_ = std::max(0.0, debt_ + (cost - budget_) * lasted);
  const double wanted = std::max(budget_ - debt_ / seconds(kPeriod), budget_ * kWantedMin);
  const double before = seconds(std::min(slice_, length_)) / seconds(length_);
  const double share = cost > 0 ? std::min(1.0, before * wanted / cost) : 1.0;
  slice_ = std::max(kSliceMin,
                    Nanos{static_cast<std::int64_t>(share * static_cast<double>(kPeriod.count()))});
  hits_before_ = hits;
  on_in_period_ = {};
  period_ = now;
  length_ = kPeriod;
}

bool CudaGovernor::decide(BootTime now, std::uint64_t hits) {
  if (!is_started_) {
    is_started_ = true;
    last_ = period_ = now;
    hits_before_ = hits;
  }
  const Nanos since = now - last_;
  all_ += since;
  if (is_on_) {
    on_ += since;
    on_in_period_ += since;
  }
  last_ = now;
  if (now - period_ >= length_) end_period(now, hits);
  is_on_ = now - period_ < slice_;
  next_ = period_ + (is_on_ ? std::min(slice_, length_) : length_);
  return is_on_;
}

double CudaGovernor::share_on() const {
  if (all_ == Nanos{}) return 1;
  return static_cast<double>(on_.count()) / static_cast<double>(all_.count());
}

}  // namespace kansoku::capture
