// SPDX-License-Identifier: Apache-2.0
// Memory: kinds of copies, rectangles, fills, pinned and mapped memory of the host, variables.
#include "device.h"

namespace gpu_check {

namespace {

__device__ int counters[4] = {1, 2, 3, 4};
__constant__ int constants[4];

__global__ void increment(int* values, int count) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) ++values[i];
}
__global__ void read_variables(int* out) {
  out[threadIdx.x] = counters[threadIdx.x] * 100 + constants[threadIdx.x];
}

std::vector<int> counting(int count, int first = 0) {
  std::vector<int> values;
  for (int i = 0; i < count; ++i)
    values.push_back(first + i);
  return values;
}

}  // namespace

GPU_CHECK_BODY(memory, copies_in_every_direction) {
  const std::vector<int> host = counting(1000, 5);
  const std::size_t bytes = host.size() * sizeof(int);
  Array<int> a(c, host.size()), b(c, host.size());
  std::vector<int> back(host.size()), other(host.size());
  EXPECT_ERROR(cudaSuccess, cudaMemcpy(a, host.data(), bytes, cudaMemcpyHostToDevice));
  EXPECT_ERROR(cudaSuccess, cudaMemcpy(b, a, bytes, cudaMemcpyDeviceToDevice));
  EXPECT_ERROR(cudaSuccess, cudaMemcpy(back.data(), b, bytes, cudaMemcpyDeviceToHost));
  c.all_equal("host, device, device, host", back, host);
  EXPECT_ERROR(cudaSuccess, cudaMemcpy(other.data(), host.data(), bytes, cudaMemcpyHostToHost));
  c.all_equal("host to host", other, host);
  EXPECT_ERROR(cudaSuccess, cudaMemset(a, 0, bytes));
  EXPECT_ERROR(cudaSuccess, cudaMemcpy(a, host.data(), bytes, cudaMemcpyDefault));
  EXPECT_ERROR(cudaSuccess, cudaMemcpy(other.data(), a, bytes, cudaMemcpyDefault));
  c.all_equal("by cudaMemcpyDefault", other, host);
}

GPU_CHECK_BODY(memory, addresses_are_aligned) {
  for (const std::size_t bytes : {1, 3, 17, 255, 1000}) {
    void* memory = nullptr;
    NEED(cudaMalloc(&memory, bytes));
    c.equal("address modulo 256", (long long)(reinterpret_cast<std::uintptr_t>(memory) % 256), 0);
    NEED(cudaFree(memory));
  }
}

GPU_CHECK_BODY(memory, rectangles) {
  const std::size_t width = 20, height = 7;
  void* memory = nullptr;
  std::size_t pitch = 0;
  NEED(cudaMallocPitch(&memory, &pitch, width, height));
  c.is_true("the pitch holds a line", pitch >= width);
  std::vector<u8> host(width * height), back(host.size(), 0xee);
  for (std::size_t i = 0; i < host.size(); ++i)
    host[i] = static_cast<u8>(i);
  EXPECT_ERROR(cudaSuccess, cudaMemcpy2D(memory, pitch, host.data(), width, width, height,
                                         cudaMemcpyHostToDevice));
  EXPECT_ERROR(cudaSuccess, cudaMemset2D(memory, pitch, 0xab, 5, 3));
  EXPECT_ERROR(cudaSuccess, cudaMemcpy2D(back.data(), width, memory, pitch, width, height,
                                         cudaMemcpyDeviceToHost));
  for (std::size_t y = 0; y < 3; ++y)
    for (std::size_t x = 0; x < 5; ++x)
      host[y * width + x] = 0xab;
  c.all_equal("a rectangle there and back", back, host);
  NEED(cudaFree(memory));
}

GPU_CHECK_BODY(memory, fills_of_bytes) {
  Array<u8> device(c, std::vector<u8>(100, 1));
  u8* const begin = device;
  EXPECT_ERROR(cudaSuccess, cudaMemset(begin + 3, 0x1ab, 50));  // the low byte counts
  std::vector<u8> want(100, 1);
  for (std::size_t i = 3; i < 53; ++i)
    want[i] = 0xab;
  c.all_equal("bytes around a fill", device.host(), want);
}

