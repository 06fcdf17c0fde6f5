// SPDX-License-Identifier: Apache-2.0
// Code that compilers make of C++ in kernels: calls, recursion, pointers to functions, virtual
// functions, arrays of a thread, vectors, spaces of addresses, order of memory.
#include <algorithm>

#include "device.h"

namespace gpu_check {

namespace {

__device__ int my_index() {
  return int(blockIdx.x * blockDim.x + threadIdx.x);
}

__device__ __noinline__ int fibonacci(int n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}
__global__ void recursion(int* out) {
  out[threadIdx.x] = fibonacci(int(threadIdx.x) % 12);
}

__device__ __noinline__ int plus(int a, int b) {
  return a + b;
}
__device__ __noinline__ int times(int a, int b) {
  return a * b;
}
__device__ __noinline__ int less(int a, int b) {
  return a - b;
}
using Operation = int (*)(int, int);
// The table is made by the kernel: initial values with addresses of functions are another matter.
__global__ void pointers_to_functions(int* out) {
  Operation table[3] = {plus, times, less};
  const int i = my_index();
  out[i] = table[i % 3](i, 7);
}

struct Shape {
  __device__ virtual int area(int side) const { return side; }
  __device__ virtual ~Shape() {}
};
struct Square : Shape {
  __device__ int area(int side) const override { return side * side; }
};
struct Cube : Square {
  __device__ int area(int side) const override { return 6 * Square::area(side); }
};
__global__ void virtual_functions(int* out) {
  const Shape shape;
  const Square square;
  const Cube cube;
  const Shape* const all[3] = {&shape, &square, &cube};
  const int i = my_index();
  out[i] = all[i % 3]->area(i);
}

__global__ void arrays_of_threads(int* out, const int* at) {
  int values[32];
  for (int i = 0; i < 32; ++i)
    values[i] = i * i + my_index();
  int sum = 0;
  for (int i = 0; i < 32; ++i) {
    values[at[i]] += i;  // an index that no compiler knows
    sum += values[at[31 - i]];
  }
  out[my_index()] = sum;
}

struct alignas(16) Mixed {
  double d;
  float f;
  short s;
  signed char c;
  unsigned char u;
};
__global__ void vectors(int4* words, double2* doubles, Mixed* mixed) {
  const int i = my_index();
  const int4 w = words[i];
  words[i] = make_int4(w.w, w.z, w.y, w.x);
  const double2 d = doubles[i];
  doubles[i] = make_double2(d.y, -d.x);
  Mixed m = mixed[i];
  m.d += 0.5;
  m.f *= 2;
  m.s = short(m.s + 1);
  m.c = static_cast<signed char>(-m.c);
  m.u = static_cast<unsigned char>(m.u + 200);
  mixed[i] = m;
}

__global__ void spaces(int* out, int* global) {
  __shared__ int shared;
  int local[2] = {my_index(), 1};
  const void* const all[3] = {global, &shared, &local[out[0]]};
  for (int i = 0; i < 3; ++i) {
    int is_global, is_shared, is_local;
    asm volatile(
        "{ .reg .pred p, q, r; isspacep.global p, %3; isspacep.shared q, %3; "
        "isspacep.local r, %3; selp.s32 %0, 1, 0, p; selp.s32 %1, 1, 0, q; "
        "selp.s32 %2, 1, 0, r; }"
        : "=r"(is_global), "=r"(is_shared), "=r"(is_local)
        : "l"(all[i]));
    out[i] = is_global + 2 * is_shared + 4 * is_local;
  }
  // One function for an address of each space.
  int* const places[3] = {global, &shared, local};
  for (int i = 0; i < 3; ++i) {
    *places[i] = 40 + i;
    atomicAdd(places[i == 2 ? 1 : i], 1);
  }
  out[3] = *global * 10000 + shared * 100 + local[0];
}

__global__ void cache_operators(int* out, const int* in) {
  const int i = my_index();
  int a, b, d, e, f;
  asm volatile("ld.global.ca.s32 %0, [%1];" : "=r"(a) : "l"(in + i) : "memory");
  asm volatile("ld.global.cg.s32 %0, [%1];" : "=r"(b) : "l"(in + i) : "memory");
  asm volatile("ld.global.cs.s32 %0, [%1];" : "=r"(d) : "l"(in + i) : "memory");
  asm volatile("ld.global.nc.s32 %0, [%1];" : "=r"(e) : "l"(in + i));
  asm volatile("ld.volatile.global.s32 %0, [%1];" : "=r"(f) : "l"(in + i) : "memory");
  asm volatile("st.global.wb.s32 [%0], %1;" ::"l"(out + 4 * i), "r"(a + b) : "memory");
  asm volatile("st.global.cg.s32 [%0], %1;" ::"l"(out + 4 * i + 1), "r"(d) : "memory");
  asm volatile("st.global.wt.s32 [%0], %1;" ::"l"(out + 4 * i + 2), "r"(e) : "memory");
  asm volatile("st.volatile.global.s32 [%0], %1;" ::"l"(out + 4 * i + 3), "r"(f) : "memory");
}

// Block 0 writes and releases a flag; the other blocks acquire it and read. Few blocks, which all
// run at once.
__global__ void messages(int* out, int* data, u32* flag) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    for (int i = 0; i < 64; ++i)
      data[i] = 3 * i;
    asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag) : "memory");
    return;
  }
  u32 seen = 0;
  while (seen == 0)
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
  int sum = 0;
  for (int i = 0; i < 64; ++i)
    sum += data[i];
  out[blockIdx.x] = sum;
}

