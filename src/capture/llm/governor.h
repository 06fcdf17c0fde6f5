// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include "common/time.h"
#include "trace/inference.h"

namespace kansoku::capture::llm {

inline constexpr std::size_t kLevels = 5;  // of trace::ModelLevel

/// Keeps the cost of looking at a model below a share of the time. The level that is wanted is on
/// in windows of at least a second; between them stays the highest level that leaves most of the
/// budget, which may be none. It keeps an account: each moment pays the budget in, each hit takes
/// its price out. The first window comes at once; each further one when it is paid for, by the cost
/// of the last one. So once the first is paid the cost is at most the budget, however high the rate
/// is, as long as it does not grow from window to window. Pure.
class Governor {
 public:
  struct Options {
    trace::ModelLevel wanted{trace::ModelLevel::kOperator};
    double budget{0.01};  // of the time; 1 and above: no limit
    Nanos window{std::chrono::seconds{1}};
  };
  Governor(const Options& options, BootTime now);

  /// Since the last call: seconds that the hits of each level's own places cost the process, by
  /// level, and of attaching and taking off.
  struct Cost {
    std::array<double, kLevels> seconds{};
    double switching{0};
  };
  /// Takes the cost until now; returns the level from now on.
  trace::ModelLevel update(BootTime now, const Cost& cost);
  [[nodiscard]] trace::ModelLevel level() const { return level_; }
  /// Seconds that may be spent now; below 0: so much is owed.
  [[nodiscard]] double balance() const { return balance_; }

 private:
  [[nodiscard]] trace::ModelLevel base() const;
  void enter(trace::ModelLevel level, BootTime now);

  Options options_;
  trace::ModelLevel level_;
  double balance_{0};
  double window_cost_{0};  // of the last one
  BootTime last_, since_;
  std::array<double, kLevels> spent_{}, rates_{};  // in this window; of the last one it was on in
};

}  // namespace kansoku::capture::llm
