// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "capture/job.h"

namespace kansoku::capture {

/// Whose a job of that name is: the user, and for loopback addresses the network namespace (else
/// 0), since two containers may both have their rank 0 at 127.0.0.1:29500.
using JobOwner = std::pair<std::uint32_t, std::uint64_t>;
[[nodiscard]] JobOwner job_owner(const JobProcess& process);

/// Whether the name of its job means nothing on other hosts: none is told, or a loopback address.
[[nodiscard]] bool is_local_job(const JobProcess& process);

/// The name of the `number`-th job of one name, from 1.
[[nodiscard]] std::string numbered_job(const std::string& told, int number);

/// A process as a job of its own: its program and pid.
[[nodiscard]] std::string own_job_name(const JobProcess& process);

/// Names jobs as they are met so that those of different owners never have the same name: an
/// environment is whatever a user writes into it. Single-threaded.
class JobNames {
 public:
  /// The name that the environment tells, or the program and its pid. If another user's processes,
  /// or for loopback addresses those of another network namespace, have the name: with "#2" and so
  /// on behind it.
  [[nodiscard]] std::string name_of(const JobProcess& process);
  /// Names that nobody used since the last call are free again.
  void end_window();

 private:
  using Owner = std::pair<std::string, JobOwner>;
  struct Named {
    std::string name;
    bool is_used{true};
  };
  std::map<Owner, Named> names_;
};

}  // namespace kansoku::capture
