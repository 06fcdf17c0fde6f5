// SPDX-License-Identifier: Apache-2.0
// Times of the nodes of graphs: a second executable runs in place of the program's own, so each
// test also asks whether the program's results are those of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

#include "library_for_test.h"

namespace kansoku {
namespace {

using ::testing::ElementsAre;

struct Node {
  std::uint32_t correlation{0};
  std::int64_t begin{0}, end{0};
  std::string kernel;  // "" = none
};

class GraphNodesTest : public LibraryTest {
 protected:
  void begin() {
    start();
    ASSERT_EQ(entry<CUresult(CUdeviceptr, unsigned char, std::size_t)>("cuMemsetD8_v2")(memory_, 0,
                                                                                        1 << 16),
              0);
    set(Mode::kEvery);
  }
  /// p = 2 p + bit: the value tells what ran in which order.
  void append(CUstream stream, std::uint32_t bit) {
    if (append_ == nullptr) append_ = function("append");
    void* arguments[] = {&memory_, &bit};
    ASSERT_EQ(entry<LaunchKernel>("cuLaunchKernel")(append_, 1, 1, 1, 1, 1, 1, 0, stream, arguments,
                                                    nullptr),
              0);
  }
  CUgraph captured(const std::function<void()>& work) {
    CUgraph graph = nullptr;
    EXPECT_EQ(entry<CUresult(CUstream, int)>("cuStreamBeginCapture_v2")(stream_, 0), 0);
    work();
    EXPECT_EQ(entry<CUresult(CUstream, CUgraph*)>("cuStreamEndCapture")(stream_, &graph), 0);
    return graph;
  }
  CUgraphExec instantiated(CUgraph graph) {
    CUgraphExec exec = nullptr;
    EXPECT_EQ(entry<CUresult(CUgraphExec*, CUgraph, unsigned long long)>(
                  "cuGraphInstantiateWithFlags")(&exec, graph, 0),
              0);
    return exec;
  }
  void launch(CUgraphExec exec, CUstream stream) {
    ASSERT_EQ(entry<CUresult(CUgraphExec, CUstream)>("cuGraphLaunch")(exec, stream), 0);
  }
  /// Launches, and has it read before the next launch comes.
  void launch_and_read(CUgraphExec exec) {
    launch(exec, stream_);
    synchronize();
    wait([&] {
      take(seen_);
      ++launches_;
      const bool is_read = seen_.count(WIRE_CUDA_GRAPH_LAUNCH, WIRE_CUDA_TIMED, 0) > read_;
      return is_read && channel_->streams()[0].waiting_since_ns == 0;
    });
    read_ = seen_.count(WIRE_CUDA_GRAPH_LAUNCH, WIRE_CUDA_TIMED, 0);
    take(seen_);
  }
  std::uint32_t value() {
    std::uint32_t out = 0;
    EXPECT_EQ(entry<CUresult(void*, CUdeviceptr, std::size_t)>("cuMemcpyDtoH_v2")(&out, memory_, 4),
              0);
    return out;
  }
  /// All so far, `least` at least: the library writes a launch before its nodes.
  [[nodiscard]] std::vector<Node> nodes(std::size_t least = 0) {
    wait([&] {
      take(seen_);
      return static_cast<std::size_t>(
                 std::count_if(seen_.records.begin(), seen_.records.end(), [](const auto& seen) {
                   return (seen.first.flags & WIRE_CUDA_NODE) != 0;
                 })) >= least;
    });
    std::vector<Node> out;
    for (const auto& [record, what] : seen_.records) {
      if ((record.flags & WIRE_CUDA_NODE) == 0) continue;
      Node node{record.correlation, record.device_begin_ns,
                record.device_begin_ns + static_cast<std::int64_t>(record.device_ns), ""};
      if (what == WIRE_CUDA_LAUNCH) {
        const auto kernel = channel_->kernel(record.u.launch.kernel);
        node.kernel = kernel ? kernel->name : "?";
      }
      out.push_back(std::move(node));
    }
    return out;
  }
  [[nodiscard]] std::uint64_t twins() const { return channel_->state().twins; }

