/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_DEVICE_DOUBLE_FUNCTIONS_H
#define KANSOKU_SOFTGPU_DEVICE_DOUBLE_FUNCTIONS_H

/* Intrinsics of double precision; all of them come with the runtime's header. */
#include "cuda_runtime.h"

#endif /* KANSOKU_SOFTGPU_DEVICE_DOUBLE_FUNCTIONS_H */
