// SPDX-License-Identifier: Apache-2.0
// The sum of a vector in three ways: through shared memory, by exchange between the lanes of a
// warp, and by a grid whose blocks wait for each other.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include "sample.h"

namespace cg = cooperative_groups;

constexpr int kThreads = 128, kBlocks = 24;

__device__ float sum_of_thread(const float* values, int n) {
  float sum = 0.0F;
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < n; i += gridDim.x * kThreads)
    sum += values[i];
  return sum;
}

__global__ void by_shared_memory(const float* values, float* sums, int n) {
  __shared__ float of_threads[kThreads];
  of_threads[threadIdx.x] = sum_of_thread(values, n);
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) of_threads[threadIdx.x] += of_threads[threadIdx.x + half];
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = of_threads[0];
}

__device__ float sum_of_block(float value) {
  __shared__ float of_warps[kThreads / 32];
  for (int distance = 16; distance > 0; distance /= 2)
    value += __shfl_down_sync(0xffffffffU, value, distance);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0.0F;
  for (const float of_warp : of_warps)
    sum += of_warp;
  return sum;
}
__global__ void by_lanes(const float* values, float* sums, int n) {
  const float sum = sum_of_block(sum_of_thread(values, n));
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// In one launch: the first block adds up what all blocks have left in `sums`.
__global__ void by_grid(const float* values, float* sums, int n) {
  const cg::grid_group grid = cg::this_grid();
  const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  const float of_warp = cg::reduce(warp, sum_of_thread(values, n), cg::plus<float>());
  if (threadIdx.x == 0) sums[blockIdx.x] = 0.0F;
  cg::this_thread_block().sync();
  if (warp.thread_rank() == 0) atomicAdd(&sums[blockIdx.x], of_warp);
  grid.sync();
  if (grid.thread_rank() >= 32) return;
  float sum = 0.0F;
  for (int i = warp.thread_rank(); i < kBlocks; i += 32)
    sum += sums[i];
  sum = cg::reduce(warp, sum, cg::plus<float>());
  if (grid.thread_rank() == 0) sums[0] = sum;
}

bool is_close(const char* way, float sum, double expected) {
  if (sum > expected * (1 - 1e-5) && sum < expected * (1 + 1e-5)) return true;
  std::printf("  %s: %g, not %g\n", way, sum, expected);
  return false;
}

int main() {
  int n = 200001;
  const std::vector<float> values = numbers(n);
  double expected = 0;
  for (const float value : values)
    expected += value;
  float *device_values = upload(values), *sums = nullptr;
  CHECK(cudaMalloc(&sums, kBlocks * sizeof(float)));
  bool is_right = true;

  by_shared_memory<<<kBlocks, kThreads>>>(device_values, sums, n);
  by_shared_memory<<<1, kThreads>>>(sums, sums, kBlocks);
  is_right &= is_close("by shared memory", download(sums, 1)[0], expected);

  by_lanes<<<kBlocks, kThreads>>>(device_values, sums, n);
  by_lanes<<<1, kThreads>>>(sums, sums, kBlocks);
  is_right &= is_close("by lanes", download(sums, 1)[0], expected);

  int device = 0, can_cooperate = 0;
  CHECK(cudaGetDevice(&device));
  CHECK(cudaDeviceGetAttribute(&can_cooperate, cudaDevAttrCooperativeLaunch, device));
  if (can_cooperate != 0) {
    void* arguments[] = {&device_values, &sums, &n};
    CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(by_grid), dim3(kBlocks),
                                      dim3(kThreads), arguments, 0, nullptr));
    is_right &= is_close("by the grid", download(sums, 1)[0], expected);
  }
  CHECK(cudaFree(device_values));
  CHECK(cudaFree(sums));
  return finish("reduction", is_right);
}
