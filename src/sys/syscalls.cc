// SPDX-License-Identifier: Apache-2.0
#include "sys/syscalls.h"

#include <fmt/format.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>

#include "common/parse.h"
#include "sys/fd.h"

namespace kansoku::sys {
namespace {

constexpr std::size_t kTextBytesMax = 4096;

enum class First : std::uint8_t { kOther, kDescriptor, kLock };
struct Call {
  std::int64_t number;
  std::string_view name;
  First first;
};
constexpr std::string_view kSelect = "select", kPause = "nanosleep";
// Those that exist on every architecture, then those of old ones.
constexpr std::array kCalls{
    Call{SYS_read, "read", First::kDescriptor},
    Call{SYS_write, "write", First::kDescriptor},
    Call{SYS_readv, "readv", First::kDescriptor},
    Call{SYS_writev, "writev", First::kDescriptor},
    Call{SYS_pread64, "pread", First::kDescriptor},
    Call{SYS_pwrite64, "pwrite", First::kDescriptor},
    Call{SYS_recvfrom, "recvfrom", First::kDescriptor},
    Call{SYS_recvmsg, "recvmsg", First::kDescriptor},
    Call{SYS_sendto, "sendto", First::kDescriptor},
    Call{SYS_sendmsg, "sendmsg", First::kDescriptor},
    Call{SYS_accept, "accept", First::kDescriptor},
    Call{SYS_accept4, "accept", First::kDescriptor},
    Call{SYS_connect, "connect", First::kDescriptor},
    Call{SYS_fsync, "fsync", First::kDescriptor},
    Call{SYS_fdatasync, "fdatasync", First::kDescriptor},
    Call{SYS_flock, "flock", First::kDescriptor},
    Call{SYS_fcntl, "fcntl", First::kDescriptor},
    Call{SYS_ioctl, "ioctl", First::kDescriptor},
    Call{SYS_epoll_pwait, "epoll_wait", First::kDescriptor},
    Call{SYS_splice, "splice", First::kDescriptor},
    Call{SYS_futex, "futex", First::kLock},
    Call{SYS_ppoll, "poll", First::kOther},
    Call{SYS_pselect6, kSelect, First::kOther},
    Call{SYS_nanosleep, kPause, First::kOther},
    Call{SYS_clock_nanosleep, "clock_nanosleep", First::kOther},
    Call{SYS_wait4, "wait4", First::kOther},
    Call{SYS_waitid, "waitid", First::kOther},
    Call{SYS_io_getevents, "io_getevents", First::kOther},
    Call{SYS_semtimedop, "semop", First::kOther},
    Call{SYS_msgrcv, "msgrcv", First::kOther},
    Call{SYS_openat, "openat", First::kOther},
    Call{SYS_sync, "sync", First::kOther},
#ifdef SYS_poll
    Call{SYS_poll, "poll", First::kOther},
    Call{SYS_select, kSelect, First::kOther},
    Call{SYS_epoll_wait, "epoll_wait", First::kDescriptor},
    Call{SYS_pause, "pause", First::kOther},
#endif
};

const Call* find_call(std::int64_t number) {
  const auto* const found = std::find_if(kCalls.begin(), kCalls.end(),
                                         [&](const Call& call) { return call.number == number; });
  return found == kCalls.end() ? nullptr : found;
}

}  // namespace

std::optional<ThreadWait> parse_thread_wait(std::string_view untrusted) {
  const auto word = [&untrusted] {
    const std::size_t end = std::min(untrusted.find_first_of(" \n"), untrusted.size());
    const std::string_view out = untrusted.substr(0, end);
    untrusted.remove_prefix(std::min(end + 1, untrusted.size()));
    return out;
  };
  const auto number = parse_int<std::int64_t>(word());
  if (!number || *number < 0) return std::nullopt;  // "running", "-1 ..."
  const std::string_view first = word();
  if (!first.starts_with("0x")) return std::nullopt;
  const auto value = parse_int<std::uint64_t>(first.substr(2), 16);
  return value ? std::optional(ThreadWait{*number, *value}) : std::nullopt;
}

std::optional<ThreadWait> thread_wait(const std::string& proc_root, std::int32_t pid,
                                      std::int32_t tid) {
  const auto text =
      read_file(fmt::format("{}/{}/task/{}/syscall", proc_root, pid, tid), kTextBytesMax);
  return text ? parse_thread_wait(*text) : std::nullopt;
}

std::string syscall_name(const ThreadWait& wait) {
  const Call* call = find_call(wait.number);
  if (call == nullptr) return fmt::format("system call {}", wait.number);
  return std::string(call->name == kSelect && wait.first == 0 ? kPause : call->name);
}

bool takes_descriptor(std::int64_t number) {
  const Call* call = find_call(number);
  return call != nullptr && call->first == First::kDescriptor;
}

bool takes_lock(std::int64_t number) {
  const Call* call = find_call(number);
  return call != nullptr && call->first == First::kLock;
}

}  // namespace kansoku::sys
