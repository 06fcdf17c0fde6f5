// SPDX-License-Identifier: Apache-2.0
// Chains of launches with programmatic attributes on two streams, all queued behind a value that the host writes last: so none has ended before
// it is known how far it goes.
#include <cstdio>
#include <initializer_list>

#include <cuda.h>
#include <cuda_runtime.h>

#define CHECK(call)                                     \
  do {                                                  \
    const int status_ = static_cast<int>(call);         \
    if (status_ != 0) {                                 \
      std::printf("line %d: %d\n", __LINE__, status_);  \
      return false;                                     \
    }                                                   \
  } while (false)

__global__ void first(float* values) {
  values[threadIdx.x + blockIdx.x * blockDim.x] += 1.0F;
}
__global__ void second(float* values) {
  const int i = threadIdx.x + blockIdx.x * blockDim.x;
  for (int round = 0; round < 8; ++round)
    values[i] = values[i] * 0.5F + 1.0F;
}

constexpr int kValues = 1 << 12;

static bool launch(void (*kernel)(float*), float* values, int blocks, cudaStream_t stream, bool is_programmatic) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kValues / 32);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = is_programmatic ? 1 : 0;
  void* arguments[] = {&values};
  CHECK(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), arguments));
  return true;
}

static bool chain(float* values, cudaStream_t stream, int count) {
  if (!launch(first, values, 32, stream, false)) return false;
  for (int i = 0; i < count; ++i)
    if (!launch(second, values, 1 + i % 32, stream, true)) return false;
  return true;
}

static bool run() {
  float *values = nullptr, *others = nullptr;
  unsigned* flag = nullptr;
  cudaStream_t streams[2];
  CHECK(cudaMalloc(&values, kValues * sizeof(float)));
  CHECK(cudaMalloc(&others, kValues * sizeof(float)));
  CHECK(cudaMallocHost(&flag, sizeof *flag));
  *flag = 0;
  for (cudaStream_t& stream : streams) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cuStreamWaitValue32(stream, reinterpret_cast<CUdeviceptr>(flag), 1, CU_STREAM_WAIT_VALUE_EQ));
  }
  for (const int count : {1, 3, 0, 2, 300, 0}) {
    if (!chain(values, streams[0], count) || !chain(others, streams[1], 5 - count % 5)) return false;
    if (count == 3) CHECK(cudaMemsetAsync(values, 0, 64, streams[0]));
  }
  CHECK(cudaMemsetAsync(values, 0, 64, streams[0]));
  CHECK(cudaMemsetAsync(others, 0, 64, streams[1]));
  *static_cast<volatile unsigned*>(flag) = 1;
  CHECK(cudaDeviceSynchronize());
  return true;
}

int main() {
  return run() ? 0 : 1;
}
