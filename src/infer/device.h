// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "infer/figures.h"
#include "infer/run.h"

namespace kansoku::infer {

/// Kernels of one name in one phase.
struct KernelRow {
  std::string name;
  Phase phase{};
  std::uint64_t count{0};
  double ns{0}, share{0};  // share: of the phase's time in kernels
};
/// An operator of one phase as its kernels show it: which kernels are its own is inferred from
/// their order and names (kernel_nodes.h).
struct DeviceOperatorRow {
  std::string op;  // "RMS_NORM+MUL": one kernel for several
  Phase phase{};
  std::uint64_t count{0}, kernels{0};
  double ns{0}, flops{0}, bytes{0}, share{0};
};
/// Device work of the micro-batches of one phase. A launch belongs to the micro-batch in which its
/// thread called for it; a graph counts with the kernels that it holds.
struct DevicePhase {
  Phase phase{};
  std::uint64_t micro_batches{0};  // that launched something
  std::int64_t tokens{0};
  std::uint64_t launches{0};                        // calls that launched kernels or graphs
  std::uint64_t graphs{0}, kernels{0};              // kernels: also those within graphs
  std::uint64_t kernels_least{0}, kernels_most{0};  // of one micro-batch
  double kernel_ns{0};                              // of the timed ones
  std::uint64_t timed{0};                           // micro-batches with such
  std::uint64_t placed{0};                          // splits whose kernels were told to nodes
  std::uint64_t unplaced{0};                        // splits of which they could not
};
struct DeviceFigures {
  std::vector<DevicePhase> phases;
  std::vector<KernelRow> kernels;            // by time
  std::vector<DeviceOperatorRow> operators;  // by time
  /// Decoding micro-batches whose kernels were timed, in order.
  struct Batch {
    std::int64_t begin_ns{0};
    double kernel_ns{0};
  };
  std::vector<Batch> decoding;
  std::uint64_t outside{0};  // kernels that no micro-batch called for
};

/// Figures of the kernels and CUDA calls that the recording holds (`record --cuda`), by process of
/// the run; empty for those without. Fails as gpu::activity::read_device_work.
[[nodiscard]] Result<std::vector<DeviceFigures>> device_figures(const Run& run);

}  // namespace kansoku::infer
