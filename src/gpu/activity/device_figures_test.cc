// SPDX-License-Identifier: Apache-2.0
// Every expected value is worked out by hand from the times of the recording beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu/activity/activity.h"
#include "gpu/activity/recording_for_test.h"

namespace kansoku::gpu::activity {
namespace {

using testing::DoubleNear;
using testing::Optional;

const DeviceFigures& only_device(const WorkReport& report) {
  EXPECT_EQ(report.devices.size(), 1U);
  return report.devices.front();
}

double idle_us(const WorkReport& report, IdleCause cause) {
  for (const IdleRow& row : only_device(report).idle.value()) {
    if (row.cause == cause) return row.us;
  }
  return 0;
}

double all_idle_us(const WorkReport& report) {
  double us = 0;
  for (const IdleRow& row : only_device(report).idle.value())
    us += row.us;
  return us;
}

TEST(DeviceTimeTest, BusyIsAUnionOverStreams) {
  const WorkReport report = report_for_test([](Recording& r) {
    r.op(100, 7, "kernel", "a", {0, 100}, 1);
    r.op(100, 8, "kernel", "ncclDevKernel_AllReduce(x)", {50, 150}, 2);
    r.op(100, 7, "kernel", "b", {120, 130}, 3);
    r.op(100, 9, "gpu_memcpy", "Memcpy HtoD", {180, 200}, 4);
    r.op(100, 9, "gpu_host_function", "callback", {200, 900}, 5);  // occupies no device
  });
  const DeviceFigures& device = only_device(report);
  EXPECT_THAT(device.window_us, Optional(DoubleNear(200, 1e-9)));
  EXPECT_THAT(device.busy_us, Optional(DoubleNear(170, 1e-9)));  // 0..150, 180..200
  EXPECT_THAT(device.idle_us, Optional(DoubleNear(30, 1e-9)));
  EXPECT_THAT(device.compute_us, Optional(DoubleNear(110, 1e-9)));
  ASSERT_TRUE(device.overlap.has_value());
  EXPECT_NEAR(device.overlap->communication_us, 100, 1e-9);
  EXPECT_NEAR(device.overlap->both_us, 60, 1e-9);  // 50..100, 120..130
  EXPECT_THAT(device.overlap->share, Optional(DoubleNear(0.6, 1e-9)));
  ASSERT_TRUE(device.copies.has_value());
  EXPECT_NEAR(device.copies->exposed_us, 20, 1e-9);
  EXPECT_NEAR(device.copies->could_overlap_us, 0, 1e-9);  // a stream without kernels, not pageable
}

TEST(DeviceTimeTest, ACopyThatItsCallWaitsForCannotOverlap) {
  const WorkReport report = report_for_test([](Recording& r) {
    r.op(100, 7, "kernel", "a", {0, 100}, 1);
    r.call(100, "cudaMemcpy", {90, 160}, {{"correlation", 2}});
    r.op(100, 9, "gpu_memcpy", "Memcpy HtoD", {110, 150}, 2);
  });
  EXPECT_NEAR(only_device(report).copies->could_overlap_us, 40, 1e-9);
  EXPECT_NEAR(only_device(report).copies->blocking_us, 40, 1e-9);
  EXPECT_NEAR(only_device(report).copies->pageable_us, 0, 1e-9);
}

TEST(DeviceTimeTest, TwoProcessesAreTwoDevices) {
  const WorkReport report = report_for_test([](Recording& r) {
    r.op(100, 7, "kernel", "a", {0, 100}, 1);
    r.op(200, 7, "kernel", "a", {50, 150}, 1);
  });
  ASSERT_EQ(report.devices.size(), 2U);
  EXPECT_THAT(report.devices[0].busy_us, Optional(DoubleNear(100, 1e-9)));
  EXPECT_THAT(report.devices[1].busy_us, Optional(DoubleNear(100, 1e-9)));
}

// Two steps of 1,000 us: the device works 100..400 and 500..900 in the first, from 1,200 on in the
// second. T_step = 1,100, T_inter = 300, void within = 100 of 800.
void two_steps(Recording& r) {
  r.kernel(100, 7, "a", {10, 20}, {100, 400});
  r.kernel(100, 7, "b", {480, 490}, {500, 900});
  r.kernel(100, 7, "a", {1010, 1020}, {1200, 1600});
}

TEST(VoidTest, HandComputedSteps) {
  const WorkReport report = report_for_test(two_steps, {{0, 1000}, {1000, 2000}});
  const auto& voids = only_device(report).voids;
  ASSERT_TRUE(voids.has_value());
  EXPECT_EQ(voids->step_count, 1U);
  EXPECT_NEAR(voids->step_ms, 1.1, 1e-9);
  EXPECT_NEAR(voids->v_inter, 300.0 / 1100, 1e-9);
  EXPECT_NEAR(voids->v_minority, 100.0 / 800, 1e-9);
  EXPECT_THAT(voids->v_unknown, Optional(0.0));
}

STAT(cuda_ring_full, kDataLoss, kCapture, "records were dropped");
STAT(test_other_loss, kDataLoss, kCapture, "something else was lost");

TEST(VoidTest, LossesBoundWhatMayBeMissing) {
  const std::vector<Recording::Span> steps{{0, 1000}, {1000, 2000}};
  const WorkReport report = report_for_test(
      [](Recording& r) {
        two_steps(r);
        r.writer().loss(cuda_ring_full, 1, boot_time(ns_for_test(5)));
      },
      steps);
  // One operation of the mean length 1,100 / 3, but no more than the 400 us that are empty.
  EXPECT_THAT(only_device(report).voids->v_unknown, Optional(DoubleNear(1100.0 / 3 / 1100, 1e-9)));
  const WorkReport other = report_for_test(
      [](Recording& r) {
        two_steps(r);
        r.writer().loss(test_other_loss, 1, boot_time(ns_for_test(5)));
      },
      steps);
  EXPECT_EQ(only_device(other).voids->v_unknown, std::nullopt);
}

TEST(VoidTest, WithoutStepsUnknown) {
  EXPECT_FALSE(only_device(report_for_test(two_steps)).voids.has_value());
}

TEST(VoidTest, StepsOfTheProfilerAreFound) {
  const WorkReport report = report_for_test([](Recording& r) {
    two_steps(r);
    r.host(100, 100, "user_annotation", "ProfilerStep#4", {0, 1000});
    r.host(100, 100, "user_annotation", "ProfilerStep#5", {1000, 2000});
  });
  EXPECT_EQ(report.steps_by, "profiler");
  ASSERT_TRUE(only_device(report).voids.has_value());
  EXPECT_NEAR(only_device(report).voids->v_inter, 300.0 / 1100, 1e-9);
}

TEST(QueueTest, NodesOfAGraphWereLaunchedOnceTogether) {
  const WorkReport report = report_for_test([](Recording& r) {
    r.call(100, "cuGraphLaunch", {0, 40}, {{"correlation", 1}});
    r.op(100, 7, "cuda_graph", "graph", {50, 100}, 1);
    r.op(100, 7, "kernel", "a", {50, 60}, 1);  // shorter than the call that launched all of it
    r.op(100, 7, "kernel", "b", {60, 100}, 1);
  });
  const DeviceFigures& device = only_device(report);
  ASSERT_TRUE(device.issue_latency_us.has_value());
  EXPECT_EQ(device.issue_latency_us->count, 1U);
  EXPECT_NEAR(device.issue_latency_us->max, 50, 1e-9);
  ASSERT_TRUE(device.queues.has_value());
  EXPECT_NEAR(device.queues->front().length.max, 1, 1e-9);
  EXPECT_THAT(device.short_kernel_count, Optional(0U));
  EXPECT_EQ(report.kernels.size(), 2U);
}

TEST(QueueTest, LengthLatencyAndShortKernels) {
  const WorkReport report = report_for_test([](Recording& r) {
    r.kernel(100, 7, "a", {0, 4}, {10, 30});    // +1 at 0, -1 at 10
    r.kernel(100, 7, "b", {5, 9}, {30, 32});    // +1 at 5, -1 at 30; shorter than its launch
    r.kernel(100, 7, "c", {10, 14}, {32, 40});  // +1 at 10, -1 at 32
  });
  const DeviceFigures& device = only_device(report);
  ASSERT_TRUE(device.queues.has_value());
  ASSERT_EQ(device.queues->size(), 1U);
  const QueueRow& row = device.queues->front();
  // 1 2 3 2 1 0 at 0 5 10 10 30 32
  EXPECT_EQ(row.length.count, 6U);
  EXPECT_NEAR(row.length.max, 3, 1e-9);
  EXPECT_NEAR(row.length.mean, 1.5, 1e-9);
  EXPECT_NEAR(row.time_mean, (5 * 1 + 5 * 2 + 20 * 2 + 2 * 1) / 32.0, 1e-9);
  ASSERT_TRUE(device.issue_latency_us.has_value());
  EXPECT_NEAR(device.issue_latency_us->p50, 22, 1e-9);  // 10, 25, 22
  EXPECT_THAT(device.short_kernel_count, Optional(1U));
  EXPECT_EQ(device.negative_latency_count, 0U);
}

TEST(QueueTest, ABeginBeforeItsLaunchIsCountedAndNotClamped) {
  const WorkReport report = report_for_test([](Recording& r) {
    r.kernel(100, 7, "a", {20, 24}, {10, 30});
    r.kernel(100, 7, "b", {30, 34}, {40, 50});
  });
  EXPECT_EQ(only_device(report).negative_latency_count, 1U);
  EXPECT_EQ(only_device(report).issue_latency_us->count, 1U);
  EXPECT_NEAR(only_device(report).issue_latency_us->p50, 10, 1e-9);
}

TEST(GapTest, HostWaitKernelWaitAndOther) {
  const WorkReport report = report_for_test([](Recording& r) {
    r.kernel(100, 7, "a", {0, 4}, {10, 30});
    r.kernel(100, 7, "b", {5, 9}, {30.02, 40});  // 20 ns: the device's own delay
    r.kernel(100, 7, "c", {10, 14}, {50, 60});   // launched before: other
    r.kernel(100, 7, "d", {70, 74}, {80, 90});   // launched 10 us after the end of c
  });
  const auto& gaps = only_device(report).gaps;
  ASSERT_TRUE(gaps.has_value());
  ASSERT_EQ(gaps->size(), 1U);
  EXPECT_NEAR(gaps->front().host_wait_us, 20, 1e-9);
  EXPECT_NEAR(gaps->front().kernel_wait_us, 0.02, 1e-9);
  EXPECT_NEAR(gaps->front().other_us, 10, 1e-9);
}

/// The device works 10..1,000 and 3,000..4,000; the second kernel is launched at 2,990.
void gap_with(Recording& r, const std::function<void()>& fill) {
  r.kernel(100, 7, "a", {0, 5}, {10, 1000});
  r.kernel(100, 7, "b", {2990, 2995}, {3000, 4000});
  fill();
}

TEST(IdleCauseTest, WhatTheLaunchingThreadDidOwnsTheGap) {
  const WorkReport report = report_for_test([](Recording& r) {
    gap_with(r, [&] {
      r.host(100, 100, "step", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
             {900, 1500});
      r.host(100, 100, "python_function", "collate", {1100, 1200});  // the loader keeps it
      r.call(100, "cudaMalloc", {1600, 1900}, {{"bytes", 64}});
      r.host(100, 100, "os_runtime", "pthread_mutex_lock", {1900, 2000});
      r.host(100, 100, "python_function", "train.py(7): log", {2000, 2600});
      r.host(100, 100, "python_function", "selectors.py(415): select", {2010, 2590});
      r.host(100, 100, "cpu_op", "aten::mm", {2700, 2996});
      r.host(100, 100, "kansoku.cost", "Kansoku: second executable of a graph", {2620, 2660});
    });
  });
  EXPECT_NEAR(idle_us(report, IdleCause::kObserver), 40, 1e-6);
  EXPECT_NEAR(idle_us(report, IdleCause::kLoader), 500, 1e-6);
  EXPECT_NEAR(idle_us(report, IdleCause::kAllocation), 300, 1e-6);
  EXPECT_NEAR(idle_us(report, IdleCause::kLock), 100, 1e-6);
  EXPECT_NEAR(idle_us(report, IdleCause::kFunction), 600, 1e-6);
  EXPECT_NEAR(idle_us(report, IdleCause::kOperator), 290, 1e-6);  // 2,700 to the launch
  EXPECT_NEAR(idle_us(report, IdleCause::kLaunching), 10, 1e-6);  // the launch to its begin
  EXPECT_NEAR(idle_us(report, IdleCause::kUnknown), 160, 1e-6);   // 1,500 .. 1,600, 2,600 ..
  EXPECT_NEAR(all_idle_us(report), *only_device(report).idle_us, 1e-6);
  for (const IdleRow& row : *only_device(report).idle) {
    if (row.cause == IdleCause::kFunction) {
      EXPECT_EQ(row.function, "train.py(7): log");
    }
  }
}

TEST(IdleCauseTest, AStepThatEndsANanosecondLateDoesNotHideTheNextOnesLoader) {
  const WorkReport report = report_for_test([](Recording& r) {
    gap_with(r, [&] {
      r.host(100, 100, "user_annotation", "iteration", {5, 1000.001});
      r.host(100, 100, "user_annotation", "iteration", {1000, 4000});
      r.host(100, 100, "step", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
             {1000, 2900});
    });
  });
  EXPECT_NEAR(idle_us(report, IdleCause::kLoader), 1900, 0.01);
}

TEST(IdleCauseTest, AWaitThatLetTheQueueRunDryIsChargedUntilASoonLaunch) {
  const WorkReport soon = report_for_test([](Recording& r) {
    r.kernel(100, 7, "a", {0, 5}, {10, 1000});
    r.call(100, "cudaStreamSynchronize", {500, 1010});
    r.kernel(100, 7, "b", {1990, 1995}, {2000, 3000});
  });
  EXPECT_NEAR(idle_us(soon, IdleCause::kSynchronisation), 1000, 1e-6);
  // Two milliseconds later the thread does something else.
  const WorkReport late = report_for_test([](Recording& r) {
    gap_with(r, [&] { r.call(100, "cudaStreamSynchronize", {500, 1010}); });
  });
  EXPECT_NEAR(idle_us(late, IdleCause::kSynchronisation), 10, 1e-6);
  EXPECT_NEAR(idle_us(late, IdleCause::kUnknown), 1980, 1e-6);
}

TEST(IdleCauseTest, TheFirstLaunchOfAKernelMayLoadItsCode) {
  const WorkReport report = report_for_test([](Recording& r) {
    r.kernel(100, 7, "a", {0, 5}, {10, 1000});
    r.kernel(100, 7, "b", {2000, 9000}, {9010, 9100});
    r.kernel(100, 7, "b", {10000, 17000}, {17010, 17100});  // not the first
  });
  EXPECT_NEAR(idle_us(report, IdleCause::kModuleLoad), 7010, 1e-6);
  EXPECT_NEAR(idle_us(report, IdleCause::kLaunching), 7010, 1e-6);
}

TEST(IdleCauseTest, AWaitForAnIdleDeviceIsChargedWithItsOwnTimeOnly) {
  const WorkReport report = report_for_test([](Recording& r) {
    gap_with(r, [&] { r.call(100, "cudaStreamSynchronize", {1500, 1510}); });
  });
  EXPECT_NEAR(idle_us(report, IdleCause::kSynchronisation), 10, 1e-6);
}

TEST(IdleCauseTest, AnotherThreadsCallsAreNotBlamed) {
  const WorkReport report = report_for_test([](Recording& r) {
    gap_with(r, [&] { r.host(100, 101, "cuda", "cudaMalloc", {1000, 2900}, {{"bytes", 1}}); });
  });
  EXPECT_NEAR(idle_us(report, IdleCause::kAllocation), 0, 1e-6);
}

TEST(IdleCauseTest, LaunchedInTimeMeansTheDeviceWaitsForSomethingElse) {
  const WorkReport report = report_for_test([](Recording& r) {
    r.kernel(100, 7, "a", {0, 5}, {10, 1000});
    r.kernel(100, 7, "b", {500, 505}, {3000, 4000});
  });
  EXPECT_NEAR(idle_us(report, IdleCause::kDevice), 2000, 1e-6);
  EXPECT_NEAR(all_idle_us(report), 2000, 1e-6);
}

TEST(IdleCauseTest, SamplesFillWhatNoSliceTells) {
  const WorkReport report = report_for_test([](Recording& r) {
    gap_with(r, [&] {
      trace::Writer& w = r.writer();
      const std::array outer{w.frame("main", "/app/train.py", 3),
                             w.frame("augment", "/app/data.py", 9),
                             w.frame("_execute", "/usr/lib/python3.11/subprocess.py", 9)};
      const std::array loader{w.frame("main", "/app/train.py", 3),
                              w.frame("__next__", "/lib/torch/utils/data/dataloader.py", 600)};
      for (const double us : {1100.0, 1600.0, 2100.0})
        w.sample(100, 100, boot_time(ns_for_test(us)), w.stack(outer), trace::SampleState::kRunning,
                 false);
      w.sample(100, 100, boot_time(ns_for_test(2600)), w.stack(loader),
               trace::SampleState::kSleeping, false);
    });
  });
  EXPECT_NEAR(idle_us(report, IdleCause::kFunction), 0.75 * 1990, 1e-6);
  EXPECT_NEAR(idle_us(report, IdleCause::kLoader), 0.25 * 1990, 1e-6);
  for (const IdleRow& row : *only_device(report).idle) {
    if (row.cause == IdleCause::kFunction) {
      EXPECT_EQ(row.function, "augment");
    }
  }
}

TEST(LaunchBoundTest, AMapThatMayBeWrongLeavesStretchesWhole) {
  // Every tenth operation seems to begin before its launch, every tenth 70 us after it.
  const auto recorded = [](const char* said) {
    return report_for_test([&](Recording& r) {
      for (int i = 0; i < 100; ++i) {
        const double us = 100.0 * i;
        const double begin_us = us + (i % 10 == 3 ? -4 : i % 10 == 7 ? 70 : 8);
        r.kernel(100, 7, "tiny", {us, us + 5}, {begin_us, begin_us + 10});
      }
      if (*said != 0) r.meta("kansoku.clock.cuda.100.0", said);
    });
  };
  const WorkReport told = recorded("error_ns=30000");
  EXPECT_EQ(only_device(told).launch_bound->stretch_count, 1U);
  EXPECT_EQ(only_device(told).launch_bound->op_count, 99U);
  EXPECT_EQ(only_device(recorded("")).launch_bound->stretch_count, 0U);
}

TEST(LaunchBoundTest, AStretchNeedsAnEmptyQueueAndTwentyOperations) {
  const auto loop = [](Recording& r, int count, double kernel_us) {
    double device_us = 0;
    for (int i = 0; i < count; ++i) {
      const double launch_us = 10.0 * i;
      device_us = std::max(device_us, launch_us + 6);
      r.kernel(100, 7, "tiny", {launch_us, launch_us + 5}, {device_us, device_us + kernel_us});
      device_us += kernel_us;
    }
  };
  const WorkReport bound = report_for_test([&](Recording& r) { loop(r, 51, 2); });
  ASSERT_TRUE(only_device(bound).launch_bound.has_value());
  EXPECT_EQ(only_device(bound).launch_bound->stretch_count, 1U);
  EXPECT_EQ(only_device(bound).launch_bound->op_count, 50U);
  EXPECT_NEAR(only_device(bound).launch_bound->idle_us, 400, 1e-6);  // 50 gaps of 8
  EXPECT_NEAR(idle_us(bound, IdleCause::kLaunching), 400, 1e-6);
  const WorkReport few = report_for_test([&](Recording& r) { loop(r, 20, 2); });
  EXPECT_EQ(only_device(few).launch_bound->stretch_count, 0U);
  const WorkReport longer = report_for_test([&](Recording& r) { loop(r, 51, 12); });
  EXPECT_EQ(only_device(longer).launch_bound->stretch_count, 0U);
}

}  // namespace
}  // namespace kansoku::gpu::activity
