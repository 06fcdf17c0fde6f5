// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "cuda/device.h"
#include "cuda/driver.h"

namespace kansoku::cuda {

/// The context in which a device works: the one that the runtime has, or a new one, which ends with
/// the device.
enum class ContextKind : std::uint8_t { kPrimary, kOwn };

/// Device `ordinal` of a driver. Every call has that context current on the calling thread, and
/// restores the former one. kUnavailable if there is no such device.
[[nodiscard]] Result<std::unique_ptr<Device>> open_device(const Driver& driver, int ordinal,
                                                          ContextKind kind = ContextKind::kPrimary);

/// Devices that the driver has; 0 without one. kUnavailable if it does not start.
[[nodiscard]] Result<int> count_devices(const Driver& driver);

}  // namespace kansoku::cuda