  Seen seen_;
  std::size_t read_{0}, launches_{0};
  CUfunction append_{nullptr};
};

TEST_F(GraphNodesTest, CostAShareOfTheTimeHoweverManyGraphsThereAre) {
  begin();
  const CUgraph graph = captured([&] {
    for (int i = 0; i < 20; ++i)
      append(stream_, 1);
  });
  constexpr std::uint64_t kGraphs = 1000;  // there is room for 1024
  for (std::uint64_t i = 0; i < kGraphs; ++i)
    ASSERT_EQ(entry<CUresult(CUgraphExec)>("cuGraphExecDestroy")(instantiated(graph)), 0);
  const wire_cuda_state state = channel_->state();
  EXPECT_EQ(state.twins + state.losses.graphs_over_budget, kGraphs);
  EXPECT_GT(state.losses.graphs_over_budget, 0U);
  EXPECT_GT(state.twins, 0U) << "the first ones have their nodes' times";
}

TEST_F(GraphNodesTest, HaveTimesInOrderWithinTheirGraph) {
  begin();
  const CUgraphExec exec = instantiated(captured([&] {
    append(stream_, 1);
    append(stream_, 0);
    append(stream_, 1);
  }));
  EXPECT_EQ(twins(), 1U);
  for (int i = 0; i < 4; ++i)
    launch_and_read(exec);
  // The first one ran by itself: what came before it on which stream is not known.
  const std::vector<Node> all = nodes(9);
  ASSERT_EQ(all.size(), 9U);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].kernel, "append");
    EXPECT_LE(all[i].begin, all[i].end);
    if (i % 3 == 0) continue;
    EXPECT_EQ(all[i].begin, all[i - 1].end);  // one event for both
    EXPECT_EQ(all[i].correlation, all[i - 1].correlation);
  }
  for (const auto& [record, what] : seen_.records) {
    if (what != WIRE_CUDA_GRAPH_LAUNCH || (record.flags & WIRE_CUDA_TIMED) == 0) continue;
    for (const Node& node : all) {
      if (node.correlation != record.correlation) continue;
      EXPECT_GE(node.begin, record.device_begin_ns);
      EXPECT_LE(node.end, record.device_begin_ns + static_cast<std::int64_t>(record.device_ns));
    }
  }
  EXPECT_EQ(value(), 0b101101101101U);
  EXPECT_EQ(channel_->state().nodes_timed, 9U);
  EXPECT_EQ(channel_->state().losses.event_error, 0U);
  EXPECT_GT(channel_->state().twin_ns, 0U);
}

TEST_F(GraphNodesTest, BranchesBeginBehindWhatTheyWaitFor) {
  begin();
  CUstream side = nullptr;
  CUevent fork = nullptr, join = nullptr;
  ASSERT_EQ(entry<CUresult(CUstream*, unsigned)>("cuStreamCreate")(&side, 1), 0);
  ASSERT_EQ(entry<CUresult(CUevent*, unsigned)>("cuEventCreate")(&fork, 0), 0);
  ASSERT_EQ(entry<CUresult(CUevent*, unsigned)>("cuEventCreate")(&join, 0), 0);
  auto* const record = entry<CUresult(CUevent, CUstream)>("cuEventRecord");
  auto* const wait_for = entry<CUresult(CUstream, CUevent, unsigned)>("cuStreamWaitEvent");
  const CUgraphExec exec = instantiated(captured([&] {
    launch_store(stream_);
    record(fork, stream_);
    wait_for(side, fork, 0);
    launch_store(stream_);
    launch_store(side);
    record(join, side);
    wait_for(stream_, join, 0);
    append(stream_, 1);
  }));
  launch_and_read(exec);
  launch_and_read(exec);
  const std::vector<Node> all = nodes(4);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[3].kernel, "append");
  for (const std::size_t branch : {1U, 2U}) {
    EXPECT_GE(all[branch].begin, all[0].end);
    EXPECT_LE(all[branch].end, all[3].begin);
  }
  EXPECT_EQ(value(), 0b11U);  // stored and appended once a launch
}

