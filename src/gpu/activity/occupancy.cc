// SPDX-License-Identifier: Apache-2.0
#include "gpu/activity/occupancy.h"

#include <algorithm>
#include <array>

#include "common/parse.h"

namespace kansoku::gpu::activity {
namespace {

constexpr std::uint64_t kWarp = 32;
constexpr std::uint64_t kLimitMax = std::uint64_t{1} << 30;

std::uint64_t rounded_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

std::optional<MultiprocessorLimits> limits_of(std::string_view untrusted) {
  MultiprocessorLimits limits;
  const std::array members{std::pair{std::string_view("major"), &limits.major},
                           std::pair{std::string_view("threads"), &limits.threads},
                           std::pair{std::string_view("blocks"), &limits.blocks},
                           std::pair{std::string_view("registers"), &limits.registers},
                           std::pair{std::string_view("shared_bytes"), &limits.shared_bytes}};
  while (!untrusted.empty()) {
    const std::string_view word = untrusted.substr(0, untrusted.find(' '));
    untrusted.remove_prefix(std::min(untrusted.size(), word.size() + 1));
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) continue;
    for (const auto& [name, value] : members) {
      if (name == word.substr(0, equals))
        *value = parse_int<std::uint64_t>(word.substr(equals + 1)).value_or(0);
    }
  }
  for (const auto& [name, value] : members) {
    if (*value == 0 || *value > kLimitMax) return std::nullopt;
  }
  return limits;
}

std::optional<double> occupancy_of(const MultiprocessorLimits& limits, std::uint64_t block_threads,
                                   std::uint64_t registers, std::uint64_t shared_bytes) {
  if (limits.major < 7 || block_threads == 0 || block_threads > limits.threads) return std::nullopt;
  if (registers > limits.registers || shared_bytes > limits.shared_bytes) return std::nullopt;
  const std::uint64_t warps = (block_threads + kWarp - 1) / kWarp;
  std::uint64_t blocks = std::min(limits.blocks, limits.threads / kWarp / warps);
  if (registers > 0) {
    const std::uint64_t of_warp = rounded_up(registers * kWarp, 256);
    // Each of the four parts of a multiprocessor has a quarter of the registers.
    const std::uint64_t warps_max = limits.registers / 4 / of_warp * 4;
    blocks = std::min(blocks, warps_max / warps);
  }
  const std::uint64_t of_system = limits.major >= 8 ? 1024 : 0;
  const std::uint64_t of_block =
      rounded_up(shared_bytes + of_system, limits.major >= 8 ? 128 : 256);
  if (of_block > 0) blocks = std::min(blocks, limits.shared_bytes / of_block);
  if (blocks == 0) return std::nullopt;
  return static_cast<double>(blocks * warps * kWarp) / static_cast<double>(limits.threads);
}

}  // namespace kansoku::gpu::activity
