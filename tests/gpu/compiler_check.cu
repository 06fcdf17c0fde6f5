// SPDX-License-Identifier: Apache-2.0
// Constructs of public programs, as one program: virtual functions with a destructor, assertions,
// min and max on both sides. With an argument an assertion of the kernel fails.
#include <algorithm>
#include <cassert>
#include <cstdio>

namespace {

__host__ __device__ int clamped(int value) {
  return min(max(value, 0), 10);
}

struct Shape {
  __device__ virtual int corners() const { return 0; }
  __device__ virtual ~Shape() {}
};
struct Square : Shape {
  __device__ int corners() const override { return 4; }
};

__global__ void check(int* out, float* numbers, int most) {
  assert(most < 100);
  const Square square;
  const Shape* const shape = &square;
  out[0] = shape->corners() + clamped(20);
  numbers[0] = max(numbers[1], -1.0F);
}

}  // namespace

int main(int count, char**) {
  int* out = nullptr;
  float* numbers = nullptr;
  const float given[2] = {0, 0.25F};
  cudaMalloc(&out, sizeof(int));
  cudaMalloc(&numbers, sizeof given);
  cudaMemcpy(numbers, given, sizeof given, cudaMemcpyHostToDevice);
  check<<<1, 1>>>(out, numbers, count > 1 ? 100 : 1);
  const cudaError_t status = cudaDeviceSynchronize();
  int corners = 0;
  float number = 0;
  cudaMemcpy(&corners, out, sizeof corners, cudaMemcpyDeviceToHost);
  cudaMemcpy(&number, numbers, sizeof number, cudaMemcpyDeviceToHost);
  const int blocks = min((1000 + 255) / 256, 1024);
  const float most = max(0.5F, 2.25F);
  std::printf("%s: %d %g %d %g %d\n", cudaGetErrorName(status), corners,
              static_cast<double>(number), blocks, static_cast<double>(most),
              std::max(clamped(-5), 0));
  return status == cudaSuccess ? 0 : 1;
}
