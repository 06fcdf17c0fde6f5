// SPDX-License-Identifier: Apache-2.0
// Graphs that streams capture.
#include <gmock/gmock.h>

#include <thread>

#include "softcuda/driver_for_test.h"

namespace kansoku::softcuda {
namespace {

class CaptureTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    OK(cuStreamCreate(&stream_, kStreamNonBlocking));
    OK(cuStreamCreate(&other_, kStreamNonBlocking));
    OK(cuEventCreate(&fork_, kEventDisableTiming));
    OK(cuEventCreate(&join_, kEventDisableTiming));
    log_ = pinned();
    static_cast<void>(kernel("append"));  // loads the module
  }
  void begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    OK(cuStreamBeginCapture_v2(stream_, mode));
  }
  void append(CUstream stream, std::uint32_t bit) {
    EXPECT_CU(0, launch(kernel("append"), {}, stream, address(log_), bit));
  }
  /// Instantiates and launches; what the log, which begins with 1, is then.
  std::uint32_t run(CUgraph graph) {
    *log_ = 1;
    CUgraphExec exec = nullptr;
    EXPECT_CU(0, cuGraphInstantiateWithFlags(&exec, graph, 0));
    EXPECT_CU(0, cuGraphLaunch(exec, stream_));
    EXPECT_CU(0, cuStreamSynchronize(stream_));
    EXPECT_CU(0, cuGraphExecDestroy(exec));
    return *log_;
  }
  CUstreamCaptureStatus status(CUstream stream) {
    CUstreamCaptureStatus value{};
    EXPECT_CU(0, cuStreamIsCapturing(stream, &value));
    return value;
  }
  /// Ends a capture that went wrong.
  void expect_end(CUresult error) {
    CUgraph graph = garbage<CUgraph>();
    EXPECT_CU(error, cuStreamEndCapture(stream_, &graph));
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(status(stream_), CU_STREAM_CAPTURE_STATUS_NONE);
    append(stream_, 0);
    EXPECT_CU(0, cuStreamSynchronize(stream_));
  }

  CUstream stream_{nullptr}, other_{nullptr};
  CUevent fork_{nullptr}, join_{nullptr};
  volatile std::uint32_t* log_{nullptr};
};

