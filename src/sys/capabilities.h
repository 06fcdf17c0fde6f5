// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace kansoku::sys {

/// A right that Linux gives one by one, with its number in the kernel's interface.
enum class Capability : std::uint8_t {
  kDacReadSearch = 2,
  kNetAdmin = 12,
  kSysPtrace = 19,
  kSysAdmin = 21,
  kPerfmon = 38,
  kBpf = 39,
  kCheckpointRestore = 40,
};

/// Description of a capability that Kansoku uses.
struct CapabilityInfo {
  Capability capability{};
  std::string_view name;     // "CAP_BPF"
  std::string_view purpose;  // the loss without it
};
/// All of them, in the order in which they matter.
[[nodiscard]] std::span<const CapabilityInfo> known_capabilities();

/// Those of known_capabilities() that this thread has in effect: a bit each, by number.
[[nodiscard]] Result<std::uint64_t> effective_capabilities();
/// `set`: of effective_capabilities(). CAP_SYS_ADMIN counts for CAP_BPF, CAP_PERFMON and
/// CAP_CHECKPOINT_RESTORE, which it includes.
[[nodiscard]] bool has_capability(std::uint64_t set, Capability capability);
/// Those that are missing in `set`, with their purposes; CAP_SYS_ADMIN is never among them, since
/// nothing needs it if the others are there.
[[nodiscard]] std::vector<CapabilityInfo> missing_capabilities(std::uint64_t set);

/// Gives up all capabilities but `kept`, for good: of all sets of this process, the bounding one
/// included, so that no program it starts gets them back, not even one of root or with file
/// capabilities. A capability of `kept` that is missing now stays missing. Without CAP_SETPCAP the
/// bounding set stays as it is; that gives nobody anything, since new rights are refused from here
/// on (no_new_privs). A failure leaves some rights given up, never more than before. To be called
/// before other threads are started: only the calling one is changed.
[[nodiscard]] Result<void> keep_only(std::span<const Capability> kept);

}  // namespace kansoku::sys
