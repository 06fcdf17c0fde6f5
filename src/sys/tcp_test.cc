// SPDX-License-Identifier: Apache-2.0
#include "sys/tcp.h"

#include <gtest/gtest.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <vector>

#include "common/rng.h"
#include "sys/fd.h"
#include "sys/internal/inet_diag.h"
#include "sys/wait_for_test.h"

namespace kansoku::sys {
namespace {

BootTime at(int seconds) {
  return boot_time(std::int64_t{1'000'000'000} * (1000 + seconds));
}

/// Two ends of a connection over loopback.
struct Pair {
  Fd client, server;
};
Pair connect_pair(int family) {
  const Fd listener = Fd::adopt(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  socklen_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  address.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET)
    reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  else
    reinterpret_cast<sockaddr_in6&>(address).sin6_addr = in6addr_loopback;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  Pair out{Fd::adopt(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)), {}};
  if (::bind(listener.raw(), raw, bytes) != 0 || ::listen(listener.raw(), 1) != 0 ||
      ::getsockname(listener.raw(), raw, &bytes) != 0 ||
      ::connect(out.client.raw(), raw, bytes) != 0)
    return {};
  out.server = Fd::adopt(::accept4(listener.raw(), nullptr, nullptr, SOCK_CLOEXEC));
  return out;
}

void move_bytes(const Pair& pair, std::size_t bytes) {
  const std::string text(bytes, 'x');
  std::string back(bytes, '\0');
  ASSERT_EQ(::send(pair.client.raw(), text.data(), bytes, 0), static_cast<ssize_t>(bytes));
  ASSERT_EQ(::recv(pair.server.raw(), back.data(), bytes, MSG_WAITALL),
            static_cast<ssize_t>(bytes));
}

/// The kernel counts what was acknowledged, which may take a moment of its own.
ProcessTcp sample_until(TcpSampler& sampler, std::int32_t pid, std::uint64_t acked, BootTime now) {
  ProcessTcp last;
  std::uint32_t active = 0;
  EXPECT_TRUE(poll_for_test([&] {
    const auto got = sampler.sample(std::vector{pid}, now);
    if (got.size() != 1) return false;
    last = got[0];
    active = std::max(active, last.active_connections);
    return last.bytes_acked >= acked;
  }));
  last.active_connections = active;
  return last;
}

bool kernel_reports_descriptors() {
  struct stat status {};
  return ::stat("/proc/self/fd", &status) == 0 && status.st_size > 0;
}

TEST(TcpSampler, CountsTheBytesOfAProcess) {
  const std::int32_t self = ::getpid();
  TcpSampler sampler;
  const Pair old = connect_pair(AF_INET);
  ASSERT_TRUE(old.server.is_open());
  const auto first = sampler.sample(std::vector{self}, at(0));
  if (sampler.stats().failed_questions > 0) GTEST_SKIP() << "no socket diagnosis here";
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].connections, 2U);  // both ends are ours
  EXPECT_EQ(sampler.stats().maps, 1U);
  const std::uint64_t begin = first[0].bytes_acked;
  ASSERT_NO_FATAL_FAILURE(move_bytes(old, 10'000));
  const ProcessTcp moved = sample_until(sampler, self, begin + 10'000, at(1));
  EXPECT_EQ(moved.bytes_acked, begin + 10'000);
  EXPECT_EQ(moved.bytes_received, first[0].bytes_received + 10'000);
  EXPECT_GE(moved.active_connections, 1U);
  EXPECT_EQ(sampler.stats().maps, 1U);
  const auto idle = sampler.sample(std::vector{self}, at(1));
  EXPECT_EQ(idle[0].active_connections, 0U);
  EXPECT_EQ(idle[0].rtt_mean_us, 0);
  // A new connection, of the other family, is found once it may be looked for.
  {
    const Pair more = connect_pair(AF_INET6);
    if (more.server.is_open()) {
      ASSERT_NO_FATAL_FAILURE(move_bytes(more, 5'000));
      EXPECT_EQ(sampler.sample(std::vector{self}, at(1))[0].connections, 2U);
      // Kernels that do not tell the number of descriptors: by time alone.
      const BootTime later = kernel_reports_descriptors() ? at(2) : at(40);
      const ProcessTcp with = sample_until(sampler, self, begin + 15'000, later);
      EXPECT_EQ(with.connections, 4U);
      EXPECT_GE(with.bytes_acked, begin + 15'000);
      EXPECT_LE(with.bytes_acked, begin + 15'001);  // opening it counts as one
      EXPECT_EQ(sampler.stats().maps, 2U);
    }
  }
  // Its end takes nothing back.
  const auto after = sampler.sample(std::vector{self}, at(41));
  EXPECT_EQ(after[0].connections, 2U);
  EXPECT_GE(after[0].bytes_acked, begin + 10'000);
  ASSERT_EQ(::shutdown(old.client.raw(), SHUT_WR), 0);
  EXPECT_TRUE(poll_for_test([&] {
    return sampler.sample(std::vector{self}, at(42))[0].connections == 0;
  })) << "half open is not established";
}

/// "127.0.0.1:PORT" of one end of a connection.
std::string address_of(int socket) {
  sockaddr_in address{};
  socklen_t bytes = sizeof address;
  EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

TEST(TcpSampler, TellsEachConnectionWithItsEnds) {
  const std::int32_t self = ::getpid();
  const Pair pair = connect_pair(AF_INET);
  ASSERT_TRUE(pair.server.is_open());
  ASSERT_NO_FATAL_FAILURE(move_bytes(pair, 10'000));
  TcpSampler sampler;
  EXPECT_TRUE(sampler.sockets(self, 10).empty()) << "nobody has looked yet";
  static_cast<void>(sample_until(sampler, self, 10'000, at(0)));
  if (sampler.stats().failed_questions > 0) GTEST_SKIP() << "no socket diagnosis here";
  const auto sockets = sampler.sockets(self, 10);
  ASSERT_EQ(sockets.size(), 2U);
  const std::string client = address_of(pair.client.raw()), server = address_of(pair.server.raw());
  const TcpSocket& sender = sockets[sockets[0].local == client ? 0 : 1];
  const TcpSocket& receiver = sockets[sockets[0].local == client ? 1 : 0];
  EXPECT_EQ(sender.local, client);
  EXPECT_EQ(sender.peer, server);
  EXPECT_EQ(receiver.local, server);
  EXPECT_EQ(receiver.peer, client);
  EXPECT_GE(sender.bytes_sent, 10'000U);
  EXPECT_EQ(receiver.bytes_received, 10'000U);
  EXPECT_GT(sender.rtt_us, 0U);
  EXPECT_EQ(sampler.sockets(self, 1).size(), 1U);
  EXPECT_TRUE(sampler.sockets(1, 10).empty());
}

// Bytes of a connection's whole life are not bytes since the last sample.
TEST(TcpSampler, AConnectionThatWasOutOfSightIsNoNewOne) {
  const std::int32_t self = ::getpid();
  TcpSampler sampler;
  const Pair pair = connect_pair(AF_INET);
  ASSERT_TRUE(pair.server.is_open());
  ASSERT_NO_FATAL_FAILURE(move_bytes(pair, 10'000));
  static_cast<void>(sampler.sample(std::vector{self}, at(0)));
  if (sampler.stats().failed_questions > 0) GTEST_SKIP() << "no socket diagnosis here";
  const ProcessTcp first = sample_until(sampler, self, 10'000, at(0));
  ASSERT_GE(first.bytes_acked, 10'000U);
  static_cast<void>(sampler.sample(std::vector<std::int32_t>{}, at(1)));
  const auto again = sampler.sample(std::vector{self}, at(2));
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].connections, 2U);
  EXPECT_EQ(again[0].bytes_acked, 0U);
  EXPECT_EQ(again[0].bytes_received, 0U);
}

TEST(TcpSampler, ProcessesThatAreNotThere) {
  TcpSampler sampler;
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  EXPECT_EQ(sampler.sample(std::vector<std::int32_t>{child, 0, -1}, at(0)).size(), 1U);
  EXPECT_EQ(sampler.stats().unreachable_processes, 2U);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(sampler.sample(std::vector<std::int32_t>{child}, at(1)).empty());
  EXPECT_TRUE(sampler.sample({}, at(2)).empty());
}

/// A process with a network of its own, where it talks to itself.
TEST(TcpSampler, AnotherNetworkNamespace) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    // Its loopback interface is down at first.
    if (::unshare(CLONE_NEWNET) != 0 || ::system("ip link set lo up") != 0) ::_exit(1);
    const Pair pair = connect_pair(AF_INET);
    if (!pair.server.is_open() || ::write(ends[1], "", 1) != 1) ::_exit(1);
    ::pause();
    ::_exit(0);
  }
  ::close(ends[1]);
  char byte = 0;
  const bool is_ready = ::read(ends[0], &byte, 1) == 1;
  ::close(ends[0]);
  TcpSampler sampler;
  const auto got = sampler.sample(std::vector<std::int32_t>{child, ::getpid()}, at(0));
  TcpSampler outside(TcpSampler::Options{.enters_namespaces = false});
  const auto seen = outside.sample(std::vector<std::int32_t>{child, ::getpid()}, at(0));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  if (!is_ready) GTEST_SKIP() << "may not make a network namespace";
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0].connections, 2U);
  EXPECT_EQ(got[1].connections, 0U);  // ours is another
  EXPECT_EQ(sampler.stats().failed_questions, 0U);
  EXPECT_EQ(sampler.stats().duplicated, 0U);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].connections, 2U);
  EXPECT_EQ(seen[0].bytes_acked, got[0].bytes_acked);
  EXPECT_EQ(seen[1].connections, 0U);
  EXPECT_EQ(outside.stats().duplicated, 2U);
  const auto by_question = sampler.sockets(child, 10), by_duplicate = outside.sockets(child, 10);
  ASSERT_EQ(by_question.size(), 2U);
  ASSERT_EQ(by_duplicate.size(), 2U);
  for (std::size_t i = 0; i < by_question.size(); ++i) {
    EXPECT_EQ(by_question[i].local, by_duplicate[i].local);
    EXPECT_EQ(by_question[i].peer, by_duplicate[i].peer);
  }
}

/// Ends of connections in a process of another network namespace, made and moved by request: 'c'
/// connects, 'm' moves 10,000 bytes over the last one, 'r' ends the last one and puts another in
/// the place of its descriptors, 'h' says that no more will be sent over it, 'l' listens, 'f'
/// leaves all to a child.
class Talker {
 public:
  Talker() {
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) talk(ends_[1]);
    ::close(ends_[1]);
    is_ready_ = ask('?');
  }
  ~Talker() {
    ::close(ends_[0]);
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Talker(const Talker&) = delete;
  Talker& operator=(const Talker&) = delete;
  [[nodiscard]] bool is_ready() const { return is_ready_; }
  [[nodiscard]] std::int32_t pid() const { return pid_; }
  /// The answer: 1, or the pid of a child.
  std::int32_t ask(char what) const {
    std::int32_t answer = 0;
    if (::send(ends_[0], &what, 1, MSG_NOSIGNAL) != 1) return 0;
    return ::recv(ends_[0], &answer, sizeof answer, 0) == sizeof answer ? answer : 0;
  }

 private:
  [[noreturn]] static void talk(int end) {
    if (::unshare(CLONE_NEWNET) != 0 || ::system("ip link set lo up") != 0) ::_exit(1);
    const pid_t self = ::getpid();
    std::vector<Pair> pairs;
    Fd listener;
    char what = 0;
    while (::recv(end, &what, 1, 0) == 1) {
      std::int32_t answer = 1;
      if (what == 'r') pairs.pop_back();
      if (what == 'c' || what == 'r') pairs.push_back(connect_pair(AF_INET));
      if (what == 'm') move_bytes(pairs.back(), 10'000);
      if (what == 'h') ::shutdown(pairs.back().client.raw(), SHUT_WR);
      if (what == 'l') {
        listener = Fd::adopt(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        ::listen(listener.raw(), 1);
      }
      if (what == 'f') answer = ::fork();
      if (answer == 0) {
        // It ends with its parent, also if that one has ended already.
        if (::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && ::getppid() == self) ::pause();
        ::_exit(0);
      }
      if (::send(end, &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer) break;
    }
    ::_exit(0);
  }
  int ends_[2]{-1, -1};
  pid_t pid_{-1};
  bool is_ready_{false};
};

/// Asks for `pids` at that time until the first one has so much acknowledged.
std::vector<ProcessTcp> sample_all_until(TcpSampler& sampler, const std::vector<std::int32_t>& pids,
                                         std::uint64_t acked, BootTime now) {
  std::vector<ProcessTcp> got;
  EXPECT_TRUE(poll_for_test([&] {
    got = sampler.sample(pids, now);
    return !got.empty() && got[0].bytes_acked >= acked;
  }));
  return got;
}

TEST(TcpSampler, ANamespaceThatMayNotBeEntered) {
  const Talker talker;
  if (!talker.is_ready()) GTEST_SKIP() << "may not make a network namespace";
  TcpSampler sampler(TcpSampler::Options{.enters_namespaces = false});
  const std::vector<std::int32_t> pids{talker.pid()};
  talker.ask('c');
  const auto first = sampler.sample(pids, at(0));
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].connections, 2U);
  talker.ask('m');
  const auto moved = sample_all_until(sampler, pids, first[0].bytes_acked + 10'000, at(1));
  EXPECT_EQ(moved[0].bytes_acked, first[0].bytes_acked + 10'000);
  EXPECT_EQ(moved[0].bytes_received, first[0].bytes_received + 10'000);
  EXPECT_EQ(sampler.sample(pids, at(1))[0].active_connections, 0U);
  EXPECT_EQ(sampler.stats().maps, 1U);
  // Another connection in the place of the first one, with the same descriptors.
  talker.ask('r');
  talker.ask('m');
  EXPECT_EQ(sampler.sample(pids, at(1))[0].connections, 0U);  // too early to look
  EXPECT_EQ(sampler.stats().maps, 1U);
  const auto replaced = sample_all_until(sampler, pids, moved[0].bytes_acked + 10'000, at(3));
  EXPECT_EQ(replaced[0].connections, 2U);
  EXPECT_GE(replaced[0].bytes_acked, moved[0].bytes_acked + 10'000);
  EXPECT_LE(replaced[0].bytes_acked, moved[0].bytes_acked + 10'001);  // opening counts as one
  EXPECT_EQ(sampler.stats().maps, 2U);
  // A socket that a child holds too belongs to the first process.
  const std::int32_t child = talker.ask('f');
  const auto both = sampler.sample(std::vector{talker.pid(), child}, at(40));
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0].connections, 2U);
  EXPECT_EQ(both[1].connections, 0U);
  TcpSampler narrow(TcpSampler::Options{.duplicated_max = 1, .enters_namespaces = false});
  EXPECT_EQ(narrow.sample(pids, at(0))[0].connections, 1U);
}

TEST(TcpSampler, AKernelThatDoesNotAnswerIsAskedNoMore) {
  const Pair pair = connect_pair(AF_INET);
  ASSERT_TRUE(pair.server.is_open());
  TcpSampler sampler(TcpSampler::Options{.netlink = NETLINK_USERSOCK});
  const std::vector<std::int32_t> self{::getpid()};
  EXPECT_TRUE(sampler.sample(self, at(0)).empty());
  const std::uint64_t failed = sampler.stats().failed_questions;
  EXPECT_GT(failed, 0U);
  const auto seen = sampler.sample(self, at(1));
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].connections, 2U);
  EXPECT_EQ(sampler.stats().duplicated, 2U);
  EXPECT_EQ(sampler.stats().failed_questions, failed);
}

TEST(TcpSampler, DuplicatesWhatIsOrWasAConnectionAndCountsWhatIsOne) {
  const Talker talker;
  if (!talker.is_ready()) GTEST_SKIP() << "may not make a network namespace";
  TcpSampler sampler(TcpSampler::Options{.enters_namespaces = false});
  const std::vector<std::int32_t> pids{talker.pid()};
  talker.ask('c');
  talker.ask('l');
  EXPECT_EQ(sampler.sample(pids, at(0))[0].connections, 2U);
  EXPECT_EQ(sampler.stats().duplicated, 2U) << "not what listens";
  talker.ask('h');
  EXPECT_TRUE(poll_for_test([&] { return sampler.sample(pids, at(1))[0].connections == 0; }))
      << "half open is not established";
  EXPECT_EQ(sampler.stats().maps, 1U) << "but it has not ended";
}

/// One message of an answer.
std::vector<std::byte> message(std::uint16_t type, std::uint8_t state, std::size_t info_bytes) {
  inet_diag_msg body{};
  body.idiag_state = state;
  body.idiag_inode = 77;
  body.id.idiag_cookie[0] = 5;
  tcp_info info{};
  info.tcpi_rtt = 123;
  info.tcpi_total_retrans = 4;
  info.tcpi_bytes_acked = 1000;
  info.tcpi_bytes_received = 2000;
  info.tcpi_last_data_sent = 9000;
  info.tcpi_last_data_recv = 7000;
  rtattr other{sizeof(rtattr) + 1, INET_DIAG_CONG};
  rtattr attribute{static_cast<unsigned short>(sizeof(rtattr) + info_bytes), INET_DIAG_INFO};
  nlmsghdr head{};
  head.nlmsg_type = type;
  std::vector<std::byte> out(sizeof head + sizeof body + sizeof other + 4 + sizeof attribute +
                             info_bytes);
  head.nlmsg_len = static_cast<__u32>(out.size());
  std::byte* to = out.data();
  const auto put = [&](const void* from, std::size_t bytes, std::size_t room) {
    std::memcpy(to, from, bytes);
    to += room;
  };
  put(&head, sizeof head, sizeof head);
  put(&body, sizeof body, sizeof body);
  put(&other, sizeof other, sizeof other + 4);  // one byte and its padding
  put(&attribute, sizeof attribute, sizeof attribute);
  put(&info, info_bytes, info_bytes);
  return out;
}

TEST(InetDiag, FromRecordedBytes) {
  std::vector<DiagSocket> sockets;
  const auto whole = message(SOCK_DIAG_BY_FAMILY, 1, sizeof(tcp_info));
  ASSERT_TRUE(parse_diag(whole, 10, sockets));
  ASSERT_EQ(sockets.size(), 1U);
  EXPECT_EQ(sockets[0].inode, 77U);
  EXPECT_EQ(sockets[0].cookie, 5U);
  EXPECT_EQ(sockets[0].rtt_us, 123U);
  EXPECT_EQ(sockets[0].bytes_acked, 1000U);
  EXPECT_EQ(sockets[0].bytes_received, 2000U);
  EXPECT_EQ(sockets[0].retransmits, 4U);
  EXPECT_EQ(sockets[0].quiet_ms, 7000U);
  // An older kernel says less; a listening socket is no connection; the limit holds.
  ASSERT_TRUE(parse_diag(message(SOCK_DIAG_BY_FAMILY, 1, 104), 10, sockets));
  ASSERT_EQ(sockets.size(), 2U);
  EXPECT_EQ(sockets[1].bytes_acked, 0U);
  EXPECT_EQ(sockets[1].rtt_us, 123U);
  ASSERT_TRUE(parse_diag(message(SOCK_DIAG_BY_FAMILY, 10, sizeof(tcp_info)), 10, sockets));
  ASSERT_TRUE(parse_diag(whole, 2, sockets));
  EXPECT_EQ(sockets.size(), 2U);
  EXPECT_EQ(parse_diag(message(NLMSG_DONE, 1, 0), 2, sockets).value(), DiagEnd::kDone);
  EXPECT_EQ(parse_diag(message(NLMSG_ERROR, 1, 0), 2, sockets).error().code, Code::kUnavailable);
}

TEST(InetDiag, AnyDamageIsBounded) {
  const auto whole = message(SOCK_DIAG_BY_FAMILY, 1, sizeof(tcp_info));
  RandomStream random(3, "damage");
  for (int i = 0; i < 20'000; ++i) {
    auto bytes = whole;
    bytes.resize(random.below(bytes.size() + 1));
    for (std::uint64_t n = random.below(4); n > 0 && !bytes.empty(); --n)
      bytes[random.below(bytes.size())] = static_cast<std::byte>(random.below(256));
    std::vector<DiagSocket> sockets;
    static_cast<void>(parse_diag(bytes, 1, sockets));
    ASSERT_LE(sockets.size(), 1U);
  }
}

}  // namespace
}  // namespace kansoku::sys
