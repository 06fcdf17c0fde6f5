// SPDX-License-Identifier: Apache-2.0
#include "softcuda/internal/time_model.h"

#include <fmt/format.h>

#include <algorithm>

namespace kansoku::softcuda {
namespace {

constexpr std::uint64_t kSectorBytes = 32;
/// 32 lanes in sixteenths of a cycle.
constexpr std::uint32_t issue16(std::uint32_t lanes_per_cycle) {
  return 32 * 16 / lanes_per_cycle;
}

#define KANSOKU_MODEL_CLASS(id, lanes_61, lanes_80, latency_61, latency_80, source) \
  static_assert(32 * 16 % (lanes_61) == 0 && 32 * 16 % (lanes_80) == 0, "not a whole sixteenth");
#include "softcuda/internal/time_model.inc"

std::uint64_t quotient_up(std::uint64_t value, std::uint64_t by) {
  return (value + by - 1) / by;
}

}  // namespace

Result<ClockKind> clock_kind_from(std::string_view text) {
  for (const ClockKind kind : {ClockKind::kWall, ClockKind::kModel}) {
    if (text == clock_name(kind)) return kind;
  }
  return Error{Code::kCorrupt, fmt::format("KANSOKU_SOFTGPU_CLOCK={}: not wall or model", text)};
}

std::string_view clock_name(ClockKind kind) {
  return kind == ClockKind::kWall ? "wall" : "model";
}

TimeModel time_model(int architecture) {
  const bool is_61 = architecture == 61;
  TimeModel model;
#define KANSOKU_MODEL_ROW(id, what, unit, sm_61, sm_80, source) \
  model.id = is_61 ? (sm_61) : (sm_80);
#define KANSOKU_MODEL_CLASS(id, lanes_61, lanes_80, latency_61, latency_80, source) \
  model.costs.classes[static_cast<std::size_t>(gpu::exec::CostClass::id)] =         \
      is_61 ? gpu::exec::ClassCost{issue16(lanes_61), latency_61}                   \
            : gpu::exec::ClassCost{issue16(lanes_80), latency_80};
#include "softcuda/internal/time_model.inc"
  model.costs.clock_mhz = static_cast<std::uint32_t>(model.clock_mhz);
  return model;
}

std::uint64_t kernel_ns(const TimeModel& model, const gpu::exec::LaunchCounts& counts,
                        std::uint32_t resident_blocks) {
  std::uint64_t cycles16 = 0;
  for (const gpu::exec::SmCounts& sm : counts.sms) {
    const std::uint64_t waits =
        std::max(sm.latency_cycles_max,
                 quotient_up(sm.latency_cycles, std::max<std::uint64_t>(resident_blocks, 1)));
    cycles16 = std::max({cycles16, sm.issue16, 16 * waits});
  }
  return std::max(quotient_up(cycles16 * 1000, 16 * model.clock_mhz),
                  transfer_ns(counts.sectors * kSectorBytes, model.memory_gbps));
}

std::uint64_t transfer_ns(std::uint64_t bytes, std::uint64_t gbps) {
  return quotient_up(bytes, gbps);
}

std::uint64_t copy_within_ns(const TimeModel& model, std::uint64_t bytes) {
  return transfer_ns(2 * bytes, model.memory_gbps);
}

}  // namespace kansoku::softcuda
