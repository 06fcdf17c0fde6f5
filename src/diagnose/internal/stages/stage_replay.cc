// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/stages/stage_replay.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/time.h"
#include "diagnose/internal/timeline/step_graph.h"
#include "stats/summary.h"

namespace kansoku::diagnose {
namespace {

constexpr std::size_t kReplayedStepsMax = 200;  // the first ones; a mean needs no more

/// A rank's work in the passes of one step, cut at its messages.
struct Chain {
  std::vector<StepGraph::Node> nodes;
  std::vector<std::int64_t> begins_ns;  // of the same nodes
  /// The last node that begins before `time_ns`.
  [[nodiscard]] std::size_t at(std::int64_t time_ns) const {
    const auto after = std::lower_bound(begins_ns.begin(), begins_ns.end(), time_ns);
    return static_cast<std::size_t>(std::max<std::ptrdiff_t>(after - begins_ns.begin() - 1, 0));
  }
};

struct Work {
  double backward_ms{0}, other_ms{0};
  [[nodiscard]] double whole_ms() const { return backward_ms + other_ms; }
};

class StepReplay {
 public:
  StepReplay(const Context& context, std::vector<const Message*> messages, std::size_t step)
      : context_(context), messages_(std::move(messages)), step_(step) {
    chains_.resize(context.job.ranks.size());
    work_.resize(chains_.size());
    std::vector<std::vector<std::int64_t>> cuts(chains_.size());
    for (const Message* const message : messages_) {
      cuts[message->from].push_back(message->sent_ns);
      cuts[message->to].push_back(message->received_ns);
    }
    for (std::size_t r = 0; r < chains_.size(); ++r)
      add_chain(r, std::move(cuts[r]));
    for (const Message* const message : messages_) {
      const Chain& from = chains_[message->from];
      const Chain& to = chains_[message->to];
      const std::size_t sent = from.at(message->sent_ns + 1);
      const std::size_t after = to.at(message->received_ns + 1);
      // A node that begins with the send follows the one that made it.
      if (sent > 0) graph_.depend(to.nodes[after], from.nodes[sent - 1]);
    }
    is_whole_ = static_cast<bool>(graph_.finish());
  }

  [[nodiscard]] bool is_whole() const { return is_whole_; }
  /// By rank.
  [[nodiscard]] const std::vector<Work>& work() const { return work_; }
  [[nodiscard]] Work mean_work() const {
    Work out;
    for (const Work& one : work_) {
      out.backward_ms += one.backward_ms / static_cast<double>(work_.size());
      out.other_ms += one.other_ms / static_cast<double>(work_.size());
    }
    return out;
  }
  /// Length of the passes as they were.
  [[nodiscard]] double passes_ms() const {
    return simulate([](std::size_t, const Work& part) { return part.whole_ms(); });
  }
  /// Length of the passes if each rank had the mean's forward and backward work.
  [[nodiscard]] double equal_ms() const {
    const Work mean = mean_work();
    const auto scaled = [](double part_ms, double own_ms, double mean_ms) {
      return own_ms > 0 ? part_ms * mean_ms / own_ms : 0;
    };
    return simulate([&](std::size_t r, const Work& part) {
      return scaled(part.backward_ms, work_[r].backward_ms, mean.backward_ms) +
             scaled(part.other_ms, work_[r].other_ms, mean.other_ms);
    });
  }

 private:
  template <class WorkOf>
  [[nodiscard]] double simulate(WorkOf work_of) const {
    std::vector<double> durations(graph_.size());
    for (std::size_t r = 0; r < chains_.size(); ++r)
      for (const StepGraph::Node node : chains_[r].nodes)
        durations[node] = work_of(r, parts_[node]);
    return graph_.simulate(durations, 1, 1).front();
  }

  /// `cuts`: times at which it sent or received.
  void add_chain(std::size_t r, std::vector<std::int64_t> cuts) {
    const Interval step = context_.steps.ranks[r][step_];
    cuts.push_back(step.begin_ns);
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    const IntervalSet work = passes_of(r, step, cuts.back());
    const IntervalSet backward = work.intersect(part_of_step(r, Phase::kBackward));
    const auto ms_of = [](const IntervalSet& set, Interval part) {
      return part.end_ns > part.begin_ns ? static_cast<double>(set.measure_ns(part)) / kNsPerMs : 0;
    };
    Chain& chain = chains_[r];
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      const Interval part{cuts[i], i + 1 < cuts.size() ? cuts[i + 1] : step.end_ns};
      const StepGraph::Node node = graph_.add();
      if (!chain.nodes.empty()) graph_.depend(node, chain.nodes.back());
      chain.nodes.push_back(node);
      chain.begins_ns.push_back(part.begin_ns);
      const double backward_ms = ms_of(backward, part);
      parts_.push_back({backward_ms, ms_of(work, part) - backward_ms});
      work_[r].backward_ms += parts_.back().backward_ms;
      work_[r].other_ms += parts_.back().other_ms;
    }
  }

