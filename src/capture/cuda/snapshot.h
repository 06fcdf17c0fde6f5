// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "capture/cuda/channel.h"
#include "capture/cuda/stuck.h"

namespace kansoku::capture::cuda {

/// All that the library in one process counts, at one moment.
struct Snapshot {
  std::uint64_t at_ns{0};  // boot time
  wire_cuda_state state{};
  std::vector<EntryTotals> entries;
  struct Kernel {
    KernelInfo info;
    Durations durations;
  };
  std::map<std::uint32_t, Kernel> kernels;  // those that were launched
  std::map<std::uint32_t, Durations> classes;
  struct Graph {
    GraphInfo info;
    Durations durations;
  };
  std::vector<Graph> graphs;  // all that were ever made
  std::vector<StreamInfo> streams;
  std::vector<Waiter> waiters;
  std::map<std::uint32_t, ContextInfo> contexts;  // of the streams
};
[[nodiscard]] Snapshot snapshot_of(const Channel& channel);

/// True if the library's thread is awake and has given no sign of life for a second: in the driver,
/// or stopped with its process. Its data are as old.
[[nodiscard]] bool is_silent(const Snapshot& snapshot);

/// Why work that was handed over before the library awoke may still run; nothing if it is known to
/// be over: a wait for all of the only context returned, or every stream that the process made
/// finished something since, and the default streams had no work left.
[[nodiscard]] std::optional<std::string> unseen_before(const Snapshot& snapshot);

/// Calls of one class that did something, those that failed, and bytes.
struct ClassTotals {
  std::uint64_t calls{0}, failed{0}, bytes{0};
};
[[nodiscard]] std::map<std::uint32_t, ClassTotals> totals_of(const Snapshot& snapshot);

/// How long operations like that one took; kAnyOperation: the longest that may still run.
[[nodiscard]] std::optional<History> history_in(const Snapshot& snapshot, std::uint32_t what,
                                                std::uint32_t index);
/// Since when a thread has waited for the device (0: none does).
[[nodiscard]] std::uint64_t waiting_since_in(const Snapshot& snapshot);
/// The oldest operations beyond their deadlines, by the history that the library keeps.
[[nodiscard]] std::vector<Stuck> stuck_in(const Snapshot& snapshot);
/// "kernel reduce<float>", "graph of 12 kernels (gemm, softmax)", "host function".
[[nodiscard]] std::string operation_name(const Snapshot& snapshot, const Suspect& operation);
/// Kernels of a graph by their nodes, each once; empty if it is none, or nothing is known of it.
[[nodiscard]] std::vector<std::string> graph_kernels(const Snapshot& snapshot,
                                                     const Suspect& operation);
/// The one operation, or "one of 3 operations (copy, kernel reduce<float>)".
[[nodiscard]] std::string suspects_text(const Snapshot& snapshot, const Stuck& stuck);

/// Name of an enum wire_cuda_class, for people: "copy", "host function".
[[nodiscard]] const char* class_name(std::uint32_t what);
/// True if operations of the class run in a stream.
[[nodiscard]] bool is_stream_operation(std::uint32_t what);
/// "reduce<float>", or "function@0x7f..." where the name is not known.
[[nodiscard]] std::string short_name(const KernelInfo& kernel);
/// One kernel, or one class of operations, between two snapshots.
struct FrameRow {
  std::string name, full_name;
  double calls_per_s{0};
  std::optional<double> device_share, mean_us, p99_us;  // nothing: no operation of it was timed
  std::uint64_t timed{0};
  double bytes_per_s{0};
};
/// Activity between two snapshots.
struct Frame {
  double seconds{0};
  Mode mode{Mode::kDormant};
  std::uint32_t every_n{0};
  std::vector<FrameRow> kernels, others;  // by share of the device's time
  double launches_per_s{0}, failed_per_s{0};
  double poller_share{0};
  std::optional<double> own_ns, events_ns;  // of a timed operation
  std::vector<Waiter> waiters;
  std::vector<Stuck> stuck;
  std::uint64_t now_ns{0};
};
[[nodiscard]] Frame frame_between(const Snapshot& before, const Snapshot& after);

/// Rates of a process's device work between two snapshots. Times are those of the operations that
/// were timed meanwhile; of a kernel that was not, of all that ever were.
struct DeviceRates {
  double kernels_per_s{0}, copied_bytes_per_s{0};
  std::optional<double> busy_share;  // kernels and graphs, over time; above 1 with several streams
  std::optional<double> kernel_mean_s;
};
[[nodiscard]] DeviceRates device_rates(const Snapshot& before, const Snapshot& after);

}  // namespace kansoku::capture::cuda
