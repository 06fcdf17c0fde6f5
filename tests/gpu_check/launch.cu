// SPDX-License-Identifier: Apache-2.0
// Launches: indices, bounds of occupancy, barriers of a whole grid, output of kernels, processes.
#include <cooperative_groups.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "device.h"

namespace gpu_check {

namespace {

__constant__ int table[256];

__global__ void indices(u32* out) {
  const u32 block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const u32 thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const u32 threads = blockDim.x * blockDim.y * blockDim.z;
  u32 lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  out[block * threads + thread] = block * 1000 + thread + (lane << 24);
}
__global__ void static_shared(int* out) {
  __shared__ int values[256];
  values[threadIdx.x] = table[threadIdx.x] + int(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = values[255 - threadIdx.x];
}
__global__ void __launch_bounds__(128) bounded(int* out) {
  *out = 1;
}
// Sums over rounds in which each block adds what all blocks wrote in the round before.
__global__ void rounds(int* values, int* sums, int count) {
  const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
  for (int round = 0; round < count; ++round) {
    if (threadIdx.x == 0) values[blockIdx.x] = round + int(blockIdx.x);
    grid.sync();
    int sum = 0;
    for (u32 i = 0; i < gridDim.x; ++i)
      sum += reinterpret_cast<volatile int*>(values)[i];
    if (threadIdx.x == 0) sums[blockIdx.x] += sum;
    grid.sync();
  }
}
// The last block to finish adds what the others left in memory.
__global__ void last_block(int* parts, u32* tickets, int* sum) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = int(blockIdx.x) + 1;
    __threadfence();
    is_last = atomicAdd(tickets, 1U) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last || threadIdx.x != 0) return;
  __threadfence();
  for (u32 i = 0; i < gridDim.x; ++i)
    *sum += reinterpret_cast<volatile int*>(parts)[i];
}
__global__ void prints(int* returned) {
  for (int i = 0; i < 3; ++i)
    returned[i] = printf("line %d of %s: %5.2f|%-4u|%c|%lld|%x%%\n", i, "three", 1.5 * i, 7U, 'k',
                         -5000000000LL, 0xbeefU);
  returned[3] = printf("end\n");
}
__global__ void clocks(u64* out) {
  u64 first, second, time, later;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(first)::"memory");
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time)::"memory");
  for (int i = 0; i < 100; ++i)
    __threadfence();
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(second)::"memory");
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(later)::"memory");
  out[0] = second > first;
  out[1] = later >= time;
}

// Text that `work` and the device print to standard output.
template <class Work>
std::string printed(Check& c, Work work) {
  std::fflush(stdout);
  std::FILE* const file = std::tmpfile();
  c.need("a temporary file", file != nullptr);
  const int saved = dup(1);
  dup2(fileno(file), 1);
  work();
  std::fflush(stdout);
  dup2(saved, 1);
  close(saved);
  std::string text;
  std::rewind(file);
  char bytes[512];
  while (std::fgets(bytes, sizeof bytes, file) != nullptr)
    text += bytes;
  std::fclose(file);
  return text;
}

}  // namespace

GPU_CHECK_BODY(launch, indices) {
  const u32 blocks = 2 * 3 * 2, threads = 5 * 4 * 3;
  Array<u32> out(c, blocks * threads);
  indices<<<dim3(2, 3, 2), dim3(5, 4, 3)>>>(out);
  std::vector<u32> want;
  for (u32 block = 0; block < blocks; ++block)
    for (u32 thread = 0; thread < threads; ++thread)
      want.push_back(block * 1000 + thread + (thread % 32 << 24));
  c.all_equal("block, thread and lane of each thread", out.host(), want);
}

GPU_CHECK_BODY(launch, constant_and_shared_memory) {
  std::vector<int> values(256), want(256);
  for (int i = 0; i < 256; ++i) {
    values[std::size_t(i)] = i * i;
    want[std::size_t(255 - i)] = i * i + i;
  }
  NEED(cudaMemcpyToSymbol(table, values.data(), 1024));
  Array<int> out(c, 256);
  static_shared<<<1, 256>>>(out);
  c.all_equal("values", out.host(), want);
}

GPU_CHECK_BODY(launch, attributes_of_kernels) {
  cudaFuncAttributes seen;
  NEED(cudaFuncGetAttributes(&seen, static_shared));
  c.equal("static shared memory", (long long)seen.sharedSizeBytes, 1024);
  c.is_true("registers", seen.numRegs >= 1 && seen.numRegs <= 255);
  NEED(cudaFuncGetAttributes(&seen, bounded));
  c.equal("threads of a bounded kernel", seen.maxThreadsPerBlock, 128);
}

