// SPDX-License-Identifier: Apache-2.0
// The two clocks of the device: what events and kernels read.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <time.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "softcuda/driver_for_test.h"

namespace kansoku::softcuda {
namespace {

using ::testing::HasSubstr;

constexpr char kClockKernels[] = R"(.version 8.0
.target sm_61
.address_size 64

// 3 instructions a round: 16 cycles at sm_80; and 20 around them
.visible .entry spin(.param .u32 n)
{
	.reg .b32 %r<3>; .reg .pred %p<2>;
	ld.param.u32 %r1, [n];
	mov.u32 %r2, 0;
$again:
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p1, %r2, %r1;
	@%p1 bra $again;
	ret;
}

// one instruction more
.visible .entry spin_longer(.param .u32 n)
{
	.reg .b32 %r<3>; .reg .pred %p<2>;
	ld.param.u32 %r1, [n];
	mov.u32 %r2, 0;
$again:
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p1, %r2, %r1;
	@%p1 bra $again;
	mov.u32 %r2, 0;
	ret;
}

// out[0] = now
.visible .entry now(.param .u64 out)
{
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [out];
	mov.u64 %rd2, %globaltimer;
	st.global.u64 [%rd1], %rd2;
	ret;
}

// out[0] = number of this launch
.visible .entry number(.param .u64 out)
{
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [out];
	mov.u64 %rd2, %gridid;
	st.global.u64 [%rd1], %rd2;
	ret;
}
)";

/// In a child: ends it if a call fails.
void must(CUresult status, int line) {
  if (status == CUDA_SUCCESS) return;
  std::printf("error %d in line %d\n", static_cast<int>(status), line);
  std::fflush(nullptr);
  std::_Exit(1);
}
#define MUST(call) must(call, __LINE__)

constexpr std::size_t kBytes = 2'400'000;

/// Streams, memory and kernels of a process with the model clock.
class Timed {
 public:
  explicit Timed(const char* spin) {
    MUST(cuInit(0));
    MUST(cuCtxCreate_v2(&other_context_, 0, 1));
    MUST(cuMemAlloc_v2(&peer_, kBytes));
    MUST(cuCtxCreate_v2(&context_, 0, 0));
    for (CUstream* const stream : {&a, &b})
      MUST(cuStreamCreate(stream, kStreamNonBlocking));
    for (CUevent* const event : {&begin_, &joined_, &end_})
      MUST(cuEventCreate(event, 0));
    for (CUdeviceptr* const memory : {&from, &to})
      MUST(cuMemAlloc_v2(memory, kBytes));
    for (void** const memory : {&host, &other_host})
      MUST(cuMemAllocHost_v2(memory, kBytes));
    CUmodule module = nullptr;
    MUST(cuModuleLoadData(&module, kClockKernels));
    MUST(cuModuleGetFunction(&spin_, module, spin));
    MUST(cuModuleGetFunction(&now_, module, "now"));
  }

  void spin(CUstream stream, unsigned blocks = 1) {
    MUST(launch(spin_, {blocks, 32}, stream, std::uint32_t{1000}));
  }
  void now(std::size_t index) { MUST(launch(now_, {}, a, to + 8 * index)); }
  void copy_in(CUstream stream) { MUST(cuMemcpyHtoDAsync_v2(to, host, kBytes, stream)); }
  void copy_out(CUstream stream) { MUST(cuMemcpyDtoHAsync_v2(other_host, from, kBytes, stream)); }
  void copy_peer() { MUST(cuMemcpyPeerAsync(peer_, other_context_, from, context_, kBytes, a)); }
  void copy_box() {
    CUDA_MEMCPY2D box{};
    box.srcMemoryType = CU_MEMORYTYPE_HOST;
    box.srcHost = host;
    box.srcPitch = 2000;
    box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.dstDevice = to;
    box.dstPitch = 1000;
    box.WidthInBytes = 1000;
    box.Height = 1200;
    MUST(cuMemcpy2DAsync_v2(&box, a));
  }
  /// Two kernels, one behind the other or not.
  void graph(bool is_serial) {
    CUgraph graph = nullptr;
    MUST(cuGraphCreate(&graph, 0));
    std::uint32_t rounds = 1000;
    void* arguments[] = {&rounds};
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = spin_;
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = arguments;
    CUgraphNode first = nullptr, second = nullptr;
    MUST(cuGraphAddKernelNode_v2(&first, graph, nullptr, 0, &params));
    MUST(cuGraphAddKernelNode_v2(&second, graph, &first, is_serial ? 1 : 0, &params));
    CUgraphExec exec = nullptr;
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, a));
  }

  /// Prints how long it takes until what `work` puts into both streams is done.
  template <class Work>
  void print(const char* name, const Work& work) {
    MUST(cuEventRecord(begin_, a));
    MUST(cuStreamWaitEvent(b, begin_, 0));
    work();
    MUST(cuEventRecord(joined_, b));
    MUST(cuStreamWaitEvent(a, joined_, 0));
    MUST(cuEventRecord(end_, a));
    MUST(cuEventSynchronize(end_));
    float ms = 0;
    MUST(cuEventElapsedTime(&ms, begin_, end_));
    std::printf("%s %ld\n", name, std::lround(static_cast<double>(ms) * 1e6));
  }
  [[nodiscard]] std::uint64_t read(std::size_t index) const {
    std::uint64_t value = 0;
    MUST(cuMemcpyDtoH_v2(&value, to + 8 * index, sizeof value));
    return value;
  }

  CUstream a{nullptr}, b{nullptr};
  CUdeviceptr from{0}, to{0};
  void *host{nullptr}, *other_host{nullptr};

 private:
  CUcontext context_{nullptr}, other_context_{nullptr};
  CUdeviceptr peer_{0};
  CUevent begin_{nullptr}, joined_{nullptr}, end_{nullptr};
  CUfunction spin_{nullptr}, now_{nullptr};
};

