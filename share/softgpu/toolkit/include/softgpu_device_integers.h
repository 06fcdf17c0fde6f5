/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_DEVICE_INTEGERS_H
#define KANSOKU_SOFTGPU_DEVICE_INTEGERS_H

/* Intrinsics that clang's headers lack: dot products of packed integers, loads and stores with a
 * hint for the cache. */

#define KANSOKU_DOT(name, text, a_type, b_type, type)                       \
  static __device__ inline type name(a_type a, b_type b, type sum) {        \
    type result;                                                            \
    asm(text " %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum)); \
    return result;                                                          \
  }
/* Four products of 8 bits. */
KANSOKU_DOT(__dp4a, "dp4a.s32.s32", int, int, int)
KANSOKU_DOT(__dp4a, "dp4a.u32.u32", unsigned, unsigned, unsigned)
/* Two products of 16 by 8 bits: with the low or the high pair of b. */
KANSOKU_DOT(__dp2a_lo, "dp2a.lo.s32.s32", int, int, int)
KANSOKU_DOT(__dp2a_lo, "dp2a.lo.u32.u32", unsigned, unsigned, unsigned)
KANSOKU_DOT(__dp2a_hi, "dp2a.hi.s32.s32", int, int, int)
KANSOKU_DOT(__dp2a_hi, "dp2a.hi.u32.u32", unsigned, unsigned, unsigned)
#undef KANSOKU_DOT

/* Hints for caches change no result: clang compiles them as plain accesses here. */
#define KANSOKU_HINTED(load, store)                        \
  template <class T>                                       \
  static __device__ inline T load(const T* place) {        \
    return *place;                                         \
  }                                                        \
  template <class T>                                       \
  static __device__ inline void store(T* place, T value) { \
    *place = value;                                        \
  }
KANSOKU_HINTED(__ldcg, __stcg)
KANSOKU_HINTED(__ldca, __stwb)
KANSOKU_HINTED(__ldcs, __stcs)
#undef KANSOKU_HINTED
template <class T>
static __device__ inline T __ldlu(const T* place) {
  return *place;
}
template <class T>
static __device__ inline T __ldcv(const T* place) {
  return *static_cast<const volatile T*>(place);
}
template <class T>
static __device__ inline void __stwt(T* place, T value) {
  *static_cast<volatile T*>(place) = value;
}

#endif /* KANSOKU_SOFTGPU_DEVICE_INTEGERS_H */
