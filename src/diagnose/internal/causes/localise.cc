// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/localise.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "common/python_code.h"
#include "common/time.h"
#include "diagnose/internal/steps/names.h"
#include "diagnose/thresholds.h"
#include "stats/bootstrap.h"

namespace kansoku::diagnose {
namespace {

constexpr std::size_t kDepthMax = 512;  // frames below are cut off
// The estimate must hold descend_share_min; a resample agrees if it puts at least half there.

double window_ms(const IntervalSet& set, const std::vector<Interval>& steps) {
  std::int64_t sum_ns = 0;
  for (const Interval& step : steps)
    sum_ns += set.measure_ns(step);
  return static_cast<double>(sum_ns) / kNsPerMs;
}

bool is_asleep(trace::SampleState state) {
  return state == trace::SampleState::kSleeping || state == trace::SampleState::kDisk;
}

}  // namespace

CallTree::CallTree(const Context& context)
    : trace_(&context.trace),
      rank_count_(context.job.ranks.size()),
      step_count_(context.steps.count()),
      nodes_(1),
      hit_ms_(rank_count_),
      sample_counts_(rank_count_) {}

std::uint32_t CallTree::node_of(trace::StackId stack) {
  const auto known = node_of_stack_.find(stack);
  if (known != node_of_stack_.end()) return known->second;
  std::uint32_t node = 0;
  std::uint32_t depth = 0;
  for (const trace::Frame& frame : frames_of(*trace_, stack)) {
    if (++depth > kDepthMax) break;
    const auto [found, is_new] = index_.try_emplace(NodeKey{node, frame.function, frame.file},
                                                    static_cast<std::uint32_t>(nodes_.size()));
    if (is_new) {
      nodes_[node].children.push_back(found->second);
      nodes_.push_back({node, depth, frame.function, frame.file, {}});
    }
    node = found->second;
  }
  node_of_stack_.emplace(stack, node);
  return node;
}

bool CallTree::has_frame(trace::StackId stack,
                         bool (*wanted)(std::string_view, std::string_view)) const {
  for (const trace::Frame& frame : frames_of(*trace_, stack)) {
    if (wanted(text_of(*trace_, frame.function), text_of(*trace_, frame.file))) return true;
  }
  return false;
}

void CallTree::add_samples(const Context& context, std::size_t rank, std::optional<Phase> only) {
  const RankData& data = context.job.ranks[rank];
  const std::vector<Interval>& steps = context.steps.ranks[rank];
  const RankPhases& phases = context.phases[rank];
  const std::size_t index = static_cast<std::size_t>(only.value_or(Phase::kOther));
  const IntervalSet known = only ? phases.sets[index].intersect(phases.work) : phases.work;
  const IntervalSet unknown = only ? phases.unknown.intersect(phases.work) : IntervalSet();
  std::size_t hit_count = 0;
  for (const ThreadSample& sample : data.samples) {
    const auto step = step_at(steps, sample.time_ns);
    if (!step || !phases.work.contains(sample.time_ns)) continue;
    ++sample_counts_[rank];
    const bool is_wanted =
        known.contains(sample.time_ns) ||
        (unknown.contains(sample.time_ns) && phase_of_stack(*trace_, sample.stack) == *only);
    if (!is_wanted) continue;
    ++hit_count;
    hits_.push_back({node_of(sample.stack), static_cast<std::uint32_t>(rank),
                     static_cast<std::uint32_t>(*step), sample.stack, data.pid,
                     is_asleep(sample.state)});
  }
  if (hit_count == 0) return;
  // Each sample stands for an equal part of the time, whatever the rate was.
  const double whole_ms =
      window_ms(known, steps) + phases.unknown_share[index] * window_ms(unknown, steps);
  hit_ms_[rank] = whole_ms / static_cast<double>(hit_count);
}

CallTree CallTree::of_main_threads(const Context& context) {
  CallTree tree(context);
  for (std::size_t r = 0; r < context.job.ranks.size(); ++r)
    tree.add_samples(context, r, std::nullopt);
  return tree;
}

CallTree CallTree::of_phase(const Context& context, Phase phase) {
  CallTree tree(context);
  for (std::size_t r = 0; r < context.job.ranks.size(); ++r)
    tree.add_samples(context, r, phase);
  return tree;
}

CallTree CallTree::of_faults(const Context& context) {
  CallTree tree(context);
  for (std::size_t r = 0; r < context.kernel.ranks.size(); ++r) {
    const std::vector<double>& faults = context.kernel.ranks[r].sample_faults;
    const RankData& data = context.job.ranks[r];
    double all = 0;
    for (std::size_t i = 0; i < faults.size(); ++i) {
      const auto step = step_at(context.steps.ranks[r], data.samples[i].time_ns);
      if (!step) continue;
      ++tree.sample_counts_[r];
      if (!(faults[i] > 0)) continue;
      tree.hits_.push_back({.node = tree.node_of(data.samples[i].stack),
                            .rank = static_cast<std::uint32_t>(r),
                            .step = static_cast<std::uint32_t>(*step),
                            .stack = data.samples[i].stack,
                            .pid = data.pid,
                            .weight = faults[i]});
      all += faults[i];
    }
    if (all > 0)
      tree.hit_ms_[r] = context.kernel.fault_ms(r) * static_cast<double>(tree.step_count_) / all;
  }
  return tree;
}

CallTree CallTree::of_workers(const Context& context) {
  CallTree tree(context);
  for (std::size_t r = 0; r < context.job.ranks.size(); ++r) {
    const auto& rank_steps = context.steps.ranks[r];
    const std::vector<WorkerData>& workers = context.job.ranks[r].workers;
    if (rank_steps.empty()) continue;
    std::size_t in_window_count = 0;
    for (const WorkerData& worker : workers) {
      for (const ThreadSample& sample : worker.samples) {
        const auto step = step_at(rank_steps, sample.time_ns);
        if (!step) continue;
        ++in_window_count;
        if (tree.has_frame(sample.stack, is_worker_idle)) continue;
        tree.hits_.push_back({tree.node_of(sample.stack), static_cast<std::uint32_t>(r),
                              static_cast<std::uint32_t>(*step), sample.stack, worker.pid,
                              is_asleep(sample.state)});
      }
    }
    tree.sample_counts_[r] = in_window_count;
    if (in_window_count == 0) continue;
    const IntervalSet whole =
        IntervalSet::of({{rank_steps.front().begin_ns, rank_steps.back().end_ns}});
    // The mean of its workers: they prepare batches at the same time, so a sum is nobody's wait.
    tree.hit_ms_[r] = window_ms(whole, rank_steps) / static_cast<double>(in_window_count);
  }
  return tree;
}

// Inclusive milliseconds per step of the culprits' mean above the others' mean, by node.
std::vector<double> CallTree::differences(const std::vector<bool>& culprits,
                                          const std::vector<std::uint32_t>& step_weights) const {
  double culprit_count = 0;
  double peer_count = 0;
  for (std::size_t r = 0; r < rank_count_; ++r) {
    if (sample_counts_[r] == 0) continue;  // not sampled at all: says nothing
    (culprits[r] ? culprit_count : peer_count) += 1;
  }
  std::vector<double> scale(rank_count_);
  for (std::size_t r = 0; r < rank_count_; ++r) {
    const double side =
        culprits[r] ? 1 / std::max(culprit_count, 1.0) : -1 / std::max(peer_count, 1.0);
    scale[r] = side * hit_ms_[r] / static_cast<double>(std::max<std::size_t>(step_count_, 1));
  }
  std::vector<double> sum(nodes_.size());
  for (const Hit& hit : hits_)
    sum[hit.node] += scale[hit.rank] * hit.weight * step_weights[hit.step];
  for (std::size_t node = nodes_.size(); node-- > 1;)  // children come after their parent
    sum[nodes_[node].parent] += sum[node];
  return sum;
}

std::vector<std::uint32_t> CallTree::descend(const std::vector<double>& difference_ms,
                                             double share_min) const {
  std::vector<std::uint32_t> path;
  std::uint32_t node = 0;
  for (;;) {
    std::uint32_t best = 0;
    for (const std::uint32_t child : nodes_[node].children) {
      if (best == 0 || difference_ms[child] > difference_ms[best]) best = child;
    }
    if (best == 0 || difference_ms[best] <= 0) return path;
    if (difference_ms[best] < share_min * difference_ms[node]) return path;
    path.push_back(best);
    node = best;
  }
}

bool CallTree::is_below(std::uint32_t node, std::uint32_t ancestor) const {
  while (nodes_[node].depth > nodes_[ancestor].depth)
    node = nodes_[node].parent;
  return node == ancestor;
}

std::vector<double> CallTree::support_of(const std::vector<std::uint32_t>& path,
                                         const std::vector<bool>& culprits,
                                         const Options& options) const {
  std::vector<double> agree(path.size());
  stats::BlockBootstrap bootstrap(step_count_, stats::default_block_length(step_count_),
                                  options.seed);
  std::vector<std::uint32_t> weights(step_count_);
  for (std::uint32_t i = 0; i < options.function_resample_count; ++i) {
    std::fill(weights.begin(), weights.end(), 0);
    for (const stats::Block& block : bootstrap.draw()) {
      for (std::size_t k = 0; k < block.count; ++k)
        ++weights[block.begin + k];
    }
    const auto other = descend(differences(culprits, weights), kMostShare);
    const std::size_t common = std::min(path.size(), other.size());
    for (std::size_t k = 0; k < common && path[k] == other[k]; ++k)
      agree[k] += 1.0 / static_cast<double>(options.function_resample_count);
  }
  return agree;
}

bool CallTree::is_own(std::uint32_t node) const {
  return is_own_python_file(text_of(*trace_, nodes_[node].file)) &&
         text_of(*trace_, nodes_[node].function) != "<module>";
}

Location CallTree::locate(const std::vector<bool>& culprits, const Options& options) const {
  std::size_t culprit_samples = 0;
  std::size_t peer_samples = 0;
  bool has_peers = false;
  for (std::size_t r = 0; r < rank_count_; ++r) {
    (culprits[r] ? culprit_samples : peer_samples) += sample_counts_[r];
    has_peers = has_peers || !culprits[r];
  }
  Location none;
  none.sample_count = culprit_samples;
  if (culprit_samples < kSamplesMin || (has_peers && peer_samples == 0)) return none;
  const auto difference_ms = differences(culprits, std::vector<std::uint32_t>(step_count_, 1));
  const auto path = descend(difference_ms, kDescendShareMin);
  const auto support = support_of(path, culprits, options);
  for (std::size_t k = path.size(); k-- > 0;) {
    if (support[k] < kFunctionSupportMin) continue;
    // A library's function does what the job's own one that calls it asks for.
    std::size_t named = k;
    while (named > 0 && !is_own(path[named]))
      --named;
    if (!is_own(path[named])) named = k;
    Location found = describe(path[named], culprits);
    found.support = std::min(support[named], 1.0);
    found.excess_ms = difference_ms[path[named]];
    found.sample_count = culprit_samples;
    found.waits_for_worker = std::any_of(
        path.begin(), path.begin() + static_cast<std::ptrdiff_t>(k + 1), [&](std::uint32_t node) {
          return is_worker_wait(text_of(*trace_, nodes_[node].function),
                                text_of(*trace_, nodes_[node].file));
        });
    if (named < k) found.below = text_of(*trace_, nodes_[path[k]].function);
    return found;
  }
  return none;
}

Location CallTree::describe(std::uint32_t node, const std::vector<bool>& culprits) const {
  Location found;
  found.function = text_of(*trace_, nodes_[node].function);
  found.file = text_of(*trace_, nodes_[node].file);
  for (std::uint32_t at = node; at != 0; at = nodes_[at].parent) {
    found.stack.emplace_back(text_of(*trace_, nodes_[at].function));
  }
  std::reverse(found.stack.begin(), found.stack.end());
  std::map<std::uint32_t, double> lines;
  std::map<std::int32_t, double> pids;
  double count = 0;
  double asleep_count = 0;
  for (const Hit& hit : hits_) {
    if (!culprits[hit.rank] || !is_below(hit.node, node)) continue;
    const auto frames = frames_of(*trace_, hit.stack);
    lines[frames[nodes_[node].depth - 1].line] += hit.weight;
    pids[hit.pid] += hit.weight;
    count += hit.weight;
    asleep_count += hit.is_asleep ? hit.weight : 0;
  }
  const auto most = [](const auto& counts) {
    return std::max_element(counts.begin(), counts.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; });
  };
  if (!(count > 0)) return found;
  found.line = most(lines)->first;
  found.worker_pid = most(pids)->first;
  found.sleeping_share = asleep_count / count;
  return found;
}

