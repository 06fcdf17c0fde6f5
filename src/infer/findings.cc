// SPDX-License-Identifier: Apache-2.0
#include "infer/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "infer/change_point.h"
#include "infer/off_cpu.h"
#include "infer/thresholds.h"
#include "stats/summary.h"

namespace kansoku::infer {
namespace {

std::uint32_t processors_of(const trace::Trace& trace) {
  std::uint32_t out = 0;
  for (const std::uint32_t cpu : trace.switches.cpu)
    out = std::max(out, cpu + 1);
  return out;
}

/// Time that threads of one graph lost.
struct Lost {
  double runnable_ns{0}, blocked_ns{0};
};

class CauseFinder {
 public:
  CauseFinder(const Process& process, const ProcessFigures& figures, const trace::Trace& trace,
              const OffCpu& off_cpu, std::vector<Finding>& out)
      : process_(process), figures_(figures), trace_(trace), off_cpu_(off_cpu), out_(out) {}

  void find() {
    collect();
    if (graphs_.size() < kGraphsMin) return;
    find_lost_time();
    find_slower();
  }

 private:
  struct OneGraph {
    std::int64_t begin_ns{0};
    double ns{0}, lost_ns{0};
    double products{0}, cached{0};  // ns of operators that read much, and little
    double flops{0}, bytes{0}, cached_bytes{0};
  };

  [[nodiscard]] bool is_decode(std::size_t graph) const {
    const std::size_t batch = process_.graphs[graph].micro_batch;
    return batch == kNone || !process_.micro_batches[batch].is_prefill;
  }

  // Graphs of the decode phase that were seen whole, with what each thread lost in them.
  void collect() {
    std::map<std::size_t, OneGraph> by_graph;
    std::map<std::size_t, std::map<std::uint16_t, std::int32_t>> tids;
    for (const Operator& one : process_.operators) {
      if (one.graph == kNone || !process_.graphs[one.graph].is_whole || !is_decode(one.graph))
        continue;
      tids[one.graph][one.ith] = one.tid;
      if (one.ith != 0) continue;
      OneGraph& to = by_graph[one.graph];
      const auto found = process_.definitions.find(one.definition);
      if (found == process_.definitions.end() || one.node >= found->second.nodes.size()) continue;
      const Node& node = found->second.nodes[one.node];
      const bool is_product = node.op.starts_with("MUL_MAT");
      if (is_product) {
        to.products += static_cast<double>(one.span.ns());
        to.flops += node.flops;
        to.bytes += node.bytes;
      } else if (node.bytes <= kCachedBytesMax && node.op != "FLASH_ATTN_EXT" &&
                 node.op != "SOFT_MAX") {  // these take longer with each token
        to.cached += static_cast<double>(one.span.ns());
        to.cached_bytes += node.bytes;
      }
    }
    for (auto& [index, one] : by_graph) {
      const Span& span = process_.graphs[index].span;
      one.begin_ns = span.begin_ns;
      one.ns = static_cast<double>(span.ns());
      for (const auto& [ith, tid] : tids[index]) {
        const OffCpu::Times off = off_cpu_.within(tid, span);
        lost_[ith].runnable_ns += off.runnable_ns;
        lost_[ith].blocked_ns += off.blocked_ns;
        one.lost_ns = std::max(one.lost_ns, off.runnable_ns + off.blocked_ns);
      }
      threads_ = std::max(threads_, tids[index].size());
      total_ns_ += one.ns;
      graphs_.push_back(one);
    }
  }

  void add(Cause cause, std::string what, double share, std::int64_t since, std::string text) {
    out_.push_back({cause, process_.pid, std::move(what), share, since, std::move(text)});
  }

