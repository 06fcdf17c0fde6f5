/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_MMA_H
#define KANSOKU_SOFTGPU_MMA_H
#define __CUDA_MMA_H__

/* Products of small matrices by the lanes of a warp together: d = a b + c, with a of m x k, b of
 * k x n, c and d of m x n. All lanes call each function with the same arguments but the fragment,
 * of which each holds its part; which part is not said.
 *   a and b                m n k                            c and d
 *   __half                 16 16 16, 32 8 16, 8 32 16       __half or float
 *   __nv_bfloat16          16 16 16, 32 8 16, 8 32 16       float              sm_80
 *   precision::tf32        16 16 8 (of float in memory)     float              sm_80
 *   signed, unsigned char  16 16 16, 32 8 16, 8 32 16       int                sm_72
 *   double                 8 8 4                            double             sm_80
 * Addresses are aligned to 32 bytes; `stride`, between rows (columns where a matrix is col_major),
 * counts elements and is a multiple of 16 bytes. Not there: products of 4 bits and of single bits.
 */

#include "cuda_bf16.h"
#include "cuda_fp16.h"

#if defined(__CUDA__) && defined(__cplusplus)

namespace nvcuda {
namespace wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
/* The value is what the compiler's functions take. */
struct row_major {
  static constexpr int value = 0;
};
struct col_major {
  static constexpr int value = 1;
};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
}

/* A matrix, or of one lane its part: num_elements elements x. */
template <class Use, int M, int N, int K, class T, class Layout = void>
class fragment;

namespace details {
template <class T, int Count>
struct __align__(8) elements {
  static constexpr int num_elements = Count;
  using element_type = T;
  using storage_element_type = T;
  T x[Count];
};
/* The registers behind the elements. */
template <class Register, class Fragment>
struct registers {
  static constexpr int count = sizeof(Fragment) / sizeof(Register) == 0
                                   ? 1
                                   : static_cast<int>(sizeof(Fragment) / sizeof(Register));
  Register words[count];
  __device__ inline registers() {}
  __device__ inline explicit registers(const Fragment& fragment) {
    __builtin_memcpy(words, fragment.x, sizeof(fragment.x));
  }
  __device__ inline void give(Fragment& fragment) const {
    __builtin_memcpy(fragment.x, words, sizeof(fragment.x));
  }
};
} /* namespace details */

template <class Use, int M, int N, int K, class T, class Layout, class Value>
__device__ inline void fill_fragment(fragment<Use, M, N, K, T, Layout>& f, const Value& value) {
  using Element = typename fragment<Use, M, N, K, T, Layout>::storage_element_type;
#pragma unroll
  for (int i = 0; i < f.num_elements; ++i)
    f.x[i] = static_cast<Element>(value);
}

/* One of a and b: shape, type, type in memory, type of a register, elements, the compiler's
 * function. */
#define KANSOKU_OPERAND(use, m, n, k, type, memory, word, count, load)                     \
  template <class Layout>                                                                  \
  class fragment<use, m, n, k, type, Layout> : public details::elements<memory, count> {}; \
  template <class Layout>                                                                  \
  __device__ inline void load_matrix_sync(fragment<use, m, n, k, type, Layout>& f,         \
                                          const memory* from, unsigned stride) {           \
    details::registers<word, fragment<use, m, n, k, type, Layout>> registers;              \
    load(registers.words, reinterpret_cast<const word*>(from), stride, Layout::value);     \
    registers.give(f);                                                                     \
  }
