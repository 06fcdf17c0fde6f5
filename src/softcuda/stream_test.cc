// SPDX-License-Identifier: Apache-2.0
// Streams, events, callbacks, operations on values.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "softcuda/driver_for_test.h"

namespace kansoku::softcuda {
namespace {

class StreamTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    flag_ = pinned();
    log_ = pinned();
  }
  CUstream stream(unsigned flags = 0) {
    CUstream made = nullptr;
    EXPECT_CU(0, cuStreamCreate(&made, flags));
    return made;
  }
  /// Later work of the stream has to wait for open(); open_with() sets the value that it sees then.
  void close(CUstream stream) {
    *flag_ = 0;
    EXPECT_CU(0, launch(kernel("await"), {}, stream, address(flag_), allocate(4)));
  }
  void open() { *flag_ = 1; }
  /// Adds a bit to the log.
  void append(CUstream stream, std::uint32_t bit) {
    EXPECT_CU(0, launch(kernel("append"), {}, stream, address(log_), bit));
  }

  volatile std::uint32_t* flag_{nullptr};
  volatile std::uint32_t* log_{nullptr};
};

TEST_F(StreamTest, LaunchesReturnBeforeTheKernelEnds) {
  COVERS(cuStreamCreate, cuStreamQuery, cuStreamSynchronize);
  const CUstream mine = stream();
  const CUdeviceptr out = allocate(4);
  OK(launch(kernel("await"), {}, mine, address(flag_), out));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(mine));
  *flag_ = 12;
  OK(cuStreamSynchronize(mine));
  EXPECT_CU(CUDA_SUCCESS, cuStreamQuery(mine));
  EXPECT_EQ(read(out), 12U);
}

TEST_F(StreamTest, WorkOfAStreamIsInOrder) {
  COVERS(cuStreamSynchronize);
  const CUstream mine = stream(kStreamNonBlocking);
  *log_ = 1;
  for (std::uint32_t i = 0; i < 20; ++i)
    append(mine, i % 3 == 0 ? 1 : 0);
  OK(cuStreamSynchronize(mine));
  std::uint32_t expected = 1;
  for (std::uint32_t i = 0; i < 20; ++i)
    expected = expected * 2 + (i % 3 == 0 ? 1 : 0);
  EXPECT_EQ(*log_, expected);
}

TEST_F(StreamTest, PropertiesAreThoseItWasMadeWith) {
  COVERS(cuStreamCreateWithPriority, cuStreamGetPriority, cuStreamGetFlags, cuStreamGetId,
         cuStreamGetCtx, cuStreamGetDevice, cuStreamDestroy_v2);
  CUstream mine = nullptr;
  OK(cuStreamCreateWithPriority(&mine, kStreamNonBlocking, -3));
  int priority = 9;
  OK(cuStreamGetPriority(mine, &priority));
  EXPECT_EQ(priority, -3);
  unsigned flags = 9;
  OK(cuStreamGetFlags(mine, &flags));
  EXPECT_EQ(flags, 1U);
  OK(cuStreamGetFlags(nullptr, &flags));
  EXPECT_EQ(flags, 0U);
  CUstream least = nullptr;
  OK(cuStreamCreateWithPriority(&least, 0, 100));
  OK(cuStreamGetPriority(least, &priority));
  EXPECT_EQ(priority, 0);
  unsigned long long id = 0, other_id = 0, legacy_id = 0, again = 0;
  OK(cuStreamGetId(mine, &id));
  OK(cuStreamGetId(least, &other_id));
  OK(cuStreamGetId(nullptr, &legacy_id));
  OK(cuStreamGetId(kLegacyStream, &again));
  EXPECT_NE(id, other_id);
  EXPECT_EQ(legacy_id, again);
  CUcontext context = nullptr;
  CUdevice device = -1;
  OK(cuStreamGetCtx(mine, &context));
  EXPECT_EQ(context, context_);
  OK(cuStreamGetDevice(mine, &device));
  EXPECT_EQ(device, 0);
  OK(cuStreamDestroy_v2(mine));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuStreamGetPriority(mine, &priority));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(mine));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&mine, 2));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(nullptr, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamGetPriority(least, nullptr));
}

TEST_F(StreamTest, ADestroyedOneFinishesItsWork) {
  COVERS(cuStreamDestroy_v2);
  const CUstream mine = stream();
  close(mine);
  append(mine, 1);
  OK(cuStreamDestroy_v2(mine));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(mine));
  open();
  OK(cuCtxSynchronize());
  EXPECT_EQ(*log_, 1U);
}

