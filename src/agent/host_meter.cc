// SPDX-License-Identifier: Apache-2.0
#include "agent/host_meter.h"

#include <type_traits>
#include <utility>
#include <vector>

#include "agent/internal/peak_growth.h"
#include "sys/cgroup.h"
#include "sys/pressure.h"
#include "sys/process_counters.h"
#include "sys/tcp.h"

namespace kansoku::agent {
namespace {

std::optional<double> grown(std::optional<std::uint64_t> now, std::optional<std::uint64_t>& before,
                            double unit) {
  const auto last = before;
  before = now;
  if (!now || !last || *now < *last) return std::nullopt;
  return static_cast<double>(*now - *last) * unit;
}

/// A sample; opens the sampler anew for another process of that pid.
template <class Sampler, class Open>
auto sample_of(std::optional<Sampler>& sampler, Open open) {
  for (int attempt = 0;; ++attempt) {
    if (!sampler) {
      if (auto opened = open()) sampler.emplace(std::move(opened).value());
    }
    using Sample = std::optional<std::decay_t<decltype(sampler->sample().value())>>;
    if (!sampler) return Sample();
    auto sample = sampler->sample();
    if (sample) return Sample(std::move(sample).value());
    // Anything else than its end, such as a control group that says nothing, a new one shares.
    if (sample.error().code != Code::kNotFound || attempt == 1) return Sample();
    sampler.reset();
  }
}

std::optional<double> resident(std::int32_t pid, std::optional<sys::ProcessSampler>& sampler) {
  const auto sample =
      sample_of(sampler, [&] { return sys::ProcessSampler::open(pid, {.reads_storage = false}); });
  if (!sample) return std::nullopt;
  return static_cast<double>(sample->resident_bytes);
}

std::optional<std::uint64_t> throttled(std::int32_t pid,
                                       std::optional<sys::CgroupCpuSampler>& sampler) {
  const auto sample = sample_of(sampler, [&] { return sys::CgroupCpuSampler::open(pid); });
  return sample ? sample->throttled_ns : std::nullopt;
}

struct Readings {
  std::optional<sys::ProcessSampler> sampler;
  std::optional<sys::CgroupCpuSampler> quota;
  PeakGrowth resident;
  std::optional<std::uint64_t> throttled_ns, tcp_bytes, retransmits;
  BootTime tcp_read_at{};
  std::optional<double> memory_room;
  std::uint32_t room_age{0};  // windows
};

/// Limits hardly ever change, and are read from several files.
void read_room(std::int32_t pid, Readings& before) {
  constexpr std::uint32_t kEveryWindows = 10;
  if (before.room_age++ % kEveryWindows != 0) return;
  const auto room = sys::memory_room(pid);
  before.memory_room = room ? std::optional(static_cast<double>(*room)) : std::nullopt;
}

}  // namespace

struct HostMeter::Impl {
  std::optional<sys::PressureSampler> pressure;
  std::optional<std::uint64_t> cpu_us, io_us, memory_us;
  sys::TcpSampler tcp;
  std::map<std::int32_t, Readings> processes;

  // Connections are not looked at in every window: what they moved since is told for one window.
  void take_totals(std::int32_t pid, std::uint64_t bytes, std::uint64_t retransmits,
                   const capture::WatchWindow& window, ProcessHostWindow& here) {
    Readings& before = processes[pid];
    const Nanos since = window.end - before.tcp_read_at;
    before.tcp_read_at = window.end;
    const double share = since.count() <= 0
                             ? 1
                             : static_cast<double>((window.end - window.begin).count()) /
                                   static_cast<double>(since.count());
    here.tcp_bytes = grown(bytes, before.tcp_bytes, share);
    here.tcp_retransmits = grown(retransmits, before.retransmits, share);
  }
  void read_connections(const capture::WatchWindow& window, HostWindow& out) {
    std::vector<std::int32_t> pids;
    for (const capture::ProcessWindow& process : window.processes)
      pids.push_back(process.process.pid);
    for (const sys::ProcessTcp& seen : tcp.sample(pids, window.end)) {
      ProcessHostWindow& here = out.processes[seen.pid];
      take_totals(seen.pid, seen.bytes_acked + seen.bytes_received, seen.retransmits, window, here);
      if (seen.active_connections > 0) here.tcp_rtt_s = seen.rtt_mean_us * 1e-6;
    }
  }
};

HostMeter::HostMeter() : impl_(std::make_unique<Impl>()) {
  if (auto opened = sys::PressureSampler::open_host())
    impl_->pressure.emplace(std::move(opened).value());
}
HostMeter::~HostMeter() = default;

HostWindow HostMeter::sample(const capture::WatchWindow& window, bool with_connections) {
  HostWindow out;
  if (impl_->pressure) {
    if (const auto stalls = impl_->pressure->sample()) {
      out.cpu_stall_s = grown(stalls->cpu.some_us, impl_->cpu_us, 1e-6);
      out.io_stall_s = grown(stalls->io.some_us, impl_->io_us, 1e-6);
      out.memory_stall_s = grown(stalls->memory.some_us, impl_->memory_us, 1e-6);
    }
  }
  std::map<std::int32_t, Readings> kept;
  for (const capture::ProcessWindow& process : window.processes) {
    const std::int32_t pid = process.process.pid;
    Readings& before = kept[pid] = std::move(impl_->processes[pid]);
    ProcessHostWindow& here = out.processes[pid];
    here.resident_bytes = resident(pid, before.sampler);
    if (here.resident_bytes)
      here.resident_growth = before.resident.add(window.end, *here.resident_bytes);
    read_room(pid, before);
    here.memory_room = before.memory_room;
    here.throttled_s = grown(throttled(pid, before.quota), before.throttled_ns, 1e-9);
  }
  impl_->processes = std::move(kept);
  if (with_connections) impl_->read_connections(window, out);
  return out;
}

}  // namespace kansoku::agent
