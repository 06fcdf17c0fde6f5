// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/profile/recorded_patterns.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "diagnose/internal/steps/names.h"
#include "diagnose/internal/steps/phases.h"
#include "diagnose/thresholds.h"

namespace kansoku::diagnose {
namespace {

constexpr std::size_t kStackNameBytesMax = 200;

/// Share of a stretch of time in which a rank's main thread was on a processor; 0 if not known.
float running_share(const RankData& rank, std::int64_t begin_ns, std::int64_t end_ns) {
  if (!rank.main.is_known || end_ns <= begin_ns) return 0;
  return static_cast<float>(static_cast<double>(rank.main.running.measure_ns({begin_ns, end_ns})) /
                            static_cast<double>(end_ns - begin_ns));
}

class PatternReader {
 public:
  PatternReader(const trace::Trace& trace, const JobData& job) : trace_(trace), job_(job) {
    for (std::size_t r = 0; r < job.ranks.size(); ++r)
      index_of_pid_[job.ranks[r].pid] = r;
  }

  RecordedPatterns read(std::int64_t begin_ns, std::int64_t end_ns);

 private:
  std::uint32_t function_of(const std::string& name);
  std::uint32_t function_of_stack(trace::StackId stack);
  void read_operators(std::vector<std::vector<Execution>>& executions);
  void read_rank(std::size_t r, std::vector<Execution>& executions);

  const trace::Trace& trace_;
  const JobData& job_;
  std::unordered_map<std::int32_t, std::size_t> index_of_pid_;
  std::unordered_map<std::string, std::uint32_t> functions_;
  std::unordered_map<std::uint32_t, std::uint32_t> function_of_stack_;
  std::unordered_map<std::uint32_t, std::uint32_t> function_of_name_;
  RecordedPatterns out_;
};

std::uint32_t PatternReader::function_of(const std::string& name) {
  const auto [known, is_new] =
      functions_.try_emplace(name, static_cast<std::uint32_t>(out_.names.size()));
  if (is_new) out_.names.push_back(name);
  return known->second;
}

/// "leaf < caller < ... < outermost".
std::uint32_t PatternReader::function_of_stack(trace::StackId stack) {
  const auto known = function_of_stack_.find(stack.raw);
  if (known != function_of_stack_.end()) return known->second;
  std::string name;
  const auto frames = frames_of(trace_, stack);
  for (std::size_t i = frames.size(); i-- > 0 && name.size() < kStackNameBytesMax;) {
    if (!name.empty()) name += " < ";
    name += text_of(trace_, frames[i].function);
  }
  const std::uint32_t function = function_of(name);
  function_of_stack_.emplace(stack.raw, function);
  return function;
}

/// Slices of the operator pack on any thread of a rank.
void PatternReader::read_operators(std::vector<std::vector<Execution>>& executions) {
  const trace::StringId ops = trace_.strings.find("torch-ops");
  if (ops == trace::StringId{}) return;
  const auto& slices = trace_.slices;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (slices.category[i] != ops) continue;
    const auto time = slice_time(slices, i);
    if (!time || slices.track[i].raw >= trace_.tracks.size()) continue;
    const trace::Track& track = trace_.tracks[slices.track[i].raw];
    const auto rank = index_of_pid_.find(track.pid);
    if (rank == index_of_pid_.end()) continue;
    const auto [begin_ns, end_ns] = *time;
    const auto [function, is_new] = function_of_name_.try_emplace(slices.name[i].raw, 0);
    if (is_new) function->second = function_of(std::string(text_of(trace_, slices.name[i])));
    executions[rank->second].push_back(
        {.begin_ns = begin_ns,
         .end_ns = end_ns,
         .function = function->second,
         .activity = Activity::kCpuOp,
         .use = track.tid == job_.ranks[rank->second].main_tid
                    ? running_share(job_.ranks[rank->second], begin_ns, end_ns)
                    : 0});
  }
}

void PatternReader::read_rank(std::size_t r, std::vector<Execution>& executions) {
  const RankData& rank = job_.ranks[r];
  for (const Event& event : rank.events) {
    if (event.kind != EventKind::kInput || !event.on_main) continue;
    executions.push_back({.begin_ns = event.time.begin_ns,
                          .end_ns = event.time.end_ns,
                          .function = function_of(std::string(text_of(trace_, event.name))),
                          .activity = Activity::kInput,
                          .use = running_share(rank, event.time.begin_ns, event.time.end_ns)});
  }
  for (const CollectiveEvent& collective : rank.collectives) {
    if (collective.is_issue) continue;
    executions.push_back({.begin_ns = collective.time.begin_ns,
                          .end_ns = collective.time.end_ns,
                          .function = function_of(job_.op_names[collective.op]),
                          .activity = Activity::kCollective,
                          .use = 0});
  }
  for (std::size_t i = 0; i + 1 < rank.samples.size(); ++i) {
    const ThreadSample& sample = rank.samples[i];
    const std::int64_t until_ns = rank.samples[i + 1].time_ns;
    if (until_ns - sample.time_ns > kSampleGapMaxNs || until_ns <= sample.time_ns) continue;
    if (sample.stack.raw >= trace_.stacks.size()) continue;
    executions.push_back({.begin_ns = sample.time_ns,
                          .end_ns = until_ns,
                          .function = function_of_stack(sample.stack),
                          .activity = Activity::kPython,
                          .use = running_share(rank, sample.time_ns, until_ns)});
  }
}

RecordedPatterns PatternReader::read(std::int64_t begin_ns, std::int64_t end_ns) {
  std::vector<std::vector<Execution>> executions(job_.ranks.size());
  read_operators(executions);
  for (std::size_t r = 0; r < job_.ranks.size(); ++r) {
    read_rank(r, executions[r]);
    out_.ranks.push_back(build_pattern(executions[r], begin_ns, end_ns, kCpuPriorities));
    out_.ranks.back().rank = job_.ranks[r].rank;
  }
  return std::move(out_);
}

}  // namespace

RecordedPatterns recorded_patterns(const trace::Trace& trace, const JobData& job,
                                   std::int64_t begin_ns, std::int64_t end_ns) {
  return PatternReader(trace, job).read(begin_ns, end_ns);
}

}  // namespace kansoku::diagnose
