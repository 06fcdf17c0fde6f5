// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "capture/watcher.h"
#include "detect/detector.h"

namespace kansoku::agent {

/// The device time of one kernel over time; "other": of all that are not named.
struct KernelShare {
  std::string name;
  double share{0};
};

/// One watched process in one window, as numbers: detect::known_features() in their order.
struct FeatureRow {
  std::string job;           // equal on all ranks of one job
  bool is_local_job{false};  // the name means nothing on other hosts
  detect::Window window;
  std::vector<KernelShare> kernels;                // bounded; empty without the CUDA library
  const capture::ProcessWindow* process{nullptr};  // borrowed from the window it was made of
};

/// A row without values for each process, in the order of `window.processes`. A process without a
/// rank is a job of its own.
[[nodiscard]] std::vector<FeatureRow> rows_of(const capture::WatchWindow& window);

/// Gives a feature its value, if there is one. `feature` is known.
void set_feature(detect::Window& row, std::string_view feature, std::optional<double> value);

/// At least a millisecond.
[[nodiscard]] double seconds_of(const capture::WatchWindow& window);

}  // namespace kansoku::agent