__host__ __device__ int wander(int i) {
  int steps = 0;
  u32 value = u32(i) + 1;
  while (value != 1) {
    switch (value % 4) {
      case 0:
        value /= 4;
        steps += 2;
        break;
      case 2:
        value /= 2;
        ++steps;
        break;
      default:
        value = 3 * value + 1;
        ++steps;
    }
    if (steps > 300) break;
    if (value % 64 == 5) continue;
    steps += value % 128 == 27 ? 1 : 0;
  }
  return steps;
}
__global__ void divergence(int* out) {
  out[my_index()] = wander(my_index());
}

// Threads that return before a barrier do not hold up the others.
__global__ void early_exits(int* out) {
  __shared__ int values[64];
  const int t = int(threadIdx.x);
  if (t >= 64) return;
  values[t] = t;
  __syncthreads();
  out[t] = values[63 - t] + 1;
}

}  // namespace

GPU_CHECK_BODY(code, recursion) {
  Array<int> out(c, 64);
  // No compiler knows how deep it goes; the least stack of a thread is 1 KB.
  NEED(cudaDeviceSetLimit(cudaLimitStackSize, 8192));
  recursion<<<1, 64>>>(out);
  const int numbers[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
  std::vector<int> want;
  for (int i = 0; i < 64; ++i)
    want.push_back(numbers[i % 12]);
  c.all_equal("numbers of Fibonacci", out.host(), want);
}

GPU_CHECK_BODY(code, pointers_to_functions) {
  Array<int> out(c, 96);
  pointers_to_functions<<<3, 32>>>(out);
  std::vector<int> want;
  for (int i = 0; i < 96; ++i)
    want.push_back(i % 3 == 0 ? i + 7 : i % 3 == 1 ? i * 7 : i - 7);
  c.all_equal("by the lane's own pointer", out.host(), want);
}

GPU_CHECK_BODY(code, virtual_functions) {
  Array<int> out(c, 96);
  virtual_functions<<<3, 32>>>(out);
  std::vector<int> want;
  for (int i = 0; i < 96; ++i)
    want.push_back(i % 3 == 0 ? i : i % 3 == 1 ? i * i : 6 * i * i);
  c.all_equal("by the lane's own object", out.host(), want);
}

GPU_CHECK_BODY(code, arrays_of_threads) {
  std::vector<int> at(32), want;
  for (int i = 0; i < 32; ++i)
    at[std::size_t(i)] = (11 * i + 5) % 32;
  for (int thread = 0; thread < 64; ++thread) {
    int values[32], sum = 0;
    for (int i = 0; i < 32; ++i)
      values[i] = i * i + thread;
    for (int i = 0; i < 32; ++i) {
      values[at[std::size_t(i)]] += i;
      sum += values[at[std::size_t(31 - i)]];
    }
    want.push_back(sum);
  }
  Array<int> device_at(c, at), out(c, 64);
  arrays_of_threads<<<2, 32>>>(out, device_at);
  c.all_equal("sums", out.host(), want);
}

GPU_CHECK_BODY(code, vectors) {
  std::vector<int4> words(64);
  std::vector<double2> doubles(64);
  std::vector<Mixed> mixed(64);
  for (int i = 0; i < 64; ++i) {
    const std::size_t at = std::size_t(i);
    words[at] = make_int4(i, -i, 2 * i, i + 1000);
    doubles[at] = make_double2(i + 0.25, -i);
    mixed[at] = {i * 1.5, float(i), short(-i), static_cast<signed char>(i),
                 static_cast<unsigned char>(i)};
  }
  Array<int4> device_words(c, words);
  Array<double2> device_doubles(c, doubles);
  Array<Mixed> device_mixed(c, mixed);
  vectors<<<2, 32>>>(device_words, device_doubles, device_mixed);
  const std::vector<int4> w = device_words.host();
  const std::vector<double2> d = device_doubles.host();
  const std::vector<Mixed> m = device_mixed.host();
  bool are_words = true, are_doubles = true, are_mixed = true;
  for (int i = 0; i < 64; ++i) {
    const std::size_t at = std::size_t(i);
    are_words &= w[at].x == i + 1000 && w[at].y == 2 * i && w[at].z == -i && w[at].w == i;
    are_doubles &= d[at].x == -i && d[at].y == -(i + 0.25);
    are_mixed &= m[at].d == i * 1.5 + 0.5 && m[at].f == float(2 * i) && m[at].s == 1 - i &&
                 m[at].c == -i && m[at].u == static_cast<unsigned char>(i + 200);
  }
  c.is_true("int4 turned around", are_words);
  c.is_true("double2 turned by a quarter", are_doubles);
  c.is_true("a structure of five types", are_mixed);
}

GPU_CHECK_BODY(code, spaces_of_addresses) {
  Array<int> out(c, 4), global(c, 1);
  spaces<<<1, 1>>>(out, global);
  // global: 40 and one more; shared: 41 and two more; local: 42.
  c.all_equal("spaces, and values through generic addresses", out.host(),
              std::vector<int>{1, 2, 4, 41 * 10000 + 43 * 100 + 42});
}

GPU_CHECK_BODY(code, cache_operators) {
  std::vector<int> in, want;
  for (int i = 0; i < 64; ++i) {
    in.push_back(5 * i);
    for (const int value : {10 * i, 5 * i, 5 * i, 5 * i})
      want.push_back(value);
  }
  Array<int> device_in(c, in), out(c, 256);
  cache_operators<<<2, 32>>>(out, device_in);
  c.all_equal("values", out.host(), want);
}

GPU_CHECK_BODY(code, release_and_acquire) {
  const int blocks = std::min(attribute(cudaDevAttrMultiProcessorCount), 8);
  Array<int> out(c, std::size_t(blocks)), data(c, 64);
  Array<u32> flag(c, 1);
  messages<<<u32(blocks), 32>>>(out, data, flag);
  std::vector<int> want(std::size_t(blocks), 3 * 63 * 64 / 2);
  want[0] = 0;
  c.all_equal("sums of what block 0 wrote", out.host(), want);
}

GPU_CHECK_BODY(code, divergent_loops) {
  Array<int> out(c, 1024);
  divergence<<<8, 128>>>(out);
  std::vector<int> want;
  for (int i = 0; i < 1024; ++i)
    want.push_back(wander(i));
  c.all_equal("steps of each thread", out.host(), want);
}

GPU_CHECK_BODY(code, early_exits) {
  Array<int> out(c, 64);
  early_exits<<<1, 128>>>(out);
  std::vector<int> want;
  for (int t = 0; t < 64; ++t)
    want.push_back(64 - t);
  c.all_equal("what the rest saw", out.host(), want);
}

}  // namespace gpu_check
