// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/activity/activity.h"
#include "gpu/activity/internal/device_figures.h"

namespace kansoku::gpu::activity {

/// The longest step of a device in `window`, or without steps the stretch of it that is most idle.
/// `causes`: null if idle time has no known causes.
[[nodiscard]] DeviceTimeline timeline_of(const Input& in, const Device& device,
                                         const DeviceTime& time, stats::Interval window,
                                         IdleCauses* causes, const Stretches& stretches);

}  // namespace kansoku::gpu::activity
