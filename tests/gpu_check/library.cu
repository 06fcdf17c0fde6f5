// SPDX-License-Identifier: Apache-2.0
// library times|events|stuck FILE: programs that Kansoku's CUDA library watches (library.sh). Each
// writes what it knows itself into FILE, a line `name value` each.
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

#define NEED(call)                                                       \
  do {                                                                   \
    const cudaError_t status_ = (call);                                  \
    if (status_ != cudaSuccess) {                                        \
      std::fprintf(stderr, "library:%d: %s gives %s\n", __LINE__, #call, \
                   cudaGetErrorName(status_));                           \
      std::exit(1);                                                      \
    }                                                                    \
  } while (false)

extern "C" __global__ void library_long(float* out, int turns) {
  float value = out[threadIdx.x];
  for (int i = 0; i < turns; ++i)
    value = value * 1.0001F + 0.5F;
  out[threadIdx.x] = value;
}
extern "C" __global__ void library_short(float* out) {
  out[threadIdx.x] += 1;
}
// Ends when the host says so.
extern "C" __global__ void library_spin(const volatile int* flag) {
  while (*flag == 0) {
  }
}

struct Timer {
  cudaEvent_t begin, end;
  Timer() {
    NEED(cudaEventCreate(&begin));
    NEED(cudaEventCreate(&end));
  }
  double us() const {
    float ms = 0;
    NEED(cudaEventElapsedTime(&ms, begin, end));
    return ms * 1e3;
  }
};

constexpr int kLong = 41, kShort = 15, kCopies = 10, kPinned = 5, kThreads = 128, kTurns = 20000;

void times(std::FILE* out) {
  float* memory = nullptr;
  cudaStream_t stream;
  NEED(cudaMalloc(reinterpret_cast<void**>(&memory), kThreads * sizeof(float)));
  NEED(cudaMemset(memory, 0, kThreads * sizeof(float)));
  NEED(cudaDeviceSynchronize());
  NEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::vector<Timer> timers(kLong + kShort);
  for (int i = 0; i < kLong + kShort; ++i) {
    NEED(cudaEventRecord(timers[i].begin, stream));
    if (i < kLong)
      library_long<<<1, kThreads, 0, stream>>>(memory, kTurns);
    else
      library_short<<<1, kThreads, 0, stream>>>(memory);
    NEED(cudaEventRecord(timers[i].end, stream));
  }
  std::vector<float> host(kThreads);
  for (int i = 0; i < kCopies; ++i)
    NEED(cudaMemcpyAsync(host.data(), memory, kThreads * sizeof(float), cudaMemcpyDeviceToHost,
                         stream));
  float* pinned = nullptr;
  NEED(cudaHostAlloc(reinterpret_cast<void**>(&pinned), kThreads * sizeof(float), 0));
  for (int i = 0; i < kPinned; ++i)
    NEED(cudaMemcpyAsync(pinned, memory, kThreads * sizeof(float), cudaMemcpyDeviceToHost, stream));
  NEED(cudaStreamSynchronize(stream));
  std::vector<double> long_us, short_us;
  for (int i = 0; i < kLong + kShort; ++i)
    (i < kLong ? long_us : short_us).push_back(timers[i].us());
  std::sort(long_us.begin(), long_us.end());
  std::sort(short_us.begin(), short_us.end());
  std::fprintf(out, "library_long %d\nlibrary_short %d\n", kLong, kShort);
  // Medians, as the library tells: each of its times lies within one of these.
  std::fprintf(out, "long_us %.3f\nshort_us %.3f\n", long_us[kLong / 2], short_us[kShort / 2]);
  std::fprintf(out, "pageable %zu\npinned %zu\n", kCopies * kThreads * sizeof(float),
               kPinned * kThreads * sizeof(float));
}