TEST_F(CaptureTest, RecordsInsteadOfRunning) {
  COVERS(cuStreamBeginCapture_v2, cuStreamEndCapture, cuStreamIsCapturing);
  *log_ = 1;
  EXPECT_EQ(status(stream_), CU_STREAM_CAPTURE_STATUS_NONE);
  begin();
  EXPECT_EQ(status(stream_), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_CU(CUDA_ERROR_ILLEGAL_STATE,
            cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  append(stream_, 1);
  append(stream_, 0);
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(stream_, &graph));
  EXPECT_EQ(status(stream_), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_CU(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(stream_, &graph));
  OK(cuCtxSynchronize());
  EXPECT_EQ(*log_, 1U);
  std::size_t count = 0;
  OK(cuGraphGetNodes(graph, nullptr, &count));
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(run(graph), 0b110U);
  EXPECT_EQ(run(graph), 0b110U);
  OK(cuGraphDestroy(graph));
}

TEST_F(CaptureTest, CopiesFillsFunctionsAndGraphs) {
  COVERS(cuStreamBeginCapture_v2, cuStreamEndCapture);
  const CUdeviceptr memory = allocate(16);
  auto* const host = const_cast<std::uint32_t*>(pinned(2));
  std::uint32_t pageable = 40, rows[2] = {50, 60};
  int calls = 0;
  CUgraph inner = nullptr, graph = nullptr;
  CUgraphNode node = nullptr;
  OK(cuGraphCreate(&inner, 0));
  OK(cuGraphAddEmptyNode(&node, inner, nullptr, 0));
  CUgraphExec inner_exec = nullptr;
  OK(cuGraphInstantiateWithFlags(&inner_exec, inner, 0));
  begin();
  OK(cuMemsetD32Async(memory, 3, 1, stream_));
  OK(cuMemcpyDtoHAsync_v2(host, memory, 4, stream_));
  OK(cuMemcpyHtoDAsync_v2(memory + 4, &pageable, 4, stream_));
  CUDA_MEMCPY2D box{};
  box.srcMemoryType = CU_MEMORYTYPE_HOST;
  box.srcHost = rows;
  box.srcPitch = 4;
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.dstDevice = memory + 8;
  box.dstPitch = 4;
  box.WidthInBytes = 4;
  box.Height = 2;
  OK(cuMemcpy2DAsync_v2(&box, stream_));
  OK(cuLaunchHostFunc(
      stream_, [](void* data) { ++*static_cast<int*>(data); }, &calls));
  OK(cuGraphLaunch(inner_exec, stream_));
  OK(cuStreamEndCapture(stream_, &graph));
  EXPECT_EQ(calls, 0);
  pageable = 41;  // read when the graph runs
  run(graph);
  EXPECT_EQ(host[0], 3U);
  EXPECT_THAT(read(memory, 4), ::testing::ElementsAre(3, 41, 50, 60));
  EXPECT_EQ(calls, 1);
  CUgraphNode nodes[6] = {};
  std::size_t count = 6;
  OK(cuGraphGetNodes(graph, nodes, &count));
  const CUgraphNodeType expected[] = {CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_MEMCPY,
                                      CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_MEMCPY,
                                      CU_GRAPH_NODE_TYPE_HOST,   CU_GRAPH_NODE_TYPE_GRAPH};
  for (std::size_t i = 0; i < 6; ++i) {
    CUgraphNodeType type{};
    OK(cuGraphNodeGetType(nodes[i], &type));
    EXPECT_EQ(type, expected[i]) << i;
  }
  CUgraph child = nullptr;
  OK(cuGraphChildGraphNodeGetGraph(nodes[5], &child));
  OK(cuGraphGetNodes(child, nullptr, &count));
  EXPECT_EQ(count, 1U);
  OK(cuGraphDestroy(graph));
  OK(cuGraphDestroy(inner));
}

TEST_F(CaptureTest, ForksAndJoinsByEvents) {
  COVERS(cuStreamWaitEvent, cuEventRecord, cuStreamEndCapture);
  volatile std::uint32_t* const out = pinned(3);
  begin();
  append(stream_, 1);
  OK(cuEventRecord(fork_, stream_));
  OK(cuStreamWaitEvent(other_, fork_, 0));
  EXPECT_EQ(status(other_), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(launch(kernel("next"), {}, other_, address(log_), address(out)));
  OK(launch(kernel("next"), {}, stream_, address(log_), address(out + 1)));
  OK(cuEventRecord(join_, other_));
  OK(cuStreamWaitEvent(stream_, join_, 0));
  OK(launch(kernel("next"), {}, stream_, address(out), address(out + 2)));
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(stream_, &graph));
  EXPECT_EQ(status(other_), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(run(graph), 0b11U);
  EXPECT_EQ(out[0], 4U);
  EXPECT_EQ(out[1], 4U);
  EXPECT_EQ(out[2], 5U);
  std::size_t count = 0;
  OK(cuGraphGetEdges(graph, nullptr, nullptr, &count));
  EXPECT_EQ(count, 4U);  // a diamond
  OK(cuGraphDestroy(graph));
}

TEST_F(CaptureTest, WhatIsNotJoinedIsAnError) {
  COVERS(cuStreamEndCapture);
  begin();
  append(stream_, 1);
  OK(cuEventRecord(fork_, stream_));
  OK(cuStreamWaitEvent(other_, fork_, 0));
  append(other_, 1);
  CUgraph graph = nullptr;
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(other_, &graph));
  expect_end(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(status(other_), CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(CaptureTest, EventsOfACaptureAreOfNoUseOutside) {
  COVERS(cuEventQuery, cuEventSynchronize, cuEventElapsedTime, cuStreamWaitEvent);
  CUevent timed = nullptr;
  OK(cuEventCreate(&timed, 0));
  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  OK(cuEventRecord(timed, stream_));
  EXPECT_CU(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(timed));
  EXPECT_CU(CUDA_ERROR_CAPTURED_EVENT, cuEventSynchronize(timed));
  float ms = 0;
  EXPECT_CU(CUDA_ERROR_CAPTURED_EVENT, cuEventElapsedTime(&ms, timed, timed));
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(stream_, &graph));
  OK(cuGraphDestroy(graph));
  // The capture is over, and what the event marked is gone.
  EXPECT_CU(CUDA_ERROR_CAPTURED_EVENT, cuStreamWaitEvent(other_, timed, 0));
  EXPECT_EQ(status(other_), CU_STREAM_CAPTURE_STATUS_NONE);
  OK(cuEventRecord(timed, other_));
  OK(cuEventSynchronize(timed));
}

TEST_F(CaptureTest, ExternalEventsAreNodes) {
  COVERS(cuEventRecordWithFlags, cuStreamWaitEvent);
  CUevent event = nullptr;
  OK(cuEventCreate(&event, 0));
  begin();
  OK(cuStreamWaitEvent(stream_, event, 1));
  append(stream_, 1);
  OK(cuEventRecordWithFlags(event, stream_, 1));
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(stream_, &graph));
  CUgraphNode nodes[3] = {};
  std::size_t count = 3;
  OK(cuGraphGetNodes(graph, nodes, &count));
  CUevent found = nullptr;
  OK(cuGraphEventWaitNodeGetEvent(nodes[0], &found));
  EXPECT_EQ(found, event);
  OK(cuGraphEventRecordNodeGetEvent(nodes[2], &found));
  EXPECT_EQ(found, event);
  EXPECT_EQ(run(graph), 0b11U);
  EXPECT_CU(CUDA_SUCCESS, cuEventQuery(event));
  OK(cuGraphDestroy(graph));
}

TEST_F(CaptureTest, WaitingForWorkOutsideIsRefused) {
  COVERS(cuStreamWaitEvent);
  OK(cuEventRecord(fork_, other_));
  begin();
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(stream_, fork_, 0));
  EXPECT_EQ(status(stream_), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
            launch(kernel("append"), {}, stream_, address(log_), 1U));
  expect_end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureTest, TwoCapturesDoNotMerge) {
  COVERS(cuStreamWaitEvent);
  begin();
  OK(cuStreamBeginCapture_v2(other_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuEventRecord(fork_, other_));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(stream_, fork_, 0));
  expect_end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CUgraph graph = nullptr;
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(other_, &graph));
}

TEST_F(CaptureTest, SynchronizingACapturingStreamIsRefused) {
  COVERS(cuStreamSynchronize, cuStreamQuery, cuCtxSynchronize, cuStreamAddCallback, cuMemcpy_ptds,
         cuMemAllocAsync);
  const auto expect_refused = [&](const std::function<CUresult()>& call) {
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, call());
    expect_end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  };
  expect_refused([&] { return cuStreamSynchronize(stream_); });
  expect_refused([&] { return cuStreamQuery(stream_); });
  expect_refused([&] { return cuCtxSynchronize(); });
  CUgraph graph = nullptr;
  CUdeviceptr pointer = allocate(8);
  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAllocAsync(&pointer, 8, stream_));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            cuStreamAddCallback(
                stream_, [](CUstream, CUresult, void*) {}, nullptr, 0));
  OK(cuStreamEndCapture(stream_, &graph));
  OK(cuGraphDestroy(graph));
  // A synchronous copy in a stream that captures.
  OK(cuStreamBeginCapture_v2(kPerThreadStream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemcpy_ptds(pointer, pointer + 4, 4));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(kPerThreadStream, &graph));
}

