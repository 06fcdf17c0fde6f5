// SPDX-License-Identifier: Apache-2.0
// Streams and events. A gate, a host function that waits, holds a stream where a check wants it; so
// no check depends on a time.
#include <condition_variable>
#include <mutex>

#include "device.h"

namespace gpu_check {

namespace {

__global__ void append(int* count, int* out, int value) {
  out[(*count)++] = value;
}
__global__ void store(int* out, int value) {
  *out = value;
}

class Gate {
 public:
  static void CUDART_CB wait(void* gate) {
    Gate& self = *static_cast<Gate*>(gate);
    std::unique_lock<std::mutex> lock(self.mutex_);
    self.changed_.wait(lock, [&] { return self.is_open_; });
  }
  void open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_{false};
};

// Kernels are loaded when they are first launched, and loading may wait for all work: behind a
// closed gate that would be for ever.
void warm_up(Check& c) {
  static bool is_warm = false;
  if (is_warm) return;
  Array<int> memory(c, 2);
  append<<<1, 1>>>(memory, memory + 1, 0);
  store<<<1, 1>>>(memory, 0);
  NEED(cudaDeviceSynchronize());
  is_warm = true;
}

class Stream {
 public:
  Stream(Check& c, unsigned flags = cudaStreamDefault) {
    warm_up(c);
    NEED(cudaStreamCreateWithFlags(&stream_, flags));
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_{nullptr};
};

struct Log {
  std::mutex mutex;
  std::vector<int> entries;
};
struct Entry {
  Log* log;
  int value;
};
void CUDART_CB write_entry(void* entry) {
  const Entry& self = *static_cast<Entry*>(entry);
  const std::lock_guard<std::mutex> lock(self.log->mutex);
  self.log->entries.push_back(self.value);
}
struct Status {
  int calls{0};
  cudaError_t status{cudaErrorUnknown};
};
void CUDART_CB take_status(cudaStream_t, cudaError_t status, void* user) {
  Status& self = *static_cast<Status*>(user);
  ++self.calls;
  self.status = status;
}

}  // namespace

GPU_CHECK_BODY(streams, keep_their_order) {
  Stream stream(c, cudaStreamNonBlocking);
  Array<int> count(c, 1), out(c, 64);
  NEED(cudaDeviceSynchronize());
  std::vector<int> want;
  for (int i = 0; i < 64; ++i) {
    append<<<1, 1, 0, stream>>>(count, out, i * i);
    want.push_back(i * i);
  }
  c.all_equal("64 kernels of one stream", out.host(), want);
}

GPU_CHECK_BODY(streams, query_while_they_work) {
  Gate gate;
  Stream stream(c);
  EXPECT_ERROR(cudaSuccess, cudaStreamQuery(stream));
  NEED(cudaLaunchHostFunc(stream, Gate::wait, &gate));
  EXPECT_ERROR(cudaErrorNotReady, cudaStreamQuery(stream));
  gate.open();
  EXPECT_ERROR(cudaSuccess, cudaStreamSynchronize(stream));
  EXPECT_ERROR(cudaSuccess, cudaStreamQuery(stream));
}

GPU_CHECK_BODY(streams, launches_return_before_the_work) {
  Gate gate;
  Stream stream(c, cudaStreamNonBlocking);
  Array<int> out(c, 1);
  NEED(cudaDeviceSynchronize());
  int* pinned = nullptr;
  NEED(cudaHostAlloc(reinterpret_cast<void**>(&pinned), 4, cudaHostAllocDefault));
  *pinned = -1;
  NEED(cudaLaunchHostFunc(stream, Gate::wait, &gate));
  store<<<1, 1, 0, stream>>>(out, 5);
  NEED(cudaMemcpyAsync(pinned, out, 4, cudaMemcpyDeviceToHost, stream));
  c.equal("before the gate is open", *pinned, -1);
  gate.open();
  NEED(cudaStreamSynchronize(stream));
  c.equal("after it", *pinned, 5);
  NEED(cudaFreeHost(pinned));
}

GPU_CHECK_BODY(streams, wait_for_events) {
  Gate gate;
  Stream first(c, cudaStreamNonBlocking), second(c, cudaStreamNonBlocking);
  cudaEvent_t event;
  NEED(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  Array<int> count(c, 1), out(c, 2);
  NEED(cudaDeviceSynchronize());
  NEED(cudaLaunchHostFunc(first, Gate::wait, &gate));
  append<<<1, 1, 0, first>>>(count, out, 1);
  NEED(cudaEventRecord(event, first));
  NEED(cudaStreamWaitEvent(second, event, 0));
  append<<<1, 1, 0, second>>>(count, out, 2);
  EXPECT_ERROR(cudaErrorNotReady, cudaEventQuery(event));
  EXPECT_ERROR(cudaErrorNotReady, cudaStreamQuery(second));
  gate.open();
  EXPECT_ERROR(cudaSuccess, cudaEventSynchronize(event));
  c.all_equal("the order of both", out.host(), std::vector<int>{1, 2});
  NEED(cudaEventDestroy(event));
}

GPU_CHECK_BODY(streams, legacy_stream_waits_for_blocking_ones) {
  Gate gate;
  Stream blocking(c);
  Array<int> count(c, 1), out(c, 3);
  NEED(cudaDeviceSynchronize());
  NEED(cudaLaunchHostFunc(blocking, Gate::wait, &gate));
  append<<<1, 1, 0, blocking>>>(count, out, 1);
  append<<<1, 1>>>(count, out, 2);
  append<<<1, 1, 0, blocking>>>(count, out, 3);
  EXPECT_ERROR(cudaErrorNotReady, cudaStreamQuery(cudaStreamLegacy));
  gate.open();
  c.all_equal("the order of both", out.host(), std::vector<int>{1, 2, 3});
}

GPU_CHECK_BODY(streams, non_blocking_ones_pass_the_legacy_stream) {
  Gate gate;
  Stream blocking(c), other(c, cudaStreamNonBlocking);
  Array<int> out(c, 1), unused(c, 1);
  NEED(cudaDeviceSynchronize());
  NEED(cudaLaunchHostFunc(blocking, Gate::wait, &gate));
  store<<<1, 1>>>(unused, 1);  // the legacy stream waits behind the gate
  store<<<1, 1, 0, other>>>(out, 8);
  EXPECT_ERROR(cudaSuccess, cudaStreamSynchronize(other));
  EXPECT_ERROR(cudaErrorNotReady, cudaStreamQuery(cudaStreamLegacy));
  gate.open();
  c.equal("what the stream wrote", out.first(), 8);
}

GPU_CHECK_BODY(streams, host_functions_in_order) {
  Stream stream(c);
  Log log;
  std::vector<Entry> entries;
  std::vector<int> want;
  for (int i = 0; i < 20; ++i) {
    entries.push_back({&log, i});
    want.push_back(i);
  }
  for (Entry& entry : entries)
    NEED(cudaLaunchHostFunc(stream, write_entry, &entry));
  NEED(cudaStreamSynchronize(stream));
  c.all_equal("20 host functions", log.entries, want);
}

GPU_CHECK_BODY(streams, callbacks) {
  Stream stream(c);
  Status seen;
  EXPECT_ERROR(cudaSuccess, cudaStreamAddCallback(stream, take_status, &seen, 0));
  NEED(cudaStreamSynchronize(stream));
  c.equal("calls", seen.calls, 1);
  c.error("the status it got", seen.status, cudaSuccess, runtime_error_name);
}

GPU_CHECK_BODY(streams, priorities) {
  int least = 0, greatest = 0, priority = 0;
  NEED(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  c.is_true("the greatest priority is the lowest number", greatest <= least);
  cudaStream_t stream;
  NEED(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest - 100));
  NEED(cudaStreamGetPriority(stream, &priority));
  c.equal("a priority beyond the range becomes", priority, greatest);
  unsigned flags = 0;
  NEED(cudaStreamGetFlags(stream, &flags));
  c.equal("flags", flags, cudaStreamNonBlocking);
  NEED(cudaStreamDestroy(stream));
}

GPU_CHECK_BODY(streams, destroyed_ones_finish_their_work) {
  Array<int> out(c, 1);
  Gate gate;
  cudaStream_t stream;
  warm_up(c);
  NEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  NEED(cudaLaunchHostFunc(stream, Gate::wait, &gate));
  store<<<1, 1, 0, stream>>>(out, 3);
  EXPECT_ERROR(cudaSuccess, cudaStreamDestroy(stream));  // returns while the gate is closed
  gate.open();
  c.equal("what its kernel wrote", out.first(), 3);
}

GPU_CHECK_BODY(events, never_recorded) {
  cudaEvent_t event;
  NEED(cudaEventCreate(&event));
  EXPECT_ERROR(cudaSuccess, cudaEventQuery(event));
  EXPECT_ERROR(cudaSuccess, cudaEventSynchronize(event));
  EXPECT_ERROR(cudaSuccess, cudaStreamWaitEvent(nullptr, event, 0));
  NEED(cudaEventDestroy(event));
}

GPU_CHECK_BODY(events, measure_time) {
  Gate gate;
  Stream stream(c, cudaStreamNonBlocking);
  cudaEvent_t begin, end;
  NEED(cudaEventCreate(&begin));
  NEED(cudaEventCreate(&end));
  NEED(cudaEventRecord(begin, stream));
  NEED(cudaLaunchHostFunc(stream, Gate::wait, &gate));
  NEED(cudaEventRecord(end, stream));
  float ms = -1;
  EXPECT_ERROR(cudaErrorNotReady, cudaEventElapsedTime(&ms, begin, end));
  gate.open();
  NEED(cudaEventSynchronize(end));
  EXPECT_ERROR(cudaSuccess, cudaEventElapsedTime(&ms, begin, end));
  c.is_true("time is not negative, and below a minute", ms >= 0 && ms < 60000);
  NEED(cudaEventDestroy(begin));
  NEED(cudaEventDestroy(end));
}

}  // namespace gpu_check
