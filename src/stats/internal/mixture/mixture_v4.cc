// SPDX-License-Identifier: Apache-2.0
// The loops for x86-64-v4: see mixture_math.h for what this file may include.
#include "stats/internal/mixture/mixture_loops.h"

namespace kansoku::stats::internal {

const MixtureKernels& mixture_kernels_v4() {
  static constexpr MixtureKernels kKernels{log_terms, log_sums, normalise, add_moments};
  return kKernels;
}

}  // namespace kansoku::stats::internal
