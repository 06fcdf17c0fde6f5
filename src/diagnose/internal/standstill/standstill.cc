// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/standstill/standstill.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "common/python_code.h"
#include "common/time.h"
#include "diagnose/internal/standstill/last_stack.h"
#include "diagnose/internal/steps/counters.h"
#include "diagnose/internal/steps/names.h"
#include "diagnose/internal/steps/phases.h"
#include "diagnose/internal/steps/sleeps.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"
#include "trace/merge.h"

namespace kansoku::diagnose {
namespace {

constexpr std::size_t kMissingTold = 64;

enum class Posture : std::uint8_t {
  kUnknown,
  kStopped,
  kInCommunication,
  kAsleep,
  kOutside,  // asleep in a call that somebody outside of the job may end
  kAtWork,
};

/// Place of a rank all the time that it was looked at.
struct Stand {
  Posture posture{Posture::kUnknown};
  LastStack stack;     // of its training thread, or of the one that is in communication for it
  std::string call;    // in communication: "all_reduce", "backward"
  LastStack beside{};  // of another thread that is in communication as well; else empty
};

bool are_nearly_all(std::size_t count, std::size_t of) {
  return of >= kFewSamplesMin &&
         static_cast<double>(count) >= kNearlyAllShare * static_cast<double>(of);
}

/// Samples of one thread within the time that is looked at, together.
struct ThreadLook {
  LastStack stack;
  std::size_t asleep{0}, busy{0};  // samples on a processor, ready, or at a disk are busy

