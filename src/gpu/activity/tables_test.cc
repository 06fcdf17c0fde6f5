// SPDX-License-Identifier: Apache-2.0
// Every expected value is worked out by hand from the times of the recording beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu/activity/activity.h"
#include "gpu/activity/bus_bandwidth.h"
#include "gpu/activity/gemm.h"
#include "gpu/activity/occupancy.h"
#include "gpu/activity/recording_for_test.h"

namespace kansoku::gpu::activity {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Optional;

TEST(KernelTableTest, CountsSharesAndQuantiles) {
  const WorkReport report = report_for_test([](Recording& r) {
    for (int i = 0; i < 3; ++i) {
      r.op(
          100, 7, "kernel", "gemm", {100.0 * i, 100.0 * i + 10 * (i + 1)},
          static_cast<std::uint64_t>(1 + i),
          {{"grid", "4,2,1"}, {"block", "[128, 1, 1]"}, {"registers", 40}, {"shared_bytes", 1024}});
    }
    r.op(100, 7, "kernel", "gemm", {400, 420}, 5, {{"grid", "8,2,1"}, {"block", "128,1,1"}});
    r.op(100, 7, "kernel", "add", {500, 520}, 6, {{"full_name", "add<float>(float*)"}});
  });
  ASSERT_EQ(report.kernels.size(), 2U);
  const KernelRow& gemm = report.kernels[0];
  EXPECT_EQ(gemm.name, "gemm");
  EXPECT_EQ(gemm.count, 4U);
  EXPECT_THAT(gemm.total_us, Optional(DoubleNear(80, 1e-9)));  // 10 + 20 + 30 + 20
  EXPECT_THAT(gemm.share, Optional(DoubleNear(0.8, 1e-9)));    // of 100
  EXPECT_NEAR(gemm.us->p50, 20, 1e-9);
  EXPECT_NEAR(gemm.us->p99, 29.7, 1e-9);  // 20 + 0.97 of the way to 30
  EXPECT_EQ(gemm.grid, "4,2,1");
  EXPECT_EQ(gemm.block, "128,1,1");
  EXPECT_EQ(gemm.shape_count, 2U);
  EXPECT_THAT(gemm.registers, Optional(40U));
  EXPECT_THAT(gemm.shared_bytes, Optional(1024U));
  EXPECT_FALSE(gemm.occupancy.has_value());  // the device's limits are not known
  EXPECT_EQ(report.kernels[1].name, "add");
  EXPECT_EQ(report.kernels[1].full_name, "add<float>(float*)");
  EXPECT_FALSE(report.kernels[1].registers.has_value());
  EXPECT_TRUE(report.kernels[1].grid.empty());
}

TEST(KernelTableTest, OccupancyNeedsTheLimitsOfTheDevice) {
  const auto fill = [](Recording& r) {
    r.op(100, 7, "kernel", "k", {0, 10}, 1,
         {{"grid", "4,2,1"}, {"block", "256,1,1"}, {"registers", 64}, {"shared_bytes", 0}});
  };
  EXPECT_FALSE(report_for_test(fill).kernels[0].occupancy.has_value());
  const WorkReport known = report_for_test([&](Recording& r) {
    fill(r);
    r.meta("kansoku.cuda.device.0",
           "major=8 threads=2048 blocks=32 registers=65536 shared_bytes=167936");
  });
  // 64 registers x 32 lanes = 2,048 a warp: 32 of 64 warps.
  EXPECT_THAT(known.kernels[0].occupancy, Optional(DoubleNear(0.5, 1e-9)));
  EXPECT_EQ(known.kernels[0].occupancy_by, "limits");
}

TEST(OccupancyTest, FollowsTheScarcestResource) {
  const auto a100 = limits_of("major=8 threads=2048 blocks=32 registers=65536 shared_bytes=167936");
  ASSERT_TRUE(a100.has_value());
  EXPECT_THAT(occupancy_of(*a100, 1024, 32, 0), Optional(1.0));
  EXPECT_THAT(occupancy_of(*a100, 32, 16, 0), Optional(0.5));            // 32 blocks of one warp
  EXPECT_THAT(occupancy_of(*a100, 128, 255, 0), Optional(0.125));        // 8 warps of 64
  EXPECT_THAT(occupancy_of(*a100, 256, 32, 48 << 10), Optional(0.375));  // 3 blocks of 49 KiB
  EXPECT_THAT(occupancy_of(*a100, 96, 40, 0), Optional(DoubleNear(0.75, 1e-9)));  // 16 x 3 of 48
  EXPECT_EQ(occupancy_of(*a100, 4096, 32, 0), std::nullopt);
  EXPECT_EQ(occupancy_of(*a100, 1024, 128, 0), std::nullopt);  // one block does not fit
  MultiprocessorLimits old = *a100;
  old.major = 6;
  EXPECT_EQ(occupancy_of(old, 128, 32, 0), std::nullopt);
}

TEST(OccupancyTest, LimitsFromOutsideAreChecked) {
  EXPECT_EQ(limits_of(""), std::nullopt);
  EXPECT_EQ(limits_of("major=8 threads=2048 blocks=32 registers=65536"), std::nullopt);
  EXPECT_EQ(limits_of("major=8 threads=0 blocks=32 registers=65536 shared_bytes=1"), std::nullopt);
  EXPECT_EQ(limits_of("major=8 threads=99999999999 blocks=1 registers=1 shared_bytes=1"),
            std::nullopt);
}

TEST(CopyTableTest, BytesASecondByKindAndMemory) {
  const WorkReport report = report_for_test([](Recording& r) {
    r.op(100, 7, "gpu_memcpy", "Memcpy HtoD", {0, 10}, 1,
         {{"bytes", 100'000}, {"kind", "HtoD"}, {"pageable", 0}});
    r.op(100, 7, "gpu_memcpy", "Memcpy HtoD", {20, 50}, 2,
         {{"bytes", 100'000}, {"kind", "HtoD"}, {"pageable", 0}});
    r.op(100, 7, "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", {60, 70}, 3, {{"bytes", 5'000}});
    r.op(100, 7, "gpu_memcpy", "Memcpy DtoH", {80, 90}, 4);
    r.op(100, 7, "gpu_memset", "Memset", {95, 96}, 5, {{"bytes", 1'000}});
  });
  ASSERT_EQ(report.copies.size(), 4U);
  const CopyRow& back = report.copies[0];
  EXPECT_EQ(back.kind, "DtoH");
  EXPECT_FALSE(back.pageable.has_value());
  EXPECT_FALSE(back.bytes.has_value());
  EXPECT_FALSE(back.gb_per_s.has_value());
  const CopyRow& pinned = report.copies[1];
  EXPECT_THAT(pinned.pageable, Optional(false));
  EXPECT_THAT(pinned.bytes, Optional(200'000U));
  EXPECT_THAT(pinned.gb_per_s, Optional(DoubleNear(5, 1e-9)));  // 200 kB in 40 us
  EXPECT_THAT(report.copies[2].pageable, Optional(true));
  EXPECT_THAT(report.copies[2].gb_per_s, Optional(DoubleNear(0.5, 1e-9)));
  EXPECT_EQ(report.copies[3].kind, "set");
}

TEST(CollectiveTableTest, BusBandwidthOfAProfilersArguments) {
  const WorkReport report = report_for_test([](Recording& r) {
    const Recording::Args all{{"Collective name", "allreduce"},
                              {"In msg nelems", 1'000'000},
                              {"Out msg nelems", 1'000'000},
                              {"Group size", 4},
                              {"dtype", "Float"}};
    r.op(100, 7, "kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", {0, 1000}, 1, all);
    const Recording::Args gather{{"Collective name", "_allgather_base"},
                                 {"In msg nelems", 1'000'000},
                                 {"Out msg nelems", 4'000'000},
                                 {"Group size", 4},
                                 {"dtype", "BFloat16"}};
    r.op(100, 7, "kernel", "ncclDevKernel_AllGather_RING_LL(x)", {2000, 2800}, 2, gather);
    r.op(100, 7, "kernel", "ncclDevKernel_Broadcast_RING_LL(x)", {3000, 3100}, 3);
  });
  ASSERT_EQ(report.collectives.size(), 3U);
  EXPECT_EQ(report.collectives[0].name, "allreduce");
  EXPECT_THAT(report.collectives[0].bytes, Optional(4'000'000U));
  // 4 MB in 1 ms, times 2 * 3 / 4
  EXPECT_THAT(report.collectives[0].bus_gb_per_s, Optional(DoubleNear(6, 1e-9)));
  EXPECT_EQ(report.collectives[1].name, "allgather");
  // 8 MB in 0.8 ms, times 3 / 4; of the shard of 2 MB: times n - 1 = 3
  EXPECT_THAT(report.collectives[1].bus_gb_per_s, Optional(DoubleNear(7.5, 1e-9)));
  EXPECT_EQ(report.collectives[2].name, "broadcast");
  EXPECT_FALSE(report.collectives[2].bus_gb_per_s.has_value());
}

TEST(CollectiveTableTest, BusBandwidthOfTheCallAroundTheLaunch) {
  const WorkReport report = report_for_test([](Recording& r) {
    r.host(100, 100, "collective", "ncclAllGather", {0, 10}, {{"bytes", 2'000'000}, {"nranks", 4}});
    r.kernel(100, 7, "ncclDevKernel_AllGather_RING_LL(x)", {2, 4}, {20, 820});
    r.host(100, 100, "collective", "ncclAllGather", {900, 910}, {{"bytes", 2'000'000}});
    r.kernel(100, 7, "ncclDevKernel_AllGather_RING_LL(x)", {902, 904}, {920, 1720});
  });
  ASSERT_EQ(report.collectives.size(), 2U);
  int known = 0;
  for (const CollectiveRow& row : report.collectives) {
    if (!row.bus_gb_per_s) continue;
    ++known;
    EXPECT_NEAR(*row.bus_gb_per_s, 7.5, 1e-9);
    EXPECT_THAT(row.bytes, Optional(8'000'000U));
  }
  EXPECT_EQ(known, 1);  // without the number of ranks nothing is claimed
}

TEST(CollectiveTableTest, FactorsAreThoseOfNcclTests) {
  EXPECT_THAT(bus_factor_of("allreduce", 8), Optional(1.75));
  EXPECT_THAT(bus_factor_of("allgather", 8), Optional(0.875));
  EXPECT_THAT(bus_factor_of("reducescatter", 8), Optional(0.875));
  EXPECT_THAT(bus_factor_of("alltoall", 8), Optional(0.875));
  EXPECT_THAT(bus_factor_of("broadcast", 8), Optional(1.0));
  EXPECT_THAT(bus_factor_of("reduce", 8), Optional(1.0));
  EXPECT_EQ(bus_factor_of("barrier", 8), std::nullopt);
  EXPECT_EQ(bus_factor_of("allreduce", 0), std::nullopt);
  EXPECT_EQ(whole_bytes_of("allreduce", 100, std::nullopt), 100U);
  EXPECT_EQ(whole_bytes_of("allgather", 100, 8), 800U);
  EXPECT_EQ(whole_bytes_of("allgather", 100, std::nullopt), std::nullopt);
  EXPECT_EQ(whole_bytes_of("allgather", UINT64_MAX, 8), std::nullopt);
}

TEST(GemmTest, NestedCallsCountOnceAndKernelsAreSummed) {
  const WorkReport report = report_for_test([](Recording& r) {
    const Recording::Args sizes{{"m", 1000}, {"n", 500}, {"k", 200}};
    r.host(100, 100, "cublas", "cublasGemmEx", {0, 50}, sizes);
    r.host(100, 100, "cublas", "cublasLtMatmul", {5, 45}, sizes);
    r.kernel(100, 7, "splitK_gemm", {10, 12}, {20, 50});
    r.kernel(100, 7, "splitK_reduce", {30, 32}, {50, 60});
    r.kernel(100, 7, "other", {70, 72}, {80, 90});
  });
  ASSERT_TRUE(report.gemms.has_value());
  ASSERT_EQ(report.gemms->size(), 1U);
  const GemmRow& row = report.gemms->front();
  EXPECT_EQ(row.count, 1U);
  EXPECT_EQ(row.kernel_count, 2U);
  EXPECT_NEAR(row.total_us, 40, 1e-9);
  EXPECT_THAT(row.tflops, Optional(DoubleNear(2e8 / 40e-6 / 1e12, 1e-9)));  // 2 m n k = 2e8
  EXPECT_FALSE(row.peak_share.has_value());
}

TEST(GemmTest, BesideOtherWorkASpeedIsUnknown) {
  const WorkReport report = report_for_test([](Recording& r) {
    r.host(100, 100, "cublas", "cublasSgemm_v2", {0, 50}, {{"m", 10}, {"n", 10}, {"k", 10}});
    r.kernel(100, 7, "gemm", {10, 12}, {20, 50});
    r.op(100, 8, "kernel", "ncclDevKernel_AllReduce(x)", {30, 60}, 99);
  });
  ASSERT_TRUE(report.gemms.has_value());
  EXPECT_EQ(report.gemms->front().shared_count, 1U);
  EXPECT_FALSE(report.gemms->front().tflops.has_value());
}

TEST(GemmTest, ShapesOfOperators) {
  EXPECT_EQ(gemm_of_operator("aten::mm", "[[2, 3], [3, 4]]"), (GemmShape{1, 2, 4, 3}));
  EXPECT_EQ(gemm_of_operator("aten::addmm", "[[4], [2, 3], [3, 4], [], []]"),
            (GemmShape{1, 2, 4, 3}));
  EXPECT_EQ(gemm_of_operator("aten::bmm", "[[8, 2, 3], [8, 3, 4]]"), (GemmShape{8, 2, 4, 3}));
  EXPECT_EQ(gemm_of_operator("aten::linear", "[[2, 3], [4, 3]]"), std::nullopt);
  EXPECT_EQ(gemm_of_operator("aten::mm", "[[2, 3], [4, 4]]"), std::nullopt);
  EXPECT_EQ(gemm_of_operator("aten::mm", "[[2, -3], [-3, 4]]"), std::nullopt);
  EXPECT_EQ(gemm_of_operator("aten::mm", "no list"), std::nullopt);
  EXPECT_EQ(flop_of({8, 2, 4, 3}), 384);
}

TEST(OperatorTableTest, DeviceTimeOfTheInnermostOperator) {
  const WorkReport report = report_for_test([](Recording& r) {
    r.host(100, 100, "cpu_op", "aten::linear", {0, 50});
    r.host(100, 100, "cpu_op", "aten::addmm", {5, 45});
    r.kernel(100, 7, "gemm", {10, 12}, {20, 50});
    r.kernel(100, 7, "bias", {14, 16}, {50, 55});
    r.host(100, 100, "cpu_op", "aten::relu", {60, 90});
    r.kernel(100, 7, "relu", {70, 72}, {80, 90});
  });
  ASSERT_TRUE(report.operators.has_value());
  ASSERT_EQ(report.operators->size(), 2U);
  EXPECT_EQ(report.operators->at(0).name, "aten::addmm");
  EXPECT_EQ(report.operators->at(0).call_count, 1U);
  EXPECT_EQ(report.operators->at(0).op_count, 2U);
  EXPECT_NEAR(report.operators->at(0).device_us, 35, 1e-9);
  EXPECT_EQ(report.operators->at(0).top_kernel, "gemm");
  EXPECT_EQ(report.operators->at(1).name, "aten::relu");
}

TEST(RangeTableTest, DeviceTimeIsAUnionOfWhatWasLaunchedWithin) {
  const WorkReport report = report_for_test([](Recording& r) {
    r.host(100, 100, "user_annotation", "step", {0, 100});
    r.host(100, 100, "user_annotation", "forward", {1, 40}, {{"domain", "model"}});
    r.kernel(100, 7, "a", {10, 12}, {20, 50});
    r.kernel(100, 8, "b", {14, 16}, {40, 60});
    r.host(100, 100, "user_annotation", "step", {45, 95});  // within itself
    r.kernel(100, 7, "c", {50, 52}, {100, 140});            // runs after its range
    r.kernel(100, 7, "outside", {110, 112}, {150, 180});
    r.host(100, 101, "user_annotation", "ProfilerStep#3", {0, 10});
  });
  ASSERT_TRUE(report.ranges.has_value());
  ASSERT_EQ(report.ranges->size(), 2U);
  const RangeRow& step = report.ranges->at(0);
  EXPECT_EQ(step.name, "step");
  EXPECT_EQ(step.count, 2U);
  EXPECT_NEAR(step.host_us, 100, 1e-9);
  EXPECT_THAT(step.op_count, Optional(3U));
  EXPECT_THAT(step.device_us, Optional(DoubleNear(80, 1e-9)));      // 20..60 and 100..140
  EXPECT_THAT(step.share, Optional(DoubleNear(80.0 / 110, 1e-9)));  // and 150..180
  const RangeRow& forward = report.ranges->at(1);
  EXPECT_EQ(forward.domain, "model");
  EXPECT_THAT(forward.device_us, Optional(DoubleNear(40, 1e-9)));
  const std::string text = to_text(report, 1);
  EXPECT_NE(text.find("step"), std::string::npos);
  EXPECT_NE(text.find("and 1 further names"), std::string::npos);
}

TEST(RangeTableTest, OneInNGivesNoDeviceTime) {
  const WorkReport report = report_for_test([](Recording& r) {
    r.meta("kansoku.cuda.mode", "sampled:10");
    r.host(100, 100, "user_annotation", "step", {0, 100});
    r.kernel(100, 7, "a", {10, 12}, {20, 50});
  });
  ASSERT_TRUE(report.ranges.has_value());
  EXPECT_EQ(report.ranges->at(0).count, 1U);
  EXPECT_FALSE(report.ranges->at(0).device_us.has_value());
  EXPECT_FALSE(report.ranges->at(0).op_count.has_value());
}

}  // namespace
}  // namespace kansoku::gpu::activity
