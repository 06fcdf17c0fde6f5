// SPDX-License-Identifier: Apache-2.0
// Capture of streams, graphs, instances.
#include <gmock/gmock.h>

#include <thread>

#include "softcuda/runtime/runtime_for_test.h"

namespace kansoku::cudart {
namespace {

using testing::ElementsAre;

class GraphTest : public RuntimeTest {
 protected:
  void SetUp() override {
    stream_ = make_stream();
    other_ = make_stream();
    fork_ = make_event();
    join_ = make_event();
    log_ = pinned(4);
  }
  void append(cudaStream_t stream, std::uint32_t bit) const {
    EXPECT_CUDA(cudaSuccess, launch("append", {}, stream, log_, bit));
  }
  /// Launches; what the log, which begins with 1, is then.
  std::uint32_t run(cudaGraphExec_t executable) {
    *log_ = 1;
    EXPECT_CUDA(cudaSuccess, cudaGraphLaunch(executable, stream_));
    EXPECT_CUDA(cudaSuccess, cudaStreamSynchronize(stream_));
    return *log_;
  }
  std::uint32_t run(cudaGraph_t graph) {
    cudaGraphExec_t executable = nullptr;
    EXPECT_CUDA(cudaSuccess, cudaGraphInstantiate(&executable, graph, 0));
    const std::uint32_t value = run(executable);
    EXPECT_CUDA(cudaSuccess, cudaGraphExecDestroy(executable));
    return value;
  }
  cudaStreamCaptureStatus status(cudaStream_t stream) {
    cudaStreamCaptureStatus value{};
    EXPECT_CUDA(cudaSuccess, cudaStreamIsCapturing(stream, &value));
    return value;
  }
  static std::size_t count(cudaGraph_t graph) {
    std::size_t nodes = 0;
    EXPECT_CUDA(cudaSuccess, cudaGraphGetNodes(graph, nullptr, &nodes));
    return nodes;
  }
  cudaGraph_t make_graph() {
    cudaGraph_t graph = nullptr;
    EXPECT_CUDA(cudaSuccess, cudaGraphCreate(&graph, 0));
    return graph;
  }
  cudaGraphNode_t add_append(cudaGraph_t graph, std::uint32_t bit,
                             std::vector<cudaGraphNode_t> after = {}) {
    Params<std::uint32_t*, std::uint32_t> params(log_, bit);
    const cudaKernelNodeParams node{
        const_cast<void*>(stub("append")), {1, 1, 1}, {1, 1, 1}, 0, params.get(), nullptr};
    cudaGraphNode_t made = nullptr;
    EXPECT_CUDA(cudaSuccess,
                cudaGraphAddKernelNode(&made, graph, after.data(), after.size(), &node));
    return made;
  }

  cudaStream_t stream_{nullptr}, other_{nullptr};
  cudaEvent_t fork_{nullptr}, join_{nullptr};
  std::uint32_t* log_{nullptr};
};

TEST_F(GraphTest, AreCapturedInEveryMode) {
  COVERS(cudaStreamBeginCapture, cudaStreamEndCapture, cudaStreamIsCapturing,
         cudaThreadExchangeStreamCaptureMode);
  REFUSES(cudaStreamBeginCapture, cudaStreamEndCapture, cudaStreamIsCapturing,
          cudaThreadExchangeStreamCaptureMode);
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                          cudaStreamCaptureModeRelaxed}) {
    cudaGraph_t graph = nullptr;
    *log_ = 1;
    OK(cudaStreamBeginCapture(stream_, mode));
    append(stream_, 0);  // loads the image, which is no part of the capture
    append(stream_, 1);
    EXPECT_EQ(status(stream_), cudaStreamCaptureStatusActive);
    EXPECT_CUDA(cudaErrorIllegalState, cudaStreamBeginCapture(stream_, mode));
    OK(cudaStreamEndCapture(stream_, &graph));
    EXPECT_EQ(status(stream_), cudaStreamCaptureStatusNone);
    EXPECT_EQ(*log_, 1U);
    EXPECT_EQ(count(graph), 2U);
    EXPECT_EQ(run(graph), 0b101U);
    OK(cudaGraphDestroy(graph));
  }
  EXPECT_CUDA(cudaErrorStreamCaptureUnsupported,
              cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed));
  EXPECT_CUDA(cudaErrorInvalidValue,
              cudaStreamBeginCapture(stream_, unknown<cudaStreamCaptureMode>(7)));
  cudaGraph_t graph = nullptr;
  EXPECT_CUDA(cudaErrorIllegalState, cudaStreamEndCapture(stream_, &graph));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaStreamIsCapturing(stream_, nullptr));
  auto mode = cudaStreamCaptureModeRelaxed;
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, cudaStreamCaptureModeRelaxed);
  EXPECT_CUDA(cudaErrorInvalidValue, cudaThreadExchangeStreamCaptureMode(nullptr));
}