GPU_CHECK_BODY(memory, pinned) {
  void* pinned = nullptr;
  unsigned flags = 0;
  NEED(cudaHostAlloc(&pinned, 4096, cudaHostAllocPortable | cudaHostAllocMapped));
  EXPECT_ERROR(cudaSuccess, cudaHostGetFlags(&flags, pinned));
  c.equal("its flags", flags & (cudaHostAllocPortable | cudaHostAllocMapped),
          cudaHostAllocPortable | cudaHostAllocMapped);
  int plain = 0;
  EXPECT_ERROR(cudaErrorInvalidValue, cudaHostGetFlags(&flags, &plain));
  EXPECT_ERROR(cudaSuccess, cudaFreeHost(pinned));
}

GPU_CHECK_BODY(memory, pointer_attributes) {
  cudaPointerAttributes seen;
  Array<int> device(c, 1);
  void* pinned = nullptr;
  NEED(cudaHostAlloc(&pinned, 4096, cudaHostAllocDefault));
  std::vector<int> plain(1);
  EXPECT_ERROR(cudaSuccess, cudaPointerGetAttributes(&seen, static_cast<int*>(device)));
  c.equal("type of device memory", seen.type, cudaMemoryTypeDevice);
  c.is_true("its device pointer", seen.devicePointer == static_cast<int*>(device));
  EXPECT_ERROR(cudaSuccess, cudaPointerGetAttributes(&seen, pinned));
  c.equal("type of pinned memory", seen.type, cudaMemoryTypeHost);
  c.is_true("its host pointer", seen.hostPointer == pinned);
  EXPECT_ERROR(cudaSuccess, cudaPointerGetAttributes(&seen, plain.data()));
  c.equal("type of other memory", seen.type, cudaMemoryTypeUnregistered);
  NEED(cudaFreeHost(pinned));
}

GPU_CHECK_BODY(memory, mapped) {
  if (attribute(cudaDevAttrCanMapHostMemory) == 0) c.skip("the device maps no memory of the host");
  int* host = nullptr;
  void* device = nullptr;
  NEED(cudaHostAlloc(reinterpret_cast<void**>(&host), 400, cudaHostAllocMapped));
  for (int i = 0; i < 100; ++i)
    host[i] = i;
  EXPECT_ERROR(cudaSuccess, cudaHostGetDevicePointer(&device, host, 0));
  increment<<<1, 128>>>(static_cast<int*>(device), 100);
  EXPECT_ERROR(cudaSuccess, cudaDeviceSynchronize());
  c.all_equal("what the kernel wrote, without a copy", std::vector<int>(host, host + 100),
              counting(100, 1));
  NEED(cudaFreeHost(host));
}

GPU_CHECK_BODY(memory, registered) {
  if (attribute(cudaDevAttrHostRegisterSupported) == 0) c.skip("no memory can be registered");
  std::vector<int> plain(4096);
  EXPECT_ERROR(cudaSuccess, cudaHostRegister(plain.data(), 8192, cudaHostRegisterMapped));
  EXPECT_ERROR(cudaErrorHostMemoryAlreadyRegistered,
               cudaHostRegister(plain.data(), 8192, cudaHostRegisterMapped));
  void* device = nullptr;
  EXPECT_ERROR(cudaSuccess, cudaHostGetDevicePointer(&device, plain.data(), 0));
  increment<<<1, 128>>>(static_cast<int*>(device), 128);
  EXPECT_ERROR(cudaSuccess, cudaDeviceSynchronize());
  c.equal("what the kernel wrote", plain[127], 1);
  EXPECT_ERROR(cudaSuccess, cudaHostUnregister(plain.data()));
  EXPECT_ERROR(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(plain.data()));
}

