// SPDX-License-Identifier: Apache-2.0
#include "infer/device.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "gpu/activity/device_work.h"
#include "infer/internal/lookup.h"
#include "infer/kernel_nodes.h"

namespace kansoku::infer {
namespace {

using gpu::activity::Call;
using gpu::activity::DeviceWork;
using gpu::activity::Op;
using gpu::activity::OpClass;

/// How to align the kernels of one definition, by their names; the same ones are aligned once.
using Alignments = std::map<std::pair<std::uint32_t, std::vector<trace::StringId>>,
                            std::optional<std::vector<std::size_t>>>;

class DeviceReader {
 public:
  DeviceReader(const Process& process, const trace::Trace& trace, const DeviceWork& work)
      : process_(process),
        micro_batches_(process.micro_batches),
        splits_of_caller_(process.splits),
        trace_(trace),
        work_(work),
        kernels_(trace.strings.find("kernels")) {}

  DeviceFigures read() {
    for (const Op& op : work_.ops)
      read_op(op);
    place_kernels();
    for (auto& [phase, batches] : by_batch_)
      finish_phase(phase, batches);
    for (auto& [key, row] : rows_)
      finish_row(key, row, out_.kernels, row.name);
    for (auto& [key, row] : operators_)
      finish_row(key, row, out_.operators, row.op);
    const auto by_time = [](const auto& a, const auto& b) { return a.ns > b.ns; };
    std::stable_sort(out_.kernels.begin(), out_.kernels.end(), by_time);
    std::stable_sort(out_.operators.begin(), out_.operators.end(), by_time);
    return std::move(out_);
  }

 private:
  using Key = std::pair<std::string, Phase>;
  struct Batch {
    std::uint64_t kernels{0};
    double timed_ns{0};
  };

  void read_op(const Op& op) {
    if (op.what != OpClass::kKernel && op.what != OpClass::kCollective &&
        op.what != OpClass::kGraph)
      return;
    const bool is_graph = op.what == OpClass::kGraph;
    const std::uint64_t kernels = is_graph ? kernels_of_graph(op) : op.is_further ? 0 : 1;
    if (op.call == gpu::activity::kNoIndex) return;
    const Call& call = work_.calls[op.call];
    const gpu::activity::Thread& thread = work_.threads[call.thread];
    if (thread.pid != process_.pid) return;
    const auto tid = static_cast<std::uint32_t>(thread.tid);
    const Span at{call.time.begin_ns, call.time.begin_ns};
    const std::size_t batch = micro_batches_.enclosing(tid, at);
    if (batch == kNone) {
      out_.outside += kernels;
      return;
    }
    const Phase phase = phase_of(process_.micro_batches[batch]);
    DevicePhase& to = phases_[phase];
    Batch& of_batch = by_batch_[phase][batch];
    to.launches += kernels > 0 ? 1 : 0;
    to.graphs += is_graph ? 1 : 0;
    to.kernels += kernels;
    of_batch.kernels += kernels;
    if (is_graph) return;  // its nodes have times of their own
    const auto ns = static_cast<double>(op.time.end_ns - op.time.begin_ns);
    KernelRow& row = rows_[{std::string(trace_.str(trace_.slices.name[op.slice])), phase}];
    ++row.count;
    row.ns += ns;
    to.kernel_ns += ns;
    of_batch.timed_ns += ns;
    const std::size_t split = splits_of_caller_.enclosing(tid, at);
    if (split != kNone) of_splits_[split].push_back(&op);
  }

  [[nodiscard]] std::uint64_t kernels_of_graph(const Op& op) const {
    const trace::ArgValue* const arg = trace_.slice_arg(op.slice, kernels_);
    return arg != nullptr && arg->kind == trace::ArgValue::Kind::kUint ? arg->u64 : 0;
  }

  void finish_phase(Phase phase, const std::map<std::size_t, Batch>& batches) {
    DevicePhase& one = phases_[phase];
    one.phase = phase;
    one.micro_batches = batches.size();
    one.kernels_least = batches.begin()->second.kernels;
    for (const auto& [index, batch] : batches) {
      one.tokens += process_.micro_batches[index].tokens;
      one.kernels_least = std::min(one.kernels_least, batch.kernels);
      one.kernels_most = std::max(one.kernels_most, batch.kernels);
      if (batch.timed_ns <= 0) continue;
      ++one.timed;
      if (phase == Phase::kDecode)
        out_.decoding.push_back({process_.micro_batches[index].span.begin_ns, batch.timed_ns});
    }
    out_.phases.push_back(one);
  }

