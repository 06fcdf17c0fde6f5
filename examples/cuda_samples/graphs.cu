// SPDX-License-Identifier: Apache-2.0
// Work of two streams is captured as a graph with two branches that part and join, launched many
// times, updated to other arguments of its kernels and launched again.
#include "sample.h"

constexpr int kCount = 1 << 14;

__global__ void scale(const float* in, float* out, float factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = in[i] * factor;
}
__global__ void accumulate(const float* a, const float* b, float* sum) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  sum[i] += a[i] + b[i];
}

struct Arrays {
  float *in, *left, *right, *sum;
};

// sum += in * left factor + in * right factor, with the two products side by side.
cudaGraph_t capture(const Arrays& arrays, float left_factor, float right_factor) {
  cudaStream_t stream, side;
  cudaEvent_t fork, join;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamCreate(&side));
  CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(cudaEventRecord(fork, stream));
  CHECK(cudaStreamWaitEvent(side, fork, 0));
  scale<<<kCount / 256, 256, 0, stream>>>(arrays.in, arrays.left, left_factor);
  scale<<<kCount / 256, 256, 0, side>>>(arrays.in, arrays.right, right_factor);
  CHECK(cudaEventRecord(join, side));
  CHECK(cudaStreamWaitEvent(stream, join, 0));
  accumulate<<<kCount / 256, 256, 0, stream>>>(arrays.left, arrays.right, arrays.sum);
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaStreamDestroy(side));
  CHECK(cudaEventDestroy(fork));
  CHECK(cudaEventDestroy(join));
  return graph;
}

int main() {
  const std::vector<float> in = numbers(kCount), zeros(kCount);
  const Arrays arrays{upload(in), upload(zeros), upload(zeros), upload(zeros)};
  cudaGraph_t graph = capture(arrays, 2.0F, 3.0F), other = capture(arrays, 0.5F, -1.0F);
  size_t nodes = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  bool is_right = nodes == 3 && equal(download(arrays.sum, kCount), zeros);  // nothing ran so far
  if (nodes != 3) std::printf("  %zu nodes, not 3\n", nodes);

  cudaStream_t stream;
  cudaGraphExec_t executable;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 10; ++i)
    CHECK(cudaGraphLaunch(executable, stream));
  CHECK(cudaStreamSynchronize(stream));
  std::vector<float> expected(kCount);
  for (int i = 0; i < kCount; ++i)
    expected[i] = 10 * (2.0F * in[i] + 3.0F * in[i]);
  is_right &= equal(download(arrays.sum, kCount), expected, 1e-4);

  // The same form with other factors: no new instance is needed.
#if CUDART_VERSION >= 12000
  cudaGraphExecUpdateResultInfo result;
  CHECK(cudaGraphExecUpdate(executable, other, &result));
  is_right &= result.result == cudaGraphExecUpdateSuccess;
#else
  cudaGraphNode_t node;
  cudaGraphExecUpdateResult result;
  CHECK(cudaGraphExecUpdate(executable, other, &node, &result));
  is_right &= result == cudaGraphExecUpdateSuccess;
#endif
  CHECK(cudaGraphLaunch(executable, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int i = 0; i < kCount; ++i)
    expected[i] += 0.5F * in[i] - in[i];
  is_right &= equal(download(arrays.sum, kCount), expected, 1e-4);

  CHECK(cudaGraphExecDestroy(executable));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaGraphDestroy(other));
  CHECK(cudaStreamDestroy(stream));
  for (float* array : {arrays.in, arrays.left, arrays.right, arrays.sum})
    CHECK(cudaFree(array));
  return finish("graphs", is_right);
}
