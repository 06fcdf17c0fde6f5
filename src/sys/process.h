// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "sys/fd.h"

namespace kansoku::sys {

/// A child process that waits at a gate before it runs its program, so that an observer can be
/// ready first. If the parent dies before it opens the gate, the child runs all the same.
/// Destruction neither ends nor waits for the child. Move-only.
class Child {
 public:
  struct Options {
    std::vector<std::string> extra_environment;  // "NAME=value"
    std::string output_path;  // "" = inherit; else standard output and error go to that file (0600)
  };

  /// Forks; the child waits at the gate. kNotFound etc. of the program itself show as exit status
  /// 127 or 126 later.
  [[nodiscard]] static Result<Child> start(const std::vector<std::string>& argv,
                                           const Options& options);

  [[nodiscard]] int pid() const { return pid_; }
  /// Opens the gate.
  void release() { gate_ = Fd(); }
  /// The shell's exit status (128 + signal for a killed child) once the child has ended; does not
  /// block.
  [[nodiscard]] std::optional<int> poll();
  /// Waits for the end. Blocks.
  [[nodiscard]] int wait();
  /// Sends a signal; does nothing once the child was reaped.
  void send(int signal) const;
  /// The same to the child and the processes that it started: a shell handles no signal while it
  /// waits for its program. Those that left it behind (daemons) are not reached.
  void send_to_all(int signal) const;

 private:
  Child(int pid, Fd gate) : pid_(pid), gate_(std::move(gate)) {}
  std::optional<int> reap(int flags);
  int pid_{-1};
  Fd gate_;
  std::optional<int> status_;
};

/// The file that starting `name` runs: `name` itself if it names a folder, else the first in PATH
/// that may be executed; nothing if there is none.
[[nodiscard]] std::optional<std::string> find_program(const std::string& name);

/// Absolute path of the running program.
[[nodiscard]] Result<std::string> own_path();

/// Lets this process open as many files as it may: the soft limit becomes the hard one.
void raise_descriptor_limit();

/// The name of this host; empty if the kernel does not tell.
[[nodiscard]] std::string host_name();

}  // namespace kansoku::sys
