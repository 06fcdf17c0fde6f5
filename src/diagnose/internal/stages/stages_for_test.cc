// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/stages/stages_for_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/rng.h"

namespace kansoku::diagnose {
namespace {

constexpr std::int64_t kBeginNs = 1'000'000'000, kSampleNs = 10'000'000, kCallNs = 20'000;

struct TestFrame {
  std::string_view function, file;
};
constexpr TestFrame kTrain{"train", "/app/train.py"};
constexpr TestFrame kModule{"Module._call_impl", "/usr/lib/python3/torch/nn/modules/module.py"};
constexpr TestFrame kSlow{"slow_hook", "/app/train.py"};
constexpr TestFrame kHead{"Head.forward", "/app/train.py"}, kLogits{"logits_of", "/app/train.py"};
constexpr TestFrame kEngine{"_engine_run_backward", "/usr/lib/python3/torch/autograd/graph.py"};
constexpr TestFrame kAdam{"AdamW.step", "/usr/lib/python3/torch/optim/adamw.py"};
constexpr TestFrame kWait{"_wait", "/usr/lib/python3/torch/distributed/distributed_c10d.py"};

class StagesSimulator {
 public:
  explicit StagesSimulator(const StagesJob& job)
      : job_(job), now_ns_(job.stages * job.pipelines, kBeginNs), lost_(job.lost_receives) {
    trace_.begin_ns = kBeginNs;
    for (std::size_t r = 0; r < now_ns_.size(); ++r)
      add_rank(r);
  }

  trace::Trace run() {
    for (step_ = 0; step_ < job_.step_count; ++step_)
      for (std::size_t p = 0; p < job_.pipelines; ++p)
        run_step(p);
    trace_.end_ns = *std::max_element(now_ns_.begin(), now_ns_.end());
    return std::move(trace_);
  }

 private:
  void add_rank(std::size_t r) {
    const auto pid = static_cast<std::int32_t>(1000 + r);
    trace::Process process;
    process.pid = pid;
    process.job = trace_.strings.intern("127.0.0.1:29500");
    process.role = trace_.strings.intern("rank");
    process.rank = process.local_rank = static_cast<std::int32_t>(r);
    process.world_size = static_cast<std::int32_t>(now_ns_.size());
    trace_.processes.push_back(process);
    trace::Track track;
    track.kind = trace::TrackKind::kThread;
    track.pid = track.tid = pid;
    trace_.tracks.push_back(track);
  }

  void run_step(std::size_t p) {
    std::map<std::pair<std::size_t, std::size_t>, std::int64_t> forward, backward;
    const auto rank = [&](std::size_t stage) { return p * job_.stages + stage; };
    for (std::size_t stage = 0; stage < job_.stages; ++stage) {
      for (std::size_t m = 0; m < job_.micro_batches; ++m) {
        if (stage > 0) receive(p, stage, stage - 1, forward[{stage - 1, m}]);
        work(rank(stage), work_ms(stage, job_.forward_ms), {kTrain, kModule});
        if (rank(stage) == job_.slow_rank)
          work(rank(stage), job_.slow_ms, {kTrain, kModule, kSlow});
        else if (job_.is_everywhere)
          work(rank(stage), 0.4 * job_.slow_ms, {kTrain, kModule, kSlow});
        if (stage + 1 == job_.stages)
          work(rank(stage), job_.head_ms, {kTrain, kModule, kHead, kLogits});
        if (stage + 1 < job_.stages) forward[{stage, m}] = send(p, stage, stage + 1);
      }
    }
    for (std::size_t stage = job_.stages; stage-- > 0;) {
      for (std::size_t m = 0; m < job_.micro_batches; ++m) {
        if (stage + 1 < job_.stages) receive(p, stage, stage + 1, backward[{stage + 1, m}]);
        const std::int64_t begin_ns = now_ns_[rank(stage)];
        work(rank(stage), work_ms(stage, job_.backward_ms), {kTrain, kEngine});
        add_slice(rank(stage), "backward", "torch::autograd::Engine::execute", begin_ns,
                  now_ns_[rank(stage)] - begin_ns);
        if (stage > 0) backward[{stage, m}] = send(p, stage, stage - 1);
      }
    }
    for (std::size_t stage = 0; stage < job_.stages; ++stage) {
      const std::int64_t begin_ns = now_ns_[rank(stage)];
      work(rank(stage), job_.optimizer_ms, {kTrain, kAdam});
      if (rank(stage) != 1 || step_ >= job_.lost_ends)
        add_slice(rank(stage), "step", "Optimizer.step#AdamW.step", begin_ns,
                  now_ns_[rank(stage)] - begin_ns);
    }
  }

  double work_ms(std::size_t stage, double ms) const { return stage == 2 ? job_.uneven * ms : ms; }

  void work(std::size_t r, double ms, std::initializer_list<TestFrame> frames) {
    const double jitter = 0.98 + 0.04 * rng_.uniform();
    spend(r, static_cast<std::int64_t>(ms * jitter * 1e6), frames, trace::SampleState::kRunning);
  }

  void spend(std::size_t r, std::int64_t ns, std::initializer_list<TestFrame> frames,
             trace::SampleState state) {
    const std::int64_t begin_ns = now_ns_[r];
    now_ns_[r] += ns;
    for (std::int64_t at = (begin_ns / kSampleNs + 1) * kSampleNs; at < now_ns_[r]; at += kSampleNs)
      add_sample(r, at, frames, state);
  }

