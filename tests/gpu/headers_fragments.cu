// SPDX-License-Identifier: Apache-2.0
// With the argument `products` the products of matrix fragments (mma.h, sm_80), with `grid` the
// barrier of a grid (cooperative_groups.h), against what the host works out.
#include "headers_check.h"

#include <cooperative_groups.h>
#include <mma.h>

namespace cg = cooperative_groups;

namespace {

Random chance(1);

// --- matrices ------------------------------------------------------------------------------------

template <int M, int N, int K, class T, class Memory, class Sum, class ALayout, class BLayout>
__global__ void product(const Memory* a, const Memory* b, const Sum* c, Sum* d) {
#if __CUDA_ARCH__ >= 800
  using namespace nvcuda;
  wmma::fragment<wmma::matrix_a, M, N, K, T, ALayout> left;
  wmma::fragment<wmma::matrix_b, M, N, K, T, BLayout> right;
  wmma::fragment<wmma::accumulator, M, N, K, Sum> sum, twice;
  wmma::load_matrix_sync(left, a, ALayout::value == 0 ? K : M);
  wmma::load_matrix_sync(right, b, BLayout::value == 0 ? N : K);
  wmma::load_matrix_sync(sum, c, N, wmma::mem_row_major);
  wmma::fill_fragment(twice, 0.0F);
  wmma::mma_sync(twice, left, right, sum);
  for (int i = 0; i < twice.num_elements; ++i)
    sum.x[i] = twice.x[i] + twice.x[i];
  wmma::store_matrix_sync(d, sum, M, wmma::mem_col_major);
#endif
}
// Whole numbers, so that each order of the sums gives the same.
template <int M, int N, int K, class T, class Memory, class Sum, class ALayout, class BLayout>
void check_product(const char* name) {
  std::vector<Memory> a(M * K), b(K * N);
  std::vector<Sum> c(M * N);
  for (Memory& value : a)
    value = static_cast<Memory>(static_cast<float>(chance.below(9)));
  for (Memory& value : b)
    value = static_cast<Memory>(static_cast<float>(chance.below(7)));
  for (Sum& value : c)
    value = static_cast<Sum>(static_cast<float>(chance.below(50)));
  Array<Memory> in_a(a), in_b(b);
  Array<Sum> in_c(c), out(M * N);
  product<M, N, K, T, Memory, Sum, ALayout, BLayout><<<1, 32>>>(in_a, in_b, in_c, out);
  const std::vector<Sum> got = out.host();
  for (std::size_t m = 0; m < M; ++m) {
    for (std::size_t n = 0; n < N; ++n) {
      float want = static_cast<float>(c[m * N + n]);
      for (std::size_t k = 0; k < K; ++k)
        want += static_cast<float>(a[ALayout::value == 0 ? m * K + k : k * M + m]) *
                static_cast<float>(b[BLayout::value == 0 ? k * N + n : n * K + k]);
      if (static_cast<float>(got[n * M + m]) == 2 * want) continue;
      std::printf("product %s %d x %d x %d: row %zu, column %zu: %g, not %g\n", name, M, N, K, m, n,
                  static_cast<double>(got[n * M + m]), static_cast<double>(2 * want));
      ++wrong;
      return;
    }
  }
}
template <int M, int N, int K, class T, class Memory, class Sum>
void check_layouts(const char* name) {
  using nvcuda::wmma::col_major;
  using nvcuda::wmma::row_major;
  check_product<M, N, K, T, Memory, Sum, row_major, col_major>(name);
  check_product<M, N, K, T, Memory, Sum, col_major, row_major>(name);
}
template <class T, class Sum>
void check_shapes(const char* name) {
  check_layouts<16, 16, 16, T, T, Sum>(name);
  check_layouts<32, 8, 16, T, T, Sum>(name);
  check_layouts<8, 32, 16, T, T, Sum>(name);
}
void check_products() {
  check_shapes<__half, float>("f16 to f32");
  check_shapes<__half, __half>("f16");
  check_shapes<__nv_bfloat16, float>("bf16");
  check_shapes<signed char, int>("s8");
  check_shapes<unsigned char, int>("u8");
}

// --- the grid ------------------------------------------------------------------------------------

// Round after round each block takes what its neighbour had.
__global__ void hand_on(unsigned* cells, int rounds) {
  const cg::grid_group grid = cg::this_grid();
  if (!grid.is_valid()) return;
  const unsigned next = (blockIdx.x + 1) % gridDim.x * blockDim.x + threadIdx.x;
  for (int i = 0; i < rounds; ++i) {
    const unsigned value = cells[next];
    grid.sync();
    cells[blockIdx.x * blockDim.x + threadIdx.x] = value + 1;
    grid.sync();
  }
}
void check_grid() {
  const unsigned blocks = 13, threads = 40;
  int rounds = 9;
  std::vector<unsigned> host(blocks * threads);
  for (unsigned& value : host)
    value = static_cast<unsigned>(chance.bits());
  Array<unsigned> cells(host);
  unsigned* pointer = cells;
  void* arguments[] = {&pointer, &rounds};
  MUST(cudaLaunchCooperativeKernel(hand_on, dim3(blocks), dim3(threads), arguments));
  const std::vector<unsigned> got = cells.host();
  for (unsigned i = 0; i < host.size(); ++i) {
    if (got[i] == host[(i + 9 * threads) % host.size()] + 9) continue;
    std::printf("grid: cell %u\n", i);
    ++wrong;
    return;
  }
}

}  // namespace

int main(int count, char** words) {
  if (count > 1 && std::strcmp(words[1], "grid") == 0) {
    check_grid();
    return report("grid");
  }
  check_products();
  return report("products");
}
