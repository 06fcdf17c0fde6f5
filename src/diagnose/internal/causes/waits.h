// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/diagnose.h"
#include "diagnose/internal/causes/context.h"

namespace kansoku::diagnose {

/// Wait of a rank's main thread while it should work.
struct MainWait {
  bool is_interpreter_lock{false};
  double ms_per_step{0};              // in that wait
  double ms_per_step_low{0};          // 2.5 % quantile of it, by the number of samples
  bool is_for_others{false};          // a lock, a pipe, a socket, ...: not its own pause, no disk
  std::vector<std::string> evidence;  // sentences
  // Stack of the thread that keeps it waiting, if that is a Python thread of the process; outermost
  // first. Empty: not known.
  std::vector<trace::Frame> blamed;
};

/// Looks at the working time of `rank` (an index) in `phase` (nothing: in any). Nothing if the
/// recording tells of too few waits, or of stops by a signal alone.
[[nodiscard]] std::optional<MainWait> explain_wait(const Context& context, std::size_t rank,
                                                   std::optional<Phase> phase);

/// Mean milliseconds a step in which the main thread of `rank` was stopped by a signal or a
/// debugger.
[[nodiscard]] double stopped_ms(const Context& context, std::size_t rank);

}  // namespace kansoku::diagnose