  void find_lost_time() {
    if (!off_cpu_.is_known() || lost_.empty() || total_ns_ <= 0) return;
    std::vector<std::pair<double, std::uint16_t>> runnable, blocked;
    for (const auto& [ith, one] : lost_) {
      runnable.emplace_back(one.runnable_ns / total_ns_, ith);
      blocked.emplace_back(one.blocked_ns / total_ns_, ith);
    }
    std::sort(runnable.rbegin(), runnable.rend());
    std::sort(blocked.rbegin(), blocked.rend());
    if (runnable.front().first >= kRunnableShareMin) add_runnable(runnable);
    if (blocked.front().first >= kBlockedShareMin) {
      const std::string node = most_blocked();
      add(Cause::kWeightsRead, node, blocked.front().first, 0,
          fmt::format("thread {} was blocked in the kernel for {:.0f} % of the time, most of it in "
                      "{}: its weights are read from disk, memory is short",
                      blocked.front().second, 100 * blocked.front().first, node));
    }
  }

  void add_runnable(const std::vector<std::pair<double, std::uint16_t>>& runnable) {
    const auto [share, ith] = runnable.front();
    const std::uint32_t processors = processors_of(trace_);
    const double next = runnable.size() > 1 ? runnable[1].first : 0;
    if (threads_ > processors) {
      add(Cause::kOversubscribed, fmt::format("{} threads", threads_), share, 0,
          fmt::format(
              "{} threads on {} processors: thread {} was ready without one for {:.0f} % of "
              "the time",
              threads_, processors, ith, 100 * share));
    } else if (runnable.size() > 1 && share >= kOneThreadMin * next) {
      add(Cause::kThreadHeldBack, fmt::format("thread {}", ith), share, 0,
          fmt::format("thread {} was ready without a processor for {:.0f} % of the time, the next "
                      "one for {:.0f} %: it alone is held back{}",
                      ith, 100 * share, 100 * next, who_ran()));
    } else {
      add(Cause::kNoProcessor, fmt::format("thread {}", ith), share, 0,
          fmt::format("threads were ready without a processor for {:.0f} % of the time{}",
                      100 * share, who_ran()));
    }
  }

  /// Use of the processors while graphs ran that were seen whole: by others, or by nobody although
  /// threads were ready, which a quota or an affinity explains and another program does not.
  [[nodiscard]] std::string who_ran() const {
    if (graphs_.empty()) return {};
    const Span all{graphs_.front().begin_ns,
                   graphs_.back().begin_ns + static_cast<std::int64_t>(graphs_.back().ns)};
    std::set<std::int32_t> own;
    for (const trace::Track& track : trace_.tracks)
      if (track.pid == process_.pid && track.tid != 0) own.insert(track.tid);
    for (const Operator& one : process_.operators)
      own.insert(one.tid);
    double idle_ns = 0, others_ns = 0, runnable_ns = 0;
    std::map<std::uint32_t, std::pair<std::int64_t, std::int32_t>> last;  // by processor
    const trace::SwitchTable& table = trace_.switches;
    for (std::size_t i = 0; i < table.size(); ++i) {
      const auto [found, is_new] = last.try_emplace(table.cpu[i], table.time_ns[i], 0);
      const double ns =
          std::max(0.0, static_cast<double>(std::min(table.time_ns[i], all.end_ns)) -
                            static_cast<double>(std::max(found->second.first, all.begin_ns)));
      const std::int32_t ran = table.prev_tid[i];
      if (!is_new && ran == 0) idle_ns += ns;
      if (!is_new && ran != 0 && !own.contains(ran)) others_ns += ns;
      found->second = {table.time_ns[i], table.next_tid[i]};
    }
    for (const auto& [ith, one] : lost_)
      runnable_ns += one.runnable_ns;
    const double whole_ns = static_cast<double>(std::max<std::int64_t>(all.ns(), 1));
    if (idle_ns >= kRanMin * runnable_ns)
      return fmt::format(
          ": {:.1f} processors were idle meanwhile, as under a quota or an affinity, others ran on "
          "{:.1f}",
          idle_ns / whole_ns, others_ns / whole_ns);
    if (others_ns >= kRanMin * runnable_ns)
      return fmt::format(": others ran on {:.1f} processors meanwhile", others_ns / whole_ns);
    return {};
  }

