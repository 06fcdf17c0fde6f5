// SPDX-License-Identifier: Apache-2.0
// A training-like loop whose trouble is known, because the program makes it and measures what it costs.
//   share/softgpu/softgpu-clang -o causes tests/cuda/causes/causes.cu
//   kansoku run --softgpu -- ./causes mode=sync amount=300 seed=1 plant=alternate
// Words, each KEY=VALUE:
//   mode     none, clock, launches, pageable, sync, allocation, loader, lock, leak, oom, stuck
//   twin     1: what looks alike and costs nothing [0]
//   amount   how much of it, in the mode's unit (table kModes)
//   seed     sizes of the loop: layers, lengths of kernels, work of the host between launches
//   less     us by which kernels of the launches' twin wait less: what each of them takes besides [0]
//   steps    of the loop [80]
//   turns    of arithmetic in each kernel, for the model clock; then no kernel waits [0]
//   plant    always, never, alternate: every second step, so that the cost is the difference
// Prints one JSON object: the median step in us, with and without, and the share that the trouble costs.
// Lengths of kernels come from KANSOKU_SOFTGPU_FAULT: the device waits, so that it does not take the host's processors. With -shared the
// same functions serve a Python program (loader.py).
#include <cuda_runtime.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

__device__ void compute(float* data, int turns) {
  float value = data[threadIdx.x];
  for (int i = 0; i < turns; ++i)
    value = value * 0.999F + 0.001F;
  data[threadIdx.x] = value;
}
extern "C" __global__ void forward(float* data, int turns) { compute(data, turns); }
extern "C" __global__ void backward(float* data, int turns) { compute(data, turns); }
extern "C" __global__ void update(float* data, int turns) { compute(data, turns); }
extern "C" __global__ void tiny(float* data, int turns) { compute(data, turns); }
extern "C" __global__ void part(float* data, int turns) { compute(data, turns); }

namespace {

using Clock = std::chrono::steady_clock;

double now_us() {
  return std::chrono::duration<double, std::micro>(Clock::now().time_since_epoch()).count();
}

/// The host at work: it holds its processor.
void work(double us) {
  for (const double until = now_us() + us; now_us() < until;) {
  }
}

bool check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return true;
  std::fprintf(stderr, "causes: %s: %s\n", what, cudaGetErrorString(status));
  std::exit(3);
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

/// Sizes that differ by seed, all of one kind of loop.
struct Sizes {
  int layers;
  double kernel_us, host_us;
  explicit Sizes(std::uint64_t seed) {
    std::uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 0x1234567ULL;
    const auto next = [&](std::uint64_t below) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      return (state >> 20) % below;
    };
    for (int i = 0; i < 8; ++i)
      next(2);
    layers = 6 + static_cast<int>(next(7));
    kernel_us = 700 + static_cast<double>(next(9)) * 100;
    host_us = 25 + static_cast<double>(next(5)) * 10;
  }
  [[nodiscard]] double device_us() const { return kernel_us * (3 * layers + 1); }
};

class Loop {
 public:
  explicit Loop(std::map<std::string, std::string> words);
  ~Loop();
  void launch_step(int step);
  void end_step(int step);
  [[nodiscard]] int steps() const { return steps_; }
  void report();

 private:
  [[nodiscard]] std::string word(const char* key, const char* otherwise) const {
    const auto found = words_.find(key);
    return found == words_.end() ? otherwise : found->second;
  }
  [[nodiscard]] bool is(const char* mode) const { return mode_ == mode; }
  [[nodiscard]] bool plants(int step) const {
    return plant_ == "always" || (plant_ == "alternate" && step % 2 == 1);
  }
  void set_lengths() const;
  void begin_of_step(int step);
  void kernel(void (*function)(float*, int));
  void tiny_launches();
  void after_kernel(int index, int step);
  void memory(int step);
  void run_out();
  void holder();
  void take_lock(bool is_held);

  std::map<std::string, std::string> words_;
  std::string mode_, plant_;
  bool is_twin_;
  double amount_;
  int steps_, turns_;
  Sizes sizes_;
  cudaStream_t stream_{}, copies_{};
  float *data_{}, *batch_{};
  void* buffer_{};
  std::vector<char> pageable_;
  char* pinned_{};
  std::size_t copy_bytes_{0};
  std::vector<void*> held_;
  std::size_t pool_bytes_{0};
  double began_us_{0};
  std::vector<double> planted_us_, clean_us_;
  // mode=lock
  std::mutex mutex_;
  std::thread holder_;
  std::atomic<int> asked_{0}, taken_{0};  // asked_ -1: end
};

