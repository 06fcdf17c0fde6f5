// SPDX-License-Identifier: Apache-2.0
#include "diagnose/synthetic_for_test.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "common/rng.h"
#include "diagnose/internal/steps/phases.h"
#include "trace/scheduler_for_test.h"

namespace kansoku::diagnose {
namespace {

using trace::StackId;
using trace::Trace;

constexpr std::int64_t kStartNs = 1'000'000'000'000;
constexpr std::int64_t kIssueNs = 20'000;
constexpr std::int64_t kHangNs = 5'000'000'000;
constexpr std::uint64_t kFirstSeq = 1000;

std::int64_t ns(double ms) {
  return static_cast<std::int64_t>(std::llround(ms * 1e6));
}

struct FrameText {
  const char* function;
  const char* file;
  std::uint32_t line;
};

enum class Act : std::uint8_t {
  kInput,
  kForward,
  kSlowForward,
  kBackward,
  kSlowBackward,
  kOptimizer,
  kSlowOptimizer,
  kOther,
  kCheckpoint,
  kSlowInput,
  kWorkerWait,
  kStuck,
  kWorkerIdle,
  kWorkerBusy,
  kLockWait,
  kHog,
};

constexpr std::size_t kLockWaitIndex = static_cast<std::size_t>(Act::kLockWait);
constexpr std::int32_t kHelperTid = 77;
constexpr std::int32_t kBesideTid = 7;
constexpr const char* kLoader = "/usr/lib/python3/dist-packages/torch/utils/data/dataloader.py";
constexpr const char* kUser = "/app/train.py";

std::vector<FrameText> tail_of(Act act) {
  const FrameText next{"_BaseDataLoaderIter.__next__", kLoader, 630};
  const FrameText fetch{"_MapDatasetFetcher.fetch",
                        "/usr/lib/python3/dist-packages/torch/utils/data/_utils/fetch.py", 51};
  const FrameText ddp{"DistributedDataParallel.forward",
                      "/usr/lib/python3/dist-packages/torch/nn/parallel/distributed.py", 9};
  const FrameText net{"ToyNet.forward", kUser, 40};
  const FrameText engine{"_engine_run_backward",
                         "/usr/lib/python3/dist-packages/torch/autograd/graph.py", 825};
  const FrameText adamw{"AdamW.step", "/usr/lib/python3/dist-packages/torch/optim/adamw.py", 220};
  switch (act) {
    case Act::kInput:
      return {next, fetch, {"ToyDataset.__getitem__", kUser, 20}};
    case Act::kSlowInput:
      return {next, fetch, {"SlowDataset.__getitem__", kUser, 27}};
    case Act::kWorkerWait:
      return {next,
              {"_MultiProcessingDataLoaderIter._next_data", kLoader, 1327},
              {"_MultiProcessingDataLoaderIter._try_get_data", kLoader, 1133},
              {"Queue.get", "/lib/python3.11/multiprocessing/queues.py", 113}};
    case Act::kForward:
      return {ddp,
              net,
              {"Linear.forward", "/usr/lib/python3/dist-packages/torch/nn/modules/linear.py", 117}};
    case Act::kSlowForward:
      return {ddp, net, {"slow_block", kUser, 33}};
    case Act::kBackward:
      return {{"Tensor.backward", "/usr/lib/python3/dist-packages/torch/_tensor.py", 522}, engine};
    case Act::kSlowBackward:
      return {{"Tensor.backward", "/usr/lib/python3/dist-packages/torch/_tensor.py", 522},
              engine,
              {"slow_hook", kUser, 36}};
    case Act::kOptimizer:
      return {adamw,
              {"_single_tensor_adamw", "/usr/lib/python3/dist-packages/torch/optim/adamw.py", 360}};
    case Act::kSlowOptimizer:
      return {adamw, {"slow_update", kUser, 38}};
    case Act::kOther:
      return {{"log_metrics", kUser, 70}};
    case Act::kCheckpoint:
      return {{"save_checkpoint", kUser, 75},
              {"save", "/usr/lib/python3/dist-packages/torch/serialization.py", 600}};
    case Act::kStuck:
      return {{"wait_for_lock", kUser, 90}};
    case Act::kLockWait:
      return {{"publish_metrics", kUser, 80}};
    case Act::kHog:
      return {{"parse_metrics", kUser, 95}};
    case Act::kWorkerIdle:
      return {
          {"_worker_loop", "/usr/lib/python3/dist-packages/torch/utils/data/_utils/worker.py", 250},
          {"Queue.get", "/lib/python3.11/multiprocessing/queues.py", 113}};
    case Act::kWorkerBusy:
      return {
          {"_worker_loop", "/usr/lib/python3/dist-packages/torch/utils/data/_utils/worker.py", 308},
          fetch,
          {"SlowDataset.__getitem__", kUser, 27}};
  }
  return {};
}

// A stretch of one thread's life, for the sampler.
struct Segment {
  std::int64_t begin_ns;
  std::int64_t end_ns;
  Act act;
  trace::SampleState state;
};

struct Arg {
  const char* key;
  std::uint64_t value;
};

struct RankState {
  std::int32_t pid{0};
  std::int32_t tid{0};  // of the thread that trains
  std::int64_t input_end_ns{0};
  trace::TrackId main{};
  std::array<trace::TrackId, 2> gloo{};
  std::int64_t now_ns{kStartNs};
  std::vector<Segment> segments;
  std::vector<Segment> worker_segments;
  bool is_stuck{false};
  double data_factor{1};
};

class Simulator {
 public:
  explicit Simulator(const SyntheticJob& job) : job_(job), rng_(job.seed, 7) {
    for (int r = 0; r < job.rank_count; ++r)
      add_rank(r);
  }

