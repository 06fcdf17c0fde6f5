// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "infer/device.h"
#include "infer/figures.h"
#include "infer/run.h"
#include "verdict/arbiter.h"

namespace kansoku::infer {

enum class Cause : std::uint8_t {
  kOversubscribed,  // more threads than processors
  kThreadHeldBack,  // one thread of the graph had no processor: a quota, another program on its own
  kNoProcessor,     // several had none
  kWeightsRead,     // threads were blocked: the weights come from disk
  kMemoryBusy,      // since a moment operators that read much memory are slower, and nothing else
  kProcessorSlower,  // since a moment everything is slower
  kSlowOperator,     // one operator is slower, the others are not
  kDeviceSlower,     // since a moment a token's kernels take longer
};
/// "oversubscribed", "thread_held_back", ...
[[nodiscard]] std::string_view cause_name(Cause cause);

/// Something that makes a model slow, with its evidence. All are observations.
struct Finding {
  Cause cause{};
  std::int32_t pid{0};
  std::string what;          // the operator, the thread, the node: "MUL_MAT", "thread 1"
  double share{0};           // of the time of graphs that it costs, about
  std::int64_t since_ns{0};  // 0: all the time
  std::string text;          // a sentence, with the figures
};
[[nodiscard]] verdict::Claim claim_of(const Finding& finding);

/// Findings that a recording shows by itself, by cost. A cause that needs the scheduler's events is
/// not found without them. Thresholds: thresholds.inc.
[[nodiscard]] std::vector<Finding> find_causes(const Run& run, const Report& report,
                                               const std::vector<DeviceFigures>& devices);

/// One operator type in two recordings of the same program.
struct OperatorChange {
  std::string op;
  Phase phase{};
  double base_ns{0},
      now_ns{0};  // of one computation, medians: one that was interrupted says nothing
  double ratio{1};
  double work_ratio{1};  // of a call: FLOPs or bytes, whichever grew more
  double share{0};       // of the phase's time now
  [[nodiscard]] double per_work() const { return work_ratio > 0 ? ratio / work_ratio : ratio; }
};
struct Comparison {
  std::vector<OperatorChange> operators;  // by cost of the change
  double token_ratio{0};                  // time of a decoding micro-batch, median; 0: unknown
  std::vector<Finding> findings;
};
/// Verdict beside the figures.
struct Verdict {
  std::vector<Finding> findings;  // by cost
  std::optional<Comparison> comparison{};
  std::vector<DeviceFigures> devices{};  // by process, as in the report
};

/// Changes from `base` to `now`: the first process with operators of each.
[[nodiscard]] Comparison compare(const Report& base, const Report& now);

}  // namespace kansoku::infer
