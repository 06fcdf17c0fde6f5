// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/window_source.h"
#include "capture/cuda/channel.h"
#include "capture/cuda/snapshot.h"
#include "capture/hang/hang_look.h"
#include "common/time.h"
#include "sys/native_stack.h"
#include "sys/procfs.h"

namespace kansoku::agent {

/// Which kernels of a process are shown by name: those that took most of the device's time so far,
/// so that the names seldom change. Single-threaded.
class TopKernels {
 public:
  static constexpr std::size_t kShown = 8;
  /// Their shares in this window, and that of all others.
  [[nodiscard]] std::vector<KernelShare> on_window(const capture::cuda::Frame& frame);

 private:
  std::map<std::string, double> seconds_;  // by name, so far; bounded by the library's names
};

/// One process of a job in which something may be stuck, as `kansoku hang` sees it.
struct StuckLook {
  std::string job;
  std::int32_t rank{-1};  // as the agent numbers it; -1: it has none
  capture::hang::HangLook hang;
};

/// Makes incidents of operations that do not end: one a job at a time. Pure but for its memory of
/// earlier windows. Single-threaded.
class StuckJobs {
 public:
  /// Judges all processes of jobs with a process that may be stuck, together, in the window that
  /// ends at `end_ns` (wall clock). Gives the incidents that begin, go on, or are over.
  [[nodiscard]] std::vector<incident::Observation> on_window(const std::vector<StuckLook>& looks,
                                                             std::int64_t end_ns);

 private:
  struct Episode {
    std::uint64_t number{0};
    trace::IncidentFacts facts;
  };
  std::map<std::string, Episode> open_;  // by job
  std::uint64_t episodes_{0};
};

/// The CUDA library inside of the watched processes (docs/cuda.md): keeps it awake, one operation
/// in N timed, and makes features and incidents of its data. Yields to a recording, and holds it
/// again afterwards. Processes without the library have no such features.
class CudaSource final : public WindowSource {
 public:
  /// Clock and procfs are borrowed.
  CudaSource(const Clock& clock, const sys::Procfs& procfs,
             std::function<void(const std::string&)> log);

  [[nodiscard]] std::string_view name() const override { return "cuda"; }
  /// Renews the lease in every window, reads in full ones.
  void fill(const capture::WatchWindow& window, bool is_full,
            std::vector<FeatureRow>& rows) override;
  [[nodiscard]] std::vector<incident::Observation> observations(std::int64_t begin_ns,
                                                                std::int64_t end_ns) override;
  void set_enabled(bool is_enabled) override;
  [[nodiscard]] std::string state() const override;
  void add_losses(Losses& out) const override;

 private:
  struct Watched {
    std::unique_ptr<capture::cuda::Channel> channel;  // null: it has no such library so far
    BootTime retry_at{};
    Nanos pause{};  // until then
    std::optional<capture::hang::FirstLook> before,
        now;  // of the last full window, and of this one
    std::string job;
    std::int32_t rank{-1};
    TopKernels kernels;
    bool is_in_window{false};
  };
  void open(std::int32_t pid, Watched& watched, BootTime now);
  void hold(Watched& watched, Nanos window, BootTime now) const;
  void look(FeatureRow& row, Watched& watched);
  void look_again(const std::set<std::string>& jobs);
  void forget(std::map<std::int32_t, Watched>::iterator one);

  const Clock& clock_;
  const sys::Procfs& procfs_;
  std::function<void(const std::string&)> log_;
  bool is_enabled_{true}, is_refused_{false};
  std::map<std::int32_t, Watched> processes_;  // by pid
  std::set<std::string> suspected_;            // jobs, in this window
  std::vector<StuckLook> looks_;               // of the last full window
  sys::NativeStacks stacks_;
  StuckJobs stuck_;
  Losses gone_;  // of processes that ended
};

}  // namespace kansoku::agent