// Another thread asks for events that this one records; a time that runs backwards; what a pair of
// events costs.
void events(std::FILE* out) {
  constexpr int kEvents = 200, kPairs = 10000;
  float* memory = nullptr;
  NEED(cudaMalloc(reinterpret_cast<void**>(&memory), kThreads * sizeof(float)));
  cudaStream_t stream;
  NEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::vector<Timer> timers(kEvents);
  std::atomic<int> recorded{0};
  std::atomic<long> queries{0}, errors{0};
  std::thread other([&] {
    for (int i = 0; i < kEvents; ++i) {
      while (recorded.load() <= i)
        std::this_thread::yield();
      cudaError_t status = cudaErrorNotReady;
      for (; status == cudaErrorNotReady; ++queries)
        status = cudaEventQuery(timers[i].end);
      if (status != cudaSuccess) ++errors;
    }
  });
  for (int i = 0; i < kEvents; ++i) {
    NEED(cudaEventRecord(timers[i].begin, stream));
    library_short<<<1, kThreads, 0, stream>>>(memory);
    NEED(cudaEventRecord(timers[i].end, stream));
    ++recorded;
  }
  NEED(cudaStreamSynchronize(stream));
  other.join();
  float forward = 0, backward = 0;
  NEED(cudaEventElapsedTime(&forward, timers[0].begin, timers[kEvents - 1].end));
  NEED(cudaEventElapsedTime(&backward, timers[kEvents - 1].end, timers[0].begin));
  const auto before = std::chrono::steady_clock::now();
  for (int i = 0; i < kPairs; ++i) {
    NEED(cudaEventRecord(timers[i % kEvents].begin, stream));
    NEED(cudaEventRecord(timers[i % kEvents].end, stream));
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - before;
  NEED(cudaStreamSynchronize(stream));
  std::fprintf(out, "library_short %d\nqueries %ld\nquery_errors %ld\nforward_ms %.6f\n", kEvents,
               queries.load(), errors.load(), static_cast<double>(forward));
  std::fprintf(out, "backward_ms %.6f\npair_ns %.0f\n", static_cast<double>(backward),
               took.count() / kPairs);
}

// Some that end at once, then one that ends when FILE.release is there.
void stuck(std::FILE* out, const char* path) {
  constexpr int kBefore = 20;
  int *flag = nullptr, *seen = nullptr;
  cudaStream_t stream;
  NEED(cudaHostAlloc(reinterpret_cast<void**>(&flag), sizeof(int), cudaHostAllocMapped));
  NEED(cudaHostGetDevicePointer(reinterpret_cast<void**>(&seen), flag, 0));
  NEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  volatile int* const told = flag;
  *told = 1;
  for (int i = 0; i < kBefore; ++i) {
    library_spin<<<1, 1, 0, stream>>>(seen);
    NEED(cudaStreamSynchronize(stream));
  }
  *told = 0;
  library_spin<<<1, 1, 0, stream>>>(seen);
  std::fprintf(out, "pid %d\nlibrary_spin %d\n", static_cast<int>(getpid()), kBefore + 1);
  std::fflush(out);
  char release[4096];
  std::snprintf(release, sizeof release, "%s.release", path);
  std::thread other([&] {
    while (access(release, F_OK) != 0)
      usleep(20000);  // allowed: the pause of a poll loop
    *told = 1;
  });
  NEED(cudaStreamSynchronize(stream));
  other.join();
}

}  // namespace

int main(int count, char** words) {
  std::FILE* const out = count == 3 ? std::fopen(words[2], "we") : nullptr;
  if (out == nullptr) {
    std::fprintf(stderr, "usage: library times|events|stuck FILE\n");
    return 2;
  }
  if (std::strcmp(words[1], "times") == 0) times(out);
  if (std::strcmp(words[1], "events") == 0) events(out);
  if (std::strcmp(words[1], "stuck") == 0) stuck(out, words[2]);
  return std::fclose(out) == 0 ? 0 : 1;
}
