// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/timeline/pipeline_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "diagnose/thresholds.h"

namespace kansoku::diagnose {
namespace {

using Node = StepGraph::Node;

/// Clocks of the ends of a transfer agree to about this much.

struct StageOp {
  PipelineOp op;
  Node node{0};
};

bool starts_before(const StageOp& a, const StageOp& b) {
  return std::tuple(a.op.start_ns, a.op.seq, a.op.type) <
         std::tuple(b.op.start_ns, b.op.seq, b.op.type);
}

bool is_compute(OpType type) {
  return type == OpType::kForward || type == OpType::kBackward;
}

class Builder {
 public:
  Builder(const PipelineOps& ops, std::size_t cells_max) : ops_(ops), cells_max_(cells_max) {}
  Result<PipelineGraph> build();

 private:
  [[nodiscard]] Result<void> add_nodes();
  [[nodiscard]] Result<void> add_stage(std::int32_t stage);
  [[nodiscard]] Result<void> match_transfers(std::int32_t stage, OpType type);
  void chain(const std::vector<Node>& nodes, std::vector<Node> last = {});
  void order_first_backward(std::int32_t stage);
  void after_compute(std::int32_t stage);
  void gather_before_forward(std::int32_t stage);
  void scatter_after_backward(std::int32_t stage);
  [[nodiscard]] Result<void> pair_transfers();
  void synchronise();
  [[nodiscard]] Result<void> fill_durations();
  void recorded_steps();
  [[nodiscard]] std::vector<StageOp> of_type(std::int32_t stage, OpType type) const;
  [[nodiscard]] std::optional<Node> find(OpType type, std::int32_t seq, std::int32_t stage) const;
  [[nodiscard]] bool has_type(OpType type) const;

