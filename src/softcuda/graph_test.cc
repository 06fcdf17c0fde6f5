// SPDX-License-Identifier: Apache-2.0
// Graphs that are built node by node.
#include <gmock/gmock.h>

#include "softcuda/driver_for_test.h"

namespace kansoku::softcuda {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class GraphTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    OK(cuGraphCreate(&graph_, 0));
    OK(cuStreamCreate(&stream_, kStreamNonBlocking));
    log_ = pinned();
  }
  void TearDown() override {
    cuGraphDestroy(graph_);
    DriverTest::TearDown();
  }
  /// A kernel that adds a bit to the log.
  CUgraphNode append(CUgraph graph, std::uint32_t bit, std::vector<CUgraphNode> after = {}) {
    Params<CUdeviceptr, std::uint32_t> arguments(address(log_), bit);
    const CUDA_KERNEL_NODE_PARAMS params = of_kernel("append", arguments.get());
    CUgraphNode node = nullptr;
    EXPECT_CU(0, cuGraphAddKernelNode_v2(&node, graph, after.data(), after.size(), &params));
    return node;
  }
  CUDA_KERNEL_NODE_PARAMS of_kernel(const char* name, void** arguments) {
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = kernel(name);
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = arguments;
    return params;
  }
  static CUgraphNode empty(CUgraph graph, std::vector<CUgraphNode> after = {}) {
    CUgraphNode node = nullptr;
    EXPECT_CU(0, cuGraphAddEmptyNode(&node, graph, after.data(), after.size()));
    return node;
  }
  static CUgraphExec instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    EXPECT_CU(0, cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
  }
  /// Launches and waits; what the log is then, which begins with 1.
  std::uint32_t run(CUgraphExec exec) {
    *log_ = 1;
    EXPECT_CU(0, cuGraphLaunch(exec, stream_));
    EXPECT_CU(0, cuStreamSynchronize(stream_));
    return *log_;
  }
  static CUDA_MEMCPY3D line(CUdeviceptr from, CUdeviceptr to, std::size_t bytes) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from;
    copy.dstDevice = to;
    copy.WidthInBytes = bytes;
    copy.Height = copy.Depth = 1;
    return copy;
  }
  static std::vector<CUgraphNode> nodes_of(CUgraph graph) {
    std::size_t count = 0;
    EXPECT_CU(0, cuGraphGetNodes(graph, nullptr, &count));
    std::vector<CUgraphNode> nodes(count);
    EXPECT_CU(0, cuGraphGetNodes(graph, nodes.data(), &count));
    return nodes;
  }

  CUgraph graph_{nullptr};
  CUstream stream_{nullptr};
  volatile std::uint32_t* log_{nullptr};
};

TEST_F(GraphTest, KernelsRunInTheOrderOfEdges) {
  COVERS(cuGraphCreate, cuGraphDestroy, cuGraphAddKernelNode_v2, cuGraphInstantiateWithFlags,
         cuGraphInstantiate_v2, cuGraphLaunch, cuGraphUpload, cuGraphExecDestroy,
         cuGraphExecGetFlags);
  const CUgraphNode first = append(graph_, 1);
  const CUgraphNode third = append(graph_, 1, {first});
  const CUgraphNode second = append(graph_, 0, {first});
  OK(cuGraphAddDependencies(graph_, &second, &third, 1));
  const CUgraphExec exec = instantiate(graph_);
  EXPECT_EQ(run(exec), 0b1101U);
  OK(cuGraphUpload(exec, stream_));
  EXPECT_EQ(run(exec), 0b1101U);
  CUgraphExec other = nullptr;
  CUgraphNode error_node = second;
  char log[8] = "x";
  OK(cuGraphInstantiate_v2(&other, graph_, &error_node, log, sizeof log));
  EXPECT_EQ(error_node, nullptr);
  EXPECT_STREQ(log, "");
  EXPECT_EQ(run(other), 0b1101U);
  CUgraphExec flagged = nullptr;
  OK(cuGraphInstantiateWithFlags(&flagged, graph_, 1));
  std::uint64_t flags = 0;
  OK(cuGraphExecGetFlags(flagged, &flags));
  EXPECT_EQ(flags, 1U);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&flagged, graph_, 64));
  // The instance is on its own.
  OK(cuGraphDestroy(graph_));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuGraphDestroy(graph_));
  EXPECT_EQ(run(exec), 0b1101U);
  OK(cuGraphExecDestroy(exec));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuGraphLaunch(exec, stream_));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuGraphUpload(exec, stream_));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuGraphExecDestroy(exec));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphCreate(&graph_, 1));
}

