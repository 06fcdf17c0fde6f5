// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "capture/job.h"

namespace kansoku::capture {

/// A process as a job of its own: its program and pid.
[[nodiscard]] std::string own_job_name(const JobProcess& process);

/// Names the jobs of this host so that different ones never have the same name: two containers may
/// both have their rank 0 at 127.0.0.1:29500, and an environment is whatever a user writes into it.
/// Single-threaded.
class JobNames {
 public:
  /// The name that the environment tells, or the program and its pid. If another user's processes,
  /// or for loopback addresses those of another network namespace, have the name: with "#2" and so
  /// on behind it.
  [[nodiscard]] std::string name_of(const JobProcess& process);
  /// Names that nobody used since the last call are free again.
  void end_window();

 private:
  using Owner = std::tuple<std::string, std::uint32_t, std::uint64_t>;  // name, user, network
  struct Named {
    std::string name;
    bool is_used{true};
  };
  std::map<Owner, Named> names_;
};

}  // namespace kansoku::capture
