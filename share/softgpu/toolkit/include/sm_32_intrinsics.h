/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_SM_32_INTRINSICS_H
#define KANSOKU_SOFTGPU_SM_32_INTRINSICS_H

/* Loads and stores with hints; all of them come with the runtime's header. */
#include "cuda_runtime.h"

#endif /* KANSOKU_SOFTGPU_SM_32_INTRINSICS_H */