  Trace run() {
    for (int s = 0; s < job_.step_count && !is_hung_; ++s)
      step(s);
    std::int64_t end_ns = 0;
    for (const RankState& rank : ranks_)
      end_ns = std::max(end_ns, rank.now_ns);
    if (is_hung_) end_ns += kHangNs;
    for (RankState& rank : ranks_)
      close_rank(rank, end_ns);
    if (job_.has_samples) {
      for (RankState& rank : ranks_) {
        sample(rank.pid, rank.tid, rank.segments);
        add_waits(rank);
        for (std::int32_t pid = rank.pid + 500; pid < rank.pid + 500 + job_.worker_count; ++pid)
          sample(pid, pid, rank.worker_segments);
      }
    }
    add_noise(end_ns);
    trace_.begin_ns = kStartNs;
    trace_.end_ns = end_ns;
    return std::move(trace_);
  }

 private:
  std::int32_t number_of(std::size_t r) const {
    return job_.rank_numbers.empty() ? static_cast<std::int32_t>(r) : job_.rank_numbers[r];
  }

  trace::TrackId add_track(std::int32_t pid, std::int32_t tid) {
    trace::Track track;
    track.kind = trace::TrackKind::kThread;
    track.pid = pid;
    track.tid = tid;
    trace_.tracks.push_back(track);
    return {static_cast<std::uint32_t>(trace_.tracks.size() - 1)};
  }

  void add_process(std::int32_t pid, std::int32_t parent_pid, std::size_t r, const char* role) {
    trace::Process process;
    process.pid = pid;
    process.parent_pid = parent_pid;
    process.job = trace_.strings.intern("127.0.0.1:29500");
    process.role = trace_.strings.intern(role);
    process.rank = process.local_rank = number_of(r);
    process.world_size = job_.rank_count;
    trace_.processes.push_back(process);
  }

  void add_rank(int r) {
    RankState rank;
    rank.pid = 1000 + 1000 * r;
    rank.tid = job_.trains_beside ? rank.pid + kBesideTid : rank.pid;
    rank.main = add_track(rank.pid, rank.tid);
    if (job_.trains_beside) add_track(rank.pid, rank.pid);
    add_track(rank.pid, rank.pid + kHelperTid);
    rank.gloo = {add_track(rank.pid, rank.pid + 1), add_track(rank.pid, rank.pid + 2)};
    add_process(rank.pid, 900, static_cast<std::size_t>(r), "rank");
    for (int worker = 0; has_workers() && worker < job_.worker_count; ++worker)
      add_process(rank.pid + 500 + worker, rank.pid, static_cast<std::size_t>(r), "worker");
    ranks_.push_back(rank);
  }

