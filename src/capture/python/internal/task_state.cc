// SPDX-License-Identifier: Apache-2.0
#include "capture/python/internal/task_state.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "common/parse.h"

namespace kansoku::capture::python {
namespace {

constexpr std::size_t kOpenTasksMax = 64;
constexpr std::size_t kKnownMax = 4096;
constexpr std::size_t kStatusBytesMax = 65536;

/// Process ids in the "NSpid:" line of a status file, ours first, the target's own last.
std::vector<std::int32_t> nested_pids(std::string_view untrusted_status) {
  constexpr std::string_view kKey = "\nNSpid:";
  std::vector<std::int32_t> pids;
  const std::size_t at = untrusted_status.find(kKey);
  if (at == std::string_view::npos) return pids;
  std::string_view line = untrusted_status.substr(at + kKey.size());
  line = line.substr(0, line.find('\n'));
  while (!line.empty()) {
    line.remove_prefix(std::min(line.find_first_not_of("\t "), line.size()));
    const std::size_t end = std::min(line.find_first_of("\t "), line.size());
    const auto pid = parse_int<std::int32_t>(line.substr(0, end));
    if (!pid) break;
    pids.push_back(*pid);
    line.remove_prefix(end);
  }
  return pids;
}

trace::SampleState state_of(char letter) {
  switch (letter) {
    case 'R':
      return trace::SampleState::kRunning;
    case 'S':
      return trace::SampleState::kSleeping;
    case 'D':
      return trace::SampleState::kDisk;
    case 'T':
    case 't':
      return trace::SampleState::kStopped;
    default:
      return trace::SampleState::kUnknown;
  }
}

}  // namespace

TaskReading parse_task(std::string_view untrusted) {
  constexpr int kBefore = 7;  // numbers between the state and the minor faults, and the state
  const std::size_t close = untrusted.rfind(')');
  if (close == std::string_view::npos || close + 2 >= untrusted.size()) return {};
  TaskReading out{.state = state_of(untrusted[close + 2])};
  std::string_view rest = untrusted.substr(close + 2);
  for (int i = 0; i < kBefore; ++i) {
    const std::size_t space = rest.find(' ');
    if (space == std::string_view::npos) return out;
    rest.remove_prefix(space + 1);
  }
  // Without the blank behind it the number may be cut off.
  const std::size_t end = rest.find(' ');
  if (end != std::string_view::npos)
    out.minor_faults = parse_int<std::uint64_t>(rest.substr(0, end));
  return out;
}

TaskStates::TaskStates(const std::string& proc_root, std::int32_t pid)
    : folder_(fmt::format("{}/{}/task", proc_root, pid)) {}

std::string TaskStates::path_of(std::int32_t tid, std::string_view file) const {
  return fmt::format("{}/{}/{}", folder_, tid, file);
}

bool TaskStates::exists(std::int32_t tid) const {
  return tid > 0 && ::access(path_of(tid, "stat").c_str(), F_OK) == 0;
}

TaskReading TaskStates::read(std::int32_t tid) {
  if (tid <= 0) return {};
  const auto known =
      std::find_if(tasks_.begin(), tasks_.end(), [&](const Task& task) { return task.tid == tid; });
  sys::Fd opened;
  const sys::Fd* stat = &opened;
  if (known != tasks_.end()) {
    known->used = true;
    stat = &known->stat;
  } else {
    auto fd = sys::Fd::open_read(path_of(tid, "stat"));
    if (!fd) return {};
    opened = std::move(*fd);
    if (tasks_.size() < kOpenTasksMax) {
      tasks_.push_back({.tid = tid, .stat = std::move(opened), .used = true});
      stat = &tasks_.back().stat;
    }
  }
  std::array<char, 224> text{};  // a pid, a name of at most 64 bytes and eight numbers
  const ssize_t got = ::pread(stat->raw(), text.data(), text.size(), 0);
  if (got > 0) return parse_task({text.data(), static_cast<std::size_t>(got)});
  // The thread ended; its number may come back as another thread.
  if (known != tasks_.end()) tasks_.erase(known);
  return {};
}

void TaskStates::forget_unused() {
  std::erase_if(tasks_, [](const Task& task) { return !task.used; });
  for (Task& task : tasks_)
    task.used = false;
}

ThreadIds::ThreadIds(std::int32_t pid, const std::string& proc_root, RemoteMemory& memory,
                     const TaskStates& tasks)
    : pid_(pid),
      folder_(fmt::format("{}/{}", proc_root, pid)),
      memory_(memory),
      tasks_(tasks),
      inner_pid_(pid) {
  const auto status = sys::read_file(folder_ + "/status", kStatusBytesMax);
  if (!status) return;
  const auto pids = nested_pids(*status);
  // Our own /proc may itself show another namespace than the outermost: compare by its view.
  is_nested_ = !pids.empty() && pids.back() != pid;
  if (is_nested_) inner_pid_ = pids.back();
}

std::int32_t ThreadIds::from_native(std::uint64_t untrusted_native_id) {
  if (untrusted_native_id == 0 || untrusted_native_id > INT32_MAX) return 0;
  return lookup(static_cast<std::int64_t>(untrusted_native_id));
}

std::int32_t ThreadIds::lookup(std::int64_t inner) {
  if (!is_nested_) return static_cast<std::int32_t>(inner);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto found = outer_of_.find(inner);
    if (found != outer_of_.end()) return found->second;
    if (attempt == 0) refresh();
  }
  return 0;
}

/// Reads the numbers of all threads again; a target that makes up ids must not make us do so for
/// ever.
void ThreadIds::refresh() {
  if (refreshes_left_ == 0) return;
  --refreshes_left_;
  outer_of_.clear();
  const std::string root = folder_.substr(0, folder_.find_last_of('/'));
  for (const std::int32_t tid : sys::Procfs(root).tids(pid_)) {
    if (outer_of_.size() >= kKnownMax) return;
    const auto status =
        sys::read_file(fmt::format("{}/task/{}/status", folder_, tid), kStatusBytesMax);
    if (!status) continue;
    const auto pids = nested_pids(*status);
    if (!pids.empty()) outer_of_.emplace(pids.back(), tid);
  }
}

/// struct pthread of glibc on x86-64 keeps the kernel's id at this offset. Source: nptl/descr.h.
std::int32_t ThreadIds::glibc_tid(std::uint64_t thread_id) {
  constexpr std::uint64_t kTidOffset = 720;
  std::int32_t tid = 0;
  if (thread_id < 4096 || thread_id >> 47 != 0) return 0;
  if (!memory_.read({{thread_id + kTidOffset, &tid, sizeof tid}})) return 0;
  return tid > 0 ? tid : 0;
}

std::int32_t ThreadIds::from_pthread(std::uint64_t untrusted_thread_id, bool is_main) {
  if (is_main) {
    if (!glibc_checked_) glibc_checked_ = glibc_tid(untrusted_thread_id) == inner_pid_;
    return pid_;
  }
  if (!glibc_checked_) return 0;
  const auto known = known_.find(untrusted_thread_id);
  if (known != known_.end() && tasks_.exists(known->second)) return known->second;
  const std::int32_t tid = lookup(glibc_tid(untrusted_thread_id));
  if (!tasks_.exists(tid)) return 0;
  if (known_.size() >= kKnownMax) known_.clear();
  known_.insert_or_assign(untrusted_thread_id, tid);
  return tid;
}

}  // namespace kansoku::capture::python
