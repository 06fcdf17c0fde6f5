// SPDX-License-Identifier: Apache-2.0
// Training steps whose parts have names: train [STEPS]
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kCount = 1 << 14;

__global__ void layer(const float* in, float* out, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float value = in[i];
  for (int r = 0; r < rounds; ++r)
    value = 0.5f * value + 0.25f * (in[(i + 1) % kCount] + in[(i + kCount - 1) % kCount]);
  out[i] = value;
}

__global__ void update(float* weights, const float* gradients) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  weights[i] -= 0.01f * gradients[i];
}

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 200;
  float *weights = nullptr, *gradients = nullptr;
  cudaStream_t stream;
  check(cudaMalloc(&weights, kCount * sizeof(float)), "cudaMalloc");
  check(cudaMalloc(&gradients, kCount * sizeof(float)), "cudaMalloc");
  check(cudaMemset(weights, 0, kCount * sizeof(float)), "cudaMemset");
  check(cudaStreamCreate(&stream), "cudaStreamCreate");
  for (int step = 0; step < steps; ++step) {
    nvtxRangePushA("step");
    nvtxRangePushA("forward");
    for (int i = 0; i < 4; ++i)
      layer<<<kCount / 256, 256, 0, stream>>>(weights, gradients, 4);
    nvtxRangePop();
    nvtxRangePushA("backward");
    for (int i = 0; i < 4; ++i)
      layer<<<kCount / 256, 256, 0, stream>>>(weights, gradients, 8);
    nvtxRangePop();
    nvtxRangePushA("optimizer");
    update<<<kCount / 256, 256, 0, stream>>>(weights, gradients);
    nvtxRangePop();
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    nvtxRangePop();
  }
  return 0;
}
