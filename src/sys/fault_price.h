// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

namespace kansoku::sys {

/// Processor time of this machine for the first touch of a page of anonymous memory, in
/// nanoseconds: the least mean of a few rounds of some hundred pages that this thread touches.
/// Costs as many page faults. Nothing if memory cannot be mapped, or if the touches did not fault
/// one by one.
[[nodiscard]] std::optional<double> page_fault_ns();

}  // namespace kansoku::sys