  [[nodiscard]] bool stands() const { return are_nearly_all(stack.count, stack.samples); }
  [[nodiscard]] bool sleeps() const { return are_nearly_all(asleep, stack.samples); }
  /// It computes, or goes on from one place to another. One that ended before does neither.
  [[nodiscard]] bool is_at_work() const {
    return stack.samples > 0 && (2 * busy > stack.samples || !stands());
  }
};

ThreadLook look_at(const trace::Trace& trace, const std::vector<const ThreadSample*>& samples) {
  ThreadLook out{.stack = last_stack(trace, samples)};
  for (const ThreadSample* const sample : samples) {
    if (sample->state == trace::SampleState::kSleeping) ++out.asleep;
    if (sample->state == trace::SampleState::kRunning || sample->state == trace::SampleState::kDisk)
      ++out.busy;
  }
  return out;
}

ThreadLook look_at(const trace::Trace& trace, const std::vector<ThreadSample>& samples,
                   Interval window) {
  std::vector<const ThreadSample*> within;
  for (const ThreadSample& sample : samples)
    if (sample.time_ns >= window.begin_ns) within.push_back(&sample);
  return look_at(trace, within);
}

/// By process, its threads but the training one, by number.
using OtherThreads = std::map<std::int32_t, std::map<std::int32_t, std::vector<ThreadSample>>>;

OtherThreads other_threads(const trace::Trace& trace, const JobData& job) {
  std::map<std::int32_t, std::int32_t> main_of;
  for (const RankData& rank : job.ranks)
    main_of.emplace(rank.pid, rank.main_tid);
  OtherThreads out;
  const trace::SampleTable& table = trace.samples;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto rank = main_of.find(table.pid[i]);
    if (rank == main_of.end() || rank->second == table.tid[i] || table.is_native[i] != 0) continue;
    out[table.pid[i]][table.tid[i]].push_back(
        {table.time_ns[i], table.stack[i], table.state[i], table.holds_gil[i] != 0});
  }
  return out;
}

/// A rank that waits for its workers, or for other threads of its own, comes when these do. Threads
/// without Python stacks are known by the scheduler's events, or by the processor time of them all:
/// `cores`.
bool has_helper_at_work(const trace::Trace& trace, const RankData& rank,
                        const std::vector<ThreadLook>& others, double cores, Interval window) {
  if (cores > 1 - kNearlyAllShare) return true;
  const double least_ns =
      (1 - kNearlyAllShare) * static_cast<double>(window.end_ns - window.begin_ns);
  return std::any_of(others.begin(), others.end(),
                     [](const ThreadLook& look) { return look.is_at_work(); }) ||
         std::any_of(rank.workers.begin(), rank.workers.end(),
                     [&](const WorkerData& worker) {
                       return look_at(trace, worker.samples, window).is_at_work();
                     }) ||
         std::any_of(rank.helpers_running.begin(), rank.helpers_running.end(),
                     [&](const IntervalSet& helper) {
                       return static_cast<double>(helper.measure_ns(window)) > least_ns;
                     });
}

/// The wait that the kernel tells of a main thread in nearly all looks; nothing: none, or several.
struct KernelWait {
  std::string_view call, on;
  std::size_t count{0}, looks{0};
};
std::optional<KernelWait> wait_of(const std::vector<SleepSample>& seen) {
  std::map<std::pair<std::string_view, std::string_view>, std::size_t> waits;
  for (const SleepSample& sample : seen)
    ++waits[{sample.call, sample.on}];
  for (const auto& [wait, count] : waits)
    if (are_nearly_all(count, seen.size()))
      return KernelWait{wait.first, wait.second, count, seen.size()};
  return std::nullopt;
}

std::optional<KernelWait> wait_of(const trace::Trace& trace, const RankData& rank,
                                  Interval window) {
  return wait_of(sleep_samples(trace, rank.main_tid, IntervalSet::of({window})));
}

/// Calls that somebody outside of the job may end: a server that answers, a program that it runs.
bool may_end_from_outside(std::string_view call) {
  static constexpr std::array<std::string_view, 13> kCalls{
      "read",     "recvfrom", "recvmsg", "recvmmsg",   "poll",        "ppoll", "select",
      "pselect6", "accept",   "connect", "epoll_wait", "epoll_pwait", "wait4"};
  return call == "waitid" || std::find(kCalls.begin(), kCalls.end(), call) != kCalls.end();
}

/// The call of communication that a sleeping thread with these frames, outermost first, waits in;
/// empty: it is elsewhere. A function of the job's own that such a call runs is elsewhere.
std::string call_of(const trace::Trace& trace, const std::vector<trace::Frame>& frames) {
  const auto file_of = [&](const trace::Frame& frame) { return text_of(trace, frame.file); };
  const auto own = std::find_if(frames.rbegin(), frames.rend(), [&](const trace::Frame& frame) {
    return is_own_python_file(file_of(frame));
  });
  for (auto frame = own.base(); frame != frames.end(); ++frame)
    if (is_communication(file_of(*frame))) return std::string(text_of(trace, frame->function));
  if (frames.empty()) return {};
  const trace::Frame& leaf = frames.back();
  if (is_distributed(file_of(leaf))) return std::string(text_of(trace, leaf.function));
  const bool is_backward =
      classify_frame(text_of(trace, leaf.function), file_of(leaf)) == FrameRole::kBackward;
  return is_backward ? "backward" : "";
}

/// A worker of the data loader is one of the job: it was looked at, too.
bool waits_outside(const trace::Trace& trace, const std::vector<SleepSample>& sleeps,
                   const LastStack& stack) {
  const auto wait = wait_of(sleeps);
  return wait && may_end_from_outside(wait->call) &&
         std::none_of(stack.frames.begin(), stack.frames.end(), [&](const trace::Frame& frame) {
           return is_worker_wait(text_of(trace, frame.function), text_of(trace, frame.file));
         });
}

/// Work and waits of a job's ranks beside their training threads.
struct Beside {
  OtherThreads threads;
  std::map<std::int32_t, double> cores;  // that all threads of a rank use, by its number
  std::map<std::int32_t, std::vector<SleepSample>> sleeps;  // by thread
};

Beside beside_of(const trace::Trace& trace, const JobData& job, Interval window) {
  return {other_threads(trace, job), growth_of(trace, job, "processor time", window),
          sleep_samples(trace, IntervalSet::of({window}))};
}

Stand stand_of(const trace::Trace& trace, const RankData& rank, const Beside& beside,
               Interval window) {
  const auto samples = samples_since(rank, window.begin_ns);
  ThreadLook main = look_at(trace, samples);
  Stand out{.posture = Posture::kUnknown, .stack = main.stack, .call = {}};
  if (samples.size() < kFewSamplesMin) return out;
  out.posture = is_stopped(samples, false) ? Posture::kStopped : Posture::kAtWork;
  const double length_ns = static_cast<double>(window.end_ns - window.begin_ns);
  const bool runs =
      static_cast<double>(rank.main.running.measure_ns(window)) > (1 - kNearlyAllShare) * length_ns;
  if (out.posture == Posture::kStopped || runs || !main.sleeps() || !main.stands()) return out;
  std::vector<ThreadLook> others;
  std::vector<LastStack> in_communication;
  if (!call_of(trace, main.stack.frames).empty()) in_communication.push_back(main.stack);
  static const std::map<std::int32_t, std::vector<ThreadSample>> kNoThreads;
  const auto threads = beside.threads.find(rank.pid);
  for (const auto& [tid, of_thread] :
       threads == beside.threads.end() ? kNoThreads : threads->second) {
    others.push_back(look_at(trace, of_thread, window));
    const ThreadLook& look = others.back();
    if (look.sleeps() && look.stands() && !call_of(trace, look.stack.frames).empty())
      in_communication.push_back(look.stack);
  }
  if (!in_communication.empty()) {
    out.posture = Posture::kInCommunication;
    out.stack = in_communication.front();
    out.call = call_of(trace, out.stack.frames);
    if (in_communication.size() > 1) out.beside = in_communication[1];
  } else if (const auto cores = beside.cores.find(rank.rank);
             !out.stack.frames.empty() &&
             !has_helper_at_work(trace, rank, others,
                                 cores == beside.cores.end() ? 0 : cores->second, window)) {
    const auto sleeps = beside.sleeps.find(rank.main_tid);
    const bool is_outside =
        sleeps != beside.sleeps.end() && waits_outside(trace, sleeps->second, out.stack);
    out.posture = is_outside ? Posture::kOutside : Posture::kAsleep;
  }
  return out;
}

/// "asleep in backward, called from step (train.py:60): rank 0, 1": ranks of one call and place
/// together.
std::vector<std::string> who_waits_where(const trace::Trace& trace, const JobData& job,
                                         const std::vector<Stand>& stands) {
  std::map<std::tuple<std::string, std::string, std::string, std::uint32_t>,
           std::vector<std::int32_t>>
      places;
  for (std::size_t r = 0; r < stands.size(); ++r) {
    if (stands[r].posture != Posture::kInCommunication) continue;
    const auto add = [&](const std::string& call, const LastStack& stack) {
      Finding here;
      set_place(trace, stack.frames, here);
      places[{call, here.function, here.file, here.line}].push_back(job.ranks[r].rank);
    };
    add(stands[r].call, stands[r].stack);
    if (const LastStack& beside = stands[r].beside; !beside.frames.empty())
      add(call_of(trace, beside.frames), beside);
  }
  std::vector<std::string> out;
  for (const auto& [place, ranks] : places) {
    const auto& [call, function, file, line] = place;
    const std::string numbers = fmt::format("{}", fmt::join(ranks, ", "));
    out.push_back(call == function
                      ? fmt::format(words::kAsleepInPlace, call, file, line, numbers)
                      : fmt::format(words::kAsleepInCall, call, function, file, line, numbers));
  }
  return out;
}

/// The kernel's wait of a rank that sleeps outside of communication. A lock that no frame of
/// Python's own locks shows is one of the program's. A rank that waits for a worker process stands
/// where that one does.
void add_sleep(const trace::Trace& trace, const RankData& rank, const LastStack& stack,
               Interval window, Finding& finding) {
  if (const auto wait = wait_of(trace, rank, window)) {
    finding.evidence.push_back(fmt::format(words::kSleepsAllTime, wait_text(wait->call, wait->on),
                                           wait->count, wait->looks));
    if (wait->call == "futex" && finding.verdict == "missing_rank") finding.verdict = "deadlock";
  }
  const auto is_frame_of = [&](const std::vector<trace::Frame>& frames, auto&& test) {
    return std::any_of(frames.begin(), frames.end(), [&](const trace::Frame& frame) {
      return test(text_of(trace, frame.function), text_of(trace, frame.file));
    });
  };
  if (!is_frame_of(stack.frames, is_worker_wait)) return;
  for (const WorkerData& worker : rank.workers) {
    const LastStack at = look_at(trace, worker.samples, window).stack;
    if (at.frames.empty() || is_frame_of(at.frames, is_worker_idle)) continue;
    finding.evidence.push_back(
        fmt::format(words::kStandsForWorker, trace::pid_on_host(worker.pid)));
    add_last_stack(trace, at, finding);
    return;
  }
}

/// Ranks of the job that the recording does not have.
std::vector<std::int32_t> missing_ranks(const JobData& job) {
  std::vector<std::int32_t> out;
  for (std::int32_t number = 0; number < job.world_size && out.size() < kMissingTold; ++number) {
    if (std::none_of(job.ranks.begin(), job.ranks.end(),
                     [&](const RankData& rank) { return rank.rank == number; }))
      out.push_back(number);
  }
  return out;
}

/// Builds the finding of a job whose ranks stand like this.
class Describer {
 public:
  Describer(const trace::Trace& trace, const JobData& job, const std::vector<Stand>& stands,
            Interval window)
      : trace_(trace), job_(job), stands_(stands), window_(window) {}

