// SPDX-License-Identifier: Apache-2.0
#include "trace/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/parse.h"
#include "trace/metadata.h"

namespace kansoku::trace {
namespace {

constexpr std::size_t kRowsMax = std::numeric_limits<std::uint32_t>::max();

bool is_linux_id(std::int32_t id) {
  return id >= 0 && id < kPidsPerHost;
}

bool has_linux_ids(const Trace& trace) {
  const auto all = [](const std::vector<std::int32_t>& ids) {
    return std::all_of(ids.begin(), ids.end(), is_linux_id);
  };
  return std::all_of(trace.tracks.begin(), trace.tracks.end(),
                     [](const Track& t) { return is_linux_id(t.pid) && is_linux_id(t.tid); }) &&
         std::all_of(
             trace.processes.begin(), trace.processes.end(),
             [](const Process& p) { return is_linux_id(p.pid) && is_linux_id(p.parent_pid); }) &&
         all(trace.samples.pid) && all(trace.samples.tid) && all(trace.switches.prev_tid) &&
         all(trace.switches.next_tid) && all(trace.wakes.tid) && all(trace.wakes.waker_tid);
}

bool fits(const Trace& a, const Trace& b) {
  const auto sum_fits = [](const auto& x, const auto& y) { return x.size() + y.size() < kRowsMax; };
  return sum_fits(a.strings, b.strings) && sum_fits(a.tracks, b.tracks) &&
         sum_fits(a.slices, b.slices) && sum_fits(a.args, b.args) && sum_fits(a.frames, b.frames) &&
         sum_fits(a.stacks, b.stacks) && sum_fits(a.stacks.frames, b.stacks.frames);
}

std::int64_t shifted(std::int64_t time_ns, std::int64_t shift_ns) {
  std::int64_t sum = 0;
  if (!__builtin_add_overflow(time_ns, shift_ns, &sum)) return sum;
  return shift_ns < 0 ? std::numeric_limits<std::int64_t>::min()
                      : std::numeric_limits<std::int64_t>::max();
}

/// Wall clock less boot clock when the recording began; nothing if it does not say.
std::optional<std::int64_t> wall_less_boot_ns(const Trace& trace) {
  for (const MetadataFact& fact : metadata_facts(trace, "kansoku.recorded_at_unix_ns")) {
    const auto wall_ns = parse_int<std::int64_t>(fact.value);
    std::int64_t difference_ns = 0;
    if (wall_ns && !__builtin_sub_overflow(*wall_ns, fact.time_ns, &difference_ns))
      return difference_ns;
  }
  return std::nullopt;
}

/// Moves the rows of one trace behind those of another, in the numbers of that one.
class Appender {
 public:
  Appender(const Trace& from, std::size_t host, Trace& into)
      : from_(from),
        into_(into),
        pid_base_(static_cast<std::int32_t>(host) * kPidsPerHost),
        track_base_(static_cast<std::uint32_t>(into.tracks.size())),
        slice_base_(static_cast<std::uint32_t>(into.slices.size())),
        arg_base_(static_cast<std::uint32_t>(into.args.size())),
        frame_base_(static_cast<std::uint32_t>(into.frames.size())),
        stack_base_(static_cast<std::uint32_t>(into.stacks.size())),
        flow_base_(static_cast<std::uint64_t>(host) << 48) {
    for (std::uint32_t i = 0; i < from.strings.size(); ++i)
      strings_.push_back(into.strings.intern(from.strings.view({i})));
  }

  void run() {
    add_tracks();
    add_processes();
    add_events();
    add_samples();
    add_scheduler();
    add_stacks();
    add_facts();
  }

 private:
  [[nodiscard]] StringId text(StringId id) const {
    return id.raw < strings_.size() ? strings_[id.raw] : StringId{};
  }
  // 0 is no process, or the idle thread of every host.
  [[nodiscard]] std::int32_t number(std::int32_t id) const { return id == 0 ? 0 : id + pid_base_; }
  [[nodiscard]] TrackId track(TrackId id) const {
    return id == kNoTrack ? id : TrackId{id.raw + track_base_};
  }