  bool has_workers() const {
    return std::any_of(job_.faults.begin(), job_.faults.end(),
                       [](const Fault& f) { return f.kind == Fault::Kind::kWorkerSleep; });
  }

  double cost_ms(std::size_t r, Fault::Kind kind, int step) const {
    double sum = 0;
    for (const Fault& fault : job_.faults) {
      const bool is_hit = fault.kind == kind && (fault.rank < 0 || fault.rank == number_of(r));
      if (is_hit && step >= fault.from && step % fault.every == fault.every - 1)
        sum += fault.cost_ms;
    }
    return sum;
  }

  void add_slice(trace::TrackId track, const char* category, std::string_view name,
                 std::int64_t begin_ns, std::int64_t duration_ns,
                 std::initializer_list<Arg> args = {}) {
    auto& table = trace_.slices;
    table.start_ns.push_back(begin_ns);
    table.duration_ns.push_back(duration_ns);
    table.track.push_back(track);
    table.name.push_back(trace_.strings.intern(name));
    table.category.push_back(trace_.strings.intern(category));
    table.arg_begin.push_back(static_cast<std::uint32_t>(trace_.args.size()));
    for (const Arg& arg : args) {
      if (!job_.has_seq && std::string_view(arg.key) == "seq") continue;
      trace::ArgValue value;
      value.kind = trace::ArgValue::Kind::kUint;
      value.key = trace_.strings.intern(arg.key);
      value.u64 = arg.value;
      trace_.args.push_back(value);
    }
    table.arg_count.push_back(
        static_cast<std::uint32_t>(trace_.args.size() - table.arg_begin.back()));
  }

  void add_switch(std::int64_t time_ns, std::int32_t prev, std::uint32_t state, std::int32_t next) {
    if (!job_.has_sched) return;
    trace::add_for_test(trace_, {time_ns, prev, state, next});
  }

  void add_wake(std::int64_t time_ns, std::int32_t tid, std::int32_t waker_tid = 0) {
    if (!job_.has_sched) return;
    trace_.wakes.time_ns.push_back(time_ns);
    trace_.wakes.tid.push_back(tid);
    trace_.wakes.waker_tid.push_back(waker_tid);
  }

  double drawn(double jitter) { return 1 + jitter * (2 * rng_.uniform() - 1); }
  double jittered(double ms) { return ms * drawn(job_.jitter); }

  std::int64_t queue_ns() {
    if (job_.queue_mean_ms <= 0) return 0;
    return ns(-job_.queue_mean_ms * std::log(1 - rng_.uniform()));
  }

  void advance(RankState& rank, std::int64_t duration_ns, Act act, trace::SampleState state) {
    if (duration_ns <= 0) return;
    rank.segments.push_back({rank.now_ns, rank.now_ns + duration_ns, act, state});
    rank.now_ns += duration_ns;
  }

  // The processor is taken away for a while.
  void queue(RankState& rank, std::int64_t delay_ns, Act act) {
    if (delay_ns <= 0) return;
    add_switch(rank.now_ns, rank.tid, 0, 0);
    advance(rank, delay_ns, act, trace::SampleState::kRunning);
    add_switch(rank.now_ns, 0, 0, rank.tid);
  }

  void compute(RankState& rank, double ms, Act act) {
    if (ms <= 0) return;
    if (act == Act::kForward || act == Act::kBackward) ms *= rank.data_factor;
    if (act == Act::kOptimizer && job_.optimizer_jitter > 0) ms *= drawn(job_.optimizer_jitter);
    const std::int64_t whole = ns(jittered(ms));
    advance(rank, whole / 2, act, trace::SampleState::kRunning);
    queue(rank, queue_ns(), act);
    advance(rank, whole - whole / 2, act, trace::SampleState::kRunning);
  }

  void block_until(RankState& rank, std::int64_t until_ns, Act act) {
    if (until_ns <= rank.now_ns) return;
    add_switch(rank.now_ns, rank.tid, 1, 0);
    advance(rank, until_ns - rank.now_ns, act, trace::SampleState::kSleeping);
    add_wake(rank.now_ns, rank.tid);
    advance(rank, queue_ns(), act, trace::SampleState::kRunning);
    add_switch(rank.now_ns, 0, 0, rank.tid);
  }