TEST_F(GraphTest, ParametersOfKernelNodes) {
  COVERS(cuGraphKernelNodeGetParams_v2, cuGraphKernelNodeSetParams_v2,
         cuGraphExecKernelNodeSetParams_v2);
  const CUgraphNode node = append(graph_, 1);
  CUDA_KERNEL_NODE_PARAMS params{};
  OK(cuGraphKernelNodeGetParams_v2(node, &params));
  EXPECT_EQ(params.func, kernel("append"));
  EXPECT_EQ(params.blockDimX, 1U);
  ASSERT_NE(params.kernelParams, nullptr);
  EXPECT_EQ(*static_cast<CUdeviceptr*>(params.kernelParams[0]), address(log_));
  EXPECT_EQ(*static_cast<std::uint32_t*>(params.kernelParams[1]), 1U);
  // Parameters that were got can be set again, changed.
  const CUgraphExec before = instantiate(graph_);
  CUdeviceptr where = address(log_);
  std::uint32_t bit = 0;
  void* arguments[] = {&where, &bit};
  params.kernelParams = arguments;
  OK(cuGraphKernelNodeSetParams_v2(node, &params));
  EXPECT_EQ(run(before), 0b11U);
  const CUgraphExec after = instantiate(graph_);
  EXPECT_EQ(run(after), 0b10U);
  bit = 5;
  OK(cuGraphExecKernelNodeSetParams_v2(after, node, &params));
  EXPECT_EQ(run(after), 7U);
  EXPECT_EQ(run(instantiate(graph_)), 0b10U);
  params.gridDimX = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeSetParams_v2(node, &params));
  params.gridDimX = 1;
  params.func = garbage<CUfunction>();
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuGraphKernelNodeSetParams_v2(node, &params));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeGetParams_v2(empty(graph_), &params));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE,
            cuGraphKernelNodeGetParams_v2(garbage<CUgraphNode>(), &params));
  params.func = kernel("append");
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuGraphExecKernelNodeSetParams_v2(after, garbage<CUgraphNode>(), &params));
}

