// SPDX-License-Identifier: Apache-2.0
#include "common/stat.h"

#include <array>

namespace kansoku {
namespace {
constexpr std::array<std::string_view, 4> kNames{"info", "notice", "data_loss", "error"};
}  // namespace

std::string_view severity_name(Severity severity) {
  return kNames.at(static_cast<std::size_t>(severity));
}

Severity severity_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Severity>(i);
  }
  return Severity::kDataLoss;
}

}  // namespace kansoku