  void input(std::size_t r, int s) {
    RankState& rank = ranks_[r];
    const std::int64_t begin_ns = rank.now_ns;
    if (job_.data_jitter > 0) rank.data_factor = drawn(job_.data_jitter);
    if (static_cast<int>(r) == job_.idle_rank) rank.data_factor = 0.05;
    compute(rank, job_.input_ms, Act::kInput);
    if (const double ms = cost_ms(r, Fault::Kind::kInputSleep, s); ms > 0)
      block_until(rank, rank.now_ns + ns(ms), Act::kSlowInput);
    if (has_workers()) {
      const double ms = cost_ms(r, Fault::Kind::kWorkerSleep, s);
      const std::int64_t busy_from_ns =
          rank.worker_segments.empty() ? begin_ns : rank.worker_segments.back().end_ns;
      block_until(rank, rank.now_ns + ns(ms), Act::kWorkerWait);
      const std::int64_t busy_ns = ms > 0 ? rank.now_ns - busy_from_ns : ns(8);
      rank.worker_segments.push_back(
          {rank.now_ns - busy_ns, rank.now_ns, Act::kWorkerBusy, trace::SampleState::kSleeping});
    }
    slice_to_now(r, "step", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
                 begin_ns);
    rank.input_end_ns = rank.now_ns;
  }

  void slice_to_now(std::size_t r, const char* category, const char* name, std::int64_t begin_ns) {
    if (!job_.has_step_slices && std::string_view(category) == "step") return;
    add_slice(ranks_[r].main, category, name, begin_ns, ranks_[r].now_ns - begin_ns);
  }

  void forward(std::size_t r, int s) {
    RankState& rank = ranks_[r];
    add_slice(rank.main, "backward", "c10d::Reducer::prepare_for_forward", rank.now_ns, 5'000);
    compute(rank, job_.forward_ms, Act::kForward);
    if (const double ms = cost_ms(r, Fault::Kind::kForwardBusy, s); ms > 0)
      compute(rank, ms, Act::kSlowForward);
    queue(rank, ns(cost_ms(r, Fault::Kind::kQueueing, s)), Act::kForward);
    if (job_.has_closure && job_.closure_zero_ms > 0) {
      const std::int64_t zero_ns = rank.now_ns;
      compute(rank, job_.closure_zero_ms, Act::kOptimizer);
      slice_to_now(r, "step", "Optimizer.zero_grad#AdamW.zero_grad", zero_ns);
    }
    if (is_hang(r, s)) rank.is_stuck = is_hung_ = true;
  }

  bool is_hang(std::size_t r, int s) const {
    return std::any_of(job_.faults.begin(), job_.faults.end(), [&](const Fault& fault) {
      return fault.kind == Fault::Kind::kHang && fault.rank == number_of(r) && s >= fault.every;
    });
  }

  void local_backward(std::size_t r) {
    const std::int64_t begin_ns = ranks_[r].now_ns;
    compute(ranks_[r], job_.backward_ms, Act::kBackward);
    slice_to_now(r, "backward", "torch::autograd::Engine::execute", begin_ns);
  }

  // Computes and issues the buckets; returns when each was issued.
  std::vector<std::int64_t> issue_buckets(std::size_t r, int s) {
    RankState& rank = ranks_[r];
    std::vector<std::int64_t> issued;
    for (int k = 0; k < job_.bucket_count; ++k) {
      compute(rank, job_.backward_ms / job_.bucket_count, Act::kBackward);
      if (k == 0) compute(rank, cost_ms(r, Fault::Kind::kBackwardBusy, s), Act::kSlowBackward);
      issued.push_back(rank.now_ns);
      if (!is_hidden(r)) {
        add_slice(rank.main, "collective", "c10d::ProcessGroupGloo::allreduce", rank.now_ns,
                  kIssueNs, {{"pg", 0x7f00 + r}, {"seq", seq_ + static_cast<std::uint64_t>(k)}});
      }
      advance(rank, kIssueNs, Act::kBackward, trace::SampleState::kRunning);
    }
    return issued;
  }

  bool is_hidden(std::size_t r) const {
    return r == 1 && seq_ < kFirstSeq + static_cast<std::uint64_t>(job_.cut_first_collectives);
  }

  void reduce(const std::vector<std::vector<std::int64_t>>& issued,
              const std::vector<std::int64_t>& begin_ns) {
    std::int64_t done_ns = 0;
    for (int k = 0; k < job_.bucket_count; ++k) {
      const auto bucket = static_cast<std::size_t>(k);
      std::int64_t last_ns = 0;
      for (const auto& rank : issued)
        last_ns = rank.empty() ? last_ns : std::max(last_ns, rank[bucket]);
      done_ns = std::max(done_ns, last_ns) + ns(jittered(job_.transfer_ms));
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        if (issued[r].empty() || is_hidden(r)) continue;
        const std::int64_t from_ns = issued[r][bucket] + 15'000;
        add_slice(ranks_[r].gloo[bucket % 2], "collective", "gloo::allreduce", from_ns,
                  is_hung_ ? trace::kOpenDuration : done_ns - from_ns,
                  {{"seq", seq_ + bucket}, {"bytes", 1'000'000 * (bucket + 1)}});
      }
    }
    seq_ += static_cast<std::uint64_t>(job_.bucket_count);
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      finalize(r, begin_ns[r], done_ns);
  }

