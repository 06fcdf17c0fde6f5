// SPDX-License-Identifier: Apache-2.0
#include "softcuda/telemetry/telemetry.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "common/parse.h"

namespace kansoku::softcuda {
namespace {

constexpr int kDevicesMax = 16;
constexpr std::uint64_t kMemoryDefault = std::uint64_t{4} << 30;
constexpr std::uint64_t kMemoryMin = std::uint64_t{1} << 20, kMemoryMax = std::uint64_t{1} << 42;

Error failed(std::string_view what, const std::string& path) {
  return Error{errno == EACCES || errno == EPERM ? Code::kPermission : Code::kUnavailable,
               fmt::format("software device: {} {}: {}", what, path, std::strerror(errno)),
               "set KANSOKU_SOFTGPU_DIR to a folder of your own"};
}

/// Start time of the process, in clock ticks since boot; 0 if it is not there, or has ended and
/// nobody has asked for its status yet.
std::uint64_t start_ticks_of(std::uint32_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  // The name, in parentheses, may hold anything: count from the last one.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return 0;
  if (text[name_end + 2] == 'Z' || text[name_end + 2] == 'X') return 0;
  std::size_t at = name_end + 1;
  constexpr int kFieldsBefore = 19;  // from state, field 3, to starttime, field 22
  for (int i = 0; i < kFieldsBefore && at != std::string::npos; ++i)
    at = text.find(' ', at + 1);
  if (at == std::string::npos) return 0;
  const std::size_t end = text.find(' ', at + 1);
  return parse_int<std::uint64_t>(std::string_view(text).substr(at + 1, end - at - 1)).value_or(0);
}

}  // namespace

Result<std::uint32_t> throttle_reasons_of(std::string_view name) {
  constexpr std::pair<std::string_view, std::uint32_t> kNames[] = {{"auto", kThrottleAuto},
                                                                   {"none", kThrottleNone},
                                                                   {"idle", kThrottleIdle},
                                                                   {"power", kThrottlePower},
                                                                   {"thermal", kThrottleThermal}};
  for (const auto& [known, reasons] : kNames) {
    if (known == name) return reasons;
  }
  return Error{Code::kCorrupt, fmt::format("throttle reason {}: unknown", name),
               "auto, none, idle, power or thermal"};
}

std::string telemetry_folder() {
  const char* const set = std::getenv("KANSOKU_SOFTGPU_DIR");
  if (set != nullptr && *set != '\0') return set;
  return fmt::format("/dev/shm/kansoku-softgpu-{}", getuid());
}

std::array<char, 16> device_uuid(int ordinal) {
  std::array<char, 16> uuid{'K', 'A', 'N', 'S', 'O', 'K', 'U', '-', 'S', 'O', 'F', 'T'};
  uuid[15] = static_cast<char>(ordinal);
  return uuid;
}

std::string uuid_text(const std::array<char, 16>& uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid[i]));
  }
  return text;
}

std::vector<int> visible_devices(int count, const char* setting) {
  std::vector<int> out;
  if (setting == nullptr) {
    for (int i = 0; i < count; ++i)
      out.push_back(i);
    return out;
  }
  constexpr std::string_view kUuid = "GPU-";
  const auto device_of = [&](std::string_view word) {
    word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
    word = word.substr(0, word.find_last_not_of(' ') + 1);
    if (!word.starts_with(kUuid)) return parse_int<int>(word).value_or(-1);
    int found = -1;
    for (int i = 0; i < count; ++i) {
      if (!uuid_text(device_uuid(i)).starts_with(word)) continue;
      if (found >= 0) return -1;  // it means several
      found = i;
    }
    return found;
  };
  for (std::string_view rest = setting;;) {
    const std::size_t comma = rest.find(',');
    const int device = device_of(rest.substr(0, comma));
    const bool is_new = std::find(out.begin(), out.end(), device) == out.end();
    if (device < 0 || device >= count || !is_new) return out;
    out.push_back(device);
    if (comma == std::string_view::npos) return out;
    rest.remove_prefix(comma + 1);
  }
}