TEST_F(StreamTest, TheLegacyStreamWaitsForBlockingOnesAndTheyForIt) {
  COVERS(cuStreamQuery);
  const CUstream blocking = stream(), free = stream(kStreamNonBlocking);
  close(blocking);
  append(nullptr, 1);  // behind the blocking stream
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));
  const CUdeviceptr out = allocate(4);
  OK(launch(kernel("store"), {}, free, out, 3U));  // past both
  OK(cuStreamSynchronize(free));
  EXPECT_EQ(*log_, 0U);
  const CUstream second = stream();
  append(second, 0);  // behind the legacy stream
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(second));
  open();
  OK(cuStreamSynchronize(second));
  EXPECT_EQ(*log_, 2U);
  // To wait for the legacy stream is to wait for the blocking ones as well.
  close(blocking);
  std::thread release([&] { open(); });
  OK(cuStreamSynchronize(kLegacyStream));
  release.join();
  EXPECT_CU(CUDA_SUCCESS, cuStreamQuery(blocking));
}

TEST_F(StreamTest, EveryThreadMayHaveADefaultStream) {
  COVERS(cuStreamGetId_ptsz, cuStreamQuery_ptsz, cuStreamSynchronize_ptsz, cuLaunchKernel_ptsz);
  unsigned long long mine = 0, same = 0, theirs = 0, legacy = 0;
  OK(cuStreamGetId_ptsz(nullptr, &mine));
  OK(cuStreamGetId(kPerThreadStream, &same));
  OK(cuStreamGetId_ptsz(kLegacyStream, &legacy));
  EXPECT_EQ(mine, same);
  EXPECT_NE(mine, legacy);
  // It is a blocking one, and another thread's does not wait for it.
  const CUdeviceptr out = allocate(4), gate = allocate(4);
  CUfunction store = kernel("store");
  Params<CUdeviceptr, CUdeviceptr> params(address(flag_), gate);
  OK(cuLaunchKernel_ptsz(kernel("await"), 1, 1, 1, 1, 1, 1, 0, nullptr, params.get(), nullptr));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery_ptsz(nullptr));
  std::thread([&] {
    EXPECT_CU(0, cuCtxSetCurrent(context_));
    EXPECT_CU(0, cuStreamGetId_ptsz(nullptr, &theirs));
    Params<CUdeviceptr, std::uint32_t> arguments(out, 8U);
    EXPECT_CU(0,
              cuLaunchKernel_ptsz(store, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments.get(), nullptr));
    EXPECT_CU(0, cuStreamSynchronize_ptsz(nullptr));
    std::uint32_t value = 0;
    EXPECT_CU(0, cuMemcpyDtoH_v2_ptds(&value, out, 4));
    EXPECT_EQ(value, 8U);
  }).join();
  EXPECT_NE(theirs, mine);
  append(nullptr, 1);
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));
  open();
  OK(cuStreamSynchronize_ptsz(nullptr));
  OK(cuCtxSynchronize());
  EXPECT_EQ(*log_, 1U);
}

TEST_F(StreamTest, FormsForThreadsUseTheThreadsStream) {
  COVERS(cuMemcpyHtoD_v2_ptds, cuMemsetD8_v2_ptds, cuMemcpyDtoH_v2_ptds, cuMemcpy_ptds,
         cuEventRecord_ptsz, cuMemAllocAsync_ptsz, cuMemFreeAsync_ptsz, cuLaunchHostFunc_ptsz);
  // A non-blocking stream does not hold them up, but the legacy stream does.
  const CUstream free = stream(kStreamNonBlocking);
  close(free);
  const CUdeviceptr memory = allocate(8);
  std::uint32_t value = 77;
  OK(cuMemcpyHtoD_v2_ptds(memory, &value, 4));
  OK(cuMemcpy_ptds(memory + 4, memory, 4));
  value = 0;
  OK(cuMemcpyDtoH_v2_ptds(&value, memory + 4, 4));
  EXPECT_EQ(value, 77U);
  OK(cuMemsetD8_v2_ptds(memory, 0, 8));
  CUdeviceptr pooled = 0;
  OK(cuMemAllocAsync_ptsz(&pooled, 64, nullptr));
  OK(cuMemFreeAsync_ptsz(pooled, nullptr));
  CUevent event = nullptr;
  OK(cuEventCreate(&event, 0));
  std::atomic<int> calls{0};
  OK(cuLaunchHostFunc_ptsz(
      nullptr, [](void* data) { ++*static_cast<std::atomic<int>*>(data); }, &calls));
  OK(cuEventRecord_ptsz(event, nullptr));
  OK(cuEventSynchronize(event));
  EXPECT_EQ(calls, 1);
  open();
}

