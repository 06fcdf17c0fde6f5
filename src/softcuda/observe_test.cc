// SPDX-License-Identifier: Apache-2.0
// Launches that the program itself looks at, through the library's own two functions.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <array>
#include <cstdio>
#include <thread>

#include "softcuda/driver_for_test.h"
#include "softcuda/internal/observing.h"
#include "softcuda/telemetry/launch_observer.h"

namespace kansoku::softcuda {
namespace {

using gpu::exec::FaultKind;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::uint32_t kSummary = static_cast<std::uint32_t>(ObservedSection::kSummary);
constexpr std::uint32_t kHazards = static_cast<std::uint32_t>(ObservedSection::kHazards);

/// For 64 threads: a race at line 12, bytes that nobody wrote at line 13; then the end, or a trap.
std::string racing(const std::string& name, const std::string& last) {
  return ".visible .entry " + name + R"(()
{
	.reg .b32 %r<4>; .reg .b64 %rd<4>;
	.shared .align 4 .b8 s[512];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd1, %r1, 4;
	mov.u64 %rd2, s;
	add.u64 %rd3, %rd2, %rd1;
	st.shared.u32 [%rd3], %r1; ld.shared.u32 %r2, [s+4];
	ld.shared.u32 %r3, [%rd3+256];
	)" +
         last + ";\n}\n";
}

class ObserveTest : public DriverTest {
 protected:
  /// A kernel of `racing`.
  CUfunction racer(const std::string& last) {
    const std::string text =
        ".version 8.0\n.target sm_80\n.address_size 64\n" + racing("racer", last);
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    EXPECT_CU(0, cuModuleLoadData(&module, text.c_str()));
    EXPECT_CU(0, cuModuleGetFunction(&function, module, "racer"));
    return function;
  }
  static LaunchObserver observer(int device = 0) {
    static void* const library = dlopen(KANSOKU_SOFTCUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    return LaunchObserver::open(library, device).value();
  }
  static LaunchesSeen end(const LaunchObserver& observer) {
    auto seen = observer.end();
    EXPECT_TRUE(seen) << (seen ? "" : seen.error().what);
    return seen ? *std::move(seen) : LaunchesSeen{};
  }
  static ObservedSummary summary() {
    ObservedSummary summary{};
    std::uint64_t count = 0;
    EXPECT_CU(0, kansoku_softgpu_observed(0, kSummary, &summary, sizeof summary, 1, &count));
    EXPECT_EQ(count, 1U);
    return summary;
  }
};

TEST_F(ObserveTest, HazardsComeWithTheirLines) {
  OK(kansoku_softgpu_observe(0, kObserveHazards));
  OK(launch(racer("ret"), {1, 64}, nullptr));
  OK(cuCtxSynchronize());
  const LaunchesSeen seen = end(observer());
  EXPECT_EQ(seen.launches, 1U);
  EXPECT_GE(seen.hazard_count, 2U);
  ASSERT_EQ(seen.hazards.size(), 2U);
  EXPECT_EQ(seen.hazards[0].kind, "race in shared memory");
  EXPECT_EQ(seen.hazards[0].line, 12U);
  EXPECT_EQ(seen.hazards[1].kind, "uninitialised shared memory");
  EXPECT_THAT(seen.hazards[1].text, HasSubstr("load of 4 bytes at 0x100: kernel racer, ptx line 13,"
                                              " block (0, 0, 0), thread (0, 0, 0)"));
  EXPECT_GT(seen.hazards[1].launch, 0U);
  EXPECT_THAT(seen.hazards[1].text, Not(HasSubstr("launch"))) << "it has a place of its own";
  EXPECT_FALSE(seen.profile);
  EXPECT_THAT(seen.lines, IsEmpty());
}

TEST_F(ObserveTest, AFaultLeavesWhatWasSeenBeforeIt) {
  const CUfunction function = racer("trap");
  OK(kansoku_softgpu_observe(0, kObserveHazards | kObserveProfile));
  OK(launch(function, {1, 64}, nullptr));
  EXPECT_CU(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
  OK(cuDevicePrimaryCtxReset_v2(0));
  const LaunchesSeen seen = end(observer());
  EXPECT_EQ(seen.launches, 1U);
  EXPECT_EQ(seen.hazards.size(), 2U);
  EXPECT_TRUE(seen.profile) << "though the context has ended";
}

TEST_F(ObserveTest, CountsAreByClassAndByKernelAndLine) {
  const CUdeviceptr out = allocate(4 * 128);
  const LaunchObserver look = observer();
  ASSERT_TRUE(look.begin(kObserveProfile));
  for (int i = 0; i < 3; ++i)
    OK(launch(kernel("iota"), {2, 64}, nullptr, out, 128));
  OK(launch(kernel("store"), {}, nullptr, out, 1U));
  OK(cuCtxSynchronize());
  const LaunchesSeen seen = end(look);
  EXPECT_EQ(seen.launches, 4U);
  ASSERT_TRUE(seen.profile);
  EXPECT_EQ(seen.profile->global_requests, 3U * 4 + 1);
  EXPECT_EQ(seen.profile->global_sectors, 3U * 4 * 4 + 1);
  std::uint64_t of_iota = 0, of_lines = 0, of_classes = 0, stores = 0;
  for (const LaunchesSeen::Line& line : seen.lines) {
    of_lines += line.count.warps;
    of_iota += line.kernel == "iota" ? line.count.warps : 0;
    EXPECT_EQ(line.count.warps, line.kernel == "iota" ? 3U * 4 : 1U) << line.line;
    EXPECT_EQ(line.count.threads, line.kernel == "iota" ? 3U * 128 : 1U) << line.line;
  }
  for (const LaunchesSeen::Class& each : seen.classes) {
    of_classes += each.count.warps;
    stores += each.name == "global store" ? each.count.warps : 0;
  }
  EXPECT_GT(of_iota, 0U);
  EXPECT_LT(of_iota, of_lines);
  EXPECT_EQ(of_lines, of_classes);
  EXPECT_EQ(stores, 3U * 4 + 1);
  EXPECT_EQ(seen.hazard_count, 0U);
}

TEST_F(ObserveTest, OnlyLaunchesBetweenBeginAndEndOfThatDeviceAreSeen) {
  const auto run = [&] {
    OK(launch(kernel("nothing"), {}, nullptr));
    OK(cuCtxSynchronize());
  };
  run();
  OK(kansoku_softgpu_observe(0, kObserveProfile));
  OK(kansoku_softgpu_observe(0, 0));
  EXPECT_EQ(summary().launches, 0U);
  const LaunchesSeen nothing = end(observer());
  ASSERT_TRUE(nothing.profile);
  EXPECT_EQ(nothing.profile->branches, 0U);
  EXPECT_THAT(nothing.classes, IsEmpty());
  OK(kansoku_softgpu_observe(0, kObserveProfile));
  run();
  CUcontext other = nullptr;
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  OK(cuCtxSetCurrent(other));
  run();
  OK(cuCtxSetCurrent(context_));
  OK(kansoku_softgpu_observe(0, 0));
  EXPECT_EQ(summary().launches, 1U) << "not that of the other device";
  run();
  EXPECT_EQ(summary().launches, 1U);
  OK(kansoku_softgpu_observe(0, kObserveHazards));
  std::uint64_t count = 0;
  EXPECT_CU(CUDA_ERROR_NOT_READY, kansoku_softgpu_observed(0, kSummary, nullptr, 8, 0, &count));
  OK(kansoku_softgpu_observe(0, 0));
  EXPECT_EQ(summary().launches, 0U) << "a new begin drops what was seen";
}

TEST_F(ObserveTest, AGraphsKernelsAreSeenWhenTheyRun) {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec made = nullptr;
  OK(cuStreamCreate(&stream, 0));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(launch(kernel("nothing"), {}, stream));
  OK(launch(kernel("nothing"), {}, stream));
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphInstantiateWithFlags(&made, graph, 0));
  OK(kansoku_softgpu_observe(0, kObserveProfile));
  OK(cuGraphLaunch(made, stream));
  OK(cuGraphLaunch(made, stream));
  OK(cuCtxSynchronize());
  OK(kansoku_softgpu_observe(0, 0));
  EXPECT_EQ(summary().launches, 4U);
  OK(cuGraphExecDestroy(made));
  OK(cuGraphDestroy(graph));
}

TEST_F(ObserveTest, ProgramsOfOtherSizesGetWhatTheyKnow) {
  OK(kansoku_softgpu_observe(0, kObserveHazards));
  OK(launch(racer("ret"), {1, 64}, nullptr));
  OK(cuCtxSynchronize());
  OK(kansoku_softgpu_observe(0, 0));
  std::uint64_t count = 0;
  OK(kansoku_softgpu_observed(0, kHazards, nullptr, sizeof(ObservedHazard), 0, &count));
  ASSERT_EQ(count, 2U);
  std::array<ObservedHazard, 2> whole{};
  OK(kansoku_softgpu_observed(0, kHazards, whole.data(), sizeof whole[0], 2, &count));
  std::array<ObservedText, 2> older{};  // knew the first member alone
  OK(kansoku_softgpu_observed(0, kHazards, older.data(), sizeof older[0], 2, &count));
  struct Newer {
    ObservedHazard known;
    std::uint64_t more;
  };
  std::array<Newer, 3> newer{};
  newer[0].more = newer[1].more = newer[2].more = 7;
  OK(kansoku_softgpu_observed(0, kHazards, newer.data(), sizeof newer[0], 3, &count));
  EXPECT_EQ(count, 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(older[i].bytes, whole[i].kind.bytes);
    EXPECT_EQ(newer[i].known.line, whole[i].line);
    EXPECT_EQ(newer[i].more, 0U) << "unknown to the library";
  }
  EXPECT_EQ(newer[2].more, 7U) << "not touched";
  // One too few: nothing is copied, and the number is told.
  ObservedHazard alone{};
  count = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            kansoku_softgpu_observed(0, kHazards, &alone, sizeof alone, 1, &count));
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(alone.line, 0U);
}

TEST_F(ObserveTest, WhatCannotBeMeantIsRefused) {
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, kansoku_softgpu_observe(2, kObserveHazards));
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, kansoku_softgpu_observe(-1, kObserveHazards));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, kansoku_softgpu_observe(0, 1U << 31));
  OK(kansoku_softgpu_observe(0, kObserveHazards));
  OK(kansoku_softgpu_observe(0, 0));
  OK(kansoku_softgpu_observe(0, 0));  // ended already
  std::uint64_t count = 0;
  ObservedSummary summary{};
  for (const std::uint32_t section : {0U, 99U, ~0U})
    EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED,
              kansoku_softgpu_observed(0, section, &summary, sizeof summary, 1, &count));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            kansoku_softgpu_observed(0, kSummary, &summary, sizeof summary, 1, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            kansoku_softgpu_observed(0, kSummary, nullptr, sizeof summary, 1, &count));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            kansoku_softgpu_observed(0, kSummary, &summary, 0, 1, &count));
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE,
            kansoku_softgpu_observed(2, kSummary, &summary, sizeof summary, 1, &count));
}

