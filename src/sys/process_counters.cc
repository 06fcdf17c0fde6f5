// SPDX-License-Identifier: Apache-2.0
#include "sys/process_counters.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "common/parse.h"
#include "sys/internal/kept_file.h"
#include "sys/procfs.h"

namespace kansoku::sys {
namespace {

std::uint64_t ticks_a_second() {
  const long ticks = ::sysconf(_SC_CLK_TCK);
  return ticks > 0 ? static_cast<std::uint64_t>(ticks) : 100;
}
std::uint64_t page_bytes() {
  const long bytes = ::sysconf(_SC_PAGESIZE);
  return bytes > 0 ? static_cast<std::uint64_t>(bytes) : 4096;
}

Error malformed(std::int32_t pid) {
  return Error{Code::kCorrupt, fmt::format("parse stat of process {}: malformed line", pid)};
}

}  // namespace

struct ProcessSampler::Files {
  std::int32_t pid{0};
  std::uint64_t start_ticks{0};
  KeptFile stat, io, schedstat;
  std::uint64_t tick_ns{10'000'000}, page_bytes{4096};
};

ProcessSampler::ProcessSampler(std::unique_ptr<Files> files) : files_(std::move(files)) {}
ProcessSampler::ProcessSampler(ProcessSampler&&) noexcept = default;
ProcessSampler& ProcessSampler::operator=(ProcessSampler&&) noexcept = default;
ProcessSampler::~ProcessSampler() = default;

std::uint64_t ProcessSampler::start_ticks() const {
  return files_->start_ticks;
}

StorageBytes parse_io(std::string_view untrusted) {
  constexpr std::string_view kRead = "read_bytes: ", kWritten = "write_bytes: ";
  StorageBytes out;
  while (!untrusted.empty()) {
    const std::string_view line = cut_line(untrusted);
    if (line.starts_with(kRead)) out.read = parse_int<std::uint64_t>(line.substr(kRead.size()));
    if (line.starts_with(kWritten))
      out.written = parse_int<std::uint64_t>(line.substr(kWritten.size()));
  }
  return out;
}

Result<ProcessSampler> ProcessSampler::open(std::int32_t pid) {
  return open(pid, Options{});
}

Result<ProcessSampler> ProcessSampler::open(std::int32_t pid, const Options& options) {
  const std::string folder = fmt::format("{}/{}", options.proc_root, pid);
  const int raw = ::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (raw < 0) return errno_error(errno, "open", folder);
  // The folder is of one process: what is opened in it cannot be of a later one with its pid.
  const Fd at = Fd::adopt(raw);
  auto files = std::make_unique<Files>();
  files->pid = pid;
  files->tick_ns = 1'000'000'000 / ticks_a_second();
  files->page_bytes = sys::page_bytes();
  const std::string stat_path =
      options.main_thread_only ? fmt::format("task/{}/stat", pid) : "stat";
  TRY(files->stat, KeptFile::open(stat_path, at.raw()));
  if (options.reads_storage) {
    if (auto opened = KeptFile::open("io", at.raw())) files->io = std::move(*opened);
  }
  if (options.main_schedule) {
    if (auto opened = KeptFile::open("schedstat", at.raw())) files->schedstat = std::move(*opened);
  }
  KeptFile::Buffer buffer;
  TRY(const std::string_view text, files->stat.read(buffer));
  const auto stat = parse_stat(text);
  if (!stat) return malformed(pid);
  files->start_ticks = stat->start_ticks;
  return ProcessSampler(std::move(files));
}

Result<ProcessCounters> ProcessSampler::sample() const {
  const Files& files = *files_;
  KeptFile::Buffer buffer;
  TRY(const std::string_view text, files.stat.read(buffer));
  const auto stat = parse_stat(text);
  if (!stat) return malformed(files.pid);
  // Cannot happen with the kernel's /proc; a folder laid out like it may hold anything.
  if (stat->start_ticks != files.start_ticks)
    return Error{Code::kNotFound, fmt::format("process {}: its pid has been reused", files.pid)};
  ProcessCounters out{.state = stat->state,
                      .user_ns = stat->user_ticks * files.tick_ns,
                      .system_ns = stat->system_ticks * files.tick_ns,
                      .minor_faults = stat->minor_faults,
                      .major_faults = stat->major_faults,
                      .threads = stat->threads,
                      .resident_bytes = stat->resident_pages * files.page_bytes,
                      .read_bytes = {},
                      .written_bytes = {},
                      .main_run_ns = {},
                      .main_wait_ns = {}};
  if (files.io.is_open()) {
    if (const auto io = files.io.read(buffer)) {  // may not be read: missing
      const StorageBytes bytes = parse_io(*io);
      out.read_bytes = bytes.read;
      out.written_bytes = bytes.written;
    }
  }
  if (files.schedstat.is_open()) {
    if (const auto line = files.schedstat.read(buffer)) {  // "RUN WAIT SLICES"
      const std::size_t first = line->find(' '), second = line->find(' ', first + 1);
      if (first != std::string_view::npos && second != std::string_view::npos) {
        out.main_run_ns = parse_int<std::uint64_t>(line->substr(0, first));
        out.main_wait_ns = parse_int<std::uint64_t>(line->substr(first + 1, second - first - 1));
      }
    }
  }
  return out;
}

}  // namespace kansoku::sys
