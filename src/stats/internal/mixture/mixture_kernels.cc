// SPDX-License-Identifier: Apache-2.0
#include "stats/internal/mixture/mixture_kernels.h"

#include "common/isa.h"

namespace kansoku::stats::internal {

const MixtureKernels& mixture_kernels(Isa isa) {
  switch (isa) {
    case Isa::kV2:
      break;
    case Isa::kV3:
      return mixture_kernels_v3();
    case Isa::kV4:
      return mixture_kernels_v4();
  }
  return mixture_kernels_v2();
}

const MixtureKernels& mixture_kernels() {
  static const MixtureKernels& kernels = mixture_kernels(best_isa());
  return kernels;
}

}  // namespace kansoku::stats::internal
