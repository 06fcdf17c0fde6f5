// SPDX-License-Identifier: Apache-2.0
#include "infer/figures.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "infer/off_cpu.h"
#include "infer/unknown.h"
#include "infer/work.h"
#include "stats/summary.h"

namespace kansoku::infer {
namespace {

constexpr std::size_t kExpertsMax = 1024;
constexpr std::size_t kTimesKept = std::size_t{1} << 16;  // of an operator type

void add(Work& to, const Work& one) {
  to.count += one.count;
  to.ns += one.ns;
  to.flops += one.flops;
  to.bytes += one.bytes;
  to.runnable_ns += one.runnable_ns;
  to.blocked_ns += one.blocked_ns;
}

/// One computation of one node: what all threads of the graph did for it.
struct Computation {
  const Operator* first{nullptr};  // of the thread that called
  const Operator* longest{nullptr};
  double sum_ns{0};
  std::uint32_t threads{0};
};

class ProcessAdder {
 public:
  ProcessAdder(const Process& process, const trace::Trace& trace, const OffCpu& off_cpu)
      : process_(process), trace_(trace), off_cpu_(off_cpu) {}

  ProcessFigures add_up(std::map<std::string, std::string> unknown) {
    out_.unknown = std::move(unknown);
    out_.pid = process_.pid;
    out_.name = process_.name;
    out_.ggml = process_.ggml;
    out_.splits = process_.splits.size();
    out_.has_scheduler = off_cpu_.is_known();
    add_calls();
    has_barriers_.assign(process_.graphs.size(), false);
    for (const Wait& wait : process_.waits)
      if (wait.graph != kNone) has_barriers_[wait.graph] = true;
    add_graphs();
    add_operators();
    finish_rows();
    add_threads();
    add_experts();
    add_cache();
    add_timeline();
    return std::move(out_);
  }

 private:
  [[nodiscard]] Phase phase_of(std::size_t graph) const {
    if (graph == kNone || process_.graphs[graph].micro_batch == kNone) return Phase::kOther;
    return infer::phase_of(process_.micro_batches[process_.graphs[graph].micro_batch]);
  }
  [[nodiscard]] const Node* node_of(std::uint32_t definition, std::uint32_t node) const {
    const auto found = process_.definitions.find(definition);
    if (found == process_.definitions.end() || node >= found->second.nodes.size()) return nullptr;
    return &found->second.nodes[node];
  }

  void add_calls() {
    out_.decodes = process_.decodes.size();
    for (const Decode& one : process_.decodes) {
      out_.decode_tokens += one.tokens;
      if (one.result)
        ++out_.results[*one.result];
      else
        ++out_.unanswered;
    }
    out_.micro_batches = process_.micro_batches.size();
    if (!out_.unknown.contains("micro_batches")) add_micro_batches();
  }

  void add_micro_batches() {
    std::vector<double> decode_ms;
    double decode_ns = 0, prefill_ns = 0;
    for (const MicroBatch& one : process_.micro_batches) {
      if (!one.has_tokens) continue;  // its call began before the recording
      out_.micro_batch_tokens += one.tokens;
      // A call of one micro-batch takes what the call takes.
      const bool is_alone =
          one.decode != kNone && process_.decodes[one.decode].tokens == one.tokens;
      const auto ns =
          static_cast<double>(is_alone ? process_.decodes[one.decode].span.ns() : one.span.ns());
      if (one.is_prefill) out_.prompt += one.tokens;
      out_.generated += one.generated;
      if (one.drafts > 0) {
        ++out_.drafts.micro_batches;
        out_.drafts.tokens += one.drafts;
        out_.drafts.accepted += one.generated - (one.tokens - one.drafts);
      }
      (one.is_prefill ? prefill_ns : decode_ns) += ns;
      if (!one.is_prefill) decode_ms.push_back(ns * 1e-6);
    }
    if (decode_ns > 0)
      out_.tokens_per_second = static_cast<double>(out_.generated) / (decode_ns * 1e-9);
    if (prefill_ns > 0)
      out_.prefill_per_second = static_cast<double>(out_.prompt) / (prefill_ns * 1e-9);
    if (decode_ms.empty()) return;
    std::sort(decode_ms.begin(), decode_ms.end());
    const auto at = [&](double q) {
      return decode_ms[static_cast<std::size_t>(q * static_cast<double>(decode_ms.size() - 1))];
    };
    out_.ms_p50 = at(0.5);
    out_.ms_p99 = at(0.99);
  }

