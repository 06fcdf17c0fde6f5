// SPDX-License-Identifier: Apache-2.0
// Capture of streams and its documented errors; graphs, their nodes and their updates.
#include <thread>

#include "device.h"

namespace gpu_check {

namespace {

__global__ void add(int* value, int amount) {
  *value += amount;
}
__global__ void twice(int* value, int amount) {
  *value = *value * 2 + amount;
}

struct Pair {  // two streams that end their captures, whatever has become of them
  cudaStream_t a{nullptr}, b{nullptr};
  explicit Pair(Check& c) {
    // Kernels are loaded when they are first launched, which is not to happen while a stream
    // captures.
    Array<int> memory(c, 1);
    add<<<1, 1>>>(memory, 0);
    NEED(cudaDeviceSynchronize());
    NEED(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    NEED(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  }
  ~Pair() {
    for (cudaStream_t stream : {a, b}) {
      cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
      cudaGraph_t graph = nullptr;
      if (cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
          status != cudaStreamCaptureStatusNone)
        cudaStreamEndCapture(stream, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      cudaStreamDestroy(stream);
    }
    (void)cudaGetLastError();
  }
};

cudaEvent_t make_event(Check& c) {
  cudaEvent_t event = nullptr;
  NEED(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

cudaError_t update(cudaGraphExec_t executable, cudaGraph_t graph,
                   cudaGraphExecUpdateResult* result) {
#if CUDART_VERSION >= 12000
  cudaGraphExecUpdateResultInfo info;
  const cudaError_t status = cudaGraphExecUpdate(executable, graph, &info);
  *result = info.result;
  return status;
#else
  cudaGraphNode_t node;
  return cudaGraphExecUpdate(executable, graph, &node, result);
#endif
}
cudaError_t instantiate(cudaGraphExec_t* executable, cudaGraph_t graph) {
  return cudaGraphInstantiateWithFlags(executable, graph, 0);
}

cudaGraphNode_t add_kernel(Check& c, cudaGraph_t graph, void (*kernel)(int*, int), int* value,
                           int amount, const std::vector<cudaGraphNode_t>& after) {
  void* arguments[] = {&value, &amount};
  cudaKernelNodeParams parameters = {};
  parameters.func = reinterpret_cast<void*>(kernel);
  parameters.gridDim = dim3(1);
  parameters.blockDim = dim3(1);
  parameters.kernelParams = arguments;
  cudaGraphNode_t node = nullptr;
  NEED(cudaGraphAddKernelNode(&node, graph, after.data(), after.size(), &parameters));
  return node;
}
void CUDART_CB count_call(void* counter) {
  ++*static_cast<int*>(counter);
}

}  // namespace

GPU_CHECK_BODY(capture, nothing_runs_before_the_launch) {
  Pair streams(c);
  Array<int> value(c, 1);
  NEED(cudaDeviceSynchronize());
  NEED(cudaStreamBeginCapture(streams.a, cudaStreamCaptureModeGlobal));
  cudaStreamCaptureStatus status;
  NEED(cudaStreamIsCapturing(streams.a, &status));
  c.equal("status", status, cudaStreamCaptureStatusActive);
  add<<<1, 1, 0, streams.a>>>(value, 5);
  add<<<1, 1, 0, streams.a>>>(value, 6);
  cudaGraph_t graph;
  EXPECT_ERROR(cudaSuccess, cudaStreamEndCapture(streams.a, &graph));
  NEED(cudaStreamIsCapturing(streams.a, &status));
  c.equal("status behind", status, cudaStreamCaptureStatusNone);
  std::size_t nodes = 0;
  NEED(cudaGraphGetNodes(graph, nullptr, &nodes));
  c.equal("nodes", (long long)nodes, 2);
  c.equal("the value before", value.first(), 0);
  cudaGraphExec_t executable;
  NEED(instantiate(&executable, graph));
  NEED(cudaGraphLaunch(executable, streams.a));
  NEED(cudaGraphLaunch(executable, streams.a));
  c.equal("the value after two launches", value.first(), 22);
  NEED(cudaGraphExecDestroy(executable));
  NEED(cudaGraphDestroy(graph));
}

GPU_CHECK_BODY(capture, synchronize_is_refused) {
  Pair streams(c);
  NEED(cudaStreamBeginCapture(streams.a, cudaStreamCaptureModeRelaxed));
  EXPECT_ERROR(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(streams.a));
  cudaStreamCaptureStatus status;
  NEED(cudaStreamIsCapturing(streams.a, &status));
  c.equal("status", status, cudaStreamCaptureStatusInvalidated);
  cudaGraph_t graph = nullptr;
  EXPECT_ERROR(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(streams.a, &graph));
  c.is_true("no graph comes of it", graph == nullptr);
}

GPU_CHECK_BODY(capture, global_mode_refuses_unsafe_calls) {
  Pair streams(c);
  void* memory = nullptr;
  NEED(cudaStreamBeginCapture(streams.a, cudaStreamCaptureModeGlobal));
  EXPECT_ERROR(cudaErrorStreamCaptureUnsupported, cudaMalloc(&memory, 1024));
  cudaGraph_t graph = nullptr;
  EXPECT_ERROR(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(streams.a, &graph));
}

GPU_CHECK_BODY(capture, relaxed_mode_allows_them) {
  Pair streams(c);
  void* memory = nullptr;
  NEED(cudaStreamBeginCapture(streams.a, cudaStreamCaptureModeRelaxed));
  EXPECT_ERROR(cudaSuccess, cudaMalloc(&memory, 1024));
  cudaGraph_t graph = nullptr;
  EXPECT_ERROR(cudaSuccess, cudaStreamEndCapture(streams.a, &graph));
  NEED(cudaGraphDestroy(graph));
  NEED(cudaFree(memory));
}

GPU_CHECK_BODY(capture, legacy_stream_is_refused) {
  Pair streams(c);
  Array<int> value(c, 1);
  EXPECT_ERROR(cudaErrorStreamCaptureUnsupported,
               cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeGlobal));
  // A blocking stream, so that work of the legacy stream would depend on the capture.
  cudaStream_t blocking;
  NEED(cudaStreamCreate(&blocking));
  NEED(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
  add<<<1, 1>>>(value, 1);
  c.error("a launch in the legacy stream", cudaGetLastError(), cudaErrorStreamCaptureImplicit,
          runtime_error_name);
  cudaGraph_t graph = nullptr;
  (void)cudaStreamEndCapture(blocking, &graph);
  if (graph != nullptr) cudaGraphDestroy(graph);
  (void)cudaGetLastError();
  NEED(cudaStreamDestroy(blocking));
}

GPU_CHECK_BODY(capture, end_without_begin) {
  Pair streams(c);
  cudaGraph_t graph = nullptr;
  EXPECT_ERROR(cudaErrorIllegalState, cudaStreamEndCapture(streams.a, &graph));
}

GPU_CHECK_BODY(capture, unjoined_work) {
  Pair streams(c);
  Array<int> value(c, 1);
  cudaEvent_t fork = make_event(c);
  NEED(cudaStreamBeginCapture(streams.a, cudaStreamCaptureModeRelaxed));
  NEED(cudaEventRecord(fork, streams.a));
  NEED(cudaStreamWaitEvent(streams.b, fork, 0));
  add<<<1, 1, 0, streams.b>>>(value, 1);
  cudaGraph_t graph = nullptr;
  EXPECT_ERROR(cudaErrorStreamCaptureUnjoined, cudaStreamEndCapture(streams.a, &graph));
  NEED(cudaEventDestroy(fork));
}

GPU_CHECK_BODY(capture, second_stream_does_not_end_it) {
  Pair streams(c);
  cudaEvent_t fork = make_event(c);
  NEED(cudaStreamBeginCapture(streams.a, cudaStreamCaptureModeRelaxed));
  NEED(cudaEventRecord(fork, streams.a));
  NEED(cudaStreamWaitEvent(streams.b, fork, 0));
  cudaGraph_t graph = nullptr;
  EXPECT_ERROR(cudaErrorStreamCaptureUnmatched, cudaStreamEndCapture(streams.b, &graph));
  (void)cudaStreamEndCapture(streams.a, &graph);
  (void)cudaGetLastError();
  NEED(cudaEventDestroy(fork));
}

// Asking invalidates the capture, so each question has a capture of its own.
GPU_CHECK_BODY(capture, events_inside_cannot_be_asked) {
  for (const bool waits : {false, true}) {
    Pair streams(c);
    cudaEvent_t event = make_event(c);
    NEED(cudaStreamBeginCapture(streams.a, cudaStreamCaptureModeRelaxed));
    NEED(cudaEventRecord(event, streams.a));
    if (waits)
      EXPECT_ERROR(cudaErrorCapturedEvent, cudaEventSynchronize(event));
    else
      EXPECT_ERROR(cudaErrorCapturedEvent, cudaEventQuery(event));
    cudaGraph_t graph = nullptr;
    (void)cudaStreamEndCapture(streams.a, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    (void)cudaGetLastError();
    NEED(cudaEventDestroy(event));
  }
}

GPU_CHECK_BODY(capture, events_outside_are_isolated) {
  Pair streams(c);
  cudaEvent_t event = make_event(c);
  NEED(cudaEventRecord(event, streams.b));
  NEED(cudaStreamBeginCapture(streams.a, cudaStreamCaptureModeRelaxed));
  EXPECT_ERROR(cudaErrorStreamCaptureIsolation, cudaStreamWaitEvent(streams.a, event, 0));
  cudaGraph_t graph = nullptr;
  EXPECT_ERROR(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(streams.a, &graph));
  NEED(cudaEventDestroy(event));
}

GPU_CHECK_BODY(capture, two_captures_do_not_merge) {
  Pair streams(c);
  cudaEvent_t event = make_event(c);
  NEED(cudaStreamBeginCapture(streams.a, cudaStreamCaptureModeRelaxed));
  NEED(cudaStreamBeginCapture(streams.b, cudaStreamCaptureModeRelaxed));
  NEED(cudaEventRecord(event, streams.a));
  EXPECT_ERROR(cudaErrorStreamCaptureMerge, cudaStreamWaitEvent(streams.b, event, 0));
  NEED(cudaEventDestroy(event));
}

GPU_CHECK_BODY(capture, another_thread_does_not_end_it) {
  Pair streams(c);
  NEED(cudaStreamBeginCapture(streams.a, cudaStreamCaptureModeThreadLocal));
  cudaError_t status = cudaSuccess;
  cudaGraph_t graph = nullptr;
  std::thread([&] { status = cudaStreamEndCapture(streams.a, &graph); }).join();
  c.error("the other thread's cudaStreamEndCapture", status, cudaErrorStreamCaptureWrongThread,
          runtime_error_name);
  (void)cudaStreamEndCapture(streams.a, &graph);
  if (graph != nullptr) cudaGraphDestroy(graph);
  (void)cudaGetLastError();
}

GPU_CHECK_BODY(graphs, nodes_of_every_kind) {
  Pair streams(c);
  Array<int> value(c, 2);
  int result = -1, calls = 0;
  cudaGraph_t graph, child;
  NEED(cudaGraphCreate(&graph, 0));
  NEED(cudaGraphCreate(&child, 0));
  add_kernel(c, child, add, value, 100, {});
  cudaGraphNode_t fill, inner, copy, call, empty;
  cudaMemsetParams set = {};
  set.dst = value;
  set.value = 3;
  set.elementSize = 4;
  set.width = 1;
  set.height = 1;
  NEED(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &set));
  const cudaGraphNode_t first = add_kernel(c, graph, twice, value, 1, {fill});
  NEED(cudaGraphAddChildGraphNode(&inner, graph, &first, 1, child));
  NEED(
      cudaGraphAddMemcpyNode1D(&copy, graph, &inner, 1, &result, value, 4, cudaMemcpyDeviceToHost));
  cudaHostNodeParams host = {};
  host.fn = count_call;
  host.userData = &calls;
  NEED(cudaGraphAddHostNode(&call, graph, &copy, 1, &host));
  NEED(cudaGraphAddEmptyNode(&empty, graph, &call, 1));
  cudaGraphNodeType type;
  NEED(cudaGraphNodeGetType(inner, &type));
  c.equal("type of the child", type, cudaGraphNodeTypeGraph);
  std::size_t count = 0, roots = 0;
  NEED(cudaGraphGetNodes(graph, nullptr, &count));
  NEED(cudaGraphGetRootNodes(graph, nullptr, &roots));
  c.equal("nodes", (long long)count, 6);
  c.equal("roots", (long long)roots, 1);
  cudaGraphExec_t executable;
  NEED(instantiate(&executable, graph));
  NEED(cudaGraphDestroy(graph));  // the executable lives on its own
  NEED(cudaGraphDestroy(child));
  NEED(cudaGraphLaunch(executable, streams.a));
  NEED(cudaStreamSynchronize(streams.a));
  c.equal("3 * 2 + 1 + 100", result, 107);
  c.equal("calls of the host node", calls, 1);
  NEED(cudaGraphExecDestroy(executable));
}

GPU_CHECK_BODY(graphs, update_changes_arguments) {
  Pair streams(c);
  Array<int> value(c, 1);
  cudaGraph_t graph, other;
  NEED(cudaGraphCreate(&graph, 0));
  NEED(cudaGraphCreate(&other, 0));
  add_kernel(c, graph, add, value, 1, {});
  add_kernel(c, other, add, value, 1000, {});
  cudaGraphExec_t executable;
  NEED(instantiate(&executable, graph));
  NEED(cudaGraphLaunch(executable, streams.a));
  cudaGraphExecUpdateResult result;
  EXPECT_ERROR(cudaSuccess, update(executable, other, &result));
  c.equal("result", result, cudaGraphExecUpdateSuccess);
  NEED(cudaGraphLaunch(executable, streams.a));
  c.equal("the value", value.first(), 1001);
  NEED(cudaGraphExecDestroy(executable));
  NEED(cudaGraphDestroy(graph));
  NEED(cudaGraphDestroy(other));
}

GPU_CHECK_BODY(graphs, update_refuses_another_form) {
  Array<int> value(c, 1);
  cudaGraph_t graph, longer, kind;
  NEED(cudaGraphCreate(&graph, 0));
  NEED(cudaGraphCreate(&longer, 0));
  NEED(cudaGraphCreate(&kind, 0));
  add_kernel(c, graph, add, value, 1, {});
  const cudaGraphNode_t first = add_kernel(c, longer, add, value, 1, {});
  add_kernel(c, longer, add, value, 1, {first});
  cudaGraphNode_t empty;
  NEED(cudaGraphAddEmptyNode(&empty, kind, nullptr, 0));
  cudaGraphExec_t executable;
  NEED(instantiate(&executable, graph));
  cudaGraphExecUpdateResult result;
  EXPECT_ERROR(cudaErrorGraphExecUpdateFailure, update(executable, longer, &result));
  c.equal("result for one more node", result, cudaGraphExecUpdateErrorTopologyChanged);
  EXPECT_ERROR(cudaErrorGraphExecUpdateFailure, update(executable, kind, &result));
  c.equal("result for another type", result, cudaGraphExecUpdateErrorNodeTypeChanged);
  NEED(cudaGraphExecDestroy(executable));
  for (cudaGraph_t each : {graph, longer, kind})
    NEED(cudaGraphDestroy(each));
}

GPU_CHECK_BODY(graphs, parameters_of_one_node) {
  Pair streams(c);
  Array<int> value(c, 1);
  cudaGraph_t graph;
  NEED(cudaGraphCreate(&graph, 0));
  const cudaGraphNode_t node = add_kernel(c, graph, add, value, 1, {});
  cudaGraphExec_t executable;
  NEED(instantiate(&executable, graph));
  int* pointer = value;
  int amount = 70;
  void* arguments[] = {&pointer, &amount};
  cudaKernelNodeParams parameters = {};
  parameters.func = reinterpret_cast<void*>(add);
  parameters.gridDim = dim3(1);
  parameters.blockDim = dim3(1);
  parameters.kernelParams = arguments;
  EXPECT_ERROR(cudaSuccess, cudaGraphExecKernelNodeSetParams(executable, node, &parameters));
  NEED(cudaGraphLaunch(executable, streams.a));
  c.equal("the value", value.first(), 70);
  NEED(cudaGraphExecDestroy(executable));
  NEED(cudaGraphDestroy(graph));
}

GPU_CHECK_BODY(graphs, clones_are_apart) {
  Array<int> value(c, 1);
  cudaGraph_t graph, clone;
  NEED(cudaGraphCreate(&graph, 0));
  const cudaGraphNode_t node = add_kernel(c, graph, add, value, 1, {});
  add_kernel(c, graph, add, value, 1, {node});
  NEED(cudaGraphClone(&clone, graph));
  NEED(cudaGraphDestroyNode(node));
  std::size_t left = 0, cloned = 0;
  NEED(cudaGraphGetNodes(graph, nullptr, &left));
  NEED(cudaGraphGetNodes(clone, nullptr, &cloned));
  c.equal("nodes after one was destroyed", (long long)left, 1);
  c.equal("nodes of the clone", (long long)cloned, 2);
  NEED(cudaGraphDestroy(graph));
  NEED(cudaGraphDestroy(clone));
}

}  // namespace gpu_check
