// SPDX-License-Identifier: Apache-2.0
#include "capture/outside/tally.h"

#include <gtest/gtest.h>

#include "capture/outside/calls_for_test.h"

namespace kansoku::capture::outside {
namespace {

constexpr std::uint64_t kStream = 0x51, kFork = 0x52, kFunction = 0x100, kGraph = 0x60,
                        kExec = 0x70;
using Values = std::initializer_list<std::pair<Key, std::uint64_t>>;

class TallyTest : public testing::Test {
 protected:
  /// A call from begin to end.
  void whole(std::string_view function, Values values, std::string_view name = {},
             std::int32_t result = 0) {
    Call call = call_for_test(function, values, now_);
    tally_.on_begin(function, call);
    call.name = name;
    call.set(Key::kResult, static_cast<std::uint32_t>(result));
    now_ += 10;
    tally_.on_end(function, call, at_ns(now_));
  }
  void launch(std::uint64_t handle = kFunction, std::uint64_t stream = kStream) {
    tally_.on_begin(
        "cuLaunchKernel",
        call_for_test("cuLaunchKernel", {{Key::kFunction, handle}, {Key::kStream, stream}}, now_));
  }
  /// The runtime's stub 0x999 launches the function 0x200 of the driver.
  void launch_by_runtime() {
    Call runtime = call_for_test("cudaLaunchKernel", {{Key::kStub, 0x999},
                                                      {Key::kGridXY, 1 | 1ULL << 32},
                                                      {Key::kGridZ, 1},
                                                      {Key::kBlockXY, 1 | 1ULL << 32},
                                                      {Key::kBlockZ, 1}});
    tally_.on_begin("cudaLaunchKernel", runtime);
    tally_.on_begin("cuLaunchKernel", call_for_test("cuLaunchKernel", {{Key::kFunction, 0x200},
                                                                       {Key::kGridX, 1},
                                                                       {Key::kGridY, 1},
                                                                       {Key::kGridZ, 1},
                                                                       {Key::kBlockX, 1},
                                                                       {Key::kBlockY, 1},
                                                                       {Key::kBlockZ, 1}}));
    runtime.set(Key::kResult, 0);
    tally_.on_end("cudaLaunchKernel", runtime, at_ns(1));
  }
  void run_graph() {
    tally_.on_begin("cuGraphLaunch",
                    call_for_test("cuGraphLaunch", {{Key::kExec, kExec}, {Key::kStream, kStream}}));
  }
  void capture_one() {
    whole("cuStreamBeginCapture_v2", {{Key::kStream, kStream}});
    launch();
    whole("cuStreamEndCapture", {{Key::kStream, kStream}, {Key::kGraph, kGraph}});
  }
  KernelCount count_of(const std::string& shown) {
    KernelCount out;
    for (const auto& [id, count] : tally_.kernels()) {
      if (tally_.names().kernel(id).shown != shown) continue;
      out.launches += count.launches;
      out.by_graphs += count.by_graphs;
      out.captured += count.captured;
    }
    return out;
  }
  void SetUp() override {
    whole("cuModuleGetFunction", {{Key::kModule, 1}, {Key::kFunction, kFunction}}, "k");
  }

