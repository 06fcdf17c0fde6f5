// SPDX-License-Identifier: Apache-2.0
#include "diagnose/pipeline_for_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/rng.h"

namespace kansoku::diagnose {
namespace {

constexpr std::int64_t kNsPerUs = 1000;
constexpr int kLanesPerRank = 5;

struct Operation {
  std::string_view name;
  int data_rank{0}, stage{0}, tensor_rank{0}, step{0}, seq{0};
  std::int64_t start_ns{0}, duration_ns{0};
};

class Maker {
 public:
  explicit Maker(const PipelineJob& job) : job_(job) {}

  std::vector<Operation> run() {
    for (int step = 0; step < job_.step_count; ++step)
      add_step(step);
    return std::move(operations_);
  }

 private:
  std::int64_t compute_ns(std::int64_t base_us, const PipelinePlace& place) const {
    const double factor = job_.factor ? job_.factor(place) : 1;
    return std::llround(static_cast<double>(base_us * kNsPerUs) * factor);
  }

  void add(std::string_view name, const PipelinePlace& at, int seq, std::int64_t start_ns,
           std::int64_t duration_ns) {
    operations_.push_back({name, at.data_rank, at.stage, 0, at.step, seq, start_ns, duration_ns});
    if (!job_.has_second_tensor_rank) return;
    operations_.push_back(
        {name, at.data_rank, at.stage, 1, at.step, seq, start_ns, 10 * duration_ns});
  }

  /// All micro-batches through all stages, one way; `free_ns`: when each stage is free.
  void add_pass(int step, int data_rank, bool is_forward, std::vector<std::int64_t>& free_ns) {
    const int count = job_.stage_count;
    const std::int64_t transfer_ns = job_.transfer_us * kNsPerUs;
    std::vector<std::int64_t> done_ns(static_cast<std::size_t>(job_.micro_batch_count), 0);
    for (int i = 0; i < count; ++i) {
      const int stage = is_forward ? i : count - 1 - i;
      auto& free = free_ns[static_cast<std::size_t>(stage)];
      std::int64_t last_end_ns = 0;
      for (int m = 0; m < job_.micro_batch_count; ++m) {
        const PipelinePlace at{step, data_rank, stage, m};
        auto& done = done_ns[static_cast<std::size_t>(m)];
        std::int64_t start_ns = free;
        if (i > 0) {
          const std::int64_t meet_ns = std::max(done, m == 0 ? done : last_end_ns);
          PipelinePlace sender = at;
          sender.stage = is_forward ? stage - 1 : stage + 1;
          add(is_forward ? "forward-send" : "backward-send", sender, m, meet_ns, transfer_ns);
          add(is_forward ? "forward-recv" : "backward-recv", at, m, meet_ns, transfer_ns);
          start_ns = std::max(free, meet_ns + transfer_ns);
        }
        const std::int64_t ns = compute_ns(is_forward ? job_.forward_us : job_.backward_us, at);
        const bool is_missing = is_forward && job_.is_missing && job_.is_missing(at);
        if (!is_missing)
          add(is_forward ? "forward-compute" : "backward-compute", at, m, start_ns, ns);
        done = last_end_ns = free = start_ns + ns;
      }
    }
  }

  void add_step(int step) {
    std::vector<std::vector<std::int64_t>> free_ns(
        static_cast<std::size_t>(job_.data_rank_count),
        std::vector<std::int64_t>(static_cast<std::size_t>(job_.stage_count), step_begin_ns_));
    for (int rank = 0; rank < job_.data_rank_count; ++rank) {
      for (const bool is_forward : {true, false})
        add_pass(step, rank, is_forward, free_ns[static_cast<std::size_t>(rank)]);
    }
    std::int64_t end_ns = 0;
    for (int stage = 0; stage < job_.stage_count; ++stage) {
      std::int64_t meet_ns = 0;
      for (const auto& of_rank : free_ns)
        meet_ns = std::max(meet_ns, of_rank[static_cast<std::size_t>(stage)]);
      const std::int64_t scatter_ns = job_.scatter_us * kNsPerUs;
      const std::int64_t optimizer_ns = job_.optimizer_us * kNsPerUs;
      for (int rank = 0; rank < job_.data_rank_count; ++rank) {
        const PipelinePlace at{step, rank, stage, 0};
        add("grads-reduce-scatter", at, 0, meet_ns, scatter_ns);
        add("optimizer", at, 0, meet_ns + scatter_ns, optimizer_ns);
      }
      end_ns = std::max(end_ns, meet_ns + scatter_ns + optimizer_ns);
    }
    step_begin_ns_ = end_ns;
  }

  const PipelineJob& job_;
  std::int64_t step_begin_ns_{0};
  std::vector<Operation> operations_;
};

trace::TrackId track_of(trace::Trace& trace, const PipelineJob& job, const Operation& op) {
  const std::int32_t tid =
      kLanesPerRank * (op.data_rank * job.stage_count + op.stage) + 1'000'000 * op.tensor_rank;
  for (std::uint32_t i = 0; i < trace.tracks.size(); ++i) {
    if (trace.tracks[i].pid == op.data_rank + 1 && trace.tracks[i].tid == tid)
      return trace::TrackId{i};
  }
  trace::Track track;
  track.kind = trace::TrackKind::kThread;
  track.pid = op.data_rank + 1;
  track.tid = tid;
  track.name =
      trace.strings.intern(fmt::format("PP rank {}, TP rank {}", op.stage, op.tensor_rank));
  trace.tracks.push_back(track);
  return trace::TrackId{static_cast<std::uint32_t>(trace.tracks.size() - 1)};
}

void add_arg(trace::Trace& trace, std::string_view key, std::int64_t value) {
  trace::ArgValue arg;
  arg.key = trace.strings.intern(key);
  arg.i64 = value;
  trace.args.push_back(arg);
}

}  // namespace

trace::Trace make_pipeline_trace(const PipelineJob& job) {
  std::vector<Operation> operations = Maker(job).run();
  if (job.shuffle_seed != 0) {
    Rng rng(job.shuffle_seed);
    for (std::size_t i = operations.size(); i > 1; --i)
      std::swap(operations[i - 1], operations[rng.below(i)]);
  }
  trace::Trace trace;
  for (int rank = 0; rank < job.data_rank_count; ++rank) {
    trace::Process process;
    process.pid = rank + 1;
    process.name = trace.strings.intern(fmt::format("DP rank {}", rank));
    trace.processes.push_back(process);
  }
  for (const Operation& op : operations) {
    trace::SliceTable& slices = trace.slices;
    slices.start_ns.push_back(op.start_ns);
    slices.duration_ns.push_back(op.duration_ns);
    slices.track.push_back(track_of(trace, job, op));
    slices.name.push_back(trace.strings.intern(op.name));
    slices.category.push_back(trace::StringId{});
    slices.arg_begin.push_back(static_cast<std::uint32_t>(trace.args.size()));
    slices.arg_count.push_back(2);
    add_arg(trace, "step", op.step);
    add_arg(trace, "seq_id", op.seq);
    trace.end_ns = std::max(trace.end_ns, op.start_ns + op.duration_ns);
  }
  return trace;
}

double pipeline_step_s(const PipelineJob& job) {
  const std::int64_t through = job.micro_batch_count + job.stage_count - 1;
  const std::int64_t us = through * (job.forward_us + job.backward_us) +
                          2 * (through - 1) * job.transfer_us + job.scatter_us + job.optimizer_us;
  return static_cast<double>(us) * 1e-6;
}

}  // namespace kansoku::diagnose