void nothing(void*) {}

int print_times(const char* spin) {
  Timed t(spin);
  t.print("kernel", [&] { t.spin(t.a); });
  t.print("copy", [&] { t.copy_in(t.a); });
  t.print("box", [&] { t.copy_box(); });
  t.print("peer", [&] { t.copy_peer(); });
  t.print("within", [&] { MUST(cuMemcpyDtoDAsync_v2(t.to, t.from, 2'300'000, t.a)); });
  t.print("fill", [&] { MUST(cuMemsetD8Async(t.to, 1, 2'300'000, t.a)); });
  t.print("host", [&] { MUST(cuLaunchHostFunc(t.a, nothing, nullptr)); });
  t.print("kernel-beside-copy", [&] { t.spin(t.a), t.copy_in(t.b); });
  t.print("copies-of-a-direction", [&] { t.copy_in(t.a), t.copy_in(t.b); });
  t.print("copies-both-ways", [&] { t.copy_in(t.a), t.copy_out(t.b); });
  t.print("small-kernels", [&] { t.spin(t.a), t.spin(t.b); });
  t.print("full-kernels", [&] { t.spin(t.a, 16), t.spin(t.b, 16); });
  t.print("graph", [&] { t.graph(false); });
  t.print("graph-serial", [&] { t.graph(true); });
  t.now(0);
  t.now(1);
  MUST(cuStreamSynchronize(t.a));
  const std::uint64_t first = t.read(0), second = t.read(1);
  std::printf("timers %ld\n", static_cast<long>(second - first));
  std::printf("since-begin %ld\n", static_cast<long>(first));
  return 0;
}
const Child kModelTimes("model_times", [] { return print_times("spin"); });
const Child kModelTimesLonger("model_times_longer", [] { return print_times("spin_longer"); });

std::string model_times(const char* child, const char* workers, const char* arch = "sm_80") {
  const auto run = run_child(
      child, {"KANSOKU_SOFTGPU_CLOCK=model", fmt::format("KANSOKU_SOFTGPU_WORKERS={}", workers),
              fmt::format("KANSOKU_SOFTGPU_ARCH={}", arch)});
  EXPECT_EQ(run.exit_code, 0) << run.output;
  return run.output;
}