/* c and d. */
#define KANSOKU_ACCUMULATOR(m, n, k, type, word, count, load, store)                               \
  template <>                                                                                      \
  class fragment<accumulator, m, n, k, type, void> : public details::elements<type, count> {};     \
  __device__ inline void load_matrix_sync(fragment<accumulator, m, n, k, type>& f,                 \
                                          const type* from, unsigned stride, layout_t layout) {    \
    details::registers<word, fragment<accumulator, m, n, k, type>> registers;                      \
    const word* const words = reinterpret_cast<const word*>(from);                                 \
    if (layout == mem_row_major)                                                                   \
      load(registers.words, words, stride, 0);                                                     \
    else                                                                                           \
      load(registers.words, words, stride, 1);                                                     \
    registers.give(f);                                                                             \
  }                                                                                                \
  __device__ inline void store_matrix_sync(                                                        \
      type* to, const fragment<accumulator, m, n, k, type>& f, unsigned stride, layout_t layout) { \
    details::registers<word, fragment<accumulator, m, n, k, type>> registers(f);                   \
    word* const words = reinterpret_cast<word*>(to);                                               \
    if (layout == mem_row_major)                                                                   \
      store(words, registers.words, stride, 0);                                                    \
    else                                                                                           \
      store(words, registers.words, stride, 1);                                                    \
  }
/* The product: `word` of a and b, type and register of d and of c. */
#define KANSOKU_PRODUCT(m, n, k, type, word, d_type, d_word, c_type, c_word, product)      \
  template <class A, class B>                                                              \
  __device__ inline void mma_sync(fragment<accumulator, m, n, k, d_type>& d,               \
                                  const fragment<matrix_a, m, n, k, type, A>& a,           \
                                  const fragment<matrix_b, m, n, k, type, B>& b,           \
                                  const fragment<accumulator, m, n, k, c_type>& c) {       \
    const details::registers<word, fragment<matrix_a, m, n, k, type, A>> left(a);          \
    const details::registers<word, fragment<matrix_b, m, n, k, type, B>> right(b);         \
    const details::registers<c_word, fragment<accumulator, m, n, k, c_type>> sum(c);       \
    details::registers<d_word, fragment<accumulator, m, n, k, d_type>> result;             \
    product(result.words, left.words, right.words, sum.words, A::value * 2 + B::value, 0); \
    result.give(d);                                                                        \
  }

