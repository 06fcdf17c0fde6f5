// SPDX-License-Identifier: Apache-2.0
// Promises of the stand-in runtime, checked from a program: prints each broken one and
// ends with 1, or "runtime: all as promised".
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

namespace {

int wrong = 0;

#define EXPECT(condition)                                                  \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::printf("line %d: not so: %s\n", __LINE__, #condition);          \
      ++wrong;                                                             \
    }                                                                      \
  } while (false)

__constant__ int constants[4];
__device__ int counter = 5;

__global__ void scale(int* values, int n, int factor) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) values[i] = values[i] * factor + constants[i % 4];
  if (i == 0) atomicAdd(&counter, 1);
}
__global__ void wild(int* pointer) { pointer[1 << 20] = 1; }
__global__ void with_shared(int* out) {
  extern __shared__ int dynamic[];
  dynamic[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = dynamic[blockDim.x - 1 - threadIdx.x];
}

void copies_and_kernels() {
  std::vector<int> host(1000, 3);
  int* device = nullptr;
  EXPECT(cudaMalloc(&device, 4000) == cudaSuccess);
  EXPECT(cudaMemcpy(device, host.data(), 4000, cudaMemcpyHostToDevice) == cudaSuccess);
  const int four[4] = {10, 20, 30, 40};
  EXPECT(cudaMemcpyToSymbol(constants, four, sizeof four) == cudaSuccess);
  scale<<<4, 256>>>(device, 1000, 2);
  EXPECT(cudaGetLastError() == cudaSuccess);
  EXPECT(cudaMemcpy(host.data(), device, 4000, cudaMemcpyDefault) == cudaSuccess);
  EXPECT(host[0] == 16 && host[3] == 46 && host[999] == 46);
  int count = 0;
  EXPECT(cudaMemcpyFromSymbol(&count, counter, sizeof count) == cudaSuccess);
  EXPECT(count == 6);
  void* address = nullptr;
  size_t bytes = 0;
  EXPECT(cudaGetSymbolAddress(&address, counter) == cudaSuccess && address != nullptr);
  EXPECT(cudaGetSymbolSize(&bytes, constants) == cudaSuccess && bytes == 16);
  EXPECT(cudaMemcpyToSymbol(constants, four, 16, 4) == cudaErrorInvalidValue);
  EXPECT(cudaGetSymbolSize(&bytes, wrong) == cudaErrorInvalidSymbol);
  with_shared<<<1, 64, 256>>>(device);
  EXPECT(cudaMemcpy(host.data(), device, 256, cudaMemcpyDeviceToHost) == cudaSuccess);
  EXPECT(host[0] == 63 && host[63] == 0);
  // Lines of 12 bytes out of lines of 16.
  std::vector<int> lines(12), narrow(9);
  for (int i = 0; i < 12; ++i) lines[static_cast<size_t>(i)] = i;
  EXPECT(cudaMemcpy2D(device, 12, lines.data(), 16, 12, 3, cudaMemcpyHostToDevice) == cudaSuccess);
  EXPECT(cudaMemcpy(narrow.data(), device, 36, cudaMemcpyDeviceToHost) == cudaSuccess);
  EXPECT(narrow[3] == 4 && narrow[8] == 10);
  EXPECT(cudaMemset(device, 1, 8) == cudaSuccess);
  EXPECT(cudaMemcpy(narrow.data(), device, 4, cudaMemcpyDeviceToHost) == cudaSuccess);
  EXPECT(narrow[0] == 0x01010101);
  EXPECT(cudaFree(device) == cudaSuccess);
  EXPECT(cudaFree(device) == cudaErrorInvalidValue);
  EXPECT(cudaFree(nullptr) == cudaSuccess);
}

void errors() {
  EXPECT(cudaPeekAtLastError() == cudaErrorInvalidValue);  // of the line above
  EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
  EXPECT(cudaGetLastError() == cudaSuccess);
  int* device = nullptr;
  EXPECT(cudaMalloc(&device, size_t{1} << 50) == cudaErrorMemoryAllocation);
  scale<<<1, 2000>>>(nullptr, 0, 0);
  EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
  EXPECT(cudaMemcpy(&device, &device, 8, static_cast<cudaMemcpyKind>(9)) ==
         cudaErrorInvalidMemcpyDirection);
  EXPECT(cudaLaunchKernel(&wrong, dim3(1), dim3(1), nullptr, 0, nullptr) ==
         cudaErrorInvalidDeviceFunction);
  EXPECT(cudaSetDevice(77) == cudaErrorInvalidDevice);
  EXPECT(std::strcmp(cudaGetErrorName(cudaErrorNotReady), "cudaErrorNotReady") == 0);
  EXPECT(std::strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory") == 0);
  cudaGetLastError();
}

void streams_and_events() {
  cudaStream_t stream{};
  cudaEvent_t begin{}, end{};
  EXPECT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  EXPECT(cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess);
  int *pinned = nullptr, *device = nullptr;
  EXPECT(cudaMallocHost(&pinned, 4000) == cudaSuccess);
  EXPECT(cudaMallocAsync(reinterpret_cast<void**>(&device), 4000, stream) == cudaSuccess);
  for (int i = 0; i < 1000; ++i) pinned[i] = 1;
  EXPECT(cudaEventRecord(begin, stream) == cudaSuccess);
  EXPECT(cudaMemcpyAsync(device, pinned, 4000, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  scale<<<4, 256, 0, stream>>>(device, 1000, 7);
  EXPECT(cudaMemcpyAsync(pinned, device, 4000, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  int called = 0;
  EXPECT(cudaLaunchHostFunc(stream, [](void* data) { *static_cast<int*>(data) = 1; }, &called) ==
         cudaSuccess);
  EXPECT(cudaEventRecord(end, stream) == cudaSuccess);
  EXPECT(cudaStreamWaitEvent(nullptr, end, 0) == cudaSuccess);
  EXPECT(cudaEventSynchronize(end) == cudaSuccess);
  EXPECT(pinned[1] == 27 && called == 1);
  EXPECT(cudaEventQuery(end) == cudaSuccess && cudaStreamQuery(stream) == cudaSuccess);
  float ms = -1;
  EXPECT(cudaEventElapsedTime(&ms, begin, end) == cudaSuccess && ms >= 0);
  cudaPointerAttributes attributes{};
  EXPECT(cudaPointerGetAttributes(&attributes, pinned) == cudaSuccess);
  EXPECT(attributes.type == cudaMemoryTypeHost);
  EXPECT(cudaPointerGetAttributes(&attributes, device) == cudaSuccess);
  EXPECT(attributes.type == cudaMemoryTypeDevice && attributes.device == 0);
  EXPECT(cudaPointerGetAttributes(&attributes, &ms) == cudaSuccess);
  EXPECT(attributes.type == cudaMemoryTypeUnregistered);
  EXPECT(cudaFreeAsync(device, stream) == cudaSuccess);
  EXPECT(cudaStreamSynchronize(stream) == cudaSuccess);
  EXPECT(cudaFreeHost(pinned) == cudaSuccess);
  EXPECT(cudaEventDestroy(begin) == cudaSuccess && cudaEventDestroy(end) == cudaSuccess);
  EXPECT(cudaStreamDestroy(stream) == cudaSuccess);
  EXPECT(cudaStreamDestroy(stream) == cudaErrorInvalidResourceHandle);
  int* managed = nullptr;
  EXPECT(cudaMallocManaged(&managed, 4000) == cudaSuccess);
  for (int i = 0; i < 1000; ++i) managed[i] = 2;
  scale<<<4, 256>>>(managed, 1000, 3);
  EXPECT(cudaDeviceSynchronize() == cudaSuccess);
  EXPECT(managed[0] == 16);
  EXPECT(cudaFree(managed) == cudaSuccess);
  cudaGetLastError();
}

void devices() {
  int count = 0, device = -1, version = 0;
  EXPECT(cudaGetDeviceCount(&count) == cudaSuccess && count == 2);
  cudaDeviceProp properties{};
  EXPECT(cudaGetDeviceProperties(&properties, 1) == cudaSuccess);
  EXPECT(properties.major == 8 && properties.warpSize == 32);
  EXPECT(properties.maxThreadsPerBlock == 1024 && properties.multiProcessorCount == 16);
  EXPECT(cudaRuntimeGetVersion(&version) == cudaSuccess && version >= 12000);
  // Each thread has its own device; modules are loaded on each.
  std::thread other([] {
    int mine = -1, *values = nullptr, result = 0;
    EXPECT(cudaGetDevice(&mine) == cudaSuccess && mine == 0);
    EXPECT(cudaSetDevice(1) == cudaSuccess);
    EXPECT(cudaMalloc(&values, 4) == cudaSuccess);
    EXPECT(cudaMemset(values, 0, 4) == cudaSuccess);
    scale<<<1, 32>>>(values, 1, 1);
    EXPECT(cudaMemcpy(&result, values, 4, cudaMemcpyDeviceToHost) == cudaSuccess);
    EXPECT(result == 0);  // this device's constants were never set
    cudaPointerAttributes attributes{};
    EXPECT(cudaPointerGetAttributes(&attributes, values) == cudaSuccess && attributes.device == 1);
    EXPECT(cudaFree(values) == cudaSuccess);
  });
  other.join();
  EXPECT(cudaGetDevice(&device) == cudaSuccess && device == 0);
  cudaFuncAttributes attributes{};
  EXPECT(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(scale)) == cudaSuccess);
  EXPECT(attributes.maxThreadsPerBlock == 1024);
  int blocks = 0;
  EXPECT(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
             &blocks, reinterpret_cast<const void*>(scale), 1024, 0) == cudaSuccess);
  EXPECT(blocks == 2);
}

void faults() {
  int* device = nullptr;
  EXPECT(cudaMalloc(&device, 64) == cudaSuccess);
  wild<<<1, 1>>>(device);
  EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  // It stays, until the device is reset.
  int* more = nullptr;
  EXPECT(cudaMalloc(&more, 64) == cudaErrorIllegalAddress);
  EXPECT(cudaDeviceReset() == cudaSuccess);
  EXPECT(cudaMalloc(&more, 64) == cudaSuccess);
  EXPECT(cudaMemset(more, 0, 64) == cudaSuccess);
  scale<<<1, 16>>>(more, 16, 1);
  EXPECT(cudaDeviceSynchronize() == cudaSuccess);
  EXPECT(cudaFree(more) == cudaSuccess);
}

}  // namespace

int main() {
  copies_and_kernels();
  errors();
  streams_and_events();
  devices();
  faults();
  if (wrong == 0) std::printf("runtime: all as promised\n");
  return wrong == 0 ? 0 : 1;
}
