/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_CUDA_PROFILER_API_H
#define KANSOKU_SOFTGPU_CUDA_PROFILER_API_H

/* cudaProfilerStart and cudaProfilerStop, which have no effect. */
#include "cuda_runtime_api.h"

#endif /* KANSOKU_SOFTGPU_CUDA_PROFILER_API_H */
