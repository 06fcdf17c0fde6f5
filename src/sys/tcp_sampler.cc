// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "sys/fd.h"
#include "sys/internal/inet_diag.h"
#include "sys/internal/process_sockets.h"
#include "sys/tcp.h"

namespace kansoku::sys {
namespace {

Fd open_at(int folder, const char* name, int flags) {
  const int raw = ::openat(folder, name, flags | O_CLOEXEC);
  return raw < 0 ? Fd() : Fd::adopt(raw);
}

/// The inode of a namespace, which names it.
std::optional<std::uint64_t> namespace_of(int process) {
  struct stat status {};
  if (::fstatat(process, "ns/net", &status, 0) != 0) return std::nullopt;
  return status.st_ino;
}

Fd make_netlink(int family) {
  const int raw = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, family);
  if (raw < 0) return {};
  // The kernel answers at once; should it ever not, nobody waits for long.
  const timeval limit{1, 0};
  static_cast<void>(::setsockopt(raw, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
  return Fd::adopt(raw);
}

constexpr std::size_t kClosedMax = 4096;
constexpr std::size_t kUnseenMax = 16'384;    // connections that are kept though some are unseen
constexpr std::uint64_t kUnseenRounds = 600;  // then they have ended

/// A netlink socket in the network namespace of a process. It stays in there, so only a thread that
/// ends right away has to enter it.
Fd netlink_in_namespace_of(int process, const TcpSampler::Options& options) {
  struct stat own {};
  const auto theirs = namespace_of(process);
  if (::stat("/proc/thread-self/ns/net", &own) == 0 && theirs == own.st_ino)
    return make_netlink(options.netlink);
  if (!options.enters_namespaces) return {};
  const Fd place = open_at(process, "ns/net", O_RDONLY);
  if (!place.is_open()) return {};
  Fd made;
  try {
    std::thread([&] {
      if (::setns(place.raw(), CLONE_NEWNET) == 0) made = make_netlink(options.netlink);
    }).join();
  } catch (const std::system_error&) {
    return {};
  }
  return made;
}

/// A TCP socket of a process whose network namespace may not be entered.
struct Duplicable {
  int descriptor{-1};
  std::uint64_t cookie{0};  // tells it from a later one with that number
};

struct Duplicated {
  bool is_established{false};  // otherwise the socket has only a cookie
  DiagSocket socket;
};

/// Nothing if the descriptor is no TCP connection (any more).
std::optional<Duplicated> duplicate_and_ask(int process_handle, int descriptor) {
  const Fd duplicate = duplicate_descriptor(process_handle, descriptor);
  if (!duplicate.is_open()) return std::nullopt;
  const auto info = tcp_info_of(duplicate.raw());
  if (!info || info->tcpi_state == kTcpListening) return std::nullopt;
  Duplicated out;
  socklen_t bytes = sizeof out.socket.cookie;
  if (::getsockopt(duplicate.raw(), SOL_SOCKET, SO_COOKIE, &out.socket.cookie, &bytes) != 0)
    return std::nullopt;
  out.is_established = info->tcpi_state == kTcpEstablished;
  if (!out.is_established) return out;
  set_figures(out.socket, *info);
  sockaddr_storage local{}, peer{};
  socklen_t local_length = sizeof local, peer_length = sizeof peer;
  const bool has_ends =
      ::getsockname(duplicate.raw(), reinterpret_cast<sockaddr*>(&local), &local_length) == 0 &&
      ::getpeername(duplicate.raw(), reinterpret_cast<sockaddr*>(&peer), &peer_length) == 0 &&
      set_ends(out.socket, local, peer);
  out.is_established = has_ends;
  return out;
}

struct Connection {
  std::uint64_t acked{0}, received{0}, retransmits{0};
  std::uint64_t round{0};  // in which it was last there
};

struct Process {
  Fd folder;               // /proc/PID of this process, not of a later one with its pid
  std::uint64_t space{0};  // 0: its sockets are duplicated
  Fd handle;               // a pidfd, to duplicate
  std::vector<Duplicable> sockets;
  std::int64_t descriptors{0};  // when they were last looked at
  ProcessTcp totals;
  double rtt_sum_us{0};                 // of this round
  std::vector<DiagSocket> established;  // in this round
};

/// How many descriptors a process has, or 0 before Linux 6.2.
std::int64_t count_descriptors(int process) {
  struct stat status {};
  return ::fstatat(process, "fd", &status, 0) == 0 ? std::int64_t{status.st_size} : 0;
}

/// Throws away what waits in a netlink socket.
void drain(int netlink) {
  std::array<char, 64> buffer{};
  while (::recv(netlink, buffer.data(), buffer.size(), MSG_DONTWAIT | MSG_TRUNC) > 0) {
  }
}

struct Space {
  Fd netlink;
  std::vector<DiagSocket> known{};  // of processes that we look at
  bool has_answered{false};
};

}  // namespace

struct TcpSampler::State {
  Options options;
  Stats stats;
  std::map<std::int32_t, Process> processes;
  std::map<std::uint64_t, Space> spaces;  // network namespaces
  std::set<std::uint64_t> closed;  // that could not be entered: trying takes a thread each time
  std::optional<BootTime> mapped_at;
  bool has_ended_ones{false};                                 // connections, in the last round
  std::unordered_map<std::uint32_t, std::int32_t> owners;     // pid by inode
  std::unordered_map<std::uint64_t, Connection> connections;  // by cookie
  std::uint64_t round{0};

