// SPDX-License-Identifier: Apache-2.0
// Calls, times, streams, clocks and losses; graphs: graph_nodes_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <thread>

#include "capture/cuda/stuck.h"
#include "capture/device_clock.h"
#include "library_for_test.h"

namespace kansoku {
namespace {

TEST_F(LibraryTest, TimesEveryOperationUnderItsName) {
  start();
  set(Mode::kEvery);
  for (int i = 0; i < 100; ++i)
    ASSERT_EQ(launch_store(stream_), 0);
  synchronize();
  const Seen seen = timed(WIRE_CUDA_LAUNCH, 100);
  std::int64_t end =
      std::numeric_limits<std::int64_t>::min() + 1000;  // of the clock that began later
  std::set<std::uint32_t> correlations;
  for (const auto& [record, what] : seen.records) {
    if (what != WIRE_CUDA_LAUNCH) continue;
    const auto kernel = channel_->kernel(record.u.launch.kernel);
    ASSERT_TRUE(kernel);
    EXPECT_EQ(kernel->name, "store");
    EXPECT_EQ(record.u.launch.grid_x, 1U);
    EXPECT_GE(record.device_begin_ns, end - 1000);  // one after the other; times are floats of ms
    end = record.device_begin_ns + static_cast<std::int64_t>(record.device_ns);
    EXPECT_TRUE(correlations.insert(record.correlation).second);
  }
  EXPECT_EQ(seen.count(WIRE_CUDA_LAUNCH, WIRE_CUDA_TIMED, 0), 100U);
  EXPECT_EQ(untimed(), 0U);
  EXPECT_EQ(calls("cuLaunchKernel"), 100U);
}

TEST_F(LibraryTest, IsSeenThroughTheResolverToo) {
  start();
  set(Mode::kEvery);
  void* found = nullptr;
  ASSERT_EQ(entry<CUresult(const char*, void**, int, std::uint64_t)>("cuGetProcAddress")(
                "cuLaunchKernel", &found, 13000, 0),
            0);
  EXPECT_EQ(found, dlsym(library_, "cuLaunchKernel"));
  std::uint32_t value = 1;
  void* arguments[] = {&memory_, &value};
  ASSERT_EQ(reinterpret_cast<LaunchKernel*>(found)(function("store"), 1, 1, 1, 1, 1, 1, 0, stream_,
                                                   arguments, nullptr),
            0);
  EXPECT_EQ(calls("cuLaunchKernel"), 1U);
  // The resolver is asked for itself, and for the form of another version.
  void* resolver = nullptr;
  ASSERT_EQ(entry<CUresult(const char*, void**, int, std::uint64_t)>("cuGetProcAddress")(
                "cuGetProcAddress", &resolver, 12000, 0),
            0);
  EXPECT_EQ(resolver, dlsym(library_, "cuGetProcAddress_v2"));
}

/// The readings of the context's clock so far, as a recorder takes them.
capture::DeviceClock clock_of(const Seen& seen) {
  capture::DeviceClock out("test");
  for (const auto& [record, what] : seen.records) {
    if (record.entry != WIRE_CUDA_CLOCK) continue;
    out.add(record.device_begin_ns, boot_time(static_cast<std::int64_t>(record.host_begin_ns)),
            boot_time(static_cast<std::int64_t>(record.device_ns)));
  }
  return out;
}

std::size_t readings(const Seen& seen) {
  return static_cast<std::size_t>(
      std::count_if(seen.records.begin(), seen.records.end(),
                    [](const auto& one) { return one.first.entry == WIRE_CUDA_CLOCK; }));
}

// Between the call and the return of the wait that covers it, whatever the device's clock says.
TEST_F(LibraryTest, MapsAClockThatIsOffAndDrifts) {
  setenv("KANSOKU_SOFTGPU_EVENT_CLOCK", "offset_us=123456789,drift_ppm=50", 1);
  start();
  set(Mode::kEvery);
  const sys::RealClock boot;
  Seen seen;
  std::vector<std::int64_t> waited;
  wait([&] {
    launch_store(stream_);
    synchronize();
    waited.push_back(boot.now().time_since_epoch().count());
    take(seen);
    return readings(seen) >= 12;
  });
  const capture::DeviceClock clock = clock_of(seen);
  EXPECT_EQ(clock.restarts(), 0U);
  std::size_t checked = 0;
  for (const auto& [record, what] : seen.records) {
    if (what != WIRE_CUDA_LAUNCH || (record.flags & WIRE_CUDA_TIMED) == 0) continue;
    const auto mapped = clock.to_boot(record.device_begin_ns);
    ASSERT_TRUE(mapped);
    const std::int64_t at = mapped->time.time_since_epoch().count(), error = mapped->error.count();
    const auto call = static_cast<std::int64_t>(record.host_begin_ns);
    const auto end = std::upper_bound(waited.begin(), waited.end(), call);
    ASSERT_NE(end, waited.end());
    EXPECT_GE(at + error, call);
    EXPECT_LE(at - error, *end);
    ++checked;
  }
  EXPECT_GT(checked, 10U);
}

TEST_F(LibraryTest, SeesThatAModelsClockIsNoClockOfTime) {
  setenv("KANSOKU_SOFTGPU_CLOCK", "model", 1);
  start();
  set(Mode::kEvery);
  Seen seen;
  wait([&] {
    launch_store(stream_);
    synchronize();
    take(seen);
    return readings(seen) >= 3;
  });
  EXPECT_GT(clock_of(seen).restarts(), 0U);
}

TEST_F(LibraryTest, EachThunkBeginsWithANopForProbes) {
  const auto* const code =
      reinterpret_cast<const unsigned char*>(dlsym(library_, "cuLaunchKernel"));
  EXPECT_EQ(*code, 0x90);
}

TEST_F(LibraryTest, FallsDormantWithItsLease) {
  start();
  const sys::RealClock clock;
  channel_->request(Mode::kEvery, 0, clock.now() + std::chrono::milliseconds{50});
  wait([&] { return channel_->mode() == Mode::kEvery; });
  wait([&] { return channel_->mode() == Mode::kDormant; });
  const std::uint64_t before = calls("cuLaunchKernel");
  ASSERT_EQ(launch_store(stream_), 0);
  EXPECT_EQ(calls("cuLaunchKernel"), before);
}

TEST_F(LibraryTest, HasOneRecorderAtATime) {
  start();
  set(Mode::kSampled);
  const auto second = Channel::open(sys::Procfs(), getpid());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  EXPECT_TRUE(Channel::open(sys::Procfs(), getpid(), Channel::Access::kLook));
  channel_.reset();
  auto third = Channel::open(sys::Procfs(), getpid());
  ASSERT_TRUE(third) << third.error().what;
}

TEST_F(LibraryTest, TimesOneInNButCountsAll) {
  start();
  set(Mode::kSampled, 40);
  constexpr int kLaunches = 5000;
  for (int i = 0; i < kLaunches; ++i)
    ASSERT_EQ(launch_store(stream_), 0);
  synchronize();
  EXPECT_EQ(calls("cuLaunchKernel"), static_cast<std::uint64_t>(kLaunches));
  // One in forty, and the first ones of each kernel until they are known; seeded, so the same
  // always.
  EXPECT_GT(channel_->state().timed, kLaunches / 80U);
  EXPECT_LT(channel_->state().timed, kLaunches / 20U);
  EXPECT_EQ(channel_->state().losses.no_event, 0U);
}

TEST_F(LibraryTest, PutsNothingIntoACapture) {
  start();
  set(Mode::kEvery);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_EQ(entry<CUresult(CUstream, int)>("cuStreamBeginCapture_v2")(stream_, 0), 0);
  ASSERT_EQ(launch_store(stream_), 0);
  ASSERT_EQ(launch_store(stream_), 0);
  ASSERT_EQ(entry<CUresult(CUstream, CUgraph*)>("cuStreamEndCapture")(stream_, &graph), 0);
  std::size_t nodes = 0;
  ASSERT_EQ(entry<CUresult(CUgraph, CUgraphNode*, std::size_t*)>("cuGraphGetNodes")(graph, nullptr,
                                                                                    &nodes),
            0);
  EXPECT_EQ(nodes, 2U);
  ASSERT_EQ(entry<CUresult(CUgraphExec*, CUgraph, unsigned long long)>(
                "cuGraphInstantiateWithFlags")(&exec, graph, 0),
            0);
  ASSERT_EQ(entry<CUresult(CUgraphExec, CUstream)>("cuGraphLaunch")(exec, stream_), 0);
  synchronize();
  const Seen seen = timed(WIRE_CUDA_GRAPH_LAUNCH, 1);
  EXPECT_EQ(seen.count(WIRE_CUDA_LAUNCH, WIRE_CUDA_CAPTURED, WIRE_CUDA_TIMED), 2U);
  EXPECT_EQ(seen.count(WIRE_CUDA_LAUNCH, WIRE_CUDA_TIMED, 0), 0U);
}

TEST_F(LibraryTest, DoesNotRecordForAForkedChild) {
  start();
  set(Mode::kEvery);
  ASSERT_EQ(launch_store(stream_), 0);
  synchronize();
  timed(WIRE_CUDA_LAUNCH, 1);
  const std::uint64_t before = calls("cuLaunchKernel");
  const pid_t child = fork();
  if (child == 0) {
    launch_store(stream_);
    _exit(7);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(calls("cuLaunchKernel"), before);
}

TEST_F(LibraryTest, LivesWithThousandsOfStreams) {
  start();
  set(Mode::kEvery);
  constexpr std::size_t kStreams = 6000;
  for (std::size_t i = 0; i < kStreams; ++i) {
    CUstream stream = nullptr;
    ASSERT_EQ(entry<CUresult(CUstream*, unsigned)>("cuStreamCreate")(&stream, 1), 0);
    ASSERT_EQ(launch_store(stream), 0);
    ASSERT_EQ(entry<CUresult(CUstream)>("cuStreamDestroy_v2")(stream), 0);
  }
  ASSERT_EQ(entry<CUresult()>("cuCtxSynchronize")(), 0);
  Seen seen;
  wait([&] {
    take(seen);
    return seen.count(WIRE_CUDA_LAUNCH, WIRE_CUDA_TIMED, 0) + untimed() >= kStreams;
  });
  EXPECT_EQ(seen.count(WIRE_CUDA_LAUNCH, WIRE_CUDA_TIMED, 0) + untimed(), kStreams);
}

TEST_F(LibraryTest, CountsTwoThreadsOnOneStream) {
  start();
  set(Mode::kEvery);
  ASSERT_NE(store_ = function("store"), nullptr);
  constexpr std::size_t kEach = 2000;
  const auto work = [&] {
    entry<CUresult(CUcontext)>("cuCtxSetCurrent")(context_);
    for (std::size_t i = 0; i < kEach; ++i)
      launch_store(stream_);
  };
  std::thread other(work);
  work();
  other.join();
  synchronize();
  Seen seen;
  wait([&] {
    take(seen);
    return seen.count(WIRE_CUDA_LAUNCH, WIRE_CUDA_TIMED, 0) + untimed() >= 2 * kEach;
  });
  EXPECT_EQ(seen.count(WIRE_CUDA_LAUNCH, WIRE_CUDA_TIMED, 0) + untimed(), 2 * kEach);
  EXPECT_EQ(calls("cuLaunchKernel"), 2 * kEach);
}

// A training of PyTorch: the forward part by one thread, the backward part by another, both on the
// legacy stream; all other streams are non-blocking.
TEST_F(LibraryTest, TimesTheLegacyStreamOfManyThreads) {
  start();
  set(Mode::kEvery);
  constexpr int kSteps = 20, kEach = 5;
  const std::uint64_t before = untimed();
  store_ = function("store");
  const auto work = [&] {
    entry<CUresult(CUcontext)>("cuCtxSetCurrent")(context_);
    for (int i = 0; i < kEach; ++i)
      EXPECT_EQ(launch_store(nullptr), 0);
  };
  for (int step = 0; step < kSteps; ++step) {
    work();
    std::thread(work).join();
  }
  ASSERT_EQ(entry<CUresult()>("cuCtxSynchronize")(), 0);
  timed(WIRE_CUDA_LAUNCH, 2 * kSteps * kEach - 1);  // but the one during which the second came
  EXPECT_LE(untimed() - before, 1U);
}

TEST_F(LibraryTest, LeavesALegacyStreamThatOthersWaitForAlone) {
  start();
  CUstream blocking = nullptr;
  ASSERT_EQ(entry<CUresult(CUstream*, unsigned)>("cuStreamCreate")(&blocking, 0), 0);  // dormant
  set(Mode::kEvery);
  ASSERT_EQ(launch_store(nullptr), 0);
  std::thread([&] {
    entry<CUresult(CUcontext)>("cuCtxSetCurrent")(context_);
    launch_store(stream_);
  }).join();
  const auto lost = [&] {
    const std::uint64_t before = channel_->state().losses.legacy;
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(launch_store(nullptr), 0);
    return channel_->state().losses.legacy - before;
  };
  EXPECT_EQ(lost(), 5U);
  ASSERT_EQ(entry<CUresult(CUstream)>("cuStreamDestroy_v2")(blocking), 0);
  EXPECT_EQ(lost(), 0U) << "nobody waits for it any more";
}

TEST_F(LibraryTest, CountsErrorsAndLosesNoEvents) {
  start();
  set(Mode::kEvery);
  std::uint32_t value = 1;
  void* arguments[] = {&memory_, &value};
  for (int i = 0; i < 10'000; ++i) {  // more than there are events
    EXPECT_NE(entry<LaunchKernel>("cuLaunchKernel")(function("store"), 0, 1, 1, 1, 1, 1, 0, stream_,
                                                    arguments, nullptr),
              0);
    Seen seen;
    take(seen);
  }
  ASSERT_EQ(launch_store(stream_), 0);
  const Seen seen = timed(WIRE_CUDA_LAUNCH, 1);
  for (const auto& entry : channel_->entries()) {
    if (entry.name == "cuLaunchKernel") {
      EXPECT_EQ(entry.failed, 10'000U);
      EXPECT_EQ(entry.calls, 10'001U);
    }
  }
  EXPECT_EQ(channel_->state().losses.no_event, 0U);
}

TEST_F(LibraryTest, KnowsAHandleThatIsGivenOutAgain) {
  start();
  set(Mode::kEvery);
  for (const char* const name : {"store", "iota", "of_64", "store"}) {
    const CUfunction found = function(name);
    const auto last = channel_->kernel(channel_->kernel_count() - 1);
    ASSERT_TRUE(last);
    EXPECT_EQ(last->name, name);
    EXPECT_EQ(last->handle, reinterpret_cast<std::uintptr_t>(found));
    ASSERT_EQ(entry<CUresult(CUmodule)>("cuModuleUnload")(module_), 0);
    load();
  }
}

TEST_F(LibraryTest, OutlivesItsContext) {
  start();
  set(Mode::kEvery);
  for (int i = 0; i < 50; ++i)
    ASSERT_EQ(launch_store(stream_), 0);
  ASSERT_EQ(entry<CUresult(CUdevice)>("cuDevicePrimaryCtxReset_v2")(0), 0);
  ASSERT_EQ(entry<CUresult(CUcontext*, CUdevice)>("cuDevicePrimaryCtxRetain")(&context_, 0), 0);
  ASSERT_EQ(entry<CUresult(CUcontext)>("cuCtxSetCurrent")(context_), 0);
  load();
  store_ = nullptr;
  ASSERT_EQ(entry<CUresult(CUstream*, unsigned)>("cuStreamCreate")(&stream_, 1), 0);
  ASSERT_EQ(entry<CUresult(CUdeviceptr*, std::size_t)>("cuMemAlloc_v2")(&memory_, 1 << 16), 0);
  for (int i = 0; i < 50; ++i)
    ASSERT_EQ(launch_store(stream_), 0);
  synchronize();
  Seen seen;
  wait([&] {
    take(seen);
    return seen.count(WIRE_CUDA_LAUNCH, WIRE_CUDA_TIMED, 0) + untimed() >= 100;
  });
  EXPECT_EQ(seen.count(WIRE_CUDA_LAUNCH, WIRE_CUDA_TIMED, 0) + untimed(), 100U);
}

TEST_F(LibraryTest, CountsRecordsThatFindNoRoom) {
  start();
  set(Mode::kEvery);
  const std::size_t many = WIRE_CUDA_RING_SLOTS + 5000;
  for (std::size_t i = 0; i < many; ++i)  // each is a record: memory that was never allocated
    entry<CUresult(CUdeviceptr)>("cuMemFree_v2")(CUdeviceptr{1});
  Seen seen;
  take(seen);
  EXPECT_GT(channel_->state().losses.ring_full, 0U);
  // Readings of the clock lie in the ring, too.
  EXPECT_LE(seen.count(WIRE_CUDA_FREE, WIRE_CUDA_FAILED, 0) + channel_->state().losses.ring_full,
            many + seen.records.size());
  EXPECT_GE(seen.count(WIRE_CUDA_FREE, WIRE_CUDA_FAILED, 0) + channel_->state().losses.ring_full,
            many);
}

TEST_F(LibraryTest, ShowsWhatIsStuckAndWhoWaits) {
  start();
  set(Mode::kEvery);
  auto* const flag = static_cast<volatile std::uint32_t*>([&] {
    void* memory = nullptr;
    entry<CUresult(void**, std::size_t)>("cuMemAllocHost_v2")(&memory, 4);
    return memory;
  }());
  *flag = 0;
  auto address = reinterpret_cast<std::uintptr_t>(flag);
  void* arguments[] = {&address, &memory_};
  ASSERT_EQ(entry<LaunchKernel>("cuLaunchKernel")(function("await"), 1, 1, 1, 1, 1, 1, 0, stream_,
                                                  arguments, nullptr),
            0);
  std::thread waiter([&] {
    entry<CUresult(CUcontext)>("cuCtxSetCurrent")(context_);
    entry<CUresult(CUstream)>("cuStreamSynchronize")(stream_);
  });
  wait([&] {
    const auto streams = channel_->streams();
    return !streams.empty() && streams[0].waiting_since_ns != 0 && streams[0].is_begun &&
           !channel_->waiters().empty();
  });
  const auto streams = channel_->streams();
  EXPECT_EQ(channel_->kernel(streams[0].kernel)->name, "await");
  EXPECT_EQ(channel_->waiters()[0].entry, "cuStreamSynchronize");
  const auto later = streams[0].waiting_since_ns + 6'000'000'000;
  const auto known = [](std::uint32_t, std::uint32_t) {
    return std::optional(capture::cuda::History{100, 1e6});
  };
  const auto stuck = capture::cuda::find_stuck(streams, later, known);
  ASSERT_EQ(stuck.size(), 1U);
  EXPECT_EQ(stuck[0].kind, capture::cuda::StuckKind::kStuck);
  *flag = 1;
  waiter.join();
  wait([&] { return channel_->streams()[0].waiting_since_ns == 0; });
}

/// With a driver that gives every kernel the same handle.
class OneHandleTest : public LibraryTest {
 protected:
  void SetUp() override {
    LibraryTest::SetUp();
    setenv("KANSOKU_CUDA_DRIVER", KANSOKU_NULL_DRIVER, 1);
  }
};

TEST_F(OneHandleTest, GivesItTheNameThatItWasAskedForLast) {
  ASSERT_EQ(entry<CUresult(unsigned)>("cuInit")(0), CUDA_SUCCESS);
  const CUfunction first = function("first"), second = function("second");
  ASSERT_EQ(first, second);
  auto channel = Channel::open(sys::Procfs(), getpid());
  ASSERT_TRUE(channel) << channel.error().what;
  channel_ = std::move(*channel);
  set(Mode::kEvery);
  ASSERT_EQ(
      entry<LaunchKernel>("cuLaunchKernel")(second, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
      0);
  for (std::uint32_t i = 0; i < channel_->kernel_count(); ++i)
    EXPECT_EQ(channel_->kernel(i)->launches, channel_->kernel(i)->name == "second" ? 1U : 0U);
}

class NoDriverTest : public ::testing::Test {};

TEST_F(NoDriverTest, SaysThatThereIsNoDevice) {
  setenv("KANSOKU_CUDA_DRIVER", "/nowhere/libcuda.so.1", 1);
  setenv("LD_LIBRARY_PATH", "", 1);
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr) GTEST_SKIP() << "has a driver";
  void* const library = dlopen(KANSOKU_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr);
  const auto call = [&](const char* name) {
    return reinterpret_cast<int (*)(unsigned long, void*, void*, void*, void*)>(
        dlsym(library, name))(0, nullptr, nullptr, nullptr, nullptr);
  };
  for (const char* const name : {"cuInit", "cuDeviceGetCount", "cuLaunchKernel", "cuGetErrorName",
                                 "cuGetProcAddress_v2", "cuGraphicsUnregisterResource"})
    EXPECT_EQ(call(name), CUDA_ERROR_NO_DEVICE) << name;
}

}  // namespace
}  // namespace kansoku
