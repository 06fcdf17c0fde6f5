// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/stat.h"
#include "common/time.h"
#include "sys/fd.h"

namespace kansoku::capture::kineto {

STAT(kineto_bad_datagrams, kNotice, kCapture,
     "datagrams on the profiler socket that were no request of the protocol");
STAT(kineto_foreign_datagrams, kNotice, kCapture,
     "datagrams of other users, or in the name of another process; they were not answered");

struct DaemonOptions {
  std::string name{"dynolog"};                   // of the abstract socket that Kineto looks for
  std::size_t processes_max{65536};              // registered at once
  Nanos forget_after{std::chrono::seconds{60}};  // without a sign of life
};

/// Profiling window, as the framework's profiler sees it.
struct Window {
  std::int64_t start_unix_ms{0};
  std::int64_t duration_ms{0};
  std::string folder;  // traces go to FOLDER/kineto_PID.json
  bool with_stacks{false};
};

/// Answers the profilers of the processes of this user (and of root). Single-threaded; the owner
/// calls pump() when fd() is readable, at least every 50 ms: a client waits 90 ms.
class Daemon {
 public:
  /// Binds the socket. kUnavailable if another daemon has the name.
  [[nodiscard]] static Result<std::unique_ptr<Daemon>> open(const DaemonOptions& options);

  [[nodiscard]] int fd() const { return socket_.raw(); }
  /// Answers everything that waits; returns how many datagrams there were.
  std::size_t pump(BootTime now);
  /// Every registered process gets this window with its next question, once each; those that ask
  /// after its end do not.
  void request(const Window& window);

  /// Processes that asked lately, ascending.
  [[nodiscard]] std::vector<std::int32_t> processes() const;
  /// Number of these that were given the present window.
  [[nodiscard]] std::size_t handed_out() const;

  struct Counters {
    std::uint64_t datagrams{0}, bad{0}, foreign{0}, over_limit{0}, unanswered{0};
  };
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  struct Process {
    BootTime seen{};
    bool has_window{false};
  };
  Daemon(sys::Fd socket, const DaemonOptions& options)
      : socket_(std::move(socket)), options_(options) {}
  bool handle_one(BootTime now);
  [[nodiscard]] std::string answer(std::string_view datagram, pid_t sender, BootTime now);
  [[nodiscard]] std::string config_for(std::int32_t pid) const;
  Process* touch(std::int32_t pid, BootTime now);
  void forget_silent(BootTime now);

  sys::Fd socket_;
  DaemonOptions options_;
  std::map<std::int32_t, Process> processes_;
  Window window_;
  bool has_window_{false};
  Counters counters_;
};

}  // namespace kansoku::capture::kineto
