// SPDX-License-Identifier: Apache-2.0
#include "agent/incident_recorder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <thread>

#include "capture/cuda_source.h"
#include "capture/hang/flight_source.h"
#include "capture/recorder.h"
#include "sys/clock.h"
#include "sys/fd.h"

namespace kansoku::agent {
namespace {

constexpr std::size_t kJobsMax = 1024;
constexpr std::string_view kEnd = ".pftrace", kPart = ".part";

std::string folder_of(const std::string& state_folder) {
  return state_folder + "/recordings";
}

struct Kept {
  std::filesystem::path path;
  std::filesystem::file_time_type time;
  std::uint64_t bytes{0};
};

/// Recordings of the folder, the oldest first.
std::vector<Kept> kept_in(const std::string& folder) {
  std::vector<Kept> out;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(folder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::error_code of_file;
    Kept kept{entry->path(), entry->last_write_time(of_file), entry->file_size(of_file)};
    if (!of_file) out.push_back(std::move(kept));
  }
  std::sort(out.begin(), out.end(), [](const Kept& a, const Kept& b) { return a.time < b.time; });
  return out;
}

/// Free bytes of a folder's file system; 0 if it does not say.
std::uint64_t free_bytes(const std::string& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return 0;
  return std::uint64_t{info.f_bavail} * info.f_frsize;
}

}  // namespace

std::string recording_path(const std::string& state_folder, const std::string& id) {
  return fmt::format("{}/{}{}", folder_of(state_folder), id, kEnd);
}

struct IncidentRecorder::Running {
  std::string id, path;
  std::vector<std::int32_t> pids;
  std::atomic<bool> should_stop{false}, is_over{false};
  std::atomic<std::int64_t> cpu_ns{0};
  std::optional<Error> problem;  // the thread's until is_over
  std::thread thread;

  void record(const Clock& clock, const sys::Procfs& procfs, const IncidentRecording& options) {
    const auto done = make(clock, procfs, options);
    if (!done) problem = done.error();
    note_cpu();
    is_over.store(true, std::memory_order_release);
  }

  void note_cpu() { cpu_ns.store(sys::thread_cpu_time().count(), std::memory_order_relaxed); }