TEST_F(CaptureTest, TheLegacyStreamNeitherCapturesNorMeetsACapture) {
  COVERS(cuStreamBeginCapture_v2, cuStreamIsCapturing);
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuStreamBeginCapture_v2(stream_, static_cast<CUstreamCaptureMode>(3)));
  // Beside a non-blocking stream that captures it goes on.
  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  append(nullptr, 1);
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(stream_, &graph));
  OK(cuGraphDestroy(graph));
  // Beside a blocking one it would have to wait for what is captured.
  CUstream blocking = nullptr;
  OK(cuStreamCreate(&blocking, 0));
  OK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUstreamCaptureStatus ignored{};
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(nullptr, &ignored));
  EXPECT_EQ(status(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
            launch(kernel("append"), {}, nullptr, address(log_), 1U));
  EXPECT_EQ(status(blocking), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(blocking, &graph));
  // It cannot join one either.
  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  OK(cuEventRecord(fork_, stream_));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamWaitEvent(nullptr, fork_, 0));
  expect_end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureTest, OnlyItsThreadEndsACaptureUnlessRelaxed) {
  COVERS(cuStreamEndCapture);
  const auto end_elsewhere = [&](CUresult expected) {
    CUgraph graph = nullptr;
    std::thread([&] {
      EXPECT_CU(0, cuCtxSetCurrent(context_));
      EXPECT_CU(expected, cuStreamEndCapture(stream_, &graph));
    }).join();
    return graph;
  };
  begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  end_elsewhere(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(stream_, &graph));
  OK(cuGraphDestroy(graph));
  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  graph = end_elsewhere(CUDA_SUCCESS);
  OK(cuGraphDestroy(graph));
}