TEST_F(GraphTest, CopiesAndFills) {
  COVERS(cuGraphAddMemcpyNode, cuGraphAddMemsetNode, cuGraphMemcpyNodeGetParams,
         cuGraphMemcpyNodeSetParams, cuGraphMemsetNodeGetParams, cuGraphMemsetNodeSetParams,
         cuGraphExecMemcpyNodeSetParams, cuGraphExecMemsetNodeSetParams);
  const CUdeviceptr memory = allocate(64);
  CUDA_MEMSET_NODE_PARAMS fill{memory, 0, 7, 4, 4, 1};
  CUgraphNode fill_node = nullptr, copy_node = nullptr;
  OK(cuGraphAddMemsetNode(&fill_node, graph_, nullptr, 0, &fill, context_));
  CUDA_MEMCPY3D copy = line(memory, memory + 32, 16);
  OK(cuGraphAddMemcpyNode(&copy_node, graph_, &fill_node, 1, &copy, context_));
  const CUgraphExec exec = instantiate(graph_);
  run(exec);
  EXPECT_THAT(read(memory + 32, 4), ElementsAre(7, 7, 7, 7));
  CUDA_MEMSET_NODE_PARAMS fill_now{};
  OK(cuGraphMemsetNodeGetParams(fill_node, &fill_now));
  EXPECT_EQ(fill_now.value, 7U);
  EXPECT_EQ(fill_now.dst, memory);
  CUDA_MEMCPY3D copy_now{};
  OK(cuGraphMemcpyNodeGetParams(copy_node, &copy_now));
  EXPECT_EQ(copy_now.dstDevice, memory + 32);
  EXPECT_EQ(copy_now.WidthInBytes, 16U);
  fill.value = 8;
  copy.dstDevice = memory + 48;
  OK(cuGraphMemsetNodeSetParams(fill_node, &fill));
  OK(cuGraphMemcpyNodeSetParams(copy_node, &copy));
  run(exec);  // made before
  EXPECT_EQ(read(memory + 48), 0U);
  run(instantiate(graph_));
  EXPECT_EQ(read(memory + 48), 8U);
  fill.value = 9;
  copy.dstDevice = memory + 16;
  OK(cuGraphExecMemsetNodeSetParams(exec, fill_node, &fill, context_));
  OK(cuGraphExecMemcpyNodeSetParams(exec, copy_node, &copy, context_));
  run(exec);
  EXPECT_EQ(read(memory + 16), 9U);
  fill.elementSize = 3;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphMemsetNodeSetParams(fill_node, &fill));
  fill = {memory, 4, 1, 4, 2, 2};  // lines that overlap
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphMemsetNodeSetParams(fill_node, &fill));
  fill = {memory + 1, 0, 1, 4, 1, 1};
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphMemsetNodeSetParams(fill_node, &fill));
  copy.WidthInBytes = 65;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphMemcpyNodeSetParams(copy_node, &copy));
  copy.srcMemoryType = static_cast<CUmemorytype>(77);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphMemcpyNodeSetParams(copy_node, &copy));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphMemcpyNodeGetParams(fill_node, &copy_now));
}

TEST_F(GraphTest, FunctionsOfTheHost) {
  COVERS(cuGraphAddHostNode, cuGraphHostNodeGetParams, cuGraphHostNodeSetParams,
         cuGraphExecHostNodeSetParams);
  int calls = 0;
  CUDA_HOST_NODE_PARAMS host{[](void* data) { ++*static_cast<int*>(data); }, &calls};
  CUgraphNode node = nullptr;
  OK(cuGraphAddHostNode(&node, graph_, nullptr, 0, &host));
  const CUgraphExec exec = instantiate(graph_);
  run(exec);
  EXPECT_EQ(calls, 1);
  CUDA_HOST_NODE_PARAMS now{};
  OK(cuGraphHostNodeGetParams(node, &now));
  EXPECT_EQ(now.userData, &calls);
  host.fn = [](void* data) { *static_cast<int*>(data) += 10; };
  OK(cuGraphHostNodeSetParams(node, &host));
  run(instantiate(graph_));
  EXPECT_EQ(calls, 11);
  OK(cuGraphExecHostNodeSetParams(exec, node, &host));
  run(exec);
  EXPECT_EQ(calls, 21);
  host.fn = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphHostNodeSetParams(node, &host));
}

