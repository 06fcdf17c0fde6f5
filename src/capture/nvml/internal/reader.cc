// SPDX-License-Identifier: Apache-2.0
#include "capture/nvml/internal/reader.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/text.h"
#include "sys/clock.h"

namespace kansoku::capture::nvml {
namespace {

constexpr std::size_t kTextBytes = 96;
constexpr unsigned kProcessesRoom = 64, kProcessesMax = 1024;
constexpr unsigned kUseRoom = 128;  // drivers ask for 72 or 100 whatever there is (second-hand)
constexpr std::uint64_t kAskAgain = 256;  // reads: MIG and ECC can be switched on later
constexpr double kHertzPerMegahertz = 1e6;

/// Text that a library wrote into a buffer, ended or not.
std::string text_of(const std::array<char, kTextBytes>& buffer) {
  const std::string_view all(buffer.data(), buffer.size());
  return printable(all.substr(0, all.find('\0')));
}

std::optional<double> rate(std::optional<std::uint64_t> before, std::optional<std::uint64_t> now,
                           double seconds) {
  const auto change = counter_change(before, now);
  if (!change || seconds <= 0) return std::nullopt;
  return static_cast<double>(*change) / seconds;
}

}  // namespace

DeviceReader::DeviceReader(const api::Api& api, api::Handle device, std::uint32_t index)
    : api_(&api), device_(device), index_(index) {}

DeviceCounterStats DeviceReader::take_stats() {
  return std::exchange(stats_, {});
}

DeviceInfo DeviceReader::info() {
  DeviceInfo out{.index = index_, .uuid = {}, .name = {}};
  std::array<char, kTextBytes> buffer{};
  if (api_->uuid != nullptr) {
    if (api_->uuid(device_, buffer.data(), kTextBytes) == api::kSuccess)
      out.uuid = text_of(buffer);
    else
      ++stats_.failed_calls;
  }
  buffer = {};
  if (api_->name != nullptr) {
    if (api_->name(device_, buffer.data(), kTextBytes) == api::kSuccess)
      out.name = text_of(buffer);
    else
      ++stats_.failed_calls;
  }
  return out;
}

/// The status of a call, which is skipped where it makes no sense; failures are counted.
template <class... Parameters, class... Arguments>
int DeviceReader::call(Call which, int (*function)(api::Handle, Parameters...),
                       Arguments... arguments) {
  if (function == nullptr || unsupported_[which]) return api::kNotSupported;
  if (is_lost_) return api::kGpuIsLost;
  has_asked_ = true;
  const int status = function(device_, arguments...);
  if (status == api::kSuccess) {
    has_answered_ = true;
  } else {
    count_failure(which, status);
  }
  return status;
}

void DeviceReader::count_failure(Call which, int status) {
  switch (status) {
    case api::kNotSupported:
    case api::kFunctionNotFound:
    case api::kNoPermission:  // these last
    case api::kArgumentVersionMismatch:
    case api::kDeprecated:
      unsupported_.set(which);
      has_answered_ = true;
      break;
    case api::kInsufficientSize:
    case api::kNoneFound:  // nothing to tell, which is an answer
      has_answered_ = true;
      break;
    case api::kGpuIsLost:
    case api::kResetRequired:
      is_lost_ = true;
      break;
    default:
      ++stats_.failed_calls;
  }
}

std::optional<unsigned> DeviceReader::number(Call which, int (*function)(api::Handle, unsigned*)) {
  unsigned value = 0;
  if (call(which, function, &value) != api::kSuccess) return std::nullopt;
  return value;
}

std::optional<double> DeviceReader::hertz(Call which, int (*function)(api::Handle, int, unsigned*),
                                          int clock) {
  unsigned megahertz = 0;
  if (call(which, function, clock, &megahertz) != api::kSuccess) return std::nullopt;
  return megahertz * kHertzPerMegahertz;
}

std::optional<double> DeviceReader::share(unsigned percent) {
  if (percent <= 100) return percent / 100.0;
  ++stats_.odd_values;  // drivers are known to give such numbers now and then
  return std::nullopt;
}

bool DeviceReader::read(BootTime now, DeviceFigures& figures) {
  is_lost_ = has_asked_ = has_answered_ = false;
  if (++reads_ % kAskAgain == 0) unsupported_.reset();
  figures = {};
  read_load(figures);
  read_state(figures);
  read_errors(figures);
  read_links(now, figures);
  read_processes(now, figures);
  const bool is_there = !is_lost_ && (has_answered_ || !has_asked_);
  if (!is_there) forget_window();
  return is_there;
}

void DeviceReader::read_load(DeviceFigures& figures) {
  api::Utilization load{};
  if (call(kUtilization, api_->utilization, &load) == api::kSuccess) {
    figures.utilization = share(load.gpu);
    figures.memory_utilization = share(load.memory);
  }
  api::Memory2 memory{};
  memory.version = api::kMemory2Version;
  if (call(kMemory2, api_->memory2, &memory) == api::kSuccess) {
    figures.memory_used_bytes = memory.used;
    figures.memory_total_bytes = memory.total;
  } else {
    api::Memory1 old{};  // counts the driver's own memory as used
    if (call(kMemory1, api_->memory1, &old) == api::kSuccess) {
      figures.memory_used_bytes = old.used;
      figures.memory_total_bytes = old.total;
    }
  }
  if (figures.memory_used_bytes > figures.memory_total_bytes) {
    ++stats_.odd_values;
    figures.memory_used_bytes = figures.memory_total_bytes = std::nullopt;
  }
}

void DeviceReader::read_state(DeviceFigures& figures) {
  figures.sm_clock_hz = hertz(kSmClock, api_->clock, api::kSmClock);
  figures.sm_clock_max_hz = hertz(kSmClockMax, api_->max_clock, api::kSmClock);
  figures.memory_clock_hz = hertz(kMemoryClock, api_->clock, api::kMemoryClock);
  figures.memory_clock_max_hz = hertz(kMemoryClockMax, api_->max_clock, api::kMemoryClock);
  if (const auto milliwatts = number(kPower, api_->power)) figures.power_watts = *milliwatts / 1e3;
  if (const auto milliwatts = number(kPowerLimit, api_->power_limit))
    figures.power_limit_watts = *milliwatts / 1e3;
  unsigned celsius = 0;
  constexpr int kOnDie = 0;
  if (call(kTemperature, api_->temperature, kOnDie, &celsius) == api::kSuccess)
    figures.temperature_celsius = celsius;
  unsigned long long reasons = 0;
  if (call(kReasons, api_->reasons, &reasons) == api::kSuccess) figures.throttle_reasons = reasons;
}

void DeviceReader::read_errors(DeviceFigures& figures) {
  constexpr int kCorrected = 0, kUncorrected = 1, kSinceLoad = 0;
  unsigned long long count = 0;
  if (call(kEccCorrected, api_->ecc, kCorrected, kSinceLoad, &count) == api::kSuccess)
    figures.ecc_corrected = count;
  if (call(kEccUncorrected, api_->ecc, kUncorrected, kSinceLoad, &count) == api::kSuccess)
    figures.ecc_uncorrected = count;
  unsigned corrected = 0, uncorrected = 0, is_pending = 0, has_failed = 0;
  if (call(kRemapped, api_->remapped, &corrected, &uncorrected, &is_pending, &has_failed) ==
      api::kSuccess) {
    figures.remapped_rows_corrected = corrected;
    figures.remapped_rows_uncorrected = uncorrected;
    figures.is_remap_pending = is_pending != 0;
    figures.has_remap_failed = has_failed != 0;
  }
  figures.pcie_replays = number(kPcieReplays, api_->pcie_replays);
}

std::optional<std::uint64_t> DeviceReader::counter(const api::FieldValue& field) {
  if (field.status == api::kSuccess) {
    switch (field.type) {
      case api::kUnsigned:
        return field.value.as_unsigned;
      case api::kLong:
      case api::kWide:
        return field.value.as_wide;
      case api::kSignedWide:
        if (field.value.as_wide <= INT64_MAX) return field.value.as_wide;
        break;
      default:
        break;
    }
    ++stats_.odd_values;
  } else if (field.status != api::kNotSupported && field.status != api::kFunctionNotFound &&
             field.status != api::kInvalidArgument) {  // the last: a field newer than the driver
    ++stats_.failed_calls;
  }
  return std::nullopt;
}

void DeviceReader::read_links(BootTime now, DeviceFigures& figures) {
  constexpr std::array<unsigned, 8> kWanted{
      api::kPcieSent,      api::kPcieReceived,     api::kNvlinkSent,       api::kNvlinkReceived,
      api::kNvlinkReplays, api::kNvlinkRecoveries, api::kNvlinkFlitErrors, api::kNvlinkDataErrors};
  std::array<api::FieldValue, kWanted.size()> fields{};
  for (std::size_t i = 0; i < kWanted.size(); ++i) {
    fields[i].field = kWanted[i];
    fields[i].status = api::kNotSupported;
    if (kWanted[i] == api::kNvlinkSent || kWanted[i] == api::kNvlinkReceived)
      fields[i].scope = api::kAllLinks;
  }
  Window last;
  first_look_.reset();
  if (call(kFields, api_->fields, static_cast<int>(fields.size()), fields.data()) ==
      api::kSuccess) {
    const PcieLook look{sys::RealClock().now(), counter(fields[0]), counter(fields[1])};
    if (look.sent || look.received) first_look_ = look;
    last = {now, counter(fields[2]), counter(fields[3])};
    figures.nvlink_replays = counter(fields[4]);
    figures.nvlink_recoveries = counter(fields[5]);
    const auto flits = counter(fields[6]), data = counter(fields[7]);
    if (flits || data) figures.nvlink_crc_errors = flits.value_or(0) + data.value_or(0);
  }
  constexpr double kKib = 1024;
  if (last.at && before_.at) {
    const double seconds = std::chrono::duration<double>(*last.at - *before_.at).count();
    figures.nvlink_sent_per_s = rate(before_.nvlink_sent, last.nvlink_sent, seconds / kKib);
    figures.nvlink_received_per_s =
        rate(before_.nvlink_received, last.nvlink_received, seconds / kKib);
  }
  before_ = last;
  if (!first_look_) read_pcie_throughput(figures);
}

void DeviceReader::second_look(DeviceFigures& figures) {
  if (!first_look_) return;
  const PcieLook first = *std::exchange(first_look_, std::nullopt);
  std::array<api::FieldValue, 2> fields{};
  fields[0].field = api::kPcieSent;
  fields[1].field = api::kPcieReceived;
  for (api::FieldValue& field : fields)
    field.status = api::kNotSupported;
  if (call(kFields, api_->fields, static_cast<int>(fields.size()), fields.data()) != api::kSuccess)
    return;
  const double seconds = std::chrono::duration<double>(sys::RealClock().now() - first.at).count();
  const auto per_s = [&](std::optional<std::uint64_t> before,
                         std::optional<std::uint64_t> now) -> std::optional<double> {
    if (!before || !now || seconds <= 0) return std::nullopt;
    return static_cast<std::uint32_t>(*now - *before) / seconds;  // modulo 2^32
  };
  figures.pcie_sent_per_s = per_s(first.sent, counter(fields[0]));
  figures.pcie_received_per_s = per_s(first.received, counter(fields[1]));
}

// Each of these calls measures for 20 ms (second-hand), so counters are better where there are any.
void DeviceReader::read_pcie_throughput(DeviceFigures& figures) {
  constexpr double kKilobyte = 1024;
  if ((reads_ + index_) % turns_ == 0) {
    measured_ = {};
    unsigned kilobytes = 0;
    if (call(kPcieSent, api_->pcie_throughput, 0, &kilobytes) == api::kSuccess)
      measured_.sent_per_s = kilobytes * kKilobyte;
    if (call(kPcieReceived, api_->pcie_throughput, 1, &kilobytes) == api::kSuccess)
      measured_.received_per_s = kilobytes * kKilobyte;
  }
  figures.pcie_sent_per_s = measured_.sent_per_s;
  figures.pcie_received_per_s = measured_.received_per_s;
}

template <class Process>
bool DeviceReader::list_processes(int (*function)(api::Handle, unsigned*, Process*),
                                  std::map<std::uint32_t, ProcessFigures>& processes) {
  // A third more than is asked for: see api::Process2.
  const auto with_slack = [](std::size_t count) { return count + count / 3 + 1; };
  std::vector<Process> room(with_slack(kProcessesRoom));
  unsigned asked = kProcessesRoom, count = asked;
  int status = call(kProcesses, function, &count, room.data());
  if (status == api::kInsufficientSize) {
    if (count > kProcessesMax) stats_.processes_cut += count - kProcessesMax;
    room.assign(with_slack(kProcessesMax), {});  // more may come between the two calls
    asked = count = kProcessesMax;
    status = call(kProcesses, function, &count, room.data());
  }
  if (status != api::kSuccess) return false;
  if (count > asked) {
    ++stats_.odd_values;
    return false;
  }
  for (unsigned i = 0; i < count; ++i) {
    ProcessFigures& process = processes[room[i].pid];
    process.pid = room[i].pid;
    if (room[i].used_bytes == api::kNotAvailable) continue;
    // A process has one entry for each instance that it uses.
    process.memory_bytes = process.memory_bytes.value_or(0) + room[i].used_bytes;
  }
  return true;
}

void DeviceReader::read_processes(BootTime now, DeviceFigures& figures) {
  std::map<std::uint32_t, ProcessFigures> processes;
  const bool is_listed = api_->processes2 != nullptr ? list_processes(api_->processes2, processes)
                                                     : list_processes(api_->processes1, processes);
  if (!is_listed) return;
  add_process_use(now, processes, figures);
  figures.processes.emplace();
  for (const auto& [pid, process] : processes)
    figures.processes->push_back(process);
}

/// Shares of the processes that are listed. The library tells only of those that used the device
/// lately. One alone has used nothing if there was a sample at all; of several each has samples of
/// its own age, up to some seconds (second-hand), and its last one stands meanwhile.
void DeviceReader::add_process_use(BootTime now, std::map<std::uint32_t, ProcessFigures>& processes,
                                   const DeviceFigures& figures) {
  constexpr std::int64_t kWindowUs = 1'500'000;  // it samples once a second or faster
  constexpr std::int64_t kHoldUs = 10'000'000;
  constexpr Nanos kHold = std::chrono::microseconds{kHoldUs};
  const std::int64_t now_us = sys::wall_time_ns() / 1000;
  const bool is_alone = processes.size() <= 1;
  const std::int64_t since_us = std::max<std::int64_t>(
      0, is_alone ? now_us - kWindowUs : std::max(newest_use_us_, now_us - kHoldUs));
  std::vector<api::ProcessUse> room(kUseRoom);
  auto count = static_cast<unsigned>(room.size());
  const auto since = static_cast<unsigned long long>(since_us);
  int status = call(kProcessUse, api_->process_use, room.data(), &count, since);
  if (status == api::kInsufficientSize) {
    room.assign(kProcessesMax, {});
    count = kProcessesMax;
    status = call(kProcessUse, api_->process_use, room.data(), &count, since);
  }
  const bool is_idle = status == api::kNoneFound && figures.utilization == 0.0;
  const bool is_told = status == api::kSuccess;
  if (is_alone && !is_told && !is_idle) return;
  if (is_told && count > room.size()) {
    ++stats_.odd_values;
    return;
  }
  std::map<std::uint32_t, const api::ProcessUse*> latest;
  for (unsigned i = 0; is_told && i < count; ++i) {
    if (room[i].time_us <= since) continue;  // left over from earlier questions
    const api::ProcessUse*& use = latest[room[i].pid];
    if (use == nullptr || use->time_us <= room[i].time_us) use = &room[i];
  }
  for (const auto& [pid, use] : latest) {
    uses_[pid] = {*use, now};
    newest_use_us_ =
        std::max(newest_use_us_, static_cast<std::int64_t>(std::min<unsigned long long>(
                                     use->time_us, static_cast<unsigned long long>(now_us))));
  }
  std::erase_if(uses_, [&](const auto& entry) {
    return !processes.contains(entry.first) || now - entry.second.seen > kHold;
  });
  for (auto& [pid, process] : processes) {
    api::ProcessUse use{};
    if (const auto found = latest.find(pid); found != latest.end()) {
      use = *found->second;
    } else if (!is_alone && !is_idle) {
      const auto held = uses_.find(pid);
      if (held == uses_.end()) continue;  // not known
      use = held->second.use;
    }
    process.utilization = share(use.sm);
    process.memory_utilization = share(use.memory);
    process.encoder_utilization = share(use.encoder);
    process.decoder_utilization = share(use.decoder);
  }
}

}  // namespace kansoku::capture::nvml
