// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "agent/window_source.h"

namespace kansoku::agent {

/// Readings of processes from /proc, control groups and sockets, and pressure of the host. Keeps
/// the last readings.
class HostSource final : public WindowSource {
 public:
  HostSource();
  ~HostSource() override;

  [[nodiscard]] std::string_view name() const override { return "host"; }
  /// Looks at TCP connections, which costs most, in full windows only.
  void fill(const capture::WatchWindow& window, bool is_full,
            std::vector<FeatureRow>& rows) override;
  void add_losses(Losses& out) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kansoku::agent