/// Kernels that take long do so by waiting.
void Loop::set_lengths() const {
  const auto us = [](double value) { return std::to_string(static_cast<long>(value)) + "us"; };
  const double k = sizes_.kernel_us;
  std::string rules = "kernel=forward:1+:slow=" + us(k) + ";kernel=update:1+:slow=" + us(k);
  if (is("stuck")) {
    const std::string at = std::to_string(sizes_.layers * (steps_ / 2) + sizes_.layers / 2);
    rules += ";kernel=backward:" + at + (is_twin_ ? ":slow=" + word("long", "3s") : std::string(":hang"));
  }
  rules += ";kernel=backward:1+:slow=" + us(2 * k);
  // As many launches as the planted ones, and as much work of the device as without.
  const double part = k * sizes_.layers / std::max(1.0, amount_) - std::atof(word("less", "0").c_str());
  if (is("launches") && is_twin_) rules += ";kernel=part:1+:slow=" + us(std::max(1.0, part));
  if (is("allocation")) rules += ";cuMemAlloc_v2:1+:slow=" + us(std::max(1.0, amount_));
  if (turns_ == 0) setenv("KANSOKU_SOFTGPU_FAULT", rules.c_str(), 1);
  setenv("KANSOKU_SOFTGPU_LOG", "off", 0);
}

Loop::Loop(std::map<std::string, std::string> words)
    : words_(std::move(words)),
      mode_(word("mode", "none")),
      plant_(word("plant", "always")),
      is_twin_(word("twin", "0") == "1"),
      amount_(std::atof(word("amount", "0").c_str())),
      steps_(std::atoi(word("steps", "80").c_str())),
      turns_(std::atoi(word("turns", "0").c_str())),
      sizes_(std::strtoull(word("seed", "1").c_str(), nullptr, 10)) {
  prctl(PR_SET_TIMERSLACK, 1UL);  // waits of the device end when they should
  set_lengths();
  const char* const rank = std::getenv("RANK");
  check(cudaSetDevice(rank == nullptr ? 0 : std::atoi(rank)), "choose a device");
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create a stream");
  check(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "create a stream");
  check(cudaMalloc(&data_, 4096), "allocate");
  if (is("pageable")) {
    copy_bytes_ = static_cast<std::size_t>(amount_);
    check(cudaMalloc(&batch_, std::max<std::size_t>(copy_bytes_, 1)), "allocate");
    pageable_.assign(copy_bytes_, 1);
    check(cudaMallocHost(reinterpret_cast<void**>(&pinned_), std::max<std::size_t>(copy_bytes_, 1)), "allocate");
    std::memset(pinned_, 1, copy_bytes_);
  }
  if (is("allocation") && is_twin_) {
    for (int i = 0; i < 100; ++i) {
      void* some = nullptr;
      check(cudaMalloc(&some, 1 << 20), "allocate");
      check(cudaFree(some), "free");
    }
  }
  if (is("lock")) holder_ = std::thread([this] { holder(); });
  for (const auto function : {forward, backward, update, tiny, part})  // loads their code
    kernel(function);
  check(cudaStreamSynchronize(stream_), "wait");
}

Loop::~Loop() {
  if (!holder_.joinable()) return;
  asked_ = -1;
  asked_.notify_all();
  holder_.join();
}

void Loop::kernel(void (*function)(float*, int)) {
  work(sizes_.host_us);
  function<<<1, 32, 0, stream_>>>(data_, turns_);
}

/// Another thread that has the lock for a while, as one that writes a checkpoint.
void Loop::holder() {
  for (int turn = 1;; ++turn) {
    for (int seen = asked_; seen != turn; seen = asked_) {
      if (seen < 0) return;
      asked_.wait(seen);
    }
    const std::scoped_lock lock(mutex_);
    taken_ = turn;
    taken_.notify_all();
    const timespec pause{0, static_cast<long>(amount_ * 1000)};
    nanosleep(&pause, nullptr);  // allowed: the work under the lock, as long as it is told to take
  }
}

/// With `is_held`, while the other thread has it.
void Loop::take_lock(bool is_held) {
  if (is_held) {
    const int turn = ++asked_;
    asked_.notify_all();
    for (int seen = taken_; seen != turn; seen = taken_)
      std::this_thread::yield();
  }
  const std::scoped_lock lock(mutex_);
}

void Loop::memory(int step) {
  void* some = nullptr;
  if (is("leak") && !is_twin_) {
    check(cudaMalloc(&some, static_cast<std::size_t>(amount_)), "allocate");
    held_.push_back(some);
  }
  // A pool that doubles when it is full, until it has all that it will ever need.
  if (is("leak") && is_twin_ && step % 3 == 0 && static_cast<double>(pool_bytes_) < 64 * amount_) {
    const auto more = std::max(pool_bytes_, static_cast<std::size_t>(amount_));
    check(cudaMalloc(&some, more), "allocate");
    pool_bytes_ += more;
  }
  if (is("oom") && step == steps_ / 2) run_out();
}