  template <class T, class Change>
  static void append(std::vector<T>& into, const std::vector<T>& from, Change change) {
    into.reserve(into.size() + from.size());
    for (const T& value : from)
      into.push_back(change(value));
  }
  template <class T>
  static void append(std::vector<T>& into, const std::vector<T>& from) {
    into.insert(into.end(), from.begin(), from.end());
  }

  void add_tracks() {
    append(into_.tracks, from_.tracks, [this](Track t) {
      t.parent = track(t.parent);
      t.pid = number(t.pid);
      t.tid = number(t.tid);
      t.name = text(t.name);
      return t;
    });
  }

  void add_processes() {
    append(into_.processes, from_.processes, [this](Process p) {
      p.pid = number(p.pid);
      p.parent_pid = number(p.parent_pid);
      for (StringId* id : {&p.name, &p.cmdline, &p.job, &p.role})
        *id = text(*id);
      return p;
    });
    append(into_.groups, from_.groups, [this](ProcessGroup g) {
      g.name = text(g.name);
      g.description = text(g.description);
      return g;
    });
  }

  void add_events() {
    const auto as_text = [this](StringId id) { return text(id); };
    const auto as_track = [this](TrackId id) { return track(id); };
    const auto as_arg = [this](std::uint32_t i) { return i + arg_base_; };
    const auto add = [&](auto& into, const auto& from) {
      append(into.track, from.track, as_track);
      append(into.name, from.name, as_text);
      append(into.category, from.category, as_text);
      append(into.arg_begin, from.arg_begin, as_arg);
      append(into.arg_count, from.arg_count);
    };
    append(into_.slices.start_ns, from_.slices.start_ns);
    append(into_.slices.duration_ns, from_.slices.duration_ns);
    add(into_.slices, from_.slices);
    append(into_.instants.time_ns, from_.instants.time_ns);
    add(into_.instants, from_.instants);
    append(into_.counters.time_ns, from_.counters.time_ns);
    append(into_.counters.track, from_.counters.track, as_track);
    append(into_.counters.value, from_.counters.value);
    append(into_.args, from_.args, [this](ArgValue arg) {
      arg.key = text(arg.key);
      if (arg.kind == ArgValue::Kind::kString) arg.text = text(arg.text);
      return arg;
    });
    append(into_.flows.id, from_.flows.id, [this](std::uint64_t id) { return id ^ flow_base_; });
    append(into_.flows.slice, from_.flows.slice,
           [this](std::uint32_t slice) { return slice + slice_base_; });
  }

  void add_samples() {
    const auto as_number = [this](std::int32_t id) { return number(id); };
    SampleTable& into = into_.samples;
    const SampleTable& from = from_.samples;
    append(into.time_ns, from.time_ns);
    append(into.pid, from.pid, as_number);
    append(into.tid, from.tid, as_number);
    append(into.stack, from.stack, [this](StackId id) { return StackId{id.raw + stack_base_}; });
    append(into.state, from.state);
    append(into.holds_gil, from.holds_gil);
    append(into.is_native, from.is_native);
  }

  void add_scheduler() {
    const auto as_number = [this](std::int32_t id) { return number(id); };
    append(into_.switches.time_ns, from_.switches.time_ns);
    append(into_.switches.cpu, from_.switches.cpu);
    append(into_.switches.prev_tid, from_.switches.prev_tid, as_number);
    append(into_.switches.next_tid, from_.switches.next_tid, as_number);
    append(into_.switches.prev_state, from_.switches.prev_state);
    append(into_.wakes.time_ns, from_.wakes.time_ns);
    append(into_.wakes.tid, from_.wakes.tid, as_number);
    append(into_.wakes.waker_tid, from_.wakes.waker_tid, as_number);
  }