  Result<void> make(const Clock& clock, const sys::Procfs& procfs,
                    const IncidentRecording& options) {
    const std::string part = path + std::string(kPart);
    TRY(const auto sink, sys::FileSink::create(part, {true, options.file_bytes_max}));
    capture::RecorderOptions recording;
    recording.packs = options.packs;
    recording.metadata["kansoku.incident"] = id;
    // Every operation of the device, where the CUDA library is: its watcher yields to this.
    recording.sources.emplace_back([&](trace::Writer& writer) -> std::unique_ptr<capture::Source> {
      return std::make_unique<capture::CudaSource>(writer, clock, procfs,
                                                   capture::CudaSourceOptions{});
    });
    recording.sources.push_back(capture::hang::flight_source_maker(procfs));
    TRY(const auto recorder, capture::Recorder::create(*sink, clock, procfs, std::move(recording)));
    if (std::none_of(pids.begin(), pids.end(),
                     [&](std::int32_t pid) { return procfs.stat(pid).has_value(); }))
      return Error{Code::kNotFound, "record the incident's processes: they have ended"};
    recorder->observe_trees(pids);
    const auto recorded = recorder->run(
        options.duration,
        [this] {
          note_cpu();
          return should_stop.load(std::memory_order_relaxed);
        },
        nullptr);
    // One that grew to its limit is whole up to there.
    if (!recorded && recorded.error().code != Code::kLimit) return recorded.error();
    TRY_VOID(sink->finish());
    if (::rename(part.c_str(), path.c_str()) != 0) return errno_error(errno, "rename", part);
    return {};
  }
};

IncidentRecorder::IncidentRecorder(const Clock& clock, const sys::Procfs& procfs,
                                   IncidentRecording options, std::string state_folder,
                                   std::function<void(const std::string&)> log)
    : clock_(clock),
      procfs_(procfs),
      options_(std::move(options)),
      state_folder_(std::move(state_folder)),
      log_(std::move(log)) {}

IncidentRecorder::~IncidentRecorder() {
  if (!running_) return;
  running_->should_stop.store(true, std::memory_order_relaxed);
  running_->thread.join();
}

void IncidentRecorder::skip(const trace::IncidentRecord& incident, const std::string& why) {
  ++counters_.skipped;
  if (log_) log_(fmt::format("incident {} is not recorded: {}", incident.id.substr(0, 8), why));
}

// For one more, as large as one may be.
Result<void> IncidentRecorder::make_room() const {
  const std::string folder = folder_of(state_folder_);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return errno_error(errno, "create folder", folder);
  std::vector<Kept> kept = kept_in(folder);
  const auto remove = [](const Kept& one) {
    std::error_code error;
    return std::filesystem::remove(one.path, error);
  };
  // None is being made: a begun one is of an agent that was killed.
  std::erase_if(kept,
                [&](const Kept& one) { return one.path.extension() == kPart && remove(one); });
  std::uint64_t bytes = 0;
  for (const Kept& one : kept)
    bytes += one.bytes;
  std::size_t left = kept.size();
  for (const Kept& oldest : kept) {
    if (left < options_.count_max && bytes + options_.file_bytes_max <= options_.bytes_max) break;
    if (!remove(oldest)) break;
    bytes -= oldest.bytes;
    --left;
  }
  // The disk is others', too: half of the free space stays free.
  if (free_bytes(folder) / 2 < options_.file_bytes_max)
    return Error{Code::kLimit, fmt::format("less than {} MB are free in {}",
                                           2 * options_.file_bytes_max >> 20U, folder)};
  return {};
}

void IncidentRecorder::on_opened(const trace::IncidentRecord& incident,
                                 std::vector<std::int32_t> pids, BootTime now) {
  if (options_.duration == Nanos{}) return;
  poll();
  if (running_) return skip(incident, "another recording is running");
  const auto last = last_of_job_.find(incident.job);
  if (last != last_of_job_.end() && now - last->second < options_.pause)
    return skip(incident, "its job was recorded recently");
  if (const auto room = make_room(); !room) return skip(incident, room.error().what);
  if (last_of_job_.size() >= kJobsMax)
    std::erase_if(last_of_job_,
                  [&](const auto& one) { return now - one.second >= options_.pause; });
  if (last_of_job_.size() >= kJobsMax) return skip(incident, "too many jobs");
  last_of_job_[incident.job] = now;
  running_ = std::make_unique<Running>();
  running_->id = incident.id;
  running_->path = recording_path(state_folder_, incident.id);
  running_->pids = std::move(pids);
  running_->thread =
      std::thread([this, raw = running_.get()] { raw->record(clock_, procfs_, options_); });
}

void IncidentRecorder::poll() {
  if (!running_ || !running_->is_over.load(std::memory_order_acquire)) return;
  running_->thread.join();
  const Running& over = *running_;
  cpu_s_ += 1e-9 * static_cast<double>(over.cpu_ns.load(std::memory_order_relaxed));
  if (over.problem) {
    ++counters_.failed;
    ::unlink((over.path + std::string(kPart)).c_str());
    if (log_)
      log_(fmt::format("recording of incident {}: {}", over.id.substr(0, 8), over.problem->what));
  } else {
    ++counters_.made;
    if (log_)
      log_(fmt::format("recorded incident {}: `kansoku incidents show {}`", over.id.substr(0, 8),
                       over.id.substr(0, 8)));
  }
  running_.reset();
}

double IncidentRecorder::cpu_s() const {
  const std::int64_t running_ns = running_ ? running_->cpu_ns.load(std::memory_order_relaxed) : 0;
  return cpu_s_ + 1e-9 * static_cast<double>(running_ns);
}

}  // namespace kansoku::agent