/// Takes more and more until there is none. The twin asks for too much once, and does with less.
void Loop::run_out() {
  void* some = nullptr;
  for (std::size_t bytes = static_cast<std::size_t>(amount_);;) {
    const cudaError_t status = cudaMalloc(&some, bytes);
    if (status == cudaSuccess) {
      if (is_twin_) return;
      continue;
    }
    cudaGetLastError();
    if (!is_twin_) {
      std::fprintf(stderr, "causes: out of memory\n");
      std::exit(4);
    }
    bytes /= 2;
  }
}

void Loop::tiny_launches() {
  for (int i = 0; i < static_cast<int>(amount_); ++i)
    kernel(tiny);
}

void Loop::begin_of_step(int step) {
  if (is("lock")) take_lock(!is_twin_ && plants(step));
  if (is("launches") && !is_twin_ && plants(step)) tiny_launches();
  if (is("pageable") && !is_twin_ && plants(step))
    check(cudaMemcpyAsync(batch_, pageable_.data(), copy_bytes_, cudaMemcpyHostToDevice, stream_), "copy");
  memory(step);
}

void Loop::after_kernel(int index, int step) {
  if (!plants(step)) return;
  if (is_twin_) {
    // In the midst of the step, while the device has work.
    if (index != sizes_.layers) return;
    if (is("lock")) {
      ++asked_;  // nobody wants the lock meanwhile
      asked_.notify_all();
    }
    if (is("pageable"))
      check(cudaMemcpyAsync(batch_, pinned_, copy_bytes_, cudaMemcpyHostToDevice, copies_), "copy");
    return;
  }
  if (index % 2 != 0) return;
  if (is("sync")) {
    check(cudaStreamSynchronize(stream_), "wait");
    work(amount_);
  }
  if (is("allocation")) {
    // A buffer that grows: its release waits for the device, which then waits for the new one.
    check(cudaFree(buffer_), "free");
    check(cudaMalloc(&buffer_, 1 << 20), "allocate");
  }
}

void Loop::launch_step(int step) {
  began_us_ = now_us();
  begin_of_step(step);
  const bool is_split = is("launches") && is_twin_ && plants(step);
  if (is_split) {
    for (int i = 0; i < static_cast<int>(amount_); ++i)
      kernel(part);
  }
  for (int i = 0; i < 2 * sizes_.layers; ++i) {
    if (i < sizes_.layers && is_split) continue;
    kernel(i < sizes_.layers ? forward : backward);
    after_kernel(i, step);
  }
  kernel(update);
}

void Loop::end_step(int step) {
  check(cudaStreamSynchronize(stream_), "wait");
  if (is("sync") && is_twin_ && plants(step)) {
    for (int i = 0; i < sizes_.layers; ++i)  // the device has nothing to do any more
      check(cudaStreamSynchronize(stream_), "wait");
  }
  if (step < 3) return;  // caches are cold
  (plants(step) ? planted_us_ : clean_us_).push_back(now_us() - began_us_);
}

void Loop::report() {
  check(cudaDeviceSynchronize(), "wait");
  const double planted = median(planted_us_), clean = median(clean_us_);
  const double cost = planted > 0 && clean > 0 ? 1 - clean / planted : -1;
  std::printf("{\"mode\": \"%s\", \"twin\": %d, \"layers\": %d, \"kernel_us\": %.0f, \"host_us\": %.0f, \"device_us\": %.0f, "
              "\"planted_us\": %.1f, \"clean_us\": %.1f, \"cost\": %.4f}\n",
              mode_.c_str(), is_twin_ ? 1 : 0, sizes_.layers, sizes_.kernel_us, sizes_.host_us, sizes_.device_us(), planted, clean, cost);
  std::fflush(stdout);
}

Loop* g_loop = nullptr;

}  // namespace

extern "C" {

/// For Python. `text`: the words, divided by blanks.
int causes_open(const char* text) {
  std::map<std::string, std::string> words;
  std::string rest = text;
  for (std::size_t at = 0; at < rest.size();) {
    const std::size_t end = std::min(rest.find(' ', at), rest.size());
    const std::string word = rest.substr(at, end - at);
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos) words[word.substr(0, equals)] = word.substr(equals + 1);
    at = end + 1;
  }
  g_loop = new Loop(words);
  return g_loop->steps();
}
void causes_launch(int step) { g_loop->launch_step(step); }
void causes_wait(int step) { g_loop->end_step(step); }
void causes_close() {
  g_loop->report();
  delete g_loop;
}

}  // extern "C"

int main(int argc, char** argv) {
  std::string text;
  for (int i = 1; i < argc; ++i)
    text += std::string(argv[i]) + " ";
  const int steps = causes_open(text.c_str());
  for (int step = 0; step < steps; ++step) {
    causes_launch(step);
    causes_wait(step);
  }
  causes_close();
  return 0;
}
