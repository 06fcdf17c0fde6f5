// SPDX-License-Identifier: Apache-2.0
#include "sys/procfs.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <type_traits>

#include "common/parse.h"
#include "sys/fd.h"

namespace kansoku::sys {
namespace {

constexpr std::size_t kMapsLinesMax = 65536;
constexpr std::size_t kMapsBytesMax = std::size_t{64} << 20;
constexpr std::size_t kStatBytesMax = 4096;
constexpr std::size_t kArgumentBytesMax = std::size_t{8} << 20;  // the kernel allows 6 MiB
constexpr std::size_t kTasksMax = std::size_t{1} << 22;          // PID_MAX_LIMIT

/// Cuts the next word, up to `separator`, off `text`.
std::string_view cut(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return word;
}

/// "7f00-7f10 r-xp 00001000 08:01 1234    /usr/lib/libx.so", without the newline.
std::optional<Mapping> parse_maps_line(std::string_view line) {
  const auto begin = parse_int<std::uint64_t>(cut(line, '-'), 16);
  const auto end = parse_int<std::uint64_t>(cut(line, ' '), 16);
  const std::string_view rights = cut(line, ' ');
  const auto offset = parse_int<std::uint64_t>(cut(line, ' '), 16);
  const auto major = parse_int<std::uint32_t>(cut(line, ':'), 16);
  const auto minor = parse_int<std::uint32_t>(cut(line, ' '), 16);
  const auto inode = parse_int<std::uint64_t>(cut(line, ' '));
  if (!begin || !end || !offset || !major || !minor || !inode) return std::nullopt;
  if (rights.size() != 4 || *begin >= *end) return std::nullopt;
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  return Mapping{.begin = *begin,
                 .end = *end,
                 .file_offset = *offset,
                 .inode = *inode,
                 .device_major = *major,
                 .device_minor = *minor,
                 .readable = rights[0] == 'r',
                 .writable = rights[1] == 'w',
                 .executable = rights[2] == 'x',
                 .path = std::string(line)};
}

/// The numeric entries of a folder, ascending.
std::vector<std::int32_t> numeric_entries(const std::string& folder) {
  std::vector<std::int32_t> ids;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator{} && ids.size() < kTasksMax;
       entry.increment(error)) {
    const auto id = parse_int<std::int32_t>(entry->path().filename().native());
    if (id && *id > 0) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

Result<ProcStat> read_stat(const std::string& path) {
  TRY(const std::string text, read_file(path, kStatBytesMax));
  auto stat = parse_stat(text);
  if (!stat) return Error{Code::kCorrupt, fmt::format("parse {}: malformed line", path)};
  return std::move(*stat);
}

/// False if the field is one of those that are read, and malformed.
bool read_stat_field(int field, std::string_view word, ProcStat& stat) {
  const auto read = [word](auto& value) {
    const auto parsed = parse_int<std::remove_reference_t<decltype(value)>>(word);
    if (parsed) value = *parsed;
    return parsed.has_value();
  };
  switch (field) {
    case 4:
      return read(stat.parent_pid);
    case 10:
      return read(stat.minor_faults);
    case 12:
      return read(stat.major_faults);
    case 14:
      return read(stat.user_ticks);
    case 15:
      return read(stat.system_ticks);
    case 20:
      return read(stat.threads);
    case 22:
      return read(stat.start_ticks);
    case 24:
      return read(stat.resident_pages);
    default:
      return true;
  }
}

/// The strings of a /proc file whose items end in NUL bytes; a last one without is kept.
std::vector<std::string> split_nul(std::string_view text) {
  std::vector<std::string> items;
  while (!text.empty())
    items.emplace_back(cut(text, '\0'));
  return items;
}

}  // namespace

std::optional<std::uint64_t> parse_stolen_ticks(std::string_view untrusted) {
  constexpr std::string_view kAll = "cpu ";
  constexpr int kBefore = 7;  // user, nice, system, idle, iowait, irq, softirq
  const std::size_t end = untrusted.find('\n');
  if (end == std::string_view::npos || !untrusted.starts_with(kAll)) return std::nullopt;
  std::string_view line = untrusted.substr(0, end);
  line.remove_prefix(std::min(line.find_first_not_of(' ', kAll.size()), line.size()));
  for (int i = 0; i < kBefore; ++i)
    cut(line, ' ');
  return parse_int<std::uint64_t>(cut(line, ' '));
}

std::vector<Mapping> parse_maps(std::string_view untrusted) {
  std::vector<Mapping> mappings;
  for (std::size_t lines = 0; !untrusted.empty() && lines < kMapsLinesMax; ++lines) {
    auto mapping = parse_maps_line(cut(untrusted, '\n'));
    if (mapping) mappings.push_back(std::move(*mapping));
  }
  return mappings;
}

std::optional<ProcStat> parse_stat(std::string_view untrusted) {
  const std::size_t open = untrusted.find('(');
  const std::size_t close = untrusted.rfind(')');  // the comm itself may hold ')'
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
    return std::nullopt;
  }
  if (close + 3 >= untrusted.size() || untrusted[close + 1] != ' ') return std::nullopt;
  ProcStat stat;
  stat.comm = std::string(untrusted.substr(open + 1, close - open - 1));
  stat.state = untrusted[close + 2];
  if (untrusted[close + 3] != ' ') return std::nullopt;
  std::string_view rest = untrusted.substr(close + 4);
  rest = rest.substr(0, rest.find('\n'));
  // Fields are numbered as in proc(5); the rest starts at field 4. Those that nobody asks for are
  // skipped, whatever they hold.
  constexpr int kLastNeeded = 22, kLast = 24;
  for (int field = 4; field <= kLast; ++field) {
    const std::string_view word = cut(rest, ' ');
    if (!read_stat_field(field, word, stat) && field <= kLastNeeded) return std::nullopt;
  }
  return stat;
}

std::vector<std::int32_t> Procfs::pids() const {
  return numeric_entries(root_);
}

std::vector<std::int32_t> Procfs::tids(std::int32_t pid) const {
  return numeric_entries(fmt::format("{}/{}/task", root_, pid));
}

std::string parse_file_system(std::string_view untrusted, std::uint32_t device_major,
                              std::uint32_t device_minor) {
  // 36 35 98:0 /root /mount/point rw,noatime master:1 - ext4 /dev/sda1 rw
  const std::string wanted = fmt::format(" {}:{} ", device_major, device_minor);
  while (!untrusted.empty()) {
    const std::string_view line = untrusted.substr(0, untrusted.find('\n'));
    untrusted.remove_prefix(std::min(untrusted.size(), line.size() + 1));
    const auto device = line.find(wanted);
    // The third word: no path may stand for it.
    if (device == line.npos || std::count(line.begin(), line.begin() + device, ' ') != 1) continue;
    const auto dash = line.find(" - ", device);
    if (dash == line.npos) continue;
    const std::string_view rest = line.substr(dash + 3);
    return std::string(rest.substr(0, rest.find(' ')));
  }
  return {};
}

std::string Procfs::file_system(std::int32_t pid, std::uint32_t device_major,
                                std::uint32_t device_minor) const {
  constexpr std::size_t kMountsBytesMax = 4U << 20;
  const auto text = read_file(fmt::format("{}/{}/mountinfo", root_, pid), kMountsBytesMax);
  return text ? parse_file_system(*text, device_major, device_minor) : std::string();
}

Result<std::vector<Mapping>> Procfs::maps(std::int32_t pid) const {
  TRY(const std::string text, read_file(fmt::format("{}/{}/maps", root_, pid), kMapsBytesMax));
  return parse_maps(text);
}

std::optional<std::uint64_t> Procfs::stolen_ns() const {
  constexpr std::size_t kHeadBytes = 4096;
  // Beyond its first line it has one for each processor and interrupt.
  auto file = Fd::open_read(root_ + "/stat");
  if (!file) return std::nullopt;
  std::array<char, kHeadBytes> text{};
  const ssize_t got = ::pread(file->raw(), text.data(), text.size(), 0);
  const long ticks = ::sysconf(_SC_CLK_TCK);
  if (got <= 0 || ticks <= 0) return std::nullopt;
  const auto stolen = parse_stolen_ticks({text.data(), static_cast<std::size_t>(got)});
  if (!stolen) return std::nullopt;
  return *stolen * (1'000'000'000 / static_cast<std::uint64_t>(ticks));
}

Result<ProcStat> Procfs::stat(std::int32_t pid) const {
  return read_stat(fmt::format("{}/{}/stat", root_, pid));
}

Result<ProcStat> Procfs::thread_stat(std::int32_t pid, std::int32_t tid) const {
  return read_stat(fmt::format("{}/{}/task/{}/stat", root_, pid, tid));
}

Result<std::vector<std::string>> Procfs::cmdline(std::int32_t pid) const {
  TRY(const std::string text,
      read_file(fmt::format("{}/{}/cmdline", root_, pid), kArgumentBytesMax));
  return split_nul(text);
}

Result<std::map<std::string, std::string>> Procfs::environ(std::int32_t pid) const {
  TRY(const std::string text,
      read_file(fmt::format("{}/{}/environ", root_, pid), kArgumentBytesMax));
  std::map<std::string, std::string> variables;
  for (const std::string& item : split_nul(text)) {
    const std::size_t equals = item.find('=');
    if (equals == std::string::npos || equals == 0) continue;
    variables.emplace(item.substr(0, equals), item.substr(equals + 1));  // getenv takes the first
  }
  return variables;
}

Procfs::Owner Procfs::owner(std::int32_t pid) const {
  Owner out;
  struct stat info {};
  if (::stat(fmt::format("{}/{}", root_, pid).c_str(), &info) == 0) out.user = info.st_uid;
  if (::stat(fmt::format("{}/{}/ns/net", root_, pid).c_str(), &info) == 0)
    out.network = info.st_ino;
  return out;
}

std::string Procfs::through_root(std::int32_t pid, std::string_view path) const {
  return fmt::format("{}/{}/root{}{}", root_, pid, path.starts_with('/') ? "" : "/", path);
}

std::string Procfs::map_file(std::int32_t pid, const Mapping& mapping) const {
  return fmt::format("{}/{}/map_files/{:x}-{:x}", root_, pid, mapping.begin, mapping.end);
}

}  // namespace kansoku::sys
