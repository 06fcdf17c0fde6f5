/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_CRT_SM_70_RT_HPP
#define KANSOKU_SOFTGPU_CRT_SM_70_RT_HPP

/* Intrinsics from sm_70 on. clang's own header includes this file by name. */

static __device__ inline unsigned short atomicCAS(unsigned short* place, unsigned short expected,
                                                  unsigned short value) {
  unsigned short before;
  asm volatile("atom.cas.b16 %0, [%1], %2, %3;"
               : "=h"(before)
               : "l"(place), "h"(expected), "h"(value)
               : "memory");
  return before;
}
static __device__ inline void __nanosleep(unsigned ns) {
  asm volatile("nanosleep.u32 %0;" ::"r"(ns));
}

#endif /* KANSOKU_SOFTGPU_CRT_SM_70_RT_HPP */
