// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "diff/diff.h"
#include "trace/model.h"

namespace kansoku::diff {

/// A training job on GPUs as a recording shows it: launches on the main thread, kernels on a stream
/// track, linked by correlation. Its noise is that of two runs of one program on a V100 (ResNet-50,
/// PyTorch's profiler): a kernel's mean differs by 0.45 % from run to run (19 of 20 below 1 %), a
/// call by 1 % from its mean; one call of a hundred takes 1.3 times as long (ours).
struct Job {
  std::uint64_t seed{1};  // of the noise, of process numbers and of the time of the start
  int steps{100}, ranks{1};
  double batch{1};                             // grids, bytes and times of items that scale with it
  std::map<std::string, double> slower{};      // by kernel: factor of its time
  std::map<std::string, std::string> names{};  // by kernel: recorded under this name instead
  std::map<std::string, int> more_launches{};  // by kernel: further ones a step
  std::string without{};                       // a kernel that is not launched
  std::string added{};                         // a kernel that is launched after the others
  int only_rank{-1};                           // `slower` holds on this rank alone; -1: on all
  double machine{1};                           // every kernel takes so much longer
  std::string persistent{};  // a kernel whose grid is the device's, whatever it does
  bool has_dims{false};      // each launch within an operator with its shapes
  bool has_lists{false};     // with has_dims: of lists of tensors, which have none
  double operator_us{0};     // with has_dims: each operator's own time on the host, for any batch
  int waits_every{1};        // the host waits for the device in each so-manieth step
  bool is_exact{false};      // the device's clock counts work, on its own axis
  bool has_loop{true};       // optimizer steps on the main thread
  bool renumbers{false};     // numbers in names are dealt anew
  bool reorders{false};      // names are declared in another order
  double python_ms{2};       // a step in the function `augment`, by samples
  double idle_ms{0};         // a step in nothing that is recorded
};

/// Kernels that the job launches, in order: their short names.
[[nodiscard]] std::vector<std::string> kernel_names();

/// The job's recording, written by the trace writer and read again.
[[nodiscard]] trace::Trace recorded(const Job& job);

/// One recording a side.
[[nodiscard]] Comparison compared(const Job& before, const Job& after, const Options& options = {});

/// The row of that name, or null.
[[nodiscard]] const Row* row_named(const Comparison& comparison, std::string_view name);

/// Significant rows in order: "rope slower; loss new".
[[nodiscard]] std::string found(const Comparison& comparison);

}  // namespace kansoku::diff
