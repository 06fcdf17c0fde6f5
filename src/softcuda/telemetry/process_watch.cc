// SPDX-License-Identifier: Apache-2.0
#include "softcuda/telemetry/process_watch.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace kansoku::softcuda {
namespace {

constexpr std::size_t kProcessesMax = 1024;

/// A descriptor of a process can be read once the process has ended, waited for or not.
bool has_ended(int handle) {
  pollfd asked{.fd = handle, .events = POLLIN, .revents = 0};
  return ::poll(&asked, 1, 0) != 0;
}

}  // namespace

ProcessWatch::~ProcessWatch() {
  forget_all();
}

void ProcessWatch::forget_all() {
  for (const auto& [pid, process] : processes_)
    ::close(process.handle);
  processes_.clear();
}

bool ProcessWatch::is_alive(const TelemetrySlot& slot) {
  const std::uint32_t pid = slot.pid.load();
  const std::uint64_t ticks = slot.start_ticks.load();
  if (pid == 0 || ticks == 0) return false;
  const std::scoped_lock lock(mutex_);
  if (const auto found = processes_.find(pid); found != processes_.end()) {
    if (found->second.start_ticks == ticks && !has_ended(found->second.handle)) return true;
    ::close(found->second.handle);
    processes_.erase(found);
  }
  const auto handle = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (handle < 0 && errno == ESRCH) return false;
  // After the descriptor was made: both are of one process if the time is right.
  const bool alive = softcuda::is_alive(slot);
  if (handle < 0) return alive;
  if (!alive) {
    ::close(handle);
    return false;
  }
  if (processes_.size() >= kProcessesMax) forget_all();
  processes_[pid] = {ticks, handle};
  return true;
}

}  // namespace kansoku::softcuda
