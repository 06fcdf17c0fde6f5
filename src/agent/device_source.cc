// SPDX-License-Identifier: Apache-2.0
#include "agent/device_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "trace/incident.h"

namespace kansoku::agent {
namespace {

using capture::ProcessWindow;
using capture::nvml::DeviceSample;

constexpr Nanos kRetryEvery = std::chrono::minutes{1};

// NVML's reasons that are faults: slowed down by hardware, by heat (twice), by the power brake. The
// reason that keeps a device within its power limit is at work on every busy device.
constexpr std::uint64_t kHarmfulThrottle = 0x8 | 0x20 | 0x40 | 0x80;

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

bool has_device_calls(const capture::WatchWindow& window, const capture::MetricTable& metrics) {
  constexpr std::string_view kOfDevices = "cuda";  // the category of probes
  for (const capture::ProcessWindow& process : window.processes) {
    for (std::size_t i = 0; i < process.metrics.size(); ++i)
      if (process.metrics[i].is_known && metrics.category(i) == kOfDevices) return true;
  }
  return false;
}

/// Observation that no detector can make: the process concerned is gone.
incident::Observation observation_of(const OrphanedErrors& errors, std::uint64_t number,
                                     std::int64_t begin_ns, std::int64_t end_ns) {
  incident::Observation out{errors.users.front().job, incident::Source::kHardware, number, {}};
  trace::IncidentFacts& facts = out.facts;
  facts.begin_ns = begin_ns;
  facts.end_ns = end_ns;
  facts.kind = trace::IncidentKind::kHardwareFault;
  for (const OrphanedErrors::User& user : errors.users) {
    if (user.job != out.job) continue;
    facts.pids.push_back(user.pid);
    if (user.rank >= 0) facts.ranks.push_back(user.rank);
  }
  facts.tests = {"event"};
  facts.window_count = 1;
  const double seen = static_cast<double>(errors.count) * 1e9 /
                      static_cast<double>(std::max<std::int64_t>(1, end_ns - begin_ns));
  facts.evidence.push_back({"gpu_xid", "1/s", "gpu", 0, seen, 1});
  facts.summary =
      fmt::format("device {}: {}; {} ended with it", errors.device,
                  errors.last_xid ? fmt::format("XID error {}", *errors.last_xid) : "it is lost",
                  facts.ranks.empty() ? fmt::format("pid {}", fmt::join(facts.pids, ", "))
                                      : fmt::format("rank {}", fmt::join(facts.ranks, ", ")));
  facts.suggestion = "dmesg --ctime | grep -i xid";
  return out;
}

}  // namespace

void DeviceFeatures::read_devices(const std::vector<DeviceSample>& devices) {
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

void DeviceFeatures::note_users(const std::vector<FeatureRow>& rows,
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
void DeviceFeatures::add_devices(detect::Window& row, const ProcessWindow& process,
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
  set_feature(row, "gpu_utilization", busy);
  set_feature(row, "gpu_process_utilization", own_busy);
  set_feature(row, "gpu_memory_used", memory);
  set_feature(row, "gpu_process_memory", own_memory);
  if (own_memory) {
    PeakGrowth& growth = next_memory_[process.process.pid];
    growth = std::move(last_memory_[process.process.pid]);
    set_feature(row, "gpu_process_growth", growth.add(read_at, *own_memory));
  }
  set_feature(row, "gpu_memory_room", room);
  set_feature(row, "gpu_sm_clock", sm_clock);
  set_feature(row, "gpu_memory_clock", memory_clock);
  set_feature(row, "gpu_power", power);
  set_feature(row, "gpu_temperature", heat);
  set_feature(row, "gpu_throttled", throttled);
  set_feature(row, "gpu_ecc_errors", ecc);
  set_feature(row, "gpu_xid", xid);
  set_feature(row, "gpu_pcie_bytes", pcie);
  set_feature(row, "gpu_pcie_replays", replays);
  set_feature(row, "gpu_nvlink_bytes", nvlink);
}

void DeviceFeatures::fill(const capture::WatchWindow& window,
                          const std::vector<DeviceSample>& devices, std::vector<FeatureRow>& rows) {
  read_devices(devices);
  for (FeatureRow& row : rows)
    add_devices(row.window, *row.process, devices, seconds_of(window));
  note_users(rows, devices);
  last_memory_ = std::exchange(next_memory_, {});
}

DeviceSource::DeviceSource(const Clock& clock, const capture::MetricTable& metrics, Options options)
    : clock_(clock), metrics_(metrics), options_(std::move(options)) {
  open(clock_.now());
}

void DeviceSource::log(const std::string& line) const {
  if (options_.log) options_.log(line);
}

void DeviceSource::open(BootTime now) {
  if (devices_ || now < retry_at_) return;
  const bool is_first = retry_at_ == BootTime{};
  retry_at_ = now + kRetryEvery;
  for (const std::string& library : options_.libraries) {
    if (!is_used_ && &library != &options_.libraries.front()) break;
    auto opened = capture::nvml::open_nvml({.library = library});
    if (opened) {
      devices_ = std::move(opened).value();
      state_ = fmt::format("{} by {}", devices_->devices().size(), library);
      log("devices: " + state_);
      return;
    }
    state_ = "none: " + opened.error().what;
    if (is_first) log(opened.error().what);
    if (opened.error().code == Code::kTimeout) {  // each try leaves a thread that hangs behind
      retry_at_ = BootTime::max();
      log("devices are not queried again until the agent restarts");
      return;
    }
  }
}

void DeviceSource::sample(BootTime now) {
  const auto before = std::exchange(samples_, devices_->sample(now));
  for (const capture::nvml::DeviceSample& sample : samples_) {
    const auto last = std::find_if(before.begin(), before.end(),
                                   [&](const auto& one) { return one.index == sample.index; });
    if (last == before.end()) continue;
    if (sample.xid_count > last->xid_count)
      log(fmt::format("device {}: XID error {}, {} since the agent started", sample.index,
                      sample.last_xid.value_or(0), sample.xid_count));
    if (sample.is_lost != last->is_lost)
      log(fmt::format("device {} {}", sample.index,
                      sample.is_lost ? "is lost: its figures are missing from now on" : "is back"));
  }
}

void DeviceSource::fill(const capture::WatchWindow& window, bool is_full,
                        std::vector<FeatureRow>& rows) {
  const BootTime now = clock_.now();
  if (!is_used_ && has_device_calls(window, metrics_)) {
    is_used_ = true;
    retry_at_ = now;
  }
  open(now);
  if (devices_ && (is_full || samples_.empty())) sample(now);
  features_.fill(window, samples_, rows);
}

std::vector<incident::Observation> DeviceSource::observations(std::int64_t begin_ns,
                                                              std::int64_t end_ns) {
  std::vector<incident::Observation> out;
  for (const OrphanedErrors& errors : features_.orphaned_errors())
    out.push_back(observation_of(errors, ++errors_, begin_ns, end_ns));
  return out;
}

std::vector<std::string> DeviceSource::hardware() const {
  std::vector<std::string> out;
  if (!devices_) return out;
  for (const auto& device : devices_->devices())
    out.push_back(device.name);
  return out;
}

void DeviceSource::add_losses(Losses& out) const {
  const auto stats = devices_ ? devices_->stats() : capture::nvml::DeviceCounterStats{};
  out.add(capture::nvml::device_failed_calls, stats.failed_calls);
  out.add(capture::nvml::device_hung_calls, stats.hung_calls);
  out.add(capture::nvml::device_lost, stats.lost);
  out.add(capture::nvml::device_odd_values, stats.odd_values);
  out.add(capture::nvml::device_processes_cut, stats.processes_cut);
}

}  // namespace kansoku::agent