TEST_F(StreamTest, EventsMarkAPlace) {
  COVERS(cuEventCreate, cuEventDestroy_v2, cuEventRecord, cuEventRecordWithFlags, cuEventQuery,
         cuEventSynchronize);
  CUevent event = nullptr;
  OK(cuEventCreate(&event, 0));
  EXPECT_CU(CUDA_SUCCESS, cuEventQuery(event));  // never recorded
  OK(cuEventSynchronize(event));
  const CUstream mine = stream();
  close(mine);
  OK(cuEventRecord(event, mine));
  append(mine, 1);
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  std::thread release([&] { open(); });
  OK(cuEventSynchronize(event));
  release.join();
  EXPECT_CU(CUDA_SUCCESS, cuEventQuery(event));
  OK(cuEventRecordWithFlags(event, mine, 1));  // outside a capture as without
  OK(cuEventSynchronize(event));
  EXPECT_EQ(*log_, 1U);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuEventRecordWithFlags(event, mine, 2));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&event, 64));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, garbage<CUstream>()));
  OK(cuEventDestroy_v2(event));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy_v2(event));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, mine));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuStreamWaitEvent(mine, event, 0));
}

TEST_F(StreamTest, EventsAreOfTheirContext) {
  COVERS(cuEventRecord);
  CUevent event = nullptr;
  OK(cuEventCreate(&event, 0));
  CUcontext other = nullptr;
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  OK(cuCtxSetCurrent(other));
  const CUstream theirs = stream();
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, theirs));
  // But other contexts' streams may wait for it.
  OK(cuStreamWaitEvent(theirs, event, 0));
}

TEST_F(StreamTest, WaitingForAnEventOrdersStreams) {
  COVERS(cuStreamWaitEvent);
  const CUstream first = stream(kStreamNonBlocking), second = stream(kStreamNonBlocking);
  CUevent event = nullptr;
  OK(cuEventCreate(&event, 2));
  close(first);
  append(first, 1);
  OK(cuEventRecord(event, first));
  OK(cuStreamWaitEvent(second, event, 0));
  // Recorded again: the wait is for what was recorded before it.
  OK(cuEventRecord(event, second));
  append(second, 0);
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(second));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(second, event, 4));
  open();
  OK(cuStreamSynchronize(second));
  EXPECT_EQ(*log_, 2U);
  // An event that is destroyed meanwhile is still waited for.
  close(first);
  OK(cuEventRecord(event, first));
  OK(cuStreamWaitEvent(second, event, 0));
  OK(cuEventDestroy_v2(event));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(second));
  open();
  OK(cuStreamSynchronize(second));
}

TEST_F(StreamTest, ElapsedTime) {
  COVERS(cuEventElapsedTime, cuEventElapsedTime_v2);
  CUevent begin = nullptr, end = nullptr, untimed = nullptr;
  OK(cuEventCreate(&begin, 0));
  OK(cuEventCreate(&end, 0));
  OK(cuEventCreate(&untimed, kEventDisableTiming));
  float ms = -1;
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, begin, end));  // never recorded
  const CUstream mine = stream();
  OK(cuEventRecord(begin, mine));
  close(mine);
  OK(cuEventRecord(end, mine));
  OK(cuEventRecord(untimed, mine));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&ms, begin, end));
  open();
  OK(cuStreamSynchronize(mine));
  OK(cuEventElapsedTime(&ms, begin, end));
  EXPECT_GT(ms, 0);
  float back = 0;
  OK(cuEventElapsedTime_v2(&back, end, begin));
  EXPECT_EQ(back, -ms);
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, begin, untimed));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuEventElapsedTime(nullptr, begin, end));
}

