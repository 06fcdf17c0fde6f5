// SPDX-License-Identifier: Apache-2.0
// A training-like job on a CUDA device that profiles itself: events around each operation give device times, the
// host's clock gives the launches. Writes Chrome JSON in the categories of PyTorch's profiler.
//   job --out FILE [--steps 60] [--batch 16] [--slow PERMILLE] [--build old|new] [--renumber]
// --slow: the kernel `rope` does so many thousandths more work in each call. --build new: other tiles, one kernel
// fused, one gone. --renumber: a compiler's numbers in names are dealt anew.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

namespace {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "job: %s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

double now_us() {
  timespec time{};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

__device__ float work(float seed, int rounds) {
  float value = seed;
  for (int i = 0; i < rounds; ++i)
    value = value * 0.999F + 0.001F;
  return value;
}

template <int Tile>
__global__ void matmul(float* out, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = work(out[i] + Tile, rounds);
}
__global__ void layer_norm(float* out, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = work(out[i], rounds);
}
__global__ void softmax(float* out, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = work(out[i] + 2, rounds);
}
__global__ void rope(float* out, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = work(out[i] + 3, rounds);
}
__global__ void pointwise(float* out, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = work(out[i] + 4, rounds);
}
__global__ void adamw(float* out, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = work(out[i] + 5, rounds);
}

using Kernel = void (*)(float*, int);

struct Options {
  std::string out;
  int steps{60}, batch{16}, slow{0};
  bool is_new{false}, renumber{false};
};

struct Operation {
  std::string name;
  int grid{0}, bytes{0}, step{0};
  double launch_us{0}, launched_us{0};
  cudaEvent_t begin{}, end{};
};

class Job {
 public:
  explicit Job(const Options& options) : options_(options) {
    check(cudaStreamCreate(&stream_), "create a stream");
    check(cudaMalloc(&device_, kBytesMax), "allocate");
    check(cudaMemset(device_, 0, kBytesMax), "clear");
    check(cudaMallocHost(&host_, kBytesMax), "allocate");
    std::memset(host_, 0, kBytesMax);
  }
  void run();
  void write();

 private:
  static constexpr int kBytesMax = 1 << 20, kBlock = 64, kRounds = 60;  // rounds: in thousandths of it

  Operation begin(const std::string& name) {
    Operation operation;
    operation.name = name;
    operation.step = step_;
    check(cudaEventCreate(&operation.begin), "create an event");
    check(cudaEventCreate(&operation.end), "create an event");
    check(cudaEventRecord(operation.begin, stream_), "record");
    operation.launch_us = now_us();
    return operation;
  }
  void end(Operation operation) {
    operation.launched_us = now_us();
    check(cudaEventRecord(operation.end, stream_), "record");
    operations_.push_back(operation);
  }
  void launch(const std::string& name, Kernel kernel, int grid, int rounds) {
    Operation operation = begin(name);
    kernel<<<grid, kBlock, 0, stream_>>>(device_, kRounds * rounds / 1000);
    operation.grid = grid;
    end(operation);
  }
  void one_step();
  void layer(int number);
  std::string numbered(int number) const {
    return "triton_poi_fused_" + std::to_string(options_.renumber ? 7 - number : number);
  }

  Options options_;
  cudaStream_t stream_{};
  float *device_{nullptr}, *host_{nullptr};
  std::vector<Operation> operations_;
  std::vector<double> steps_us_;
  int step_{0};
};

void Job::layer(int number) {
  const int rows = options_.batch;
  launch("layer_norm(float*, int)", layer_norm, rows, 60000);
  if (options_.is_new) {
    launch("void matmul<32>(float*, int)", matmul<32>, rows, 260000);
  } else {
    launch("void matmul<16>(float*, int)", matmul<16>, rows, 300000);
  }
  launch("rope(float*, int)", rope, rows, 100'000 + options_.slow * 100);
  if (options_.is_new) {
    launch("softmax_fused(float*, int)", softmax, rows, 190000);
  } else {
    launch("softmax(float*, int)", softmax, rows, 120000);
    launch("dropout(float*, int)", pointwise, rows, 60000);
  }
  launch(numbered(1 + number), pointwise, 2 * rows, 80'000 + 20'000 * number);
}

void Job::one_step() {
  Operation copy = begin("Memcpy HtoD (Pinned -> Device)");
  copy.bytes = 4096 * options_.batch;
  check(cudaMemcpyAsync(device_, host_, static_cast<std::size_t>(copy.bytes),
                        cudaMemcpyHostToDevice, stream_),
        "copy");
  end(copy);
  launch(numbered(1), pointwise, options_.batch, 50000);
  for (int number = 1; number <= 3; ++number)
    layer(number);
  launch("loss(float*, int)", layer_norm, options_.batch, 90000);
  launch("void adamw<float>(float*, int)", adamw, 24, 200000);
  check(cudaStreamSynchronize(stream_), "wait");
}

void Job::run() {
  for (int warmup = 0; warmup < 2; ++warmup)
    one_step();
  operations_.clear();
  for (step_ = 0; step_ < options_.steps; ++step_) {
    steps_us_.push_back(now_us());
    one_step();
  }
  steps_us_.push_back(now_us());
}

// Between two events the clock has the grain of a float: from one operation to the next, not from the start.
void Job::write() {
  std::FILE* out = std::fopen(options_.out.c_str(), "w");
  if (out == nullptr) std::exit(1);
  std::fprintf(out, "{\"traceEvents\": [");
  const char* slice = "%s\n{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": %d, \"tid\": %d, "
                      "\"ts\": %.3f, \"dur\": %.3f, \"args\": {%s}}";
  for (std::size_t i = 0; i + 1 < steps_us_.size(); ++i)
    std::fprintf(out, slice, i == 0 ? "" : ",", "user_annotation",
                 ("ProfilerStep#" + std::to_string(i)).c_str(), 1, 1, steps_us_[i],
                 steps_us_[i + 1] - steps_us_[i], "");
  const bool is_model = std::getenv("KANSOKU_SOFTGPU_CLOCK") != nullptr &&
                        std::string(std::getenv("KANSOKU_SOFTGPU_CLOCK")) == "model";
  double at_us = is_model ? 0 : operations_.front().launch_us;
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    const Operation& operation = operations_[i];
    float gap_ms = 0, ms = 0;
    if (i > 0)
      check(cudaEventElapsedTime(&gap_ms, operations_[i - 1].begin, operation.begin), "ask a time");
    check(cudaEventElapsedTime(&ms, operation.begin, operation.end), "ask a time");
    at_us += 1000 * static_cast<double>(gap_ms);
    const std::string correlation = "\"correlation\": " + std::to_string(i + 1);
    const bool is_copy = operation.bytes > 0;
    std::fprintf(out, slice, ",", "cuda_runtime", is_copy ? "cudaMemcpyAsync" : "cudaLaunchKernel", 1,
                 1, operation.launch_us, operation.launched_us - operation.launch_us,
                 correlation.c_str());
    const std::string what =
        is_copy ? ", \"bytes\": " + std::to_string(operation.bytes)
                : ", \"grid\": [" + std::to_string(operation.grid) + ", 1, 1], \"block\": [" +
                      std::to_string(kBlock) + ", 1, 1]";
    std::fprintf(out, slice, ",", is_copy ? "gpu_memcpy" : "kernel", operation.name.c_str(), 0, 7,
                 at_us, 1000 * static_cast<double>(ms), (correlation + what).c_str());
  }
  std::fprintf(out, "\n]}\n");
  std::fclose(out);
}

Options options_of(int argc, char** argv) {
  Options out;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (word == "--out") out.out = value();
    if (word == "--steps") out.steps = std::atoi(value().c_str());
    if (word == "--batch") out.batch = std::atoi(value().c_str());
    if (word == "--slow") out.slow = std::atoi(value().c_str());
    if (word == "--build") out.is_new = value() == "new";
    if (word == "--renumber") out.renumber = true;
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = options_of(argc, argv);
  if (options.out.empty()) {
    std::fprintf(stderr, "usage: job --out FILE [--steps N] [--batch N] [--slow N] [--build new]\n");
    return 2;
  }
  Job job(options);
  job.run();
  job.write();
  return 0;
}