  const PipelineOps& ops_;
  std::size_t cells_max_;
  PipelineGraph out_;
  std::map<std::tuple<OpType, std::int32_t, std::int32_t>, Node> index_;    // type, seq, stage
  std::vector<std::vector<StageOp>> stages_;                                // by start
  std::map<std::pair<OpType, std::int32_t>, std::vector<Node>> transfers_;  // (type, stage)
  std::vector<Node> idle_transfers_;  // recorded, but with nobody at the other end
};

Result<void> Builder::add_nodes() {
  stages_.resize(static_cast<std::size_t>(ops_.stage_count));
  for (const PipelineOp& op : ops_.ops) {
    if (op.data_rank != 0 || op.step != ops_.steps.front()) continue;
    const auto [known, is_new] = index_.try_emplace({op.type, op.seq, op.stage}, Node{0});
    if (!is_new) {
      return Error{Code::kCorrupt,
                   fmt::format("read operation timeline: {} {} stands twice in step {} of stage {}",
                               op_name(op.type), op.seq, op.step, op.stage)};
    }
    known->second = out_.graph.add();
    out_.nodes.push_back({.type = op.type, .stage = op.stage, .seq = op.seq});
    stages_[static_cast<std::size_t>(op.stage)].push_back({.op = op, .node = known->second});
  }
  for (std::vector<StageOp>& stage : stages_)
    std::sort(stage.begin(), stage.end(), starts_before);
  return {};
}

std::vector<StageOp> Builder::of_type(std::int32_t stage, OpType type) const {
  std::vector<StageOp> out;
  for (const StageOp& op : stages_[static_cast<std::size_t>(stage)]) {
    if (op.op.type == type) out.push_back(op);
  }
  return out;
}

std::optional<Node> Builder::find(OpType type, std::int32_t seq, std::int32_t stage) const {
  const auto known = index_.find({type, seq, stage});
  if (known == index_.end()) return std::nullopt;
  return known->second;
}

bool Builder::has_type(OpType type) const {
  return std::any_of(out_.nodes.begin(), out_.nodes.end(),
                     [&](const GraphNode& node) { return node.type == type; });
}

void Builder::chain(const std::vector<Node>& nodes, std::vector<Node> last) {
  for (const Node node : nodes) {
    for (const Node before : last)
      out_.graph.depend(node, before);
    last = {node};
  }
}

/// Pairs the transfers of one type with the computations that they feed or drain, in order. Timers
/// also record ends of transfers that never took place; those at the edges of a step are told by
/// their time, those at the edges of the model by their stage.
Result<void> Builder::match_transfers(std::int32_t stage, OpType type) {
  const bool is_forward = type == OpType::kForwardSend || type == OpType::kForwardRecv;
  const bool is_recv = type == OpType::kForwardRecv || type == OpType::kBackwardRecv;
  const OpType compute_type = is_forward ? OpType::kForward : OpType::kBackward;
  std::vector<StageOp> computes = of_type(stage, compute_type);
  if (computes.empty()) return {};
  std::int64_t last_start_ns = std::numeric_limits<std::int64_t>::min();
  std::int64_t first_end_ns = std::numeric_limits<std::int64_t>::max();
  for (const StageOp& compute : computes) {
    last_start_ns = std::max(last_start_ns, compute.op.start_ns);
    first_end_ns = std::min(first_end_ns, compute.op.start_ns + compute.op.duration_ns);
  }
  std::vector<StageOp> real;
  for (const StageOp& transfer : of_type(stage, type)) {
    const bool is_real =
        is_recv ? transfer.op.start_ns <= last_start_ns + kClockErrorNs
                : transfer.op.start_ns + transfer.op.duration_ns >= first_end_ns - kClockErrorNs;
    if (is_real) {
      real.push_back(transfer);
    } else {
      idle_transfers_.push_back(transfer.node);
    }
  }
  if (real.empty()) return {};
  std::size_t compute_seq = 0;
  if (real.size() + 1 == computes.size() && is_recv) {
    compute_seq = 1;  // the first receive of an interleaved schedule is not always recorded
  } else if (real.size() + 1 != computes.size() && real.size() != computes.size()) {
    return Error{Code::kCorrupt,
                 fmt::format("read operation timeline: stage {} has {} {} for {} {}", stage,
                             real.size(), op_name(type), computes.size(), op_name(compute_type))};
  }
  const std::int32_t chunk_count = [&] {
    std::int32_t most = 0;
    for (const StageOp& compute : computes)
      most = std::max(most, compute.op.chunk);
    return most + 1;
  }();
  for (const StageOp& transfer : real) {
    const auto seq = static_cast<std::int32_t>(compute_seq++);
    const auto compute = find(compute_type, seq, stage);
    if (!compute) break;
    const auto found = std::find_if(computes.begin(), computes.end(),
                                    [&](const StageOp& c) { return c.node == *compute; });
    if (is_recv) {
      out_.graph.depend(*compute, transfer.node);
      if (const auto previous = find(compute_type, seq - 1, stage))
        out_.graph.depend(transfer.node, *previous);
    } else {
      out_.graph.depend(transfer.node, *compute);
    }
    // The first part of the model receives no activations, the last one sends none, and so on.
    const std::int32_t part = found->op.chunk * ops_.stage_count + stage;
    const std::int32_t peer = part + (is_forward == is_recv ? -1 : 1);
    const bool has_peer = peer >= 0 && peer < chunk_count * ops_.stage_count;
    if (has_peer) {
      transfers_[{type, stage}].push_back(transfer.node);
    } else {
      idle_transfers_.push_back(transfer.node);
    }
  }
  return {};
}

/// The first transfer of gradients is posted before the last forward computation that precedes the
/// first backward one.
void Builder::order_first_backward(std::int32_t stage) {
  std::vector<StageOp> computes;
  for (const StageOp& op : stages_[static_cast<std::size_t>(stage)]) {
    if (is_compute(op.op.type)) computes.push_back(op);
  }
  const auto first = std::find_if(computes.begin(), computes.end(), [](const StageOp& op) {
    return op.op.type == OpType::kBackward;
  });
  if (first - computes.begin() < 2 || first == computes.end()) return;
  for (const OpType type : {OpType::kBackwardRecv, OpType::kBackwardSend}) {
    if (const auto transfer = find(type, 0, stage)) out_.graph.depend(*transfer, (first - 2)->node);
  }
}

/// Each part of the model needs its parameters before its first forward computation.
void Builder::gather_before_forward(std::int32_t stage) {
  std::map<std::int32_t, StageOp> gather_of_chunk;  // the last one of each
  for (const StageOp& gather : of_type(stage, OpType::kParamsGather)) {
    auto& last = gather_of_chunk.try_emplace(gather.op.chunk, gather).first->second;
    if (gather.op.seq > last.op.seq) last = gather;
  }
  for (const auto& [chunk, gather] : gather_of_chunk) {
    for (const StageOp& compute : of_type(stage, OpType::kForward)) {
      if (compute.op.chunk != chunk) continue;
      out_.graph.depend(compute.node, gather.node);
      break;
    }
  }
}

/// With overlapped gradients: each part's first reduce-scatter waits for its last backward one.
void Builder::scatter_after_backward(std::int32_t stage) {
  std::map<std::int32_t, StageOp> scatter_of_chunk;  // the first one of each
  for (const StageOp& scatter : of_type(stage, OpType::kGradsScatter)) {
    auto& first = scatter_of_chunk.try_emplace(scatter.op.chunk, scatter).first->second;
    if (scatter.op.seq < first.op.seq) first = scatter;
  }
  for (const auto& [chunk, scatter] : scatter_of_chunk) {
    std::optional<StageOp> last;
    for (const StageOp& compute : of_type(stage, OpType::kBackward)) {
      if (compute.op.chunk != chunk) continue;
      const auto end_ns = [](const StageOp& op) { return op.op.start_ns + op.op.duration_ns; };
      if (!last || end_ns(compute) > end_ns(*last)) last = compute;
    }
    if (last) out_.graph.depend(scatter.node, last->node);
  }
}

/// Adds the operations that follow the last computation of a step.
void Builder::after_compute(std::int32_t stage) {
  std::optional<StageOp> last_compute;
  for (const StageOp& op : stages_[static_cast<std::size_t>(stage)]) {
    if (!is_compute(op.op.type)) continue;
    const auto end_ns = [](const StageOp& o) { return o.op.start_ns + o.op.duration_ns; };
    if (!last_compute || end_ns(op) > end_ns(*last_compute)) last_compute = op;
  }
  if (!last_compute) return;
  std::vector<Node> before{last_compute->node};
  if (const auto gc = find(OpType::kGc, 0, stage)) {
    out_.graph.depend(*gc, last_compute->node);
    before = {*gc};
  }
  std::vector<Node> rest;
  const auto take = [&](OpType type) {
    if (const auto node = find(type, 0, stage)) rest.push_back(*node);
  };
  const bool overlaps = has_type(OpType::kSeparateGrads);
  std::vector<StageOp> scatters = of_type(stage, OpType::kGradsScatter);
  std::sort(scatters.begin(), scatters.end(),
            [](const StageOp& a, const StageOp& b) { return a.op.seq < b.op.seq; });
  if (overlaps && !scatters.empty()) before.push_back(scatters.back().node);
  take(OpType::kLayernormGrads);
  take(OpType::kEmbeddingGrads);
  if (overlaps) {
    take(OpType::kSeparateGrads);
  } else {
    for (const StageOp& scatter : scatters)
      rest.push_back(scatter.node);
  }
  take(OpType::kClipGrad);
  take(OpType::kOptimizer);
  chain(rest, before);
}

Result<void> Builder::add_stage(std::int32_t stage) {
  std::vector<Node> computes, data_parallel;
  std::map<OpType, std::vector<Node>> streams;
  for (const StageOp& op : stages_[static_cast<std::size_t>(stage)]) {
    if (is_compute(op.op.type)) computes.push_back(op.node);
    if (is_point_to_point(op.op.type)) streams[op.op.type].push_back(op.node);
    if (op.op.type == OpType::kParamsGather || op.op.type == OpType::kGradsScatter)
      data_parallel.push_back(op.node);
  }
  if (computes.empty()) {
    return Error{Code::kCorrupt,
                 fmt::format("read operation timeline: stage {} computes nothing in "
                             "step {} of data-parallel rank 0",
                             stage, ops_.steps.front())};
  }
  chain(computes);
  chain(data_parallel);
  for (const auto& [type, nodes] : streams) {
    chain(nodes);
    TRY_VOID(match_transfers(stage, type));
  }
  order_first_backward(stage);
  gather_before_forward(stage);
  if (has_type(OpType::kSeparateGrads)) scatter_after_backward(stage);
  after_compute(stage);
  return {};
}

/// The n-th send of a stage meets the n-th receive of its neighbour.
Result<void> Builder::pair_transfers() {
  const std::int32_t count = ops_.stage_count;
  for (const auto& [key, sends] : transfers_) {
    const auto& [type, stage] = key;
    if (type != OpType::kForwardSend && type != OpType::kBackwardSend) continue;
    const bool is_forward = type == OpType::kForwardSend;
    const std::int32_t peer = (stage + (is_forward ? 1 : count - 1)) % count;
    const auto recvs =
        transfers_.find({is_forward ? OpType::kForwardRecv : OpType::kBackwardRecv, peer});
    const std::size_t recv_count = recvs == transfers_.end() ? 0 : recvs->second.size();
    if (recv_count != sends.size()) {
      return Error{Code::kCorrupt,
                   fmt::format("read operation timeline: {} {} of stage {} meet {} receives of "
                               "stage {}",
                               sends.size(), op_name(type), stage, recv_count, peer)};
    }
    for (std::size_t i = 0; i < sends.size(); ++i) {
      const std::array<Node, 2> both{sends[i], recvs->second[i]};
      out_.graph.communicate(both, false);
    }
  }
  return {};
}

void Builder::synchronise() {
  std::vector<Node> embedding, clip;
  for (Node node = 0; node < out_.nodes.size(); ++node) {
    const GraphNode& at = out_.nodes[node];
    const bool is_data_parallel = at.type == OpType::kParamsGather ||
                                  at.type == OpType::kGradsScatter ||
                                  at.type == OpType::kSeparateGrads;
    if (is_data_parallel) out_.graph.communicate(std::array{node}, true);
    if (at.type == OpType::kEmbeddingGrads && at.seq == 0) embedding.push_back(node);
    if (at.type == OpType::kClipGrad && at.seq == 0) clip.push_back(node);
  }
  if (!embedding.empty()) out_.graph.communicate(embedding, false);
  if (!clip.empty()) out_.graph.communicate(clip, true);
}

Result<void> Builder::fill_durations() {
  out_.lanes_per_step = static_cast<std::size_t>(ops_.data_rank_count);
  out_.lane_count = out_.lanes_per_step * ops_.steps.size();
  if (out_.lane_count > cells_max_ / std::max<std::size_t>(out_.nodes.size(), 1)) {
    return Error{Code::kLimit, fmt::format("read operation timeline: {} operations in {} steps and "
                                           "ranks are more than {}",
                                           out_.nodes.size(), out_.lane_count, cells_max_)};
  }
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  out_.durations_s.assign(out_.nodes.size() * out_.lane_count, unknown);
  std::uint64_t strange = 0, missing = 0;
  for (const PipelineOp& op : ops_.ops) {
    const auto node = find(op.type, op.seq, op.stage);
    if (!node) {
      ++strange;
      continue;
    }
    const auto step = static_cast<std::size_t>(
        std::lower_bound(ops_.steps.begin(), ops_.steps.end(), op.step) - ops_.steps.begin());
    out_.durations_s[*node * out_.lane_count + step * out_.lanes_per_step +
                     static_cast<std::size_t>(op.data_rank)] =
        static_cast<double>(op.duration_ns) * 1e-9;
  }
  for (std::size_t node = 0; node < out_.nodes.size(); ++node) {
    double* const row = out_.durations_s.data() + node * out_.lane_count;
    double sum = 0;
    std::size_t known = 0;
    for (std::size_t lane = 0; lane < out_.lane_count; ++lane) {
      if (std::isnan(row[lane])) continue;
      sum += row[lane];
      ++known;
    }
    for (std::size_t lane = 0; lane < out_.lane_count; ++lane) {
      if (!std::isnan(row[lane])) continue;
      row[lane] = known > 0 ? sum / static_cast<double>(known) : 0;
      ++missing;
    }
  }
  if (strange > 0)
    out_.notes.push_back(
        fmt::format("{} operations that the first step lacks were left out", strange));
  if (missing > 0)
    out_.notes.push_back(
        fmt::format("{} missing operations count as the mean of the others", missing));
  return {};
}

void Builder::recorded_steps() {
  std::map<std::int32_t, std::pair<std::int64_t, std::int64_t>> spans;
  for (const PipelineOp& op : ops_.ops) {
    auto& [begin, end] =
        spans.try_emplace(op.step, op.start_ns, op.start_ns + op.duration_ns).first->second;
    begin = std::min(begin, op.start_ns);
    end = std::max(end, op.start_ns + op.duration_ns);
  }
  for (const auto& [step, span] : spans)
    out_.recorded_step_s.push_back(static_cast<double>(span.second - span.first) * 1e-9);
}

Result<PipelineGraph> Builder::build() {
  TRY_VOID(add_nodes());
  for (std::int32_t stage = 0; stage < ops_.stage_count; ++stage)
    TRY_VOID(add_stage(stage));
  TRY_VOID(pair_transfers());
  synchronise();
  TRY_VOID(out_.graph.finish());
  TRY_VOID(fill_durations());
  recorded_steps();
  return std::move(out_);
}

}  // namespace

Result<PipelineGraph> build_pipeline_graph(const PipelineOps& ops, std::size_t cells_max) {
  return Builder(ops, cells_max).build();
}

}  // namespace kansoku::diagnose