  void finalize(std::size_t r, std::int64_t begin_ns, std::int64_t done_ns) {
    RankState& rank = ranks_[r];
    if (rank.is_stuck) return;
    const std::int64_t wait_ns = rank.now_ns;
    if (is_hung_) {
      add_slice(rank.main, "backward", "torch::autograd::Engine::execute", begin_ns,
                trace::kOpenDuration);
      add_slice(rank.main, "backward", "c10d::Reducer::finalize_backward", wait_ns,
                trace::kOpenDuration);
      return;
    }
    block_until(rank, done_ns, Act::kBackward);
    advance(rank, 50'000, Act::kBackward, trace::SampleState::kRunning);
    if (job_.has_finalize) {
      add_slice(rank.main, "backward", "c10d::Reducer::finalize_backward", wait_ns,
                rank.now_ns - wait_ns);
    }
    slice_to_now(r, "backward", "torch::autograd::Engine::execute", begin_ns);
  }

  void after_backward(std::size_t r, int s) {
    RankState& rank = ranks_[r];
    const std::int64_t begin_ns = job_.has_closure ? rank.input_end_ns : rank.now_ns;
    compute(rank, job_.optimizer_ms, Act::kOptimizer);
    compute(rank, cost_ms(r, Fault::Kind::kOptimizerBusy, s), Act::kSlowOptimizer);
    slice_to_now(r, "step",
                 job_.has_own_optimizer && r == 0 ? "Optimizer.step#SlowAdamW.step"
                                                  : "Optimizer.step#AdamW.step",
                 begin_ns);
    const std::int64_t zero_ns = rank.now_ns;
    advance(rank, 100'000, Act::kOptimizer, trace::SampleState::kRunning);
    slice_to_now(r, "step", "Optimizer.zero_grad#AdamW.zero_grad", zero_ns);
    compute(rank, job_.other_ms, Act::kOther);
    compute(rank, cost_ms(r, Fault::Kind::kCheckpoint, s), Act::kCheckpoint);
    if (const double ms = cost_ms(r, Fault::Kind::kLockWait, s); ms > 0) {
      add_switch(rank.now_ns, rank.tid, job_.wait_state, 0);
      advance(rank, ns(ms), Act::kLockWait, trace::SampleState::kSleeping);
      add_wake(rank.now_ns, rank.tid, rank.pid + kHelperTid);
      add_switch(rank.now_ns, 0, 0, rank.tid);
    }
    if (job_.evaluate_every > 0 && s % job_.evaluate_every == job_.evaluate_every - 1) {
      for (int i = 0; i < 5; ++i) {
        input(r, -1);
        compute(rank, job_.forward_ms, Act::kForward);
      }
    }
  }

  void step(int s) {
    std::vector<std::vector<std::int64_t>> issued(ranks_.size());
    std::vector<std::int64_t> begin_ns(ranks_.size());
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (int a = 0; a + 1 < job_.accumulation; ++a) {
        input(r, s);
        forward(r, s);
        local_backward(r);
      }
      input(r, s);
      forward(r, s);
    }
    if (job_.collective_steps >= 0 && s >= job_.collective_steps) {
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        local_backward(r);
        after_backward(r, s);
      }
      return;
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      begin_ns[r] = ranks_[r].now_ns;
      if (!ranks_[r].is_stuck) issued[r] = issue_buckets(r, s);
    }
    reduce(issued, begin_ns);
    for (std::size_t r = 0; r < ranks_.size() && !is_hung_; ++r)
      after_backward(r, s);
  }

