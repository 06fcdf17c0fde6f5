/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_VECTOR_TYPES_H
#define KANSOKU_SOFTGPU_VECTOR_TYPES_H

/* Two, three or four numbers of a kind. Pairs and quadruples are aligned as a whole, to 16 bytes at
 * most, so that a thread can load one at once; triples are not. */

#include "host_defines.h"

#define KANSOKU_VECTORS(name, scalar, align2, align4) \
  struct name##1 {                                    \
    scalar x;                                         \
  };                                                  \
  struct __align__(align2) name##2 {                  \
    scalar x, y;                                      \
  };                                                  \
  struct name##3 {                                    \
    scalar x, y, z;                                   \
  };                                                  \
  struct __align__(align4) name##4 {                  \
    scalar x, y, z, w;                                \
  };                                                  \
  typedef struct name##1 name##1;                     \
  typedef struct name##2 name##2;                     \
  typedef struct name##3 name##3;                     \
  typedef struct name##4 name##4;

KANSOKU_VECTORS(char, signed char, 2, 4)
KANSOKU_VECTORS(uchar, unsigned char, 2, 4)
KANSOKU_VECTORS(short, short, 4, 8)
KANSOKU_VECTORS(ushort, unsigned short, 4, 8)
KANSOKU_VECTORS(int, int, 8, 16)
KANSOKU_VECTORS(uint, unsigned, 8, 16)
KANSOKU_VECTORS(long, long, 16, 16)
KANSOKU_VECTORS(ulong, unsigned long, 16, 16)
KANSOKU_VECTORS(longlong, long long, 16, 16)
KANSOKU_VECTORS(ulonglong, unsigned long long, 16, 16)
KANSOKU_VECTORS(float, float, 8, 16)
KANSOKU_VECTORS(double, double, 16, 16)
#undef KANSOKU_VECTORS

/* Blocks of a grid or threads of a block; what is not given is 1. */
struct dim3 {
  unsigned x, y, z;
#ifdef __cplusplus
  __host__ __device__ constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1)
      : x(vx), y(vy), z(vz) {}
  __host__ __device__ constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  __host__ __device__ constexpr operator uint3() const {
    return uint3{x, y, z};
  }
#endif
};
typedef struct dim3 dim3;

#endif /* KANSOKU_SOFTGPU_VECTOR_TYPES_H */
