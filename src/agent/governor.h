// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/time.h"

namespace kansoku::agent {

/// Keeps watching cheap: takes off the probes that are hit too often, and slows the agent's own
/// looks, when either costs more than the budget; puts them back after a while, later each time.
/// Pure: it takes the costs, and returns the changes to make. Single-threaded, deterministic.
class Governor {
 public:
  struct Options {
    double budget{0.01};  // share of one core, of the agent and of the probes in each job
    Nanos retry_first{std::chrono::minutes{1}}, retry_max{std::chrono::hours{1}};
  };
  struct Entry {
    std::string_view name;
    std::uint64_t hits{0};  // in the window, of the process that hit it most
    bool enabled{true};
    double call_s{0};  // cost of a call to the process, begin and end
  };
  struct Change {
    std::size_t entry{0};
    bool enabled{false};
    std::string
        reason;  // "watch: cuLaunchKernel: 210,000 hits/s cost 25 % of a core in one process"
  };

  explicit Governor(const Options& options) : options_(options) {}

  /// One window; `own_cpu_s` is the agent's own time.
  [[nodiscard]] std::vector<Change> on_window(BootTime now, double window_s,
                                              std::span<const Entry> entries, double own_cpu_s);

  /// How much rarer the agent should look than it would: 1, 2, 4, 8.
  [[nodiscard]] int slowness() const { return slowness_; }
  /// The agent's own share of a core, mean of the last windows (about ten).
  [[nodiscard]] double own_share() const { return own_share_; }
  [[nodiscard]] std::size_t lowered_count() const;

 private:
  struct State {
    BootTime retry_at{};
    Nanos retry_after{};
    bool is_off{false};
  };
  void judge_own(double window_s, double own_cpu_s);

  Options options_;
  std::vector<State> states_;
  double own_share_{0};
  int slowness_{1};
  int calm_windows_{0}, windows_{0};
};

}  // namespace kansoku::agent
