// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "common/python_code.h"
#include "gpu/activity/internal/device_figures.h"
#include "gpu/activity/internal/host_states.h"
#include "gpu/activity/internal/names.h"
#include "gpu/activity/internal/spread.h"
#include "gpu/activity/internal/tracks.h"
#include "gpu/activity/thresholds.h"
#include "stats/summary.h"

namespace kansoku::gpu::activity {
namespace {

using stats::Interval;

struct WordCause {
  std::string_view word;
  IdleCause cause;
};
/// Words of functions on the host that are no calls of CUDA. The first that a name holds decides.
constexpr std::array kHostWords{
    WordCause{"DataLoader", IdleCause::kLoader},
    WordCause{"dataloader.next", IdleCause::kLoader},
    WordCause{"torch/utils/data/", IdleCause::kLoader},
    WordCause{"pthread_mutex_", IdleCause::kLock},
    WordCause{"pthread_rwlock_", IdleCause::kLock},
    WordCause{"pthread_cond_", IdleCause::kLock},
    WordCause{"pthread_spin_lock", IdleCause::kLock},
    WordCause{"sem_wait", IdleCause::kLock},
    WordCause{"sem_timedwait", IdleCause::kLock},
    WordCause{"take_gil", IdleCause::kLock},
    WordCause{"PyThread_acquire_lock", IdleCause::kLock},
    WordCause{"PyEval_RestoreThread", IdleCause::kLock},
    WordCause{"_thread.lock", IdleCause::kLock},
    WordCause{"gloo::", IdleCause::kCollective},
    WordCause{"gloo:", IdleCause::kCollective},
    WordCause{"c10d::ProcessGroupGloo", IdleCause::kCollective},
};

IdleCause cause_of_name(std::string_view name) {
  for (const WordCause& row : kHostWords) {
    if (name.find(row.word) != std::string_view::npos) return row.cause;
  }
  return IdleCause::kFunction;
}

/// True for a profiler's name of a Python function, "train.py(33): main", of the program's own
/// code, or of others'.
bool is_python_of(std::string_view name, bool is_own) {
  const auto python = parse_python_name(name);
  return python && is_own_python_file(python->file) == is_own;
}

IdleCause cause_of_call(const Call& call) {
  switch (call.what) {
    case CallClass::kSync:
      return IdleCause::kSynchronisation;
    case CallClass::kAlloc:
    case CallClass::kFree:
    case CallClass::kHostAlloc:
      return IdleCause::kAllocation;
    case CallClass::kModule:
      return IdleCause::kModuleLoad;
    case CallClass::kCopy:
      return call.is_blocking ? IdleCause::kSynchronisation
             : call.is_staged ? IdleCause::kStaging
                              : IdleCause::kLaunching;
    case CallClass::kLaunch:
      return call.is_first_use ? IdleCause::kModuleLoad : IdleCause::kLaunching;
    case CallClass::kSet:
      return IdleCause::kLaunching;
    case CallClass::kOther:
      break;
  }
  return IdleCause::kFunction;
}

/// A loader or a collective keeps its time, whatever functions it calls and locks it waits for;
/// calls of CUDA inside are told apart.
bool keeps_what_it_calls(IdleCause cause) {
  return cause == IdleCause::kObserver || cause == IdleCause::kLoader ||
         cause == IdleCause::kCollective || cause == IdleCause::kLock ||
         cause == IdleCause::kAllocation || cause == IdleCause::kModuleLoad ||
         cause == IdleCause::kSynchronisation;
}

/// True for a cause that may be charged to a call before it, or to launching, because it is nothing
/// special itself.
bool is_own_code(IdleCause cause) {
  return cause == IdleCause::kFunction || cause == IdleCause::kOperator ||
         cause == IdleCause::kUnknown;
}

struct Doing {
  IdleCause cause{IdleCause::kUnknown};
  std::string_view function;
  bool is_call{false};  // of CUDA
};

/// Cause of a sleeping or queueing thread, if nothing tells more.
IdleCause cause_of_state(HostState state) {
  switch (state) {
    case HostState::kRunning:
      return IdleCause::kFunction;
    case HostState::kQueued:
      return IdleCause::kProcessor;
    case HostState::kForThread:
      return IdleCause::kLock;
    case HostState::kBlocked:
      return IdleCause::kBlocked;
    case HostState::kUnknown:
      break;
  }
  return IdleCause::kUnknown;
}

/// Samples of a thread, the time between two of them, and their causes for gaps that are shorter
/// than that, by state. Each such gap alone is too short to be hit by a sample, but all of them
/// together are not.
struct ThreadSamples {
  std::vector<std::uint32_t> all;  // by time
  std::int64_t period_ns{0};
  std::array<std::map<std::pair<IdleCause, std::string_view>, std::size_t>, kHostStateCount> pooled;
  std::array<std::size_t, kHostStateCount> pooled_count{};
};

/// A piece of a thread's time with one thing done in it.
struct Piece {
  Interval time;
  Doing doing;
};

/// A call that let the queue run dry is charged with what the thread then does, up to a moment.
struct Charge {
  IdleCause cause{IdleCause::kSynchronisation};
  std::int64_t until_ns{0};
};

using Totals = std::map<std::pair<IdleCause, std::string_view>, double>;  // ns

}  // namespace

std::string_view idle_cause_name(IdleCause cause) {
  constexpr std::array<std::string_view, kIdleCauseCount> kNames{
      "synchronisation", "allocation", "module_load", "lock",     "loader",
      "launching",       "staging",    "collective",  "operator", "function",
      "processor",       "blocked",    "device",      "observer", "unknown"};
  return kNames[static_cast<std::size_t>(cause)];
}

std::string_view idle_cause_text(IdleCause cause) {
  constexpr std::array<std::string_view, kIdleCauseCount> kTexts{
      "waits for the device",
      "allocates memory",
      "loads or compiles code",
      "waits for a lock",
      "waits for data",
      "launches",
      "copies pageable memory along",
      "waits for other ranks",
      "is in an operator of the framework",
      "runs the program's own code",
      "waits for a processor",
      "sleeps for something outside",
      "has launched: the device starts",
      "is held up by Kansoku",
      "is not known to do anything"};
  return kTexts[static_cast<std::size_t>(cause)];
}

struct IdleCauses::Impl {
  explicit Impl(const Input& input);
  const std::vector<Piece>& pieces_of(std::uint32_t thread);
  void split(std::uint32_t thread, Interval gap, const Charge& charge, bool is_launching,
             Totals& totals);
  void add_gap(const Device& device, Interval gap, const Op& next, bool is_launching,
               Totals& totals);
  void add_hole(std::uint32_t thread, Interval hole, const Charge& charge, bool is_launching,
                Totals& totals);
  void add_by_samples(std::uint32_t thread, const HostPiece& piece, Totals& totals);
  /// Walks the gaps; `of_gap` gets each, without a cause, with its totals.
  template <typename OfGap>
  void walk(const Device& device, Interval window, const Stretches& stretches, OfGap of_gap);
  [[nodiscard]] Doing doing_of(std::uint32_t slice, const Doing& around) const;
  [[nodiscard]] Doing doing_of_stack(std::uint32_t sample, HostState state) const;
  /// Cause charged with the gap, if any: until its begin is nothing.
  [[nodiscard]] Charge charge_of(std::uint32_t thread, Interval gap) const;
  [[nodiscard]] std::uint32_t usual_thread(const Device& device);

