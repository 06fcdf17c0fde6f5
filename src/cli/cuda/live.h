// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "capture/cuda/channel.h"
#include "capture/cuda/stuck.h"
#include "cli/screen.h"
#include "common/json.h"

namespace kansoku::cli {

/// All that the library in one process counts, at one moment.
struct CudaSnapshot {
  std::uint64_t at_ns{0};  // boot time
  wire_cuda_state state{};
  std::vector<capture::cuda::EntryTotals> entries;
  struct Kernel {
    capture::cuda::KernelInfo info;
    capture::cuda::Durations durations;
  };
  std::map<std::uint32_t, Kernel> kernels;  // those that were launched
  std::map<std::uint32_t, capture::cuda::Durations> classes;
  std::vector<capture::cuda::StreamInfo> streams;
  std::vector<capture::cuda::Waiter> waiters;
};
[[nodiscard]] CudaSnapshot snapshot_of(const capture::cuda::Channel& channel);

/// What happened between two snapshots.
struct CudaRow {
  std::string name, full_name;
  double calls_per_s{0};
  std::optional<double> device_share, mean_us, p99_us;  // nothing: no operation of it was timed
  std::uint64_t timed{0};
  double bytes_per_s{0};
};
struct CudaFrame {
  double seconds{0};
  capture::cuda::Mode mode{capture::cuda::Mode::kDormant};
  std::uint32_t every_n{0};
  std::vector<CudaRow> kernels, others;  // by share of the device's time
  double launches_per_s{0}, failed_per_s{0};
  double poller_share{0};
  std::optional<double> own_ns, events_ns;  // of a timed operation
  std::vector<capture::cuda::Waiter> waiters;
  std::vector<capture::cuda::Stuck> stuck;
  std::uint64_t now_ns{0};
};
[[nodiscard]] CudaFrame frame_between(const CudaSnapshot& before, const CudaSnapshot& after);

/// The oldest operations beyond their deadlines, by the history that the library keeps.
[[nodiscard]] std::vector<capture::cuda::Stuck> stuck_in(const CudaSnapshot& snapshot);
/// "kernel reduce<float>", "graph", "host function".
[[nodiscard]] std::string operation_name(const CudaSnapshot& snapshot,
                                         const capture::cuda::Suspect& operation);
/// The one operation, or "one of 3 operations (copy, kernel reduce<float>)".
[[nodiscard]] std::string suspects_text(const CudaSnapshot& snapshot,
                                        const capture::cuda::Stuck& stuck);

[[nodiscard]] Lines frame_text(const CudaFrame& frame, const CudaSnapshot& snapshot,
                               std::size_t rows_max);
[[nodiscard]] Json frame_json(const CudaFrame& frame, const CudaSnapshot& snapshot);

}  // namespace kansoku::cli
