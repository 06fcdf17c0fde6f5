// SPDX-License-Identifier: Apache-2.0
// Copies to the device, a kernel and copies back, in one stream and in four: how long do they take?
#include <cstdio>
#include <vector>

#include <cuda_runtime.h>

#define CHECK(call)                                                       \
  do {                                                                    \
    const cudaError_t status = (call);                                    \
    if (status != cudaSuccess) {                                          \
      std::printf("line %d: %s\n", __LINE__, cudaGetErrorString(status)); \
      return 1;                                                           \
    }                                                                     \
  } while (false)

constexpr int kParts = 4, kPart = 1 << 18;

__global__ void scale(float* values) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  values[i] = values[i] * 2.0F + 1.0F;
}

int main() {
  float *host = nullptr, *device = nullptr;
  CHECK(cudaMallocHost(&host, kParts * kPart * sizeof(float)));
  CHECK(cudaMalloc(&device, kParts * kPart * sizeof(float)));
  for (int i = 0; i < kParts * kPart; ++i)
    host[i] = static_cast<float>(i % 1000);
  cudaStream_t streams[kParts];
  cudaEvent_t begin, end, is_done[kParts];
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  for (int i = 0; i < kParts; ++i) {
    CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&is_done[i], cudaEventDisableTiming));
  }
  for (const int stream_count : {1, kParts}) {
    CHECK(cudaEventRecord(begin, streams[0]));
    for (int i = 0; i < kParts; ++i) {
      const cudaStream_t stream = streams[i % stream_count];
      float *const from = host + i * kPart, *const to = device + i * kPart;
      CHECK(cudaStreamWaitEvent(stream, begin, 0));
      CHECK(cudaMemcpyAsync(to, from, kPart * sizeof(float), cudaMemcpyHostToDevice, stream));
      scale<<<kPart / 256, 256, 0, stream>>>(to);
      CHECK(cudaMemcpyAsync(from, to, kPart * sizeof(float), cudaMemcpyDeviceToHost, stream));
      CHECK(cudaEventRecord(is_done[i], stream));
    }
    for (const cudaEvent_t event : is_done)
      CHECK(cudaStreamWaitEvent(streams[0], event, 0));
    CHECK(cudaEventRecord(end, streams[0]));
    CHECK(cudaEventSynchronize(end));
    float milliseconds = 0;
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    std::printf("%d stream%s %.6f ms\n", stream_count,
                stream_count == 1 ? ": " : "s:", milliseconds);
  }
  for (int i = 0; i < kParts * kPart; ++i) {
    const float once = static_cast<float>(i % 1000) * 2.0F + 1.0F;
    if (host[i] != once * 2.0F + 1.0F) return 1;
  }
  return 0;
}