TEST(ModelClockTest, TimesAreThoseOfTheTable) {
  COVERS(cuEventElapsedTime);
  const std::string times = model_times("model_times", "1");
  const auto expect = [&](const char* name, int ns) {
    EXPECT_THAT(times, HasSubstr(fmt::format("{} {}\n", name, ns)));
  };
  // A launch: 3,000; 16,020 cycles at 1.41 GHz: 11,362. A copy: 4,000 and its bytes at 24 GB/s.
  expect("kernel", 3000 + 11362);
  expect("copy", 4000 + 100'000);
  expect("box", 4000 + 50'000);
  expect("peer", 4000 + 100'000);
  expect("within", 4000 + 20'000);
  expect("fill", 3000 + 10'000);
  expect("host", 5000);
  expect("kernel-beside-copy", 4000 + 100'000);
  expect("copies-of-a-direction", 4000 + 2 * 100'000);
  expect("copies-both-ways", 4000 + 100'000);
  expect("small-kernels", 3000 + 11362);
  expect("full-kernels", 3000 + 2 * 11362);
  expect("graph", 3000 + 1000 + 11362);
  expect("graph-serial", 3000 + 2 * (1000 + 11362));
  expect("timers", 86 + 3000);  // 120 cycles, and the next launch
}

TEST(ModelClockTest, TimesAreTheSameEveryTime) {
  const std::string times = model_times("model_times", "1");
  EXPECT_EQ(model_times("model_times", "1"), times);
  EXPECT_EQ(model_times("model_times", "4"), times) << "counts do not depend on who counts";
  EXPECT_NE(model_times("model_times_longer", "1"), times) << "one more instruction";
  EXPECT_NE(model_times("model_times", "1", "sm_61"), times) << "another device";
}

int init() {
  return static_cast<int>(cuInit(0));
}
const Child kInit("clock_init", init);

TEST(ModelClockTest, UnknownClocksAreRefused) {
  const auto run =
      run_child("clock_init", {"KANSOKU_SOFTGPU_CLOCK=sundial", "KANSOKU_SOFTGPU_LOG=/dev/stdout"});
  EXPECT_EQ(run.exit_code, CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(run.output, HasSubstr("KANSOKU_SOFTGPU_CLOCK=sundial: not wall or model"));
  EXPECT_EQ(run_child("clock_init", {"KANSOKU_SOFTGPU_CLOCK=wall"}).exit_code, 0);
}

TEST(ModelClockTest, TheTableOfTimesNamesTheClock) {
  const auto table = [](const char* clock) {
    return run_child("launch_and_exit",
                     {"KANSOKU_SOFTGPU_TIMES=5", "KANSOKU_SOFTGPU_LOG=/dev/stdout",
                      std::string("KANSOKU_SOFTGPU_CLOCK=") + clock})
        .output;
  };
  EXPECT_THAT(table("wall"), HasSubstr("kernels by time (wall clock): "));
  EXPECT_THAT(table("model"), HasSubstr("kernels by time (model clock): 0.000 ms in 3 launches"));
}

/// A stream waits for a value that the host writes when another stream's time is known.
int wait_for_each_other() {
  Timed t("spin");
  void* flag = nullptr;
  MUST(cuMemAllocHost_v2(&flag, 4));
  std::atomic_ref<std::uint32_t> value(*static_cast<std::uint32_t*>(flag));
  value.store(0);
  MUST(cuStreamWaitValue32_v2(t.b, reinterpret_cast<std::uintptr_t>(flag), 1, 0));
  t.spin(t.b);
  t.spin(t.a);
  MUST(cuStreamSynchronize(t.a));
  value.store(1);
  MUST(cuStreamSynchronize(t.b));
  return 0;
}
const Child kWaitForEachOther("wait_for_each_other", wait_for_each_other);

TEST(ModelClockTest, WaitsForLaterWorkEnd) {
  const auto run = run_child("wait_for_each_other", {"KANSOKU_SOFTGPU_CLOCK=model"});
  EXPECT_EQ(run.exit_code, 0) << run.output;
}

class WallClockTest : public DriverTest {
 protected:
  void SetUp() override {
    const char* const clock = std::getenv("KANSOKU_SOFTGPU_CLOCK");
    if (clock != nullptr && std::string(clock) != "wall") GTEST_SKIP() << "the other clock is set";
    DriverTest::SetUp();
    OK(cuModuleLoadData(&module_, kClockKernels));
  }
  CUfunction of_clock(const char* name) {
    CUfunction function = nullptr;
    EXPECT_CU(0, cuModuleGetFunction(&function, module_, name));
    return function;
  }
  static std::uint64_t boot_ns() {
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.tv_nsec);
  }
  CUmodule module_{nullptr};
};

TEST_F(WallClockTest, KernelsReadTheBootClock) {
  const CUdeviceptr out = allocate(8);
  const std::uint64_t before = boot_ns();
  OK(launch(of_clock("now"), {}, nullptr, out));
  const auto now = read<std::uint64_t>(out);
  EXPECT_GE(now, before);
  EXPECT_LE(now, boot_ns());
}

TEST_F(WallClockTest, LaunchesAreNumbered) {
  const CUdeviceptr out = allocate(8);
  const auto number = [&] {
    EXPECT_CU(0, launch(of_clock("number"), {}, nullptr, out));
    return read<std::uint64_t>(out);
  };
  const std::uint64_t first = number();
  EXPECT_GT(first, 0u);
  EXPECT_EQ(number(), first + 1);
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, kStreamNonBlocking));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(launch(of_clock("spin"), {}, stream, std::uint32_t{1}));
  OK(launch(of_clock("number"), {}, stream, out));
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(stream, &graph));
  CUgraphExec exec = nullptr;
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  for (int i = 0; i < 2; ++i)
    OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read<std::uint64_t>(out), first + 5) << "each launch of a graph's kernels has its own";
}

}  // namespace
}  // namespace kansoku::softcuda