TEST_F(GraphTest, Events) {
  COVERS(cuGraphAddEventRecordNode, cuGraphAddEventWaitNode, cuGraphEventRecordNodeGetEvent,
         cuGraphEventWaitNodeGetEvent);
  CUevent recorded = nullptr, awaited = nullptr, found = nullptr;
  OK(cuEventCreate(&recorded, 0));
  OK(cuEventCreate(&awaited, 0));
  CUgraphNode wait = nullptr, record = nullptr;
  OK(cuGraphAddEventWaitNode(&wait, graph_, nullptr, 0, awaited));
  OK(cuGraphAddEventRecordNode(&record, graph_, &wait, 1, recorded));
  OK(cuGraphEventWaitNodeGetEvent(wait, &found));
  EXPECT_EQ(found, awaited);
  OK(cuGraphEventRecordNodeGetEvent(record, &found));
  EXPECT_EQ(found, recorded);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphEventWaitNodeGetEvent(record, &found));
  CUstream other = nullptr;
  OK(cuStreamCreate(&other, kStreamNonBlocking));
  volatile std::uint32_t* const flag = pinned();
  OK(launch(kernel("await"), {}, other, address(flag), allocate(4)));
  OK(cuEventRecord(awaited, other));
  const CUgraphExec exec = instantiate(graph_);
  OK(cuGraphLaunch(exec, stream_));
  // Recorded later: no matter to the launch before.
  OK(cuEventRecord(awaited, stream_));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuEventQuery(recorded));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(stream_));
  // A stream that waits for what the graph will record.
  OK(cuStreamWaitEvent(other, recorded, 0));
  *flag = 1;
  OK(cuStreamSynchronize(stream_));
  EXPECT_CU(CUDA_SUCCESS, cuEventQuery(recorded));
  float ms = -1;
  OK(cuEventElapsedTime(&ms, recorded, awaited));
  EXPECT_GE(ms, 0);
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE,
            cuGraphAddEventWaitNode(&wait, graph_, nullptr, 0, garbage<CUevent>()));
}

TEST_F(GraphTest, GraphsInGraphs) {
  COVERS(cuGraphAddChildGraphNode, cuGraphChildGraphNodeGetGraph);
  CUgraph inner = nullptr, found = nullptr;
  OK(cuGraphCreate(&inner, 0));
  append(inner, 0, {append(inner, 1)});
  const CUgraphNode first = append(graph_, 0);
  CUgraphNode child = nullptr;
  OK(cuGraphAddChildGraphNode(&child, graph_, &first, 1, inner));
  append(graph_, 1, {child});
  EXPECT_EQ(run(instantiate(graph_)), 0b10101U);
  // The child is a copy of its own, which has handles.
  OK(cuGraphDestroy(inner));
  OK(cuGraphChildGraphNodeGetGraph(child, &found));
  EXPECT_EQ(nodes_of(found).size(), 2U);
  EXPECT_EQ(run(instantiate(graph_)), 0b10101U);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(found));
  append(found, 1);
  EXPECT_EQ(run(instantiate(graph_)), 0b101101U);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphAddChildGraphNode(&child, graph_, nullptr, 0, graph_));
}

TEST_F(GraphTest, ClonesAreOnTheirOwn) {
  COVERS(cuGraphClone, cuGraphNodeFindInClone);
  CUgraph inner = nullptr, clone = nullptr, mine = nullptr, theirs = nullptr;
  OK(cuGraphCreate(&inner, 0));
  append(inner, 1);
  CUgraphNode child = nullptr, twin = nullptr;
  OK(cuGraphAddChildGraphNode(&child, graph_, nullptr, 0, inner));
  const CUgraphNode node = append(graph_, 0, {child});
  OK(cuGraphClone(&clone, graph_));
  OK(cuGraphNodeFindInClone(&twin, node, clone));
  EXPECT_NE(twin, node);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphNodeFindInClone(&twin, twin, clone));
  OK(cuGraphNodeFindInClone(&twin, child, clone));
  OK(cuGraphChildGraphNodeGetGraph(child, &mine));
  OK(cuGraphChildGraphNodeGetGraph(twin, &theirs));
  EXPECT_NE(mine, theirs);
  OK(cuGraphDestroyNode(twin));
  EXPECT_EQ(run(instantiate(clone)), 0b10U);
  EXPECT_EQ(run(instantiate(graph_)), 0b110U);
  OK(cuGraphDestroy(clone));
  // The original's child is still known.
  EXPECT_EQ(nodes_of(mine).size(), 1U);
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuGraphClone(&clone, garbage<CUgraph>()));
  OK(cuGraphDestroy(inner));
}