  std::int64_t now_{0};
  Tally tally_{at_ns(0), true, [](std::uint64_t stub) -> std::optional<std::string> {
                 if (stub == 0x999) return "learnt";
                 return std::nullopt;
               }};
};

TEST_F(TallyTest, CountsLaunchesByKernel) {
  launch();
  launch();
  launch(0x200);
  EXPECT_EQ(count_of("k").launches, 2U);
  EXPECT_EQ(tally_.named().launches, 3U);
  EXPECT_EQ(tally_.named().unnamed, 1U);
  EXPECT_EQ(tally_.entries().at("cuLaunchKernel").begun, 3U);
  EXPECT_EQ(tally_.entries().at("cuLaunchKernel").ended, 0U);
}

TEST_F(TallyTest, WhatFailsMovesNothing) {
  whole("cuMemcpyHtoD_v2", {{Key::kBytes, 10}});
  whole("cuMemcpyHtoD_v2", {{Key::kBytes, 100}}, {}, 1);
  whole("cuMemcpyHtoD_v2", {{Key::kBytes, 0}});
  const EntryCount& copies = tally_.entries().at("cuMemcpyHtoD_v2");
  EXPECT_EQ(copies.begun, 3U);
  EXPECT_EQ(copies.failed, 1U);
  EXPECT_EQ(copies.operations, 1U);
  EXPECT_EQ(copies.bytes, 10U);
  EXPECT_EQ(tally_.copied().at("HtoD"), 10U);
}

TEST_F(TallyTest, AFailedCopyOfACaptureTakesNothingBack) {
  whole("cuMemcpyHtoDAsync_v2", {{Key::kBytes, 10}, {Key::kStream, kStream}});
  whole("cuStreamBeginCapture_v2", {{Key::kStream, kStream}});
  whole("cuMemcpyHtoDAsync_v2", {{Key::kBytes, 100}, {Key::kStream, kStream}}, {}, 1);
  const EntryCount& copies = tally_.entries().at("cuMemcpyHtoDAsync_v2");
  EXPECT_EQ(copies.bytes, 10U);
  EXPECT_EQ(copies.operations, 1U);
}

TEST_F(TallyTest, WhatIsCapturedRunsWithItsGraph) {
  capture_one();
  EXPECT_EQ(count_of("k").launches, 0U);
  EXPECT_EQ(count_of("k").captured, 1U);
  whole("cuGraphInstantiateWithFlags", {{Key::kGraph, kGraph}, {Key::kExec, kExec}});
  whole("cuGraphDestroy", {{Key::kGraph, kGraph}});
  run_graph();
  run_graph();
  EXPECT_EQ(count_of("k").by_graphs, 2U);
  EXPECT_EQ(tally_.unknown_graph_launches(), 0U);
  launch();
  EXPECT_EQ(count_of("k").launches, 1U) << "the stream is an ordinary one again";
}

TEST_F(TallyTest, AStreamJoinsACaptureByAnEvent) {
  whole("cuStreamBeginCapture_v2", {{Key::kStream, kStream}});
  tally_.on_begin("cuEventRecord",
                  call_for_test("cuEventRecord", {{Key::kEvent, 5}, {Key::kStream, kStream}}));
  tally_.on_begin("cuStreamWaitEvent",
                  call_for_test("cuStreamWaitEvent", {{Key::kEvent, 5}, {Key::kStream, kFork}}));
  launch(kFunction, kFork);
  launch(kFunction, 0x77);  // not part of it
  whole("cuStreamEndCapture", {{Key::kStream, kStream}, {Key::kGraph, kGraph}});
  launch(kFunction, kFork);
  EXPECT_EQ(count_of("k").captured, 1U);
  EXPECT_EQ(count_of("k").launches, 2U);
}

TEST_F(TallyTest, AGraphThatWasChangedUnseenIsNotKnown) {
  capture_one();
  whole("cuGraphInstantiateWithFlags", {{Key::kGraph, kGraph}, {Key::kExec, kExec}});
  whole("cuGraphExecKernelNodeSetParams_v2", {{Key::kExec, kExec}});
  run_graph();
  EXPECT_EQ(tally_.unknown_graph_launches(), 1U);
  EXPECT_EQ(count_of("k").by_graphs, 0U);
  whole("cuGraphExecUpdate_v2", {{Key::kExec, kExec}, {Key::kGraph, kGraph}});
  run_graph();
  EXPECT_EQ(count_of("k").by_graphs, 1U);
}

TEST_F(TallyTest, GraphsAreMadeOfNodesAndChildren) {
  whole("cuGraphCreate", {{Key::kGraph, kGraph}});
  whole("cuGraphAddKernelNode_v2", {{Key::kGraph, kGraph}, {Key::kFunction, kFunction}});
  whole("cuGraphCreate", {{Key::kGraph, kGraph + 1}});
  whole("cuGraphAddChildGraphNode", {{Key::kGraph, kGraph + 1}, {Key::kChild, kGraph}});
  whole("cuGraphAddChildGraphNode", {{Key::kGraph, kGraph + 1}, {Key::kChild, kGraph}});
  whole("cuGraphInstantiate_v2", {{Key::kGraph, kGraph + 1}, {Key::kExec, kExec}});
  run_graph();
  EXPECT_EQ(count_of("k").by_graphs, 2U);
  whole("cuGraphAddChildGraphNode", {{Key::kGraph, kGraph + 1}, {Key::kChild, 0x99}});
  whole("cuGraphInstantiate_v2", {{Key::kGraph, kGraph + 1}, {Key::kExec, kExec}});
  run_graph();
  EXPECT_EQ(tally_.unknown_graph_launches(), 1U) << "a child from before";
}

TEST_F(TallyTest, LearntNamesCountForLaunchesBefore) {
  launch(0x200);
  launch_by_runtime();
  tally_.settle();
  EXPECT_EQ(count_of("learnt").launches, 0U) << "what was unloaded meanwhile has to tell first";
  tally_.settle();
  EXPECT_EQ(count_of("learnt").launches, 2U);
  EXPECT_FALSE(tally_.entries().contains("cudaLaunchKernel")) << "the driver's calls count";
}

TEST_F(TallyTest, NamesOfALibraryThatGoesAreNotLearnt) {
  launch_by_runtime();
  tally_.settle();
  tally_.on_begin("__cudaUnregisterFatBinary", call_for_test("__cudaUnregisterFatBinary"));
  tally_.settle();
  EXPECT_EQ(tally_.named().unnamed, 1U);
}

// The end of another library may be what was lost.
TEST_F(TallyTest, NamesAreNotLearntAcrossALoss) {
  for (const bool of_names : {false, true}) {
    launch_by_runtime();
    tally_.settle();
    tally_.on_loss(of_names);
    tally_.settle();
    EXPECT_EQ(count_of("learnt").launches, 0U);
  }
}

TEST_F(TallyTest, KeepsErrorsApart) {
  whole("cuMemAlloc_v2", {{Key::kBytes, 100}}, {}, 2);
  whole("cuStreamQuery", {{Key::kStream, kStream}}, {}, 600);
  EXPECT_EQ(tally_.errors().at({"cuMemAlloc_v2", 2}), 1U);
  EXPECT_EQ(tally_.errors().size(), 1U) << "not ready is an answer";
  EXPECT_EQ(tally_.entries().at("cuStreamQuery").not_ready, 1U);
  EXPECT_EQ(tally_.memory().allocated, 0U);
}

TEST_F(TallyTest, FollowsMemory) {
  whole("cuMemAlloc_v2", {{Key::kBytes, 100}, {Key::kPointer, 0x1000}});
  whole("cuMemAllocAsync", {{Key::kBytes, 50}, {Key::kPointer, 0x2000}});
  whole("cuMemHostAlloc", {{Key::kBytes, 7}, {Key::kPointer, 0x3000}});
  whole("cuMemFree_v2", {{Key::kPointer, 0x1000}});
  whole("cuMemFree_v2", {{Key::kPointer, 0x9000}});
  whole("cuMemFree_v2", {{Key::kPointer, 0}});
  EXPECT_EQ(tally_.memory().allocated, 150U);
  EXPECT_EQ(tally_.memory().freed, 100U);
  EXPECT_EQ(tally_.memory().live, 50U);
  EXPECT_EQ(tally_.memory().high_water, 150U);
  EXPECT_EQ(tally_.memory().unknown_frees, 1U);
}

TEST_F(TallyTest, CopiesHaveBytesAndDirection) {
  whole("cuMemcpyHtoDAsync_v2", {{Key::kBytes, 40}, {Key::kStream, kStream}});
  whole("cuMemcpyBatchAsync_v2", {{Key::kCount, 3}, {Key::kStream, kStream}});
  EXPECT_EQ(tally_.copied().at("HtoD"), 40U);
  EXPECT_EQ(tally_.entries().at("cuMemcpyBatchAsync_v2").without_bytes, 1U);
}

TEST_F(TallyTest, AfterALossNothingIsNamedAndBusyIsUnknown) {
  launch();
  tally_.on_loss(true);
  launch();
  EXPECT_EQ(count_of("k").launches, 1U);
  EXPECT_EQ(tally_.named().unnamed, 1U);
  EXPECT_FALSE(tally_.busy(at_ns(100)).is_known);
}

}  // namespace
}  // namespace kansoku::capture::outside
