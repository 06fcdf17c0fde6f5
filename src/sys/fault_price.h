// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

namespace kansoku::sys {

/// Processor time of this machine for the first touch of a page of anonymous memory and for giving
/// it back, which whoever touches it anew has done before, in nanoseconds: the median of a few
/// rounds of some hundred pages, by this thread. Costs as many page faults. Nothing if memory
/// cannot be mapped, or if the touches did not fault one by one.
[[nodiscard]] std::optional<double> page_fault_ns();

}  // namespace kansoku::sys
