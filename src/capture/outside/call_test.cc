// SPDX-License-Identifier: Apache-2.0
#include "capture/outside/call.h"

#include <gtest/gtest.h>

#include "capture/outside/calls_for_test.h"
#include "capture/outside/stub.h"

namespace kansoku::capture::outside {
namespace {

TEST(Entries, AreFoundWithoutVersionAndForm) {
  EXPECT_EQ(entry_of("cuLaunchKernel").kind, Kind::kLaunch);
  EXPECT_EQ(entry_of("cuLaunchKernelEx_ptsz").kind, Kind::kLaunch);
  EXPECT_EQ(entry_of("cuMemcpyHtoDAsync_v2_ptsz").direction, "HtoD");
  EXPECT_EQ(entry_of("cuCtxCreate_v4").kind, Kind::kContext);
  EXPECT_EQ(entry_of("cuNothing").kind, Kind::kOther);
  EXPECT_EQ(entry_of("").kind, Kind::kOther);
  EXPECT_EQ(entry_of("_v2").kind, Kind::kOther);
  EXPECT_TRUE(is_per_thread("cuMemsetD8_v2_ptds"));
}

TEST(Calls, HaveBytesOfAllDimensions) {
  EXPECT_EQ(bytes_of(call_for_test("cuMemcpyHtoD_v2", {{Key::kBytes, 12}})), 12U);
  EXPECT_EQ(bytes_of(call_for_test("cuMemsetD32_v2", {{Key::kWidth, 3}})), 12U);
  EXPECT_EQ(bytes_of(call_for_test("cuMemsetD2D16_v2", {{Key::kWidth, 3}, {Key::kHeight, 5}})),
            30U);
  EXPECT_EQ(bytes_of(call_for_test("cuMemcpy3D_v2",
                                   {{Key::kWidth, 3}, {Key::kHeight, 5}, {Key::kDepth, 7}})),
            105U);
  EXPECT_EQ(bytes_of(call_for_test("cuMemAllocPitch_v2", {{Key::kPitch, 512}, {Key::kHeight, 4}})),
            2048U);
  EXPECT_FALSE(bytes_of(call_for_test("cuMemcpyBatchAsync", {{Key::kCount, 4}})));
}

TEST(Calls, OfABatchHaveTheSumOfItsBytes) {
  const auto batch = [](std::uint64_t count) {
    return call_for_test("cuMemcpyBatchAsync_v2", {{Key::kCount, count},
                                                   {Key::kSize0, 5},
                                                   {Key::kSize1, 0},
                                                   {Key::kSize2, 7},
                                                   {Key::kSize3, 1000}});
  };
  EXPECT_EQ(bytes_of(batch(3)), 12U);
  EXPECT_EQ(operations_of(batch(3)), 2U) << "one without bytes is none";
  EXPECT_EQ(bytes_of(batch(4)), 1012U);
  EXPECT_FALSE(bytes_of(batch(5))) << "not all were read";
  EXPECT_EQ(operations_of(batch(5)), 5U);
  EXPECT_FALSE(bytes_of(batch(8)));
  const auto boxes = [](std::uint64_t count) {
    return call_for_test(
        "cuMemcpy3DBatchAsync",
        {{Key::kCount, count}, {Key::kWidth, 2}, {Key::kHeight, 3}, {Key::kDepth, 4}});
  };
  EXPECT_EQ(bytes_of(boxes(1)), 24U);
  EXPECT_FALSE(bytes_of(boxes(2)));
  EXPECT_EQ(operations_of(boxes(2)), 2U);
  EXPECT_EQ(operations_of(call_for_test("cuMemcpyAsync", {{Key::kBytes, 0}})), 0U);
  EXPECT_EQ(operations_of(call_for_test("cuMemcpyAsync", {{Key::kBytes, 9}})), 1U);
}

TEST(Calls, OfHostileShapesDoNotOverflow) {
  constexpr std::uint64_t kHuge = ~0ULL;
  EXPECT_EQ(bytes_of(call_for_test("cuMemsetD2D32_v2", {{Key::kWidth, kHuge}, {Key::kHeight, 2}})),
            kHuge);
}

TEST(Calls, HaveADirectionByTypesOfMemory) {
  const auto of = [](std::uint64_t from, std::uint64_t to) {
    return direction_of(
        call_for_test("cuMemcpy2D_v2", {{Key::kSrcType, from}, {Key::kDstType, to}}));
  };
  EXPECT_EQ(of(1, 2), "HtoD");
  EXPECT_EQ(of(2, 1), "DtoH");
  EXPECT_EQ(of(2, 2), "DtoD");
  EXPECT_EQ(of(1, 4), "unknown");
  EXPECT_EQ(direction_of(call_for_test("cuMemcpyAsync")), "unknown");
}

TEST(Calls, NameTheThreadsOwnStream) {
  EXPECT_EQ(stream_of(call_for_test("cuLaunchKernel", {{Key::kStream, 0}})),
            stream_of(call_for_test("cuLaunchKernel", {{Key::kStream, 1}})));
  EXPECT_EQ(stream_of(call_for_test("cuLaunchKernel_ptsz", {{Key::kStream, 0}})),
            stream_of(call_for_test("cuLaunchKernel", {{Key::kStream, 2}})));
  EXPECT_NE(stream_of(call_for_test("cuLaunchKernel_ptsz", {{Key::kStream, 0}})),
            stream_of(call_for_test("cuLaunchKernel", {{Key::kStream, 0}})));
}

TEST(Stub, TellsItsKernel) {
  EXPECT_EQ(kernel_of_stub("_ZL23__device_stub__norm_f32ILi1024EEvPKfPfilllf"),
            "_ZL8norm_f32ILi1024EEvPKfPfilllf");
  EXPECT_EQ(kernel_of_stub("__device_stub__saxpy"), "saxpy");
  EXPECT_EQ(kernel_of_stub("_Z5saxpyfPKfPf"), "_Z5saxpyfPKfPf");
  EXPECT_EQ(kernel_of_stub("_Z3__device_stub__"), "");
  EXPECT_EQ(kernel_of_stub("x__device_stub__"), "");
}

}  // namespace
}  // namespace kansoku::capture::outside
