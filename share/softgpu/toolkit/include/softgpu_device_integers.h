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

/* Which lanes of the mask hold the same value; or whether all do, else 0. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 700
#define KANSOKU_MATCH(type, bits, word)                                                        \
  static __device__ inline unsigned __match_any_sync(unsigned mask, type value) {              \
    return __match##bits##_any_sync(mask, __builtin_bit_cast(word, value));                    \
  }                                                                                            \
  static __device__ inline unsigned __match_all_sync(unsigned mask, type value, int* is_all) { \
    return __match##bits##_all_sync(mask, __builtin_bit_cast(word, value), is_all);            \
  }
KANSOKU_MATCH(int, 32, unsigned)
KANSOKU_MATCH(unsigned, 32, unsigned)
KANSOKU_MATCH(float, 32, unsigned)
KANSOKU_MATCH(long, 64, unsigned long long)
KANSOKU_MATCH(unsigned long, 64, unsigned long long)
KANSOKU_MATCH(long long, 64, unsigned long long)
KANSOKU_MATCH(unsigned long long, 64, unsigned long long)
KANSOKU_MATCH(double, 64, unsigned long long)
#undef KANSOKU_MATCH
#endif

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
