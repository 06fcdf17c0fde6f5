// SPDX-License-Identifier: Apache-2.0
// Atomic operations of every width, in global and in shared memory: nothing is lost, and every
// thread gets a value from before its own.
#include <algorithm>

#include "device.h"
#include "reference.h"

namespace gpu_check {

namespace {

constexpr int kThreads = 256, kBlocks = 8, kAll = kThreads * kBlocks;

__device__ int my_index() {
  return int(blockIdx.x * blockDim.x + threadIdx.x);
}

__global__ void tickets(u32* counter, u32* out) {
  out[my_index()] = atomicAdd(counter, 1U);
}

// Each thread does one operation of `ptx` with its value, on memory of the space.
#define ATOMIC(id, T, r, type) ORDERED(id, T, r, "", type)
#define ORDERED(id, T, r, order, type)                                   \
  __global__ void id##_global(T* at, const T* in) {                      \
    T old;                                                               \
    asm volatile("atom" order ".global." type " %0, [%1], %2;"           \
                 : "=" r(old)                                            \
                 : "l"(at), r(in[my_index()])                            \
                 : "memory");                                            \
  }                                                                      \
  __global__ void id##_shared(T* at, const T* in) {                      \
    __shared__ T cell;                                                   \
    T old;                                                               \
    if (threadIdx.x == 0) cell = *at;                                    \
    __syncthreads();                                                     \
    for (int i = int(threadIdx.x); i < kAll; i += int(blockDim.x))       \
      asm volatile("atom" order ".shared." type " %0, [%1], %2;"         \
                   : "=" r(old)                                          \
                   : "r"(u32(__cvta_generic_to_shared(&cell))), r(in[i]) \
                   : "memory");                                          \
    __syncthreads();                                                     \
    if (threadIdx.x == 0) *at = cell;                                    \
  }
ATOMIC(add_u32, u32, "r", "add.u32")
ATOMIC(add_u64, u64, "l", "add.u64")
ATOMIC(add_f32, float, "f", "add.f32")
ATOMIC(add_f64, double, "d", "add.f64")
ATOMIC(add_f16x2, u32, "r", "add.noftz.f16x2")
ATOMIC(min_u32, u32, "r", "min.u32")
ATOMIC(max_u32, u32, "r", "max.u32")
ATOMIC(min_s32, u32, "r", "min.s32")
ATOMIC(max_s64, u64, "l", "max.s64")
ATOMIC(min_u64, u64, "l", "min.u64")
ATOMIC(and_b32, u32, "r", "and.b32")
ATOMIC(or_b32, u32, "r", "or.b32")
ATOMIC(xor_b32, u32, "r", "xor.b32")
ATOMIC(and_b64, u64, "l", "and.b64")
ATOMIC(xor_b64, u64, "l", "xor.b64")
ATOMIC(inc_u32, u32, "r", "inc.u32")
ATOMIC(dec_u32, u32, "r", "dec.u32")
ORDERED(scope_sys, u32, "r", ".relaxed.sys", "add.u32")
ORDERED(acq_rel, u32, "r", ".acq_rel.gpu", "add.u32")

template <class T>
__global__ void add_by_cas(T* at, const T* in) {  // T: 32 or 64 bits
  T seen = *reinterpret_cast<volatile T*>(at), expected;
  do {
    expected = seen;
    seen = atomicCAS(at, expected, T(expected + in[my_index()]));
  } while (seen != expected);
}
// Four counters of 16 bits side by side: a neighbour must not be touched.
__global__ void count_by_cas_16(unsigned short* counters) {
  unsigned short* const at = counters + my_index() % 4;
  unsigned short expected, seen = *reinterpret_cast<volatile unsigned short*>(at);
  do {
    expected = seen;
    asm volatile("atom.global.cas.b16 %0, [%1], %2, %3;"
                 : "=h"(seen)
                 : "l"(at), "h"(expected), "h"((unsigned short)(expected + 1))
                 : "memory");
  } while (seen != expected);
}
template <class T>
__global__ void exchange(T* at, T* out) {
  out[my_index()] = atomicExch(at, T(my_index() + 1));
}
__global__ void reductions(u32* at) {
  asm volatile("red.global.add.u32 [%0], 1;" ::"l"(at) : "memory");
  asm volatile("red.global.or.b32 [%0], %1;" ::"l"(at + 1), "r"(1U << threadIdx.x % 32) : "memory");
  asm volatile("red.global.max.s32 [%0], %1;" ::"l"(at + 2), "r"(my_index()) : "memory");
}

