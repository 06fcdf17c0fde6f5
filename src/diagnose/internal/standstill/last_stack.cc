// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/standstill/last_stack.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "common/python_code.h"
#include "diagnose/internal/steps/names.h"
#include "diagnose/internal/steps/phases.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"
#include "trace/merge.h"

namespace kansoku::diagnose {
namespace {

/// The thread of a rank that held the interpreter lock in nearly all samples since then; 0: none.
/// A training thread that runs Python all the time holds it, too, and keeps nobody from anything.
std::int32_t lock_holder(const trace::Trace& trace, const RankData& rank, std::int64_t from_ns) {
  struct Holds {
    std::size_t count{0}, asleep{0};
  };
  std::map<std::int32_t, Holds> threads;
  std::set<std::int64_t> times;
  for (std::size_t i = 0; i < trace.samples.size(); ++i) {
    const auto& samples = trace.samples;
    if (samples.pid[i] != rank.pid || samples.time_ns[i] < from_ns || samples.is_native[i] != 0)
      continue;
    times.insert(samples.time_ns[i]);
    if (samples.holds_gil[i] == 0) continue;
    Holds& holds = threads[samples.tid[i]];
    ++holds.count;
    if (samples.state[i] == trace::SampleState::kSleeping) ++holds.asleep;
  }
  const auto nearly_all = [&](std::size_t count) {
    return static_cast<double>(count) >= kNearlyAllShare * static_cast<double>(times.size());
  };
  for (const auto& [tid, holds] : threads) {
    if (holds.count >= kFewSamplesMin &&
        nearly_all(tid == rank.main_tid ? holds.asleep : holds.count))
      return tid;
  }
  return 0;
}

bool waits_for_lock(const trace::Trace& trace, const trace::Frame& frame) {
  const std::string_view name = text_of(trace, frame.function);
  const bool is_wait = name.ends_with("acquire") || name.ends_with("wait") ||
                       name.ends_with("join") || name.ends_with("_wait_for_tstate_lock");
  return is_wait && text_of(trace, frame.file).ends_with("/threading.py");
}

}  // namespace

std::vector<const ThreadSample*> samples_since(const RankData& rank, std::int64_t from_ns) {
  std::vector<const ThreadSample*> found;
  for (const ThreadSample& sample : rank.samples) {
    if (sample.time_ns >= from_ns) found.push_back(&sample);
  }
  return found;
}

LastStack last_stack(const trace::Trace& trace, const std::vector<const ThreadSample*>& samples) {
  std::map<trace::StackId, std::size_t> counts;
  for (const ThreadSample* sample : samples)
    ++counts[sample->stack];
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == counts.end()) return {};
  return {frames_of(trace, most->first), most->second, samples.size()};
}

void add_last_stack(const trace::Trace& trace, const LastStack& stack, Finding& finding) {
  const std::vector<trace::Frame>& frames = stack.frames;
  if (frames.empty()) return;
  set_place(trace, frames, finding);
  finding.evidence.push_back(fmt::format(words::kSameStack, stack.count, stack.samples));
  if (finding.stack.size() == frames.size()) return;
  finding.evidence.push_back(fmt::format(words::kStandsIn, text_of(trace, frames.back().function),
                                         text_of(trace, frames.back().file), frames.back().line));
}

bool is_stopped(const std::vector<const ThreadSample*>& samples, bool are_others_sampled) {
  if (samples.empty()) return are_others_sampled;
  const auto stopped = std::count_if(samples.begin(), samples.end(), [](const ThreadSample* s) {
    return s->state == trace::SampleState::kStopped;
  });
  return 2 * static_cast<std::size_t>(stopped) > samples.size();
}

std::string standstill_verdict(const trace::Trace& trace, const JobData& job, std::int64_t since_ns,
                               const LastStack& stack, Finding& finding) {
  if (finding.kind == "stopped") return "dead_process";
  for (const std::int32_t number : finding.ranks) {
    for (const RankData& rank : job.ranks) {
      if (rank.rank != number) continue;
      const std::int32_t holder = lock_holder(trace, rank, since_ns);
      if (holder == 0) continue;
      finding.evidence.push_back(
          fmt::format(words::kHoldsLockSince, trace::pid_on_host(holder), number));
      return "deadlock";
    }
  }
  const auto has_frame = [&](auto&& test) {
    return std::any_of(stack.frames.begin(), stack.frames.end(), test);
  };
  if (has_frame([&](const trace::Frame& frame) {
        return classify_frame(text_of(trace, frame.function), text_of(trace, frame.file)) ==
               FrameRole::kInput;
      }))
    return "stuck_input";
  return has_frame([&](const trace::Frame& frame) { return waits_for_lock(trace, frame); })
             ? "deadlock"
             : "missing_rank";
}

std::vector<HangGroup> groups_by_stack(const trace::Trace& trace, const JobData& job,
                                       std::int64_t since_ns, const Finding& finding) {
  std::map<std::pair<bool, std::vector<std::string>>, HangGroup> groups;
  for (const RankData& rank : job.ranks) {
    Finding here;
    set_place(trace, last_stack(trace, samples_since(rank, since_ns)).frames, here);
    const bool is_culprit =
        std::find(finding.ranks.begin(), finding.ranks.end(), rank.rank) != finding.ranks.end();
    HangGroup& group = groups[{!is_culprit, here.stack}];
    group.place = here.function.empty() ? words::kNoPythonStack : here.function;
    group.stack = here.stack;
    group.is_culprit = is_culprit;
    group.ranks.push_back(rank.rank);
  }
  std::vector<HangGroup> out;
  out.reserve(groups.size());
  for (auto& [key, group] : groups)
    out.push_back(std::move(group));
  return out;
}

}  // namespace kansoku::diagnose
