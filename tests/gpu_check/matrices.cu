// SPDX-License-Identifier: Apache-2.0
// Products of matrices by a warp. Kernels place elements as the PTX ISA lays fragments out, so that
// also the layouts are checked; products of small whole numbers are exact in every order of sums.
#include <cuda_fp16.h>
#include <mma.h>

#include "device.h"
#include "reference.h"

namespace gpu_check {

namespace {

// A is rows x depth by rows, B depth x columns by columns, C and D rows x columns by rows.
struct Shape {
  int rows, columns, depth;
};

// Registers of 32 bits hold `per` elements of consecutive columns of A, or rows of B. Row or column
// `group` = lane / 4, place `inner` = lane % 4: the layout of all m16n8 products.
template <class T>
__device__ u32 packed(const T* from) {
  u32 word;
  memcpy(&word, from, 4);
  return word;
}
template <class T>
__device__ void load_a(u32 (&a)[4], const T* matrix, int depth) {
  const int group = int(threadIdx.x) / 4, inner = int(threadIdx.x) % 4, per = 4 / int(sizeof(T));
  for (int i = 0; i < 4; ++i)
    a[i] = packed(matrix + (group + i % 2 * 8) * depth + inner * per + i / 2 * 4 * per);
}
template <class T>
__device__ void load_b(u32 (&b)[2], const T* matrix, int depth) {
  const int group = int(threadIdx.x) / 4, inner = int(threadIdx.x) % 4, per = 4 / int(sizeof(T));
  for (int i = 0; i < 2; ++i)
    b[i] = packed(matrix + group * depth + inner * per + i * 4 * per);
}
// Element i of four of C and D: two rows, two neighbouring columns.
__device__ int place(int i) {
  return (int(threadIdx.x) / 4 + i / 2 * 8) * 8 + int(threadIdx.x) % 4 * 2 + i % 2;
}
#define MMA_F32(id, T, depth, form)                                                                \
  __global__ void id(float* out, const T* a, const T* b, const float* add) {                       \
    u32 x[4], y[2];                                                                                \
    load_a(x, a, depth);                                                                           \
    load_b(y, b, depth);                                                                           \
    float d[4];                                                                                    \
    for (int i = 0; i < 4; ++i)                                                                    \
      d[i] = add[place(i)];                                                                        \
    asm volatile("mma.sync.aligned." form " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                  \
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));              \
    for (int i = 0; i < 4; ++i)                                                                    \
      out[place(i)] = d[i];                                                                        \
  }
MMA_F32(mma_f16, u16, 16, "m16n8k16.row.col.f32.f16.f16.f32")
MMA_F32(mma_bf16, u16, 16, "m16n8k16.row.col.f32.bf16.bf16.f32")
MMA_F32(mma_tf32, float, 8, "m16n8k8.row.col.f32.tf32.tf32.f32")
#define MMA_S32(id, T, form)                                                                       \
  __global__ void id(s32* out, const T* a, const T* b, const s32* add) {                           \
    u32 x[4], y[2];                                                                                \
    load_a(x, a, 32);                                                                              \
    load_b(y, b, 32);                                                                              \
    s32 d[4];                                                                                      \
    for (int i = 0; i < 4; ++i)                                                                    \
      d[i] = add[place(i)];                                                                        \
    asm volatile("mma.sync.aligned." form " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                  \
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));              \
    for (int i = 0; i < 4; ++i)                                                                    \
      out[place(i)] = d[i];                                                                        \
  }
MMA_S32(mma_s8, s8, "m16n8k32.row.col.s32.s8.s8.s32")
MMA_S32(mma_u8, u8, "m16n8k32.row.col.s32.u8.u8.s32")
MMA_S32(mma_satfinite, s8, "m16n8k32.row.col.satfinite.s32.s8.s8.s32")
__global__ void mma_f16_sums(u16* out, const u16* a, const u16* b, const u16* add) {
  u32 x[4], y[2], d[2];
  load_a(x, a, 16);
  load_b(y, b, 16);
  for (int i = 0; i < 2; ++i)
    d[i] = packed(add + place(2 * i));
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 "
      "{%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
      : "+r"(d[0]), "+r"(d[1])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  for (int i = 0; i < 2; ++i)
    memcpy(out + place(2 * i), &d[i], 4);
}

// Through fragments, whose layout is nobody's business; A by rows, B by columns.
template <int Rows, int Columns>
__global__ void wmma_f16(float* out, const __half* a, const __half* b, const float* add) {
  using namespace nvcuda;
  wmma::fragment<wmma::matrix_a, Rows, Columns, 16, __half, wmma::row_major> x;
  wmma::fragment<wmma::matrix_b, Rows, Columns, 16, __half, wmma::col_major> y;
  wmma::fragment<wmma::accumulator, Rows, Columns, 16, float> d;
  wmma::load_matrix_sync(x, a, 16);
  wmma::load_matrix_sync(y, b, 16);
  wmma::load_matrix_sync(d, add, Columns, wmma::mem_row_major);
  wmma::mma_sync(d, x, y, d);
  wmma::store_matrix_sync(out, d, Columns, wmma::mem_row_major);
}

// Four 8 x 8 matrices of 16 bits: lane l gives the address of row l % 8 of matrix l / 8.
template <bool IsTransposed>
__global__ void load_matrices(u32* out, const u16* in) {
  __shared__ __align__(16) u16 rows[256];
  const u32 lane = threadIdx.x;
  for (u32 i = lane; i < 256; i += 32)
    rows[i] = in[i];
  __syncwarp();
  u32 d[4];
  const u32 from = u32(__cvta_generic_to_shared(rows + 8 * lane));
  if (IsTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(from)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(from)
                 : "memory");
  for (int i = 0; i < 4; ++i)
    out[4 * lane + u32(i)] = d[i];
}
__global__ void move_matrix(u32* out, const u32* in) {
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;"
               : "=r"(out[threadIdx.x])
               : "r"(in[threadIdx.x]));
}

// --- the host's side -----------------------------------------------------------------------------

std::vector<int> whole_numbers(std::size_t count, u64 seed, int least, int most) {
  Random random(seed);
  std::vector<int> values(count);
  for (int& value : values)
    value = least + int(random.bits() % u64(most - least + 1));
  return values;
}
std::vector<s64> products(Shape shape, const std::vector<int>& a, const std::vector<int>& b,
                          const std::vector<int>& add) {
  std::vector<s64> out(add.begin(), add.end());
  for (int row = 0; row < shape.rows; ++row)
    for (int column = 0; column < shape.columns; ++column)
      for (int k = 0; k < shape.depth; ++k)
        out[std::size_t(row * shape.columns + column)] +=
            s64(a[std::size_t(row * shape.depth + k)]) * b[std::size_t(column * shape.depth + k)];
  return out;
}
template <class To, class From, class F>
std::vector<To> each(const std::vector<From>& values, F f) {
  std::vector<To> out;
  for (const From value : values)
    out.push_back(To(f(value)));
  return out;
}
u16 to_half(s64 value) {
  return round_to(double(value), kHalf);
}
u16 to_bfloat(s64 value) {
  return round_to(double(value), kBfloat);
}

template <class T, class S, class F, class G>
void run(Check& c, const char* form, void (*kernel)(S*, const T*, const T*, const S*), Shape shape,
         int least, int most, F to_element, G to_sum) {
  const std::size_t rows = std::size_t(shape.rows), columns = std::size_t(shape.columns),
                    depth = std::size_t(shape.depth);
  const std::vector<int> a = whole_numbers(rows * depth, 1, least, most),
                         b = whole_numbers(depth * columns, 2, least, most),
                         add = whole_numbers(rows * columns, 3, -100, 100);
  Array<T> device_a(c, each<T>(a, to_element)), device_b(c, each<T>(b, to_element));
  Array<S> device_add(c, each<S>(add, to_sum)), out(c, rows * columns);
  kernel<<<1, 32>>>(out, device_a, device_b, device_add);
  c.all_equal(form, out.host(), each<S>(products(shape, a, b, add), to_sum));
}
const auto kSame = [](auto value) { return value; };

}  // namespace

GPU_CHECK_BODY(matrices, mma_f16) {
  run(c, "f16, sums in single precision", mma_f16, {16, 8, 16}, -8, 8, to_half, kSame);
  run(c, "f16, sums in f16", mma_f16_sums, {16, 8, 16}, -8, 8, to_half, to_half);
}

GPU_CHECK_BODY(matrices, mma_bf16) {
  run(c, "bf16", mma_bf16, {16, 8, 16}, -60, 60, to_bfloat, kSame);
}

GPU_CHECK_BODY(matrices, mma_tf32) {
  run(c, "tf32", mma_tf32, {16, 8, 8}, -900, 900, kSame, kSame);
}

GPU_CHECK_BODY(matrices, mma_bytes) {
  run(c, "s8", mma_s8, {16, 8, 32}, -128, 127, kSame, kSame);
  run(c, "u8", mma_u8, {16, 8, 32}, 0, 255, kSame, kSame);
}

GPU_CHECK_BODY(matrices, mma_satfinite) {
  Array<s8> a(c, std::vector<s8>(16 * 32, 127)), b(c, std::vector<s8>(8 * 32, 127));
  Array<s32> add(c, std::vector<s32>(16 * 8, INT32_MAX - 1000)), out(c, 16 * 8);
  mma_satfinite<<<1, 32>>>(out, a, b, add);
  c.all_equal("a sum beyond 32 bits", out.host(), std::vector<s32>(16 * 8, INT32_MAX));
  mma_s8<<<1, 32>>>(out, a, b, add);
  c.all_equal("the same without satfinite", out.host(),
              std::vector<s32>(16 * 8, s32(u32(INT32_MAX) - 1000 + 32 * 127 * 127)));
}

GPU_CHECK_BODY(matrices, mma_of_fractions) {
  // Products of f16 are exact; how sums are rounded on the way is not specified.
  Random random(17);
  std::vector<u16> a(256), b(128);
  for (std::vector<u16>* matrix : {&a, &b})
    for (u16& value : *matrix)
      value = round_to(random.between(-1, 1), kHalf);
  const std::vector<float> add(128, 0.5F);
  Array<u16> device_a(c, a), device_b(c, b);
  Array<float> device_add(c, add), out(c, 128);
  mma_f16<<<1, 32>>>(out, device_a, device_b, device_add);
  const std::vector<float> got = out.host();
  double worst = 0;
  for (std::size_t i = 0; i < 128; ++i) {
    double want = 0.5;
    for (std::size_t k = 0; k < 16; ++k)
      want += widen(a[i / 8 * 16 + k], kHalf) * widen(b[i % 8 * 16 + k], kHalf);
    worst = std::fmax(worst, std::fabs(double(got[i]) - want));
  }
  c.at_most("greatest error", worst, 17 * 8.0 * 0x1p-23);
}

GPU_CHECK_BODY(matrices, wmma) {
  const auto to_fragment = [](int value) { return __half(float(value)); };
  run(c, "m16n16k16", wmma_f16<16, 16>, {16, 16, 16}, -8, 8, to_fragment, kSame);
  run(c, "m32n8k16", wmma_f16<32, 8>, {32, 8, 16}, -8, 8, to_fragment, kSame);
  run(c, "m8n32k16", wmma_f16<8, 32>, {8, 32, 16}, -8, 8, to_fragment, kSame);
}

GPU_CHECK_BODY(matrices, ldmatrix) {
  std::vector<u16> in(256);
  for (std::size_t i = 0; i < 256; ++i)
    in[i] = u16(i * 257);
  std::vector<u32> plain(128), transposed(128);
  for (std::size_t lane = 0; lane < 32; ++lane)
    for (std::size_t matrix = 0; matrix < 4; ++matrix) {
      const std::size_t row = lane / 4, column = lane % 4 * 2, begin = 64 * matrix;
      plain[4 * lane + matrix] =
          in[begin + 8 * row + column] | u32(in[begin + 8 * row + column + 1]) << 16;
      transposed[4 * lane + matrix] =
          in[begin + 8 * column + row] | u32(in[begin + 8 * (column + 1) + row]) << 16;
    }
  Array<u16> device_in(c, in);
  Array<u32> out(c, 128);
  load_matrices<false><<<1, 32>>>(out, device_in);
  c.all_equal("x4", out.host(), plain);
  load_matrices<true><<<1, 32>>>(out, device_in);
  c.all_equal("x4.trans", out.host(), transposed);
}

GPU_CHECK_BODY(matrices, movmatrix) {
  std::vector<u32> in(32), want(32);
  const auto element = [](std::size_t row, std::size_t column) { return u32(row * 100 + column); };
  for (std::size_t lane = 0; lane < 32; ++lane) {
    const std::size_t row = lane / 4, column = lane % 4 * 2;
    in[lane] = element(row, column) | element(row, column + 1) << 16;
    want[lane] = element(column, row) | element(column + 1, row) << 16;
  }
  Array<u32> device_in(c, in), out(c, 32);
  move_matrix<<<1, 32>>>(out, device_in);
  c.all_equal("a transposed matrix", out.host(), want);
}

}  // namespace gpu_check