TEST_F(GraphTest, NodesAndEdgesCanBeListed) {
  COVERS(cuGraphGetNodes, cuGraphGetRootNodes, cuGraphGetEdges, cuGraphGetEdges_v2,
         cuGraphNodeGetDependencies, cuGraphNodeGetDependentNodes, cuGraphNodeGetType,
         cuGraphAddEmptyNode);
  const CUgraphNode a = empty(graph_), b = empty(graph_), c = empty(graph_, {a, b});
  const CUgraphNode d = append(graph_, 1, {c});
  EXPECT_THAT(nodes_of(graph_), ElementsAre(a, b, c, d));
  CUgraphNode some[8] = {};
  std::size_t count = 8;
  OK(cuGraphGetRootNodes(graph_, some, &count));
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(some[1], b);
  EXPECT_EQ(some[2], nullptr);
  CUgraphNode from[3] = {}, to[3] = {};
  CUgraphEdgeData data[3] = {{1, 1, 1, {}}};
  count = 3;
  OK(cuGraphGetEdges(graph_, from, to, &count));
  EXPECT_THAT(from, ElementsAre(a, b, c));
  EXPECT_THAT(to, ElementsAre(c, c, d));
  OK(cuGraphGetEdges_v2(graph_, from, to, data, &count));
  EXPECT_EQ(data[0].from_port, 0);
  OK(cuGraphGetEdges(graph_, nullptr, nullptr, &count));
  EXPECT_EQ(count, 3U);
  count = 1;
  OK(cuGraphNodeGetDependencies(c, some, &count));
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(some[0], a);
  count = 8;
  OK(cuGraphNodeGetDependentNodes(c, some, &count));
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(some[0], d);
  CUgraphNodeType type{};
  OK(cuGraphNodeGetType(c, &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_EMPTY);
  OK(cuGraphNodeGetType(d, &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_KERNEL);
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuGraphNodeGetType(garbage<CUgraphNode>(), &type));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(graph_, some, nullptr));
}

TEST_F(GraphTest, EdgesCanBeChangedAllOrNone) {
  COVERS(cuGraphAddDependencies, cuGraphAddDependencies_v2, cuGraphRemoveDependencies,
         cuGraphDestroyNode);
  const CUgraphNode a = append(graph_, 0), b = append(graph_, 1), c = append(graph_, 1);
  OK(cuGraphAddDependencies(graph_, &b, &a, 1));
  OK(cuGraphAddDependencies_v2(graph_, &c, &a, nullptr, 1));
  EXPECT_EQ(run(instantiate(graph_)), 0b1110U);
  const CUgraphNode from[] = {b, b}, to[] = {c, a};  // the second is there already
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph_, from, to, 2));
  std::size_t count = 0;
  OK(cuGraphGetEdges(graph_, nullptr, nullptr, &count));
  EXPECT_EQ(count, 2U);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph_, &b, &b, 1));
  OK(cuGraphRemoveDependencies(graph_, &b, &a, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph_, &b, &a, 1));
  const CUgraphNode twice[] = {b, b};
  CUgraphNode node = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&node, graph_, twice, 2));
  OK(cuGraphDestroyNode(c));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuGraphDestroyNode(c));
  OK(cuGraphGetEdges(graph_, nullptr, nullptr, &count));
  EXPECT_EQ(count, 0U);
  EXPECT_EQ(nodes_of(graph_).size(), 2U);
  // Nodes of another graph.
  CUgraph other = nullptr;
  OK(cuGraphCreate(&other, 0));
  const CUgraphNode foreign = empty(other);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph_, &foreign, &a, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&node, graph_, &foreign, 1));
  OK(cuGraphDestroy(other));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuGraphAddEmptyNode(&node, graph_, &foreign, 1));
}

TEST_F(GraphTest, CirclesAreRefused) {
  COVERS(cuGraphInstantiateWithFlags);
  const CUgraphNode a = empty(graph_), b = empty(graph_, {a}), c = empty(graph_, {b});
  OK(cuGraphAddDependencies(graph_, &c, &a, 1));
  CUgraphExec exec = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&exec, graph_, 0));
  OK(cuGraphRemoveDependencies(graph_, &c, &a, 1));
  OK(cuGraphInstantiateWithFlags(&exec, graph_, 0));
}

