// SPDX-License-Identifier: Apache-2.0
#include "agent/feature_row.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "common/check.h"
#include "detect/feature.h"

namespace kansoku::agent {

std::vector<FeatureRow> rows_of(const capture::WatchWindow& window) {
  std::vector<FeatureRow> out;
  for (const capture::ProcessWindow& process : window.processes) {
    // It waits for its ranks: a job of its own would learn, and judge, how it does so.
    if (process.place.role == capture::Role::kLauncher) continue;
    FeatureRow& row = out.emplace_back();
    row.process = &process;
    row.window.pid = process.process.pid;
    const bool is_rank = process.place.role == capture::Role::kRank;
    row.window.rank = is_rank ? process.place.rank : trace::kNoRank;
    row.job = is_rank ? process.place.job : capture::own_job_name(process.process);
    row.is_local_job = !is_rank || process.place.is_local_job;
    row.window.values.assign(detect::known_features().size(),
                             std::numeric_limits<double>::quiet_NaN());
  }
  return out;
}

void set_feature(detect::Window& row, std::string_view feature, std::optional<double> value) {
  const int index = detect::feature_index(feature);
  CHECK(index >= 0);
  if (value) row.values[static_cast<std::size_t>(index)] = *value;
}

double seconds_of(const capture::WatchWindow& window) {
  return std::max(1e-3, static_cast<double>((window.end - window.begin).count()) * 1e-9);
}

}  // namespace kansoku::agent
