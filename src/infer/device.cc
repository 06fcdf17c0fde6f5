// SPDX-License-Identifier: Apache-2.0
#include "infer/device.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "infer/kernel_nodes.h"

namespace kansoku::infer {
namespace {

class DeviceReader {
 public:
  DeviceReader(const Process& process, const trace::Trace& trace)
      : process_(process),
        trace_(trace),
        correlation_(trace.strings.find("correlation")),
        kernels_(trace.strings.find("kernels")) {}

  DeviceFigures read() {
    read_calls();
    read_operations();
    place_kernels();
    DeviceFigures out;
    out.outside = outside_;
    for (const auto& [batch, ns] : decoding_)
      out.decoding.push_back({process_.micro_batches[batch].span.begin_ns, ns});
    for (auto& [phase, one] : phases_) {
      for (const auto& [batch, count] : by_batch_[phase]) {
        ++one.micro_batches;
        one.tokens += process_.micro_batches[batch].tokens;
        one.kernels_least = one.micro_batches == 1 ? count : std::min(one.kernels_least, count);
        one.kernels_most = std::max(one.kernels_most, count);
      }
      one.phase = phase;
      one.timed = timed_[phase].size();
      out.phases.push_back(one);
    }
    for (auto& [key, row] : rows_) {
      row.name = key.first;
      row.phase = key.second;
      const double all = phases_[key.second].kernel_ns;
      row.share = all > 0 ? row.ns / all : 0;
      out.kernels.push_back(std::move(row));
    }
    for (auto& [key, row] : operators_) {
      row.op = key.first;
      row.phase = key.second;
      const double all = phases_[key.second].kernel_ns;
      row.share = all > 0 ? row.ns / all : 0;
      out.operators.push_back(std::move(row));
    }
    std::stable_sort(
        out.operators.begin(), out.operators.end(),
        [](const DeviceOperatorRow& a, const DeviceOperatorRow& b) { return a.ns > b.ns; });
    std::stable_sort(out.kernels.begin(), out.kernels.end(),
                     [](const KernelRow& a, const KernelRow& b) { return a.ns > b.ns; });
    return out;
  }

 private:
  [[nodiscard]] std::int32_t pid_of(trace::TrackId track) const {
    constexpr int kDepthMax = 8;
    for (int depth = 0; depth < kDepthMax && track.raw < trace_.tracks.size(); ++depth) {
      const trace::Track& one = trace_.tracks[track.raw];
      if (one.pid != 0) return one.pid;
      track = one.parent;
    }
    return 0;
  }
  [[nodiscard]] std::uint64_t number(std::size_t slice, trace::StringId key) const {
    const trace::ArgValue* const arg = trace_.slice_arg(slice, key);
    return arg != nullptr && arg->kind != trace::ArgValue::Kind::kString ? arg->u64 : 0;
  }

  // The micro-batch or split of that thread at that time; kNone: there was none.
  template <class T>
  static std::size_t last_of(const std::vector<T>& list, std::uint32_t tid, std::int64_t time) {
    auto at = std::upper_bound(list.begin(), list.end(), time,
                               [](std::int64_t t, const T& one) { return t < one.span.begin_ns; });
    constexpr int kBack = 64;  // of other threads, in between
    for (int i = 0; i < kBack && at != list.begin(); ++i) {
      --at;
      if (at->caller == tid && at->span.end_ns >= time)
        return static_cast<std::size_t>(at - list.begin());
    }
    return kNone;
  }

  // Calls of CUDA: which micro-batch made them.
  void read_calls() {
    const trace::SliceTable& slices = trace_.slices;
    const std::array categories{trace_.strings.find("cuda"), trace_.strings.find("cuda_driver"),
                                trace_.strings.find("cuda_runtime")};
    for (std::size_t i = 0; i < slices.size(); ++i) {
      if (slices.category[i].raw == 0 ||
          std::find(categories.begin(), categories.end(), slices.category[i]) == categories.end())
        continue;
      const trace::TrackId track = slices.track[i];
      if (track.raw >= trace_.tracks.size()) continue;
      const trace::Track& thread = trace_.tracks[track.raw];
      if (thread.kind != trace::TrackKind::kThread || thread.pid != process_.pid) continue;
      const std::uint64_t id = number(i, correlation_);
      if (id == 0) continue;
      const auto tid = static_cast<std::uint32_t>(thread.tid);
      batches_[id] = last_of(process_.micro_batches, tid, slices.start_ns[i]);
      splits_[id] = last_of(process_.splits, tid, slices.start_ns[i]);
    }
  }

  void read_operations() {
    const trace::SliceTable& slices = trace_.slices;
    const trace::StringId kernel = trace_.strings.find("kernel"),
                          graph = trace_.strings.find("cuda_graph");
    std::set<std::uint64_t> of_graphs;
    for (std::size_t i = 0; i < slices.size(); ++i) {
      if (graph.raw == 0 || slices.category[i] != graph || pid_of(slices.track[i]) != process_.pid)
        continue;
      of_graphs.insert(number(i, correlation_));
      add(i, number(i, kernels_), true);
    }
    for (std::size_t i = 0; i < slices.size(); ++i) {
      if (kernel.raw == 0 || slices.category[i] != kernel ||
          pid_of(slices.track[i]) != process_.pid)
        continue;
      const bool is_node = of_graphs.contains(number(i, correlation_));
      if (!is_node) add(i, 1, false);
      add_time(i);
    }
  }

