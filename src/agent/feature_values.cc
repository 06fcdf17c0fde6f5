// SPDX-License-Identifier: Apache-2.0
#include "agent/feature_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <tuple>
#include <utility>

#include "common/check.h"
#include "detect/feature.h"

namespace kansoku::agent {
namespace {

using capture::MetricTable;
using capture::MetricWindow;
using capture::ProcessWindow;
using capture::nvml::DeviceSample;

// NVML's reasons that are faults: slowed down by hardware, by heat (twice), by the power brake.
// What keeps clocks below the power limit is at work on every busy device.
constexpr std::uint64_t kHarmfulThrottle = 0x8 | 0x20 | 0x40 | 0x80;

void set(detect::Window& row, std::string_view feature, std::optional<double> value) {
  const int index = detect::feature_index(feature);
  CHECK(index >= 0);
  if (value) row.values[static_cast<std::size_t>(index)] = *value;
}

/// The calls of one metric as rate, mean, share and so on of a window.
struct Calls {
  const MetricWindow& calls;
  double window_s;

  [[nodiscard]] std::optional<double> if_known(double value) const {
    return calls.is_known ? std::optional(value) : std::nullopt;
  }
  [[nodiscard]] std::optional<double> rate() const {
    return if_known(static_cast<double>(calls.count) / window_s);
  }
  [[nodiscard]] std::optional<double> share() const { return if_known(calls.busy_s / window_s); }
  [[nodiscard]] std::optional<double> bytes() const {
    return if_known(static_cast<double>(calls.bytes) / window_s);
  }
  // Without a call that ended there is no mean; one that is still open says how long it is at
  // least.
  [[nodiscard]] std::optional<double> mean() const {
    if (calls.count == 0) return calls.open_s > 0 ? std::optional(calls.open_s) : std::nullopt;
    return std::max(calls.sum_s / static_cast<double>(calls.count), 0.0);
  }
  [[nodiscard]] std::optional<double> p99() const {
    if (calls.count == 0) return mean();
    return std::max(calls.p99_s, calls.open_s);
  }
  [[nodiscard]] std::optional<double> max() const {
    if (calls.count == 0) return mean();
    return std::max(calls.max_s, calls.open_s);
  }
};

Calls calls_of(const ProcessWindow& process, std::size_t metric, double window_s) {
  static const MetricWindow kUnknown;
  return {metric < process.metrics.size() ? process.metrics[metric] : kUnknown, window_s};
}

std::optional<double> value_of(const Calls& calls, capture::Statistic statistic) {
  switch (statistic) {
    case capture::Statistic::kRate:
      return calls.rate();
    case capture::Statistic::kMean:
      return calls.mean();
    case capture::Statistic::kP99:
      return calls.p99();
    case capture::Statistic::kMax:
      return calls.max();
    case capture::Statistic::kShare:
      return calls.share();
    case capture::Statistic::kBytes:
      return calls.bytes();
  }
  return std::nullopt;
}

void add_threads(detect::Window& row, const ProcessWindow& process, double s) {
  // What signals say; else what a look saw (under a debugger, or stopped before it was watched).
  double& stopped = row.values[static_cast<std::size_t>(detect::feature_index("stopped_share"))];
  stopped = std::isnan(stopped) ? (process.is_stopped ? 1.0 : 0.0) : std::min(stopped, 1.0);
  if (!process.has_threads) return;
  const auto rate = [&](std::uint64_t count) { return static_cast<double>(count) / s; };
  set(row, "cpu_cores", process.runtime_s / s);
  set(row, "cpu_wait", process.run_delay_s / s);
  set(row, "switches", rate(process.voluntary));
  set(row, "preemptions", rate(process.involuntary));
  set(row, "minor_faults", rate(process.minor_faults));
  set(row, "major_faults", rate(process.major_faults));
  set(row, "disk_wait", process.blocked_threads);
  set(row, "read_bytes", rate(process.read_bytes));
  set(row, "write_bytes", rate(process.written_bytes));
  set(row, "thread_count", process.thread_count);
}

void add_host(detect::Window& row, const HostWindow& host, std::int32_t pid, double s) {
  const auto per_s = [&](std::optional<double> value) -> std::optional<double> {
    return value ? std::optional(*value / s) : std::nullopt;
  };
  set(row, "psi_cpu", per_s(host.cpu_stall_s));
  set(row, "psi_io", per_s(host.io_stall_s));
  set(row, "psi_memory", per_s(host.memory_stall_s));
  const auto found = host.processes.find(pid);
  if (found == host.processes.end()) return;
  const ProcessHostWindow& process = found->second;
  set(row, "resident_bytes", process.resident_bytes);
  set(row, "resident_growth", process.resident_growth);
  set(row, "memory_room", process.memory_room);
  set(row, "throttled_share", per_s(process.throttled_s));
  set(row, "tcp_bytes", per_s(process.tcp_bytes));
  set(row, "tcp_retransmits", per_s(process.tcp_retransmits));
  set(row, "tcp_rtt", process.tcp_rtt_s);
}

/// The entry of `pid` on a device, or null.
const capture::nvml::ProcessFigures* use_of(const DeviceSample& device, std::int32_t pid) {
  if (!device.figures.processes) return nullptr;
  for (const auto& process : *device.figures.processes) {
    if (process.pid == static_cast<std::uint32_t>(pid)) return &process;
  }
  return nullptr;
}

/// A process may be listed on a device on which it has nothing.
bool is_unused(const capture::nvml::ProcessFigures& use) {
  return use.memory_bytes == std::uint64_t{0} && use.utilization.value_or(0) <= 0;
}

std::optional<double> plus(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return a ? a : b;
  return *a + *b;
}

std::optional<double> number(std::optional<std::uint64_t> value) {
  return value ? std::optional(static_cast<double>(*value)) : std::nullopt;
}

std::optional<double> larger(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return a ? a : b;
  return std::max(*a, *b);
}

std::optional<double> smaller(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

double seconds_between(BootTime from, BootTime to) {
  return static_cast<double>((to - from).count()) * 1e-9;
}

}  // namespace

Result<std::vector<MetricFeature>> metric_features(const std::vector<capture::Pack>& packs,
                                                   const MetricTable& metrics) {
  std::vector<MetricFeature> out;
  const auto add = [&](std::size_t metric, capture::Statistic statistic, std::string_view feature) {
    const int index = detect::feature_index(feature);
    CHECK(index >= 0);
    out.push_back({metric, statistic, static_cast<std::size_t>(index)});
  };
  add(*metrics.index(MetricTable::kBlock), capture::Statistic::kMean, "block_latency");
  add(*metrics.index(MetricTable::kStop), capture::Statistic::kShare, "stopped_share");
  for (const capture::Pack& pack : packs) {
    for (const capture::FeatureRule& rule : pack.features) {
      const auto refuse = [&](std::string_view why) {
        return Error{Code::kCorrupt,
                     fmt::format("read {} [[feature]] {}: {}", pack.path, rule.name, why),
                     "docs/probes.md describes the format"};
      };
      if (rule.definition) {
        const auto layer = detect::layer_from_name(rule.definition->layer);
        if (!layer) return refuse("no such layer");
        detect::Feature feature{.name = rule.name,
                                .unit = capture::unit_of(rule.statistic),
                                .layer = *layer,
                                .floor = rule.definition->floor,
                                .worse = rule.definition->worse,
                                .meaning = rule.definition->meaning};
        if (rule.statistic == capture::Statistic::kShare) feature.scale = detect::Scale::kLinear;
        if (const auto added = detect::add_feature(feature); !added)
          return refuse(added.error().what);
      }
      if (detect::feature_index(rule.name) < 0)
        return refuse("it is not known, and layer, floor and meaning are missing");
      const auto metric = metrics.index(rule.metric);
      if (!metric) return refuse(fmt::format("no probe counts for the metric {}", rule.metric));
      add(*metric, rule.statistic, rule.name);
    }
  }
  return out;
}

void FeatureMaker::add_calls(detect::Window& row, const ProcessWindow& process,
                             double window_s) const {
  for (const MetricFeature& rule : rules_) {
    if (const auto value = value_of(calls_of(process, rule.metric, window_s), rule.statistic))
      row.values.at(rule.feature) = *value;
  }
}

void FeatureMaker::set_places(std::vector<FeatureRow>& rows) {
  std::map<std::pair<std::string, std::int32_t>, FeatureRow*> ranks;
  // A launcher has the environment of what it launches, and is older.
  const auto place_of = [](const FeatureRow& row) {
    return std::tuple(!row.process->does_work, row.process->process.start_ticks,
                      row.process->process.pid);
  };
  for (FeatureRow& row : rows) {
    const capture::JobProcess& process = row.process->process;
    row.job = names_.name_of(process);
    row.is_local_job = capture::is_local_job(process);
    row.window.pid = process.pid;
    row.window.rank = process.facts.rank;
    if (row.window.rank < 0) continue;
    const auto [known, is_new] = ranks.try_emplace({row.job, row.window.rank}, &row);
    if (is_new) continue;
    FeatureRow& other = place_of(row) < place_of(*known->second) ? *known->second : row;
    if (&other != &row) known->second = &row;
    other.job = capture::own_job_name(other.process->process);
    other.is_local_job = true;
    other.window.rank = -1;
  }
  names_.end_window();
}

void FeatureMaker::read_devices(const std::vector<DeviceSample>& devices) {
  device_changes_.clear();
  for (const DeviceSample& device : devices) {
    const auto last = last_devices_.find(device.index);
    if (last != last_devices_.end()) {
      const auto& before = last->second.figures;
      const auto& now = device.figures;
      DeviceChange change;
      if (device.read_at && last->second.read_at)
        change.seconds = seconds_between(*last->second.read_at, *device.read_at);
      if (change.seconds > 0) {  // else these are the figures of before
        const auto corrected =
            capture::nvml::counter_change(before.ecc_corrected, now.ecc_corrected);
        const auto fatal =
            capture::nvml::counter_change(before.ecc_uncorrected, now.ecc_uncorrected);
        if (corrected || fatal) change.ecc = corrected.value_or(0) + fatal.value_or(0);
        change.replays = capture::nvml::counter_change(before.pcie_replays, now.pcie_replays);
      }
      change.xid = device.xid_count - std::min(device.xid_count, last->second.xid_count);
      // One that falls off the bus cannot always say so.
      if (device.is_lost && !last->second.is_lost) ++change.xid;
      device_changes_.emplace(device.index, change);
    }
    last_devices_.insert_or_assign(device.index, device);
  }
}

void FeatureMaker::note_users(const std::vector<FeatureRow>& rows,
                              const std::vector<DeviceSample>& devices) {
  constexpr int kWindowsAgo = 10;  // an error that comes later is not theirs
  orphaned_.clear();
  for (const DeviceSample& device : devices) {
    std::vector<OrphanedErrors::User> users;
    for (const FeatureRow& row : rows) {
      const auto* use = use_of(device, row.window.pid);
      if (use != nullptr && !is_unused(*use))
        users.push_back({row.job, row.window.rank, row.window.pid});
    }
    LastUsers& last = last_users_[device.index];
    if (!users.empty()) {
      last = {std::move(users), 0};
      continue;
    }
    const auto change = device_changes_.find(device.index);
    if (change != device_changes_.end() && change->second.xid > 0 && !last.users.empty())
      orphaned_.push_back({device.index, change->second.xid, device.last_xid, last.users});
    if (++last.windows_ago > kWindowsAgo) last.users.clear();
  }
}

// A job that uses several devices is as hot as its hottest and as slow as its slowest.
void FeatureMaker::add_devices(detect::Window& row, const ProcessWindow& process,
                               const std::vector<DeviceSample>& devices, double window_s) {
  std::optional<double> busy, own_busy, memory, own_memory, room, sm_clock, memory_clock, power,
      heat, throttled, ecc, xid, pcie, replays, nvlink;
  BootTime read_at{};
  for (const DeviceSample& device : devices) {
    const auto* use = use_of(device, process.process.pid);
    if (use == nullptr || !device.read_at || is_unused(*use)) continue;
    const auto change = device_changes_.find(device.index);
    if (change != device_changes_.end())
      xid = plus(xid, static_cast<double>(change->second.xid) / window_s);
    if (device.is_lost) continue;  // the other figures are old
    read_at = std::max(read_at, *device.read_at);
    const auto& now = device.figures;
    busy = larger(busy, now.utilization);
    own_busy = larger(own_busy, use->utilization);
    memory = plus(memory, number(now.memory_used_bytes));
    own_memory = plus(own_memory, number(use->memory_bytes));
    if (now.memory_total_bytes && now.memory_used_bytes) {
      const double total = static_cast<double>(*now.memory_total_bytes);
      room = smaller(room, std::max(0.0, total - static_cast<double>(*now.memory_used_bytes)));
    }
    sm_clock = smaller(sm_clock, now.sm_clock_hz);
    memory_clock = smaller(memory_clock, now.memory_clock_hz);
    power = plus(power, now.power_watts);
    heat = larger(heat, now.temperature_celsius);
    if (now.throttle_reasons)
      throttled = larger(throttled, (*now.throttle_reasons & kHarmfulThrottle) != 0 ? 1.0 : 0.0);
    pcie = plus(pcie, plus(now.pcie_sent_per_s, now.pcie_received_per_s));
    nvlink = plus(nvlink, plus(now.nvlink_sent_per_s, now.nvlink_received_per_s));
    if (change == device_changes_.end()) continue;
    const auto rate = [&](std::optional<std::uint64_t> count) -> std::optional<double> {
      return count ? std::optional(static_cast<double>(*count) / change->second.seconds)
                   : std::nullopt;
    };
    ecc = plus(ecc, rate(change->second.ecc));
    replays = plus(replays, rate(change->second.replays));
  }
  set(row, "gpu_utilization", busy);
  set(row, "gpu_process_utilization", own_busy);
  set(row, "gpu_memory_used", memory);
  set(row, "gpu_process_memory", own_memory);
  if (own_memory) {
    PeakGrowth& growth = next_memory_[process.process.pid];
    growth = std::move(last_memory_[process.process.pid]);
    set(row, "gpu_process_growth", growth.add(read_at, *own_memory));
  }
  set(row, "gpu_memory_room", room);
  set(row, "gpu_sm_clock", sm_clock);
  set(row, "gpu_memory_clock", memory_clock);
  set(row, "gpu_power", power);
  set(row, "gpu_temperature", heat);
  set(row, "gpu_throttled", throttled);
  set(row, "gpu_ecc_errors", ecc);
  set(row, "gpu_xid", xid);
  set(row, "gpu_pcie_bytes", pcie);
  set(row, "gpu_pcie_replays", replays);
  set(row, "gpu_nvlink_bytes", nvlink);
}

std::vector<FeatureRow> FeatureMaker::make(const capture::WatchWindow& window,
                                           const HostWindow& host,
                                           const std::vector<DeviceSample>& devices) {
  const double window_s =
      std::max(1e-3, static_cast<double>((window.end - window.begin).count()) * 1e-9);
  read_devices(devices);
  std::vector<FeatureRow> rows;
  for (const ProcessWindow& process : window.processes) {
    FeatureRow row;
    row.process = &process;
    row.window.values.assign(detect::known_features().size(),
                             std::numeric_limits<double>::quiet_NaN());
    add_calls(row.window, process, window_s);
    add_threads(row.window, process, window_s);
    add_host(row.window, host, process.process.pid, window_s);
    add_devices(row.window, process, devices, window_s);
    rows.push_back(std::move(row));
  }
  set_places(rows);
  note_users(rows, devices);
  last_memory_ = std::exchange(next_memory_, {});
  return rows;
}

}  // namespace kansoku::agent
