// SPDX-License-Identifier: Apache-2.0
#include "gpu/activity/device_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "gpu/activity/internal/names.h"
#include "gpu/activity/recording_for_test.h"

namespace kansoku::gpu::activity {
namespace {

DeviceWork work_of(const std::function<void(Recording&)>& fill) {
  auto work = read_device_work(recording_of(fill));
  EXPECT_TRUE(work.has_value());
  return std::move(*work);
}

TEST(DeviceWorkTest, LinksAnOperationToItsLaunchByCorrelation) {
  const DeviceWork work = work_of([](Recording& r) {
    r.kernel(100, 7, "second", {20, 22}, {30, 40});
    r.kernel(100, 7, "first", {1, 2}, {5, 9});
  });
  ASSERT_EQ(work.ops.size(), 2U);
  ASSERT_EQ(work.calls.size(), 2U);
  EXPECT_EQ(work.ops[0].time.begin_ns, ns_for_test(5));
  EXPECT_EQ(work.calls[work.ops[0].call].time.begin_ns, ns_for_test(1));
  EXPECT_EQ(work.calls[work.ops[1].call].time.begin_ns, ns_for_test(20));
  EXPECT_EQ(work.unlinked_count, 0U);
}

TEST(DeviceWorkTest, EqualCorrelationsOfTwoProcessesAreTwoLaunches) {
  const DeviceWork work = work_of([](Recording& r) {
    for (const std::int32_t pid : {100, 200}) {
      r.call(pid, "cudaLaunchKernel", {pid * 1.0, pid + 1.0}, {{"correlation", 9}});
      r.op(pid, 7, "kernel", "k", {pid + 5.0, pid + 6.0}, 9);
    }
  });
  ASSERT_EQ(work.devices.size(), 2U);
  for (const Op& op : work.ops)
    EXPECT_EQ(op.time.begin_ns - work.calls[op.call].time.begin_ns, 5'000);
}

// ROCm's and Intel's runtimes, and those that nobody here has seen.
TEST(DeviceWorkTest, AFunctionThatAnOperationPointsToIsItsLaunch) {
  const DeviceWork work = work_of([](Recording& r) {
    r.host(100, 100, "cuda_runtime", "hipExtModuleLaunchKernel", {1, 2}, {{"correlation", 1}});
    r.op(100, 7, "kernel", "k", {5, 6}, 1);
    r.host(100, 100, "xpu_runtime", "urEnqueueKernelLaunch", {11, 12}, {{"correlation", 2}});
    r.op(100, 7, "kernel", "k", {15, 16}, 2);
    r.host(100, 100, "new_runtime", "blit", {21, 22}, {{"correlation", 3}});
    r.op(100, 7, "gpu_memcpy", "Memcpy HtoD", {25, 26}, 3);
    r.host(100, 100, "new_runtime", "nobody", {31, 32}, {{"correlation", 4}});
    r.host(100, 100, "cpu_op", "aten::mm", {41, 42}, {{"correlation", 1}});
  });
  ASSERT_EQ(work.calls.size(), 3U);
  ASSERT_EQ(work.ops.size(), 3U);
  EXPECT_EQ(work.calls[work.ops[0].call].what, CallClass::kLaunch);
  EXPECT_EQ(work.calls[work.ops[1].call].what, CallClass::kLaunch);
  EXPECT_EQ(work.calls[work.ops[2].call].what, CallClass::kCopy);
  EXPECT_EQ(work.unlinked_count, 0U);
}

TEST(DeviceWorkTest, LinksByFlowWhereThereIsNoCorrelation) {
  const DeviceWork work = work_of([](Recording& r) {
    r.host(100, 100, "cuda", "cuLaunchKernel", {1, 2}, {}, 77);
    r.op(100, 7, "kernel", "k", {5, 6}, 0, {}, 77);
    r.op(100, 7, "kernel", "alone", {8, 9}, 0);
  });
  ASSERT_EQ(work.ops.size(), 2U);
  EXPECT_EQ(work.ops[0].call, 0U);
  EXPECT_EQ(work.ops[1].call, kNoIndex);
  EXPECT_EQ(work.unlinked_count, 1U);
}

TEST(DeviceWorkTest, TheOuterOfTwoNestedCallsIsTheLaunch) {
  const DeviceWork work = work_of([](Recording& r) {
    r.call(100, "cudaLaunchKernel", {1, 8}, {{"correlation", 5}});
    r.call(100, "cuLaunchKernel", {2, 7}, {{"correlation", 5}});
    r.op(100, 7, "kernel", "k", {10, 20}, 5);
  });
  ASSERT_EQ(work.calls.size(), 2U);
  EXPECT_FALSE(work.calls[0].is_nested);
  EXPECT_TRUE(work.calls[1].is_nested);
  EXPECT_EQ(work.ops[0].call, 0U);
}

TEST(DeviceWorkTest, OnlyWorkInOtherStreamsIsShared) {
  const DeviceWork work = work_of([](Recording& r) {
    r.op(100, 7, "kernel", "long", {0, 100}, 1);
    r.op(100, 8, "kernel", "inside", {10, 20}, 2);
    r.op(100, 7, "kernel", "after", {100, 110}, 3);
    r.op(100, 8, "kernel", "touches", {110, 120}, 4);
    r.op(100, 9, "gpu_wait", "wait", {100, 130}, 5);
  });
  std::vector<bool> shared;
  for (const Op& op : work.ops)
    shared.push_back(op.is_shared);
  // long, inside, after, the wait, touches
  const std::size_t longest = 0, inside = 1;
  EXPECT_TRUE(shared[longest]);
  EXPECT_TRUE(shared[inside]);
  EXPECT_EQ(std::count(shared.begin(), shared.end(), true), 2);
}

TEST(DeviceWorkTest, ReadsDeviceAndStreamOfTheTrackWhereArgumentsAreMissing) {
  const DeviceWork work = work_of([](Recording& r) {
    const auto process =
        r.writer().process_track({.pid = 100, .name = "p", .cmdline = {}, .job = {}, .role = {}});
    const auto track = r.writer().custom_track(process, "GPU 3 stream 21");
    r.writer().slice_begin(track, boot_time(ns_for_test(1)), r.writer().name("k"),
                           r.writer().category("kernel"));
    r.writer().slice_end(track, boot_time(ns_for_test(2)));
  });
  ASSERT_EQ(work.streams.size(), 1U);
  EXPECT_EQ(work.devices[0].ordinal, 3);
  EXPECT_EQ(work.streams[0].number, 21);
}

TEST(DeviceWorkTest, CountsWhatHasNoEnd) {
  const DeviceWork work = work_of([](Recording& r) {
    r.op(100, 7, "kernel", "stuck", {5, -1}, 1);
    r.call(100, "cudaDeviceSynchronize", {6, -1});
  });
  EXPECT_TRUE(work.ops.empty());
  EXPECT_EQ(work.open_count, 1U);
  ASSERT_EQ(work.calls.size(), 1U);
  EXPECT_TRUE(work.calls[0].is_open);
}

TEST(DeviceWorkTest, RefusesColumnsOfUnequalLength) {
  trace::Trace trace;
  trace.slices.start_ns.push_back(1);
  const auto work = read_device_work(trace);
  ASSERT_FALSE(work.has_value());
  EXPECT_EQ(work.error().code, Code::kCorrupt);
}

TEST(DeviceWorkTest, KnowsWhatFunctionsDo) {
  struct Case {
    const char* name;
    CallClass what;
    bool is_blocking;
  };
  for (const Case& c : {Case{"cudaLaunchKernelExC", CallClass::kLaunch, false},
                        Case{"cuLaunchCooperativeKernel", CallClass::kLaunch, false},
                        Case{"cuGraphLaunch", CallClass::kLaunch, false},
                        Case{"cudaMemcpy", CallClass::kCopy, true},
                        Case{"cudaMemcpyAsync", CallClass::kCopy, false},
                        Case{"cuMemcpyHtoD_v2", CallClass::kCopy, true},
                        Case{"cuMemcpyHtoDAsync_v2", CallClass::kCopy, false},
                        Case{"cudaMalloc", CallClass::kAlloc, false},
                        Case{"cudaMallocHost", CallClass::kHostAlloc, false},
                        Case{"cuMemAllocHost_v2", CallClass::kHostAlloc, false},
                        Case{"cuMemAlloc_v2", CallClass::kAlloc, false},
                        Case{"cuMemFree_v2", CallClass::kFree, false},
                        Case{"cudaFreeHost", CallClass::kHostAlloc, false},
                        Case{"cudaStreamSynchronize", CallClass::kSync, true},
                        Case{"cuCtxSynchronize_v2", CallClass::kSync, true},
                        Case{"cuModuleLoadData", CallClass::kModule, false},
                        Case{"cudaEventRecord", CallClass::kOther, false},
                        Case{"malloc", CallClass::kOther, false}}) {
    EXPECT_EQ(call_kind_of(c.name).what, c.what) << c.name;
    EXPECT_EQ(call_kind_of(c.name).is_blocking, c.is_blocking) << c.name;
  }
}

TEST(DeviceWorkTest, KnowsCollectivesInEverySpelling) {
  for (const char* name : {"allreduce", "nccl:all_reduce", "ncclAllReduce",
                           "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"})
    EXPECT_EQ(collective_of(name), "allreduce") << name;
  EXPECT_EQ(collective_of("_allgather_base"), "allgather");
  EXPECT_EQ(collective_of("ncclReduceScatter"), "reducescatter");
  EXPECT_EQ(collective_of("ncclDevKernel_SendRecv(x)"), "sendrecv");
  EXPECT_EQ(collective_of("sgemm"), "");
  EXPECT_EQ(op_class_of("kernel"), OpClass::kKernel);
  EXPECT_EQ(op_class_of("Memcpy"), OpClass::kCopy);
  EXPECT_EQ(op_class_of("cpu_op"), std::nullopt);
}

TEST(DeviceWorkTest, AFewOperationsOnAnotherClockAreLeftOut) {
  const auto recorded = [](int on_boot) {
    return report_for_test([&](Recording& r) {
      for (int i = 0; i < on_boot; ++i)
        r.kernel(100, 7, "a", {100.0 * i, 100.0 * i + 5}, {100.0 * i + 10, 100.0 * i + 50});
      r.device_clock();
      for (int i = 0; i < 5; ++i)
        r.kernel(100, 8, "a", {100.0 * i, 100.0 * i + 5}, {7.0 * i, 7.0 * i + 6});
    });
  };
  const WorkReport few = recorded(95);
  EXPECT_EQ(few.op_count, 95U);
  EXPECT_TRUE(few.recorded.is_one_clock);
  EXPECT_THAT(few.notes, testing::Contains(testing::HasSubstr("before the device's clock")));
  const WorkReport many = recorded(94);
  EXPECT_EQ(many.op_count, 99U);
  EXPECT_FALSE(many.recorded.is_one_clock);
}

/// Twenty kernels, each launched when the host has waited for the one before; device times are
/// written `late_us` too late, and the recording says by how much they may be wrong.
WorkReport late_recording(double late_us, const char* said, double launch_us = 100) {
  return report_for_test([&](Recording& r) {
    for (int i = 0; i < 20; ++i) {
      const double us = 1000.0 * i;
      r.kernel(100, 7, "a", {us, us + 5}, {us + 10 + late_us, us + 800 + late_us});
      r.call(100, "cuStreamSynchronize", {us + 10, us + 805});
      r.call(100, "cuMemAlloc_v2", {us + 820, us + 820 + launch_us}, {{"bytes", 64}});
    }
    if (*said != 0) r.meta("kansoku.clock.cuda.100.0", said);
  });
}

double idle_by(const WorkReport& report, IdleCause cause) {
  for (const IdleRow& row : report.devices[0].idle.value()) {
    if (row.cause == cause) return row.us;
  }
  return 0;
}

TEST(DeviceWorkTest, AMapThatGetsBetterIsCorrectedWhereItIsWrong) {
  // The first 20 device times are 200 us late, the next 20 ever less, then they are right.
  const WorkReport report = report_for_test([](Recording& r) {
    for (int i = 0; i < 60; ++i) {
      const double us = 1000.0 * i;
      const double late_us = i < 20 ? 200 : i < 40 ? 10.0 * (40 - i) : 0;
      r.kernel(100, 7, "a", {us, us + 5}, {us + 10 + late_us, us + 800 + late_us});
      r.call(100, "cuStreamSynchronize", {us + 10, us + 802});
      r.call(100, "cuMemAlloc_v2", {us + 820, us + 990}, {{"bytes", 64}});
    }
    r.meta("kansoku.clock.cuda.100.0", "error_ns=300000");
  });
  // 59 gaps of 210 us: all of it after a wait. Between groups the move is only nearly right.
  EXPECT_NEAR(idle_by(report, IdleCause::kAllocation), 59 * 170, 59 * 12);
  EXPECT_NEAR(idle_by(report, IdleCause::kLaunching), 59 * 10, 59 * 12);
  EXPECT_LE(report.devices[0].negative_latency_count, 1U);
}

TEST(DeviceWorkTest, BeginsBeforeTheirLaunchMoveDeviceTimesToLater) {
  const WorkReport early = late_recording(-45, "error_ns=300000");
  EXPECT_EQ(early.devices[0].negative_latency_count, 0U);
  EXPECT_NEAR(early.devices[0].issue_latency_us.value().p50, 0, 1e-6);
  EXPECT_EQ(late_recording(-45, "").devices[0].negative_latency_count, 20U);
}

TEST(DeviceWorkTest, WaitsThatMayBeForOtherWorkMoveNothing) {
  const auto recorded = [](const char* wait, bool other_stream) {
    return report_for_test([&](Recording& r) {
      for (int i = 0; i < 20; ++i) {
        const double us = 1000.0 * i;
        r.kernel(100, 7, "a", {us, us + 5}, {us + 100, us + 900});
        if (other_stream) r.kernel(100, 8, "b", {us + 6, us + 8}, {us + 100, us + 700});
        r.call(100, wait, {us + 10, us + 750});
      }
      r.meta("kansoku.clock.cuda.100.0", "error_ns=1000");
    });
  };
  const auto p50 = [](const WorkReport& report) {
    return report.devices[0].issue_latency_us.value().p50;
  };
  EXPECT_NEAR(p50(recorded("cuStreamSynchronize", false)), 0, 1e-6);  // its launch is the limit
  EXPECT_NEAR(p50(recorded("cuEventSynchronize", false)), 100, 1e-6);
  EXPECT_NEAR(p50(recorded("cuStreamSynchronize", true)), 97, 4);
}

TEST(DeviceWorkTest, WaitsThatSeemToReturnTooEarlyMoveDeviceTimes) {
  const WorkReport right = late_recording(0, "offset_ns=5 error_ns=300000 drift_max=0.0002");
  EXPECT_NEAR(idle_by(right, IdleCause::kAllocation), 19 * 100, 1e-6);
  const WorkReport late = late_recording(155, "offset_ns=5 error_ns=300000 drift_max=0.0002");
  EXPECT_NEAR(idle_by(late, IdleCause::kAllocation), 19 * 100, 1e-6);
  EXPECT_THAT(late.notes, testing::Contains(testing::HasSubstr("moved by 150 us")));
  EXPECT_NEAR(late.devices[0].issue_latency_us.value().p50, 15, 1e-6);
  // A recording without such a map is left as it is.
  EXPECT_NEAR(late_recording(155, "").devices[0].issue_latency_us.value().p50, 165, 1e-6);
  // A kernel of 800 us, 1.1 ms too late: its end is nearer to the next wait than to its own.
  EXPECT_NEAR(late_recording(1105, "error_ns=50000").devices[0].issue_latency_us.value().p50, 15,
              1e-6);
}

}  // namespace
}  // namespace kansoku::gpu::activity
