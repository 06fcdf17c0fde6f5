// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/stat.h"
#include "common/time.h"
#include "sys/fd.h"

namespace kansoku::sys {

STAT(socket_refused_peers, kNotice, kCapture, "requests of other users were refused");
STAT(socket_dropped_requests, kNotice, kCapture,
     "requests that were too long, too slow or too many at once were dropped");

/// Answers requests on a Unix socket: a client connects, sends one line, gets a text and the end of
/// the stream. Only this user and root may. One thread; nothing here blocks. Owns the socket file
/// and removes it. Move-only.
class UnixServer {
 public:
  struct Options {
    std::size_t line_bytes_max{4096};
    std::size_t connections_max{32};
    Nanos time_max{std::chrono::seconds{5}};  // from connecting to the end of the answer
  };
  struct Stats {
    std::uint64_t requests{0};
    std::uint64_t refused_peers{0};                       // socket_refused_peers
    std::uint64_t too_long{0}, too_slow{0}, too_many{0};  // socket_dropped_requests
  };
  /// Gets the line without its end, gives the answer.
  using Handler = std::function<std::string(std::string_view untrusted_line)>;

  /// Makes the socket, mode 0600. One that a dead server left is replaced. kUnavailable if somebody
  /// listens there, kUnsupported if something else is there, kLimit above 107 bytes of `path`.
  [[nodiscard]] static Result<UnixServer> listen(const std::string& path, const Options& options);
  [[nodiscard]] static Result<UnixServer> listen(const std::string& path);
  UnixServer(UnixServer&&) noexcept;
  UnixServer& operator=(UnixServer&&) noexcept;
  ~UnixServer();

  /// Can be read (poll, epoll) whenever serve() has something to do.
  [[nodiscard]] int poll_fd() const { return events_.raw(); }
  /// Does the work that can be done now: at most one request of each connection. To be called when
  /// poll_fd() can be read, and once a second or so, to drop clients that are too slow.
  void serve(BootTime now, const Handler& handler);
  [[nodiscard]] const Stats& stats() const { return stats_; }
  [[nodiscard]] std::size_t connections() const;

 private:
  struct Connection {
    Fd fd;  // not open: a free place
    BootTime since{};
    std::string line, answer;
    std::size_t sent{0};
    bool is_answering{false};
  };
  UnixServer() = default;
  void accept_all(BootTime now);
  void place(Fd fd, BootTime now);
  void read_line(std::size_t place, const Handler& handler);
  void send_answer(std::size_t place);
  void remove_file();

  std::string path_;
  dev_t device_{0};  // of the socket file, which somebody may have replaced
  ino_t inode_{0};
  Options options_;
  Stats stats_;
  Fd listener_, events_, spare_;
  std::vector<Connection> places_;
};

/// Sends `line` (without an end of line) to the server at `path` and gives its answer. Both ends
/// have to be of one user, or root. kNotFound without a socket, kUnavailable if nobody listens,
/// kPermission, kTimeout after `limit`, kLimit above `answer_bytes_max`. Blocks for `limit` at
/// most.
[[nodiscard]] Result<std::string> unix_request(const std::string& path, std::string_view line,
                                               Nanos limit,
                                               std::size_t answer_bytes_max = std::size_t{16}
                                                                              << 20);

}  // namespace kansoku::sys
