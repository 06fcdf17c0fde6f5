// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "trace/model.h"

namespace kansoku::diagnose {

/// One operation of a pipeline job, as its factors are asked for.
struct PipelinePlace {
  int step{0}, data_rank{0}, stage{0}, micro_batch{0};
};

/// A pipeline- and data-parallel job in which all forward computations of a step come before all
/// backward ones. With equal workers, P = stages and M = micro_batches a step takes
///   (M + P - 1) (forward + backward) + 2 (M + P - 2) transfer + scatter + optimizer
/// since a receive waits for the computation before it. Rank of a worker: data_rank * P + stage.
struct PipelineJob {
  int step_count{3}, stage_count{4}, data_rank_count{2}, micro_batch_count{6};
  std::int64_t forward_us{1000}, backward_us{2000}, transfer_us{0}, scatter_us{500};
  std::int64_t optimizer_us{300};
  std::function<double(const PipelinePlace&)> factor{};    // of a computation; none: 1
  std::function<bool(const PipelinePlace&)> is_missing{};  // forward computations not recorded
  bool has_second_tensor_rank{false};                      // whose times are ten times as long
  std::uint64_t shuffle_seed{0};                           // 0: events in order
};

[[nodiscard]] trace::Trace make_pipeline_trace(const PipelineJob& job);
/// The closed form above, in seconds.
[[nodiscard]] double pipeline_step_s(const PipelineJob& job);

}  // namespace kansoku::diagnose
