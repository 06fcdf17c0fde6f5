// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/feature_row.h"
#include "capture/watcher.h"
#include "common/stat.h"
#include "incident/book.h"

namespace kansoku::agent {

/// Source of the features of watched processes: the rows of a window are made of these. It owns its
/// state from window to window, and its counters. All calls come from one thread.
class WindowSource {
 public:
  WindowSource() = default;
  virtual ~WindowSource() = default;
  WindowSource(const WindowSource&) = delete;
  WindowSource& operator=(const WindowSource&) = delete;

  /// "devices": for people and the status.
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Gives the features that it knows of to `rows`, which are those of the window. Without
  /// `is_full` watching costs too much: costly data are not read this time.
  virtual void fill(const capture::WatchWindow& window, bool is_full,
                    std::vector<FeatureRow>& rows) = 0;
  /// Observations of the last window that are in no row of it.
  [[nodiscard]] virtual std::vector<incident::Observation> observations(std::int64_t /*begin_ns*/,
                                                                        std::int64_t /*end_ns*/) {
    return {};
  }
  /// Off while watching is paused: then nothing is asked of the watched processes.
  virtual void set_enabled(bool /*is_enabled*/) {}
  /// Parts of this host that a model of a job is bound to: names of devices.
  [[nodiscard]] virtual std::vector<std::string> hardware() const { return {}; }

  /// State of the source, with the reason if it does not work: "2 by libnvidia-ml.so.1", "none:
  /// ...".
  [[nodiscard]] virtual std::string state() const { return "on"; }
  /// Losses and failures since the beginning.
  virtual void add_losses(Losses& /*out*/) const {}
};

/// A source as the status tells of it.
struct SourceStatus {
  std::string_view name;
  std::string state;
  double cpu_s{0};  // that it cost so far
  Losses losses;
};

}  // namespace kansoku::agent
