// SPDX-License-Identifier: Apache-2.0
#include "sys/unix_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "sys/clock.h"

namespace kansoku::sys {
namespace {

constexpr int kBacklog = 64;
constexpr std::uint64_t kListenerTag = UINT64_MAX;

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path ||
      path.find('\0') != std::string::npos) {
    return Error{Code::kLimit, fmt::format("socket {}: a path has 1 to {} bytes",
                                           path.substr(0, 200), sizeof address.sun_path - 1)};
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Result<Fd> make_socket(const std::string& path) {
  const int raw = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (raw < 0) return errno_error(errno, "make socket", path);
  return Fd::adopt(raw);
}

bool connects(int socket, const sockaddr_un& address) {
  return ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

/// True if the process at the other end is of this user or of root.
bool is_trusted_peer(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return false;
  return peer.uid == 0 || peer.uid == ::geteuid();
}

/// Removes a socket that nobody listens on any more.
Result<void> remove_stale(const std::string& path, const sockaddr_un& address) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return {};
    return errno_error(errno, "stat", path);
  }
  if (!S_ISSOCK(status.st_mode))
    return Error{Code::kUnsupported,
                 fmt::format("socket {}: the path exists and is not a socket", path)};
  TRY(const Fd probe, make_socket(path));
  // Also EAGAIN, of a full queue, is a sign of life.
  if (connects(probe.raw(), address) || errno != ECONNREFUSED) {
    return Error{Code::kUnavailable, fmt::format("socket {}: another process listens there", path),
                 "stop it first, or choose another path"};
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return errno_error(errno, "remove", path);
  return {};
}

Result<void> watch(int events, int fd, std::uint32_t what, std::uint64_t tag, int operation) {
  epoll_event event{};
  event.events = what;
  event.data.u64 = tag;
  if (::epoll_ctl(events, operation, fd, &event) != 0) return errno_error(errno, "watch", "socket");
  return {};
}

Fd open_spare() {
  const int raw = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  return raw < 0 ? Fd() : Fd::adopt(raw);
}

}  // namespace

UnixServer::UnixServer(UnixServer&& o) noexcept
    : path_(std::exchange(o.path_, {})),
      device_(o.device_),
      inode_(o.inode_),
      options_(o.options_),
      stats_(o.stats_),
      listener_(std::move(o.listener_)),
      events_(std::move(o.events_)),
      spare_(std::move(o.spare_)),
      places_(std::move(o.places_)) {}

UnixServer& UnixServer::operator=(UnixServer&& o) noexcept {
  UnixServer old(std::move(*this));
  path_ = std::exchange(o.path_, {});
  device_ = o.device_;
  inode_ = o.inode_;
  options_ = o.options_;
  stats_ = o.stats_;
  listener_ = std::move(o.listener_);
  events_ = std::move(o.events_);
  spare_ = std::move(o.spare_);
  places_ = std::move(o.places_);
  return *this;
}

UnixServer::~UnixServer() {
  remove_file();
}

void UnixServer::remove_file() {
  struct stat status {};
  if (path_.empty() || ::lstat(path_.c_str(), &status) != 0) return;
  if (status.st_dev == device_ && status.st_ino == inode_) ::unlink(path_.c_str());
}

Result<UnixServer> UnixServer::listen(const std::string& path) {
  return listen(path, Options{});
}

Result<UnixServer> UnixServer::listen(const std::string& path, const Options& options) {
  TRY(const sockaddr_un address, address_of(path));
  TRY_VOID(remove_stale(path, address));
  UnixServer server;
  server.options_ = options;
  TRY(server.listener_, make_socket(path));
  const int listener = server.listener_.raw();
  // Linux gives the file the mode of the socket: unlike umask this is of no other thread's concern,
  // and unlike a chmod afterwards it leaves no gap.
  if (::fchmod(listener, 0600) != 0) return errno_error(errno, "set mode of", path);
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return errno_error(errno, "make socket", path);
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return errno_error(errno, "stat", path);
  server.path_ = path;
  server.device_ = status.st_dev;
  server.inode_ = status.st_ino;
  if (::listen(listener, kBacklog) != 0) return errno_error(errno, "listen on", path);
  const int raw = ::epoll_create1(EPOLL_CLOEXEC);
  if (raw < 0) return errno_error(errno, "watch", path);
  server.events_ = Fd::adopt(raw);
  TRY_VOID(watch(raw, listener, EPOLLIN, kListenerTag, EPOLL_CTL_ADD));
  server.spare_ = open_spare();
  server.places_.resize(options.connections_max);
  return server;
}

std::size_t UnixServer::connections() const {
  return static_cast<std::size_t>(
      std::count_if(places_.begin(), places_.end(),
                    [](const Connection& connection) { return connection.fd.is_open(); }));
}

void UnixServer::serve(BootTime now, const Handler& handler) {
  std::array<epoll_event, 64> events{};
  const int count = ::epoll_wait(events_.raw(), events.data(), static_cast<int>(events.size()), 0);
  bool has_callers = false;
  // Callers last: a place that is given anew must not get an event of its former owner.
  for (int i = 0; i < count; ++i) {
    const std::uint64_t tag = events[static_cast<std::size_t>(i)].data.u64;
    if (tag == kListenerTag) {
      has_callers = true;
      continue;
    }
    const auto place = static_cast<std::size_t>(tag);
    if (!places_[place].is_answering) {
      read_line(place, handler);
    } else {
      send_answer(place);
    }
  }
  for (Connection& connection : places_) {
    if (!connection.fd.is_open() || now - connection.since < options_.time_max) continue;
    ++stats_.too_slow;
    connection = {};
  }
  if (has_callers) accept_all(now);
}

void UnixServer::accept_all(BootTime now) {
  for (int i = 0; i < kBacklog; ++i) {
    int raw = ::accept4(listener_.raw(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (raw < 0 && (errno == EMFILE || errno == ENFILE) && spare_.is_open()) {
      // Out of descriptors the caller would wait for ever and wake us up for ever: the spare one
      // serves to turn it away.
      spare_ = Fd();
      raw = ::accept4(listener_.raw(), nullptr, nullptr, SOCK_CLOEXEC);
      if (raw >= 0) ::close(raw);
      spare_ = open_spare();
      ++stats_.too_many;
      return;
    }
    if (raw < 0) return;
    place(Fd::adopt(raw), now);
  }
}

void UnixServer::place(Fd fd, BootTime now) {
  if (!is_trusted_peer(fd.raw())) {
    ++stats_.refused_peers;
    return;
  }
  const auto free = std::find_if(places_.begin(), places_.end(), [](const Connection& connection) {
    return !connection.fd.is_open();
  });
  if (free == places_.end()) {
    ++stats_.too_many;
    return;
  }
  const auto tag = static_cast<std::uint64_t>(free - places_.begin());
  if (!watch(events_.raw(), fd.raw(), EPOLLIN, tag, EPOLL_CTL_ADD)) return;
  *free = {};
  free->fd = std::move(fd);
  free->since = now;
}

void UnixServer::read_line(std::size_t place, const Handler& handler) {
  Connection& connection = places_[place];
  std::array<char, 4096> buffer{};
  const ssize_t got = ::recv(connection.fd.raw(), buffer.data(), buffer.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    connection = {};
    return;
  }
  connection.line.append(buffer.data(), static_cast<std::size_t>(got));
  const std::size_t end = connection.line.find('\n');
  if (std::min(end, connection.line.size()) > options_.line_bytes_max) {
    ++stats_.too_long;
    connection = {};
    return;
  }
  if (end == std::string::npos) return;
  ++stats_.requests;
  connection.line.resize(end);
  connection.answer = handler(connection.line);
  connection.is_answering = true;
  send_answer(place);
}

void UnixServer::send_answer(std::size_t place) {
  Connection& connection = places_[place];
  const std::string_view rest = std::string_view(connection.answer).substr(connection.sent);
  const ssize_t put =
      rest.empty() ? 0 : ::send(connection.fd.raw(), rest.data(), rest.size(), MSG_NOSIGNAL);
  if (put < 0 && errno != EAGAIN && errno != EINTR) {
    connection = {};
    return;
  }
  if (put > 0) connection.sent += static_cast<std::size_t>(put);
  const bool is_done = connection.sent == connection.answer.size();
  if (is_done || !watch(events_.raw(), connection.fd.raw(), EPOLLOUT, place, EPOLL_CTL_MOD)) {
    // Unread bytes would turn the close into a reset, and the answer would be lost.
    ::shutdown(connection.fd.raw(), SHUT_WR);
    std::array<char, 4096> unread{};
    static_cast<void>(::recv(connection.fd.raw(), unread.data(), unread.size(), MSG_DONTWAIT));
    connection = {};
  }
}

namespace {

/// Waits until `what` can be done; kTimeout.
Result<void> wait_for(int fd, short what, BootTime deadline, const std::string& path) {
  const RealClock clock;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock.now()).count();
    if (left <= 0) return Error{Code::kTimeout, fmt::format("ask {}: no answer in time", path)};
    pollfd one{fd, what, 0};
    const int count = ::poll(&one, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000)));
    if (count > 0) return {};
    if (count < 0 && errno != EINTR) return errno_error(errno, "ask", path);
  }
}

