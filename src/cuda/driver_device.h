// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "cuda/device.h"
#include "cuda/driver.h"

namespace kansoku::cuda {

/// Device `ordinal` of a driver, in its primary context. Every call makes that context current on
/// the calling thread. kUnavailable if there is no such device.
[[nodiscard]] Result<std::unique_ptr<Device>> open_device(const Driver& driver, int ordinal);

/// Devices that the driver has; 0 without one. kUnavailable if it does not start.
[[nodiscard]] Result<int> count_devices(const Driver& driver);

}  // namespace kansoku::cuda
