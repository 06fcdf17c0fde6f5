// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "capture/cuda_source.h"
#include "cli/diagnose/profile_steps.h"
#include "common/result.h"
#include "common/time.h"
#include "detect/incident.h"

namespace kansoku::cli {

struct WatchOptions {
  std::vector<std::int32_t> pids;
  std::string job;
  std::vector<std::string> command;
  std::string probes{"default,torch-ops"};      // in a window
  std::string watch_probes{"torch,gloo,nccl"};  // all the time: a few calls an iteration
  std::string folder{"kansoku-profile"};
  Nanos window{std::chrono::seconds{20}};
  Nanos hang_window{std::chrono::seconds{3}};        // of a standstill: a few looks at every stack
  Nanos every{};                                     // 0: no schedule
  Nanos duration{};                                  // 0: until the end
  bool watches{false};                               // false: one window now, or of steps
  std::optional<StepOptions> steps{};                // one window, of these steps of all ranks
  std::optional<capture::CudaSourceOptions> cuda{};  // windows have GPU work, too
  bool once{false};
  bool serves_kineto{false};  // the framework's own profilers join the windows
  bool json{false}, quiet{false};
  detect::IncidentOptions incidents{};
};

struct WatchResult {
  std::optional<int> command_status;
  std::size_t window_count{0}, finding_count{0};
};

/// Longest window of steps: of a job that stands still meanwhile.
inline constexpr Nanos kStepWindowMax = std::chrono::minutes{10};

/// Watches a job with the light probes and profiles all its ranks at once when its detector, the
/// schedule or the user asks for it; each window is a trace of its own, diagnosed and reported as
/// it closes. Blocks until the end.
[[nodiscard]] Result<WatchResult> run_watch(const WatchOptions& options);

}  // namespace kansoku::cli