TEST_F(GraphTest, NodesOfAnInstanceCanBeSwitchedOff) {
  COVERS(cuGraphNodeSetEnabled, cuGraphNodeGetEnabled);
  const CUgraphNode first = append(graph_, 0), second = append(graph_, 1, {first});
  append(graph_, 0, {second});
  const CUgraphExec exec = instantiate(graph_);
  unsigned is_enabled = 0;
  OK(cuGraphNodeGetEnabled(exec, second, &is_enabled));
  EXPECT_EQ(is_enabled, 1U);
  OK(cuGraphNodeSetEnabled(exec, second, 0));
  OK(cuGraphNodeGetEnabled(exec, second, &is_enabled));
  EXPECT_EQ(is_enabled, 0U);
  EXPECT_EQ(run(exec), 0b100U);
  EXPECT_EQ(run(instantiate(graph_)), 0b1010U);
  OK(cuGraphNodeSetEnabled(exec, second, 1));
  EXPECT_EQ(run(exec), 0b1010U);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphNodeSetEnabled(exec, garbage<CUgraphNode>(), 0));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE,
            cuGraphNodeGetEnabled(garbage<CUgraphExec>(), second, &is_enabled));
}

TEST_F(GraphTest, NodesOfADestroyedGraphAreNone) {
  CUgraph graph = nullptr;
  OK(cuGraphCreate(&graph, 0));
  const CUgraphNode gone = append(graph, 1);
  const CUgraphExec exec = instantiate(graph);
  CUDA_KERNEL_NODE_PARAMS params{};
  OK(cuGraphKernelNodeGetParams_v2(gone, &params));
  CUgraph clone = nullptr;
  OK(cuGraphClone(&clone, graph));
  OK(cuGraphExecKernelNodeSetParams_v2(exec, gone, &params));
  Params<CUdeviceptr, std::uint32_t> arguments(address(log_), 1);
  params = of_kernel("append", arguments.get());
  OK(cuGraphDestroy(graph));
  // The address may be another graph's node by now: that is no node of the instance either.
  for (int i = 0; i < 64; ++i) {
    CUgraph later = nullptr;
    OK(cuGraphCreate(&later, 0));
    const CUgraphNode other = append(later, 0);
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphExecKernelNodeSetParams_v2(exec, other, &params));
    OK(cuGraphDestroy(later));
  }
  unsigned is_enabled = 0;
  CUgraphNode found = nullptr;
  CUgraphNodeType type{};
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphExecKernelNodeSetParams_v2(exec, gone, &params));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphNodeSetEnabled(exec, gone, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetEnabled(exec, gone, &is_enabled));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuGraphNodeFindInClone(&found, gone, clone));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuGraphNodeGetType(gone, &type));
  EXPECT_EQ(run(exec), 0b11U);
  OK(cuGraphDestroy(clone));
  OK(cuGraphExecDestroy(exec));
}

