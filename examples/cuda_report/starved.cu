// SPDX-License-Identifier: Apache-2.0
// A loop that keeps its device busy, or lets it run dry: starved CAUSE [STEPS]
//
//   none           launches run ahead of the device; one wait at the end of each step
//   synchronise    waits for the device after every kernel, then works on the host
//   allocate       allocates and frees a buffer between kernels
//   load           prepares its data while the device has nothing to do
//   copy           copies its data from pageable memory before it computes
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int kCount = 1 << 14;
constexpr int kKernels = 20;

__global__ void smooth(const float* in, float* out, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float value = in[i];
  for (int r = 0; r < rounds; ++r)
    value = 0.5f * value + 0.25f * (in[(i + 1) % kCount] + in[(i + kCount - 1) % kCount]);
  out[i] = value;
}

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

/// Work of the host, not of the device.
void busy(double us) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double, std::micro>(us);
  while (std::chrono::steady_clock::now() < end) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  const char* const cause = argc > 1 ? argv[1] : "none";
  const int steps = argc > 2 ? std::atoi(argv[2]) : 40;
  const auto is = [&](const char* word) { return std::strcmp(cause, word) == 0; };
  std::vector<float> data(kCount, 1.0f);
  float *in = nullptr, *out = nullptr;
  check(cudaMalloc(&in, kCount * sizeof(float)), "cudaMalloc");
  check(cudaMalloc(&out, kCount * sizeof(float)), "cudaMalloc");
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "cudaStreamCreate");
  for (int step = 0; step < steps; ++step) {
    if (is("load")) busy(4000);
    if (step == 0 || is("copy")) {
      for (int repeat = 0; repeat < (is("copy") ? 64 : 1); ++repeat) {
        check(cudaMemcpy(in, data.data(), kCount * sizeof(float), cudaMemcpyHostToDevice),
              "cudaMemcpy");
      }
    }
    for (int k = 0; k < kKernels; ++k) {
      smooth<<<kCount / 128, 128, 0, stream>>>(in, out, 16);
      if (is("synchronise")) {
        check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        busy(100);
      }
      if (is("allocate")) {
        for (int pair = 0; pair < 8; ++pair) {
          float* scratch = nullptr;
          check(cudaMalloc(&scratch, 1 << 20), "cudaMalloc");
          check(cudaFree(scratch), "cudaFree");
        }
      }
    }
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  check(cudaMemcpy(data.data(), out, kCount * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::printf("%s: %d steps, %.3f\n", cause, steps, static_cast<double>(data[0]));
  return 0;
}
