// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/bpf/thread_sampler.h"
#include "capture/internal/kernel/fault_places.h"
#include "capture/internal/kernel/kernel_code.h"
#include "capture/source.h"
#include "common/result.h"
#include "common/stat.h"
#include "sys/procfs.h"
#include "trace/writer.h"

namespace kansoku::capture {

STAT(capture_without_kernel_times, kNotice, kCapture,
     "times in the kernel could not be sampled: which of its work a rank's system time is, is not "
     "known");
STAT(capture_fault_samples_lost, kNotice, kCapture,
     "sampled page faults for which there was no room: their places are those of the others");
STAT(capture_kernel_samples_lost, kNotice, kCapture,
     "samples of threads in the kernel that found no place to be counted at");

/// Source of the processor time of each rank, and of each Python program without one, by the
/// kernel's work, of its main thread, a sample each bpf::ThreadSampler::kPeriod while a trace is
/// open. Counters, ns, once a second: "time in user code", "time in page faults", "time in
/// reclaim", "time in interrupts", "time in probes", "time in call mmap" (a call each, of
/// kCallsMax; then "time in call (others)"), "time in other kernel code", "time unknown"; and page
/// faults by their place (fault_places.h), "page faults in the heap" and others, as the sampled
/// ones stand for them. Single-threaded.
class KernelTimes final : public Source {
 public:
  static constexpr std::size_t kCallsMax = 16;  // of a thread
  // The mappings of a process that faults less are not looked at.
  static constexpr std::size_t kFaultsMin = 16;  // sampled ones, since the last look

  /// Borrows the writer. `log`: told once why nothing is sampled; may be empty.
  KernelTimes(trace::Writer& writer, std::function<void(const std::string&)> log)
      : writer_(writer), log_(std::move(log)) {}

  [[nodiscard]] std::string_view name() const override { return "kernel_times"; }
  void forget(std::int32_t pid) override;
  [[nodiscard]] BootTime due() const override {
    return is_enabled_ && is_open_ && !has_failed_ ? next_ : BootTime::max();
  }
  void poll(const Processes& processes, BootTime now) override;
  void begin_trace(BootTime now) override;
  void end_trace(BootTime now) override;
  void set_enabled(bool enabled) override;
  void add_losses(Losses& out) const override;

 private:
  // By name; nothing: not declared yet.
  using Tracks = std::map<std::string, std::optional<trace::TrackHandle>>;
  struct Thread {
    Tracks tracks;
    std::array<std::uint64_t, kFaultPlaceCount> faults{};
    std::vector<std::uint64_t> addresses;  // of sampled faults that have no place yet
  };
  [[nodiscard]] Result<void> prepare();
  [[nodiscard]] bool is_ready();
  void fail(const std::string& problem);
  void stop();
  [[nodiscard]] std::string name_of(const bpf::ThreadSampler::Count& count, Tracks& tracks);
  void put(std::int32_t pid, const std::string& name, std::string_view unit, double value,
           BootTime now);
  [[nodiscard]] Result<void> read_faults();
  void place_faults(std::int32_t pid, Thread& thread, BootTime now);

  trace::Writer& writer_;
  std::function<void(const std::string&)> log_;
  std::unique_ptr<bpf::ThreadSampler> sampler_;
  KernelCode code_;
  std::map<std::int32_t, KernelUse> uses_;  // by stack
  std::map<std::int32_t, Thread> threads_;  // by pid
  sys::Procfs procfs_;
  std::uint32_t polls_{0};
  std::uint64_t lost_{0};         // samples, of the samplers so far
  std::uint64_t unplaced_{0};     // likewise, of this one's that have no stack
  std::uint64_t faults_lost_{0};  // of the samplers so far
  std::uint64_t failures_{0};
  bool has_failed_{false};  // in this trace
  bool is_enabled_{true}, is_open_{false};
  BootTime next_{};
};

}  // namespace kansoku::capture
