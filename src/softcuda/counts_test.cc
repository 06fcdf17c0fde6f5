// SPDX-License-Identifier: Apache-2.0
// Counts of a process: KANSOKU_SOFTGPU_COUNTS, KANSOKU_SOFTGPU_OPERATIONS.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "common/parse.h"
#include "softcuda/driver_for_test.h"
#include "softcuda/internal/operation_log.h"

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

/// Words of each line of the one file that a child wrote.
std::vector<std::vector<std::string>> lines_of(const std::filesystem::path& folder) {
  std::vector<std::vector<std::string>> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      out.emplace_back(std::istream_iterator<std::string>(words),
                       std::istream_iterator<std::string>());
    }
  }
  return out;
}

std::vector<std::vector<std::string>> operations_with(const std::string& clock) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("softcuda_operations_{}", getpid());
  std::filesystem::create_directory(folder);
  const ChildRun run =
      run_child("call_a_few", {"KANSOKU_SOFTGPU_OPERATIONS=" + (folder / "job").string(), clock});
  EXPECT_EQ(run.exit_code, 0);
  auto out = lines_of(folder);
  std::filesystem::remove_all(folder);
  return out;
}

std::uint64_t number(const std::string& word) {
  const auto parsed = parse_int<std::uint64_t>(word);
  EXPECT_TRUE(parsed) << word;
  return parsed.value_or(0);
}

/// WHAT and NAME of each line, a node with a sign before it.
std::vector<std::string> whats(const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::string> out;
  for (const auto& words : lines) {
    if (words.size() == 11)
      out.push_back((words[0] == "node" ? "+" : "") + words[1] + " " + words[10]);
  }
  return out;
}

/// The legacy stream last: it was made when it was first used.
const std::vector<std::string> kRan{
    "set -",           "kernel store",  "kernel store",  "kernel store", "event -",
    "host_function -", "value_write -", "value_wait -",  "graph -",      "+kernel store",
    "+set -",          "graph -",       "+kernel store", "+set -",       "copy_HtoD -",
    "copy_DtoH -",     "copy_DtoD -"};

TEST(OperationsTest, TheModelsFileHasEachWithItsPlaceInVirtualTime) {
  if (is_another_before()) GTEST_SKIP() << "it has operations of its own";
  const auto lines = operations_with("KANSOKU_SOFTGPU_CLOCK=model");
  ASSERT_EQ(whats(lines), kRan);
  std::map<std::string, std::uint64_t> end_of_stream;
  for (const auto& words : lines) {
    const std::uint64_t ready = number(words[4]), begin = number(words[5]);
    const std::uint64_t end = number(words[6]);
    EXPECT_LE(begin, end);
    EXPECT_EQ(words[7] + words[8], "00") << "no time of the host";
    const bool is_node = words[0] == "node";
    const std::uint64_t latency = words[1].starts_with("copy") ? 4000
                                  : words[1] == "set" || words[1] == "kernel"
                                      ? (is_node ? 1000 : 3000)
                                  : words[1] == "graph" ? 3000
                                                        : 0;
    EXPECT_EQ(begin - ready, latency) << words[1] << ": no engine was taken";
    if (is_node) {
      EXPECT_LE(end, end_of_stream[words[2]]) << "within its graph";
      continue;
    }
    EXPECT_GE(ready, end_of_stream[words[2]]) << "one after the other";
    end_of_stream[words[2]] = end;
  }
}

TEST(OperationsTest, TheWallClocksFileHasTheHostsTimesAndTheDevices) {
  if (is_another_before()) GTEST_SKIP() << "it has operations of its own";
  const auto lines = operations_with("KANSOKU_SOFTGPU_EVENT_CLOCK=offset_us=5");
  ASSERT_EQ(whats(lines), kRan);
  for (const auto& words : lines) {
    EXPECT_EQ(number(words[4]), number(words[7]) + 5000);
    EXPECT_EQ(words[4], words[5]);
    EXPECT_EQ(number(words[6]), number(words[8]) + 5000);
    EXPECT_LE(number(words[7]), number(words[8]));
  }
  EXPECT_EQ(lines[14][9], "100");
}

TEST(OperationsTest, KeepsSoManyAndCountsTheRest) {
  OperationLog log(2);
  const auto first = log.add({Done::kFill, false, 7, 2, 64, ""});
  const auto second = log.add({Done::kKernel, false, 7, 1, 0, "store"});
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(log.add({}));
  log.placed(*first, {1, 2, 3});
  log.placed(*first, {5, 6, 7});  // its last part
  EXPECT_EQ(log.text(), "op set 7 2 1 2 7 0 0 64 -\ndropped 1\nunfinished 1\n");
}

TEST(CountsTest, OneThatCannotWriteGoesOn) {
  EXPECT_EQ(run_child("call_a_few", {"KANSOKU_SOFTGPU_COUNTS=/nonexistent/job"}).exit_code, 0);
}

}  // namespace
}  // namespace kansoku::softcuda