TEST_F(GraphTest, UnsafeCallsEndACaptureAsTheModeSays) {
  void* pointer = nullptr;
  cudaGraph_t graph = nullptr;
  OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
  EXPECT_CUDA(cudaErrorStreamCaptureUnsupported, cudaMalloc(&pointer, 16));
  EXPECT_EQ(status(stream_), cudaStreamCaptureStatusInvalidated);
  EXPECT_CUDA(cudaErrorStreamCaptureInvalidated, launch("append", {}, stream_, log_, 1U));
  EXPECT_CUDA(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream_, &graph));
  EXPECT_EQ(graph, nullptr);
  // Another thread's global capture forbids it, too; one that is local to a thread does not.
  OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
  std::thread([&] {
    EXPECT_CUDA(cudaErrorStreamCaptureUnsupported, cudaMalloc(&pointer, 16));
  }).join();
  EXPECT_CUDA(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream_, &graph));
  OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  std::thread([&] { OK(cudaMalloc(&pointer, 16)); }).join();
  OK(cudaStreamEndCapture(stream_, &graph));
  OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
  OK(cudaMalloc(&pointer, 16));
  OK(cudaStreamEndCapture(stream_, &graph));
  // Waiting for what is only recorded.
  OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
  EXPECT_CUDA(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(stream_));
  EXPECT_CUDA(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream_, &graph));
  OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
  std::thread([&] {
    EXPECT_CUDA(cudaErrorStreamCaptureWrongThread, cudaStreamEndCapture(stream_, &graph));
  }).join();
  OK(cudaStreamEndCapture(stream_, &graph));
}

TEST_F(GraphTest, BranchesMustJoin) {
  cudaGraph_t graph = nullptr;
  OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
  append(stream_, 1);
  OK(cudaEventRecord(fork_, stream_));
  OK(cudaStreamWaitEvent(other_, fork_, 0));
  append(other_, 0);
  OK(cudaEventRecord(join_, other_));
  EXPECT_CUDA(cudaErrorStreamCaptureUnmatched, cudaStreamEndCapture(other_, &graph));
  EXPECT_CUDA(cudaErrorStreamCaptureUnsupported, cudaEventQuery(join_));
  EXPECT_CUDA(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream_, &graph));
  OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
  OK(cudaEventRecord(fork_, stream_));
  OK(cudaStreamWaitEvent(other_, fork_, 0));
  append(other_, 0);
  EXPECT_CUDA(cudaErrorStreamCaptureUnjoined, cudaStreamEndCapture(stream_, &graph));
  // Two branches, one after the other only where they meet.
  std::uint32_t* const left = log_ + 1;
  std::uint32_t* const right = log_ + 2;
  left[0] = right[0] = 0;
  OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
  append(stream_, 1);
  OK(cudaEventRecord(fork_, stream_));
  OK(cudaStreamWaitEvent(other_, fork_, 0));
  OK(launch("next", {}, stream_, log_, left));
  OK(launch("next", {}, other_, log_, right));
  OK(cudaEventRecord(join_, other_));
  OK(cudaStreamWaitEvent(stream_, join_, 0));
  append(stream_, 0);
  OK(cudaStreamEndCapture(stream_, &graph));
  EXPECT_EQ(count(graph), 4U);
  EXPECT_EQ(run(graph), 0b110U);
  EXPECT_EQ(left[0], 4U);
  EXPECT_EQ(right[0], 4U);
}

