// SPDX-License-Identifier: Apache-2.0
#include "common/isa.h"

#include <cpuid.h>

#include <algorithm>
#include <array>

namespace kansoku {
namespace {

constexpr std::array<std::string_view, 3> kIsaNames{"x86-64-v2", "x86-64-v3", "x86-64-v4"};

/// Conversions of halves: not every compiler's __builtin_cpu_supports knows them.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  return kIsaNames[static_cast<std::size_t>(isa)];
}

std::optional<Isa> isa_from_name(std::string_view name) {
  const auto found = std::find(kIsaNames.begin(), kIsaNames.end(), name);
  if (found == kIsaNames.end()) return std::nullopt;
  return static_cast<Isa>(found - kIsaNames.begin());
}

Isa best_isa() {
  // The subsets that the compiler may use for each level.
  const bool has_v3 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
                      __builtin_cpu_supports("bmi2") != 0 && has_f16c();
  const bool has_v4 =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  if (!has_v3) return Isa::kV2;
  return has_v4 ? Isa::kV4 : Isa::kV3;
}

}  // namespace kansoku