  const Input& in;
  std::vector<std::uint32_t> call_of_slice;  // kNoIndex: no call of CUDA
  std::map<std::uint32_t, std::vector<Piece>> pieces;
  std::map<const Device*, std::uint32_t> usual_threads;  // looked up only
  std::vector<std::vector<std::uint32_t>> stalling;      // by thread: calls by begin
  HostStates states;
  std::map<std::pair<std::int32_t, std::int32_t>, ThreadSamples> samples;
  bool is_pooling{false};  // the first of two walks
};

IdleCauses::Impl::Impl(const Input& input)
    : in(input),
      call_of_slice(input.trace.slices.size(), kNoIndex),
      stalling(input.work.threads.size()),
      states(input.trace, input.work) {
  for (std::uint32_t i = 0; i < in.work.calls.size(); ++i) {
    const Call& call = in.work.calls[i];
    call_of_slice[call.slice] = i;
    if (stalls(call) && !call.is_nested) stalling[call.thread].push_back(i);
  }
  const trace::SampleTable& table = in.trace.samples;
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    if (table.is_native[i] == 0) samples[{table.pid[i], table.tid[i]}].all.push_back(i);
  }
  for (auto& [thread, of] : samples) {
    std::stable_sort(of.all.begin(), of.all.end(), [&](std::uint32_t a, std::uint32_t b) {
      return table.time_ns[a] < table.time_ns[b];
    });
    std::vector<double> between_ns;  // as doubles: times from outside may be anything
    for (std::size_t i = 1; i < of.all.size(); ++i)
      between_ns.push_back(static_cast<double>(table.time_ns[of.all[i]]) -
                           static_cast<double>(table.time_ns[of.all[i - 1]]));
    if (!between_ns.empty())
      of.period_ns = static_cast<std::int64_t>(
          std::min(stats::median(between_ns), static_cast<double>(kTimeMaxNs)));
  }
}