TEST_F(ObserveTest, AnotherDriverCannotObserve) {
  void* const other = dlopen(KANSOKU_OTHER_DRIVER, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(other, nullptr);
  const auto refused = LaunchObserver::open(other, 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  EXPECT_THAT(refused.error().what, HasSubstr("this driver has no kansoku_softgpu_observe"));
  EXPECT_THAT(refused.error().hint, HasSubstr("make softgpu"));
  dlclose(other);
  const auto nowhere = observer(7).begin(kObserveHazards);
  ASSERT_FALSE(nowhere);
  EXPECT_THAT(nowhere.error().what, HasSubstr("on device 7: CUDA error 101"));
}

TEST_F(ObserveTest, ThreadsMayBeginAndEndWhileOthersLaunch) {
  constexpr int kRounds = 50;
  std::thread looks([] {
    for (int i = 0; i < kRounds; ++i) {
      EXPECT_CU(0, kansoku_softgpu_observe(0, kObserveProfile));
      std::this_thread::yield();
      EXPECT_CU(0, kansoku_softgpu_observe(0, 0));
      EXPECT_LE(summary().launches, static_cast<std::uint64_t>(kRounds));
    }
  });
  for (int i = 0; i < kRounds; ++i)
    EXPECT_CU(0, launch(kernel("nothing"), {}, nullptr));
  EXPECT_CU(0, cuCtxSynchronize());
  looks.join();
}

/// Before anybody looked, and before there are devices.
int look_too_early() {
  std::uint64_t count = 0;
  const int before = kansoku_softgpu_observe(0, kObserveHazards);
  if (cuInit(0) != CUDA_SUCCESS) return 1;
  std::printf("%d %d %d", before, kansoku_softgpu_observed(0, kSummary, nullptr, 8, 0, &count),
              kansoku_softgpu_observe(0, 0));
  return 0;
}
const Child kTooEarly("look_too_early", look_too_early);

TEST(ObserveProcessTest, ThereIsNothingBeforeTheFirstBegin) {
  const ChildRun run = run_child("look_too_early", {});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.output, "3 500 0");
}

TEST(SeenLaunchesTest, LinesAndHazardsAreBounded) {
  SeenLaunches launches(kObserveHazards | kObserveProfile, 3);
  gpu::exec::Observations seen;
  seen.hazard_count = 60;
  for (std::uint32_t line = 1; line <= 60; ++line) {
    gpu::exec::Fault hazard;
    hazard.kind = FaultKind::kSharedRace;
    hazard.kernel = "k";
    hazard.line = line;
    hazard.launch = 5;
    seen.hazards.push_back(hazard);
  }
  seen.profile.lines = {{1, {2, 64}}, {2, {2, 64}}};
  launches.add("k", seen);
  launches.add("k", seen);  // the same places
  for (gpu::exec::Fault& hazard : seen.hazards)
    hazard.line += 60;
  launches.add("l", seen);
  const SeenSections sections = launches.sections();
  EXPECT_THAT(sections.summary, ElementsAre(AllOf(Field(&ObservedSummary::launches, 3U),
                                                  Field(&ObservedSummary::hazard_count, 180U),
                                                  Field(&ObservedSummary::lines_left_out, 1U))));
  EXPECT_EQ(sections.hazards.size(), gpu::exec::Observations::kHazardsMax);
  ASSERT_EQ(sections.lines.size(), 3U);
  EXPECT_EQ(sections.lines[0].warps, 4U);
  EXPECT_EQ(sections.lines[2].warps, 2U);
  const auto text_of = [&](const ObservedText& place) {
    return sections.text.substr(place.at, place.bytes);
  };
  EXPECT_EQ(text_of(sections.lines[1].kernel), "k");
  EXPECT_EQ(text_of(sections.lines[2].kernel), "l");
  EXPECT_EQ(sections.lines[0].kernel.at, sections.lines[1].kernel.at) << "a text is there once";
}

}  // namespace
}  // namespace kansoku::softcuda