TEST_F(GraphTest, InstancesAreUpdatedIfTheShapeIsTheSame) {
  COVERS(cuGraphExecUpdate_v2);
  const CUgraphNode mine = append(graph_, 0);
  append(graph_, 0, {mine});
  const CUgraphExec exec = instantiate(graph_);
  CUgraph other = nullptr;
  OK(cuGraphCreate(&other, 0));
  const CUgraphNode theirs = append(other, 1);
  append(other, 1, {theirs});
  CUgraphExecUpdateResultInfo info{};
  info.result = 99;
  OK(cuGraphExecUpdate_v2(exec, other, &info));
  EXPECT_EQ(info.result, 0);
  EXPECT_EQ(run(exec), 0b111U);
  // Nodes are still named by the graph that the instance was made of.
  OK(cuGraphNodeSetEnabled(exec, mine, 0));
  EXPECT_EQ(run(exec), 0b11U);
  OK(cuGraphNodeSetEnabled(exec, mine, 1));
  const CUgraphNode more = empty(other);
  EXPECT_CU(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, other, &info));
  EXPECT_EQ(info.result, 2);
  OK(cuGraphDestroyNode(more));
  OK(cuGraphDestroyNode(theirs));
  const CUgraphNode type = empty(other);
  EXPECT_CU(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, other, &info));
  EXPECT_EQ(info.result, 2);
  const auto nodes = nodes_of(other);
  OK(cuGraphAddDependencies(other, &nodes[0], &type, 1));
  EXPECT_CU(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, other, &info));
  EXPECT_EQ(info.result, 3);
  EXPECT_EQ(info.errorNode, type);
  EXPECT_EQ(run(exec), 0b111U);
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuGraphExecUpdate_v2(exec, garbage<CUgraph>(), &info));
  OK(cuGraphDestroy(other));
}

TEST_F(GraphTest, LaunchesOfOneInstanceFollowEachOther) {
  COVERS(cuGraphLaunch);
  volatile std::uint32_t* const flag = pinned();
  volatile std::uint32_t* const out = pinned();
  Params<CUdeviceptr, CUdeviceptr> arguments(address(flag), address(out));
  const CUDA_KERNEL_NODE_PARAMS params = of_kernel("await", arguments.get());
  CUgraphNode node = nullptr;
  OK(cuGraphAddKernelNode_v2(&node, graph_, nullptr, 0, &params));
  const CUgraphExec exec = instantiate(graph_);
  CUstream other = nullptr;
  OK(cuStreamCreate(&other, kStreamNonBlocking));
  OK(cuGraphLaunch(exec, stream_));
  OK(cuGraphNodeSetEnabled(exec, node, 0));  // of no concern to the launch before
  OK(cuGraphLaunch(exec, other));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(stream_));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
  OK(cuGraphExecDestroy(exec));
  *flag = 3;
  OK(cuStreamSynchronize(other));
  EXPECT_EQ(*out, 3U);
  EXPECT_CU(CUDA_SUCCESS, cuStreamQuery(stream_));
}

TEST_F(GraphTest, KernelsRunWhereTheirModuleIs) {
  COVERS(cuGraphAddKernelNode_v2, cuGraphLaunch);
  const CUdeviceptr memory = allocate(4);
  Params<CUdeviceptr, std::uint32_t> arguments(memory, 6U);
  const CUDA_KERNEL_NODE_PARAMS params = of_kernel("store", arguments.get());
  CUgraphNode node = nullptr;
  OK(cuGraphAddKernelNode_v2(&node, graph_, nullptr, 0, &params));
  const CUgraphExec exec = instantiate(graph_);
  CUcontext other = nullptr;
  CUstream theirs = nullptr;
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  OK(cuCtxSetCurrent(other));
  OK(cuStreamCreate(&theirs, 0));
  OK(cuGraphLaunch(exec, theirs));
  OK(cuStreamSynchronize(theirs));
  EXPECT_EQ(read(memory), 6U);
  // Its context gone, it is an error and no more.
  OK(cuDevicePrimaryCtxReset_v2(0));
  OK(cuGraphLaunch(exec, theirs));
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuStreamSynchronize(theirs));
}

TEST_F(GraphTest, AFaultEndsTheGraph) {
  COVERS(cuGraphLaunch);
  const CUDA_KERNEL_NODE_PARAMS params = of_kernel("stop", nullptr);
  CUgraphNode node = nullptr;
  OK(cuGraphAddKernelNode_v2(&node, graph_, nullptr, 0, &params));
  append(graph_, 1, {node});
  *log_ = 1;
  OK(cuGraphLaunch(instantiate(graph_), stream_));
  EXPECT_CU(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(stream_));
  EXPECT_EQ(*log_, 1U);
}

}  // namespace
}  // namespace kansoku::softcuda
