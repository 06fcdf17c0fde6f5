// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/activity/activity.h"
#include "gpu/activity/internal/host_slices.h"

namespace kansoku::gpu::activity {

/// Findings from the figures of `report`, memory first, then by cost. Thresholds: thresholds.inc.
/// Oddities that are no finding go as notes into `report.notes`.
[[nodiscard]] std::vector<Finding> findings_of(const Input& in, WorkReport& report);

/// Notes beyond a bound are left out.
void add_note(std::int32_t pid, std::string text, WorkReport& report);

/// Which job a process is of, by Options::jobs: processes of one job have one number.
[[nodiscard]] std::int64_t job_of(const Options& options, std::int32_t pid, std::int32_t rank);

inline constexpr std::string_view kClockedLower = "clocked_lower";

/// A kernel, or all of them, of one rank.
struct SlowKernel {
  std::int32_t pid{0}, rank{0};  // one of the rank's processes
  std::string detail;            // the kernel's name, or kClockedLower
  double share{0};               // of the judged time
  std::string evidence;
};

/// Kernels that a rank takes longer for than its peers of its job for the same work, and devices
/// clocked lower. Ranks whose work differs from most go as a note into `report.device_notes`.
[[nodiscard]] std::vector<SlowKernel> slow_kernels(const Input& in, WorkReport& report);

}  // namespace kansoku::gpu::activity