  void add(std::size_t slice, std::uint64_t kernels, bool is_graph) {
    const auto found = batches_.find(number(slice, correlation_));
    if (found == batches_.end() || found->second == kNone) {
      outside_ += kernels;
      return;
    }
    const Phase phase = phase_of(found->second);
    DevicePhase& to = phases_[phase];
    ++to.launches;
    to.graphs += is_graph ? 1 : 0;
    to.kernels += kernels;
    by_batch_[phase][found->second] += kernels;
  }

  void add_time(std::size_t slice) {
    const auto found = batches_.find(number(slice, correlation_));
    const std::int64_t took = trace_.slices.duration_ns[slice];
    if (found == batches_.end() || found->second == kNone || took == trace::kOpenDuration) return;
    const Phase phase = phase_of(found->second);
    KernelRow& row = rows_[{std::string(trace_.str(trace_.slices.name[slice])), phase}];
    ++row.count;
    row.ns += static_cast<double>(took);
    phases_[phase].kernel_ns += static_cast<double>(took);
    timed_[phase].insert(found->second);
    if (phase == Phase::kDecode) decoding_[found->second] += static_cast<double>(took);
    const auto split = splits_.find(number(slice, correlation_));
    if (split != splits_.end() && split->second != kNone)
      of_splits_[split->second].push_back(slice);
  }

  // The kernels of each split, told to its nodes. Splits of one definition with the same kernels
  // are aligned once.
  void place_kernels() {
    std::map<std::pair<std::uint32_t, std::vector<trace::StringId>>,
             std::optional<std::vector<std::size_t>>>
        known;
    for (auto& [index, slices] : of_splits_) {
      const Split& split = process_.splits[index];
      if (!split.definition || split.micro_batch == kNone) continue;
      const auto definition = process_.definitions.find(*split.definition);
      if (definition == process_.definitions.end()) continue;
      std::stable_sort(slices.begin(), slices.end(), [&](std::size_t a, std::size_t b) {
        const auto x = number(a, correlation_), y = number(b, correlation_);
        return x != y ? x < y : trace_.slices.start_ns[a] < trace_.slices.start_ns[b];
      });
      std::vector<trace::StringId> names;
      std::vector<std::string_view> texts;
      for (const std::size_t slice : slices) {
        names.push_back(trace_.slices.name[slice]);
        texts.push_back(trace_.str(names.back()));
      }
      const std::vector<Node>& nodes = definition->second.nodes;
      std::vector<std::uint32_t> computed;
      for (std::uint32_t i = 0; i < nodes.size(); ++i)
        if (!nodes[i].is_view && !nodes[i].op.empty()) computed.push_back(i);
      auto found = known.find({*split.definition, names});
      if (found == known.end())
        found =
            known
                .emplace(std::pair(*split.definition, names), align_kernels(nodes, computed, texts))
                .first;
      const Phase phase = phase_of(split.micro_batch);
      ++(found->second ? phases_[phase].placed : phases_[phase].unplaced);
      if (found->second) add_placed(nodes, computed, *found->second, slices, phase);
    }
  }

  void add_placed(const std::vector<Node>& nodes, const std::vector<std::uint32_t>& computed,
                  const std::vector<std::size_t>& first, const std::vector<std::size_t>& slices,
                  Phase phase) {
    for (std::size_t k = 0; k < slices.size();) {
      std::size_t last = k;  // kernels of one group: helpers, and what they help
      double ns = 0;
      for (; last < slices.size() && first[last] == first[k]; ++last)
        ns += static_cast<double>(trace_.slices.duration_ns[slices[last]]);
      const std::size_t end = last < slices.size() ? first[last] : computed.size();
      std::string op;
      double flops = 0, bytes = 0;
      for (std::size_t i = first[k]; i < std::max(end, first[k] + 1); ++i) {
        const Node& node = nodes[computed[i]];
        op += (op.empty() ? "" : "+") + node.op;
        flops += node.flops;
        bytes += node.bytes;
      }
      DeviceOperatorRow& row = operators_[{op, phase}];
      ++row.count;
      row.kernels += last - k;
      row.ns += ns;
      row.flops += flops;
      row.bytes += bytes;
      k = last;
    }
  }

  [[nodiscard]] Phase phase_of(std::size_t batch) const {
    return process_.micro_batches[batch].is_prefill ? Phase::kPrefill : Phase::kDecode;
  }

  const Process& process_;
  const trace::Trace& trace_;
  trace::StringId correlation_, kernels_;
  std::unordered_map<std::uint64_t, std::size_t> batches_, splits_;  // by correlation
  std::map<std::size_t, std::vector<std::size_t>> of_splits_;        // timed kernels, by split
  std::map<Phase, std::set<std::size_t>> timed_;
  std::map<std::size_t, double> decoding_;  // ns in kernels, by micro-batch
  std::map<std::pair<std::string, Phase>, DeviceOperatorRow> operators_;
  std::map<Phase, DevicePhase> phases_;
  std::map<Phase, std::map<std::size_t, std::uint64_t>> by_batch_;  // kernels
  std::map<std::pair<std::string, Phase>, KernelRow> rows_;
  std::uint64_t outside_{0};
};

}  // namespace

DeviceFigures device_figures(const Process& process, const trace::Trace& trace) {
  return DeviceReader(process, trace).read();
}

}  // namespace kansoku::infer