Doing IdleCauses::Impl::doing_of(std::uint32_t slice, const Doing& around) const {
  const std::string_view name = in.args.string(in.trace.slices.name[slice]);
  const std::uint32_t call = call_of_slice[slice];
  Doing own{call == kNoIndex ? cause_of_name(name) : cause_of_call(in.work.calls[call]), name,
            call != kNoIndex};
  if (in.args.string(in.trace.slices.category[slice]) == trace::kOwnCost)
    return {IdleCause::kObserver, name, false};
  // A wait inside of a call of CUDA is the call's own affair.
  if (call == kNoIndex && around.is_call) return around;
  const bool waits_for_data =
      around.cause == IdleCause::kLoader || around.cause == IdleCause::kCollective;
  if (own.cause == IdleCause::kLock && waits_for_data) return around;
  if (own.cause == IdleCause::kFunction &&
      is_operator_category(in.args.string(in.trace.slices.category[slice])))
    own.cause = IdleCause::kOperator;
  // A profiler's frames around everything say nothing.
  if (name.starts_with("ProfilerStep#")) return around;
  const bool is_plain = !keeps_what_it_calls(own.cause) && own.cause != IdleCause::kLaunching;
  if (is_plain && keeps_what_it_calls(around.cause)) return around;
  // A library's function does what the program's own one that calls it asks for.
  if (own.cause == IdleCause::kFunction && is_python_of(name, false) &&
      around.cause == IdleCause::kFunction && is_python_of(around.function, true))
    return around;
  // Other calls of CUDA are part of what makes them.
  if (call != kNoIndex && is_plain && around.cause != IdleCause::kUnknown) return around;
  return own;
}

const std::vector<Piece>& IdleCauses::Impl::pieces_of(std::uint32_t thread) {
  const auto [known, is_new] = pieces.try_emplace(thread);
  if (!is_new) return known->second;
  std::vector<Piece>& out = known->second;
  struct Open {
    std::int64_t end_ns;
    Doing doing;
  };
  std::vector<Open> open;
  std::int64_t at_ns = 0;
  const auto add = [&](std::int64_t until_ns) {
    if (!open.empty() && until_ns > at_ns) out.push_back({{at_ns, until_ns}, open.back().doing});
    at_ns = std::max(at_ns, until_ns);
  };
  const auto close_until = [&](std::int64_t until_ns) {
    while (!open.empty() && open.back().end_ns <= until_ns) {
      add(open.back().end_ns);
      open.pop_back();
    }
  };
  for (const std::uint32_t slice : in.work.threads[thread].slices) {
    const Interval time = in.host.time(slice);
    close_until(time.begin_ns);
    add(time.begin_ns);
    at_ns = std::max(at_ns, time.begin_ns);
    // A slice that only laps over the end of another is not inside it (as in HostSlices): profilers
    // round begin and duration each for itself.
    while (!open.empty() && open.back().end_ns < time.end_ns)
      open.pop_back();
    const Doing around = open.empty() ? Doing{} : open.back().doing;
    const std::int64_t end_ns =
        open.empty() ? time.end_ns : std::min(time.end_ns, open.back().end_ns);
    open.push_back({end_ns, doing_of(slice, around)});
  }
  close_until(std::int64_t{1} << 62);
  return out;
}

