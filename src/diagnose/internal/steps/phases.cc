// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/steps/phases.h"

#include <algorithm>
#include <optional>

#include "common/python_code.h"
#include "common/time.h"
#include "diagnose/internal/steps/names.h"
#include "diagnose/thresholds.h"

namespace kansoku::diagnose {
namespace {

std::size_t at(Phase phase) {
  return static_cast<std::size_t>(phase);
}

IntervalSet set_of(const std::vector<Event>& events) {
  std::vector<Interval> intervals;
  intervals.reserve(events.size());
  for (const Event& event : events)
    intervals.push_back(event.time);
  return IntervalSet::of(std::move(intervals));
}

// All slices of one rank that the cut needs.
struct RankSlices {
  std::vector<Event> backward;  // outermost, in order
  IntervalSet input;
  IntervalSet zero_grad;
  IntervalSet optimizer;  // with zero_grad, and with closures that run forward and backward
  IntervalSet backward_set;
  IntervalSet finalize;
  IntervalSet main_collectives;
  IntervalSet main_messages;
  IntervalSet whole;  // first step's begin to last step's end
};

RankSlices read_slices(const RankData& rank, const std::vector<Interval>& steps) {
  RankSlices slices;
  slices.backward = outermost(rank, EventKind::kBackward);
  slices.backward_set = set_of(slices.backward);
  slices.input = set_of(outermost(rank, EventKind::kInput));
  slices.zero_grad = set_of(outermost(rank, EventKind::kZeroGrad));
  slices.optimizer = set_of(outermost(rank, EventKind::kOptimizer)).unite(slices.zero_grad);
  std::vector<Interval> finalize;
  for (const Event& event : rank.events) {
    if (event.kind == EventKind::kFinalize) finalize.push_back(event.time);
  }
  slices.finalize = IntervalSet::of(std::move(finalize));
  std::vector<Interval> on_main;
  for (const CollectiveEvent& event : rank.collectives) {
    if (event.on_main) on_main.push_back(event.time);
  }
  slices.main_collectives = IntervalSet::of(std::move(on_main));
  on_main.clear();
  for (const MessageEvent& event : rank.messages) {
    if (event.on_main) on_main.push_back(event.time);
  }
  slices.main_messages = IntervalSet::of(std::move(on_main));
  if (!steps.empty())
    slices.whole = IntervalSet::of({{steps.front().begin_ns, steps.back().end_ns}});
  return slices;
}

// Times in which the rank has a collective under way. `outside` (may be null): only those that were
// issued outside of that set.
IntervalSet active_collectives(const Collectives& collectives, std::size_t r,
                               const IntervalSet* outside) {
  std::vector<Interval> active;
  for (const Instance& instance : collectives.instances) {
    const Arrival& arrival = instance.ranks[r];
    if (!arrival.is_present) continue;
    if (outside != nullptr && outside->contains(arrival.arrive_ns)) continue;
    active.push_back({arrival.arrive_ns, arrival.end_ns});
  }
  return IntervalSet::of(std::move(active));
}

// For the last rank to arrive at a collective, for a message that was not sent yet.
IntervalSet waiting_for_others(const RankData& rank, const Collectives& collectives,
                               std::size_t r) {
  std::vector<Interval> waits;
  for (const MessageEvent& event : rank.messages) {
    if (event.on_main && event.sent_ns)
      waits.push_back({event.time.begin_ns, std::min(*event.sent_ns, event.time.end_ns)});
  }
  for (const Instance& instance : collectives.instances) {
    if (instance.is_complete && instance.is_member[r])
      waits.push_back({instance.ranks[r].arrive_ns, instance.last_ns});
  }
  return IntervalSet::of(std::move(waits));
}

// From the last collective that a backward issues to its end: the part that can only wait.
IntervalSet backward_tails(const RankData& rank, const std::vector<Event>& backward) {
  std::vector<Interval> tails;
  std::size_t next = 0;
  for (const Event& event : backward) {
    std::optional<std::int64_t> last_ns;
    while (next < rank.collectives.size() &&
           rank.collectives[next].time.begin_ns < event.time.end_ns) {
      const CollectiveEvent& collective = rank.collectives[next++];
      const bool is_inside = collective.time.begin_ns >= event.time.begin_ns;
      if (is_inside && collective.is_issue) last_ns = collective.time.end_ns;
    }
    if (last_ns) tails.push_back({*last_ns, event.time.end_ns});
  }
  return IntervalSet::of(std::move(tails));
}

// Time in which the main thread can do nothing but wait for communication.
IntervalSet exposed_communication(const RankData& rank, const RankSlices& slices,
                                  const Collectives& collectives, std::size_t r) {
  IntervalSet exposed = slices.finalize.unite(slices.main_collectives).unite(slices.main_messages);
  const IntervalSet active = active_collectives(collectives, r, nullptr);
  if (rank.main.is_known) {
    exposed = exposed.unite(rank.main.blocked.intersect(active).subtract(slices.input));
  } else {
    // Without scheduler data a collective issued outside of backward counts as synchronous.
    const IntervalSet synchronous = active_collectives(collectives, r, &slices.backward_set);
    exposed = exposed.unite(synchronous.subtract(slices.input).subtract(slices.optimizer));
    if (slices.finalize.empty())
      exposed = exposed.unite(backward_tails(rank, slices.backward).intersect(active));
  }
  return exposed.intersect(slices.whole);
}

// Between the begin of the forward pass, where it is known, and each backward.
IntervalSet forward_zones(const RankData& rank, const RankSlices& slices) {
  std::vector<std::int64_t> starts;
  for (const Event& event : rank.events) {
    if (event.kind == EventKind::kPrepareForward && event.on_main)
      starts.push_back(event.time.begin_ns);
  }
  if (starts.empty()) {
    for (const Interval& input : slices.input.items())
      starts.push_back(input.end_ns);
  }
  std::vector<Interval> zones;
  std::int64_t previous_end_ns = 0;
  for (const Event& backward : slices.backward) {
    const auto after = std::upper_bound(starts.begin(), starts.end(), backward.time.begin_ns);
    if (after != starts.begin() && *(after - 1) >= previous_end_ns)
      zones.push_back({*(after - 1), backward.time.begin_ns});
    previous_end_ns = backward.time.end_ns;
  }
  return IntervalSet::of(std::move(zones));
}

// optimizer.step(closure) runs both passes: forward and backward in it are forward and backward.
IntervalSet optimizer_alone(const RankSlices& slices, const IntervalSet& forward) {
  std::vector<Interval> closures;
  for (const Interval& step : slices.optimizer.items())
    if (slices.backward_set.measure_ns(step) > 0) closures.push_back(step);
  const IntervalSet passes = slices.backward_set.unite(forward).subtract(slices.zero_grad);
  return slices.optimizer.subtract(passes.intersect(IntervalSet::of(std::move(closures))));
}

PhaseMs split_by_samples(const trace::Trace& trace, const RankData& rank,
                         const IntervalSet& unknown) {
  PhaseMs share{};
  std::size_t count = 0;
  for (const ThreadSample& sample : rank.samples) {
    if (!unknown.contains(sample.time_ns)) continue;
    share[at(phase_of_stack(trace, sample.stack))] += 1;
    ++count;
  }
  if (count < kSamplesMin) {
    share = {};
    share[at(Phase::kOther)] = 1;
    return share;
  }
  for (double& value : share)
    value /= static_cast<double>(count);
  return share;
}

RankPhases cut_rank(const trace::Trace& trace, const JobData& job, const Collectives& collectives,
                    const StepTable& steps, std::size_t r) {
  const RankData& rank = job.ranks[r];
  const RankSlices slices = read_slices(rank, steps.ranks[r]);
  RankPhases cut;
  cut.exposed = exposed_communication(rank, slices, collectives, r);
  const IntervalSet waits = waiting_for_others(rank, collectives, r);
  cut.sets[at(Phase::kWait)] = cut.exposed.intersect(waits);
  cut.sets[at(Phase::kTransfer)] = cut.exposed.subtract(waits);
  IntervalSet rest = slices.whole.subtract(cut.exposed);
  const auto take = [&rest](const IntervalSet& wanted) {
    IntervalSet taken = rest.intersect(wanted);
    rest = rest.subtract(wanted);
    return taken;
  };
  cut.sets[at(Phase::kRunnable)] = take(rank.main.runnable);
  cut.work = rest;
  cut.sets[at(Phase::kInput)] = take(slices.input);
  const IntervalSet forward = forward_zones(rank, slices);
  cut.sets[at(Phase::kOptimizer)] = take(optimizer_alone(slices, forward));
  cut.sets[at(Phase::kBackward)] = take(slices.backward_set);
  cut.sets[at(Phase::kForward)] = take(forward);
  if (slices.input.empty()) {
    cut.unknown = rest;
    cut.unknown_share = split_by_samples(trace, rank, rest);
  } else {
    cut.sets[at(Phase::kOther)] = rest;
    cut.unknown_share[at(Phase::kOther)] = 1;
  }
  return cut;
}

std::vector<double> measure(const IntervalSet& set, const std::vector<Interval>& steps) {
  std::vector<double> out;
  out.reserve(steps.size());
  for (const Interval& step : steps)
    out.push_back(static_cast<double>(set.measure_ns(step)) / kNsPerMs);
  return out;
}

void add_scaled(std::vector<double>& to, const std::vector<double>& values, double scale) {
  for (std::size_t i = 0; i < to.size(); ++i)
    to[i] += scale * values[i];
}

StepTimes measure_rank(const RankData& rank, const RankPhases& cut,
                       const std::vector<Interval>& steps) {
  StepTimes times;
  for (const Interval& step : steps)
    times.step_ms.push_back(static_cast<double>(step.end_ns - step.begin_ns) / kNsPerMs);
  times.work_ms = measure(cut.work, steps);
  times.running_ms = measure(rank.main.running.intersect(cut.work), steps);
  const std::vector<double> unknown = measure(cut.unknown, steps);
  for (std::size_t p = 0; p < kPhaseCount; ++p) {
    times.phase_ms[p] = measure(cut.sets[p], steps);
    add_scaled(times.phase_ms[p], unknown, cut.unknown_share[p]);
  }
  return times;
}

}  // namespace

std::vector<trace::Frame> frames_of(const trace::Trace& trace, trace::StackId stack) {
  std::vector<trace::Frame> frames;
  if (stack.raw >= trace.stacks.size()) return frames;
  const std::size_t begin = trace.stacks.begin[stack.raw];
  const std::size_t end = trace.stacks.begin[stack.raw + 1];
  if (begin > end || end > trace.stacks.frames.size()) return frames;
  for (std::size_t i = begin; i < end; ++i) {
    const trace::FrameId frame = trace.stacks.frames[i];
    if (frame.raw < trace.frames.size()) frames.push_back(trace.frames[frame.raw]);
  }
  return frames;
}

std::vector<trace::Frame> most_frequent(const trace::Trace& trace,
                                        const std::map<trace::StackId, std::size_t>& counts) {
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == counts.end() ? std::vector<trace::Frame>{} : frames_of(trace, most->first);
}

void set_place(const trace::Trace& trace, const std::vector<trace::Frame>& frames,
               Finding& finding) {
  finding.stack.clear();
  if (frames.empty()) return;
  // A library's function does what the job's own one that calls it asks for.
  const auto own = std::find_if(frames.rbegin(), frames.rend(), [&](const trace::Frame& frame) {
    return is_own_python_file(text_of(trace, frame.file));
  });
  const auto named = own == frames.rend() ? frames.end() - 1 : own.base() - 1;
  for (auto frame = frames.begin(); frame != named + 1; ++frame)
    finding.stack.emplace_back(text_of(trace, frame->function));
  finding.function = text_of(trace, named->function);
  finding.file = text_of(trace, named->file);
  finding.line = named->line;
}

Phase phase_of_stack(const trace::Trace& trace, trace::StackId stack) {
  for (const trace::Frame& frame : frames_of(trace, stack)) {
    switch (classify_frame(text_of(trace, frame.function), text_of(trace, frame.file))) {
      case FrameRole::kNone:
        break;
      case FrameRole::kInput:
        return Phase::kInput;
      case FrameRole::kForward:
        return Phase::kForward;
      case FrameRole::kBackward:
        return Phase::kBackward;
      case FrameRole::kOptimizer:
        return Phase::kOptimizer;
    }
  }
  return Phase::kOther;
}

std::vector<RankPhases> cut_phases(const trace::Trace& trace, const JobData& job,
                                   const Collectives& collectives, const StepTable& steps) {
  std::vector<RankPhases> phases;
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    phases.push_back(cut_rank(trace, job, collectives, steps, r));
  return phases;
}

std::vector<StepTimes> measure_steps(const JobData& job, const std::vector<RankPhases>& phases,
                                     const StepTable& steps) {
  std::vector<StepTimes> times;
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    times.push_back(measure_rank(job.ranks[r], phases[r], steps.ranks[r]));
  return times;
}

}  // namespace kansoku::diagnose
