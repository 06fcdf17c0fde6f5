// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/cuda_governor.h"

#include <algorithm>

namespace kansoku::capture {

void CudaGovernor::end_period(BootTime now, std::uint64_t hits) {
  const double on_s = 1e-9 * static_cast<double>(on_in_period_.count());
  if (on_s > 0) rate_ = static_cast<double>(hits - hits_before_) / on_s;
  const double cost = rate_ * hit_seconds_;
  const double share = cost > budget_ ? budget_ / cost : 1.0;
  slice_ = std::max(kSliceMin,
                    Nanos{static_cast<std::int64_t>(share * static_cast<double>(kPeriod.count()))});
  hits_before_ = hits;
  on_in_period_ = {};
  period_ = now;
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
  if (now - period_ >= kPeriod) end_period(now, hits);
  is_on_ = now - period_ < slice_;
  next_ = is_on_ && slice_ < kPeriod ? period_ + slice_ : period_ + kPeriod;
  return is_on_;
}

double CudaGovernor::share_on() const {
  if (all_ == Nanos{}) return 1;
  return static_cast<double>(on_.count()) / static_cast<double>(all_.count());
}

}  // namespace kansoku::capture
