// SPDX-License-Identifier: Apache-2.0
// Streams and events.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "softcuda/runtime/runtime_for_test.h"

namespace kansoku::cudart {
namespace {

class StreamTest : public RuntimeTest {};

TEST_F(StreamTest, AreMadeWithFlagsAndPriority) {
  COVERS(cudaStreamCreate, cudaStreamCreateWithFlags, cudaStreamCreateWithPriority,
         cudaStreamDestroy, cudaStreamGetFlags, cudaStreamGetPriority);
  REFUSES(cudaStreamCreate, cudaStreamCreateWithFlags, cudaStreamCreateWithPriority,
          cudaStreamDestroy, cudaStreamGetFlags, cudaStreamGetPriority);
  cudaStream_t stream = nullptr;
  unsigned flags = 7;
  int priority = 7;
  OK(cudaStreamCreate(&stream));
  OK(cudaStreamGetFlags(stream, &flags));
  EXPECT_EQ(flags, 0U);
  OK(cudaStreamDestroy(stream));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaStreamDestroy(stream));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaStreamGetFlags(stream, &flags));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaStreamGetPriority(stream, &priority));
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  OK(cudaStreamGetFlags(stream, &flags));
  EXPECT_EQ(flags, unsigned{cudaStreamNonBlocking});
  OK(cudaStreamCreateWithPriority(&stream, 0, -2));
  OK(cudaStreamGetPriority(stream, &priority));
  EXPECT_EQ(priority, -2);
  EXPECT_CUDA(cudaErrorInvalidValue, cudaStreamCreate(nullptr));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaStreamCreateWithFlags(&stream, 8));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaStreamCreateWithPriority(&stream, 8, 0));
}

TEST_F(StreamTest, RunInOrderAndCanBeAsked) {
  COVERS(cudaStreamSynchronize, cudaStreamQuery, cudaLaunchHostFunc, cudaStreamAddCallback);
  REFUSES(cudaStreamSynchronize, cudaStreamQuery, cudaLaunchHostFunc, cudaStreamAddCallback);
  const cudaStream_t stream = make_stream();
  volatile std::uint32_t* const flag = pinned(2);
  flag[0] = 0;
  flag[1] = 0;
  static std::atomic<int> calls{0};
  calls = 0;
  OK(launch("await", {}, stream, &flag[0], &flag[1]));
  OK(cudaLaunchHostFunc(
      stream, [](void* data) { *static_cast<std::atomic<int>*>(data) += 1; }, &calls));
  OK(cudaStreamAddCallback(
      stream,
      [](cudaStream_t, cudaError_t status, void* data) {
        if (status == cudaSuccess) *static_cast<std::atomic<int>*>(data) += 10;
      },
      &calls, 0));
  EXPECT_CUDA(cudaErrorNotReady, cudaStreamQuery(stream));
  EXPECT_CUDA(cudaSuccess, cudaPeekAtLastError());  // an answer, no error
  EXPECT_EQ(calls, 0);
  flag[0] = 1;
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(calls, 11);
  OK(cudaStreamQuery(stream));
  const auto bad = garbage<cudaStream_t>();
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaStreamQuery(bad));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaStreamSynchronize(bad));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaLaunchHostFunc(
                                                  bad, [](void*) {}, nullptr));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaLaunchHostFunc(stream, nullptr, nullptr));
  EXPECT_CUDA(cudaErrorInvalidValue,
              cudaStreamAddCallback(
                  stream, [](cudaStream_t, cudaError_t, void*) {}, nullptr, 5));
}

TEST_F(StreamTest, WaitForEvents) {
  COVERS(cudaStreamWaitEvent, cudaEventRecord, cudaEventRecordWithFlags, cudaEventQuery,
         cudaEventSynchronize);
  REFUSES(cudaStreamWaitEvent, cudaEventRecord, cudaEventRecordWithFlags, cudaEventQuery,
          cudaEventSynchronize);
  const cudaStream_t first = make_stream(), second = make_stream();
  const cudaEvent_t event = make_event();
  volatile std::uint32_t* const flag = pinned(3);
  flag[0] = 0;
  flag[1] = 0;
  flag[2] = 0;
  OK(cudaEventQuery(event));  // never recorded: nothing to wait for
  OK(launch("await", {}, first, &flag[0], &flag[1]));
  OK(cudaEventRecord(event, first));
  OK(cudaStreamWaitEvent(second, event, 0));
  OK(launch("next", {}, second, &flag[1], &flag[2]));
  EXPECT_CUDA(cudaErrorNotReady, cudaEventQuery(event));
  flag[0] = 8;
  OK(cudaEventSynchronize(event));
  OK(cudaStreamSynchronize(second));
  EXPECT_EQ(flag[2], 9U);
  OK(cudaEventRecordWithFlags(event, second, cudaEventRecordDefault));
  OK(cudaEventSynchronize(event));
  const auto bad = garbage<cudaEvent_t>();
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaStreamWaitEvent(first, bad, 0));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaEventRecord(bad, first));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaEventRecordWithFlags(event, first, 16));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaEventQuery(bad));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaEventSynchronize(bad));
}

TEST_F(StreamTest, EventsMeasureTime) {
  COVERS(cudaEventCreate, cudaEventCreateWithFlags, cudaEventDestroy, cudaEventElapsedTime);
  REFUSES(cudaEventCreate, cudaEventCreateWithFlags, cudaEventDestroy, cudaEventElapsedTime);
  const cudaEvent_t begin = make_event(), end = make_event();
  const cudaStream_t stream = make_stream();
  OK(cudaEventRecord(begin, stream));
  constexpr cudaHostFn_t kPause = [](void*) {
    std::this_thread::sleep_for(std::chrono::milliseconds{20});  // allowed: what is measured
  };
  OK(cudaLaunchHostFunc(stream, kPause, nullptr));
  OK(cudaEventRecord(end, stream));
  OK(cudaEventSynchronize(end));
  float ms = 0;
  OK(cudaEventElapsedTime(&ms, begin, end));
  EXPECT_GE(ms, 19.0F);
  EXPECT_LT(ms, 60'000.0F);
  cudaEvent_t without = nullptr;
  OK(cudaEventCreateWithFlags(&without, cudaEventDisableTiming));
  OK(cudaEventRecord(without, stream));
  OK(cudaEventSynchronize(without));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, begin, without));
  OK(cudaEventDestroy(without));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaEventDestroy(without));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaEventCreate(nullptr));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaEventCreateWithFlags(&without, 0x100));
}

}  // namespace
}  // namespace kansoku::cudart
