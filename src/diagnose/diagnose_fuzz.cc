// SPDX-License-Identifier: Apache-2.0
// Builds a trace from bytes: a few ranks whose events, samples and scheduler rows come from the
// input, near a regular job so that steps are found, with hostile times and ids in between. The
// diagnosis must neither crash nor hang, and must give the same answer twice.
#include "diagnose/diagnose.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/check.h"

namespace {

using kansoku::trace::Trace;

constexpr std::size_t kEventsMax = 4096;

class Source {
 public:
  Source(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}
  bool empty() const { return rest_.empty(); }
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const std::uint8_t value = rest_.front();
    rest_ = rest_.subspan(1);
    return value;
  }

 private:
  std::span<const std::uint8_t> rest_;
};

constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kNames{{
    {"step", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"},
    {"backward", "torch::autograd::Engine::execute"},
    {"backward", "c10d::Reducer::finalize_backward"},
    {"step", "Optimizer.step#AdamW.step"},
    {"collective", "c10d::ProcessGroupGloo::allreduce"},
    {"collective", "gloo::allreduce"},
    {"collective", "gloo::broadcast"},
    {"backward", "c10d::Reducer::prepare_for_forward"},
    {"torch-ops", "at::_ops::addmm::call"},
}};

std::int64_t odd_time(std::uint8_t selector) {
  constexpr std::array<std::int64_t, 6> kOdd{INT64_MIN, -1, 0, INT64_MAX, std::int64_t{1} << 61,
                                             -7};
  return kOdd[selector % kOdd.size()];
}

void add_slice(Trace& trace, Source& in, std::uint8_t what, std::int64_t begin_ns,
               std::int64_t duration_ns, std::uint32_t track, std::uint64_t seq) {
  const auto& [category, name] = kNames[what % kNames.size()];
  auto& table = trace.slices;
  const std::uint8_t odd = in.byte();
  table.start_ns.push_back(odd == 255 ? odd_time(in.byte()) : begin_ns);
  table.duration_ns.push_back(odd == 254 ? odd_time(in.byte()) : duration_ns);
  table.track.push_back({odd == 253 ? 0xffffff00U : track});
  table.name.push_back(trace.strings.intern(name));
  table.category.push_back(trace.strings.intern(category));
  table.arg_begin.push_back(odd == 252 ? 0xfffffff0U
                                       : static_cast<std::uint32_t>(trace.args.size()));
  table.arg_count.push_back(1);
  kansoku::trace::ArgValue arg;
  arg.kind = kansoku::trace::ArgValue::Kind::kUint;
  arg.key = trace.strings.intern(odd == 251 ? "pg" : "seq");
  arg.u64 = seq;
  trace.args.push_back(arg);
}

void add_rank(Trace& trace, Source& in, std::int32_t rank) {
  kansoku::trace::Process process;
  process.pid = 100 + 10 * rank;
  process.rank = in.byte() == 255 ? 0 : rank;
  process.role = trace.strings.intern(in.byte() == 255 ? "worker" : "rank");
  trace.processes.push_back(process);
  for (std::int32_t thread = 0; thread < 2; ++thread) {
    kansoku::trace::Track track;
    track.kind = kansoku::trace::TrackKind::kThread;
    track.pid = process.pid;
    track.tid = process.pid + thread;
    trace.tracks.push_back(track);
  }
}

void add_rows(Trace& trace, Source& in, std::int32_t pid, std::int64_t time_ns) {
  auto& samples = trace.samples;
  samples.time_ns.push_back(time_ns);
  samples.pid.push_back(pid);
  samples.tid.push_back(pid);
  samples.stack.push_back({in.byte()});
  samples.state.push_back(kansoku::trace::SampleState::kRunning);
  samples.holds_gil.push_back(0);
  samples.is_native.push_back(0);
  auto& switches = trace.switches;
  const bool goes_out = (in.byte() & 1U) != 0;
  switches.time_ns.push_back(time_ns);
  switches.cpu.push_back(0);
  switches.prev_tid.push_back(goes_out ? pid : 0);
  switches.next_tid.push_back(goes_out ? 0 : pid);
  switches.prev_state.push_back(in.byte());
}

// One simulated step a rank: the byte stream bends durations, drops events and adds odd ones.
std::int64_t add_step(Trace& trace, Source& in, std::int32_t rank, std::int64_t now_ns,
                      std::uint64_t seq) {
  const auto main = static_cast<std::uint32_t>(2 * rank);
  constexpr std::array<std::uint8_t, 7> kSequence{7, 0, 1, 4, 5, 2, 3};
  for (const std::uint8_t what : kSequence) {
    const std::uint8_t bend = in.byte();
    if (bend == 250) continue;
    const std::int64_t length_ns = 1'000'000 + 100'000 * bend;
    const bool on_other = what == 5 || bend == 249;
    add_slice(trace, in, bend == 248 ? in.byte() : what, now_ns, length_ns,
              main + (on_other ? 1 : 0), seq);
    if (what == 1 || what == 2) continue;  // nested
    add_rows(trace, in, 100 + 10 * rank, now_ns + length_ns / 2);
    now_ns += length_ns;
  }
  return now_ns;
}

void add_stacks(Trace& trace, Source& in) {
  trace.stacks.begin.push_back(0);
  for (int i = 0; i < 8; ++i) {
    const std::uint8_t depth = in.byte() % 16;
    for (std::uint8_t k = 0; k < depth; ++k)
      trace.stacks.frames.push_back({in.byte()});
    trace.stacks.begin.push_back(static_cast<std::uint32_t>(trace.stacks.frames.size()));
  }
  for (std::uint32_t i = 0; i < 16; ++i)
    trace.frames.push_back({trace.strings.intern(i % 2 == 0 ? "forward" : "__getitem__"), {i}, i});
}

// How processes end, and who asks them to.
void add_ends(Trace& trace, Source& in, std::int32_t rank_count) {
  auto& instants = trace.instants;
  for (std::int32_t rank = 0; rank < rank_count; ++rank) {
    const std::uint8_t what = in.byte();
    if (what < 128) continue;
    instants.time_ns.push_back(what == 255 ? odd_time(in.byte()) : trace.end_ns - what * 1'000'000);
    instants.track.push_back({what == 254 ? 0xffffff00U : static_cast<std::uint32_t>(2 * rank)});
    instants.name.push_back(trace.strings.intern(what % 2 == 0 ? "asked to end" : "process exit"));
    instants.category.push_back(trace.strings.intern("process"));
    instants.arg_begin.push_back(what == 253 ? 0xfffffff0U
                                             : static_cast<std::uint32_t>(trace.args.size()));
    instants.arg_count.push_back(2);
    for (const char* key : {"signal", what % 4 < 2 ? "sender" : "status"}) {
      kansoku::trace::ArgValue arg;
      arg.kind = kansoku::trace::ArgValue::Kind::kUint;
      arg.key = trace.strings.intern(key);
      arg.u64 = in.byte();
      trace.args.push_back(arg);
    }
  }
}

// A long recording of which nothing but scheduler and stacks tell: it has no steps.
void make_bare(Trace& trace) {
  constexpr std::int64_t kLonger = 60;
  trace.slices = {};
  for (auto* times : {&trace.samples.time_ns, &trace.switches.time_ns}) {
    for (std::int64_t& time_ns : *times)
      time_ns *= kLonger;
  }
  trace.end_ns *= kLonger;
}

Trace build(Source in) {
  Trace trace;
  const std::uint8_t mode = in.byte();
  const std::int32_t rank_count = 1 + mode % 5;
  add_stacks(trace, in);
  for (std::int32_t rank = 0; rank < rank_count; ++rank)
    add_rank(trace, in, rank);
  std::array<std::int64_t, 5> now_ns{};
  for (std::uint64_t step = 0; trace.slices.size() < kEventsMax && (!in.empty() || step < 12);
       ++step) {
    for (std::int32_t rank = 0; rank < rank_count; ++rank) {
      auto& now = now_ns[static_cast<std::size_t>(rank)];
      now = add_step(trace, in, rank, now, step);
      trace.end_ns = std::max(trace.end_ns, now);
    }
  }
  add_ends(trace, in, rank_count);
  if (mode >= 128) make_bare(trace);
  if (in.byte() == 255) trace.end_ns = odd_time(in.byte());
  return trace;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Trace trace = build(Source(data, size));
  kansoku::diagnose::Options options;
  options.resample_count = 50;
  options.function_resample_count = 10;
  const auto first = kansoku::diagnose::diagnose(trace, options);
  const auto second = kansoku::diagnose::diagnose(trace, options);
  CHECK(first.has_value() && second.has_value());
  const std::string text = kansoku::diagnose::to_json(*first).dump();
  CHECK(text == kansoku::diagnose::to_json(*second).dump());
  CHECK(!kansoku::diagnose::view_json(trace, *first).dump().empty());
  CHECK(!kansoku::diagnose::verdict_text(*first).empty());
  for (const auto& rank : first->ranks) {
    double sum = 0;
    for (const double ms : rank.phase_ms)
      sum += ms;
    CHECK(sum <= rank.step_ms * (1 + 1e-9) + 1e-6 && sum >= rank.step_ms * (1 - 1e-9) - 1e-6);
  }
  return 0;
}
