// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "common/result.h"
#include "gpu/exec/cost.h"

namespace kansoku::softcuda {

/// Meaning of the device's times.
enum class ClockKind : std::uint8_t {
  kWall,   // the host's boot clock: how long the interpreter took
  kModel,  // virtual time: a GPU's time by the model
};
/// "wall", "model". kCorrupt names the setting and its values.
[[nodiscard]] Result<ClockKind> clock_kind_from(std::string_view text);
[[nodiscard]] std::string_view clock_name(ClockKind kind);

/// Costs of operations on the modelled device. Rows: time_model.inc.
struct TimeModel {
#define KANSOKU_MODEL_ROW(id, what, unit, sm_61, sm_80, source) std::uint64_t id{0};
#include "softcuda/internal/time_model.inc"
  gpu::exec::CycleCosts costs;
};
/// `architecture`: 61 or 80.
[[nodiscard]] TimeModel time_model(int architecture);

/// How long a kernel occupies the device: as long as its slowest multiprocessor computes, or as
/// long as its sectors are on the way, whichever is longer. A multiprocessor computes as long as
/// the sum of its instructions' cycles, and not shorter than its blocks' slowest warps, of which
/// `resident_blocks` wait at once.
[[nodiscard]] std::uint64_t kernel_ns(const TimeModel& model, const gpu::exec::LaunchCounts& counts,
                                      std::uint32_t resident_blocks);
/// Nanoseconds for so many bytes at so many GB/s, rounded up.
[[nodiscard]] std::uint64_t transfer_ns(std::uint64_t bytes, std::uint64_t gbps);
/// Within the device each byte is read and written.
[[nodiscard]] std::uint64_t copy_within_ns(const TimeModel& model, std::uint64_t bytes);

}  // namespace kansoku::softcuda