  // From the step's begin to its last message or backward pass, the later one.
  [[nodiscard]] IntervalSet passes_of(std::size_t r, const Interval& step,
                                      std::int64_t end_ns) const {
    const std::vector<Event>& events = context_.job.ranks[r].events;
    auto event = std::lower_bound(
        events.begin(), events.end(), step.begin_ns,
        [](const Event& one, std::int64_t time_ns) { return one.time.begin_ns < time_ns; });
    bool has_backward = false;
    for (; event != events.end() && event->time.begin_ns < step.end_ns; ++event) {
      if (event->kind != EventKind::kBackward || !event->on_main || event->is_open) continue;
      has_backward = true;
      end_ns = std::max(end_ns, std::min(event->time.end_ns, step.end_ns));
    }
    if (!has_backward) end_ns = step.end_ns;
    const Interval passes{step.begin_ns, std::max(end_ns, step.begin_ns)};
    return context_.phases[r]
        .work.within(passes)
        .subtract(part_of_step(r, Phase::kOptimizer))
        .subtract(part_of_step(r, Phase::kInput));
  }

  [[nodiscard]] IntervalSet part_of_step(std::size_t r, Phase phase) const {
    return context_.phases[r].sets[static_cast<std::size_t>(phase)].within(
        context_.steps.ranks[r][step_]);
  }

  const Context& context_;
  std::vector<const Message*> messages_;
  std::size_t step_;
  StepGraph graph_;
  std::vector<Chain> chains_;
  std::vector<Work> parts_;  // by node
  std::vector<Work> work_;   // by rank
  bool is_whole_{false};
};

// Those of each step: sent and received in it.
std::vector<std::vector<const Message*>> messages_by_step(const Context& context) {
  std::vector<std::vector<const Message*>> out(context.steps.count());
  for (const Message& message : context.job.messages) {
    const auto sent = step_at(context.steps.ranks[message.from], message.sent_ns);
    if (sent && sent == step_at(context.steps.ranks[message.to], message.received_ns))
      out[*sent].push_back(&message);
  }
  return out;
}

// Without a rank's messages its waiting counts as work.
bool are_all_in(const std::vector<const Message*>& messages, std::size_t rank_count) {
  std::vector<bool> seen(rank_count);
  for (const Message* const message : messages)
    seen[message->from] = seen[message->to] = true;
  return std::count(seen.begin(), seen.end(), false) == 0;
}

}  // namespace

std::optional<StageTimes> replay_stages(const Context& context, const Stages& stages) {
  const auto messages = messages_by_step(context);
  const std::size_t rank_count = stages.stage.size();
  StageTimes out;
  out.work_ms.resize(rank_count);
  std::vector<double> passes, equal, busy;
  for (std::size_t s = 0; s < messages.size() && passes.size() < kReplayedStepsMax; ++s) {
    if (!are_all_in(messages[s], rank_count)) continue;
    const StepReplay replay(context, messages[s], s);
    if (!replay.is_whole()) continue;
    for (std::size_t r = 0; r < rank_count; ++r)
      out.work_ms[r] += replay.work()[r].whole_ms();
    passes.push_back(replay.passes_ms());
    equal.push_back(replay.equal_ms());
    busy.push_back(replay.mean_work().whole_ms());
  }
  if (passes.empty()) return std::nullopt;
  for (double& ms : out.work_ms)
    ms /= static_cast<double>(passes.size());
  out.passes_ms = stats::mean(passes);
  out.equal_ms = stats::mean(equal);
  if (!(out.equal_ms > 0)) return std::nullopt;
  out.bubble_share = 1 - stats::mean(busy) / out.equal_ms;
  out.uneven_share = std::max(0.0, 1 - stats::mean(busy) / out.passes_ms - out.bubble_share);
  return out;
}

}  // namespace kansoku::diagnose