  [[nodiscard]] std::string most_blocked() const {
    const auto found = std::max_element(
        figures_.nodes.begin(), figures_.nodes.end(),
        [](const NodeRow& a, const NodeRow& b) { return a.work.blocked_ns < b.work.blocked_ns; });
    return found == figures_.nodes.end() ? "?" : found->name;
  }

  [[nodiscard]] double median_of(double OneGraph::*member) const {
    std::vector<double> values;
    for (const OneGraph& one : graphs_)
      values.push_back(one.*member);
    return values.empty() ? 0 : stats::median(values);
  }

  // The moment after which products took longest compared with before it. Graphs that lost time are
  // left out: that is a cause of its own.
  void find_slower() {
    std::vector<double> products, cached;
    std::erase_if(graphs_,
                  [](const OneGraph& one) { return one.lost_ns > kBlockedShareMin * one.ns; });
    const double flops = median_of(&OneGraph::flops), bytes = median_of(&OneGraph::bytes),
                 cached_bytes = median_of(&OneGraph::cached_bytes);
    // Per work: more sequences and longer contexts take longer, and nothing is slower.
    const auto more = [](double work, double usual) { return usual > 0 ? work / usual : 0; };
    for (const OneGraph& one : graphs_) {
      const double work = std::max(more(one.flops, flops), more(one.bytes, bytes));
      const double small = more(one.cached_bytes, cached_bytes);
      products.push_back(one.products / (work > 0 ? work : 1));
      cached.push_back(one.cached / (small > 0 ? small : 1));
    }
    const auto found = find_change(products, kGraphsMin);
    if (!found || found->separation < kSeparationMin || found->ratio < kChangeMin) return;
    const std::size_t at = found->at;
    const double change = found->ratio, others = ratio_at(cached, at);
    const bool is_memory = others - 1 < kOthersShareMax * (change - 1);
    const std::int64_t since = graphs_[at].begin_ns;
    const double seconds = static_cast<double>(since - graphs_.front().begin_ns) * 1e-9;
    const double share = 1 - 1 / change;
    if (is_memory) {
      add(Cause::kMemoryBusy, "MUL_MAT", share, since,
          fmt::format("{:.1f} s into the recording products became {:.2f} times slower for their "
                      "work, operators that fit into caches {:.2f} times: memory gives them less; "
                      "who else uses it was not seen",
                      seconds, change, others));
    } else {
      add(Cause::kProcessorSlower, "all operators", share, since,
          fmt::format("{:.1f} s into the recording products became {:.2f} times slower for their "
                      "work, operators that fit into caches {:.2f} times: everything on the "
                      "processor takes longer",
                      seconds, change, others));
    }
  }

