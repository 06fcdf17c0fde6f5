// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "capture/bpf/engine.h"
#include "capture/job.h"
#include "capture/metric.h"
#include "capture/observed.h"
#include "capture/pack.h"
#include "common/result.h"
#include "common/time.h"
#include "sys/procfs.h"

namespace kansoku::capture {

STAT(watch_targets_over_limit, kDataLoss, kCapture,
     "more AI processes than the limit of 1,024; the rest is not watched");
STAT(watch_candidates_over_limit, kNotice, kCapture,
     "more new processes than the fast scan can read; the slow scan finds them");
STAT(watch_failed_attachments, kDataLoss, kCapture,
     "files whose probes could not be attached; the log names them");

/// The calls of one metric in one window.
struct MetricWindow {
  bool is_known{false};  // the process has made such calls at some time
  std::uint64_t count{0};
  std::uint64_t bytes{0};
  double sum_s{0};            // of calls that ended in the window, from their begin
  double busy_s{0};           // of the window itself: also of calls that have not ended
  double p99_s{0}, max_s{0};  // within the width of a bucket, a fifth; 0 without calls
  double open_s{0};           // how long a call has not ended; 0 = none is open
};

/// One watched process in one window: it and the workers that it started (data loaders), whose
/// use of the machine is added to its own.
struct ProcessWindow {
  JobProcess process;
  Place place;
  std::uint32_t worker_count{0};
  std::vector<MetricWindow> metrics{};  // by number of Watcher::metrics()
  std::uint32_t thread_count{0}, blocked_threads{0};
  bool is_stopped{false};
  double runtime_s{0}, run_delay_s{0};
  double system_s{0};  // in the kernel, by its own account, in ticks or finer
  std::uint64_t voluntary{0}, involuntary{0}, minor_faults{0}, major_faults{0};
  std::uint64_t read_bytes{0}, written_bytes{0};
  bool has_threads{false};  // false: the process is too young, or there is no eBPF
};

struct WatchWindow {
  BootTime begin{}, end{};
  std::vector<ProcessWindow> processes;  // by pid
};

struct WatcherOptions {
  std::vector<Pack> packs;
  std::optional<bpf::AttachMode> attach_mode;
  /// False for a process that is not to be watched; empty: all are.
  std::function<bool(const JobProcess&)> wants;
  std::function<void(const std::string&)> log;
};

/// Finds the AI processes of this host by the libraries that they map, as they come and go, in
/// containers too, and meters them. The observed processes are never stopped or written to. One
/// thread does it all.
class Watcher {
 public:
  static constexpr std::size_t kTargetsMax = 1024, kCandidatesMax = 16384;

  /// Without eBPF the watcher works from /proc alone and says so. Clock and procfs are borrowed.
  [[nodiscard]] static Result<std::unique_ptr<Watcher>> create(const Clock& clock,
                                                               const sys::Procfs& procfs,
                                                               WatcherOptions options);
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// Looks for processes that came or went and for libraries they loaded. Some times a second.
  void poll();
  /// Totals since the last call.
  [[nodiscard]] WatchWindow take_window();

  /// Takes all probes off or puts them back: to measure their cost.
  void set_enabled(bool enabled);

  /// Table of the counted metrics: fixed from the start.
  [[nodiscard]] const MetricTable& metrics() const;

  /// Groups of probes, to be lowered by a governor: the entries of the packs.
  struct Entry {
    std::string name;
    std::uint64_t hits{0};         // since the last window
    std::uint64_t hits_of_one{0};  // of the process that hit it most
    bool enabled{true};
    double call_s{0};  // approximate cost of a call to that process
  };
  [[nodiscard]] std::vector<Entry> entries() const;
  void set_entry_enabled(std::size_t entry, bool enabled);

  struct Status {
    std::string bpf;  // attach mode, or why there is none
    std::size_t target_count{0}, candidate_count{0}, probe_count{0}, file_count{0}, link_count{0};
    std::uint64_t hits{0}, ring_full{0}, totals_full{0}, over_limit{0}, failed{0};
  };
  [[nodiscard]] Status status() const;
  [[nodiscard]] std::vector<std::string> problems() const;

 private:
  struct Impl;
  explicit Watcher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// True if a file of that name makes a process an AI process: libcuda, libcudart, libnccl,
/// libtorch*, libgloo, libpython, libggml, libllama, libOpenCL, libjax*, libtensorflow*, librccl,
/// libamdhip64.
[[nodiscard]] bool is_ai_library(std::string_view file_name);

}  // namespace kansoku::capture
