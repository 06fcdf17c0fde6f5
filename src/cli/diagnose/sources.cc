// SPDX-License-Identifier: Apache-2.0
#include "cli/diagnose/sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "common/parse.h"
#include "common/time.h"
#include "diagnose/clocks.h"
#include "sys/clock.h"
#include "sys/fd.h"
#include "sys/folder.h"
#include "trace/import/chrome.h"
#include "trace/import/format.h"
#include "trace/import/imported.h"
#include "trace/import/nsight.h"
#include "trace/merge.h"
#include "trace/reader.h"

namespace kansoku::cli {
namespace {

using trace::import::Format;

constexpr std::size_t kFilesMax = 200'000;
constexpr std::uint64_t kSlowBytes = 50'000'000;  // about two seconds of reading

struct File {
  std::string path;
  bool is_listed{false};  // named by a folder, not by the user
  Format format{Format::kUnknown};
  std::size_t bytes{0};
};

std::string_view format_name(Format format) {
  switch (format) {
    case Format::kPerfetto:
      return "a Perfetto trace";
    case Format::kJson:
      return "a JSON trace";
    case Format::kFlightRecorder:
      return "a Flight Recorder dump";
    case Format::kNsight:
      return "an Nsight Systems export";
    case Format::kUnknown:
      break;
  }
  return "no trace";
}

Error of_file(const std::string& path, Error error) {
  error.what = fmt::format("{}: {}", path, error.what);
  return error;
}

/// The name of a recording's host, with that of the file where two may be of one host.
std::string host_name_of(const trace::Trace& trace, const std::string& path) {
  const auto known = trace.metadata.find("kansoku.host");
  return known == trace.metadata.end() ? path : fmt::format("{} ({})", known->second, path);
}

/// How much later `other` began than `one`: ", 74.2 s later,"; "" if they do not say.
std::string later_text(const trace::Trace& one, const trace::Trace& other) {
  const auto began = [](const trace::Trace& trace) {
    const auto found = trace.metadata.find("kansoku.recorded_at_unix_ns");
    return found == trace.metadata.end() ? std::nullopt : parse_int<std::int64_t>(found->second);
  };
  const auto first = began(one), second = began(other);
  if (!first || !second) return {};
  const double seconds = 1e-9 * (static_cast<double>(*second) - static_cast<double>(*first));
  return fmt::format(", {:.1f} s {},", std::abs(seconds), seconds < 0 ? "earlier" : "later");
}

class SourceReader {
 public:
  explicit SourceReader(const SourceOptions& options) : options_(options) {}
  Result<Sources> read(const std::vector<std::string>& paths);

 private:
  [[nodiscard]] Result<void> add(const std::string& path, bool is_listed);
  [[nodiscard]] Result<void> choose_kind();
  [[nodiscard]] Result<void> choose_windows();
  [[nodiscard]] Result<void> read_file(const File& file);
  [[nodiscard]] Result<void> read_profile(const File& file, ByteSpan bytes);
  [[nodiscard]] Result<void> add_recording(trace::Trace trace, const std::string& path);
  [[nodiscard]] Result<void> join_hosts();
  void print_progress(std::size_t done);

