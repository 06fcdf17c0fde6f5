// SPDX-License-Identifier: Apache-2.0
#include "agent/host_source.h"

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "agent/internal/peak_growth.h"
#include "capture/host_reader.h"
#include "sys/pressure.h"

namespace kansoku::agent {
namespace {

std::optional<double> grown(std::optional<std::uint64_t> now, std::optional<std::uint64_t>& before,
                            double unit) {
  const auto last = before;
  before = now;
  if (!now || !last || *now < *last) return std::nullopt;
  return static_cast<double>(*now - *last) * unit;
}

std::optional<double> number_of(std::optional<std::uint64_t> value) {
  return value ? std::optional(static_cast<double>(*value)) : std::nullopt;
}

struct Readings {
  PeakGrowth resident;
  std::optional<std::uint64_t> throttled_ns, tcp_bytes, retransmits;
  BootTime tcp_read_at{};
};

/// Connections are not looked at in every window: their bytes since the last look are told for one
/// window.
void add_connections(const sys::ProcessTcp& tcp, const capture::WatchWindow& window,
                     Readings& before, detect::Window& row) {
  const Nanos since = window.end - before.tcp_read_at;
  before.tcp_read_at = window.end;
  if (since.count() <= 0) return;
  const double per_s = 1e9 / static_cast<double>(since.count());
  set_feature(row, "tcp_bytes",
              grown(tcp.bytes_acked + tcp.bytes_received, before.tcp_bytes, per_s));
  set_feature(row, "tcp_retransmits", grown(tcp.retransmits, before.retransmits, per_s));
  if (tcp.active_connections > 0) set_feature(row, "tcp_rtt", tcp.rtt_mean_us * 1e-6);
}

}  // namespace

struct HostSource::Impl {
  std::optional<sys::PressureSampler> pressure;
  std::optional<std::uint64_t> cpu_us, io_us, memory_us;
  capture::HostReader reader;
  std::map<std::int32_t, Readings> processes;

  void add_pressure(double window_s, std::vector<FeatureRow>& rows);
};

void HostSource::Impl::add_pressure(double window_s, std::vector<FeatureRow>& rows) {
  if (!pressure) return;
  const auto stalls = pressure->sample();
  if (!stalls) return;
  const double share = 1e-6 / window_s;
  const auto cpu = grown(stalls->cpu.some_us, cpu_us, share);
  const auto io = grown(stalls->io.some_us, io_us, share);
  const auto memory = grown(stalls->memory.some_us, memory_us, share);
  for (FeatureRow& row : rows) {
    set_feature(row.window, "psi_cpu", cpu);
    set_feature(row.window, "psi_io", io);
    set_feature(row.window, "psi_memory", memory);
  }
}

HostSource::HostSource() : impl_(std::make_unique<Impl>()) {
  if (auto opened = sys::PressureSampler::open_host())
    impl_->pressure.emplace(std::move(opened).value());
}
HostSource::~HostSource() = default;

void HostSource::add_losses(Losses& out) const {
  impl_->reader.add_losses(out);
}

void HostSource::fill(const capture::WatchWindow& window, bool is_full,
                      std::vector<FeatureRow>& rows) {
  const double window_s = seconds_of(window);
  impl_->add_pressure(window_s, rows);
  std::vector<std::int32_t> pids;
  pids.reserve(rows.size());
  for (const FeatureRow& row : rows)
    pids.push_back(row.window.pid);
  const auto readings =
      impl_->reader.read(pids, window.end, {.memory = true, .quota = true, .connections = is_full});
  std::map<std::int32_t, Readings> kept;
  for (FeatureRow& row : rows) {
    const std::int32_t pid = row.window.pid;
    const capture::HostReading& reading = readings.at(pid);
    Readings& before = kept[pid] = std::move(impl_->processes[pid]);
    const auto resident = number_of(reading.resident_bytes);
    set_feature(row.window, "resident_bytes", resident);
    if (resident)
      set_feature(row.window, "resident_growth", before.resident.add(window.end, *resident));
    set_feature(row.window, "memory_room", number_of(reading.memory_room));
    set_feature(row.window, "throttled_share",
                grown(reading.throttled_ns, before.throttled_ns, 1e-9 / window_s));
    if (reading.tcp) add_connections(*reading.tcp, window, before, row.window);
  }
  impl_->processes = std::move(kept);
}

}  // namespace kansoku::agent
