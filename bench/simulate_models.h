// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// The models of bench/simulate_peer.py on the engine.

namespace kansoku::bench {

struct QueueRun {
  double mean_wait_s{0};
  std::uint64_t events{0};
};

/// M/M/50 at load .9, mean service one second.
[[nodiscard]] QueueRun run_queue_of_50(std::uint64_t customers, std::uint64_t seed);

/// Record of a task in the trace.
struct TaskRecord {
  std::int64_t end_ns;
  std::uint32_t pipeline;
  std::uint32_t task;  // 0 preprocess, 1 train, 2 evaluate, 3 compress, 4 harden, 5 deploy
  float wait_s, exec_s;
  double bytes;
};
static_assert(sizeof(TaskRecord) == 32);
constexpr std::size_t kTasks = 6;

struct PipelineOptions {
  std::uint32_t pipelines{0};
  std::int64_t compute_slots{40}, training_slots{60};
  std::uint64_t seed{1};
  bool records{true};
};

struct PipelineRun {
  std::vector<TaskRecord> records;
  double wait_s[kTasks]{};  // means
  double sojourn_s{0};
  double compute_share{0}, training_share{0};  // of the slots busy, until the last arrival
  std::uint64_t events{0};
  std::size_t frame_bytes{0};  // the frame pool at the end, which is its peak
};

/// A small operations platform: pipelines of up to six tasks on two clusters and a store.
[[nodiscard]] PipelineRun run_pipelines(const PipelineOptions& options);

}  // namespace kansoku::bench