  void add_graphs() {
    out_.graphs = process_.graphs.size();
    std::set<std::int64_t> uids;
    for (const Graph& graph : process_.graphs)
      uids.insert(graph.uid);
    if (!uids.contains(0)) out_.uids = uids.size();  // 0: it has none
    for (std::size_t i = 0; i < process_.graphs.size(); ++i) {
      const Graph& graph = process_.graphs[i];
      if (graph.is_whole) ++out_.graphs_whole;
      if (!graph.definition) continue;
      GraphRow& row = definitions_[{*graph.definition, phase_of(i)}];
      ++row.runs;
    }
  }

  void add_operators() {
    std::map<std::pair<std::size_t, std::uint32_t>, Computation> computations;
    for (const Operator& one : process_.operators) {
      if (one.graph == kNone) continue;
      Computation& to = computations[{one.graph, one.node}];
      if (one.ith == 0) to.first = &one;
      if (to.longest == nullptr || one.span.ns() > to.longest->span.ns()) to.longest = &one;
      to.sum_ns += static_cast<double>(one.span.ns());
      ++to.threads;
    }
    double longest_ns = 0, over_mean_ns = 0;
    for (const auto& [key, one] : computations) {
      const auto longest = static_cast<double>(one.longest->span.ns());
      if (has_barriers_[key.first] && one.threads > 1) {
        longest_ns += longest;
        over_mean_ns += longest - one.sum_ns / one.threads;
      }
      if (one.first != nullptr) add_computation(key.first, one);
    }
    if (longest_ns > 0) out_.imbalance = over_mean_ns / longest_ns;
  }

  void add_computation(std::size_t graph, const Computation& one) {
    const Operator& timed = has_barriers_[graph] ? *one.longest : *one.first;
    Work work{1, static_cast<double>(timed.span.ns())};
    const OffCpu::Times off = off_cpu_.within(timed.tid, timed.span);
    work.runnable_ns = off.runnable_ns;
    work.blocked_ns = off.blocked_ns;
    const Phase phase = phase_of(graph);
    const Node* const node = node_of(timed.definition, timed.node);
    const std::string op(trace_.str(timed.name));
    if (node != nullptr) {
      work.flops = node->flops;
      work.bytes = bytes_of(*node, timed);
      if (op.find('+') != std::string::npos) add_fused(timed, work);
    }
    add(operators_[{op, phase}], work);
    if (auto& times = times_[{op, phase}]; times.size() < kTimesKept)
      times.push_back(static_cast<float>(work.ns));
    const std::string name = node == nullptr ? "?" : node->name;
    NodeRow& row = nodes_[{name, op, phase}];
    add(row.work, work);
    if (node != nullptr && row.weights.empty()) row.weights = weights_of(*node);
    if (node != nullptr) note_node_time(timed, phase, work.ns);
  }

  void note_node_time(const Operator& timed, Phase phase, double ns) {
    const auto row = definitions_.find({timed.definition, phase});
    if (row == definitions_.end()) return;
    auto& times = node_times_[{timed.definition, phase}];
    if (times.size() <= timed.node) times.resize(timed.node + std::size_t{1});
    times[timed.node].first += ns;
    ++times[timed.node].second;
  }

  // The second node of a fused pair: what it reads beside the first one's result.
  void add_fused(const Operator& timed, Work& work) const {
    const Node* const second = node_of(timed.definition, timed.node + 1);
    if (second == nullptr) return;
    work.flops += second->flops;
    for (const trace::TensorSource& source : second->sources)
      if (source.node != timed.node) work.bytes += static_cast<double>(source.shape.bytes);
  }