TEST_F(StreamTest, AnEventTakesNoTurnOfItsOwn) {
  COVERS(cuEventRecord, cuEventQuery);
  const CUstream mine = stream();
  std::array<CUevent, 4> events{};
  for (CUevent& event : events)
    OK(cuEventCreate(&event, 0));
  // With nothing in front of it, it is reached when the call returns.
  OK(cuEventRecord(events[0], mine));
  EXPECT_CU(CUDA_SUCCESS, cuEventQuery(events[0]));
  // Several behind one piece of work are reached with it, none before.
  close(mine);
  OK(cuEventRecord(events[1], mine));
  OK(cuEventRecord(events[2], mine));
  append(mine, 1);
  OK(cuEventRecord(events[3], mine));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuEventQuery(events[1]));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuEventQuery(events[3]));
  open();
  OK(cuEventSynchronize(events[3]));
  EXPECT_CU(CUDA_SUCCESS, cuEventQuery(events[1]));
  float waited = -1, together = -1, appended = -1;
  OK(cuEventElapsedTime(&waited, events[0], events[1]));
  OK(cuEventElapsedTime(&together, events[1], events[2]));
  OK(cuEventElapsedTime(&appended, events[2], events[3]));
  EXPECT_GT(waited, 0);
  EXPECT_EQ(together, 0);
  EXPECT_GT(appended, 0);
  OK(cuEventRecord(events[1], mine));
  EXPECT_CU(CUDA_SUCCESS, cuEventQuery(events[1]));
}

TEST_F(StreamTest, HandlesOfManyEventsComeAndGo) {
  COVERS(cuEventCreate, cuEventDestroy_v2);
  std::vector<CUevent> events(2000);
  for (CUevent& event : events)
    OK(cuEventCreate(&event, 0));
  const auto is_gone = [](std::size_t i) { return i % 3 == 1 || i % 7 == 2; };
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (!is_gone(i)) continue;
    OK(cuEventDestroy_v2(events[i]));
  }
  for (std::size_t i = 0; i < events.size(); ++i)
    EXPECT_CU(is_gone(i) ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS, cuEventQuery(events[i]));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy_v2(nullptr));
}

TEST_F(StreamTest, WhoeverWaitsIsWokenWhenItsPlaceIsReached) {
  COVERS(cuEventSynchronize);
  const CUstream mine = stream();
  volatile std::uint32_t* const later = pinned();
  CUevent early = nullptr, late = nullptr;
  OK(cuEventCreate(&early, 0));
  OK(cuEventCreate(&late, 0));
  close(mine);
  append(mine, 1);
  OK(cuEventRecord(early, mine));
  *later = 0;
  OK(launch(kernel("await"), {}, mine, address(later), allocate(4)));
  OK(cuEventRecord(late, mine));
  const auto wait = [&](CUevent event) {
    return std::thread([this, event] {
      OK(cuCtxSetCurrent(context_));
      OK(cuEventSynchronize(event));
    });
  };
  std::thread first = wait(early), second = wait(late), third = wait(early), fourth = wait(late);
  open();
  first.join();
  third.join();
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuEventQuery(late));
  *later = 1;
  second.join();
  fourth.join();
  EXPECT_EQ(*log_, 1U);
}

TEST_F(StreamTest, FunctionsOfTheHostHaveTheirTurn) {
  COVERS(cuLaunchHostFunc);
  const CUstream mine = stream();
  struct Seen {
    volatile std::uint32_t* log;
    std::uint32_t value{99};
    int status{-1};
  } seen{log_};
  close(mine);
  append(mine, 1);
  OK(cuLaunchHostFunc(
      mine,
      [](void* data) {
        auto& its = *static_cast<Seen*>(data);
        its.value = *its.log;
        // The interface is not to be used here.
        its.status = cuCtxSynchronize();
        *its.log = 4;
      },
      &seen));
  append(mine, 1);
  EXPECT_EQ(seen.value, 99U);
  open();
  OK(cuStreamSynchronize(mine));
  EXPECT_EQ(seen.value, 1U);
  EXPECT_EQ(seen.status, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(*log_, 9U);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuLaunchHostFunc(mine, nullptr, nullptr));
}