TEST_F(GraphNodesTest, AreThoseOfGraphsInGraphs) {
  begin();
  const CUgraph inner = captured([&] {
    append(stream_, 1);
    append(stream_, 0);
  });
  CUgraph outer = nullptr;
  CUgraphNode node = nullptr;
  ASSERT_EQ(entry<CUresult(CUgraph*, unsigned)>("cuGraphCreate")(&outer, 0), 0);
  ASSERT_EQ(entry<CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUgraph)>(
                "cuGraphAddChildGraphNode")(&node, outer, nullptr, 0, inner),
            0);
  const CUgraphExec exec = instantiated(outer);
  launch_and_read(exec);
  launch_and_read(exec);
  EXPECT_EQ(nodes(2).size(), 2U);
  EXPECT_EQ(value(), 0b1010U);
}

TEST_F(GraphNodesTest, RunOnWhatTheGraphWasChangedTo) {
  begin();
  const CUgraph graph = captured([&] { append(stream_, 1); });
  const CUgraphExec exec = instantiated(graph);
  launch_and_read(exec);
  launch_and_read(exec);
  EXPECT_EQ(nodes(1).size(), 1U);
  // One node: its twin is gone, for good.
  CUgraphNode node = nullptr;
  std::size_t count = 1;
  ASSERT_EQ(
      entry<CUresult(CUgraph, CUgraphNode*, std::size_t*)>("cuGraphGetNodes")(graph, &node, &count),
      0);
  std::uint32_t bit = 0;
  void* arguments[] = {&memory_, &bit};
  CUDA_KERNEL_NODE_PARAMS params{};
  ASSERT_EQ(entry<CUresult(CUgraphNode, CUDA_KERNEL_NODE_PARAMS*)>("cuGraphKernelNodeGetParams_v2")(
                node, &params),
            0);
  params.kernelParams = arguments;
  ASSERT_EQ(entry<CUresult(CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*)>(
                "cuGraphExecKernelNodeSetParams_v2")(exec, node, &params),
            0);
  launch_and_read(exec);
  launch_and_read(exec);
  EXPECT_EQ(value(), 0b1100U);
  EXPECT_EQ(nodes(1).size(), 1U);
  // All of it: there is a new one.
  const CUgraph another = captured([&] { append(stream_, 1); });
  CUgraphExecUpdateResultInfo about{};
  ASSERT_EQ(entry<CUresult(CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo*)>(
                "cuGraphExecUpdate_v2")(exec, another, &about),
            0);
  launch_and_read(exec);
  launch_and_read(exec);
  EXPECT_EQ(value(), 0b110011U);
  EXPECT_EQ(nodes(2).size(), 2U);
}