Doing IdleCauses::Impl::doing_of_stack(std::uint32_t sample, HostState state) const {
  const trace::StackId stack = in.trace.samples.stack[sample];
  if (stack.raw >= in.trace.stacks.size()) return {};
  Doing doing;
  bool is_in_own = false;  // and below it in a library, which does what it asks for
  for (const trace::FrameId frame : in.trace.stacks.at(stack)) {  // outermost first
    if (frame.raw >= in.trace.frames.size()) return {};
    const std::string_view function = in.args.string(in.trace.frames[frame.raw].function);
    const std::string_view file = in.args.string(in.trace.frames[frame.raw].file);
    IdleCause cause = cause_of_name(function);
    if (cause == IdleCause::kFunction) cause = cause_of_name(file);
    if (cause == IdleCause::kFunction && keeps_what_it_calls(doing.cause)) continue;
    if (cause == IdleCause::kLock && doing.cause == IdleCause::kLoader) continue;
    const bool is_own = is_own_python_file(file);
    if (cause == IdleCause::kFunction && is_in_own && !is_own) continue;
    is_in_own = is_in_own || is_own;
    doing = {cause, function};
  }
  // A function that sleeps does not compute.
  const bool is_asleep = state == HostState::kForThread || state == HostState::kBlocked;
  if (doing.cause == IdleCause::kFunction && is_asleep) doing.cause = cause_of_state(state);
  return doing;
}

/// Adds the causes by the samples of Python's stacks that fell into the piece, or into all that are
/// as short.
void IdleCauses::Impl::add_by_samples(std::uint32_t thread, const HostPiece& piece,
                                      Totals& totals) {
  const auto ns = static_cast<double>(piece.time.end_ns - piece.time.begin_ns);
  const auto otherwise = [&] { totals[{cause_of_state(piece.state), {}}] += ns; };
  const Thread& of = in.work.threads[thread];
  const auto known = samples.find({of.pid, of.tid});
  if (known == samples.end()) return otherwise();
  ThreadSamples& table = known->second;
  const auto& times = in.trace.samples.time_ns;
  const auto from =
      std::lower_bound(table.all.begin(), table.all.end(), piece.time.begin_ns,
                       [&](std::uint32_t sample, std::int64_t at) { return times[sample] < at; });
  std::vector<Doing> inside;
  for (auto at = from; at != table.all.end() && times[*at] < piece.time.end_ns; ++at)
    inside.push_back(doing_of_stack(*at, piece.state));
  const auto state = static_cast<std::size_t>(piece.state);
  const bool is_short = piece.time.end_ns - piece.time.begin_ns < table.period_ns;
  if (is_pooling) {
    for (const Doing& doing : inside) {
      if (!is_short) break;
      ++table.pooled[state][{doing.cause, doing.function}];
      ++table.pooled_count[state];
    }
    return;
  }
  if (is_short && table.pooled_count[state] >= kPooledSamplesMin) {
    for (const auto& [doing, count] : table.pooled[state])
      totals[doing] +=
          ns * static_cast<double>(count) / static_cast<double>(table.pooled_count[state]);
    return;
  }
  if (inside.empty()) return otherwise();
  for (const Doing& doing : inside)
    totals[{doing.cause, doing.function}] += ns / static_cast<double>(inside.size());
}