  void add_sample(std::size_t r, std::int64_t time_ns, std::initializer_list<TestFrame> frames,
                  trace::SampleState state) {
    trace_.samples.time_ns.push_back(time_ns);
    trace_.samples.pid.push_back(static_cast<std::int32_t>(1000 + r));
    trace_.samples.tid.push_back(static_cast<std::int32_t>(1000 + r));
    trace_.samples.stack.push_back(stack_of(frames));
    trace_.samples.state.push_back(state);
    trace_.samples.holds_gil.push_back(0);
    trace_.samples.is_native.push_back(0);
  }

  trace::StackId stack_of(std::initializer_list<TestFrame> frames) {
    std::string text;
    for (const TestFrame& frame : frames)
      text += fmt::format("{};", frame.function);
    const auto [known, is_new] = stacks_.try_emplace(text);
    if (!is_new) return known->second;
    if (trace_.stacks.begin.empty()) trace_.stacks.begin = {0, 0};  // stack 0 is empty
    for (const TestFrame& frame : frames) {
      trace_.stacks.frames.push_back({static_cast<std::uint32_t>(trace_.frames.size())});
      trace_.frames.push_back(
          {trace_.strings.intern(frame.function), trace_.strings.intern(frame.file), 10});
    }
    trace_.stacks.begin.push_back(static_cast<std::uint32_t>(trace_.stacks.frames.size()));
    known->second = {static_cast<std::uint32_t>(trace_.stacks.size() - 1)};
    return known->second;
  }

  [[nodiscard]] bool is_lost(std::size_t r) const { return r == 1 && step_ < job_.lost_steps; }

  std::int64_t send(std::size_t p, std::size_t stage, std::size_t to) {
    const std::size_t r = p * job_.stages + stage;
    const std::int64_t begin_ns = now_ns_[r];
    ++work_;
    if (!is_lost(r))
      add_message(r, "c10d::ProcessGroupGloo::send", begin_ns, kCallNs, p, stage, to, work_);
    now_ns_[r] += kCallNs;
    return begin_ns + kCallNs / 2;
  }

  void receive(std::size_t p, std::size_t stage, std::size_t from, std::int64_t there_ns) {
    const std::size_t r = p * job_.stages + stage;
    const std::int64_t posted_ns = now_ns_[r];
    now_ns_[r] += kCallNs;
    const std::int64_t wait_ns = now_ns_[r];
    spend(r, std::max(there_ns - wait_ns, kCallNs), {kTrain, kWait}, trace::SampleState::kSleeping);
    ++work_;
    if (is_lost(r)) return;
    if (r == 1 && lost_ > 0) {
      --lost_;
      return;
    }
    add_message(r, "c10d::ProcessGroupGloo::recv", posted_ns, kCallNs, p, stage, from, work_);
    add_slice(r, "message", "c10d::ProcessGroupGloo::RecvWork::wait", wait_ns,
              now_ns_[r] - wait_ns);
    add_number("work", work_);
  }

  void add_message(std::size_t r, std::string_view name, std::int64_t begin_ns, std::int64_t ns,
                   std::size_t p, std::size_t seat, std::size_t peer, std::uint64_t work) {
    add_slice(r, "message", name, begin_ns, ns);
    add_number("work", work);
    add_number("group_rank", seat);
    add_number("group_size", job_.has_names ? job_.stages : 0);
    add_number("peer", peer);
    add_number("bytes", 1024);
    trace::ArgValue group;
    group.kind = trace::ArgValue::Kind::kString;
    group.key = trace_.strings.intern("group_name");
    group.text = trace_.strings.intern(fmt::format("pipeline {}", p));
    trace_.args.push_back(group);
    ++trace_.slices.arg_count.back();
  }

  void add_slice(std::size_t r, std::string_view category, std::string_view name,
                 std::int64_t begin_ns, std::int64_t ns) {
    auto& table = trace_.slices;
    table.start_ns.push_back(begin_ns);
    table.duration_ns.push_back(ns);
    table.track.push_back({static_cast<std::uint32_t>(r)});
    table.name.push_back(trace_.strings.intern(name));
    table.category.push_back(trace_.strings.intern(category));
    table.arg_begin.push_back(static_cast<std::uint32_t>(trace_.args.size()));
    table.arg_count.push_back(0);
  }

  // Argument of the newest slice.
  void add_number(std::string_view key, std::uint64_t number) {
    trace::ArgValue value;
    value.kind = trace::ArgValue::Kind::kUint;
    value.key = trace_.strings.intern(key);
    value.u64 = number;
    trace_.args.push_back(value);
    ++trace_.slices.arg_count.back();
  }

  const StagesJob& job_;
  trace::Trace trace_;
  Rng rng_{5, 7};
  std::vector<std::int64_t> now_ns_;
  std::uint64_t work_{0};
  int step_{0};
  std::map<std::string, trace::StackId> stacks_;
  std::size_t lost_;
};

}  // namespace

trace::Trace make_stages_trace(const StagesJob& job) {
  return StagesSimulator(job).run();
}

}  // namespace kansoku::diagnose