TEST_F(CaptureTest, UnsafeCallsAreRefusedAsTheModesSay) {
  COVERS(cuThreadExchangeStreamCaptureMode, cuMemAlloc_v2, cuMemFree_v2, cuEventQuery);
  CUdeviceptr pointer = 0;
  const auto allocate_elsewhere = [&](CUstreamCaptureMode mode) {
    CUresult result{};
    std::thread([&] {
      EXPECT_CU(0, cuCtxSetCurrent(context_));
      EXPECT_CU(0, cuThreadExchangeStreamCaptureMode(&mode));
      EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
      result = cuMemAlloc_v2(&pointer, 16);
    }).join();
    return result;
  };
  CUgraph graph = nullptr;
  // From this thread, in the global mode: refused, and the capture is of no use any more.
  begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc_v2(&pointer, 16));
  expect_end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  // From another thread, in the global mode: refused; in the thread's own mode it is allowed.
  begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_CU(CUDA_SUCCESS, allocate_elsewhere(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            allocate_elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL));
  expect_end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  // A thread-local capture concerns its thread only, a relaxed one nobody.
  begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_CU(CUDA_SUCCESS, allocate_elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  OK(cuMemAlloc_v2(&pointer, 16));
  OK(cuMemFree_v2(pointer));
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuEventQuery(join_));
  expect_end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  OK(cuMemAlloc_v2(&pointer, 16));
  OK(cuEventQuery(join_));
  OK(cuStreamEndCapture(stream_, &graph));
  OK(cuGraphDestroy(graph));
  mode = static_cast<CUstreamCaptureMode>(5);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuThreadExchangeStreamCaptureMode(&mode));
}

TEST_F(CaptureTest, IntoAGraphThatIsThere) {
  COVERS(cuStreamBeginCaptureToGraph, cuStreamGetCaptureInfo_v2);
  CUgraph graph = nullptr, during = nullptr, ended = nullptr;
  OK(cuGraphCreate(&graph, 0));
  CUgraphNode first = nullptr;
  OK(cuGraphAddEmptyNode(&first, graph, nullptr, 0));
  OK(cuStreamBeginCaptureToGraph(stream_, graph, &first, nullptr, 1,
                                 CU_STREAM_CAPTURE_MODE_GLOBAL));
  append(stream_, 1);
  CUstreamCaptureStatus state{};
  std::uint64_t id = 0;
  const CUgraphNode* last = nullptr;
  std::size_t count = 0;
  OK(cuStreamGetCaptureInfo_v2(stream_, &state, &id, &during, &last, &count));
  EXPECT_EQ(state, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(during, graph);
  EXPECT_NE(id, 0U);
  ASSERT_EQ(count, 1U);
  CUgraphNode before = nullptr;
  std::size_t before_count = 1;
  OK(cuGraphNodeGetDependencies(last[0], &before, &before_count));
  EXPECT_EQ(before, first);
  // Nodes that the capture depends on stay.
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(last[0]));
  OK(cuStreamEndCapture(stream_, &ended));
  EXPECT_EQ(ended, graph);
  EXPECT_EQ(run(graph), 0b11U);
  OK(cuGraphDestroyNode(first));
  OK(cuStreamGetCaptureInfo_v2(stream_, &state, &id, nullptr, nullptr, nullptr));
  EXPECT_EQ(state, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE,
            cuStreamBeginCaptureToGraph(stream_, garbage<CUgraph>(), nullptr, nullptr, 0,
                                        CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE,
            cuStreamBeginCaptureToGraph(stream_, graph, &first, nullptr, 1,
                                        CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuGraphDestroyNode(last == nullptr ? nullptr : [&] {
    CUgraphNode node = nullptr;
    std::size_t one = 1;
    EXPECT_CU(0, cuGraphGetNodes(graph, &node, &one));
    return node;
  }()));
  OK(cuGraphDestroy(graph));
}

TEST_F(CaptureTest, NodesOfAFailedCaptureHaveNoHandles) {
  COVERS(cuStreamGetCaptureInfo_v2, cuStreamEndCapture);
  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  append(stream_, 1);
  CUstreamCaptureStatus state{};
  const CUgraphNode* last = nullptr;
  std::size_t count = 0;
  OK(cuStreamGetCaptureInfo_v2(stream_, &state, nullptr, nullptr, &last, &count));
  const CUgraphNode node = last[0];
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream_));
  expect_end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CUgraphNodeType type{};
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuGraphNodeGetType(node, &type));
}

TEST_F(CaptureTest, DestroyingTheStreamEndsIt) {
  COVERS(cuStreamDestroy_v2);
  begin();
  append(stream_, 1);
  OK(cuEventRecord(fork_, stream_));
  OK(cuStreamWaitEvent(other_, fork_, 0));
  OK(cuStreamDestroy_v2(stream_));
  EXPECT_EQ(status(other_), CU_STREAM_CAPTURE_STATUS_NONE);
  append(other_, 1);
  OK(cuStreamSynchronize(other_));
  EXPECT_CU(CUDA_ERROR_CAPTURED_EVENT, cuStreamWaitEvent(other_, fork_, 0));
}

}  // namespace
}  // namespace kansoku::softcuda
