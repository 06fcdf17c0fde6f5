// SPDX-License-Identifier: Apache-2.0
#include "agent/internal/peak_growth.h"

#include <algorithm>

namespace kansoku::agent {
namespace {

constexpr Nanos kMemory = std::chrono::seconds{30};

}  // namespace

std::optional<double> PeakGrowth::add(BootTime now, double level) {
  std::optional<double> per_s;
  if (!peaks_.empty()) {
    const BootTime last = peaks_.back().at;
    if (now <= last) return std::nullopt;
    // However long ago it was, the comparison is with the last reading.
    while (peaks_.size() > 1 && now - peaks_.front().at > kMemory)
      peaks_.pop_front();
    const double since_s = static_cast<double>((now - last).count()) * 1e-9;
    per_s = std::max(0.0, level - peaks_.front().level) / since_s;
  }
  while (!peaks_.empty() && peaks_.back().level <= level)
    peaks_.pop_back();
  peaks_.push_back({now, level});
  return per_s;
}

}  // namespace kansoku::agent