  bool follow(std::span<const std::int32_t> pids);
  bool take_up(std::int32_t pid);
  [[nodiscard]] bool is_map_due(BootTime now) const;
  void map(std::span<const std::int32_t> pids, BootTime now);
  void map_duplicable(Process& process);
  void ask_for_all();
  void ask_for_known();
  void ask_duplicates(Process& process);
  void add(const DiagSocket& socket);
  void add(const DiagSocket& socket, Process& process);
};

TcpSampler::TcpSampler(const Options& options) : state_(std::make_unique<State>()) {
  state_->options = options;
}
TcpSampler::TcpSampler() : TcpSampler(Options{}) {}
TcpSampler::TcpSampler(TcpSampler&&) noexcept = default;
TcpSampler& TcpSampler::operator=(TcpSampler&&) noexcept = default;
TcpSampler::~TcpSampler() = default;

const TcpSampler::Stats& TcpSampler::stats() const {
  return state_->stats;
}

/// Takes up the processes that are new and forgets the others. True if there are new ones.
bool TcpSampler::State::follow(std::span<const std::int32_t> pids) {
  std::erase_if(processes, [&](const auto& entry) {
    const bool is_gone = !namespace_of(entry.second.folder.raw());
    return is_gone || std::find(pids.begin(), pids.end(), entry.first) == pids.end();
  });
  bool has_new_ones = false;
  for (const std::int32_t pid : pids) {
    if (processes.contains(pid)) continue;
    const bool is_taken = take_up(pid);
    has_new_ones = has_new_ones || is_taken;
    stats.unreachable_processes += is_taken ? 0 : 1;
  }
  std::erase_if(spaces, [&](const auto& entry) {
    return std::none_of(processes.begin(), processes.end(),
                        [&](const auto& process) { return process.second.space == entry.first; });
  });
  return has_new_ones;
}

bool TcpSampler::State::take_up(std::int32_t pid) {
  Process process;
  process.totals.pid = pid;
  process.folder = open_at(AT_FDCWD, fmt::format("/proc/{}", pid).c_str(), O_PATH | O_DIRECTORY);
  const auto space = process.folder.is_open() ? namespace_of(process.folder.raw()) : std::nullopt;
  if (!space) return false;
  if (!spaces.contains(*space) && !closed.contains(*space)) {
    Fd netlink = netlink_in_namespace_of(process.folder.raw(), options);
    if (netlink.is_open()) {
      spaces.emplace(*space, Space{std::move(netlink)});
    } else {
      if (closed.size() >= kClosedMax) closed.clear();
      closed.insert(*space);
    }
  }
  if (spaces.contains(*space)) {
    process.space = *space;
  } else {
    const auto raw = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    if (raw < 0) return false;
    process.handle = Fd::adopt(raw);
    // Both are of one process if the first one is still there.
    if (!namespace_of(process.folder.raw())) return false;
  }
  processes.emplace(pid, std::move(process));
  return true;
}

/// Looks up whose the sockets are.
void TcpSampler::State::map(std::span<const std::int32_t> pids, BootTime now) {
  ++stats.maps;
  mapped_at = now;
  owners.clear();
  for (const std::int32_t pid : pids) {
    const auto found = processes.find(pid);
    if (found == processes.end()) continue;
    const int folder = found->second.folder.raw();
    found->second.descriptors = count_descriptors(folder);
    if (found->second.space == 0) {
      map_duplicable(found->second);
    } else {
      for (const ProcessSocket& theirs : process_sockets(folder))
        owners.try_emplace(theirs.inode, pid);
    }
  }
}

void TcpSampler::State::map_duplicable(Process& process) {
  process.sockets.clear();
  for (const ProcessSocket& theirs : process_sockets(process.folder.raw())) {
    if (process.sockets.size() >= options.duplicated_max) return;
    if (const auto seen = duplicate_and_ask(process.handle.raw(), theirs.descriptor))
      process.sockets.push_back({theirs.descriptor, seen->socket.cookie});
  }
}

/// The number of descriptors tells of new connections, where the kernel gives it.
bool TcpSampler::State::is_map_due(BootTime now) const {
  if (!mapped_at || now - *mapped_at >= options.map_again_after) return true;
  if (now - *mapped_at < options.map_again_min) return false;
  return has_ended_ones || std::any_of(processes.begin(), processes.end(), [](const auto& entry) {
           return count_descriptors(entry.second.folder.raw()) != entry.second.descriptors;
         });
}

void TcpSampler::State::ask_for_all() {
  for (auto& [number, space] : spaces) {
    space.known.clear();
    for (const int family : {AF_INET, AF_INET6}) {
      const std::size_t room = space.known.size() + options.sockets_max;
      const auto answered = dump_connections(space.netlink.raw(), static_cast<std::uint8_t>(family),
                                             room, space.known);
      space.has_answered = space.has_answered || answered.has_value();
      stats.failed_questions += answered ? 0 : 1;
    }
    std::erase_if(space.known,
                  [this](const DiagSocket& socket) { return !owners.contains(socket.inode); });
  }
  std::erase_if(spaces, [&](const auto& entry) {
    if (entry.second.has_answered) return false;
    closed.insert(entry.first);
    // Taken up anew with the next sample, to be duplicated.
    std::erase_if(processes, [&](const auto& of) { return of.second.space == entry.first; });
    return true;
  });
}

void TcpSampler::State::ask_for_known() {
  has_ended_ones = false;
  for (auto& [number, space] : spaces) {
    std::vector<DiagSocket> now;
    now.reserve(space.known.size());
    if (!query_connections(space.netlink.raw(), space.known, now)) {
      ++stats.failed_questions;
      // Answers that were not taken would be taken for those of the next question.
      drain(space.netlink.raw());
    }
    has_ended_ones = has_ended_ones || now.size() < space.known.size();
    space.known = std::move(now);
  }
}

void TcpSampler::State::ask_duplicates(Process& process) {
  for (const Duplicable& known : process.sockets) {
    const auto seen = duplicate_and_ask(process.handle.raw(), known.descriptor);
    if (!seen || seen->socket.cookie != known.cookie) {
      has_ended_ones = true;
      continue;
    }
    ++stats.duplicated;
    const auto before = connections.find(known.cookie);
    const bool is_of_another = before != connections.end() && before->second.round == round;
    if (seen->is_established && !is_of_another) add(seen->socket, process);
  }
}

void TcpSampler::State::add(const DiagSocket& socket) {
  const auto owner = owners.find(socket.inode);
  if (owner == owners.end()) return;
  const auto process = processes.find(owner->second);
  if (process != processes.end()) add(socket, process->second);
}

void TcpSampler::State::add(const DiagSocket& socket, Process& process) {
  Connection& before = connections[socket.cookie];
  const auto change = [](std::uint64_t last, std::uint64_t now) {
    return now > last ? now - last : 0;
  };
  const std::uint64_t acked = change(before.acked, socket.bytes_acked);
  const std::uint64_t received = change(before.received, socket.bytes_received);
  ProcessTcp& totals = process.totals;
  ++totals.connections;
  totals.bytes_acked += acked;
  totals.bytes_received += received;
  totals.retransmits += change(before.retransmits, socket.retransmits);
  if (acked != 0 || received != 0) {
    ++totals.active_connections;
    process.rtt_sum_us += socket.rtt_us;
    totals.rtt_max_us = std::max(totals.rtt_max_us, socket.rtt_us);
  }
  before = {socket.bytes_acked, socket.bytes_received, socket.retransmits, round};
  process.established.push_back(socket);
}

std::vector<ProcessTcp> TcpSampler::sample(std::span<const std::int32_t> pids, BootTime now) {
  State& state = *state_;
  ++state.round;
  const bool has_new_processes = state.follow(pids);
  if (has_new_processes || state.is_map_due(now)) {
    state.map(pids, now);
    state.ask_for_all();
    state.has_ended_ones = false;
  } else {
    state.ask_for_known();
  }
  for (auto& [pid, process] : state.processes) {
    process.rtt_sum_us = 0;
    process.totals.connections = process.totals.active_connections = 0;
    process.totals.rtt_max_us = 0;
    process.established.clear();
  }
  for (const auto& [number, space] : state.spaces) {
    for (const DiagSocket& socket : space.known)
      state.add(socket);
  }
  for (const std::int32_t pid : pids) {
    const auto found = state.processes.find(pid);
    if (found != state.processes.end() && found->second.space == 0)
      state.ask_duplicates(found->second);
  }
  // One that is out of sight for a while (above a limit, an answer that failed) is not a new one
  // when it is seen again. Cookies are never used twice.
  const std::uint64_t rounds = state.connections.size() > kUnseenMax ? 0 : kUnseenRounds;
  std::erase_if(state.connections,
                [&](const auto& entry) { return state.round - entry.second.round > rounds; });
  std::vector<ProcessTcp> out;
  for (const std::int32_t pid : pids) {
    const auto found = state.processes.find(pid);
    if (found == state.processes.end()) continue;
    ProcessTcp& totals = found->second.totals;
    totals.rtt_mean_us =
        totals.active_connections == 0 ? 0 : found->second.rtt_sum_us / totals.active_connections;
    out.push_back(totals);
  }
  return out;
}

std::vector<TcpSocket> TcpSampler::sockets(std::int32_t pid, std::size_t sockets_max) const {
  const auto process = state_->processes.find(pid);
  if (process == state_->processes.end()) return {};
  std::vector<TcpSocket> out;
  for (const DiagSocket& socket : process->second.established) {
    out.push_back({.local = local_end(socket),
                   .peer = peer_end(socket),
                   .rtt_us = socket.rtt_us,
                   .min_rtt_us = socket.min_rtt_us,
                   .bytes_sent = socket.bytes_acked,
                   .bytes_received = socket.bytes_received,
                   .retransmits = socket.retransmits,
                   .delivery_rate = socket.delivery_rate,
                   .busy_us = socket.busy_us,
                   .limited_us = socket.limited_us,
                   .quiet_ms = socket.quiet_ms});
  }
  std::sort(out.begin(), out.end(), [](const TcpSocket& a, const TcpSocket& b) {
    return std::tie(a.local, a.peer) < std::tie(b.local, b.peer);
  });
  if (out.size() > sockets_max) out.resize(sockets_max);
  return out;
}

}  // namespace kansoku::sys
