// SPDX-License-Identifier: Apache-2.0
// Parts of a vector go to the device, are worked on and come back in streams of their own, so that
// copies and kernels overlap; events order a last step after all of them and measure its time.
#include "sample.h"

constexpr int kStreams = 4, kPart = 1 << 15;

__global__ void square(float* values, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float value = values[i];
  for (int round = 0; round < rounds; ++round)
    value = value * value + 0.125F;
  values[i] = value;
}
__global__ void add_parts(const float* values, float* sums) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0.0F;
  for (int part = 0; part < kStreams; ++part)
    sum += values[part * kPart + i];
  sums[i] = sum;
}

int main() {
  const std::vector<float> in = numbers(kStreams * kPart);
  const size_t part_bytes = kPart * sizeof(float);
  float *pinned = nullptr, *values = nullptr, *sums = nullptr;
  CHECK(cudaMallocHost(&pinned, kStreams * part_bytes));
  for (size_t i = 0; i < in.size(); ++i)
    pinned[i] = in[i];
  CHECK(cudaMalloc(&values, kStreams * part_bytes));
  CHECK(cudaMalloc(&sums, part_bytes));
  cudaStream_t streams[kStreams], last;
  cudaEvent_t is_done[kStreams], begin, end;
  CHECK(cudaStreamCreateWithFlags(&last, cudaStreamNonBlocking));
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  for (int part = 0; part < kStreams; ++part) {
    CHECK(cudaStreamCreateWithFlags(&streams[part], cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&is_done[part], cudaEventDisableTiming));
  }
  CHECK(cudaEventRecord(begin, streams[0]));
  for (int part = 0; part < kStreams; ++part) {
    float *host = pinned + part * kPart, *device = values + part * kPart;
    CHECK(cudaMemcpyAsync(device, host, part_bytes, cudaMemcpyHostToDevice, streams[part]));
    square<<<kPart / 256, 256, 0, streams[part]>>>(device, part + 1);
    CHECK(cudaEventRecord(is_done[part], streams[part]));
    CHECK(cudaMemcpyAsync(host, device, part_bytes, cudaMemcpyDeviceToHost, streams[part]));
    CHECK(cudaStreamWaitEvent(last, is_done[part], 0));
  }
  add_parts<<<kPart / 256, 256, 0, last>>>(values, sums);
  CHECK(cudaEventRecord(end, last));
  CHECK(cudaEventSynchronize(end));
  for (const cudaStream_t stream : streams)
    CHECK(cudaStreamSynchronize(stream));
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end));

  std::vector<float> expected(in.size()), expected_sums(kPart);
  for (size_t i = 0; i < in.size(); ++i) {
    expected[i] = in[i];
    for (size_t round = 0; round <= i / kPart; ++round)
      expected[i] = expected[i] * expected[i] + 0.125F;
    expected_sums[i % kPart] += expected[i];
  }
  bool is_right = equal(std::vector<float>(pinned, pinned + in.size()), expected, 1e-4);
  is_right &= equal(download(sums, kPart), expected_sums, 1e-4) && milliseconds > 0;
  for (int part = 0; part < kStreams; ++part) {
    CHECK(cudaStreamDestroy(streams[part]));
    CHECK(cudaEventDestroy(is_done[part]));
  }
  CHECK(cudaStreamDestroy(last));
  CHECK(cudaEventDestroy(begin));
  CHECK(cudaEventDestroy(end));
  CHECK(cudaFreeHost(pinned));
  CHECK(cudaFree(values));
  CHECK(cudaFree(sums));
  return finish("streams", is_right);
}