  void add_stacks() {
    append(into_.frames, from_.frames, [this](Frame f) {
      f.function = text(f.function);
      f.file = text(f.file);
      return f;
    });
    const auto first = static_cast<std::uint32_t>(into_.stacks.frames.size());
    append(into_.stacks.frames, from_.stacks.frames,
           [this](FrameId id) { return FrameId{id.raw + frame_base_}; });
    if (into_.stacks.begin.empty()) into_.stacks.begin.push_back(0);
    for (std::size_t i = 1; i < from_.stacks.begin.size(); ++i)
      into_.stacks.begin.push_back(from_.stacks.begin[i] + first);
  }

  void add_facts() {
    for (const auto& [name, loss] : from_.losses) {
      const auto [known, is_new] = into_.losses.try_emplace(name, loss);
      if (!is_new) known->second.count += loss.count;
    }
    for (const auto& [key, value] : from_.metadata) {
      const auto [known, is_new] = into_.metadata.try_emplace(key, value);
      if (!is_new && key == "kansoku.host") known->second += ", " + value;
    }
  }

  const Trace& from_;
  Trace& into_;
  std::int32_t pid_base_;
  std::uint32_t track_base_, slice_base_, arg_base_, frame_base_, stack_base_;
  std::uint64_t flow_base_;
  std::vector<StringId> strings_;  // of `from` -> of `into`
};

}  // namespace

HostMerger::Rows HostMerger::rows() const {
  return {trace_.slices.size(),  trace_.instants.size(), trace_.counters.size(),
          trace_.samples.size(), trace_.switches.size(), trace_.wakes.size()};
}

Result<void> HostMerger::add(Trace from) {
  if (host_count() >= kHostsMax)
    return Error{Code::kLimit, fmt::format("merge recordings: more than {} hosts", kHostsMax)};
  // Alone, a recording may have any numbers.
  const bool needs_room = host_count() > 0;
  if (needs_room && !(has_linux_ids(from) && (host_count() > 1 || has_linux_ids(trace_))))
    return Error{Code::kUnsupported,
                 "merge recordings: process or thread numbers that Linux never assigns"};
  if (!fits(trace_, from))
    return Error{Code::kLimit, "merge recordings: more than 2^32 rows of a table"};
  first_rows_.push_back(rows());
  if (host_count() == 1) {
    first_wall_ns_ = wall_less_boot_ns(from);
    trace_ = std::move(from);
    return {};
  }
  Appender(from, host_count() - 1, trace_).run();
  measure_window(trace_);
  const auto wall_ns = wall_less_boot_ns(from);
  std::int64_t shift_ns = 0;
  if (wall_ns && first_wall_ns_ && !__builtin_sub_overflow(*wall_ns, *first_wall_ns_, &shift_ns))
    shift(host_count() - 1, shift_ns);
  return {};
}

void HostMerger::shift(std::size_t host, std::int64_t shift_ns) {
  CHECK(host < host_count());
  const Rows first = first_rows_[host];
  const Rows last = host + 1 < host_count() ? first_rows_[host + 1] : rows();
  const auto move = [shift_ns](std::vector<std::int64_t>& times, std::size_t begin,
                               std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      times[i] = shifted(times[i], shift_ns);
  };
  move(trace_.slices.start_ns, first.slices, last.slices);
  move(trace_.instants.time_ns, first.instants, last.instants);
  move(trace_.counters.time_ns, first.counters, last.counters);
  move(trace_.samples.time_ns, first.samples, last.samples);
  move(trace_.switches.time_ns, first.switches, last.switches);
  move(trace_.wakes.time_ns, first.wakes, last.wakes);
  measure_window(trace_);
}

Trace HostMerger::take() {
  first_rows_.clear();
  return std::move(trace_);
}

}  // namespace kansoku::trace
