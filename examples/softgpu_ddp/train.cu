// SPDX-License-Identifier: Apache-2.0
// Data-parallel training: each rank takes every n-th row of the batch, gradients are added up by
// ncclAllReduce. With one rank the same program trains on the whole batch. See launch.sh.
//   train RANK RANKS STEPS ID_FILE     rank 0 writes the communicator's id to ID_FILE
#include <nccl.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "meeting.h"
#include "mlp.h"

namespace {

constexpr int kBatch = 64;

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: train RANK RANKS STEPS ID_FILE\n");
    return 2;
  }
  const int rank = std::atoi(argv[1]), ranks = std::atoi(argv[2]), steps = std::atoi(argv[3]);
  int devices = 0;
  mlp::check(cudaGetDeviceCount(&devices), "count devices");
  mlp::check(cudaSetDevice(rank % devices), "choose a device");
  ncclComm_t comm{};
  meeting::check(ncclCommInitRank(&comm, ranks, meeting::exchange_id(rank, argv[4]), rank),
                 "start NCCL");
  cudaStream_t stream{};
  mlp::check(cudaStreamCreate(&stream), "create a stream");
  {
    mlp::Network network(kBatch / ranks, stream);
    // All begin with rank 0's parameters.
    meeting::check(ncclBroadcast(network.device_parameters(), network.device_parameters(),
                                 mlp::Sizes::total, ncclFloat, 0, comm, stream),
                   "broadcast parameters");
    for (int step = 0; step < steps; ++step) {
      network.load(static_cast<std::uint64_t>(step * kBatch + rank),
                   static_cast<std::uint64_t>(ranks));
      network.step(kBatch);
      meeting::check(ncclAllReduce(network.device_gradients(), network.device_gradients(),
                                   mlp::Sizes::total, ncclFloat, ncclSum, comm, stream),
                     "add gradients");
      meeting::check(ncclAllReduce(network.device_loss(), network.device_loss(), 1, ncclFloat,
                                   ncclSum, comm, stream),
                     "add losses");
      network.update(0.5F);
      const double loss = static_cast<double>(network.loss());
      if (rank == 0) std::printf("step %d loss %.7f\n", step, loss);
    }
    mlp::check(cudaStreamSynchronize(stream), "end");
  }
  meeting::check(ncclCommDestroy(comm), "end NCCL");
  mlp::check(cudaStreamDestroy(stream), "end");
  return 0;
}
