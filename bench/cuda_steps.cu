// SPDX-License-Identifier: Apache-2.0
// The training of examples/softgpu without an end, with a line for each step in the file that
// KANSOKU_STEPS names; bench_cuda_switch measures it.
//   cuda_steps [ROWS]      rows of a batch; the fewer, the more launches a second
#include "../examples/softgpu/mlp.h"
#include "step_log.h"

int main(int argc, char** argv) {
  const int rows = argc > 1 ? std::atoi(argv[1]) : 64;
  step_log* const log = step_log_map(std::getenv(STEP_LOG_VARIABLE));
  if (rows < 1 || log == nullptr) {
    std::fprintf(stderr, "usage: KANSOKU_STEPS=FILE cuda_steps [ROWS]\n");
    return 2;
  }
  cudaStream_t stream{};
  mlp::check(cudaStreamCreate(&stream), "create a stream");
  mlp::Network network(rows, stream);
  network.load(0, 1);
  while (true) {
    network.step(rows);
    if (!std::isfinite(network.loss())) return 1;
    network.update(0.5F);
    step_log_add(log);
  }
}
