/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_VECTOR_FUNCTIONS_H
#define KANSOKU_SOFTGPU_VECTOR_FUNCTIONS_H

/* make_int4(1, 2, 3, 4) and its like. */

#include "vector_types.h"

#ifdef __cplusplus
#define KANSOKU_MAKE(name, scalar)                                                                 \
  static inline __host__ __device__ constexpr name##1 make_##name##1(scalar x) {                   \
    return name##1 {x};                                                                            \
  }                                                                                                \
  static inline __host__ __device__ constexpr name##2 make_##name##2(scalar x, scalar y) {         \
    return name##2 {x, y};                                                                         \
  }                                                                                                \
  static inline __host__ __device__ constexpr name##3 make_##name##3(scalar x, scalar y,           \
                                                                     scalar z) {                   \
    return name##3 {x, y, z};                                                                      \
  }                                                                                                \
  static inline __host__ __device__ constexpr name##4 make_##name##4(scalar x, scalar y, scalar z, \
                                                                     scalar w) {                   \
    return name##4 {x, y, z, w};                                                                   \
  }

KANSOKU_MAKE(char, signed char)
KANSOKU_MAKE(uchar, unsigned char)
KANSOKU_MAKE(short, short)
KANSOKU_MAKE(ushort, unsigned short)
KANSOKU_MAKE(int, int)
KANSOKU_MAKE(uint, unsigned)
KANSOKU_MAKE(long, long)
KANSOKU_MAKE(ulong, unsigned long)
KANSOKU_MAKE(longlong, long long)
KANSOKU_MAKE(ulonglong, unsigned long long)
KANSOKU_MAKE(float, float)
KANSOKU_MAKE(double, double)
#undef KANSOKU_MAKE
#endif

#endif /* KANSOKU_SOFTGPU_VECTOR_FUNCTIONS_H */
