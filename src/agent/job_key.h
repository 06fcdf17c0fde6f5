// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "capture/job.h"
#include "detect/job_model.h"

namespace kansoku::agent {

/// Part of a command line that stays the same from run to run: program and script without folders,
/// options and their values but for ports, addresses, seeds, paths, step counts and ranks; code
/// given on the command line as its hash. A possible secret (values of options that are named so,
/// accounts in addresses, keys by their looks) is left out or a hash. At most 256 characters.
[[nodiscard]] std::string command_key(std::span<const std::string> untrusted_arguments);

/// Key of the model of the job that a process belongs to, on this machine. `world_size`: of the
/// job; 1 for a process that is no rank.
[[nodiscard]] detect::JobModel::Key job_key(const capture::JobProcess& process,
                                            std::int32_t world_size, const std::string& hardware);

/// "2 x Intel(R) Xeon(R) Processor; NVIDIA H200": processors and devices of this host.
[[nodiscard]] std::string hardware_text(const std::vector<std::string>& device_names);

}  // namespace kansoku::agent
