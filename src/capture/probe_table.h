// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "capture/pack.h"

namespace kansoku::capture {

/// What the record of an attached probe means. The index in the table is the probe number of the
/// ring records.
struct ProbeInfo {
  std::string title, category;
  ProbeKind kind{ProbeKind::kCall};
  bool is_syscall{false};
  bool is_host{false};    // belongs to no observed process
  bool ends_usdt{false};  // an END of the probe `begins`
  std::uint32_t begins{0};
  std::size_t group{0};  // of Engine::use_group()
  std::optional<std::string> ordinal_by{};
  std::vector<CaptureDef> captures{};
};

/// Attached probes by number. A deque: references stay valid while probes are added.
using ProbeTable = std::deque<ProbeInfo>;

}  // namespace kansoku::capture