void IdleCauses::Impl::add_hole(std::uint32_t thread, Interval hole, const Charge& charge,
                                bool is_launching, Totals& totals) {
  for (const HostPiece& piece : states.split(thread, hole)) {
    const Interval time = piece.time;
    if (piece.state == HostState::kQueued) {
      totals[{IdleCause::kProcessor, {}}] += static_cast<double>(time.end_ns - time.begin_ns);
      continue;
    }
    const bool is_awake = piece.state == HostState::kRunning || piece.state == HostState::kUnknown;
    if (!is_awake) {
      add_by_samples(thread, piece, totals);
      continue;
    }
    const std::int64_t until_ns = std::clamp(charge.until_ns, time.begin_ns, time.end_ns);
    if (until_ns > time.begin_ns)
      totals[{charge.cause, {}}] += static_cast<double>(until_ns - time.begin_ns);
    if (time.end_ns <= until_ns) continue;
    if (is_launching) {
      totals[{IdleCause::kLaunching, {}}] += static_cast<double>(time.end_ns - until_ns);
    } else {
      add_by_samples(thread, {{until_ns, time.end_ns}, piece.state}, totals);
    }
  }
}

void IdleCauses::Impl::split(std::uint32_t thread, Interval gap, const Charge& charge,
                             bool is_launching, Totals& totals) {
  const std::vector<Piece>& all = pieces_of(thread);
  auto at = std::partition_point(all.begin(), all.end(), [&](const Piece& piece) {
    return piece.time.end_ns <= gap.begin_ns;
  });
  std::int64_t done_ns = gap.begin_ns;
  for (; at != all.end() && at->time.begin_ns < gap.end_ns; ++at) {
    const Interval part{std::max(at->time.begin_ns, gap.begin_ns),
                        std::min(at->time.end_ns, gap.end_ns)};
    if (part.begin_ns > done_ns)
      add_hole(thread, {done_ns, part.begin_ns}, charge, is_launching, totals);
    done_ns = part.end_ns;
    Doing doing = at->doing;
    std::int64_t begin_ns = part.begin_ns;
    if (is_own_code(doing.cause)) {
      const std::int64_t until_ns = std::clamp(charge.until_ns, begin_ns, part.end_ns);
      totals[{charge.cause, {}}] += static_cast<double>(until_ns - begin_ns);
      begin_ns = until_ns;
      if (is_launching) doing = {IdleCause::kLaunching, {}};
    }
    if (!is_own_code(doing.cause)) doing.function = {};
    if (part.end_ns > begin_ns)
      totals[{doing.cause, doing.function}] += static_cast<double>(part.end_ns - begin_ns);
  }
  if (done_ns < gap.end_ns) add_hole(thread, {done_ns, gap.end_ns}, charge, is_launching, totals);
}

Charge IdleCauses::Impl::charge_of(std::uint32_t thread, Interval gap) const {
  const Charge nothing{IdleCause::kSynchronisation, gap.begin_ns};
  const auto& calls = stalling[thread];
  const auto after = std::lower_bound(
      calls.begin(), calls.end(), gap.begin_ns,
      [&](std::uint32_t call, std::int64_t at) { return in.work.calls[call].time.begin_ns < at; });
  if (after == calls.begin()) return nothing;
  const Call& last = in.work.calls[*(after - 1)];
  if (!waited_for(last, gap.begin_ns)) return nothing;
  const std::int64_t returned_ns = std::max(last.time.end_ns, gap.begin_ns);
  // A long time after the return is the thread's own doing.
  if (gap.end_ns - returned_ns > kAfterSyncMaxNs) return nothing;
  return {cause_of_call(last), gap.end_ns};
}

