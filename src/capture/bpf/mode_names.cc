// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "capture/bpf/engine.h"

namespace kansoku::capture::bpf {
namespace {

constexpr std::array<std::string_view, 3> kModeNames{"session", "multi", "perf"};

}  // namespace

std::string_view attach_mode_name(AttachMode mode) {
  return kModeNames.at(static_cast<std::size_t>(mode));
}

std::optional<AttachMode> attach_mode_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kModeNames.size(); ++i) {
    if (kModeNames.at(i) == name) return static_cast<AttachMode>(i);
  }
  return std::nullopt;
}

}  // namespace kansoku::capture::bpf