  Hang describe(std::string_view kind, std::vector<std::int32_t> ranks) const {
    Hang out;
    Finding& finding = out.finding;
    finding.kind = kind;
    finding.share = 1;
    finding.basis = Basis::kObservation;
    finding.ranks = std::move(ranks);
    finding.cost_ms_per_step = span_ms();
    finding.evidence = who_waits_where(trace_, job_, stands_);
    finding.evidence.push_back(fmt::format(words::kSinceUnknown, span_ms() / kMsPerSecond));
    return out;
  }

  /// Ranks that others wait for, all in one posture.
  Hang held_up_by(Posture posture, const std::vector<std::size_t>& culprits) const {
    std::vector<std::int32_t> numbers;
    for (const std::size_t r : culprits)
      numbers.push_back(job_.ranks[r].rank);
    Hang out = describe(posture == Posture::kStopped ? "stopped" : "hang", std::move(numbers));
    Finding& finding = out.finding;
    finding.evidence.push_back(
        posture == Posture::kStopped
            ? std::string(words::kItsProcessStopped)
            : fmt::format(words::kAsleepOutside, fmt::join(finding.ranks, ", ")));
    const std::size_t first = culprits.front();
    const LastStack& stack = stands_[first].stack;
    add_last_stack(trace_, stack, finding);
    finding.verdict = standstill_verdict(trace_, job_, window_.begin_ns, stack, finding);
    if (posture == Posture::kAsleep) add_sleep(trace_, job_.ranks[first], stack, window_, finding);
    return grouped(std::move(out));
  }

