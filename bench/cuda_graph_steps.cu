// SPDX-License-Identifier: Apache-2.0
// Steps of one CUDA graph of 40 kernels: "anew" captures and instantiates it in each step, "again" launches the same one. Prints what a step
// takes, and its processor time on the thread that makes the graphs.
//   cuda_graph_steps anew|again STEPS
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

constexpr int kCount = 4096, kKernels = 40, kWarmUp = 5;

__global__ void advance(float* values, float factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  values[i] = values[i] * factor + 1.0F;
}

static double seconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

static void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "cuda_graph_steps: %s: %s\n", what, cudaGetErrorString(result));
  std::exit(1);
}

static cudaGraphExec_t instantiated(float* values, cudaStream_t stream) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < kKernels; ++i)
    advance<<<kCount / 256, 256, 0, stream>>>(values, 0.5F);
  check(cudaStreamEndCapture(stream, &graph), "end of the capture");
  check(cudaGraphInstantiateWithFlags(&exec, graph, 0), "instantiate");
  check(cudaGraphDestroy(graph), "destroy a graph");
  return exec;
}

int main(int argc, char** argv) {
  const int steps = argc == 3 ? std::atoi(argv[2]) : 0;
  if (steps < 1) return 2;
  const bool is_anew = std::strcmp(argv[1], "anew") == 0;
  float* values;
  cudaStream_t stream;
  check(cudaMalloc(&values, kCount * sizeof(float)), "allocate");
  check(cudaStreamCreate(&stream), "create a stream");
  cudaGraphExec_t exec = instantiated(values, stream);
  double wall = 0, cpu = 0;
  for (int step = -kWarmUp; step < steps; ++step) {
    if (step == 0) {
      wall = seconds(CLOCK_MONOTONIC);
      cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
    }
    if (is_anew) {
      check(cudaGraphExecDestroy(exec), "destroy an executable");
      exec = instantiated(values, stream);
    }
    check(cudaGraphLaunch(exec, stream), "launch");
    check(cudaStreamSynchronize(stream), "synchronise");
  }
  std::printf("wall_us=%.1f cpu_us=%.1f\n", (seconds(CLOCK_MONOTONIC) - wall) / steps * 1e6,
              (seconds(CLOCK_THREAD_CPUTIME_ID) - cpu) / steps * 1e6);
  return 0;
}