  // Bytes of a node; for experts only of the used ones, if these are known.
  [[nodiscard]] double bytes_of(const Node& node, const Operator& timed) const {
    const auto used = parse_experts(trace_.str(timed.experts));
    if (!used || node.sources.size() < 3 ||
        used->ids.size() < std::size_t{used->used} * used->tokens)
      return node.bytes;
    const std::set<std::int32_t> distinct(used->ids.begin(), used->ids.end());
    const trace::TensorShape& weights = node.sources[0].shape;
    const double experts = static_cast<double>(std::max<std::int64_t>(weights.ne[2], 1));
    return static_cast<double>(weights.bytes) * static_cast<double>(distinct.size()) / experts +
           static_cast<double>(node.sources[1].shape.bytes) + static_cast<double>(node.shape.bytes);
  }

  static std::string weights_of(const Node& node) {
    for (const trace::TensorSource& source : node.sources)
      if (!source.node && source.leaf.ends_with(".weight")) return trace::source_text(source);
    return {};
  }

  static double median_of(const std::vector<float>& times) {
    return times.empty() ? 0 : stats::median(std::vector<double>(times.begin(), times.end()));
  }

  void finish_rows() {
    std::map<Phase, double> totals;
    for (const auto& [key, work] : operators_)
      totals[key.second] += work.ns;
    const auto share = [&](Phase phase, double ns) {
      return totals[phase] > 0 ? ns / totals[phase] : 0;
    };
    for (const auto& [key, work] : operators_)
      out_.operators.push_back(
          {key.first, key.second, work, share(key.second, work.ns), median_of(times_[key])});
    for (auto& [key, row] : nodes_) {
      row.name = std::get<0>(key);
      row.op = std::get<1>(key);
      row.phase = std::get<2>(key);
      row.share = share(row.phase, row.work.ns);
      out_.nodes.push_back(std::move(row));
    }
    const auto by_time = [](const auto& a, const auto& b) { return a.work.ns > b.work.ns; };
    std::stable_sort(out_.operators.begin(), out_.operators.end(), by_time);
    std::stable_sort(out_.nodes.begin(), out_.nodes.end(), by_time);
    for (auto& [key, row] : definitions_)
      finish_definition(key.first, key.second, row);
  }

  void finish_definition(std::uint32_t number, Phase phase, GraphRow& row) {
    row.definition = number;
    row.phase = phase;
    const auto found = process_.definitions.find(number);
    if (found == process_.definitions.end()) return;
    const std::vector<Node>& nodes = found->second.nodes;
    row.nodes = nodes.size();
    row.node_ns.assign(nodes.size(), 0);
    const auto& times = node_times_[{number, phase}];
    for (std::size_t i = 0; i < std::min(times.size(), nodes.size()); ++i)
      if (times[i].second > 0) row.node_ns[i] = times[i].first / times[i].second;
    row.computed = static_cast<std::size_t>(
        std::count_if(nodes.begin(), nodes.end(), [](const Node& one) { return !one.is_view; }));
    row.ns = std::accumulate(row.node_ns.begin(), row.node_ns.end(), 0.0);
    find_critical_path(nodes, row);
    out_.definitions.push_back(row);
  }

  // Nodes are in an order in which they can run: a source has a smaller index.
  static void find_critical_path(const std::vector<Node>& nodes, GraphRow& row) {
    std::vector<double> until(nodes.size(), 0);
    std::vector<std::size_t> before(nodes.size(), kNone);
    std::size_t last = kNone;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      for (const trace::TensorSource& source : nodes[i].sources) {
        if (!source.node || *source.node >= i) continue;
        if (before[i] == kNone || until[*source.node] > until[before[i]]) before[i] = *source.node;
      }
      until[i] = row.node_ns[i] + (before[i] == kNone ? 0 : until[before[i]]);
      if (last == kNone || until[i] > until[last]) last = i;
    }
    if (last == kNone) return;
    row.critical_ns = until[last];
    for (std::size_t at = last; at != kNone; at = before[at])
      row.path.push_back(static_cast<std::uint32_t>(at));
    std::reverse(row.path.begin(), row.path.end());
  }