/* Types that an architecture lacks have no fragments there: code for it does not compile. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 700
/* Half precision: a and b hold their elements twice, whatever the shape. */
#define KANSOKU_HALF_SHAPE(m, n, shape)                                                           \
  KANSOKU_OPERAND(matrix_a, m, n, 16, __half, __half, int, 16, __hmma_##shape##_ld_a)             \
  KANSOKU_OPERAND(matrix_b, m, n, 16, __half, __half, int, 16, __hmma_##shape##_ld_b)             \
  KANSOKU_ACCUMULATOR(m, n, 16, __half, int, 8, __hmma_##shape##_ld_c_f16,                        \
                      __hmma_##shape##_st_c_f16)                                                  \
  KANSOKU_ACCUMULATOR(m, n, 16, float, float, 8, __hmma_##shape##_ld_c_f32,                       \
                      __hmma_##shape##_st_c_f32)                                                  \
  KANSOKU_PRODUCT(m, n, 16, __half, int, float, float, float, float, __hmma_##shape##_mma_f32f32) \
  KANSOKU_PRODUCT(m, n, 16, __half, int, __half, int, __half, int, __hmma_##shape##_mma_f16f16)   \
  KANSOKU_PRODUCT(m, n, 16, __half, int, float, float, __half, int, __hmma_##shape##_mma_f32f16)  \
  KANSOKU_PRODUCT(m, n, 16, __half, int, __half, int, float, float, __hmma_##shape##_mma_f16f32)
KANSOKU_HALF_SHAPE(16, 16, m16n16k16)
KANSOKU_HALF_SHAPE(32, 8, m32n8k16)
KANSOKU_HALF_SHAPE(8, 32, m8n32k16)
#undef KANSOKU_HALF_SHAPE
#endif

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 720
#define KANSOKU_BYTE_SHAPE(m, n, shape, type, name, a_count, b_count)                         \
  KANSOKU_OPERAND(matrix_a, m, n, 16, type, type, int, a_count, __imma_##shape##_ld_a_##name) \
  KANSOKU_OPERAND(matrix_b, m, n, 16, type, type, int, b_count, __imma_##shape##_ld_b_##name) \
  KANSOKU_PRODUCT(m, n, 16, type, int, int, int, int, int, __imma_##shape##_mma_##name)
#define KANSOKU_BYTE_SHAPES(m, n, shape, a_count, b_count)                                     \
  KANSOKU_ACCUMULATOR(m, n, 16, int, int, 8, __imma_##shape##_ld_c, __imma_##shape##_st_c_i32) \
  KANSOKU_BYTE_SHAPE(m, n, shape, signed char, s8, a_count, b_count)                           \
  KANSOKU_BYTE_SHAPE(m, n, shape, unsigned char, u8, a_count, b_count)
KANSOKU_BYTE_SHAPES(16, 16, m16n16k16, 8, 8)
KANSOKU_BYTE_SHAPES(32, 8, m32n8k16, 16, 4)
KANSOKU_BYTE_SHAPES(8, 32, m8n32k16, 4, 16)
#undef KANSOKU_BYTE_SHAPES
#undef KANSOKU_BYTE_SHAPE
#endif

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define KANSOKU_BFLOAT_SHAPE(m, n, shape, a_count, b_count)                       \
  KANSOKU_OPERAND(matrix_a, m, n, 16, __nv_bfloat16, __nv_bfloat16, int, a_count, \
                  __mma_bf16_##shape##_ld_a)                                      \
  KANSOKU_OPERAND(matrix_b, m, n, 16, __nv_bfloat16, __nv_bfloat16, int, b_count, \
                  __mma_bf16_##shape##_ld_b)                                      \
  KANSOKU_PRODUCT(m, n, 16, __nv_bfloat16, int, float, float, float, float,       \
                  __mma_bf16_##shape##_mma_f32)
KANSOKU_BFLOAT_SHAPE(16, 16, m16n16k16, 8, 8)
KANSOKU_BFLOAT_SHAPE(32, 8, m32n8k16, 16, 4)
KANSOKU_BFLOAT_SHAPE(8, 32, m8n32k16, 4, 16)
#undef KANSOKU_BFLOAT_SHAPE

/* The product takes the upper 19 bits of a float; __float_to_tf32 rounds to them. */
__device__ inline float __float_to_tf32(float value) {
  float result;
  asm("{\n\t.reg .b32 rounded;\n\tcvt.rna.tf32.f32 rounded, %1;\n\tmov.b32 %0, rounded;\n\t}"
      : "=f"(result)
      : "f"(value));
  return result;
}
KANSOKU_OPERAND(matrix_a, 16, 16, 8, precision::tf32, float, int, 4, __mma_tf32_m16n16k8_ld_a)
KANSOKU_OPERAND(matrix_b, 16, 16, 8, precision::tf32, float, int, 4, __mma_tf32_m16n16k8_ld_b)
KANSOKU_ACCUMULATOR(16, 16, 8, float, float, 8, __mma_tf32_m16n16k8_ld_c, __mma_m16n16k8_st_c_f32)
KANSOKU_PRODUCT(16, 16, 8, precision::tf32, int, float, float, float, float,
                __mma_tf32_m16n16k8_mma_f32)
KANSOKU_OPERAND(matrix_a, 8, 8, 4, double, double, double, 1, __dmma_m8n8k4_ld_a)
KANSOKU_OPERAND(matrix_b, 8, 8, 4, double, double, double, 1, __dmma_m8n8k4_ld_b)
KANSOKU_ACCUMULATOR(8, 8, 4, double, double, 2, __dmma_m8n8k4_ld_c, __dmma_m8n8k4_st_c_f64)
KANSOKU_PRODUCT(8, 8, 4, double, double, double, double, double, double, __dmma_m8n8k4_mma_f64)
#endif

#undef KANSOKU_OPERAND
#undef KANSOKU_ACCUMULATOR
#undef KANSOKU_PRODUCT

} /* namespace wmma */
} /* namespace nvcuda */

#endif /* __CUDA__ && __cplusplus */

#endif /* KANSOKU_SOFTGPU_MMA_H */