/// The thread that launches most on the device: for gaps whose next operation has no known launch.
std::uint32_t IdleCauses::Impl::usual_thread(const Device& device) {
  const auto [known, is_new] = usual_threads.try_emplace(&device, kNoIndex);
  if (!is_new) return known->second;
  std::map<std::uint32_t, std::uint64_t> counts;
  for (const std::uint32_t op : device.ops) {
    if (in.work.ops[op].call != kNoIndex) ++counts[in.work.calls[in.work.ops[op].call].thread];
  }
  std::uint32_t best = kNoIndex;
  for (const auto& [thread, count] : counts) {
    if (best == kNoIndex || count > counts[best]) best = thread;
  }
  known->second = best;
  return best;
}

void IdleCauses::Impl::add_gap(const Device& device, Interval gap, const Op& next,
                               bool is_launching, Totals& totals) {
  if (next.call == kNoIndex) {
    const std::uint32_t thread = usual_thread(device);
    if (thread == kNoIndex) {
      totals[{IdleCause::kUnknown, {}}] += static_cast<double>(gap.end_ns - gap.begin_ns);
    } else {
      split(thread, gap, charge_of(thread, gap), is_launching, totals);
    }
    return;
  }
  const Call& launch = in.work.calls[next.call];
  // Launched before the device fell idle: what is left of the call, then the device waits for
  // something else, or for its own start.
  if (launch.time.begin_ns <= gap.begin_ns) {
    const std::int64_t called_ns =
        is_launching ? gap.end_ns : std::clamp(launch.time.end_ns, gap.begin_ns, gap.end_ns);
    totals[{cause_of_call(launch), {}}] += static_cast<double>(called_ns - gap.begin_ns);
    totals[{IdleCause::kDevice, {}}] += static_cast<double>(gap.end_ns - called_ns);
    return;
  }
  const std::int64_t launch_ns = std::min(launch.time.begin_ns, gap.end_ns);
  const Charge charge = charge_of(launch.thread, gap);
  split(launch.thread, {gap.begin_ns, launch_ns}, charge, is_launching, totals);
  const IdleCause rest =
      charge.until_ns >= gap.end_ns && !launch.is_first_use ? charge.cause : cause_of_call(launch);
  totals[{rest, {}}] += static_cast<double>(gap.end_ns - launch_ns);
}

IdleCauses::IdleCauses(const Input& in) : impl_(std::make_unique<Impl>(in)) {}
IdleCauses::~IdleCauses() = default;

template <typename OfGap>
void IdleCauses::Impl::walk(const Device& device, Interval window, const Stretches& stretches,
                            OfGap of_gap) {
  std::int64_t busy_until_ns = -1;
  std::uint32_t last = kNoIndex;  // the last of the operations that were busy until then
  for (const std::uint32_t i : device.ops) {
    const Op& op = in.work.ops[i];
    if (!is_busy(op.what)) continue;
    const Interval gap{std::max(busy_until_ns, window.begin_ns),
                       std::min(op.time.begin_ns, window.end_ns)};
    if (busy_until_ns >= 0 && gap.begin_ns < gap.end_ns) {
      const bool is_late = std::binary_search(stretches.late.begin(), stretches.late.end(), i);
      Totals totals;
      add_gap(device, gap, op, is_late, totals);
      of_gap(Gap{gap, IdleCause::kUnknown, {}, last, i}, totals);
    }
    if (op.time.end_ns <= busy_until_ns) continue;
    busy_until_ns = op.time.end_ns;
    last = i;
  }
}

