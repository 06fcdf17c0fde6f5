// SPDX-License-Identifier: Apache-2.0
// A program that is in the middle of a long kernel when Kansoku's library awakes.
//   woken STREAM WAIT OTHERS WORKER
// STREAM default, blocking or nonblocking: where the kernel runs. WAIT stream, device or copy: what the program waits with; none: it goes on
// with its other streams. OTHERS: so many further streams are used before. WORKER 1: another thread goes on meanwhile, on a stream of its own.
// Prints "running"; the kernel ends at a line on standard input. Then the program works on all its streams, and prints "over" with the
// first time that it is done with them; it goes on until its input ends.
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

static void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "woken: %s: %s\n", what, cudaGetErrorString(result));
  std::exit(1);
}

__global__ void small(float* values) { values[threadIdx.x] += 1.0F; }
__global__ void long_one(volatile int* is_over, float* values) {
  while (*is_over == 0)
    values[0] += 1.0F;
}

static std::atomic<bool> is_ending{false};

static void work(float* values, cudaStream_t stream) {
  small<<<1, 32, 0, stream>>>(values);
  check(cudaGetLastError(), "launch");
  check(cudaStreamSynchronize(stream), "synchronise");
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::string kind = argv[1], wait = argv[2];
  std::vector<cudaStream_t> streams(static_cast<std::size_t>(std::atoi(argv[3])));
  float *values, *of_worker;
  int* is_over;
  check(cudaMalloc(&values, 4096), "allocate");
  check(cudaMalloc(&of_worker, 4096), "allocate");
  check(cudaHostAlloc(&is_over, sizeof(int), cudaHostAllocMapped), "allocate on the host");
  *is_over = 0;
  for (cudaStream_t& stream : streams)
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream");
  cudaStream_t stream = nullptr;
  if (kind != "default")
    check(cudaStreamCreateWithFlags(&stream, kind == "blocking" ? cudaStreamDefault : cudaStreamNonBlocking), "create a stream");
  for (int i = 0; i < 50; ++i) {
    work(values, stream);
    for (cudaStream_t one : streams)
      work(values, one);
  }
  std::thread worker;
  if (std::atoi(argv[4]) != 0)
    worker = std::thread([&] {
      cudaStream_t own;
      check(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), "create a stream");
      while (!is_ending)
        work(of_worker, own);
    });
  long_one<<<1, 1, 0, stream>>>(is_over, values);
  check(cudaGetLastError(), "launch the long one");
  std::thread([is_over] {
    std::getchar();
    *static_cast<volatile int*>(is_over) = 1;
  }).detach();
  std::printf("running\n");
  std::fflush(stdout);
  float result = 0;
  if (wait == "copy")
    check(cudaMemcpyAsync(&result, values, sizeof result, cudaMemcpyDeviceToHost, stream), "copy");
  while (wait == "none" && *static_cast<volatile int*>(is_over) == 0)
    for (cudaStream_t one : streams)
      work(of_worker, one);
  check(wait == "device" ? cudaDeviceSynchronize() : cudaStreamSynchronize(stream), "synchronise");
  for (int round = 0;; ++round) {
    work(values, stream);
    for (cudaStream_t one : streams)
      work(values, one);
    if (round == 50) std::printf("over\n");
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // allowed: the pause of a loop
  }
}
