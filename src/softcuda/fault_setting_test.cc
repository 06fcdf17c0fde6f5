// SPDX-License-Identifier: Apache-2.0
// Faults on demand: KANSOKU_SOFTGPU_FAULT.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/parse.h"
#include "softcuda/driver_for_test.h"
#include "softcuda/internal/faults.h"

namespace kansoku::softcuda {
namespace {

using ::testing::HasSubstr;

Result<std::vector<FaultRule>> rules_of(std::string_view setting) {
  return faults_from(setting, [](std::string_view name) { return name == "cuMemAlloc_v2"; });
}

TEST(FaultRulesTest, EveryPartIsRead) {
  const auto rules = rules_of(
      "cuMemAlloc_v2:3:error=700;kernel=*axpy*:10+:hang=/tmp/"
      "go:on;copy=DtoH:1:slow=5ms;copy:2:crash;"
      "set:1+:crash=abort;cuMemAlloc_v2:1:error=CUDA_ERROR_OUT_OF_MEMORY");
  ASSERT_TRUE(rules) << rules.error().what;
  ASSERT_EQ(rules->size(), 6U);
  const auto& all = *rules;
  EXPECT_EQ(all[0].at, FaultAt::kCall);
  EXPECT_EQ(all[0].name, "cuMemAlloc_v2");
  EXPECT_EQ(all[0].first, 3U);
  EXPECT_FALSE(all[0].goes_on);
  EXPECT_EQ(all[0].action, FaultAction::kError);
  EXPECT_EQ(all[0].error, 700);
  EXPECT_EQ(all[1].at, FaultAt::kKernel);
  EXPECT_EQ(all[1].name, "*axpy*");
  EXPECT_TRUE(all[1].goes_on);
  EXPECT_EQ(all[1].until, "/tmp/go:on");
  EXPECT_EQ(all[2].at, FaultAt::kCopy);
  EXPECT_EQ(all[2].time, std::chrono::milliseconds{5});
  EXPECT_EQ(all[3].name, "");
  EXPECT_EQ(all[3].signal, SIGSEGV);
  EXPECT_EQ(all[4].at, FaultAt::kFill);
  EXPECT_EQ(all[4].signal, SIGABRT);
  EXPECT_EQ(all[5].error, CUDA_ERROR_OUT_OF_MEMORY);
}

TEST(FaultRulesTest, WhatIsWrongIsNamed) {
  const std::pair<std::string, const char*> wrong[] = {
      {"cuNoSuch:1:hang", "\"cuNoSuch:1:hang\": it begins with a function"},
      {"cuMemAlloc_v2:1:hang;;", "\"\": it begins with a function"},
      {"kernel=:1:hang", "it begins with a function"},
      {"copy=HtoX:1:hang", "a copy is HtoD"},
      {"cuMemAlloc_v2", "the second part is a number from 1"},
      {"cuMemAlloc_v2:0:hang", "the second part is a number from 1"},
      {"cuMemAlloc_v2:-1:hang", "the second part is a number from 1"},
      {"cuMemAlloc_v2:+:hang", "the second part is a number from 1"},
      {"cuMemAlloc_v2:1", "the third part is"},
      {"cuMemAlloc_v2:1:explode", "the third part is"},
      {"cuMemAlloc_v2:1:hang=", "the third part is"},
      {"cuMemAlloc_v2:1:error=0", "error= takes a code"},
      {"cuMemAlloc_v2:1:error=12", "error= takes a code"},
      {"cuMemAlloc_v2:1:slow=0s", "slow= takes a time"},
      {"cuMemAlloc_v2:1:slow", "slow= takes a time"},
      {std::string(9000, 'x'), "9000 bytes, at most 8192"},
  };
  for (const auto& [setting, message] : wrong) {
    const auto rules = rules_of(setting);
    ASSERT_FALSE(rules) << setting;
    EXPECT_THAT(rules.error().what, HasSubstr(message));
    EXPECT_THAT(rules.error().what, HasSubstr("KANSOKU_SOFTGPU_FAULT: "));
  }
  std::string many;
  for (int i = 0; i < 65; ++i)
    many += (i > 0 ? ";" : "") + std::string("copy:1:hang");
  ASSERT_FALSE(rules_of(many));
  EXPECT_THAT(rules_of(many).error().what, HasSubstr("more than 64 rules"));
}

TEST(FaultRulesTest, TheTurnIsCountedByRule) {
  Faults faults(*rules_of("cuMemAlloc_v2:2:error=2;kernel=a*:3+:error=700;copy=HtoD:1:error=1"));
  const auto error = [&](FaultAt at, std::string_view name) {
    const auto due = faults.due(at, name);
    return due.rule == nullptr ? 0 : due.rule->error;
  };
  const auto call = [&] { return error(FaultAt::kCall, "cuMemAlloc_v2"); };
  const std::array calls{call(), call(), call()};
  EXPECT_THAT(calls, ::testing::ElementsAre(0, 2, 0));
  EXPECT_EQ(error(FaultAt::kCall, "cuMemFree_v2"), 0);
  const std::array kernels{error(FaultAt::kKernel, "ab"), error(FaultAt::kKernel, "ba"),
                           error(FaultAt::kKernel, "a"), error(FaultAt::kKernel, "ac"),
                           error(FaultAt::kKernel, "ad")};
  EXPECT_THAT(kernels, ::testing::ElementsAre(0, 0, 0, 700, 700));
  EXPECT_EQ(error(FaultAt::kCopy, "DtoH"), 0);
  EXPECT_EQ(error(FaultAt::kCopy, "HtoD"), 1);
}

/// Below: processes that have the setting. They end with the line in which something is wrong.
#define WANT(condition)                \
  do {                                 \
    if (!(condition)) return __LINE__; \
  } while (false)

std::string fault_is(const std::string& rules) {
  return "KANSOKU_SOFTGPU_FAULT=" + rules;
}

/// Device 0 with a context, the test kernels, a stream that waits for nobody and an event.
struct Prepared {
  CUcontext context{nullptr};
  CUmodule module{nullptr};
  CUstream stream{nullptr}, other{nullptr};
  CUevent event{nullptr};
  CUdeviceptr memory{0};
  bool is_good{false};

