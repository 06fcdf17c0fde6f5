// SPDX-License-Identifier: Apache-2.0
// The device's part of a rank of a job, as a library for rank.py: a training step with collectives, the same as a graph, evaluation by
// other and longer kernels, checkpoints with long copies. Every function returns 0, or ends the program with a line.
#include <cuda_runtime.h>
#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "meeting.h"

namespace {

constexpr int kValues = 1 << 14, kThreads = 128, kLayers = 4;

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "rank: %s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

__device__ float work(float seed, int rounds) {
  float value = seed;
  for (int i = 0; i < rounds; ++i)
    value = value * 0.999F + 0.001F;
  return value;
}
#define KERNEL(name)                                        \
  __global__ void name(float* out, int rounds) {            \
    const int i = blockIdx.x * blockDim.x + threadIdx.x;    \
    out[i] = work(out[i], rounds);                          \
  }
KERNEL(forward)
KERNEL(backward)
KERNEL(update)
KERNEL(attention)
KERNEL(project)
KERNEL(normalise)
KERNEL(perplexity)
KERNEL(beam_search)
KERNEL(long_one)

struct Rank {
  ncclComm_t comm{};
  int ranks{1};
  cudaStream_t stream{}, loader{};
  cudaEvent_t loaded{};
  float *values{}, *batch{}, *pinned{}, *large{};
  std::vector<float> host;
  cudaGraphExec_t graph{};
} job;

void run(void (*kernel)(float*, int), int values, int rounds) {
  kernel<<<values / kThreads, kThreads, 0, job.stream>>>(job.values, rounds);
  check(cudaGetLastError(), "launch");
}

}  // namespace

extern "C" {

int rank_open(int rank, int ranks, const char* id_file) {
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "count devices");
  check(cudaSetDevice(rank % devices), "choose a device");
  job.ranks = ranks;
  if (ranks > 1)
    meeting::check(ncclCommInitRank(&job.comm, ranks, meeting::exchange_id(rank, id_file), rank), "start NCCL");
  check(cudaStreamCreateWithFlags(&job.stream, cudaStreamNonBlocking), "create a stream");
  check(cudaStreamCreateWithFlags(&job.loader, cudaStreamNonBlocking), "create a stream");
  check(cudaEventCreateWithFlags(&job.loaded, cudaEventDisableTiming), "create an event");
  check(cudaMalloc(&job.values, 8 * kValues * sizeof(float)), "allocate");
  check(cudaMalloc(&job.batch, kValues * sizeof(float)), "allocate");
  check(cudaMallocHost(&job.pinned, kValues * sizeof(float)), "allocate");
  return 0;
}

int rank_compute(int rounds) {
  check(cudaMemcpyAsync(job.batch, job.pinned, kValues * sizeof(float), cudaMemcpyHostToDevice, job.loader), "load");
  check(cudaEventRecord(job.loaded, job.loader), "load");
  check(cudaStreamWaitEvent(job.stream, job.loaded, 0), "load");
  for (int layer = 0; layer < kLayers; ++layer)
    run(forward, kValues, rounds);
  for (int layer = 0; layer < kLayers; ++layer)
    run(backward, kValues, rounds);
  return 0;
}

int rank_reduce() {
  if (job.ranks > 1)
    meeting::check(ncclAllReduce(job.values, job.values, 1024, ncclFloat, ncclSum, job.comm, job.stream), "reduce");
  return 0;
}

int rank_update(int rounds) {
  run(update, kValues, rounds);
  return 0;
}

int rank_graph(int rounds) {
  if (job.graph == nullptr) {
    cudaGraph_t graph{};
    check(cudaStreamBeginCapture(job.stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int layer = 0; layer < kLayers; ++layer) {
      run(attention, kValues, rounds);
      run(project, kValues, rounds);
      run(normalise, kValues, rounds);
    }
    check(cudaStreamEndCapture(job.stream, &graph), "capture");
    check(cudaGraphInstantiate(&job.graph, graph, 0), "instantiate");
    check(cudaGraphDestroy(graph), "instantiate");
  }
  check(cudaGraphLaunch(job.graph, job.stream), "launch a graph");
  return 0;
}

int rank_evaluate(int rounds) {
  run(perplexity, 4 * kValues, rounds);
  run(beam_search, 8 * kValues, rounds);
  run(forward, 8 * kValues, rounds);  // one of training, over more
  return 0;
}

int rank_long() {
  run(long_one, kThreads, 1);
  return 0;
}

int rank_save(int megabytes) {
  const std::size_t bytes = static_cast<std::size_t>(megabytes) << 20;
  if (job.large == nullptr) check(cudaMalloc(&job.large, bytes), "allocate");
  job.host.resize(bytes / sizeof(float));
  check(cudaMemcpyAsync(job.host.data(), job.large, bytes, cudaMemcpyDeviceToHost, job.stream), "save");
  return 0;
}

int rank_wait() {
  check(cudaStreamSynchronize(job.stream), "wait");
  return 0;
}

}  // extern "C"
