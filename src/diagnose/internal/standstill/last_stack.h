// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "diagnose/diagnose.h"
#include "diagnose/internal/steps/job.h"
#include "trace/model.h"

namespace kansoku::diagnose {

/// Samples of the training thread from `from_ns` on. Borrowed from `rank`.
[[nodiscard]] std::vector<const ThreadSample*> samples_since(const RankData& rank,
                                                             std::int64_t from_ns);

/// The most frequent of some stacks; the newest one alone would be chance.
struct LastStack {
  std::vector<trace::Frame> frames;  // outermost first; empty: no sample, or none of Python
  std::size_t count{0}, samples{0};  // that have it, of all
};
[[nodiscard]] LastStack last_stack(const trace::Trace& trace,
                                   const std::vector<const ThreadSample*>& samples);
/// Names its place in `finding`, and says how often it was seen.
void add_last_stack(const trace::Trace& trace, const LastStack& stack, Finding& finding);

/// True if most samples are of a stopped process; without a sample, if `are_others_sampled`.
[[nodiscard]] bool is_stopped(const std::vector<const ThreadSample*>& samples,
                              bool are_others_sampled);

/// Kind of standstill of a finding that names its ranks: from the state of their processes, the
/// holder of the interpreter lock since then, and the place where they stand. Adds its evidence.
[[nodiscard]] std::string standstill_verdict(const trace::Trace& trace, const JobData& job,
                                             std::int64_t since_ns, const LastStack& stack,
                                             Finding& finding);

/// Ranks by the stack in which their training thread was most often since then; those of `finding`
/// are its culprits.
[[nodiscard]] std::vector<HangGroup> groups_by_stack(const trace::Trace& trace, const JobData& job,
                                                     std::int64_t since_ns, const Finding& finding);

}  // namespace kansoku::diagnose