std::vector<FunctionRow> CallTree::rows(std::optional<std::size_t> culprit,
                                        std::size_t row_count_max) const {
  std::map<std::pair<trace::StringId, trace::StringId>, FunctionRow> table;
  std::map<std::pair<trace::StringId, trace::StringId>, std::map<std::uint32_t, std::size_t>> lines;
  double peer_count = 0;
  for (std::size_t r = 0; r < rank_count_; ++r)
    peer_count += ((!culprit || r != *culprit) && sample_counts_[r] > 0) ? 1 : 0;
  const auto steps = static_cast<double>(std::max<std::size_t>(step_count_, 1));
  for (const Hit& hit : hits_) {
    if (hit.node == 0) continue;
    const Node& node = nodes_[hit.node];
    FunctionRow& row = table[{node.function, node.file}];
    const double ms = hit_ms_[hit.rank] * hit.weight / steps;
    if (!culprit) {
      row.culprit_ms += ms / std::max(peer_count, 1.0);
    } else {
      hit.rank == * culprit ? row.culprit_ms += ms : row.peers_ms += ms / std::max(peer_count, 1.0);
    }
    ++lines[{node.function, node.file}][frames_of(*trace_, hit.stack)[node.depth - 1].line];
  }
  std::vector<FunctionRow> list;
  for (auto& [key, row] : table) {
    row.function = text_of(*trace_, key.first);
    row.file = text_of(*trace_, key.second);
    const auto& counts = lines[key];
    row.line = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
                 return a.second < b.second;
               })->first;
    list.push_back(std::move(row));
  }
  std::stable_sort(list.begin(), list.end(), [](const FunctionRow& a, const FunctionRow& b) {
    const double x = std::abs(a.culprit_ms - a.peers_ms);
    const double y = std::abs(b.culprit_ms - b.peers_ms);
    return std::tie(y, a.function, a.file) < std::tie(x, b.function, b.file);
  });
  if (list.size() > row_count_max) list.resize(row_count_max);
  return list;
}

Location locate_faults(const Context& context, const std::vector<bool>& culprits,
                       const Options& options) {
  return CallTree::of_faults(context).locate(culprits, options);
}

Location locate_excess(const Context& context, const std::vector<bool>& culprits,
                       std::optional<Phase> phase, const Options& options) {
  const CallTree tree =
      phase ? CallTree::of_phase(context, *phase) : CallTree::of_main_threads(context);
  Location found = tree.locate(culprits, options);
  found.worker_pid = 0;
  if (!found.waits_for_worker) return found;
  Location in_worker = CallTree::of_workers(context).locate(culprits, options);
  return in_worker.function.empty() ? found : in_worker;
}

}  // namespace kansoku::diagnose
