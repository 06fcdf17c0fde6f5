// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "capture/hang/hang_look.h"
#include "common/json.h"
#include "sys/procfs.h"

namespace kansoku::cli {

/// Looks twice, a second apart, at the GPU work of processes, and compares them as one job. Blocks
/// for that second.
[[nodiscard]] std::vector<capture::hang::HangLook> look_at_devices(
    const sys::Procfs& procfs, const std::vector<std::int32_t>& pids);

/// To standard output: each process, then who waits for whom.
void print_device_looks(const std::vector<capture::hang::HangLook>& looks);

/// Members `processes` and `missing` of kansoku.hang/2.
void add_device_looks(const std::vector<capture::hang::HangLook>& looks, Json& out);

/// The command's exit status by these looks alone.
[[nodiscard]] int status_of_looks(const std::vector<capture::hang::HangLook>& looks);

}  // namespace kansoku::cli
