// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "gpu/activity/activity.h"
#include "gpu/activity/internal/device_figures.h"

namespace kansoku::gpu::activity {

/// Slices of idle time that a recording gets, of all devices. A bound of size: it decides nothing.
inline constexpr std::size_t kIdleSlicesMax = 200'000;

/// The gaps of a device that are wide enough to be seen, after IdleCauses::rows() of the device.
[[nodiscard]] IdleTrack idle_track_of(const Input& in, const Device& device, const DeviceTime& time,
                                      IdleCauses& causes);

/// Leaves the `slices_max` longest gaps of all tracks together and counts the others.
void keep_longest(std::vector<IdleTrack>& tracks, std::size_t slices_max = kIdleSlicesMax);

}  // namespace kansoku::gpu::activity