std::vector<IdleRow> IdleCauses::rows(const Device& device, Interval window,
                                      const Stretches& stretches) {
  for (auto& [thread, of] : impl_->samples) {
    of.pooled = {};
    of.pooled_count = {};
  }
  impl_->is_pooling = true;
  impl_->walk(device, window, stretches, [](const Gap&, const Totals&) {});
  impl_->is_pooling = false;
  Totals totals;
  std::map<IdleCause, std::array<double, kFewGaps>> longest;  // of each, the longest first
  std::map<IdleCause, double> brief;
  impl_->walk(device, window, stretches, [&](const Gap& gap, const Totals& of_gap) {
    std::map<IdleCause, double> of_cause;
    for (const auto& [key, ns] : of_gap) {
      totals[key] += ns;
      of_cause[key.first] += ns;
    }
    for (const auto& [cause, ns] : of_cause) {
      double rest = ns;
      for (double& before : longest[cause]) {
        if (rest > before) std::swap(rest, before);
      }
      if (gap.time.end_ns - gap.time.begin_ns <= kLaunchGapMaxNs) brief[cause] += ns;
    }
  });
  std::map<IdleCause, IdleRow> rows;
  std::map<IdleCause, double> most;
  const double window_ns = static_cast<double>(window.end_ns - window.begin_ns);
  for (const auto& [key, ns] : totals) {
    if (ns <= 0) continue;
    IdleRow& row = rows[key.first];
    row.cause = key.first;
    row.us += ns / 1e3;
    const auto& few = longest[key.first];
    row.longest_us = few.front() / 1e3;
    row.few_us = std::accumulate(few.begin(), few.end(), 0.0) / 1e3;
    row.brief_us = brief[key.first] / 1e3;
    row.share += window_ns > 0 ? ns / window_ns : 0;
    if (!key.second.empty() && ns > most[key.first]) {
      most[key.first] = ns;
      row.function = std::string(key.second);
      row.function_us = ns / 1e3;
    }
  }
  std::vector<IdleRow> out;
  out.reserve(rows.size());
  for (auto& [cause, row] : rows)
    out.push_back(std::move(row));
  std::stable_sort(out.begin(), out.end(),
                   [](const IdleRow& a, const IdleRow& b) { return a.us > b.us; });
  return out;
}

namespace {

/// The cause that most of a gap is charged to, and the function that most of that is.
std::pair<IdleCause, std::string_view> most_of(const Totals& totals) {
  std::map<IdleCause, double> of_cause;
  std::pair<IdleCause, std::string_view> out{IdleCause::kUnknown, {}};
  double most = 0, most_of_function = 0;
  for (const auto& [key, ns] : totals) {
    const double sum = of_cause[key.first] += ns;
    if (sum > most) std::tie(most, out.first) = std::pair(sum, key.first);
  }
  for (const auto& [key, ns] : totals) {
    if (key.first == out.first && ns > most_of_function)
      std::tie(most_of_function, out.second) = std::pair(ns, key.second);
  }
  return out;
}

}  // namespace

std::vector<IdleCauses::Gap> IdleCauses::gaps(const Device& device, Interval part,
                                              const Stretches& stretches) {
  std::vector<Gap> out;
  impl_->walk(device, part, stretches, [&](Gap found, const Totals& totals) {
    std::tie(found.cause, found.function) = most_of(totals);
    out.push_back(found);
  });
  return out;
}

std::optional<LongestIdle> IdleCauses::longest(const Device& device, Interval window,
                                               const Stretches& stretches,
                                               std::int64_t host_begin_ns) {
  std::optional<LongestIdle> out;
  const auto take = [&](Interval gap, bool is_first, const Totals& totals) {
    const double us = us_of(gap.end_ns - gap.begin_ns);
    if (us <= (out ? out->us : 0)) return;
    const auto [cause, function] = most_of(totals);
    out = {.us = us, .is_first = is_first, .cause = cause, .function = std::string(function)};
  };
  impl_->walk(device, window, stretches,
              [&](const Gap& gap, const Totals& totals) { take(gap.time, false, totals); });
  const auto first = std::find_if(device.ops.begin(), device.ops.end(), [&](std::uint32_t op) {
    return is_busy(impl_->in.work.ops[op].what);
  });
  if (first == device.ops.end()) return out;
  const Op& op = impl_->in.work.ops[*first];
  const Interval front{host_begin_ns, op.time.begin_ns};
  if (front.begin_ns < front.end_ns && front.end_ns <= window.end_ns) {
    Totals totals;
    impl_->add_gap(device, front, op, false, totals);
    take(front, true, totals);
  }
  return out;
}

}  // namespace kansoku::gpu::activity