  /// Two threads of a rank wait in communication at once, and no rank is elsewhere.
  std::optional<Hang> crossed() const {
    const auto two = std::find_if(stands_.begin(), stands_.end(),
                                  [](const Stand& stand) { return !stand.beside.frames.empty(); });
    if (two == stands_.end()) return std::nullopt;
    Hang out = describe("hang", {});
    out.finding.verdict = "mismatched_collective";
    out.finding.evidence.push_back(fmt::format(
        words::kTwoThreads, job_.ranks[static_cast<std::size_t>(two - stands_.begin())].rank));
    add_last_stack(trace_, two->stack, out.finding);
    return grouped(std::move(out));
  }

  /// The ranks in a call that most others are not in; nothing if no collective has most.
  std::optional<Hang> mismatched() const {
    std::map<std::string, std::vector<std::size_t>> calls;
    for (std::size_t r = 0; r < stands_.size(); ++r)
      calls[stands_[r].call].push_back(r);
    if (calls.size() != 2) return std::nullopt;
    const auto& [first, second] = std::pair(*calls.begin(), *std::next(calls.begin()));
    if (first.second.size() == second.second.size()) return std::nullopt;
    const bool is_first = first.second.size() < second.second.size();
    const auto &fewer = is_first ? first : second, &most = is_first ? second : first;
    if (is_between_two(most.first)) return std::nullopt;
    const bool is_message = is_between_two(fewer.first);
    std::vector<std::int32_t> numbers;
    for (const std::size_t r : fewer.second)
      numbers.push_back(job_.ranks[r].rank);
    Hang out = describe("hang", std::move(numbers));
    out.finding.verdict = is_message ? "missing_rank" : "mismatched_collective";
    out.finding.evidence.emplace_back(is_message ? words::kOneWaitsForAMessage
                                                 : words::kOneIsInAnother);
    add_last_stack(trace_, stands_[fewer.second.front()].stack, out.finding);
    return grouped(std::move(out));
  }

