// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "capture/host_reader.h"
#include "capture/source.h"
#include "common/time.h"
#include "sys/cgroup.h"
#include "sys/fault_price.h"
#include "trace/writer.h"

namespace kansoku::capture {

/// Source of the kernel's own counters of each rank, and of each Python program without one, now
/// and then: processor time of all its threads (counter "processor time", ns), time held back by a
/// processor quota (counter "cpu throttled", ns) or by the hypervisor
/// (counter "stolen time", ns, of all processors of its host; none where the kernel has never
/// counted any), page faults and processor time of its main thread (counters "minor faults", "major
/// faults", "user time" and "system time", ns), the processors it may use (instants "limits" of
/// category "host": cpus, cpu_count, host_count, quota_group, quota_milli, memory_group,
/// memory_limit), and the state of its TCP connections (instants "tcp" of category "net": local,
/// peer, rtt_us, min_rtt_us, retransmits, bytes, rate). Single-threaded.
class HostCounters final : public Source {
 public:
  static constexpr std::size_t kSocketsMax = 64;  // of one rank, each time
  explicit HostCounters(trace::Writer& writer) : writer_(writer) {}

  [[nodiscard]] std::string_view name() const override { return "host_counters"; }
  void forget(std::int32_t pid) override {
    processor_tracks_.erase(pid);
    throttled_tracks_.erase(pid);
    stolen_tracks_.erase(pid);
    main_threads_.erase(pid);
    limits_.erase(pid);
  }
  [[nodiscard]] BootTime due() const override {
    return is_enabled_ && is_open_ ? next_ : BootTime::max();
  }
  void poll(const Processes& processes, BootTime now) override;
  void begin_trace(BootTime now) override;
  void end_trace(BootTime /*now*/) override { is_open_ = false; }
  void set_enabled(bool enabled) override { is_enabled_ = enabled; }
  void add_losses(Losses& out) const override { reader_.add_losses(out); }

 private:
  void write_sockets(const Observed& process, BootTime now);
  void write_limits(const Observed& process, BootTime now);
  using Tracks = std::map<std::int32_t, trace::TrackHandle>;  // by pid
  /// A total in nanoseconds, of the whole process.
  void write_time(Tracks& tracks, const char* name, const Observed& process, std::uint64_t ns,
                  BootTime now);
  void write_main_thread(const Observed& process, const sys::ProcessCounters& use, BootTime now);
  trace::Writer& writer_;
  // A recording may be over before the kernel tells of new connections by itself (before 6.2).
  HostReader reader_{{.map_again_after = std::chrono::seconds{2}}};
  struct ThreadTracks {
    trace::TrackHandle minor_faults, major_faults, user_time, system_time;
  };
  Tracks processor_tracks_, throttled_tracks_, stolen_tracks_;
  std::map<std::int32_t, ThreadTracks> main_threads_;  // by pid
  const std::optional<double> page_fault_ns_{sys::page_fault_ns()};
  struct Limits {
    sys::CpuLimits cpu;
    std::string memory_group{};  // "": none whose limit it reaches before the host's end
    std::uint64_t memory_limit{0};
    friend bool operator==(const Limits&, const Limits&) = default;
  };
  std::map<std::int32_t, std::optional<Limits>> limits_;  // by pid, as written last
  std::uint32_t polls_{0};
  bool is_enabled_{true}, is_open_{false};
  BootTime next_{};
};

}  // namespace kansoku::capture
