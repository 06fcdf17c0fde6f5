/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_CUDA_DEVICE_RUNTIME_API_H
#define KANSOKU_SOFTGPU_CUDA_DEVICE_RUNTIME_API_H

/* The runtime for kernels: none of it is there, kernels cannot launch kernels here. */
#include "cuda_runtime.h"

#endif /* KANSOKU_SOFTGPU_CUDA_DEVICE_RUNTIME_API_H */
