// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "trace/model.h"

namespace kansoku::diagnose {

/// Step time with only this part as it was and everything else ideal, over the ideal step time.
struct PartSlowdown {
  std::string name;  // an operation, or the number of a data-parallel rank or pipeline stage
  double slowdown{1};
};

/// Someone or something whose part of the slow-down was computed.
struct Suspect {
  std::string kind;  // "worker", "stage", "last_stage", "stage_balance", "data_balance"
  std::vector<std::int32_t> ranks{};
  std::string label{};  // "data-parallel rank 0, stage 2"
  double fixed_s{0};    // mean step time with the suspect idealised
  double explained{0};  // M, 0 to 1
  double support{0};    // share of bootstrap samples of steps in which it leads its kind
};

/// M = (original - fixed) / (original - ideal): the part of a loss that goes if a suspect works
/// like its peers, 0 to 1. Peers may be faster than the ideal, which is a mean; then it is all. 0
/// where nothing is lost.
[[nodiscard]] double explained_share(double original, double fixed, double ideal);

/// The answer to "how fast would this job be if nobody were slower than the others?".
struct WhatIf {
  std::size_t step_count{0}, worker_count{0}, operation_count{0};
  double recorded_s{0};  // mean step time as recorded, with launch delays
  double original_s{0};  // re-simulated without launch delays
  double ideal_s{0};     // every operation at the mean (compute) or median (transfer) of its type
  double slowdown{1};    // S = original / ideal
  std::vector<PartSlowdown> by_operation, by_data_rank, by_stage;  // greatest first
  std::vector<Suspect> suspects;                                   // most explained first
  double forward_backward_correlation{0};          // of a micro-batch's durations, within workers
  std::vector<double> step_s;                      // re-simulated, by step
  std::vector<std::vector<double>> worker_scores;  // [stage][data rank], as shown in a heat map
  struct Operation {
    std::string name;
    std::size_t type{0};
    double start_s{0}, duration_s{0};
    bool is_critical{false};
  };
  std::size_t worst_step{0};
  std::vector<std::vector<Operation>> worst_operations;  // [worker], in the longest step
  std::vector<std::vector<double>> compute_ms;           // [worker][step], own computation
  std::vector<std::string> notes;
};

struct WhatIfOptions {
  std::uint64_t seed{1};
  std::uint32_t resample_count{500};
};

/// Re-simulates each step of a pipeline- and data-parallel job from its operation timeline
/// (forward-compute, backward-send, grads-reduce-scatter, ... with arguments `step` and `seq_id`),
/// once as recorded and with suspects idealised. Nothing if `trace` is no such timeline. kCorrupt
/// names the contradiction, kLimit the part that is too large. Deterministic for `seed`; pure; any
/// thread.
/// Source: Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis",
/// OSDI 2025, and the dependency rules of its published artefact.
[[nodiscard]] Result<std::optional<WhatIf>> what_if(const trace::Trace& trace,
                                                    const WhatIfOptions& options);

/// Member "what_if" of schema "kansoku.diagnosis/3".
[[nodiscard]] Json to_json(const WhatIf& what_if);

}  // namespace kansoku::diagnose
