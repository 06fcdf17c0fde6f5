// SPDX-License-Identifier: Apache-2.0
#include "store/internal/history_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <string_view>

#include "common/parse.h"
#include "common/text.h"
#include "sys/fd.h"
#include "sys/folder.h"

namespace kansoku::store::internal {
namespace {

constexpr std::string_view kPrefix = "windows-", kSuffix = ".duckdb", kAside = ".damaged";
constexpr std::size_t kFilesMax = 100'000;
constexpr int kAsideMax = 100;
constexpr int kOpenMax = 3;
constexpr std::string_view kOpen = "open ";

std::uint64_t one_file_bytes(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

bool exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

std::string seal_path(const std::string& path) {
  return path + ".seal";
}

/// "BYTES HASH" of a file: 64 bits of FNV-1a over words of eight bytes. Against accidents only.
Result<std::string> seal_of(const std::string& path) {
  TRY(const sys::Fd file, sys::Fd::open_read(path));
  std::vector<std::uint64_t> words(8192);
  std::uint64_t hash = 0xCBF29CE484222325ULL, bytes = 0;
  for (;;) {
    // Files are whole blocks long: only the last read may be short, and its rest is zero.
    std::fill(words.begin(), words.end(), 0);
    const ssize_t got =
        ::pread(file.raw(), words.data(), words.size() * 8, static_cast<off_t>(bytes));
    if (got < 0) return errno_error(errno, "read", path);
    if (got == 0) return fmt::format("{} {:016x}", bytes, hash);
    for (const std::uint64_t word : words) {
      hash = (hash ^ word) * 0x100000001B3ULL;
      hash ^= hash >> 29U;  // high bits would never reach low ones
    }
    bytes += static_cast<std::uint64_t>(got);
  }
}

/// N of "open N"; nothing for another seal.
std::optional<int> open_count(std::string_view seal) {
  if (!seal.starts_with(kOpen)) return std::nullopt;
  return parse_int<int>(seal.substr(kOpen.size())).value_or(0);
}

}  // namespace

std::string HistoryFiles::segment_path(std::int64_t begin_ns) const {
  return fmt::format("{}/{}{:020}{}", folder_, kPrefix, begin_ns, kSuffix);
}

std::vector<std::string> HistoryFiles::names() const {
  std::vector<std::string> out;
  const auto paths = sys::list_files(folder_, kFilesMax);
  if (!paths) return out;
  for (const std::string& path : *paths)
    out.emplace_back(base_name(path));
  return out;
}

std::vector<Segment> HistoryFiles::segments() const {
  std::vector<Segment> out;
  for (const std::string_view name : names()) {
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    const std::string_view digits =
        name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
    const auto begin = parse_int<std::int64_t>(digits);
    const std::string path = folder_ + "/" + std::string(name);
    if (begin && *begin >= 0) out.push_back({*begin, path, file_bytes(path)});
  }
  std::sort(out.begin(), out.end(),
            [](const Segment& a, const Segment& b) { return a.begin_ns < b.begin_ns; });
  return out;
}

std::vector<std::string> HistoryFiles::damaged() const {
  std::vector<std::string> out;
  for (const std::string& name : names()) {
    const std::size_t at = name.find(std::string(kSuffix) + std::string(kAside));
    if (at != std::string::npos && !name.ends_with(".wal")) out.push_back(folder_ + "/" + name);
  }
  return out;
}

std::uint64_t HistoryFiles::bytes() const {
  std::uint64_t sum = file_bytes(incidents_path());
  for (const Segment& segment : segments())
    sum += segment.bytes;
  for (const std::string& path : damaged())
    sum += file_bytes(path);
  return sum;
}

Result<std::string> HistoryFiles::set_aside(const std::string& path) {
  std::string aside = path + std::string(kAside);
  for (int i = 2; exists(aside); ++i) {
    if (i > kAsideMax)
      return Error{Code::kLimit, "set " + path + " aside: too many damaged files",
                   "inspect and remove them"};
    aside = fmt::format("{}{}{}", path, kAside, i);
  }
  if (::rename(path.c_str(), aside.c_str()) != 0) return errno_error(errno, "rename to", aside);
  ::unlink(seal_path(path).c_str());
  const std::string log = path + ".wal";
  if (exists(log) && ::rename(log.c_str(), (aside + ".wal").c_str()) != 0)
    return errno_error(errno, "rename", log);
  return aside;
}

Result<void> HistoryFiles::check(const std::string& path) {
  const auto seal = sys::read_file(seal_path(path), 256);
  // An empty one was written as the power failed; what the file is worth DuckDB finds out.
  if (!seal || seal->empty() || !exists(path)) return {};
  if (const auto count = open_count(*seal)) {
    if (*count < kOpenMax) return {};
    return Error{Code::kCorrupt,
                 fmt::format("open {}: {} runs ended before they closed it", path, *count)};
  }
  if (exists(path + ".wal")) return {};
  TRY(const std::string now, seal_of(path));
  if (now == *seal) return {};
  return Error{Code::kCorrupt, "open " + path + ": changed since Kansoku closed it"};
}

Result<void> HistoryFiles::begin_writing(const std::string& path) {
  const auto seal = sys::read_file(seal_path(path), 256);
  const int count = seal ? open_count(*seal).value_or(0) : 0;
  return sys::write_file(seal_path(path), fmt::format("{}{}", kOpen, count + 1));
}

Result<void> HistoryFiles::end_writing(const std::string& path, bool is_whole) {
  if (!is_whole || exists(path + ".wal"))
    return sys::write_file(seal_path(path), std::string(kOpen) + "0");
  TRY(const std::string seal, seal_of(path));
  return sys::write_file(seal_path(path), seal);
}

void HistoryFiles::remove(const std::string& path) {
  ::unlink(seal_path(path).c_str());
  ::unlink(path.c_str());
  ::unlink((path + ".wal").c_str());
}

std::uint64_t HistoryFiles::file_bytes(const std::string& path) {
  return one_file_bytes(path) + one_file_bytes(path + ".wal");
}

}  // namespace kansoku::store::internal
