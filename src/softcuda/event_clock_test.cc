// SPDX-License-Identifier: Apache-2.0
// A clock of the device that is not the host's: KANSOKU_SOFTGPU_EVENT_CLOCK.
#include "softcuda/internal/event_clock.h"

#include <gmock/gmock.h>
#include <time.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "softcuda/driver_for_test.h"

namespace kansoku::softcuda {
namespace {

using ::testing::HasSubstr;

TEST(EventClockTest, SettingsAreRead) {
  const auto both = clock_skew_from("offset_us=-250.5,drift_ppm=50");
  ASSERT_TRUE(both) << both.error().what;
  EXPECT_EQ(both->offset_ns, -250'500);
  EXPECT_EQ(both->drift_ppb, 50'000);
  const auto drift = clock_skew_from("drift_ppm=-0.001");
  ASSERT_TRUE(drift);
  EXPECT_EQ(drift->offset_ns, 0);
  EXPECT_EQ(drift->drift_ppb, -1);
  for (const char* const wrong :
       {"50", "offset_us", "offset_us=", "offset_us=x", "offset_us=nan", "offset_us=1,offset_us=2",
        "offset_us=1,", ",", "drift_ppm=1001", "offset_us=1e12", "offset_us=1;drift_ppm=2"}) {
    const auto refused = clock_skew_from(wrong);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_THAT(refused.error().what, HasSubstr(std::string("EVENT_CLOCK=") + wrong + ": \""));
  }
}

TEST(EventClockTest, OffsetAndDriftAddUp) {
  ManualClock host;
  EventClock clock(host);
  host.advance(std::chrono::hours{1000});
  EXPECT_EQ(clock.now(), host.now()) << "unless it is set apart";
  clock.set({7'000, 50'000});
  // 3.6e15 ns gain 50 ppm: 1.8e11 ns.
  EXPECT_EQ(clock.now() - host.now(), Nanos{7'000 + 180'000'000'000});
  const BootTime before = clock.now();
  host.advance(Nanos{20'000});
  EXPECT_EQ(clock.now() - before, Nanos{20'001});
  clock.set({0, -1'000'000});
  EXPECT_EQ(clock.now() - host.now(), Nanos{-3'600'000'000'000 - 20});
}

constexpr char kNow[] = R"(.version 8.0
.target sm_61
.address_size 64
.visible .entry now(.param .u64 out)
{
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [out];
	mov.u64 %rd2, %globaltimer;
	st.global.u64 [%rd1], %rd2;
	ret;
}
)";

double host_ns() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

/// The clock that the setting below makes.
double device_ns(double host) {
  return host * (1 + 1e-3) + 5e9;
}

/// Records the event between two looks at the host's clock.
struct Mark {
  double before{0}, after{0};
  bool is_good{false};
  explicit Mark(CUevent event) : before(host_ns()) {
    is_good = cuEventRecord(event, nullptr) == 0 && cuEventSynchronize(event) == 0;
    after = host_ns();
  }
};

/// Kernels and events read the device's clock: 5 s ahead, and it gains 1 ms in a second.
int clock_is_apart() {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction now = nullptr;
  CUdeviceptr out = 0;
  CUevent begin = nullptr, end = nullptr;
  if (cuInit(0) != 0 || cuCtxCreate_v2(&context, 0, 0) != 0 ||
      cuModuleLoadData(&module, kNow) != 0 || cuModuleGetFunction(&now, module, "now") != 0 ||
      cuMemAlloc_v2(&out, 8) != 0 || cuEventCreate(&begin, 0) != 0 || cuEventCreate(&end, 0) != 0)
    return 1;
  const double before = host_ns();
  if (launch(now, {}, nullptr, out) != 0 || cuCtxSynchronize() != 0) return 2;
  const double after = host_ns();
  std::uint64_t seen = 0;
  if (cuMemcpyDtoH_v2(&seen, out, sizeof seen) != 0) return 3;
  const auto ns = static_cast<double>(seen);
  // A double holds times of a machine that has been up for months to the microsecond.
  if (ns < device_ns(before) - 1e3 || ns > device_ns(after) + 1e3) return 4;
  // So long that what it gains stands out from what lies between the looks.
  for (double wait = 1e7; wait < 1e10; wait *= 2) {
    const Mark first(begin);
    while (host_ns() < first.after + wait) {
    }
    const Mark second(end);
    float ms = 0;
    if (!first.is_good || !second.is_good || cuEventElapsedTime(&ms, begin, end) != 0) return 5;
    const double elapsed = static_cast<double>(ms) * 1e6;
    const double least = second.before - first.after, most = second.after - first.before;
    const double step = elapsed * 1e-6;  // of a float
    if (elapsed < least * (1 + 1e-3) - step || elapsed > most * (1 + 1e-3) + step) return 6;
    if (most + step < least * (1 + 1e-3)) return 0;  // the host's clock cannot explain it
  }
  return 7;
}
const Child kApart("clock_is_apart", clock_is_apart);

TEST(EventClockProcessTest, KernelsAndEventsReadIt) {
  COVERS(cuEventElapsedTime);
  EXPECT_EQ(
      run_child("clock_is_apart", {"KANSOKU_SOFTGPU_EVENT_CLOCK=offset_us=5000000,drift_ppm=1000"})
          .exit_code,
      0);
  EXPECT_EQ(run_child("clock_is_apart", {}).exit_code, 4) << "the judge sees a clock that is not";
}

int clock_is_refused() {
  return cuInit(0);
}
const Child kRefused("clock_is_refused", clock_is_refused);

TEST(EventClockProcessTest, AWrongSettingEndsTheStart) {
  const std::string log =
      (std::filesystem::temp_directory_path() / ("softcuda_clock_" + std::to_string(getpid())))
          .string();
  const auto expect_refused = [&](std::initializer_list<std::string> environment,
                                  const char* line) {
    EXPECT_EQ(run_child("clock_is_refused", environment).exit_code, CUDA_ERROR_INVALID_VALUE);
    std::ostringstream text;
    text << std::ifstream(log).rdbuf();
    std::filesystem::remove(log);
    EXPECT_THAT(text.str(), HasSubstr(line));
  };
  expect_refused({"KANSOKU_SOFTGPU_EVENT_CLOCK=drift_ppm=5,x", "KANSOKU_SOFTGPU_LOG=" + log},
                 "KANSOKU_SOFTGPU_EVENT_CLOCK=drift_ppm=5,x: \"x\" is not");
  expect_refused({"KANSOKU_SOFTGPU_EVENT_CLOCK=drift_ppm=5", "KANSOKU_SOFTGPU_CLOCK=model",
                  "KANSOKU_SOFTGPU_LOG=" + log},
                 "KANSOKU_SOFTGPU_EVENT_CLOCK is for the wall clock");
}

}  // namespace
}  // namespace kansoku::softcuda
