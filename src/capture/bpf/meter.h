// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "capture/bpf/engine.h"
#include "common/result.h"
#include "common/stat.h"
#include "wire/meter.h"

namespace kansoku::capture::bpf {

STAT(meter_dropped_records, kDataLoss, kCapture,
     "starts and ends of processes found the ring full; they are found by the next scan");
STAT(meter_totals_full, kDataLoss, kCapture,
     "more processes and probes than the table of totals holds, or calls nested too deeply; some "
     "calls were not counted");

/// Totals of one probe in one process.
struct ProbeTotal {
  std::uint32_t tgid{0};  // 0: the host
  std::uint32_t probe{0};
  wire_total_kind kind{WIRE_TOTAL_CALL};
  const wire_total* total{nullptr};  // borrowed for the call
};

/// The metering BPF programs: count calls and durations in the kernel, so that reading them costs
/// the same whatever the rate. Probe 0 is the block layer, probe 1 being stopped by a signal: a
/// call from SIGSTOP to SIGCONT. Destruction detaches everything. Not shared between threads.
class Meter {
 public:
  static constexpr std::uint32_t kProbesMax = 1024, kStops = 1, kFirstProbe = 2;

  /// As Engine::create.
  [[nodiscard]] static Result<std::unique_ptr<Meter>> create(
      std::optional<AttachMode> forced = std::nullopt);
  ~Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  [[nodiscard]] AttachMode mode() const;
  [[nodiscard]] const std::vector<std::string>& refusals() const;

  [[nodiscard]] Result<void> describe_probe(std::uint32_t index, const wire_meter_probe& probe);
  [[nodiscard]] Result<void> observe_process(std::int32_t pid);
  void forget_process(std::int32_t pid);

  /// Attached uprobes of one file, to be taken off one by one; 0 is none.
  using Handle = std::uint32_t;
  /// As Engine::attach_uprobes.
  [[nodiscard]] Result<Handle> attach_uprobes(const std::string& path,
                                              std::span<const UprobeSpec> specs, bool with_return);
  void detach(Handle handle);
  /// fork and exit of observed processes, exec of all.
  [[nodiscard]] Result<void> attach_lifecycle();
  [[nodiscard]] Result<void> attach_block_layer();
  [[nodiscard]] Result<void> attach_signals();
  [[nodiscard]] std::size_t link_count() const;

  /// Hands over every total there is; those for which `keep` says false are deleted. One or a few
  /// system calls. The bytes come from our own programs.
  [[nodiscard]] Result<void> read_totals(const std::function<bool(const ProbeTotal&)>& keep);
  /// Hands over every thread of the observed processes, whatever their number, by one walk of the
  /// kernel's tasks.
  [[nodiscard]] Result<void> read_threads(const std::function<void(const wire_thread&)>& on_thread);

  /// A process that appeared, changed or went.
  struct Event {
    enum class Kind : std::uint8_t { kFork, kExec, kExit };
    Kind kind{Kind::kFork};
    std::int32_t pid{0};
    std::int32_t parent_pid{0};  // kFork only
  };
  std::size_t drain(const std::function<void(const Event&)>& on_event);

  struct Counters {
    std::uint64_t ring_full{0}, process_table_full{0}, totals_full{0}, hits{0};
  };
  [[nodiscard]] Counters counters() const;

 private:
  struct Impl;
  explicit Meter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Upper edge of a bucket of wire_total, in ns; the last one's is infinite.
[[nodiscard]] double bucket_upper_ns(std::uint32_t bucket);
/// The duration below which a `share` of the calls of a histogram lies, in ns, by interpolation in
/// its bucket; 0 without calls. `buckets`: WIRE_BUCKETS counts.
[[nodiscard]] double bucket_quantile_ns(std::span<const std::uint32_t> buckets, double share);

}  // namespace kansoku::capture::bpf