  std::string waits_for_others(const std::vector<std::size_t>& at_work, Posture posture) const {
    std::vector<std::int32_t> waiting, working;
    for (std::size_t r = 0; r < stands_.size(); ++r)
      if (stands_[r].posture == Posture::kInCommunication) waiting.push_back(job_.ranks[r].rank);
    for (const std::size_t r : at_work)
      working.push_back(job_.ranks[r].rank);
    Finding here;
    set_place(trace_, stands_[at_work.front()].stack.frames, here);
    const auto wait = wait_of(trace_, job_.ranks[at_work.front()], window_);
    const std::string state =
        posture == Posture::kOutside && wait
            ? fmt::format(words::kAsleepAndMayWake, wait_text(wait->call, wait->on))
            : std::string(words::kAtWork);
    return fmt::format(words::kWaitForOneAtWork, fmt::join(waiting, ", "),
                       waiting.size() == 1 ? "waits" : "wait", fmt::join(working, ", "), state,
                       here.function, here.file, here.line, span_ms() / kMsPerSecond);
  }

  std::string all_wait() const {
    return fmt::format(words::kAllInCommunication, span_ms() / kMsPerSecond,
                       fmt::join(who_waits_where(trace_, job_, stands_), "; "));
  }

  double span_ms() const {
    return static_cast<double>(window_.end_ns - window_.begin_ns) / kNsPerMs;
  }

 private:
  static constexpr double kMsPerSecond = 1000;

  /// A message has two ends, whose calls differ.
  static bool is_between_two(std::string_view call) {
    return call.find("send") != std::string_view::npos ||
           call.find("recv") != std::string_view::npos || call == "wait" ||
           call.find("p2p") != std::string_view::npos;
  }

  Hang grouped(Hang out) const {
    out.groups = groups_by_stack(trace_, job_, window_.begin_ns, out.finding);
    return out;
  }

