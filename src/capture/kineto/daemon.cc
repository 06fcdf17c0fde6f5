// SPDX-License-Identifier: Apache-2.0
#include "capture/kineto/daemon.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "sys/clock.h"

namespace kansoku::capture::kineto {
namespace {

constexpr std::size_t kTypeBytes = 32;
constexpr std::size_t kHeaderBytes = 8 + kTypeBytes;  // size_t size; char type[32]
constexpr std::size_t kDatagramBytesMax = 64 << 10;
constexpr std::size_t kAtOnceMax = 4096;  // datagrams a pump(), so that a flood cannot hold us

template <class T>
T load(std::string_view bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::string framed(std::string_view type, std::string_view payload) {
  const std::uint64_t size = payload.size();
  std::string out(kHeaderBytes, '\0');
  std::memcpy(out.data(), &size, sizeof size);
  std::memcpy(out.data() + sizeof size, type.data(), std::min(type.size(), kTypeBytes - 1));
  out.append(payload);
  return out;
}

std::string_view type_of(std::string_view datagram) {
  const std::string_view field = datagram.substr(8, kTypeBytes);
  return field.substr(0, std::min(field.find('\0'), field.size()));
}

}  // namespace

Result<std::unique_ptr<Daemon>> Daemon::open(const DaemonOptions& options) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (options.name.empty() || options.name.size() >= sizeof(address.sun_path) - 1)
    return Error{Code::kUnsupported, "open profiler socket: invalid name"};
  std::memcpy(address.sun_path + 1, options.name.data(), options.name.size());
  const auto length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + options.name.size());
  const int raw = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (raw < 0) return errno_error(errno, "open", "profiler socket");
  sys::Fd socket = sys::Fd::adopt(raw);
  const int on = 1;
  if (::setsockopt(socket.raw(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0)
    return errno_error(errno, "ask for credentials on", "profiler socket");
  if (::bind(socket.raw(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno == EADDRINUSE) {
      return Error{Code::kUnavailable,
                   fmt::format("open profiler socket {}: another daemon has it", options.name),
                   "only one dynolog or kansoku can serve the profilers of a host"};
    }
    return errno_error(errno, "bind", "profiler socket");
  }
  return std::unique_ptr<Daemon>(new Daemon(std::move(socket), options));
}

std::size_t Daemon::pump(BootTime now) {
  std::size_t count = 0;
  while (count < kAtOnceMax && handle_one(now))
    ++count;
  forget_silent(now);
  return count;
}

bool Daemon::handle_one(BootTime now) {
  std::array<char, kDatagramBytesMax> bytes;
  sockaddr_un from{};
  iovec part{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control{};
  msghdr message{};
  message.msg_name = &from;
  message.msg_namelen = sizeof from;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(socket_.raw(), &message, MSG_DONTWAIT);
  if (got < 0) return errno == EINTR;
  ++counters_.datagrams;
  ucred sender{};
  sender.uid = static_cast<uid_t>(-1);
  for (const cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
       head = CMSG_NXTHDR(&message, const_cast<cmsghdr*>(head))) {  // NOLINT: C interface
    if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_CREDENTIALS)
      std::memcpy(&sender, CMSG_DATA(head), sizeof sender);
  }
  if (sender.uid != ::geteuid() && sender.uid != 0 && ::geteuid() != 0) {
    ++counters_.foreign;
    return true;
  }
  if ((message.msg_flags & MSG_TRUNC) != 0) {
    ++counters_.bad;
    return true;
  }
  const std::string reply =
      answer(std::string_view(bytes.data(), static_cast<std::size_t>(got)), sender.pid, now);
  if (reply.empty()) return true;
  if (::sendto(socket_.raw(), reply.data(), reply.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&from), message.msg_namelen) < 0)
    ++counters_.unanswered;  // gone, or its own queue is full: it asks again
  return true;
}

Daemon::Process* Daemon::touch(std::int32_t pid, BootTime now) {
  const auto known = processes_.find(pid);
  if (known == processes_.end() && processes_.size() >= options_.processes_max) {
    ++counters_.over_limit;
    return nullptr;
  }
  Process& process = processes_[pid];
  process.seen = now;
  return &process;
}

/// The whole reply, or nothing for a message that deserves none.
std::string Daemon::answer(std::string_view datagram, pid_t sender, BootTime now) {
  const auto bad = [this] {
    ++counters_.bad;
    return std::string();
  };
  if (datagram.size() < kHeaderBytes) return bad();
  const auto size = load<std::uint64_t>(datagram, 0);
  const std::string_view payload = datagram.substr(kHeaderBytes);
  if (size != payload.size()) return bad();
  const std::string_view type = type_of(datagram);
  if (type == "ctxt") {  // int32 gpu, int32 pid, int64 job
    if (payload.size() != 16) return bad();
    if (load<std::int32_t>(payload, 4) != sender) {
      ++counters_.foreign;
      return {};
    }
    if (touch(sender, now) == nullptr) return {};
    const auto count = static_cast<std::int32_t>(processes_.size());
    return framed("ctxt", {reinterpret_cast<const char*>(&count), sizeof count});
  }
  if (type == "req") {  // int32 kind, int32 n, int64 job, int32 pids[n]: own pid first
    if (payload.size() < 16) return bad();
    const auto count = load<std::int32_t>(payload, 4);
    if (count < 1 || static_cast<std::size_t>(count) != (payload.size() - 16) / 4 ||
        (payload.size() - 16) % 4 != 0)
      return bad();
    if (load<std::int32_t>(payload, 16) != sender) {
      ++counters_.foreign;
      return {};
    }
    Process* process = touch(sender, now);
    if (process == nullptr) return {};
    const bool is_late = has_window_ && sys::wall_time_ns() / 1'000'000 >
                                            window_.start_unix_ms + window_.duration_ms;
    if (!has_window_ || process->has_window || is_late) return framed("req", "");
    process->has_window = true;
    return framed("req", config_for(sender));
  }
  return bad();
}

std::string Daemon::config_for(std::int32_t pid) const {
  std::string text = fmt::format(
      "ACTIVITIES_LOG_FILE={}/"
      "kineto_{}.json\nPROFILE_START_TIME={}\nACTIVITIES_DURATION_MSECS={}\n",
      window_.folder, pid, window_.start_unix_ms, window_.duration_ms);
  if (window_.with_stacks) text += "PROFILE_WITH_STACK=true\n";
  return text;
}

void Daemon::request(const Window& window) {
  window_ = window;
  has_window_ = true;
  for (auto& [pid, process] : processes_)
    process.has_window = false;
}

void Daemon::forget_silent(BootTime now) {
  std::erase_if(processes_,
                [&](const auto& entry) { return now - entry.second.seen > options_.forget_after; });
}

std::vector<std::int32_t> Daemon::processes() const {
  std::vector<std::int32_t> out;
  for (const auto& [pid, process] : processes_)
    out.push_back(pid);
  return out;
}

std::size_t Daemon::handed_out() const {
  return static_cast<std::size_t>(std::count_if(processes_.begin(), processes_.end(),
                                                [](const auto& e) { return e.second.has_window; }));
}

}  // namespace kansoku::capture::kineto
