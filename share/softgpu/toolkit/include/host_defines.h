/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_HOST_DEFINES_H
#define KANSOKU_SOFTGPU_HOST_DEFINES_H

/* The words with which CUDA C++ marks functions and variables. Outside of CUDA sources those that
 * a shared header needs stand for nothing. */

#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __attribute__((aligned(bytes)))
#define CUDARTAPI
#define CUDART_CB
#define CUDAAPI
#ifdef __cplusplus
#define KANSOKU_DEFAULT(value) = value
#else
#define KANSOKU_DEFAULT(value)
#endif

#ifdef __CUDA__
#define __constant__ __attribute__((constant))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __managed__ __attribute__((managed))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __forceinline__ inline __attribute__((always_inline))
#define __inline_hint__
#define __maxnreg__(count)
#define __cluster_dims__(...)
/* Parameters of kernels are read only as it is. */
#define __grid_constant__
#else
#define __host__
#define __device__
#define __global__
#define __forceinline__ __inline__ __attribute__((always_inline))
#endif

#endif /* KANSOKU_SOFTGPU_HOST_DEFINES_H */