GPU_CHECK_BODY(memory, variables) {
  const int one[] = {50, 60};
  int back[4] = {};
  const int four[] = {7, 8, 9, 10};
  EXPECT_ERROR(cudaSuccess, cudaMemcpyToSymbol(counters, one, sizeof one, sizeof(int)));
  EXPECT_ERROR(cudaSuccess, cudaMemcpyToSymbol(constants, four, sizeof four));
  EXPECT_ERROR(cudaSuccess, cudaMemcpyFromSymbol(back, counters, sizeof back));
  c.all_equal("a variable", std::vector<int>(back, back + 4), std::vector<int>{1, 50, 60, 4});
  Array<int> out(c, 4);
  read_variables<<<1, 4>>>(out);
  c.all_equal("variables in a kernel", out.host(), std::vector<int>{107, 5008, 6009, 410});
  std::size_t bytes = 0;
  EXPECT_ERROR(cudaSuccess, cudaGetSymbolSize(&bytes, constants));
  c.equal("its size", (long long)bytes, 16);
  EXPECT_ERROR(cudaErrorInvalidValue, cudaMemcpyToSymbol(counters, four, 16, 4));
}

GPU_CHECK_BODY(memory, info) {
  std::size_t before = 0, after = 0, total = 0;
  NEED(cudaMemGetInfo(&before, &total));
  c.is_true("free is at most total", before <= total);
  Array<char> some(c, 64 << 20);
  NEED(cudaMemGetInfo(&after, &total));
  c.is_true("64 MiB less are free", before >= after + (64 << 20));
}

GPU_CHECK_BODY(memory, in_stream_order) {
  if (attribute(cudaDevAttrMemoryPoolsSupported) == 0) c.skip("the device has no memory pools");
  cudaStream_t stream;
  NEED(cudaStreamCreate(&stream));
  void* memory = nullptr;
  std::vector<int> host = counting(1000), back(1000);
  EXPECT_ERROR(cudaSuccess, cudaMallocAsync(&memory, 4000, stream));
  EXPECT_ERROR(cudaSuccess,
               cudaMemcpyAsync(memory, host.data(), 4000, cudaMemcpyHostToDevice, stream));
  increment<<<8, 128, 0, stream>>>(static_cast<int*>(memory), 1000);
  EXPECT_ERROR(cudaSuccess,
               cudaMemcpyAsync(back.data(), memory, 4000, cudaMemcpyDeviceToHost, stream));
  EXPECT_ERROR(cudaSuccess, cudaFreeAsync(memory, stream));
  EXPECT_ERROR(cudaSuccess, cudaStreamSynchronize(stream));
  c.all_equal("what came back", back, counting(1000, 1));
  NEED(cudaStreamDestroy(stream));
}

GPU_CHECK_BODY(memory, managed) {
  if (attribute(cudaDevAttrManagedMemory) == 0) c.skip("the device has no managed memory");
  int* both = nullptr;
  NEED(cudaMallocManaged(reinterpret_cast<void**>(&both), 400, cudaMemAttachGlobal));
  for (int i = 0; i < 100; ++i)
    both[i] = i;
  increment<<<1, 128>>>(both, 100);
  EXPECT_ERROR(cudaSuccess, cudaDeviceSynchronize());
  c.all_equal("host, kernel, host", std::vector<int>(both, both + 100), counting(100, 1));
  cudaPointerAttributes seen;
  EXPECT_ERROR(cudaSuccess, cudaPointerGetAttributes(&seen, both));
  c.equal("its type", seen.type, cudaMemoryTypeManaged);
  NEED(cudaFree(both));
}

#if defined(__clang__)
GPU_CHECK_BODY(memory, managed_variable) {
  c.skip("clang 19 has no __managed__ variables");
}
#else
__managed__ int shared_by_both = 41;
GPU_CHECK_BODY(memory, managed_variable) {
  if (attribute(cudaDevAttrManagedMemory) == 0) c.skip("the device has no managed memory");
  increment<<<1, 1>>>(&shared_by_both, 1);
  EXPECT_ERROR(cudaSuccess, cudaDeviceSynchronize());
  c.equal("a variable of both", shared_by_both, 42);
}
#endif

}  // namespace gpu_check