u32 step(u32 old, u32 bound, bool is_up) {
  if (is_up) return old >= bound ? 0 : old + 1;
  return old == 0 || old > bound ? bound : old - 1;
}

template <class T>
void run(Check& c, const char* form, void (*global)(T*, const T*), void (*shared)(T*, const T*),
         T first, const std::vector<T>& in, T want) {
  Array<T> device_in(c, in), cell(c, std::vector<T>{first});
  global<<<kBlocks, kThreads>>>(cell, device_in);
  c.all_equal(std::string(form) + " in global memory", cell.host(), std::vector<T>{want});
  cell.set({first});
  shared<<<1, kThreads>>>(cell, device_in);
  c.all_equal(std::string(form) + " in shared memory", cell.host(), std::vector<T>{want});
}
#define RUN(id, first, in, want) run(c, #id, id##_global, id##_shared, first, in, want)

template <class T>
std::vector<T> random_values(u64 seed) {
  Random random(seed);
  std::vector<T> values(kAll);
  for (T& value : values)
    value = T(random.bits());
  return values;
}
template <class T, class F>
T folded(T first, const std::vector<T>& values, F f) {
  for (const T value : values)
    first = f(first, value);
  return first;
}

}  // namespace

GPU_CHECK_BODY(atomics, tickets) {
  Array<u32> counter(c, 1), out(c, kAll);
  tickets<<<kBlocks, kThreads>>>(counter, out);
  std::vector<u32> got = out.host(), want(kAll);
  std::sort(got.begin(), got.end());
  for (u32 i = 0; i < kAll; ++i)
    want[i] = i;
  c.all_equal("each number once", got, want);
}

GPU_CHECK_BODY(atomics, sums_of_integers) {
  const std::vector<u32> w = random_values<u32>(1);
  const std::vector<u64> l = random_values<u64>(2);
  const u32 sum = folded(5U, w, [](u32 a, u32 b) { return a + b; });
  RUN(add_u32, 5U, w, sum);
  RUN(add_u64, u64{5}, l, folded(u64{5}, l, [](u64 a, u64 b) { return a + b; }));
  RUN(scope_sys, 5U, w, sum);
  RUN(acq_rel, 5U, w, sum);
}

GPU_CHECK_BODY(atomics, sums_of_floats) {
  // Whole numbers and halves that every order of additions gives exactly.
  std::vector<float> f(kAll);
  std::vector<double> d(kAll);
  std::vector<u32> h(kAll);
  float sum_f = 0.5F;
  double sum_d = 0.25;
  for (int i = 0; i < kAll; ++i) {
    f[std::size_t(i)] = float(i % 17) - 8;
    d[std::size_t(i)] = double(i % 19) - 9.5;
    h[std::size_t(i)] = i % 2 == 0 ? 0xbc003c00 : 0x3c003c00;  // 1 below, -1 or 1 above
    sum_f += f[std::size_t(i)];
    sum_d += d[std::size_t(i)];
  }
  RUN(add_f32, 0.5F, f, sum_f);
  RUN(add_f64, 0.25, d, sum_d);
  const u32 want = u32(round_to(kAll, kHalf)) | u32(round_to(4, kHalf)) << 16;
  RUN(add_f16x2, 0x44000000U, h, want);
}

GPU_CHECK_BODY(atomics, least_and_greatest) {
  const std::vector<u32> w = random_values<u32>(3);
  const std::vector<u64> l = random_values<u64>(4);
  RUN(min_u32, ~0U, w, *std::min_element(w.begin(), w.end()));
  RUN(max_u32, 0U, w, *std::max_element(w.begin(), w.end()));
  RUN(min_s32, 0x7fffffffU, w,
      *std::min_element(w.begin(), w.end(), [](u32 a, u32 b) { return s32(a) < s32(b); }));
  RUN(max_s64, u64(INT64_MIN), l,
      *std::max_element(l.begin(), l.end(), [](u64 a, u64 b) { return s64(a) < s64(b); }));
  RUN(min_u64, ~u64{0}, l, *std::min_element(l.begin(), l.end()));
}