  void close_rank(RankState& rank, std::int64_t end_ns) {
    if (!is_hung_) return;
    add_switch(rank.now_ns, rank.tid, 1, 0);
    advance(rank, end_ns - rank.now_ns, rank.is_stuck ? Act::kStuck : Act::kBackward,
            trace::SampleState::kSleeping);
  }

  StackId stack_of(Act act) {
    auto& known = stacks_[static_cast<std::size_t>(act)];
    if (known.raw != 0) return known;
    if (trace_.stacks.begin.empty()) trace_.stacks.begin = {0, 0};  // stack 0 is empty
    std::vector<FrameText> frames{{"<module>", kUser, 120}};
    if (act != Act::kWorkerIdle && act != Act::kWorkerBusy) frames.push_back({"train", kUser, 100});
    for (const FrameText& frame : tail_of(act))
      frames.push_back(frame);
    for (const FrameText& frame : frames) {
      trace_.stacks.frames.push_back({static_cast<std::uint32_t>(trace_.frames.size())});
      trace_.frames.push_back(
          {trace_.strings.intern(frame.function), trace_.strings.intern(frame.file), frame.line});
    }
    trace_.stacks.begin.push_back(static_cast<std::uint32_t>(trace_.stacks.frames.size()));
    known = {static_cast<std::uint32_t>(trace_.stacks.size() - 1)};
    return known;
  }

  void sample(std::int32_t pid, std::int32_t tid, const std::vector<Segment>& segments) {
    if (segments.empty()) return;
    const double period_ms = 1000 / job_.sample_hz;
    std::size_t at = 0;
    std::int64_t time_ns = segments.front().begin_ns;
    for (;;) {
      time_ns += ns(period_ms * (0.8 + 0.4 * rng_.uniform()));
      while (at < segments.size() && segments[at].end_ns <= time_ns)
        ++at;
      if (at == segments.size()) return;
      const bool is_inside = segments[at].begin_ns <= time_ns;
      auto& table = trace_.samples;
      table.time_ns.push_back(time_ns);
      table.pid.push_back(pid);
      table.tid.push_back(tid);
      table.stack.push_back(stack_of(is_inside ? segments[at].act : Act::kWorkerIdle));
      table.state.push_back(is_inside ? segments[at].state : trace::SampleState::kSleeping);
      table.holds_gil.push_back(0);
      table.is_native.push_back(0);
    }
  }

  // Adds the samples of waits: the call, and the helper thread with the interpreter lock.
  void add_waits(const RankState& rank) {
    auto& samples = trace_.samples;
    const std::size_t count = samples.size();
    for (std::size_t i = 0; i < count; ++i) {
      if (samples.pid[i] != rank.pid || samples.stack[i] != stacks_[kLockWaitIndex]) continue;
      auto& instants = trace_.instants;
      instants.time_ns.push_back(samples.time_ns[i]);
      instants.track.push_back(rank.main);
      instants.name.push_back(trace_.strings.intern("wait"));
      instants.category.push_back(trace_.strings.intern("host"));
      instants.arg_begin.push_back(static_cast<std::uint32_t>(trace_.args.size()));
      instants.arg_count.push_back(2);
      for (const auto& [key, text] : {std::pair("call", job_.wait_call), {"on", job_.wait_on}}) {
        trace::ArgValue arg;
        arg.kind = trace::ArgValue::Kind::kString;
        arg.key = trace_.strings.intern(key);
        arg.text = trace_.strings.intern(text);
        trace_.args.push_back(arg);
      }
      samples.time_ns.push_back(samples.time_ns[i]);
      samples.pid.push_back(rank.pid);
      samples.tid.push_back(rank.pid + kHelperTid);
      samples.stack.push_back(stack_of(Act::kHog));
      samples.state.push_back(trace::SampleState::kRunning);
      samples.holds_gil.push_back(1);
      samples.is_native.push_back(0);
    }
  }