int device_count_setting() {
  const char* const set = std::getenv("KANSOKU_SOFTGPU_DEVICES");
  if (set == nullptr) return 1;
  const auto count = parse_int<int>(set);
  return count && *count >= 1 && *count <= kDevicesMax ? *count : 1;
}

std::uint64_t memory_setting() {
  const char* const set = std::getenv("KANSOKU_SOFTGPU_MEMORY");
  if (set == nullptr) return kMemoryDefault;
  const auto bytes = parse_bytes(set);
  return bytes && *bytes >= kMemoryMin && *bytes <= kMemoryMax ? *bytes : kMemoryDefault;
}

int architecture_setting() {
  const char* const set = std::getenv("KANSOKU_SOFTGPU_ARCH");
  return set != nullptr && std::string_view(set) == "sm_61" ? 61 : 80;
}

Result<Telemetry*> map_telemetry(int ordinal) {
  const std::string folder = telemetry_folder();
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return failed("make", folder);
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0) return failed("stat", folder);
  if (status.st_uid != getuid()) {
    errno = EPERM;
    return failed("use", folder);
  }
  const std::string path = fmt::format("{}/device{}", folder, ordinal);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return failed("open", path);
  // Growing an existing file to the same size changes nothing; a new one is filled with zeros.
  if (ftruncate(fd, sizeof(Telemetry)) != 0) {
    const Error error = failed("size", path);
    close(fd);
    return error;
  }
  void* const place = mmap(nullptr, sizeof(Telemetry), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (place == MAP_FAILED) return failed("map", path);
  auto* const telemetry = static_cast<Telemetry*>(place);
  std::uint32_t expected = 0;
  if (telemetry->magic.compare_exchange_strong(expected, kTelemetryMagic)) {
    telemetry->speed_permille = 1000;
    telemetry->uuid = device_uuid(ordinal);
    telemetry->memory_bytes = memory_setting();
    telemetry->version = kTelemetryVersion;
  } else if (expected != kTelemetryMagic ||
             (telemetry->version != kTelemetryVersion && telemetry->version != 0)) {
    return Error{Code::kCorrupt, fmt::format("software device: {} has another version", path),
                 "remove it when no job uses it"};
  }
  return telemetry;
}

bool is_alive(const TelemetrySlot& slot) {
  const std::uint32_t pid = slot.pid.load();
  const std::uint64_t ticks = slot.start_ticks.load();
  return pid != 0 && ticks != 0 && start_ticks_of(pid) == ticks;
}

// A slot is taken in three steps, each of which only one of several processes can make: its time is
// set to 0 if it still is the one of the process that has ended, then its pid to ours if it still
// is that one's, then the time to ours. In between it is as good as taken.
TelemetrySlot* take_slot(Telemetry& telemetry) {
  const auto self = static_cast<std::uint32_t>(getpid());
  for (TelemetrySlot& slot : telemetry.slots) {
    std::uint64_t ticks = slot.start_ticks.load();
    std::uint32_t holder = slot.pid.load();
    if (holder != 0) {
      const std::uint64_t running = start_ticks_of(holder);
      if (running != 0 && (ticks == 0 || ticks == running)) continue;
    }
    if (!slot.start_ticks.compare_exchange_strong(ticks, 0)) continue;
    if (!slot.pid.compare_exchange_strong(holder, self)) continue;
    for (auto* const value :
         {&slot.memory_bytes, &slot.busy_ns, &slot.busy_since_ns, &slot.memory_busy_ns,
          &slot.launches, &slot.copied_to_device_bytes, &slot.copied_to_host_bytes})
      *value = 0;
    slot.start_ticks = start_ticks_of(self);
    return &slot;
  }
  ++telemetry.slots_missing;
  return nullptr;
}

}  // namespace kansoku::softcuda
