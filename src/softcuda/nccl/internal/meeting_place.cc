// SPDX-License-Identifier: Apache-2.0
#include "softcuda/nccl/internal/meeting_place.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include "softcuda/nccl/internal/signals.h"
#include "sys/entropy.h"

namespace kansoku::softcuda::nccl {

Result<std::unique_ptr<MeetingPlace>> MeetingPlace::open(const HostAddress& host,
                                                         const Clock& clock) {
  TRY(Listener listener, listen_at(host));
  const int wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) return errno_error(errno, "make", "event descriptor");
  return std::unique_ptr<MeetingPlace>(
      new MeetingPlace(host, std::move(listener), sys::Fd::adopt(wake), clock));
}

MeetingPlace::MeetingPlace(const HostAddress& host, Listener listener, sys::Fd wake,
                           const Clock& clock)
    : host_(host),
      listener_(std::move(listener)),
      wake_(std::move(wake)),
      clock_(clock),
      meetings_(clock) {
  const AllSignalsBlocked quiet;  // the thread inherits it: signals are the program's affair
  thread_ = std::thread([this] { serve(); });
  pthread_setname_np(thread_.native_handle(), "nccl-rendezvous");
}

MeetingPlace::~MeetingPlace() {
  {
    const std::scoped_lock lock(mutex_);
    is_closing_ = true;
  }
  const std::uint64_t one = 1;
  // Only a full counter could refuse, and that would wake the thread as well.
  [[maybe_unused]] const auto written = ::write(wake_.raw(), &one, sizeof(one));
  thread_.join();
}

Result<Invitation> MeetingPlace::invite() {
  TRY(const std::uint64_t secret, sys::random_u64());
  const std::scoped_lock lock(mutex_);
  meetings_.expect(secret);
  return Invitation{host_, listener_.port, secret};
}

int MeetingPlace::wait_ms() {
  BootTime next = BootTime::max();
  {
    const std::scoped_lock lock(mutex_);
    next = meetings_.next_deadline();
  }
  for (const auto& connection : connections_) {
    if (connection.is_leaving) next = std::min(next, connection.leave_by);
  }
  return next == BootTime::max() ? -1 : Deadline{clock_, next}.left_ms();
}

void MeetingPlace::serve() {
  std::vector<pollfd> wanted;
  while (true) {
    wanted.assign({{wake_.raw(), POLLIN, 0}, {listener_.fd.raw(), POLLIN, 0}});
    for (const auto& connection : connections_)
      wanted.push_back(
          {connection.fd.raw(), static_cast<short>(connection.is_leaving ? POLLOUT : POLLIN), 0});
    // Out of memory for poll: the next round may do better, and nothing is lost.
    if (::poll(wanted.data(), wanted.size(), wait_ms()) < 0 && errno != EINTR) ::usleep(10'000);
    {
      const std::scoped_lock lock(mutex_);
      if (is_closing_) return;
    }
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      if (wanted[i + 2].revents == 0) continue;
      if (connections_[i].is_leaving) {
        write_to(connections_[i]);
      } else {
        read_from(connections_[i]);
      }
    }
    if (wanted[1].revents != 0) welcome();
    {
      const std::scoped_lock lock(mutex_);
      meetings_.expire();
    }
    deliver_letters();
    const BootTime now = clock_.now();
    std::erase_if(connections_, [now](const Connection& connection) {
      return !connection.fd.is_open() || (connection.is_leaving && connection.leave_by <= now);
    });
  }
}

void MeetingPlace::welcome() {
  const int fd = ::accept4(listener_.fd.raw(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    // Without descriptors the one who knocks would keep poll awake; others may leave meanwhile.
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) ::usleep(10'000);
    return;
  }
  Connection connection;
  connection.fd = sys::Fd::adopt(fd);
  const std::scoped_lock lock(mutex_);
  connection.guest = meetings_.opened();
  connections_.push_back(std::move(connection));
}

void MeetingPlace::read_from(Connection& connection) {
  std::array<std::byte, 16384> bytes;
  const ssize_t got = ::recv(connection.fd.raw(), bytes.data(), bytes.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const std::scoped_lock lock(mutex_);
  if (got > 0) {
    meetings_.received(connection.guest, {bytes.data(), static_cast<std::size_t>(got)});
    return;
  }
  meetings_.closed(connection.guest);
  connection.fd = sys::Fd();
}

void MeetingPlace::write_to(Connection& connection) {
  while (connection.sent < connection.outbox.size()) {
    const ssize_t sent = ::send(connection.fd.raw(), connection.outbox.data() + connection.sent,
                                connection.outbox.size() - connection.sent, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return;
    if (sent <= 0) break;
    connection.sent += static_cast<std::size_t>(sent);
  }
  connection.fd = sys::Fd();
}

void MeetingPlace::deliver_letters() {
  std::vector<Meetings::Letter> letters;
  {
    const std::scoped_lock lock(mutex_);
    letters = meetings_.take_letters();
  }
  for (auto& letter : letters) {
    const auto to = std::find_if(
        connections_.begin(), connections_.end(),
        [&letter](const Connection& connection) { return connection.guest == letter.to; });
    if (to == connections_.end() || !to->fd.is_open()) continue;
    to->outbox = std::move(letter.bytes);
    to->is_leaving = true;
    to->leave_by = clock_.now() + kManners;
    write_to(*to);
  }
}

Result<std::vector<std::byte>> join_meeting(const sys::Fd& connection, const JoinHead& head,
                                            ByteSpan addresses, const Clock& clock) {
  // The answer says more than our own deadline could: it comes first.
  const Deadline deadline{clock,
                          clock.now() + std::chrono::milliseconds{head.timeout_ms} + kManners / 2};
  const auto gone = [](const Error& error) {
    return Error{error.code, fmt::format("meet the other ranks: {}", error.what)};
  };
  std::vector<std::byte> join(sizeof(head) + addresses.size());
  std::memcpy(join.data(), &head, sizeof(head));
  if (!addresses.empty())
    std::memcpy(join.data() + sizeof(head), addresses.data(), addresses.size());
  if (auto sent = send_all(connection, join, deadline); !sent) return gone(sent.error());
  AnswerHead answer;
  if (auto got = receive_all(connection, std::as_writable_bytes(std::span(&answer, 1)), deadline);
      !got)
    return gone(got.error());
  const std::size_t bytes_max =
      answer.code == kAnswerWelcome ? addresses.size() : std::size_t{kAnswerTextMax};
  if (answer.magic != kAnswerMagic || answer.bytes > bytes_max ||
      (answer.code == kAnswerWelcome && answer.bytes != addresses.size()))
    return Error{Code::kCorrupt, "meet the other ranks: the answer is damaged"};
  std::vector<std::byte> content(answer.bytes);
  if (auto got = receive_all(connection, content, deadline); !got) return gone(got.error());
  if (answer.code != kAnswerWelcome) return refusal_of(answer.code, as_text(content));
  return content;
}

}  // namespace kansoku::softcuda::nccl
