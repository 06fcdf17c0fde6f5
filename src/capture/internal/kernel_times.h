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

#include "capture/bpf/thread_sampler.h"
#include "capture/internal/kernel_code.h"
#include "capture/source.h"
#include "common/stat.h"
#include "trace/writer.h"

namespace kansoku::capture {

STAT(capture_without_kernel_times, kNotice, kCapture,
     "times in the kernel could not be sampled: which of its work a rank's system time is, is not "
     "known");
STAT(capture_kernel_samples_lost, kNotice, kCapture,
     "samples of threads in the kernel that found no place to be counted at");

/// Source of each rank's processor time by the kernel's work, of its main thread, a sample each
/// bpf::ThreadSampler::kPeriod while a trace is open. Counters, ns, once a second: "time in user
/// code", "time in page faults", "time in reclaim", "time in interrupts", "time in probes", "time
/// in call mmap" (a call each, of kCallsMax; then "time in call (others)"), "time in other kernel
/// code", "time unknown". Ranks only; single-threaded.
class KernelTimes final : public Source {
 public:
  static constexpr std::size_t kCallsMax = 16;  // of a thread

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
  [[nodiscard]] bool is_ready();
  void fail(const std::string& problem);
  void stop();
  [[nodiscard]] std::string name_of(const bpf::ThreadSampler::Count& count, Tracks& tracks);
  void write(std::int32_t pid, const std::map<std::string, std::uint64_t>& samples, BootTime now);

  trace::Writer& writer_;
  std::function<void(const std::string&)> log_;
  std::unique_ptr<bpf::ThreadSampler> sampler_;
  KernelCode code_;
  std::map<std::int32_t, KernelUse> uses_;  // by stack
  std::map<std::int32_t, Tracks> threads_;  // by pid
  std::uint64_t lost_{0};                   // samples, of the samplers so far
  std::uint64_t unplaced_{0};               // likewise, of this one's that have no stack
  std::uint64_t failures_{0};
  bool has_failed_{false};  // in this trace
  bool is_enabled_{true}, is_open_{false};
  BootTime next_{};
};

}  // namespace kansoku::capture