Result<void> connect_to(int socket, const std::string& path, BootTime deadline) {
  TRY(const sockaddr_un address, address_of(path));
  while (!connects(socket, address)) {
    if (errno == ECONNREFUSED) {
      return Error{Code::kUnavailable, fmt::format("ask {}: no service listens there", path),
                   "the service has ended or was killed; start it again"};
    }
    if (errno != EAGAIN && errno != EINTR) return errno_error(errno, "ask", path);
    // A full queue of callers: a Unix socket gives no sign when there is room.
    if (const RealClock clock; clock.now() >= deadline)
      return Error{Code::kTimeout, fmt::format("ask {}: too many clients", path)};
    constexpr int kPauseMs = 5;
    ::poll(nullptr, 0, kPauseMs);
  }
  if (is_trusted_peer(socket)) return {};
  return Error{Code::kPermission, fmt::format("ask {}: it belongs to another user", path)};
}

}  // namespace

Result<std::string> unix_request(const std::string& path, std::string_view line, Nanos limit,
                                 std::size_t answer_bytes_max) {
  const RealClock clock;
  const BootTime deadline = clock.now() + limit;
  TRY(const Fd socket, make_socket(path));
  TRY_VOID(connect_to(socket.raw(), path, deadline));
  const std::string request = std::string(line) + '\n';
  for (std::size_t sent = 0; sent < request.size();) {
    TRY_VOID(wait_for(socket.raw(), POLLOUT, deadline, path));
    const ssize_t put =
        ::send(socket.raw(), request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (put > 0) sent += static_cast<std::size_t>(put);
    if (put < 0 && errno != EAGAIN && errno != EINTR) return errno_error(errno, "ask", path);
  }
  std::string answer;
  std::array<char, 16384> buffer{};
  while (true) {
    TRY_VOID(wait_for(socket.raw(), POLLIN, deadline, path));
    const ssize_t got = ::recv(socket.raw(), buffer.data(), buffer.size(), 0);
    if (got == 0) return answer;
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) return errno_error(errno, "ask", path);
    answer.append(buffer.data(), static_cast<std::size_t>(got));
    if (answer.size() > answer_bytes_max) {
      return Error{Code::kLimit, fmt::format("ask {}: the answer has more than {} bytes", path,
                                             answer_bytes_max)};
    }
  }
}

}  // namespace kansoku::sys