  Prepared() {
    is_good = cuInit(0) == 0 && cuCtxCreate_v2(&context, 0, 0) == 0 &&
              cuModuleLoadData(&module, kTestKernels) == 0 &&
              cuStreamCreate(&stream, kStreamNonBlocking) == 0 &&
              cuStreamCreate(&other, kStreamNonBlocking) == 0 && cuEventCreate(&event, 0) == 0 &&
              cuMemAlloc_v2(&memory, 4096) == 0;
  }
  CUresult store(CUstream in, std::uint64_t place, unsigned value) const {
    CUfunction function = nullptr;
    if (const CUresult status = cuModuleGetFunction(&function, module, "store"); status != 0)
      return status;
    return launch(function, {}, in, memory + 4 * place, value);
  }
  /// Writes 0 to 3 behind the first 16 bytes.
  CUresult count(CUstream in) const {
    CUfunction function = nullptr;
    if (const CUresult status = cuModuleGetFunction(&function, module, "iota"); status != 0)
      return status;
    return launch(function, {1, 4}, in, memory + 16, 4);
  }
  unsigned stored(std::uint64_t place) const {
    unsigned value = 0;
    const CUresult status = cuMemcpyDtoHAsync_v2(&value, memory + 4 * place, 4, other);
    return status == 0 && cuStreamSynchronize(other) == 0 ? value : 0xdead;
  }
};

int third_allocation_fails() {
  WANT(cuInit(0) == 0);
  CUcontext context = nullptr;
  WANT(cuCtxCreate_v2(&context, 0, 0) == 0);
  const auto call = entry<CUresult(CUdeviceptr*, std::size_t)>("cuMemAlloc_v2");
  void* found = nullptr;
  WANT(cuGetProcAddress("cuMemAlloc", &found, 12000, 0) == 0);
  const auto looked_up = reinterpret_cast<CUresult (*)(CUdeviceptr*, std::size_t)>(found);
  CUdeviceptr pointer = 0;
  WANT(call(&pointer, 64) == 0 && looked_up(&pointer, 64) == 0);
  pointer = 5;
  WANT(looked_up(&pointer, 64) == CUDA_ERROR_OUT_OF_MEMORY && pointer == 5);
  WANT(call(&pointer, 64) == 0 && pointer > 5);
  return 0;
}
const Child kThird("third_allocation_fails", third_allocation_fails);

TEST(FaultSettingTest, TheNthCallFails) {
  EXPECT_EQ(run_child("third_allocation_fails", {fault_is("cuMemAlloc_v2:3:error=2")}).exit_code,
            0);
}

/// Everything that a setting names fails, whatever its arguments are.
int what_is_named_fails() {
  std::istringstream rules(std::getenv("KANSOKU_SOFTGPU_FAULT"));
  int count = 0;
  for (std::string rule; std::getline(rules, rule, ';'); ++count) {
    const std::string name = rule.substr(0, rule.find(':'));
    const auto call =
        reinterpret_cast<int (*)(int, int, int, int, int, int, int)>(driver_symbol(name.c_str()));
    if (call(1, 2, 3, 4, 5, 6, 7) != CUDA_ERROR_DEVICE_UNAVAILABLE)
      std::printf("%s\n", name.c_str());
  }
  return count == 0;
}
const Child kNamed("what_is_named_fails", what_is_named_fails);

TEST(FaultSettingTest, EveryFunctionCanFail) {
  constexpr std::size_t kRules = 64;
  const std::vector<std::string> names(std::begin(kImplemented), std::end(kImplemented));
  for (std::size_t first = 0; first < names.size(); first += kRules) {
    std::string setting;
    for (std::size_t i = first; i < std::min(names.size(), first + kRules); ++i) {
      if (names[i].starts_with("cu"))
        setting += fmt::format("{}{}:1+:error=46", setting.empty() ? "" : ";", names[i]);
    }
    const ChildRun run = run_child("what_is_named_fails", {fault_is(setting)});
    EXPECT_EQ(run.exit_code, 0);
    EXPECT_EQ(run.output, "");
  }
}

int start_fails() {
  const CUresult status = cuInit(0);
  return status == 0 ? 0 : static_cast<int>(status);
}
const Child kStart("start_fails", start_fails);

TEST(FaultSettingTest, AWrongSettingEndsTheStart) {
  const std::string log =
      (std::filesystem::temp_directory_path() / fmt::format("softcuda_fault_{}", getpid()))
          .string();
  EXPECT_EQ(run_child("start_fails", {fault_is("cuInit:1:error=100")}).exit_code, 100);
  EXPECT_EQ(run_child("start_fails", {fault_is("")}).exit_code, 0);
  const ChildRun run =
      run_child("start_fails", {fault_is("cuInit:1:explode"), "KANSOKU_SOFTGPU_LOG=" + log});
  EXPECT_EQ(run.exit_code, CUDA_ERROR_INVALID_VALUE);
  std::ostringstream text;
  text << std::ifstream(log).rdbuf();
  std::filesystem::remove(log);
  EXPECT_THAT(text.str(),
              HasSubstr("KANSOKU_SOFTGPU_FAULT: \"cuInit:1:explode\": the third part is"));
}

int second_launch_faults() {
  const Prepared all;
  WANT(all.is_good);
  WANT(all.store(all.stream, 0, 7) == 0 && cuStreamSynchronize(all.stream) == 0);
  WANT(all.stored(0) == 7);
  WANT(all.store(all.stream, 0, 8) == 0);
  WANT(cuStreamSynchronize(all.stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr pointer = 0;
  WANT(cuMemAlloc_v2(&pointer, 64) == CUDA_ERROR_ILLEGAL_ADDRESS);
  return 0;
}
const Child kSecond("second_launch_faults", second_launch_faults);

TEST(FaultSettingTest, TheNthLaunchFaults) {
  EXPECT_EQ(run_child("second_launch_faults", {fault_is("kernel=store:2:error=700")}).exit_code, 0);
}

/// A launch hangs until a file is there; all else goes on.
int launch_hangs() {
  const Prepared all;
  WANT(all.is_good);
  WANT(cuMemsetD8_v2(all.memory, 0, 64) == 0);
  WANT(all.count(all.stream) == 0 && cuEventRecord(all.event, all.stream) == 0);
  WANT(all.store(all.other, 0, 8) == 0 && cuStreamSynchronize(all.other) == 0);
  WANT(all.stored(0) == 8 && all.stored(7) == 0);
  WANT(cuStreamQuery(all.stream) == CUDA_ERROR_NOT_READY);
  WANT(cuEventQuery(all.event) == CUDA_ERROR_NOT_READY);
  CUdeviceptr pointer = 0;
  WANT(cuMemAlloc_v2(&pointer, 64) == 0);  // cuMemFree would wait
  const std::string setting = std::getenv("KANSOKU_SOFTGPU_FAULT");
  std::ofstream(setting.substr(setting.rfind('=') + 1)).put('\n');
  WANT(cuStreamSynchronize(all.stream) == 0 && cuEventQuery(all.event) == 0);
  WANT(all.stored(7) == 3);
  return 0;
}
const Child kHangs("launch_hangs", launch_hangs);

TEST(FaultSettingTest, AKernelHangsUntilAFileIsThere) {
  const auto file =
      std::filesystem::temp_directory_path() / fmt::format("softcuda_go_{}", getpid());
  for (const char* const clock : {"wall", "model"}) {
    std::filesystem::remove(file);
    EXPECT_EQ(run_child("launch_hangs", {fault_is("kernel=iota:1:hang=" + file.string()),
                                         fmt::format("KANSOKU_SOFTGPU_CLOCK={}", clock)})
                  .exit_code,
              0);
  }
  std::filesystem::remove(file);
}

int context_ends_the_hang() {
  const Prepared all;
  WANT(all.is_good && all.store(all.stream, 0, 7) == 0);
  WANT(cuStreamQuery(all.stream) == CUDA_ERROR_NOT_READY);
  WANT(cuCtxDestroy_v2(all.context) == 0);
  return 0;
}
const Child kEnds("context_ends_the_hang", context_ends_the_hang);

TEST(FaultSettingTest, TheContextsEndEndsAHang) {
  EXPECT_EQ(run_child("context_ends_the_hang", {fault_is("kernel=store:1:hang")}).exit_code, 0);
}

/// Runs `body` in a process of its own, which writes a byte when it is to be ended; how it ends.
template <class Body>
int status_after(int number, const Body& body) {
  std::array<int, 2> pipe_ends{};
  if (pipe(pipe_ends.data()) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    body([&] { static_cast<void>(!write(pipe_ends[1], "x", 1)); });
    _exit(99);
  }
  close(pipe_ends[1]);
  char byte = 0;
  const bool is_ready = read(pipe_ends[0], &byte, 1) == 1;
  close(pipe_ends[0]);
  if (is_ready && number != 0) kill(child, number);
  int status = 0;
  return waitpid(child, &status, 0) == child ? status : -1;
}

/// A process whose kernel hangs for ever ends by a signal while it waits for it.
int signals_end_a_hang() {
  for (const int number : {SIGTERM, SIGKILL}) {
    const int status = status_after(number, [](const auto& say) {
      const Prepared all;
      if (!all.is_good || all.store(all.stream, 0, 7) != 0) return;
      if (cuStreamQuery(all.stream) != CUDA_ERROR_NOT_READY) return;
      say();
      static_cast<void>(cuStreamSynchronize(all.stream));
    });
    WANT(WIFSIGNALED(status) && WTERMSIG(status) == number);
  }
  return 0;
}
const Child kSignals("signals_end_a_hang", signals_end_a_hang);

TEST(FaultSettingTest, SignalsEndAHang) {
  EXPECT_EQ(run_child("signals_end_a_hang", {fault_is("kernel=store:1:hang")}).exit_code, 0);
}

/// A call hangs until it is ended, and another until a file is there.
int call_hangs() {
  const int status = status_after(SIGTERM, [](const auto& say) {
    say();
    static_cast<void>(cuInit(0));
  });
  WANT(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  int version = 0;
  WANT(cuDriverGetVersion(&version) == 0 && version > 0);
  return 0;
}
const Child kCall("call_hangs", call_hangs);

TEST(FaultSettingTest, ACallHangs) {
  // The second file is there already.
  EXPECT_EQ(
      run_child("call_hangs", {fault_is("cuInit:1:hang;cuDriverGetVersion:1:hang=/proc/self/exe")})
          .exit_code,
      0);
}

int crashes() {
  const Prepared all;
  if (!all.is_good) return 1;
  static_cast<void>(all.store(all.stream, 0, 7));
  static_cast<void>(cuStreamSynchronize(all.stream));
  return 0;
}
int crash_in_a_process_of_its_own() {
  const int wanted = parse_int<int>(std::getenv("KANSOKU_TEST_SIGNAL")).value_or(0);
  const int status = status_after(0, [](const auto&) { _exit(crashes()); });
  return WIFSIGNALED(status) && WTERMSIG(status) == wanted ? 0 : 1;
}
const Child kCrash("crash_in_a_process_of_its_own", crash_in_a_process_of_its_own);

TEST(FaultSettingTest, ACallOrAKernelCrashes) {
  for (const auto& [rule, number] : {std::pair{"cuMemAlloc_v2:1:crash", SIGSEGV},
                                     std::pair{"cuLaunchKernel:1:crash=abort", SIGABRT},
                                     std::pair{"kernel=st*e:1:crash=abort", SIGABRT}}) {
    EXPECT_EQ(run_child("crash_in_a_process_of_its_own",
                        {fault_is(rule), fmt::format("KANSOKU_TEST_SIGNAL={}", number),
                         "ASAN_OPTIONS=handle_segv=0:handle_abort=0",
                         "TSAN_OPTIONS=handle_segv=0:handle_abort=0"})
                  .exit_code,
              0)
        << rule;
  }
}

/// Prints the times of copies, a fill and a kernel by events, in ms, each twice; the second is
/// slow, but of the first copy.
int slow_operations() {
  const Prepared all;
  WANT(all.is_good);
  CUevent end = nullptr;
  void* host = nullptr;
  WANT(cuEventCreate(&end, 0) == 0 && cuMemAllocHost_v2(&host, 64) == 0);
  const auto elapsed = [&](const auto& work) {
    float ms = -1;
    const bool is_done = cuEventRecord(all.event, all.stream) == 0 && work() == CUDA_SUCCESS &&
                         cuEventRecord(end, all.stream) == 0 && cuEventSynchronize(end) == 0 &&
                         cuEventElapsedTime(&ms, all.event, end) == 0;
    return is_done ? static_cast<double>(ms) : -1e9;
  };
  const auto twice = [&](const auto& work) {
    const double first = elapsed(work);
    std::printf("%.4f %.4f ", first, elapsed(work));
  };
  twice([&] { return cuMemcpyDtoHAsync_v2(host, all.memory, 64, all.stream); });
  twice([&] { return cuMemcpyHtoDAsync_v2(all.memory, host, 64, all.stream); });
  twice([&] { return cuMemsetD8Async(all.memory, 1, 64, all.stream); });
  twice([&] { return all.store(all.stream, 0, 1); });
  return 0;
}
const Child kSlow("slow_operations", slow_operations);

std::vector<double> slow_by(const char* clock) {
  const ChildRun run =
      run_child("slow_operations",
                {fault_is("copy=HtoD:2:slow=30ms;set:2:slow=40ms;kernel=store:2:slow=50ms"),
                 fmt::format("KANSOKU_SOFTGPU_CLOCK={}", clock)});
  EXPECT_EQ(run.exit_code, 0);
  std::istringstream numbers(run.output);
  std::vector<double> all;
  for (double number = 0; numbers >> number;)
    all.push_back(number);
  return all;
}

TEST(FaultSettingTest, OperationsAreSlow) {
  const auto ms = slow_by("model");
  ASSERT_EQ(ms.size(), 8U);
  const std::array extra{0, 30, 40, 50};
  for (std::size_t i = 0; i < extra.size(); ++i)
    EXPECT_NEAR(ms[2 * i + 1] - ms[2 * i], extra[i], 1e-3) << i;
}

TEST(FaultSettingTest, OperationsWaitUnderTheWallClock) {
  const auto ms = slow_by("wall");
  ASSERT_EQ(ms.size(), 8U);
  EXPECT_GE(ms[3], 29.9);
  EXPECT_GE(ms[5], 39.9);
  EXPECT_GE(ms[7], 49.9);
}

/// A setting that never strikes changes nothing: arguments get through, also those on the stack.
int nothing_strikes() {
  const Prepared all;
  WANT(all.is_good);
  const std::array<unsigned, 4> from{1, 2, 3, 4};
  std::array<unsigned, 4> to{};
  WANT(cuMemcpyHtoD_v2(all.memory, from.data(), sizeof from) == 0);
  CUDA_MEMCPY2D shape{};
  shape.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  shape.srcDevice = all.memory;
  shape.srcPitch = shape.dstPitch = shape.WidthInBytes = 8;
  shape.dstMemoryType = CU_MEMORYTYPE_HOST;
  shape.dstHost = to.data();
  shape.Height = 2;
  WANT(cuMemcpy2D_v2(&shape) == 0 && to == from);
  WANT(all.store(all.stream, 3, 9) == 0 && cuStreamSynchronize(all.stream) == 0);
  WANT(all.stored(3) == 9);
  WANT(cuMemsetD2D32Async(all.memory, 8, 5, 1, 2, all.stream) == 0);
  WANT(cuStreamSynchronize(all.stream) == 0 && all.stored(0) == 5 && all.stored(2) == 5);
  WANT(all.stored(1) == 2);
  return 0;
}
const Child kNothing("nothing_strikes", nothing_strikes);

TEST(FaultSettingTest, WhatDoesNotStrikeChangesNothing) {
  EXPECT_EQ(run_child("nothing_strikes", {fault_is("cuInit:1000:error=1")}).exit_code, 0);
  EXPECT_EQ(run_child("nothing_strikes", {}).exit_code, 0);
}

}  // namespace
}  // namespace kansoku::softcuda