  const Process& process_;
  const ProcessFigures& figures_;
  const trace::Trace& trace_;
  const OffCpu& off_cpu_;
  std::vector<Finding>& out_;
  std::vector<OneGraph> graphs_;
  std::map<std::uint16_t, Lost> lost_;  // by number among the graph's threads
  std::size_t threads_{0};
  double total_ns_{0};
};

// Finds the moment from which on the kernels of a token take longer on a device.
void find_slower_device(const Process& process, const DeviceFigures& device,
                        std::vector<Finding>& out) {
  std::vector<double> times;
  for (const DeviceFigures::Batch& one : device.decoding)
    times.push_back(one.kernel_ns);
  const auto found = find_change(times, kGraphsMin);
  if (!found || found->separation < kSeparationMin || found->ratio < kDeviceChangeMin) return;
  const std::int64_t since = device.decoding[found->at].begin_ns;
  const double seconds = static_cast<double>(since - device.decoding.front().begin_ns) * 1e-9;
  out.push_back(
      {Cause::kDeviceSlower, process.pid, "all kernels", 1 - 1 / found->ratio, since,
       fmt::format("{:.1f} s into the recording the kernels of a token became {:.2f} times "
                   "slower, as many as before: the device runs slower",
                   seconds, found->ratio)});
}

/// More work of a call, by whichever of arithmetic and bytes grew more; 1 where neither is known.
double work_ratio(const Work& before, const Work& after) {
  const auto of_call = [](double sum, std::uint64_t count) {
    return count > 0 ? sum / static_cast<double>(count) : 0;
  };
  double out = 0;
  for (double Work::*member : {&Work::flops, &Work::bytes}) {
    const double base = of_call(before.*member, before.count);
    if (base > 0) out = std::max(out, of_call(after.*member, after.count) / base);
  }
  return out > 0 ? out : 1;
}

const ProcessFigures* first_with_operators(const Report& report) {
  for (const ProcessFigures& one : report.processes)
    if (!one.operators.empty()) return &one;
  return nullptr;
}

}  // namespace

std::string_view cause_name(Cause cause) {
  constexpr std::array<std::string_view, 8> kNames{
      "oversubscribed", "thread_held_back", "no_processor",  "weights_read",
      "memory_busy",    "processor_slower", "slow_operator", "device_slower"};
  return kNames.at(static_cast<std::size_t>(cause));
}

verdict::Claim claim_of(const Finding& finding) {
  return {.kind = cause_name(finding.cause), .cost = finding.share, .share = finding.share};
}

std::vector<Finding> find_causes(const Run& run, const Report& report,
                                 const std::vector<DeviceFigures>& devices) {
  std::vector<Finding> out;
  const OffCpu off_cpu(*run.trace);
  for (std::size_t i = 0; i < std::min(run.processes.size(), report.processes.size()); ++i)
    CauseFinder(run.processes[i], report.processes[i], *run.trace, off_cpu, out).find();
  for (std::size_t i = 0; i < std::min(run.processes.size(), devices.size()); ++i)
    find_slower_device(run.processes[i], devices[i], out);
  verdict::put_in_order(out);
  return out;
}

Comparison compare(const Report& base, const Report& now) {
  Comparison out;
  const ProcessFigures *before = first_with_operators(base), *after = first_with_operators(now);
  if (before == nullptr || after == nullptr) return out;
  if (before->ms_p50 && after->ms_p50 && *before->ms_p50 > 0)
    out.token_ratio = *after->ms_p50 / *before->ms_p50;
  std::vector<double> ratios;
  for (const OperatorRow& row : after->operators) {
    const auto found = std::find_if(
        before->operators.begin(), before->operators.end(),
        [&](const OperatorRow& one) { return one.op == row.op && one.phase == row.phase; });
    if (found == before->operators.end() || found->work.count == 0 || row.work.count == 0) continue;
    OperatorChange change{row.op, row.phase};
    change.base_ns = found->median_ns;
    change.now_ns = row.median_ns;
    change.ratio = change.base_ns > 0 ? change.now_ns / change.base_ns : 1;
    change.work_ratio = work_ratio(found->work, row.work);
    change.share = row.share;
    ratios.push_back(change.per_work());
    out.operators.push_back(change);
  }
  const auto cost = [](const OperatorChange& one) {
    return one.share * (1 - 1 / std::max(one.per_work(), 1e-9));
  };
  std::stable_sort(
      out.operators.begin(), out.operators.end(),
      [&](const OperatorChange& a, const OperatorChange& b) { return cost(a) > cost(b); });
  const double typical = ratios.empty() ? 1.0 : std::max(stats::median(ratios), 1.0);
  for (const OperatorChange& one : out.operators) {
    // With less work the fixed part of a call weighs more: it has to take longer, too.
    if (one.share < kOneOperatorShareMin ||
        std::min(one.ratio, one.per_work()) < kOneOperatorMin * typical)
      continue;
    out.findings.push_back(
        {Cause::kSlowOperator, after->pid, one.op, cost(one), 0,
         fmt::format("{} takes {:.1f} us in place of {:.1f} us ({:.2f} times, for {:.2f} times the "
                     "work) while {}, other operators {:.2f} times for theirs: this operator is "
                     "slow itself",
                     one.op, one.now_ns * 1e-3, one.base_ns * 1e-3, one.ratio, one.work_ratio,
                     one.phase == Phase::kPrefill ? "a prompt is read" : "decoding", typical)});
  }
  return out;
}

}  // namespace kansoku::infer