TEST_F(GraphTest, AreBuiltOfNodes) {
  COVERS(cudaGraphCreate, cudaGraphDestroy, cudaGraphAddKernelNode, cudaGraphAddMemcpyNode1D,
         cudaGraphAddMemsetNode, cudaGraphAddHostNode, cudaGraphAddEmptyNode,
         cudaGraphAddChildGraphNode, cudaGraphGetNodes, cudaGraphGetRootNodes,
         cudaGraphNodeGetType);
  REFUSES(cudaGraphCreate, cudaGraphDestroy, cudaGraphAddKernelNode, cudaGraphAddMemcpyNode1D,
          cudaGraphAddMemsetNode, cudaGraphAddHostNode, cudaGraphAddEmptyNode,
          cudaGraphAddChildGraphNode, cudaGraphGetNodes, cudaGraphGetRootNodes,
          cudaGraphNodeGetType);
  const cudaGraph_t graph = make_graph(), child = make_graph();
  std::uint32_t* const device = allocate(2);
  cudaGraphNode_t fill = nullptr, copy = nullptr, host = nullptr, empty = nullptr, inner = nullptr;
  const cudaMemsetParams fill_params{device, 0, 6, 4, 2, 1};
  OK(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &fill_params));
  OK(cudaGraphAddMemcpyNode1D(&copy, graph, &fill, 1, log_, device, 8, cudaMemcpyDeviceToHost));
  const cudaHostNodeParams host_params{
      [](void* data) { static_cast<std::uint32_t*>(data)[1] += 1; }, log_};
  OK(cudaGraphAddHostNode(&host, graph, &copy, 1, &host_params));
  OK(cudaGraphAddEmptyNode(&empty, graph, &host, 1));
  add_append(child, 1);
  OK(cudaGraphAddChildGraphNode(&inner, graph, &empty, 1, child));
  EXPECT_EQ(run(graph), 13U);
  EXPECT_EQ(log_[1], 7U);
  std::array<cudaGraphNode_t, 8> nodes{};
  std::size_t many = nodes.size();
  OK(cudaGraphGetNodes(graph, nodes.data(), &many));
  EXPECT_EQ(many, 5U);
  many = nodes.size();
  OK(cudaGraphGetRootNodes(graph, nodes.data(), &many));
  EXPECT_EQ(many, 1U);
  EXPECT_EQ(nodes[0], fill);
  const std::pair<cudaGraphNode_t, cudaGraphNodeType> types[] = {{fill, cudaGraphNodeTypeMemset},
                                                                 {copy, cudaGraphNodeTypeMemcpy},
                                                                 {host, cudaGraphNodeTypeHost},
                                                                 {empty, cudaGraphNodeTypeEmpty},
                                                                 {inner, cudaGraphNodeTypeGraph}};
  for (const auto& [node, expected] : types) {
    cudaGraphNodeType type{};
    OK(cudaGraphNodeGetType(node, &type));
    EXPECT_EQ(type, expected);
  }
  cudaGraph_t none = nullptr;
  cudaGraphNode_t node = nullptr;
  const auto bad = garbage<cudaGraph_t>();
  const cudaKernelNodeParams wrong{&none, {1, 1, 1}, {1, 1, 1}, 0, nullptr, nullptr};
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphCreate(&none, 1));
  EXPECT_CUDA(cudaErrorInvalidDeviceFunction,
              cudaGraphAddKernelNode(&node, graph, nullptr, 0, &wrong));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphAddKernelNode(&node, graph, nullptr, 0, nullptr));
  EXPECT_CUDA(cudaErrorInvalidMemcpyDirection,
              cudaGraphAddMemcpyNode1D(&node, graph, nullptr, 0, log_, device, 8,
                                       unknown<cudaMemcpyKind>(9)));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphAddMemsetNode(&node, graph, nullptr, 0, nullptr));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphAddHostNode(&node, graph, nullptr, 0, nullptr));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaGraphAddEmptyNode(&node, bad, nullptr, 0));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle,
              cudaGraphAddChildGraphNode(&node, graph, nullptr, 0, bad));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaGraphGetNodes(bad, nullptr, &many));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaGraphGetRootNodes(bad, nullptr, &many));
  OK(cudaGraphDestroy(graph));
  cudaGraphNodeType type{};
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaGraphNodeGetType(fill, &type));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaGraphDestroy(graph));
}