  void add_noise(std::int64_t end_ns) {
    const auto length = static_cast<std::uint64_t>(std::max<std::int64_t>(1, end_ns - kStartNs));
    for (int i = 0; i < job_.noise_slices; ++i) {
      const RankState& rank = ranks_[static_cast<std::size_t>(i) % ranks_.size()];
      add_slice(rank.main, "torch-ops",
                i % 2 == 0 ? "at::_ops::addmm::call" : "at::_ops::relu::call",
                kStartNs + static_cast<std::int64_t>(rng_.below(length)), 10'000);
    }
  }

  const SyntheticJob& job_;
  Rng rng_;
  Trace trace_;
  std::vector<RankState> ranks_;
  std::array<StackId, static_cast<std::size_t>(Act::kHog) + 1> stacks_{};
  std::uint64_t seq_{kFirstSeq};
  bool is_hung_{false};
};

}  // namespace

trace::Trace make_trace(const SyntheticJob& job) {
  trace::Trace trace = Simulator(job).run();
  if (job.tells_ranks) return trace;
  for (trace::Process& process : trace.processes) {
    process.rank = process.local_rank = process.world_size = trace::kNoRank;
    process.job = {};
    process.name = trace.strings.intern("python3");
    if (trace.str(process.role) == "rank") process.role = {};
  }
  return trace;
}

void split_samples(trace::Trace& trace, std::string_view function,
                   std::initializer_list<std::string_view> calls, std::string_view file) {
  const std::size_t stack_count = trace.stacks.size();
  for (std::size_t i = 0; i < stack_count; ++i) {
    const auto stack = trace.stacks.at(trace::StackId{static_cast<std::uint32_t>(i)});
    const std::vector<trace::FrameId> frames(stack.begin(), stack.end());
    if (frames.empty() || trace.str(trace.frames[frames.back().raw].function) != function) continue;
    const auto first = static_cast<std::uint32_t>(trace.stacks.size());
    for (const std::string_view call : calls) {
      trace.stacks.frames.insert(trace.stacks.frames.end(), frames.begin(), frames.end());
      trace.stacks.frames.push_back(
          trace::FrameId{static_cast<std::uint32_t>(trace.frames.size())});
      trace.stacks.begin.push_back(static_cast<std::uint32_t>(trace.stacks.frames.size()));
      trace.frames.push_back({trace.strings.intern(call), trace.strings.intern(file), 1});
    }
    for (std::size_t k = 0; k < trace.samples.size(); ++k)
      if (trace.samples.stack[k].raw == i)
        trace.samples.stack[k] =
            trace::StackId{first + static_cast<std::uint32_t>(k % calls.size())};
  }
}

void add_limits(trace::Trace& trace, std::int32_t pid, std::string_view cpus,
                std::uint64_t cpu_count, std::uint64_t host_count, std::string_view memory_group,
                std::uint64_t memory_limit) {
  for (std::size_t i = 0; i < trace.tracks.size(); ++i) {
    if (trace.tracks[i].tid != pid) continue;
    trace.instants.time_ns.push_back(trace.begin_ns);
    trace.instants.track.push_back({static_cast<std::uint32_t>(i)});
    trace.instants.name.push_back(trace.strings.intern("limits"));
    trace.instants.category.push_back(trace.strings.intern("host"));
    trace.instants.arg_begin.push_back(static_cast<std::uint32_t>(trace.args.size()));
    trace.instants.arg_count.push_back(memory_group.empty() ? 3 : 5);
    trace::ArgValue arg;
    arg.kind = trace::ArgValue::Kind::kString;
    arg.key = trace.strings.intern("cpus");
    arg.text = trace.strings.intern(cpus);
    trace.args.push_back(arg);
    arg.kind = trace::ArgValue::Kind::kUint;
    arg.key = trace.strings.intern("cpu_count");
    arg.u64 = cpu_count;
    trace.args.push_back(arg);
    arg.key = trace.strings.intern("host_count");
    arg.u64 = host_count;
    trace.args.push_back(arg);
    if (memory_group.empty()) return;
    arg.key = trace.strings.intern("memory_limit");
    arg.u64 = memory_limit;
    trace.args.push_back(arg);
    arg.kind = trace::ArgValue::Kind::kString;
    arg.key = trace.strings.intern("memory_group");
    arg.text = trace.strings.intern(memory_group);
    trace.args.push_back(arg);
    return;
  }
}

void add_kernel_counters(trace::Trace& trace, const std::vector<KernelCounters>& ranks,
                         double step_ms) {
  trace.metadata["kansoku.page_fault_ns"] = "8000";
  std::map<std::int32_t, trace::TrackId> threads;
  for (std::uint32_t i = 0; i < trace.tracks.size(); ++i) {
    const trace::Track& track = trace.tracks[i];
    if (track.kind == trace::TrackKind::kThread && track.tid == track.pid)
      threads.try_emplace(track.pid, trace::TrackId{i});
  }
  auto rank = ranks.begin();
  for (const auto& [pid, main_thread] : threads) {
    if (rank == ranks.end()) break;
    const trace::TrackId thread = main_thread;  // clang 14 captures no structured binding
    const KernelCounters& use = *rank++;
    const auto begin_ns =
        trace.begin_ns +
        static_cast<std::int64_t>(use.from * static_cast<double>(trace.end_ns - trace.begin_ns));
    const auto counter = [&](std::string_view name, double per_step, std::int64_t from_ns) {
      trace::Track track;
      track.kind = trace::TrackKind::kCounter;
      track.parent = thread;
      track.name = trace.strings.intern(name);
      trace.tracks.push_back(track);
      for (std::int64_t ns = trace.begin_ns; ns < trace.end_ns; ns += 1'000'000'000) {
        trace.counters.time_ns.push_back(ns);
        trace.counters.track.push_back({static_cast<std::uint32_t>(trace.tracks.size() - 1)});
        const auto after_ns = static_cast<double>(std::max(ns - from_ns, std::int64_t{0}));
        trace.counters.value.push_back(1e6 + per_step * after_ns / (step_ms * 1e6));
      }
    };
    counter("minor faults", use.faults, begin_ns);
    counter("user time", use.user_ms * 1e6, trace.begin_ns);
    counter("system time", use.system_ms * 1e6, begin_ns);
    for (const auto& [name, ms] : use.sampled_ms)
      counter("time in " + name, ms * 1e6, begin_ns);
    for (const auto& [place, faults] : use.places)
      counter("page faults " + place, faults, begin_ns);
    if (use.unknown_ms > 0) counter("time unknown", use.unknown_ms * 1e6, begin_ns);
  }
}

void add_faults_at_stacks(trace::Trace& trace, std::int32_t pid, std::string_view function,
                          double faults) {
  const auto track_count = static_cast<std::uint32_t>(trace.tracks.size());
  for (std::uint32_t i = 0; i < track_count; ++i) {
    const trace::Track thread = trace.tracks[i];
    if (thread.kind != trace::TrackKind::kThread || thread.tid != thread.pid) continue;
    trace::Track track;
    track.kind = trace::TrackKind::kCounter;
    track.parent = trace::TrackId{i};
    track.name = trace.strings.intern("minor faults at stacks");
    trace.tracks.push_back(track);
    double sum = 1000;
    for (std::size_t s = 0; s < trace.samples.size(); ++s) {
      if (trace.samples.pid[s] != thread.pid || trace.samples.tid[s] != thread.tid) continue;
      const auto frames = frames_of(trace, trace.samples.stack[s]);
      const bool is_in = std::any_of(frames.begin(), frames.end(), [&](const trace::Frame& frame) {
        return trace.str(frame.function) == function;
      });
      if (is_in && (pid == 0 || pid == thread.pid)) sum += faults;
      trace.counters.time_ns.push_back(trace.samples.time_ns[s]);
      trace.counters.track.push_back({static_cast<std::uint32_t>(trace.tracks.size() - 1)});
      trace.counters.value.push_back(sum);
    }
  }
}

std::vector<std::string> kinds_of(const Diagnosis& diagnosis) {
  std::vector<std::string> kinds;
  for (const Finding& finding : diagnosis.findings)
    kinds.push_back(finding.kind);
  return kinds;
}

}  // namespace kansoku::diagnose