  template <class Row>
  void finish_row(const Key& key, Row& row, std::vector<Row>& rows, std::string& name) {
    name = key.first;
    row.phase = key.second;
    const double all = phases_[key.second].kernel_ns;
    row.share = all > 0 ? row.ns / all : 0;
    rows.push_back(std::move(row));
  }

  void place_kernels() {
    Alignments known;
    for (auto& [index, ops] : of_splits_) {
      const Split& split = process_.splits[index];
      if (!split.definition || split.micro_batch == kNone) continue;
      const auto definition = process_.definitions.find(*split.definition);
      if (definition == process_.definitions.end()) continue;
      std::stable_sort(ops.begin(), ops.end(), [](const Op* a, const Op* b) {
        return std::pair(a->call, a->time.begin_ns) < std::pair(b->call, b->time.begin_ns);
      });
      const Phase phase = phase_of(process_.micro_batches[split.micro_batch]);
      place_split(*split.definition, definition->second, ops, phase, known);
    }
  }

  void place_split(std::uint32_t number, const Definition& definition,
                   const std::vector<const Op*>& ops, Phase phase, Alignments& known) {
    std::vector<trace::StringId> names;
    std::vector<std::string_view> texts;
    for (const Op* const op : ops) {
      names.push_back(trace_.slices.name[op->slice]);
      texts.push_back(trace_.str(names.back()));
    }
    std::vector<std::uint32_t> computed;
    for (std::uint32_t i = 0; i < definition.nodes.size(); ++i)
      if (!definition.nodes[i].is_view && !definition.nodes[i].op.empty()) computed.push_back(i);
    auto found = known.find({number, names});
    if (found == known.end())
      found = known
                  .emplace(std::pair(number, std::move(names)),
                           align_kernels(definition.nodes, computed, texts))
                  .first;
    ++(found->second ? phases_[phase].placed : phases_[phase].unplaced);
    if (found->second) add_placed(definition.nodes, computed, *found->second, ops, phase);
  }

  // `first`: of each kernel the first node of its group.
  void add_placed(const std::vector<Node>& nodes, const std::vector<std::uint32_t>& computed,
                  const std::vector<std::size_t>& first, const std::vector<const Op*>& ops,
                  Phase phase) {
    for (std::size_t begin = 0; begin < ops.size();) {
      std::size_t end = begin;
      double ns = 0;
      for (; end < ops.size() && first[end] == first[begin]; ++end)
        ns += static_cast<double>(ops[end]->time.end_ns - ops[end]->time.begin_ns);
      const std::size_t behind = end < ops.size() ? first[end] : computed.size();
      DeviceOperatorRow row;
      std::string op;
      for (std::size_t i = first[begin]; i < std::max(behind, first[begin] + 1); ++i) {
        const Node& node = nodes[computed[i]];
        op += (op.empty() ? "" : "+") + node.op;
        row.flops += node.flops;
        row.bytes += node.bytes;
      }
      DeviceOperatorRow& to = operators_[{op, phase}];
      ++to.count;
      to.kernels += end - begin;
      to.ns += ns;
      to.flops += row.flops;
      to.bytes += row.bytes;
      begin = end;
    }
  }

  const Process& process_;
  const ByCaller<MicroBatch> micro_batches_;
  const ByCaller<Split> splits_of_caller_;
  const trace::Trace& trace_;
  const DeviceWork& work_;
  trace::StringId kernels_;
  DeviceFigures out_;
  std::map<Phase, DevicePhase> phases_;
  std::map<Phase, std::map<std::size_t, Batch>> by_batch_;
  std::map<Key, KernelRow> rows_;
  std::map<Key, DeviceOperatorRow> operators_;
  std::map<std::size_t, std::vector<const Op*>> of_splits_;  // timed kernels, by split
};

}  // namespace

Result<std::vector<DeviceFigures>> device_figures(const Run& run) {
  TRY(const DeviceWork work, gpu::activity::read_device_work(*run.trace));
  std::vector<DeviceFigures> out;
  for (const Process& process : run.processes)
    out.push_back(DeviceReader(process, *run.trace, work).read());
  return out;
}

}  // namespace kansoku::infer
