// SPDX-License-Identifier: Apache-2.0
#include "trace/traces_for_test.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <initializer_list>
#include <limits>

#include "common/check.h"

namespace kansoku::trace {
namespace {

STAT(test_lost_rows, kDataLoss, kCapture, "advice for the reader");
STAT(test_odd_rows, kNotice, kCapture, "nothing to do");

void write_slices(Writer& w, TrackHandle main, TrackHandle lane) {
  const NameId step = w.name("step");
  const NameId all_reduce = w.name("gloo::allreduce");
  const CategoryId category = w.category("collective");
  const NameId key = w.name("bytes");
  const std::array args{
      Arg::uint(key, std::numeric_limits<std::uint64_t>::max()),
      Arg::sint(w.name("delta"), std::numeric_limits<std::int64_t>::min()),
      Arg{w.name("ratio"), Arg::Kind::kDouble, std::bit_cast<std::uint64_t>(0.25), {}},
      Arg::str(w.name("dtype"), "float32")};
  w.slice_begin(main, at_for_test(10), step, w.category("step"));
  w.slice_begin(main, at_for_test(20), all_reduce, category, args, 77);
  w.slice_begin(lane, at_for_test(25), all_reduce, category, {}, 77);
  const std::array result{Arg::sint(w.name("result"), -1)};
  w.slice_end(main, at_for_test(30), result);
  w.slice_end(main, at_for_test(40));
  w.slice_begin(main, at_for_test(50), step, category);  // never ends
}

void write_samples(Writer& w) {
  const std::array frames{w.frame("main", "/app/train.py", 3), w.frame("forward", "/app/net.py", 0),
                          w.frame("matmul", "", 0)};
  const StackHandle stack = w.stack(frames);
  for (const SampleState state :
       {SampleState::kUnknown, SampleState::kRunning, SampleState::kSleeping, SampleState::kDisk,
        SampleState::kStopped}) {
    const auto at = at_for_test(100 + static_cast<std::int64_t>(state));
    w.sample(100, 100, at, stack, state, false);
    w.sample(100, 101, at, w.stack({}), state, true);
  }
  w.native_sample(100, 101, at_for_test(105), 3, stack);
}

std::string text_of(const Trace& trace, const ArgValue& arg) {
  const std::string key(trace.str(arg.key));
  switch (arg.kind) {
    case ArgValue::Kind::kInt:
      return fmt::format(" {}=i{}", key, arg.i64);
    case ArgValue::Kind::kUint:
      return fmt::format(" {}=u{}", key, arg.u64);
    case ArgValue::Kind::kDouble:
      return fmt::format(" {}=f{}", key, arg.f64);
    case ArgValue::Kind::kString:
      return fmt::format(" {}='{}'", key, trace.str(arg.text));
  }
  return "?";
}

std::string args_of(const Trace& trace, std::uint32_t begin, std::uint32_t count) {
  std::string out;
  for (std::uint32_t i = 0; i < count; ++i)
    out += text_of(trace, trace.args[begin + i]);
  return out;
}

void dump_facts(const Trace& t, std::string& out) {
  for (const Track& track : t.tracks) {
    out += fmt::format("track {} parent {} pid {} tid {} '{}'\n", static_cast<int>(track.kind),
                       track.parent.raw, track.pid, track.tid, t.str(track.name));
  }
  for (const Process& p : t.processes) {
    out += fmt::format("process {} of {} '{}' '{}' job '{}' {} {} {}/{}\n", p.pid, p.parent_pid,
                       t.str(p.name), t.str(p.cmdline), t.str(p.job), t.str(p.role), p.rank,
                       p.local_rank, p.world_size);
  }
  for (const auto& [name, loss] : t.losses) {
    out += fmt::format("loss {} {} {} '{}'\n", name, loss.count, severity_name(loss.severity),
                       loss.advice);
  }
  for (const auto& [key, value] : t.metadata)
    out += fmt::format("metadata {}='{}'\n", key, value);
  out += fmt::format("from {} to {}\n", t.begin_ns, t.end_ns);
}

void dump_events(const Trace& t, std::string& out) {
  const auto& s = t.slices;
  for (std::size_t i = 0; i < s.size(); ++i) {
    out += fmt::format("slice {} + {} on {} '{}' '{}'{}\n", s.start_ns[i], s.duration_ns[i],
                       s.track[i].raw, t.str(s.name[i]), t.str(s.category[i]),
                       args_of(t, s.arg_begin[i], s.arg_count[i]));
  }
  const auto& n = t.instants;
  for (std::size_t i = 0; i < n.size(); ++i) {
    out += fmt::format("instant {} on {} '{}' '{}'{}\n", n.time_ns[i], n.track[i].raw,
                       t.str(n.name[i]), t.str(n.category[i]),
                       args_of(t, n.arg_begin[i], n.arg_count[i]));
  }
  for (std::size_t i = 0; i < t.counters.size(); ++i) {
    out += fmt::format("counter {} on {} {}\n", t.counters.time_ns[i], t.counters.track[i].raw,
                       t.counters.value[i]);
  }
  for (std::size_t i = 0; i < t.flows.size(); ++i)
    out += fmt::format("flow {} of {}\n", t.flows.id[i], t.flows.slice[i]);
}

void dump_rows(const Trace& t, std::string& out) {
  const auto& p = t.samples;
  for (std::size_t i = 0; i < p.size(); ++i) {
    out +=
        fmt::format("{}sample {} {}/{} {} gil {}:", p.is_native[i] != 0 ? "native " : "",
                    p.time_ns[i], p.pid[i], p.tid[i], static_cast<int>(p.state[i]), p.holds_gil[i]);
    for (const FrameId id : t.stacks.at(p.stack[i])) {
      const Frame& frame = t.frames[id.raw];
      out += fmt::format(" {}({}:{})", t.str(frame.function), t.str(frame.file), frame.line);
    }
    out += '\n';
  }
  const auto& w = t.switches;
  for (std::size_t i = 0; i < w.size(); ++i) {
    out += fmt::format("switch {} cpu {} {} ({}) -> {}\n", w.time_ns[i], w.cpu[i], w.prev_tid[i],
                       w.prev_state[i], w.next_tid[i]);
  }
  for (std::size_t i = 0; i < t.wakes.size(); ++i) {
    out +=
        fmt::format("wake {} {} by {}\n", t.wakes.time_ns[i], t.wakes.tid[i], t.wakes.waker_tid[i]);
  }
}

bool all_are(std::size_t size, std::initializer_list<std::size_t> sizes) {
  for (const std::size_t other : sizes) {
    if (other != size) return false;
  }
  return true;
}

bool columns_fit(const Trace& t) {
  const auto& s = t.slices;
  const auto& n = t.instants;
  const auto& p = t.samples;
  const auto& w = t.switches;
  return all_are(s.size(), {s.duration_ns.size(), s.track.size(), s.name.size(), s.category.size(),
                            s.arg_begin.size(), s.arg_count.size()}) &&
         all_are(n.size(), {n.track.size(), n.name.size(), n.category.size(), n.arg_begin.size(),
                            n.arg_count.size()}) &&
         all_are(t.counters.size(), {t.counters.track.size(), t.counters.value.size()}) &&
         all_are(p.size(), {p.pid.size(), p.tid.size(), p.stack.size(), p.state.size(),
                            p.holds_gil.size(), p.is_native.size()}) &&
         all_are(w.size(),
                 {w.cpu.size(), w.prev_tid.size(), w.next_tid.size(), w.prev_state.size()}) &&
         all_are(t.wakes.size(), {t.wakes.tid.size(), t.wakes.waker_tid.size()}) &&
         all_are(t.flows.size(), {t.flows.slice.size()});
}

bool events_fit(const Trace& t, const std::vector<TrackId>& tracks,
                const std::vector<StringId>& names, const std::vector<StringId>& categories,
                const std::vector<std::uint32_t>& arg_begin,
                const std::vector<std::uint32_t>& arg_count) {
  for (std::size_t i = 0; i < tracks.size(); ++i) {
    if (tracks[i].raw >= t.tracks.size()) return false;
    if (names[i].raw >= t.strings.size() || categories[i].raw >= t.strings.size()) return false;
    if (std::uint64_t{arg_begin[i]} + arg_count[i] > t.args.size()) return false;
  }
  return true;
}

bool stacks_fit(const Trace& t) {
  const auto& begin = t.stacks.begin;
  if (begin.empty()) return t.stacks.frames.empty() && t.samples.stack.empty();
  if (begin.front() != 0 || begin.back() != t.stacks.frames.size()) return false;
  for (std::size_t i = 1; i < begin.size(); ++i) {
    if (begin[i] < begin[i - 1]) return false;
  }
  for (const FrameId frame : t.stacks.frames) {
    if (frame.raw >= t.frames.size()) return false;
  }
  for (const StackId stack : t.samples.stack) {
    if (stack.raw >= t.stacks.size()) return false;
  }
  return true;
}

}  // namespace

void write_everything(Writer& w) {
  w.metadata("kansoku.version", "1.2.3", kBaseForTest);
  w.process_track({.pid = 100,
                   .parent_pid = 1,
                   .name = "rank 0 python",
                   .cmdline = "python train.py",
                   .job = "127.0.0.1:29500",
                   .role = "rank",
                   .rank = 0,
                   .local_rank = 0,
                   .world_size = 2});
  const TrackHandle main = w.thread_track(100, 100, "python");
  const TrackHandle lane = w.custom_track(main, "lane");
  write_slices(w, main, lane);
  const TrackHandle counter = w.counter_track(main, "memory", "bytes");
  w.counter(counter, at_for_test(60), 1.5);
  const std::array args{Arg::str(w.name("reason"), "retry")};
  w.instant(lane, at_for_test(70), w.name("retransmit"), w.category("tcp"), args);
  write_samples(w);
  w.sched_switch({at_for_test(110), 3, 100, 0, 2, "python", "swapper/3"});
  w.sched_wake(at_for_test(115), 3, 100, "python", 101);
  w.loss(test_lost_rows, 1, at_for_test(120));
  w.loss(test_lost_rows, 4, at_for_test(121));
  w.loss(test_odd_rows, 2, at_for_test(122));
}

std::string bytes_of(const std::function<void(Writer&)>& fill, WriterOptions options) {
  MemorySink sink;
  auto writer = Writer::create(sink, kBaseForTest, options);
  CHECK(writer.has_value());
  fill(**writer);
  CHECK((*writer)->flush().has_value());
  return sink.data();
}

std::string dump(const Trace& trace) {
  std::string out;
  dump_facts(trace, out);
  dump_events(trace, out);
  dump_rows(trace, out);
  return out;
}

std::string problem_of(const Trace& t) {
  if (!columns_fit(t)) return "columns of a table differ in length";
  const auto& s = t.slices;
  if (!events_fit(t, s.track, s.name, s.category, s.arg_begin, s.arg_count)) return "slice index";
  const auto& n = t.instants;
  if (!events_fit(t, n.track, n.name, n.category, n.arg_begin, n.arg_count)) return "instant index";
  if (!stacks_fit(t)) return "stack index";
  for (const std::int64_t duration : s.duration_ns) {
    if (duration < kOpenDuration) return "negative duration";
  }
  for (const TrackId track : t.counters.track) {
    if (track.raw >= t.tracks.size()) return "counter index";
  }
  for (const std::uint32_t slice : t.flows.slice) {
    if (slice >= s.size()) return "flow index";
  }
  for (const Track& track : t.tracks) {
    if (track.name.raw >= t.strings.size()) return "track name";
    if (track.parent != kNoTrack && track.parent.raw >= t.tracks.size()) return "track parent";
  }
  for (const Frame& frame : t.frames) {
    if (frame.function.raw >= t.strings.size() || frame.file.raw >= t.strings.size())
      return "frame text";
  }
  for (const ArgValue& arg : t.args) {
    if (arg.key.raw >= t.strings.size()) return "argument key";
    if (arg.kind == ArgValue::Kind::kString && arg.text.raw >= t.strings.size())
      return "argument text";
  }
  if (t.begin_ns > t.end_ns) return "ends before it begins";
  return {};
}

}  // namespace kansoku::trace
