/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_DEVICE_H
#define KANSOKU_SOFTGPU_DEVICE_H

/* Functions of the device, for CUDA sources alone. Mathematics and most intrinsics are those of
 * clang's own headers, which want to be included in one order and with one set of macros. */

#ifndef CUDA_VERSION
#define CUDA_VERSION 12040
#endif
#include <__clang_cuda_builtin_vars.h>
#include <__clang_cuda_math_forward_declares.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "softgpu_device_spaces.h"
#include "vector_functions.h"

typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;

/* clang leaves out what an architecture lacks by this macro; on the host side all is declared. */
#pragma push_macro("__CUDA_ARCH__")
#ifndef __CUDA_ARCH__
#define __CUDA_ARCH__ 9999
#endif
#define __nvvm_memcpy(to, from, bytes, align) __builtin_memcpy(to, from, bytes)
#define __nvvm_memset(to, value, bytes, align) __builtin_memset(to, value, bytes)
#if __clang_major__ < 20
/* clang 19 gives the functions behind __reduce_..._sync their arguments in the wrong order (LLVM
 * issue 131415). */
#define __nvvm_redux_sync_add(mask, value) __nvvm_redux_sync_add(value, mask)
#define __nvvm_redux_sync_min(mask, value) __nvvm_redux_sync_min(value, mask)
#define __nvvm_redux_sync_max(mask, value) __nvvm_redux_sync_max(value, mask)
#define __nvvm_redux_sync_umin(mask, value) __nvvm_redux_sync_umin(value, mask)
#define __nvvm_redux_sync_umax(mask, value) __nvvm_redux_sync_umax(value, mask)
#define __nvvm_redux_sync_and(mask, value) __nvvm_redux_sync_and(value, mask)
#define __nvvm_redux_sync_or(mask, value) __nvvm_redux_sync_or(value, mask)
#define __nvvm_redux_sync_xor(mask, value) __nvvm_redux_sync_xor(value, mask)
#endif
/* Each stands on those before it. */
// clang-format off
#include <__clang_cuda_libdevice_declares.h>
#include <__clang_cuda_device_functions.h>
#include <__clang_cuda_math.h>
#include <__clang_cuda_cmath.h>
#include <__clang_cuda_intrinsics.h>
// clang-format on
#pragma pop_macro("__CUDA_ARCH__")
#undef __nvvm_redux_sync_add
#undef __nvvm_redux_sync_min
#undef __nvvm_redux_sync_max
#undef __nvvm_redux_sync_umin
#undef __nvvm_redux_sync_umax
#undef __nvvm_redux_sync_and
#undef __nvvm_redux_sync_or
#undef __nvvm_redux_sync_xor

extern "C" __device__ int vprintf(const char* format, const char* arguments);
extern "C" __device__ int printf(const char* format, ...);
/* clang's own headers name these for the device; a kernel that calls them does not load. */
extern "C" __device__ void* malloc(size_t bytes);
extern "C" __device__ void free(void* pointer);
/* A failed assertion prints its line and ends the kernel, with cudaErrorAssert. */
extern "C" __device__ void __assertfail(const char* condition, const char* file, unsigned line,
                                        const char* function, size_t char_bytes);
extern "C" __device__ inline __attribute__((noreturn)) void __assert_fail(const char* condition,
                                                                          const char* file,
                                                                          unsigned line,
                                                                          const char* function) {
  __assertfail(condition, file, line, function, 1);
  __trap();
  __builtin_unreachable();
}

#include "softgpu_device_atomics.h"
#include "softgpu_device_integers.h"
#include "softgpu_device_math.h"

/* Launches of a stream run one after the other, so these have nothing to wait for or to start. */
static __device__ inline void cudaGridDependencySynchronize() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
static __device__ inline void cudaTriggerProgrammaticLaunchCompletion() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#endif /* KANSOKU_SOFTGPU_DEVICE_H */
