// SPDX-License-Identifier: Apache-2.0
#include "trace/collective_kernels.h"

#include <gtest/gtest.h>

namespace kansoku::trace {
namespace {

Trace trace_of(std::string_view name, std::string_view key) {
  Trace trace;
  trace.slices.name.push_back(trace.strings.intern(name));
  trace.slices.arg_begin.push_back(0);
  trace.slices.arg_count.push_back(1);
  trace.slices.start_ns.push_back(0);
  ArgValue arg;
  arg.key = trace.strings.intern(key);
  trace.args.push_back(arg);
  return trace;
}

bool is_collective(std::string_view name, std::string_view key = "grid") {
  const Trace trace = trace_of(name, key);
  return CollectiveKernels(trace).contains(0);
}

TEST(CollectiveKernels, AreKnownByTheirNames) {
  for (const char* name :
       {"ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "void ncclKernel_Broadcast_RING(ncclDevComm*)", "rcclKernel_AllGather",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "_Z34ncclDevKernel_AllReduce_Sum_f32_LL24ncclDevKernelArgsStorageILm4096EE"})
    EXPECT_TRUE(is_collective(name)) << name;
  for (const char* name : {"sgemm", "fill(ncclDevKernelArgsStorage<4096ul>)", "oneccl_allreduce",
                           "_Z4fill24ncclDevKernelArgsStorageILm4096EE", ""})
    EXPECT_FALSE(is_collective(name)) << name;
}

TEST(CollectiveKernels, AreKnownByWhatTheProfilerSays) {
  EXPECT_TRUE(is_collective("oneccl_allreduce", "Collective name"));
}

TEST(CollectiveKernels, AreNotReadFromWhatTheTraceLacks) {
  Trace trace = trace_of("oneccl_allreduce", "Collective name");
  trace.slices.arg_begin[0] = 7;
  EXPECT_FALSE(CollectiveKernels(trace).contains(0));
  trace.slices.name[0] = StringId{1U << 30};
  EXPECT_FALSE(CollectiveKernels(trace).contains(0));
}

}  // namespace
}  // namespace kansoku::trace