TEST_F(GraphTest, AreClonedAndShortened) {
  COVERS(cudaGraphClone, cudaGraphDestroyNode);
  REFUSES(cudaGraphClone, cudaGraphDestroyNode);
  const cudaGraph_t graph = make_graph();
  const cudaGraphNode_t first = add_append(graph, 0);
  add_append(graph, 1, {first});
  cudaGraph_t clone = nullptr;
  OK(cudaGraphClone(&clone, graph));
  OK(cudaGraphDestroyNode(first));
  EXPECT_EQ(run(graph), 0b11U);
  EXPECT_EQ(run(clone), 0b101U);
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaGraphDestroyNode(first));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaGraphClone(&clone, garbage<cudaGraph_t>()));
}

TEST_F(GraphTest, InstancesAreLaunchedAndChanged) {
  COVERS(cudaGraphInstantiate, cudaGraphInstantiateWithFlags, cudaGraphExecDestroy,
         cudaGraphExecUpdate, cudaGraphExecKernelNodeSetParams, cudaGraphUpload, cudaGraphLaunch);
  REFUSES(cudaGraphInstantiate, cudaGraphInstantiateWithFlags, cudaGraphExecDestroy,
          cudaGraphExecUpdate, cudaGraphExecKernelNodeSetParams, cudaGraphUpload, cudaGraphLaunch);
  const cudaGraph_t graph = make_graph();
  const cudaGraphNode_t first = add_append(graph, 0);
  add_append(graph, 1, {first});
  cudaGraphExec_t executable = nullptr;
  OK(cudaGraphInstantiateWithFlags(&executable, graph, cudaGraphInstantiateFlagUseNodePriority));
  OK(cudaGraphUpload(executable, stream_));
  EXPECT_EQ(run(executable), 0b101U);
  Params<std::uint32_t*, std::uint32_t> params(log_, 1U);
  cudaKernelNodeParams changed{
      const_cast<void*>(stub("append")), {1, 1, 1}, {1, 1, 1}, 0, params.get(), nullptr};
  OK(cudaGraphExecKernelNodeSetParams(executable, first, &changed));
  EXPECT_EQ(run(executable), 0b111U);
  const cudaGraph_t same = make_graph(), longer = make_graph();
  const cudaGraphNode_t begin = add_append(same, 0);
  add_append(same, 0, {begin});
  cudaGraphExecUpdateResultInfo info{};
  OK(cudaGraphExecUpdate(executable, same, &info));
  EXPECT_EQ(info.result, cudaGraphExecUpdateSuccess);
  EXPECT_EQ(run(executable), 0b100U);
  add_append(longer, 0);
  EXPECT_CUDA(cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate(executable, longer, &info));
  EXPECT_EQ(info.result, cudaGraphExecUpdateErrorTopologyChanged);
  EXPECT_CUDA(cudaErrorGraphExecUpdateFailure, cudaGetLastError());
  EXPECT_EQ(run(executable), 0b100U);  // as it was
  changed.func = log_;
  EXPECT_CUDA(cudaErrorInvalidDeviceFunction,
              cudaGraphExecKernelNodeSetParams(executable, first, &changed));
  changed.func = const_cast<void*>(stub("append"));
  OK(cudaGraphDestroy(graph));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphExecKernelNodeSetParams(executable, first, &changed));
  EXPECT_EQ(run(executable), 0b100U);  // does not need its graph
  const auto bad = garbage<cudaGraphExec_t>();
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaGraphUpload(bad, stream_));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaGraphLaunch(bad, stream_));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphInstantiateWithFlags(&executable, same, 1 << 10));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphInstantiate(nullptr, same, 0));
  OK(cudaGraphExecDestroy(executable));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaGraphExecDestroy(executable));
}

}  // namespace
}  // namespace kansoku::cudart
