// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trace/model.h"

namespace kansoku::diagnose {

/// Equal pipelines whose stages pass micro-batches on: all forward passes of a step, then all
/// backward ones, then the optimizer; ranks wait for nothing but their messages. Rank of a stage:
/// pipeline * stages + stage; each pipeline is a group of its own.
struct StagesJob {
  std::size_t stages{4}, pipelines{1}, micro_batches{4};
  int step_count{40};
  double forward_ms{4}, backward_ms{8}, optimizer_ms{3};
  double uneven{1};              // times as much work in stage 2
  std::size_t slow_rank{99};     // runs a function of its own in each forward pass
  double slow_ms{0};             // so long
  double head_ms{0};             // of a module that the last stage alone has, in each forward pass
  bool is_everywhere{false};     // every other rank runs that function as well, for nothing
  bool has_names{true};          // of groups
  std::size_t lost_receives{0};  // of rank 1, at its begin
  int lost_ends{0};              // of rank 1: first steps whose optimizer was not seen
  int lost_steps{0};             // in which no message of rank 1 was seen, likewise
};
[[nodiscard]] trace::Trace make_stages_trace(const StagesJob& job);

}  // namespace kansoku::diagnose