GPU_CHECK_BODY(launch, occupancy) {
  int blocks = 0;
  NEED(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, static_shared, 256, 0));
  c.is_true("at least one block", blocks >= 1);
  c.is_true("no more threads than there are",
            blocks * 256 <= attribute(cudaDevAttrMaxThreadsPerMultiProcessor));
  NEED(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded, 32, 0));
  c.is_true("no more blocks than there are",
            blocks >= 1 && blocks <= attribute(cudaDevAttrMaxBlocksPerMultiprocessor));
  NEED(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, static_shared, 64, 40 * 1024));
  c.is_true("no more shared memory than there is",
            blocks * 41 * 1024 <= attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor));
}

GPU_CHECK_BODY(launch, barrier_of_the_grid) {
  if (attribute(cudaDevAttrCooperativeLaunch) == 0) c.skip("the device has no such launches");
  const int blocks = 4;
  int count = 10;
  Array<int> values(c, blocks), sums(c, blocks);
  int *first = values, *second = sums;
  void* arguments[] = {&first, &second, &count};
  EXPECT_ERROR(cudaSuccess,
               cudaLaunchCooperativeKernel(reinterpret_cast<void*>(rounds), dim3(blocks), dim3(64),
                                           arguments, 0, nullptr));
  // 10 rounds of 4 * round + (0 + 1 + 2 + 3)
  c.all_equal("sums of all blocks", sums.host(), std::vector<int>(blocks, 4 * 45 + 10 * 6));
}

GPU_CHECK_BODY(launch, cooperative_launch_too_large) {
  if (attribute(cudaDevAttrCooperativeLaunch) == 0) c.skip("the device has no such launches");
  Array<int> values(c, 1);
  int count = 0;
  int *first = values, *second = values;
  void* arguments[] = {&first, &second, &count};
  EXPECT_ERROR(cudaErrorCooperativeLaunchTooLarge,
               cudaLaunchCooperativeKernel(reinterpret_cast<void*>(rounds), dim3(1 << 20),
                                           dim3(1024), arguments, 0, nullptr));
}

GPU_CHECK_BODY(launch, last_block_sees_the_others) {
  Array<int> parts(c, 100), sum(c, 1);
  Array<u32> tickets(c, 1);
  last_block<<<100, 32>>>(parts, tickets, sum);
  c.equal("1 + ... + 100", sum.first(), 5050);
}

GPU_CHECK_BODY(launch, printf_of_kernels) {
  Array<int> returned(c, 4);
  const std::string text = printed(c, [&] {
    prints<<<1, 1>>>(returned);
    cudaDeviceSynchronize();
  });
  const std::string want =
      "line 0 of three:  0.00|7   |k|-5000000000|beef%\n"
      "line 1 of three:  1.50|7   |k|-5000000000|beef%\n"
      "line 2 of three:  3.00|7   |k|-5000000000|beef%\nend\n";
  c.is_true("the text: " + text, text == want);
  c.all_equal("number of arguments that printf returns", returned.host(),
              std::vector<int>{7, 7, 7, 0});
}

GPU_CHECK_BODY(launch, printf_buffer_size) {
  std::size_t bytes = 0;
  EXPECT_ERROR(cudaSuccess, cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 4 << 20));
  EXPECT_ERROR(cudaSuccess, cudaDeviceGetLimit(&bytes, cudaLimitPrintfFifoSize));
  c.is_true("it is at least what was asked for", bytes >= 4 << 20);
}

GPU_CHECK_BODY(launch, clocks_go_forward) {
  Array<u64> out(c, 2);
  clocks<<<1, 1>>>(out);
  c.all_equal("%clock64 grows, %globaltimer does not fall", out.host(), std::vector<u64>{1, 1});
}

GPU_CHECK_BODY(launch, child_of_fork_fails) {
  Array<int> before(c, 1);  // the parent has a context
  NEED(cudaDeviceSynchronize());
  const pid_t child = fork();
  if (child == 0) {
    void* memory = nullptr;
    _exit(cudaMalloc(&memory, 4) == cudaSuccess ? 0 : 1);
  }
  int status = 0;
  c.need("fork", child > 0 && waitpid(child, &status, 0) == child);
  c.is_true("cudaMalloc fails in the child", WIFEXITED(status) && WEXITSTATUS(status) == 1);
  EXPECT_ERROR(cudaSuccess, cudaDeviceSynchronize());
}

}  // namespace gpu_check
