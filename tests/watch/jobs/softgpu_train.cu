// SPDX-License-Identifier: Apache-2.0
// Trains the perceptron of examples/softgpu on RANKS devices, data-parallel, until it is ended: a
// long job in constant memory. Compile with share/softgpu/softgpu-clang.
//   softgpu_train RANK RANKS FOLDER
// FOLDER/id is where the ranks meet; FOLDER/rankN.steps gets a line a step: the wall-clock
// nanoseconds of its end. A planted fault: while the file FOLDER/leak-N exists, rank N keeps 4 MiB
// more of its device's memory each half second; without it, it gives all back.
#include <fcntl.h>
#include <nccl.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "meeting.h"
#include "mlp.h"

namespace {

constexpr int kBatch = 256, kPasses = 12;         // passes over the batch in a step
constexpr std::size_t kPoolBytes = 128U << 20;    // held by the job from begin to end
constexpr std::size_t kMoreGradients = 1U << 18;  // floats, as if of a larger network
constexpr std::size_t kLeakBytes = 4U << 20;      // each time
constexpr std::size_t kLeaksMax = 128;            // 512 MiB at most
constexpr long long kLeakEveryNs = 500'000'000;
constexpr useconds_t kHostWorkUs = 30'000;  // input, logging: the device is idle

long long now_ns(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

class Leak {
 public:
  explicit Leak(std::string path) : path_(std::move(path)), last_(now_ns(CLOCK_MONOTONIC)) {}
  void step() {
    const long long now = now_ns(CLOCK_MONOTONIC);
    if (now - last_ < kLeakEveryNs) return;
    last_ = now;
    if (access(path_.c_str(), F_OK) != 0) {
      for (void* const kept : kept_)
        mlp::check(cudaFree(kept), "give back");
      kept_.clear();
    } else if (kept_.size() < kLeaksMax) {
      void* more = nullptr;
      mlp::check(cudaMalloc(&more, kLeakBytes), "leak");
      kept_.push_back(more);
    }
  }

 private:
  std::string path_;
  long long last_;
  std::vector<void*> kept_;
};

void train(int rank, int ranks, const std::string& folder, ncclComm_t comm, cudaStream_t stream,
           float* pool) {
  mlp::Network network(kBatch, stream);
  meeting::check(ncclBroadcast(network.device_parameters(), network.device_parameters(),
                               mlp::Sizes::total, ncclFloat, 0, comm, stream),
                 "broadcast parameters");
  const std::string name = "rank" + std::to_string(rank);
  const int log = open((folder + "/" + name + ".steps").c_str(),
                       O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  Leak leak(folder + "/leak-" + std::to_string(rank));
  for (std::uint64_t step = 0;; ++step) {
    for (int pass = 0; pass < kPasses; ++pass) {
      network.load((step * kPasses + static_cast<std::uint64_t>(pass)) * kBatch, 1);
      network.step(kBatch * ranks);
    }
    meeting::check(ncclAllReduce(network.device_gradients(), network.device_gradients(),
                                 mlp::Sizes::total, ncclFloat, ncclSum, comm, stream),
                   "add gradients");
    meeting::check(ncclAllReduce(pool, pool, kMoreGradients, ncclFloat, ncclSum, comm, stream),
                   "add more gradients");
    network.update(0.05F);
    static_cast<void>(network.loss());  // waits for the device
    leak.step();
    usleep(kHostWorkUs);
    char line[32];
    const int length = std::snprintf(line, sizeof line, "%lld\n", now_ns(CLOCK_REALTIME));
    if (write(log, line, static_cast<std::size_t>(length)) < 0) std::exit(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: softgpu_train RANK RANKS FOLDER\n");
    return 2;
  }
  const int rank = std::atoi(argv[1]), ranks = std::atoi(argv[2]);
  const std::string folder = argv[3];
  int devices = 0;
  mlp::check(cudaGetDeviceCount(&devices), "count devices");
  mlp::check(cudaSetDevice(rank % devices), "choose a device");
  ncclComm_t comm{};
  meeting::check(ncclCommInitRank(&comm, ranks, meeting::exchange_id(rank, folder + "/id"), rank),
                 "start NCCL");
  cudaStream_t stream{};
  mlp::check(cudaStreamCreate(&stream), "create a stream");
  float* pool = nullptr;
  mlp::check(cudaMalloc(reinterpret_cast<void**>(&pool), kPoolBytes), "allocate the pool");
  mlp::check(cudaMemset(pool, 0, kPoolBytes), "clear the pool");
  train(rank, ranks, folder, comm, stream, pool);
}
