// SPDX-License-Identifier: Apache-2.0
// What a process says of itself: KANSOKU_SOFTGPU_COUNTS.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "softcuda/driver_for_test.h"

namespace kansoku::softcuda {
namespace {

#define WANT(condition)                \
  do {                                 \
    if (!(condition)) return __LINE__; \
  } while (false)

/// A few calls of each kind, some of which fail; ends as programs do.
int call_a_few() {
  WANT(cuInit(0) == 0);
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction store = nullptr;
  CUdeviceptr memory = 0;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  WANT(cuCtxCreate_v2(&context, 0, 0) == 0);
  WANT(cuModuleLoadData(&module, kTestKernels) == 0);
  WANT(cuModuleGetFunction(&store, module, "store") == 0);
  WANT(cuModuleGetFunction(&store, module, "nothing of that name") != 0);
  WANT(cuModuleGetFunction(&store, module, "store") == 0);
  WANT(cuMemAlloc_v2(&memory, 4096) == 0 && cuMemAlloc_v2(nullptr, 4096) != 0);
  WANT(cuStreamCreate(&stream, 0) == 0 && cuEventCreate(&event, 0) == 0);
  std::array<char, 100> host{};
  WANT(cuMemcpyHtoD_v2(memory, host.data(), host.size()) == 0);
  WANT(cuMemcpyHtoD_v2(memory, host.data(), 0) == 0);  // nothing to do: no operation
  WANT(cuMemcpyDtoH_v2(host.data(), memory, 60) == 0);
  WANT(cuMemcpyDtoD_v2(memory + 512, memory, 16) == 0);
  WANT(cuMemsetD2D32Async(memory, 64, 1, 3, 4, stream) == 0);
  for (int i = 0; i < 3; ++i)
    WANT(launch(store, {}, stream, memory, 1U) == 0);
  WANT(cuEventRecord(event, stream) == 0);
  WANT(cuLaunchHostFunc(
           stream, [](void*) {}, nullptr) == 0);
  WANT(cuStreamWriteValue32_v2(stream, memory, 7, 0) == 0);
  WANT(cuStreamWaitValue32_v2(stream, memory, 7, 0) == 0);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  WANT(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == 0);
  WANT(launch(store, {}, stream, memory, 1U) == 0);  // recorded, not run
  WANT(cuMemsetD8Async(memory, 0, 10, stream) == 0);
  WANT(cuStreamEndCapture(stream, &graph) == 0);
  WANT(cuGraphInstantiateWithFlags(&exec, graph, 0) == 0);
  WANT(cuGraphLaunch(exec, stream) == 0 && cuGraphLaunch(exec, stream) == 0);
  WANT(cuStreamSynchronize(stream) == 0);
  std::exit(0);
}
const Child kFew("call_a_few", call_a_few);

TEST(CountsTest, TheFileHasWhatWasCalledAndDone) {
  if (is_another_before()) GTEST_SKIP() << "it has calls of its own";
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("softcuda_counts_{}", getpid());
  std::filesystem::create_directory(folder);
  const ChildRun run =
      run_child("call_a_few", {"KANSOKU_SOFTGPU_COUNTS=" + (folder / "job").string()});
  EXPECT_EQ(run.exit_code, 0);
  std::ostringstream text;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_TRUE(entry.path().filename().string().starts_with("job."));
    text << std::ifstream(entry.path()).rdbuf();
  }
  std::filesystem::remove_all(folder);
  EXPECT_EQ(text.str(),
            "call cuCtxCreate_v2 1 1\n"
            "call cuEventCreate 1 1\n"
            "call cuEventRecord 1 1\n"
            "call cuGraphInstantiateWithFlags 1 1\n"
            "call cuGraphLaunch 2 2\n"
            "call cuInit 1 1\n"
            "call cuLaunchHostFunc 1 1\n"
            "call cuLaunchKernel 4 4\n"
            "call cuMemAlloc_v2 2 1\n"
            "call cuMemcpyDtoD_v2 1 1\n"
            "call cuMemcpyDtoH_v2 1 1\n"
            "call cuMemcpyHtoD_v2 2 2\n"
            "call cuMemsetD2D32Async 1 1\n"
            "call cuMemsetD8Async 1 1\n"
            "call cuModuleGetFunction 3 2\n"
            "call cuModuleLoadData 1 1\n"
            "call cuStreamBeginCapture_v2 1 1\n"
            "call cuStreamCreate 1 1\n"
            "call cuStreamEndCapture 1 1\n"
            "call cuStreamSynchronize 1 1\n"
            "call cuStreamWaitValue32_v2 1 1\n"
            "call cuStreamWriteValue32_v2 1 1\n"
            "did kernel 5 0\n"
            "did copy_HtoD 1 100\n"
            "did copy_DtoH 1 60\n"
            "did copy_DtoD 1 16\n"
            "did set 3 68\n"
            "did host_function 1 0\n"
            "did event 1 0\n"
            "did value_wait 1 0\n"
            "did value_write 1 0\n"
            "did graph 2 0\n"
            "kernel store 5\n");
}

TEST(CountsTest, OneThatCannotWriteGoesOn) {
  EXPECT_EQ(run_child("call_a_few", {"KANSOKU_SOFTGPU_COUNTS=/nonexistent/job"}).exit_code, 0);
}

}  // namespace
}  // namespace kansoku::softcuda