  // Adds the threads of graphs that were seen whole, with barriers: each thread's time from begin
  // to end.
  void add_threads() {
    struct Seen {
      std::int64_t first{INT64_MAX}, last{0};
      double busy{0}, wait{0};
    };
    std::map<std::pair<std::size_t, std::uint16_t>, Seen> seen;
    std::map<std::uint16_t, ThreadRow> rows;
    for (const Operator& one : process_.operators) {
      const OffCpu::Times off = off_cpu_.within(one.tid, one.span);
      out_.runnable_ns += off.runnable_ns;
      out_.blocked_ns += off.blocked_ns;
      if (one.graph == kNone || !process_.graphs[one.graph].is_whole || !has_barriers_[one.graph])
        continue;
      Seen& to = seen[{one.graph, one.ith}];
      to.first = std::min(to.first, one.span.begin_ns);
      to.last = std::max(to.last, one.span.end_ns);
      to.busy += static_cast<double>(one.span.ns());
      ThreadRow& row = rows[one.ith];
      ++row.operators;
      row.runnable_ns += off.runnable_ns;
      row.blocked_ns += off.blocked_ns;
    }
    for (const Wait& one : process_.waits) {
      if (one.graph == kNone) continue;
      const auto found = seen.find({one.graph, one.ith});
      if (found == seen.end()) continue;
      found->second.wait += static_cast<double>(one.span.ns());
      found->second.last = std::max(found->second.last, one.span.end_ns);
    }
    std::set<std::size_t> graphs;
    for (const auto& [key, one] : seen) {
      const Span& graph = process_.graphs[key.first].span;
      ThreadRow& row = rows[key.second];
      const double outside = static_cast<double>(
          (one.first - graph.begin_ns) + std::max<std::int64_t>(0, graph.end_ns - one.last));
      row.ith = key.second;
      row.busy_ns += one.busy;
      row.wait_ns += one.wait;
      row.outside_ns += outside;
      row.unexplained_ns += static_cast<double>(graph.ns()) - one.busy - one.wait - outside;
      if (graphs.insert(key.first).second) out_.graph_ns += static_cast<double>(graph.ns());
    }
    for (const auto& [ith, row] : rows)
      out_.threads.push_back(row);
  }

  // Takes the first node of each layer that uses experts: the others use the same ones.
  void add_experts() {
    struct Layer {
      ExpertRow row;
      std::vector<std::int32_t> last;
      std::uint64_t repeated{0}, compared{0};
    };
    std::map<std::string, Layer> layers;
    for (const Operator& one : process_.operators) {
      const auto used = one.ith == 0 ? parse_experts(trace_.str(one.experts)) : std::nullopt;
      const Node* const node = used ? node_of(one.definition, one.node) : nullptr;
      if (node == nullptr || !is_first_of_layer(*node)) continue;
      Layer& layer = layers[node->name];
      layer.row.name = node->name;
      layer.row.counts.resize(std::clamp<std::size_t>(
          static_cast<std::size_t>(std::max<std::int64_t>(node->sources[0].shape.ne[2], 0)), 1,
          kExpertsMax));
      for (std::size_t i = 0; i + used->used <= used->ids.size(); i += used->used) {
        const std::vector<std::int32_t> row(
            used->ids.begin() + static_cast<std::ptrdiff_t>(i),
            used->ids.begin() + static_cast<std::ptrdiff_t>(i + used->used));
        ++layer.row.tokens;
        for (const std::int32_t id : row) {
          const auto at = static_cast<std::size_t>(id);
          if (at < layer.row.counts.size()) ++layer.row.counts[at];
          if (!layer.last.empty()) {
            ++layer.compared;
            if (std::find(layer.last.begin(), layer.last.end(), id) != layer.last.end())
              ++layer.repeated;
          }
        }
        layer.last = row;
      }
    }
    for (auto& [name, layer] : layers) {
      if (layer.compared > 0)
        layer.row.repeated =
            static_cast<double>(layer.repeated) / static_cast<double>(layer.compared);
      out_.experts.push_back(std::move(layer.row));
    }
  }
  static bool is_first_of_layer(const Node& node) {
    return node.sources.size() >= 3 && (node.sources[0].leaf.find("gate") != std::string::npos);
  }

