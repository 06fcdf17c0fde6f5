// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/common_wait.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "common/python_code.h"
#include "common/text.h"
#include "diagnose/internal/steps/names.h"
#include "diagnose/internal/steps/phases.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"

namespace kansoku::diagnose {
namespace {

struct SleepCounts {
  std::vector<std::size_t> counts;  // by rank
  trace::Frame frame;
};
using SleepByFunction =
    std::map<std::pair<trace::StringId, trace::StringId>, SleepCounts>;  // name, file

/// Sleeping samples by innermost function; `totals`: all samples within steps, by rank.
SleepByFunction count_sleep(const Context& context, std::vector<std::size_t>& totals) {
  const std::size_t rank_count = context.job.ranks.size();
  SleepByFunction functions;
  for (std::size_t r = 0; r < rank_count; ++r) {
    const RankPhases& phases = context.phases[r];
    const auto& steps = context.steps.ranks[r];
    for (const ThreadSample& sample : context.job.ranks[r].samples) {
      if (sample.time_ns < steps.front().begin_ns || sample.time_ns >= steps.back().end_ns)
        continue;
      ++totals[r];
      const bool sleeps = sample.state == trace::SampleState::kSleeping ||
                          sample.state == trace::SampleState::kDisk;
      if (!sleeps || !phases.work.contains(sample.time_ns)) continue;
      if (phases.sets[static_cast<std::size_t>(Phase::kInput)].contains(sample.time_ns)) continue;
      const auto frames = frames_of(context.trace, sample.stack);
      if (frames.empty() || !is_own_python_file(text_of(context.trace, frames.back().file)))
        continue;
      SleepCounts& seen = functions[{frames.back().function, frames.back().file}];
      seen.counts.resize(rank_count);
      ++seen.counts[r];
      seen.frame = frames.back();
    }
  }
  return functions;
}

}  // namespace

void note_common_waits(const Context& context, std::vector<std::string>& notes) {
  const std::size_t rank_count = context.job.ranks.size();
  std::vector<std::size_t> totals(rank_count, 0);
  for (const auto& [key, seen] : count_sleep(context, totals)) {
    double least = 1, mean = 0;
    std::size_t fewest = seen.counts.front();
    for (std::size_t r = 0; r < rank_count; ++r) {
      const double share =
          totals[r] > 0 ? static_cast<double>(seen.counts[r]) / static_cast<double>(totals[r]) : 0;
      least = std::min(least, share);
      mean += share / static_cast<double>(rank_count);
      fewest = std::min(fewest, seen.counts[r]);
    }
    if (least < kExcessShareMin || fewest < kCommonWaitSamplesMin) continue;
    const std::string file(text_of(context.trace, seen.frame.file));
    notes.push_back(fmt::format(words::kCommonSleep, text_of(context.trace, seen.frame.function),
                                base_name(file), seen.frame.line, mean * 100));
  }
}

}  // namespace kansoku::diagnose