TEST_F(GraphNodesTest, AnotherStreamWaitsAsForTheGraphItself) {
  begin();
  CUstream other = nullptr;
  ASSERT_EQ(entry<CUresult(CUstream*, unsigned)>("cuStreamCreate")(&other, 1), 0);
  void* pinned = nullptr;
  ASSERT_EQ(entry<CUresult(void**, std::size_t)>("cuMemAllocHost_v2")(&pinned, 16), 0);
  auto* const gate = static_cast<volatile std::uint32_t*>(pinned);
  auto* const bits = gate + 1;
  *gate = 1;
  *bits = 0;
  memory_ = reinterpret_cast<std::uintptr_t>(bits);
  const CUfunction await = function("await");
  const CUgraphExec exec = instantiated(captured([&] {
    append(stream_, 1);
    auto address = reinterpret_cast<std::uintptr_t>(pinned);
    CUdeviceptr out = memory_ + 4;
    void* arguments[] = {&address, &out};
    ASSERT_EQ(entry<LaunchKernel>("cuLaunchKernel")(await, 1, 1, 1, 1, 1, 1, 0, stream_, arguments,
                                                    nullptr),
              0);
    append(stream_, 0);
  }));
  launch_and_read(exec);
  *gate = 0;
  launch(exec, stream_);  // the twin, until the gate opens
  wait([&] { return *bits == 0b101U; });
  launch(exec, other);
  // If it did not wait, its first node would run in this time.
  auto* const query = entry<CUresult(CUstream)>("cuStreamQuery");
  for (int i = 0; i < 20'000; ++i) {
    ASSERT_EQ(query(other), CUDA_ERROR_NOT_READY);
    ASSERT_EQ(*bits, 0b101U);
    if (i % 100 == 0) std::this_thread::yield();
  }
  *gate = 1;
  synchronize();
  ASSERT_EQ(entry<CUresult(CUstream)>("cuStreamSynchronize")(other), 0);
  EXPECT_EQ(*bits, 0b101010U);
}

TEST_F(GraphNodesTest, SayNoKernelBeforeOneIsKnown) {
  begin();
  append(stream_, 0);
  EXPECT_EQ(channel_->streams()[0].at_kernel, WIRE_CUDA_NO_KERNEL);
}

TEST_F(GraphNodesTest, OutliveTheirGraphAndTheirContext) {
  begin();
  const CUgraphExec exec = instantiated(captured([&] { append(stream_, 1); }));
  launch_and_read(exec);
  launch(exec, stream_);
  ASSERT_EQ(entry<CUresult(CUgraphExec)>("cuGraphExecDestroy")(exec), 0);
  synchronize();
  EXPECT_EQ(value(), 0b11U);
  wait([&] {
    take(seen_);
    return nodes().size() == 1;  // read, although the graph is gone
  });
  const CUgraphExec next = instantiated(captured([&] { append(stream_, 0); }));
  launch_and_read(next);
  launch(next, stream_);
  ASSERT_EQ(entry<CUresult(CUdevice)>("cuDevicePrimaryCtxReset_v2")(0), 0);
  wait([&] { return channel_->streams().empty(); });
}

TEST_F(GraphNodesTest, AreLeftOutWhileTheOneBeforeIsNotRead) {
  begin();
  const CUgraphExec exec = instantiated(captured([&] { append(stream_, 1); }));
  for (int i = 0; i < 20; ++i)
    launch(exec, stream_);
  synchronize();
  wait([&] {
    take(seen_);
    return seen_.count(WIRE_CUDA_GRAPH_LAUNCH, WIRE_CUDA_TIMED, 0) >= 20;
  });
  wait([&] { return channel_->streams()[0].waiting_since_ns == 0; });
  EXPECT_EQ(nodes().size() + channel_->state().losses.graph_untimed, 20U);
  EXPECT_EQ(value(), (1U << 20) - 1);
}

TEST_F(GraphNodesTest, AreNotThereWithoutARecorder) {
  start();
  const CUgraphExec exec = instantiated(captured([&] { launch_store(stream_); }));
  EXPECT_EQ(twins(), 0U);
  launch(exec, stream_);
  synchronize();
  set(Mode::kEvery);
  launch_and_read(exec);
  EXPECT_TRUE(nodes().empty());
}

TEST_F(GraphNodesTest, AreThereForALaterRecorderIfGraphsAreKept) {
  setenv("KANSOKU_CUDA_GRAPHS", "1", 1);
  start();
  const CUgraphExec exec = instantiated(captured([&] { launch_store(stream_); }));
  EXPECT_EQ(twins(), 1U);
  launch(exec, stream_);  // asleep: its own
  synchronize();
  set(Mode::kEvery);
  launch_and_read(exec);
  ASSERT_EQ(nodes(1).size(), 1U);
  EXPECT_EQ(nodes()[0].kernel, "store");
}

}  // namespace
}  // namespace kansoku