  void add_cache() {
    CacheRow row;
    for (const auto& [number, definition] : process_.definitions) {
      for (const Node& node : definition.nodes) {
        // Without flash attention the values are transposed: single elements, no cells.
        if (node.op == "SET_ROWS" && node.shape.ne[0] > 1)
          row.cells = std::max(row.cells, node.shape.ne[1]);
        const bool is_masked = node.op == "SOFT_MAX" && node.sources.size() >= 2;
        if (is_masked) row.attended = std::max(row.attended, node.shape.ne[0]);
        if (node.op == "FLASH_ATTN_EXT" && node.sources.size() >= 2)
          row.attended = std::max(row.attended, node.sources[1].shape.ne[1]);
      }
    }
    if (row.cells == 0) return;
    std::map<std::int32_t, std::int64_t> used;  // by sequence
    std::int64_t sum = 0;
    for (const MicroBatch& one : process_.micro_batches) {
      for (const Row& token : one.rows) {
        std::int64_t& of = used[token.sequence];
        sum += token.position + std::int64_t{1} - of;
        of = token.position + std::int64_t{1};
      }
      row.used_max = std::max(row.used_max, sum);
    }
    out_.cache = row;
  }

  void add_timeline() {
    const auto& list = process_.micro_batches;
    const std::size_t step =
        std::max<std::size_t>(1, (list.size() + kTimelineMax - 1) / kTimelineMax);
    for (std::size_t i = 0; i < list.size(); i += step)
      out_.timeline.push_back({list[i].span.begin_ns, static_cast<double>(list[i].span.ns()) * 1e-6,
                               list[i].tokens, infer::phase_of(list[i])});
  }

  const Process& process_;
  const trace::Trace& trace_;
  const OffCpu& off_cpu_;
  ProcessFigures out_;
  std::vector<bool> has_barriers_;  // by graph
  std::map<std::pair<std::string, Phase>, Work> operators_;
  std::map<std::pair<std::string, Phase>, std::vector<float>> times_;
  std::map<std::tuple<std::string, std::string, Phase>, NodeRow> nodes_;
  std::map<std::pair<std::uint32_t, Phase>, GraphRow> definitions_;
  std::map<std::pair<std::uint32_t, Phase>, std::vector<std::pair<double, std::uint32_t>>>
      node_times_;
};

}  // namespace

Phase phase_of(const MicroBatch& micro_batch) {
  return micro_batch.is_prefill ? Phase::kPrefill : Phase::kDecode;
}

std::string_view phase_name(Phase phase) {
  constexpr std::array<std::string_view, 3> kNames{"decode", "prefill", "other"};
  return kNames.at(static_cast<std::size_t>(phase));
}

Report make_report(const Run& run) {
  Report out;
  out.unreadable = run.unreadable;
  const OffCpu off_cpu(*run.trace);
  for (const Process& process : run.processes)
    out.processes.push_back(
        ProcessAdder(process, *run.trace, off_cpu).add_up(unknown_figures(run, process)));
  std::map<trace::ModelLevel, Coverage> coverage;
  double cost = 0;
  for (const Window& window : run.windows) {
    Coverage& to = coverage[window.level];
    to.level = window.level;
    to.seconds += static_cast<double>(window.span.ns()) * 1e-9;
    to.hits += window.hits;
    to.cost_seconds += window.cost_ns * 1e-9;
    to.switching_seconds += window.switching_ns * 1e-9;
    out.seconds += static_cast<double>(window.span.ns()) * 1e-9;
    cost += (window.cost_ns + window.switching_ns) * 1e-9;
  }
  for (const auto& [level, one] : coverage)
    out.coverage.push_back(one);
  if (out.seconds > 0) out.cost_share = cost / out.seconds;
  for (const auto& [name, loss] : run.trace->losses)
    if (loss.count > 0 && loss.severity >= Severity::kDataLoss) out.losses[name] = loss.count;
  return out;
}

}  // namespace kansoku::infer
