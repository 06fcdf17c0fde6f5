/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_DEVICE_LAUNCH_PARAMETERS_H
#define KANSOKU_SOFTGPU_DEVICE_LAUNCH_PARAMETERS_H

/* threadIdx, blockIdx, blockDim, gridDim and warpSize: the compiler's own. */
#include "cuda_runtime.h"

#endif /* KANSOKU_SOFTGPU_DEVICE_LAUNCH_PARAMETERS_H */
