// SPDX-License-Identifier: Apache-2.0
// Kansoku's own entry points: a program looks at its launches.
#include "softcuda/internal/runtime.h"

namespace kansoku::softcuda {

// Both are described in telemetry/observed.h.
extern "C" CUresult kansoku_softgpu_observe(int device, std::uint32_t what) {
  constexpr std::uint32_t kKnown = kObserveHazards | kObserveProfile;
  Device* its = nullptr;
  KANSOKU_CU_TRY(find_device(device, its));
  if ((what & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (what == 0) {
    its->observing.end();
  } else {
    its->observing.begin(what);
  }
  return CUDA_SUCCESS;
}

extern "C" CUresult kansoku_softgpu_observed(int device, std::uint32_t section, void* items,
                                             std::uint64_t item_bytes, std::uint64_t capacity,
                                             std::uint64_t* count) {
  Device* its = nullptr;
  KANSOKU_CU_TRY(find_device(device, its));
  std::shared_ptr<const SeenSections> seen;
  KANSOKU_CU_TRY(its->observing.seen(seen));
  return hand_out(*seen, section, {items, item_bytes, capacity, count});
}

}  // namespace kansoku::softcuda