GPU_CHECK_BODY(atomics, bits) {
  std::vector<u32> w = random_values<u32>(5), masks = w, bits = w;
  for (int i = 0; i < kAll; ++i) {
    masks[std::size_t(i)] |= 0xf0f0f0f0;
    bits[std::size_t(i)] &= 0x0000ffff;
  }
  std::vector<u64> l = random_values<u64>(6), wide = l;
  for (u64& value : wide)
    value |= 0xff00ff00ff00ff00;
  RUN(and_b32, ~0U, masks, folded(~0U, masks, [](u32 a, u32 b) { return a & b; }));
  RUN(or_b32, 1U << 31, bits, folded(1U << 31, bits, [](u32 a, u32 b) { return a | b; }));
  RUN(xor_b32, 9U, w, folded(9U, w, [](u32 a, u32 b) { return a ^ b; }));
  RUN(and_b64, ~u64{0}, wide, folded(~u64{0}, wide, [](u64 a, u64 b) { return a & b; }));
  RUN(xor_b64, u64{9}, l, folded(u64{9}, l, [](u64 a, u64 b) { return a ^ b; }));
}

GPU_CHECK_BODY(atomics, counters_that_wrap) {
  const std::vector<u32> bounds(kAll, 100);
  u32 up = 7, down = 7, above = 5000;
  for (int i = 0; i < kAll; ++i) {
    up = step(up, 100, true);
    down = step(down, 100, false);
    above = step(above, 100, false);
  }
  RUN(inc_u32, 7U, bounds, up);
  RUN(dec_u32, 7U, bounds, down);
  RUN(dec_u32, 5000U, bounds, above);
}

GPU_CHECK_BODY(atomics, compare_and_swap) {
  const std::vector<u32> w = random_values<u32>(7);
  std::vector<unsigned long long> l;
  for (const u32 value : w)
    l.push_back(u64(value) << 20);
  Array<u32> in(c, w), cell(c, 1);
  add_by_cas<<<kBlocks, kThreads>>>(static_cast<u32*>(cell), static_cast<const u32*>(in));
  c.equal("a sum of 32 bits", cell.first(), folded(0U, w, [](u32 a, u32 b) { return a + b; }));
  Array<unsigned long long> long_in(c, l), long_cell(c, 1);
  add_by_cas<<<kBlocks, kThreads>>>(static_cast<unsigned long long*>(long_cell),
                                    static_cast<const unsigned long long*>(long_in));
  c.equal("a sum of 64 bits", s64(long_cell.first()),
          s64(folded(0ULL, l, [](unsigned long long a, unsigned long long b) { return a + b; })));
  Array<unsigned short> counters(c, 4);
  count_by_cas_16<<<kBlocks, kThreads>>>(counters);
  c.all_equal("four counters of 16 bits", counters.host(),
              std::vector<unsigned short>(4, kAll / 4));
}

GPU_CHECK_BODY(atomics, exchange) {
  Array<u32> cell(c, 1), out(c, kAll);
  exchange<<<kBlocks, kThreads>>>(static_cast<u32*>(cell), static_cast<u32*>(out));
  std::vector<u32> seen = out.host(), want;
  seen.push_back(cell.first());  // the value that nobody took
  std::sort(seen.begin(), seen.end());
  for (u32 i = 0; i <= kAll; ++i)
    want.push_back(i);
  c.all_equal("each value once, and the first", seen, want);
  Array<unsigned long long> long_cell(c, 1), long_out(c, kAll);
  exchange<<<kBlocks, kThreads>>>(static_cast<unsigned long long*>(long_cell),
                                  static_cast<unsigned long long*>(long_out));
  std::vector<unsigned long long> long_seen = long_out.host();
  long_seen.push_back(long_cell.first());
  std::sort(long_seen.begin(), long_seen.end());
  c.all_equal("64 bits likewise", long_seen,
              std::vector<unsigned long long>(want.begin(), want.end()));
}

GPU_CHECK_BODY(atomics, reductions) {
  Array<u32> cells(c, std::vector<u32>{3, 0, u32(-5)});
  reductions<<<kBlocks, kThreads>>>(cells);
  c.all_equal("add, or, max", cells.host(), std::vector<u32>{3 + kAll, ~0U, kAll - 1});
}

}  // namespace gpu_check
