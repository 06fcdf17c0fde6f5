// SPDX-License-Identifier: Apache-2.0
#include "agent/host_meter.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "sys/cgroup.h"
#include "sys/pressure.h"
#include "sys/process_counters.h"
#include "sys/tcp.h"

namespace kansoku::agent {
namespace {

constexpr std::size_t kSocketsMax = 256;

std::optional<double> grown(std::optional<std::uint64_t> now, std::optional<std::uint64_t>& before,
                            double unit) {
  const auto last = before;
  before = now;
  if (!now || !last || *now < *last) return std::nullopt;
  return static_cast<double>(*now - *last) * unit;
}

/// Opens the sampler anew for another process of that pid.
std::optional<double> resident(std::int32_t pid, std::optional<sys::ProcessSampler>& sampler) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (!sampler) {
      auto opened = sys::ProcessSampler::open(pid, {.reads_storage = false});
      if (!opened) return std::nullopt;
      sampler.emplace(std::move(opened).value());
    }
    if (const auto sample = sampler->sample()) return static_cast<double>(sample->resident_bytes);
    sampler.reset();
  }
  return std::nullopt;
}

struct Readings {
  std::optional<sys::ProcessSampler> sampler;
  std::optional<double> resident;
  std::optional<std::uint64_t> throttled_ns, tcp_bytes, retransmits;
  BootTime tcp_read_at{};
};

}  // namespace

struct HostMeter::Impl {
  std::optional<sys::PressureSampler> pressure;
  std::optional<std::uint64_t> cpu_us, io_us, memory_us;
  sys::TcpSampler tcp;
  std::map<std::int32_t, Readings> processes;

  // Of a network namespace that may not be entered: socket by socket, which costs more.
  void read_sockets(std::int32_t pid, const capture::WatchWindow& window, ProcessHostWindow& here) {
    std::uint64_t bytes = 0;
    std::uint64_t retransmits = 0;
    double rtt_us = 0;
    double used = 0;
    for (const sys::TcpSocket& socket : sys::tcp_sockets(pid, kSocketsMax)) {
      bytes += socket.bytes_sent + socket.bytes_received;
      retransmits += socket.retransmits;
      if (socket.bytes_sent == 0) continue;
      rtt_us += socket.rtt_us;
      used += 1;
    }
    take_totals(pid, bytes, retransmits, window, here);
    if (used > 0) here.tcp_rtt_s = rtt_us / used * 1e-6;
  }
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
    std::set<std::int32_t> unseen(pids.begin(), pids.end());
    for (const sys::ProcessTcp& seen : tcp.sample(pids, window.end)) {
      unseen.erase(seen.pid);
      ProcessHostWindow& here = out.processes[seen.pid];
      take_totals(seen.pid, seen.bytes_acked + seen.bytes_received, seen.retransmits, window, here);
      if (seen.active_connections > 0) here.tcp_rtt_s = seen.rtt_mean_us * 1e-6;
    }
    for (const std::int32_t pid : unseen)
      read_sockets(pid, window, out.processes[pid]);
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
    if (here.resident_bytes && before.resident)
      here.resident_growth = std::max(0.0, *here.resident_bytes - *before.resident);
    before.resident = here.resident_bytes;
    // Not a kept handle: processes are moved between control groups while they run.
    here.throttled_s = grown(sys::throttled_ns(pid), before.throttled_ns, 1e-9);
  }
  impl_->processes = std::move(kept);
  if (with_connections) impl_->read_connections(window, out);
  return out;
}

}  // namespace kansoku::agent