  const trace::Trace& trace_;
  const JobData& job_;
  const std::vector<Stand>& stands_;
  Interval window_;
};

/// True if one path of functions was seen all the time; its lines may change. Not nearly all: an
/// evaluation may spend nine looks of ten in one kernel, and moves on.
bool is_in_one_function(const trace::Trace& trace,
                        const std::vector<const ThreadSample*>& samples) {
  std::set<std::vector<trace::StringId>> paths;
  for (const ThreadSample* const sample : samples) {
    std::vector<trace::StringId> path;
    for (const trace::Frame& frame : frames_of(trace, sample->stack))
      path.push_back(frame.function);
    paths.insert(std::move(path));
  }
  return paths.size() == 1 && !paths.begin()->empty();
}

std::vector<RankPlace> rank_places(const trace::Trace& trace, const JobData& job,
                                   const std::vector<Stand>& stands, Interval window) {
  std::vector<RankPlace> out;
  for (std::size_t r = 0; r < stands.size(); ++r) {
    Finding here;
    set_place(trace, stands[r].stack.frames, here);
    const Posture posture = stands[r].posture;
    out.push_back(
        {.rank = job.ranks[r].rank,
         .waits = posture == Posture::kInCommunication,
         .is_at_work = posture == Posture::kAtWork,
         .stands_still = is_in_one_function(trace, samples_since(job.ranks[r], window.begin_ns)),
         .function = here.function,
         .file = here.file,
         .line = here.line,
         .stack = here.stack});
  }
  return out;
}

/// The time in which all ranks were sampled that were at all.
Interval sampled_window(const JobData& job) {
  Interval out{0, kTimeMaxNs};
  for (const RankData& rank : job.ranks) {
    if (rank.samples.empty()) continue;
    out.begin_ns = std::max(out.begin_ns, rank.samples.front().time_ns);
    out.end_ns = std::min(out.end_ns, rank.samples.back().time_ns);
  }
  return out.end_ns == kTimeMaxNs ? Interval{0, 0} : out;
}

}  // namespace

void tell_sleep(const trace::Trace& trace, const JobData& job, const RankData& rank,
                std::int64_t since_ns, Finding& finding) {
  const Interval window{since_ns, job.end_ns};
  const Stand stand = stand_of(trace, rank, beside_of(trace, job, window), window);
  if (stand.posture == Posture::kAsleep) add_sleep(trace, rank, stand.stack, window, finding);
}

Standstill find_standstill(const trace::Trace& trace, const JobData& job) {
  if (job.ranks.size() < 2) return {};
  const Interval window = sampled_window(job);
  const auto least_ns = static_cast<std::int64_t>(kStandstillMinMs * kNsPerMs);
  if (window.end_ns - window.begin_ns < least_ns) return {};
  std::vector<Stand> stands;
  std::map<Posture, std::vector<std::size_t>> by_posture;
  const Beside beside = beside_of(trace, job, window);
  for (const RankData& rank : job.ranks) {
    stands.push_back(stand_of(trace, rank, beside, window));
    by_posture[stands.back().posture].push_back(stands.size() - 1);
  }
  Standstill out;
  out.all_move = std::all_of(stands.begin(), stands.end(), [](const Stand& stand) {
    return stand.posture == Posture::kAtWork &&
           !are_nearly_all(stand.stack.count, stand.stack.samples);
  });
  if (const auto unknown = by_posture.find(Posture::kUnknown); unknown != by_posture.end()) {
    std::vector<std::int32_t> numbers;
    for (const std::size_t r : unknown->second)
      numbers.push_back(job.ranks[r].rank);
    out.note = fmt::format(words::kNoStacksOf, fmt::join(numbers, ", "));
    return out;
  }
  if (!by_posture.contains(Posture::kInCommunication)) return out;
  out.places = rank_places(trace, job, stands, window);
  const Describer describer(trace, job, stands, window);
  for (const Posture posture :
       {Posture::kStopped, Posture::kAtWork, Posture::kOutside, Posture::kAsleep}) {
    const auto found = by_posture.find(posture);
    if (found == by_posture.end()) continue;
    if (posture == Posture::kAtWork || posture == Posture::kOutside)
      out.note = describer.waits_for_others(found->second, posture);
    else
      out.hang = describer.held_up_by(posture, found->second);
    return out;
  }
  if (const auto missing = missing_ranks(job); !missing.empty()) {
    out.note = fmt::format(words::kNotAmongProcesses, fmt::join(missing, ", "));
    return out;
  }
  if (out.hang = describer.crossed(); !out.hang) out.hang = describer.mismatched();
  if (!out.hang) out.note = describer.all_wait();
  return out;
}

}  // namespace kansoku::diagnose