  SourceOptions options_;
  std::vector<File> files_;
  trace::HostMerger hosts_;                                              // kRecording
  std::vector<std::string> host_names_;                                  // of its hosts
  std::vector<std::string> recordings_;                                  // their paths
  std::map<std::pair<std::string, std::int32_t>, std::size_t> holders_;  // recordings, by job, rank
  std::uint64_t bytes_{0};
  std::set<std::int32_t> ranks_;
  std::optional<std::string> without_rank_;
  Sources out_;
};

Result<void> SourceReader::add(const std::string& path, bool is_listed) {
  TRY(const auto mapped, sys::MappedFile::open(path));
  File file{.path = path, .is_listed = is_listed};
  file.format = trace::import::format_of(mapped.bytes());
  file.bytes = mapped.bytes().size();
  if (file.format == Format::kUnknown && is_listed) {
    out_.skipped.push_back(path);
    return {};
  }
  // A file of no known format goes to our own reader, whose errors name offsets.
  if (file.format == Format::kUnknown) file.format = Format::kPerfetto;
  if (files_.size() >= kFilesMax)
    return Error{Code::kLimit, fmt::format("read traces: more than {} files", kFilesMax)};
  bytes_ += file.bytes;
  files_.push_back(std::move(file));
  return {};
}

Result<void> SourceReader::choose_kind() {
  if (files_.empty())
    return Error{Code::kNotFound, "read traces: no file has a supported format",
                 "docs/import.md lists the formats"};
  const auto kind_of = [](Format format) {
    if (format == Format::kPerfetto) return Sources::Kind::kRecording;
    return format == Format::kFlightRecorder ? Sources::Kind::kDumps : Sources::Kind::kProfiles;
  };
  out_.kind = kind_of(files_.front().format);
  for (const File& file : files_) {
    if (kind_of(file.format) == out_.kind) continue;
    return Error{
        Code::kUnsupported,
        fmt::format("read traces: {} is {}, {} is {}", files_.front().path,
                    format_name(files_.front().format), file.path, format_name(file.format)),
        "diagnose files of one kind at a time"};
  }
  return {};
}

using Windows = std::map<std::int64_t, std::size_t>;  // by time: file

/// The newest window of the worker that stopped first, where workers have unequally many: ranks are
/// compared at one time. Nothing where all have as many, since clocks may differ.
std::optional<std::int64_t> common_moment(const std::map<std::string, Windows>& workers) {
  std::optional<std::int64_t> out;
  bool are_equal = true;
  for (const auto& [worker, files] : workers) {
    are_equal = are_equal && files.size() == workers.begin()->second.size();
    const std::int64_t newest = files.rbegin()->first;
    out = out ? std::min(*out, newest) : newest;
  }
  return are_equal ? std::nullopt : out;
}

/// Its number, from 1.
std::size_t nearest_window(const Windows& files, std::int64_t moment) {
  std::size_t number = 0, best = 0;
  std::uint64_t least = UINT64_MAX;
  for (const auto& [time_ms, file] : files) {
    ++number;
    const auto apart =
        time_ms > moment ? static_cast<std::uint64_t>(time_ms) - static_cast<std::uint64_t>(moment)
                         : static_cast<std::uint64_t>(moment) - static_cast<std::uint64_t>(time_ms);
    if (apart <= least) {
      least = apart;
      best = number;
    }
  }
  return best;
}

/// A worker's windows are one time each: joined, they would be two workers.
Result<void> SourceReader::choose_windows() {
  std::map<std::string, Windows> windows;  // by worker
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const auto name = trace::import::window_of_file_name(files_[i].path);
    const std::string folder = files_[i].path.substr(0, files_[i].path.rfind('/') + 1);
    if (name && files_[i].format == Format::kJson)
      windows[folder + std::string(name->worker)].emplace(name->time_ms, i);
  }
  std::set<std::size_t> left_out;
  if (options_.window && windows.empty() && *options_.window != 1)
    return Error{Code::kNotFound, fmt::format("read traces: no window {}", *options_.window),
                 "these files are no windows of a worker"};
  const auto moment = options_.window ? std::nullopt : common_moment(windows);
  for (const auto& [worker, files] : windows) {
    const std::size_t wanted =
        options_.window.value_or(moment ? nearest_window(files, *moment) : files.size());
    if (wanted < 1 || wanted > files.size()) {
      return Error{Code::kNotFound, fmt::format("read traces: {} has no window {}", worker, wanted),
                   fmt::format("it has {}", files.size())};
    }
    std::size_t number = 0;
    for (const auto& [time_ms, file] : files) {
      if (++number != wanted) left_out.insert(file);
    }
    if (files.size() == 1) continue;
    out_.notes.push_back(
        fmt::format("{} has {} windows: this is number {}{}; --window 1 to {} takes another",
                    worker, files.size(), wanted,
                    wanted == files.size() ? ", the newest"
                    : moment               ? ", the nearest to the newest that all workers have"
                                           : "",
                    files.size()));
  }
  std::size_t at = 0;
  std::erase_if(files_, [&](const File&) { return left_out.contains(at++); });
  return {};
}

Result<void> SourceReader::read_profile(const File& file, ByteSpan bytes) {
  const auto imported = file.format == Format::kNsight
                            ? trace::import::import_nsight(bytes, file.path, {}, out_.trace)
                            : trace::import::import_chrome(bytes, file.path, {}, out_.trace);
  if (!imported && file.is_listed && imported.error().code == Code::kNotFound) {
    out_.skipped.push_back(file.path);  // JSON or a database, but no trace
    return {};
  }
  if (!imported) return of_file(file.path, imported.error());
  if (imported->rank == trace::kNoRank) {
    if (without_rank_) {
      return Error{
          Code::kUnsupported,
          fmt::format("read traces: neither {} nor {} names its rank", *without_rank_, file.path),
          "set the key distributedInfo.rank, or use a file name such as rank-3.json"};
    }
    without_rank_ = file.path;
  } else if (!ranks_.insert(imported->rank).second) {
    return Error{Code::kUnsupported,
                 fmt::format("{}: a second trace of rank {}", file.path, imported->rank)};
  }
  return {};
}

Result<void> SourceReader::read_file(const File& file) {
  TRY(const auto mapped, sys::MappedFile::open(file.path));
  switch (out_.kind) {
    case Sources::Kind::kRecording: {
      auto trace = trace::read_trace(mapped.bytes());
      if (!trace) return of_file(file.path, std::move(trace).error());
      return add_recording(std::move(*trace), file.path);
    }
    case Sources::Kind::kDumps: {
      auto dump = trace::import::read_flight_recorder(mapped.bytes(), file.path, {});
      if (!dump) return of_file(file.path, std::move(dump).error());
      out_.dumps.push_back(std::move(*dump));
      return {};
    }
    case Sources::Kind::kProfiles:
      return read_profile(file, mapped.bytes());
  }
  return {};
}

/// Each recording holds other ranks of the job. Two that hold the same one are two times, or one
/// twice: joined, all would seem to wait for each other in between.
Result<void> SourceReader::add_recording(trace::Trace trace, const std::string& path) {
  for (const trace::Process& process : trace.processes) {
    if (process.rank == trace::kNoRank || trace.str(process.role) != "rank") continue;
    const std::pair key(std::string(trace.str(process.job)), process.rank);
    const auto holder = holders_.emplace(key, recordings_.size()).first;
    if (holder->second == recordings_.size()) continue;
    const std::string& other = recordings_[holder->second];
    return Error{
        Code::kUnsupported,
        fmt::format("{} and {} both hold rank {} of job {}: recordings of different times{} are "
                    "not joined",
                    other, path, key.second, key.first, later_text(hosts_.trace(), trace)),
        fmt::format("compare them: kansoku diagnose {} --save-baseline before.json; kansoku "
                    "diagnose {} --baseline before.json",
                    other, path)};
  }
  recordings_.push_back(path);
  host_names_.push_back(host_name_of(trace, path));
  if (const auto added = hosts_.add(std::move(trace)); !added) return of_file(path, added.error());
  return {};
}

/// One clock for all recordings; notes tell each correction.
Result<void> SourceReader::join_hosts() {
  if (hosts_.host_count() > 1) {
    TRY(const auto clocks, diagnose::host_clocks(hosts_.trace(), hosts_.host_count()));
    for (std::size_t host = 1; host < clocks.size(); ++host) {
      const auto& clock = clocks[host];
      if (!clock) {
        out_.notes.push_back(fmt::format(
            "no collective connects {} to {}: their clocks are aligned by wall time only",
            host_names_[host], host_names_.front()));
        continue;
      }
      hosts_.shift(host, clock->shift_ns);
      out_.notes.push_back(fmt::format(
          "the clock of {} was shifted by {:+.3f} ms against {} after alignment by wall time, "
          "from the bounds of {} messages; residual {:.3f} ms{}",
          host_names_[host], static_cast<double>(clock->shift_ns) / kNsPerMs, host_names_.front(),
          clock->message_count, static_cast<double>(clock->residual_ns) / kNsPerMs,
          clock->is_contradictory ? ": no single shift fits all of them, because the clocks drift"
                                  : ""));
    }
  }
  out_.trace = hosts_.take();
  return {};
}

void SourceReader::print_progress(std::size_t done) {
  if (bytes_ <= kSlowBytes) return;
  fmt::print(stderr, "kansoku: reading {} ({} of {}, {} MB in all)\n", files_[done].path, done + 1,
             files_.size(), bytes_ / 1'000'000);
}

Result<Sources> SourceReader::read(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (!sys::is_folder(path)) {
      TRY_VOID(add(path, false));
      continue;
    }
    TRY(const auto listed, sys::list_files(path, kFilesMax));
    for (const std::string& file : listed)
      TRY_VOID(add(file, true));
  }
  TRY_VOID(choose_kind());
  TRY_VOID(choose_windows());
  for (std::size_t i = 0; i < files_.size(); ++i) {
    print_progress(i);
    TRY_VOID(read_file(files_[i]));
  }
  if (out_.kind == Sources::Kind::kRecording) TRY_VOID(join_hosts());
  return std::move(out_);
}

}  // namespace

Result<Sources> read_sources(const std::vector<std::string>& paths, const SourceOptions& options) {
  return SourceReader(options).read(paths);
}

}  // namespace kansoku::cli
