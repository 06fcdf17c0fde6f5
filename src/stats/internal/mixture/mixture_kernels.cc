// SPDX-License-Identifier: Apache-2.0
#include "stats/internal/mixture/mixture_kernels.h"

namespace kansoku::stats::internal {

MixtureIsa best_mixture_isa() {
  // The subsets that the compiler may use for each level; as for the lane loops of gpu/exec.
  const bool has_v3 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
                      __builtin_cpu_supports("bmi2") != 0;
  const bool has_v4 =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  if (!has_v3) return MixtureIsa::kV2;
  return has_v4 ? MixtureIsa::kV4 : MixtureIsa::kV3;
}

const MixtureKernels& mixture_kernels(MixtureIsa isa) {
  switch (isa) {
    case MixtureIsa::kV2:
      break;
    case MixtureIsa::kV3:
      return mixture_kernels_v3();
    case MixtureIsa::kV4:
      return mixture_kernels_v4();
  }
  return mixture_kernels_v2();
}

const MixtureKernels& mixture_kernels() {
  static const MixtureKernels& kernels = mixture_kernels(best_mixture_isa());
  return kernels;
}

}  // namespace kansoku::stats::internal
