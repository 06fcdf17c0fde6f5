// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "trace/model.h"

namespace kansoku::diagnose {

/// Operations of one training step, in the words of Megatron-like timers.
enum class OpType : std::uint8_t {
  kForward,
  kBackward,
  kForwardSend,
  kForwardRecv,
  kBackwardSend,
  kBackwardRecv,
  kParamsGather,
  kGradsScatter,
  kSeparateGrads,
  kLayernormGrads,
  kEmbeddingGrads,
  kClipGrad,
  kOptimizer,
  kGc,
};
inline constexpr std::size_t kOpTypeCount = 14;

[[nodiscard]] std::string_view op_name(OpType type);
/// "forward-pp-comm" for both ends of a forward transfer, likewise backward; else the name.
[[nodiscard]] std::string_view op_group_name(OpType type);
[[nodiscard]] bool is_point_to_point(OpType type);
/// Communication in the sense of idealising: the median counts, not the mean.
[[nodiscard]] bool is_transfer(OpType type);

struct PipelineOp {
  OpType type{};
  std::int32_t step{0}, seq{0}, data_rank{0}, stage{0};
  std::int32_t chunk{0};  // of the model, with interleaved schedules
  std::int64_t start_ns{0}, duration_ns{0};
};

/// One traced process.
struct PipelineWorker {
  std::int32_t data_rank{0}, stage{0}, rank{0};
};

struct PipelineOps {
  std::vector<PipelineOp> ops;
  std::vector<PipelineWorker> workers;  // by stage, data rank
  std::int32_t data_rank_count{0}, stage_count{0};
  std::vector<std::int32_t> steps;  // ascending
  std::uint64_t left_out{0};  // operations without a step, of unknown type or a second tensor rank
};

/// Reads an operation timeline; nothing if the trace holds none.
[[nodiscard]] Result<std::optional<PipelineOps>> read_pipeline_ops(const trace::Trace& trace);

}  // namespace kansoku::diagnose