TEST_F(StreamTest, CallbacksAreToldTheStreamAndItsState) {
  COVERS(cuStreamAddCallback);
  const CUstream mine = stream();
  struct Seen {
    CUstream stream{nullptr};
    int status{-1}, calls{0};
  } seen;
  const CUstreamCallback callback = [](CUstream stream, CUresult status, void* data) {
    auto& its = *static_cast<Seen*>(data);
    its.stream = stream;
    its.status = status;
    ++its.calls;
  };
  OK(cuStreamAddCallback(mine, callback, &seen, 0));
  OK(cuStreamSynchronize(mine));
  EXPECT_EQ(seen.stream, mine);
  EXPECT_EQ(seen.status, 0);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamAddCallback(mine, callback, &seen, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamAddCallback(mine, nullptr, &seen, 0));
  // They are called after a fault, too, functions are not.
  close(mine);
  OK(launch(kernel("stop"), {}, mine));
  OK(cuStreamAddCallback(mine, callback, &seen, 0));
  int calls = 0;
  OK(cuLaunchHostFunc(
      mine, [](void* data) { ++*static_cast<int*>(data); }, &calls));
  open();
  EXPECT_CU(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(mine));
  EXPECT_EQ(seen.calls, 2);
  EXPECT_EQ(seen.status, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(calls, 0);
}

/// A wait, what the value is at first, and what lets it through.
struct ValueCase {
  unsigned flags;
  std::uint64_t operand, before, after;
};

TEST_F(StreamTest, WaitsForValuesOf32Bits) {
  COVERS(cuStreamWaitValue32_v2);
  const ValueCase cases[] = {
      {0, 5, 4, 6},                    // at least
      {0, 0x80000001, 5, 0x80000002},  // cyclically: 5 is behind
      {0, 2, 0xfffffff0, 3},           // cyclically: what wrapped around is ahead
      {1, 7, 8, 7},                    // equal
      {2, 6, 9, 4},                    // and
      {3, 0xfffffffe, 1, 0xfffffffe},  // nor: a bit that neither has
      {1 | (1U << 30), 7, 8, 7},       // with a flush
  };
  const CUstream mine = stream();
  for (const ValueCase& each : cases) {
    *flag_ = static_cast<std::uint32_t>(each.before);
    OK(cuStreamWaitValue32_v2(mine, address(flag_), static_cast<std::uint32_t>(each.operand),
                              each.flags));
    EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(mine)) << each.flags << " " << each.operand;
    *flag_ = static_cast<std::uint32_t>(each.after);
    OK(cuStreamSynchronize(mine));
  }
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32_v2(mine, address(flag_) + 2, 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32_v2(mine, address(flag_), 0, 4));
  std::uint32_t plain = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32_v2(mine, address(&plain), 0, 0));
}

TEST_F(StreamTest, WaitsForValuesOf64Bits) {
  COVERS(cuStreamWaitValue64_v2);
  constexpr std::uint64_t kHigh = std::uint64_t{1} << 40;
  const ValueCase cases[] = {
      {0, kHigh, kHigh - 1, kHigh},
      {1, kHigh + 1, 1, kHigh + 1},
      {2, kHigh, 1, kHigh | 2},
      {3, ~kHigh, kHigh, ~kHigh},
  };
  volatile std::uint64_t* const wide = pinned<std::uint64_t>();
  const CUstream mine = stream();
  for (const ValueCase& each : cases) {
    *wide = each.before;
    OK(cuStreamWaitValue64_v2(mine, address(wide), each.operand, each.flags));
    EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(mine)) << each.flags;
    *wide = each.after;
    OK(cuStreamSynchronize(mine));
  }
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue64_v2(mine, address(wide) + 4, 0, 0));
}

TEST_F(StreamTest, WritesValuesInOrder) {
  COVERS(cuStreamWriteValue32_v2, cuStreamWriteValue64_v2);
  const CUstream mine = stream(), other = stream(kStreamNonBlocking);
  volatile std::uint64_t* const wide = pinned<std::uint64_t>(2);
  close(mine);
  OK(cuStreamWriteValue32_v2(mine, address(wide), 0xabcd, 0));
  OK(cuStreamWriteValue64_v2(mine, address(wide + 1), std::uint64_t{3} << 40, 1));
  EXPECT_EQ(*wide, 0U);
  // A stream that waits for what another one writes.
  OK(cuStreamWaitValue32_v2(other, address(wide), 0xabcd, 1));
  append(other, 1);
  open();
  OK(cuStreamSynchronize(other));
  OK(cuStreamSynchronize(mine));
  EXPECT_EQ(*log_, 1U);
  EXPECT_EQ(wide[0], 0xabcdU);
  EXPECT_EQ(wide[1], std::uint64_t{3} << 40);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32_v2(mine, address(wide) + 1, 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32_v2(mine, address(wide), 0, 2));
}

TEST_F(StreamTest, HandlesOfOtherContexts) {
  COVERS(cuStreamSynchronize, cuStreamGetCtx);
  const CUstream mine = stream();
  CUcontext other = nullptr, owner = nullptr;
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  OK(cuCtxSetCurrent(other));
  OK(cuStreamGetCtx(mine, &owner));
  EXPECT_EQ(owner, context_);
  OK(cuStreamSynchronize(mine));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, launch(kernel("nothing"), {}, mine));
}

}  // namespace
}  // namespace kansoku::softcuda
