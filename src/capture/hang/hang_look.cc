// SPDX-License-Identifier: Apache-2.0
#include "capture/hang/hang_look.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "capture/job.h"
#include "capture/python/sampler.h"
#include "common/text.h"
#include "sys/clock.h"
#include "sys/elf.h"

namespace kansoku::capture::hang {
namespace {

using cuda::RankAt;
using cuda::Stuck;
using cuda::StuckKind;
using cuda::Suspect;

/// Value of wire_cuda_state::poller_phase.
constexpr std::uint32_t kPhaseInDriver = 2;
constexpr std::string_view kOwnThread = "kansoku-cuda";
/// Whose launch sites are told; a set may have many kernels.
constexpr std::size_t kKernelsWithSites = 4;
constexpr std::size_t kThreadsLookedAt = 256;
constexpr std::size_t kWalksOfACopy = 3;
constexpr std::size_t kThreadsTold = 16;

cuda::IsCollective collectives_in(const HangLook& look) {
  return [&look](const Suspect& one) {
    if (one.what == WIRE_CUDA_HOST_FUNCTION) return look.uses_nccl;
    const auto kernel = look.snapshot.kernels.find(one.kernel);
    return one.what == WIRE_CUDA_LAUNCH && kernel != look.snapshot.kernels.end() &&
           kernel->second.info.name.find("nccl") != std::string::npos;
  };
}

/// Collectives that the process handed over: kernels of NCCL, and the host functions that stand-ins
/// for it put into streams. Ranks of one job make the same ones in the same order.
std::uint64_t collectives_of(const HangLook& look) {
  std::uint64_t out = 0;
  for (const cuda::EntryTotals& entry : look.snapshot.entries)
    if (entry.what == WIRE_CUDA_HOST_FUNCTION && look.uses_nccl)
      out += entry.calls - std::min(entry.calls, entry.failed + entry.captured);
  for (const auto& [index, kernel] : look.snapshot.kernels)
    if (kernel.info.name.find("nccl") != std::string::npos) out += kernel.info.launches;
  return out;
}

bool maps_nccl(const sys::Procfs& procfs, std::int32_t pid) {
  const auto maps = procfs.maps(pid);
  return maps && std::any_of(maps->begin(), maps->end(), [](const sys::Mapping& mapping) {
           return mapping.path.find("libnccl") != std::string::npos;
         });
}

std::vector<FrameText> python_stack(const std::vector<python::PyStack>& stacks, std::int32_t pid,
                                    std::int32_t tid) {
  std::vector<FrameText> out;
  for (const python::PyStack& stack : stacks) {
    // Before 3.11 the main thread's number is not told.
    if (stack.tid != tid && !(stack.tid == 0 && tid == pid)) continue;
    for (auto frame = stack.frames.rbegin(); frame != stack.frames.rend(); ++frame)
      out.push_back({std::string(frame->function), std::string(frame->file), frame->line, false});
    break;
  }
  return out;
}

std::vector<FrameText> frames_text(const std::vector<sys::NativeFrame>& frames) {
  std::vector<FrameText> out;
  out.reserve(frames.size());
  for (const sys::NativeFrame& frame : frames)
    out.push_back({frame.function.empty() ? std::string() : sys::demangle(frame.function),
                   frame.file, 0, frame.is_guessed});
  return out;
}

void fill_stacks(const sys::Procfs& procfs, HangLook& look, sys::NativeStacks& stacks) {
  std::vector<python::PyStack> found;
  const auto python = python::Process::attach(look.pid, procfs, {});
  if (python) static_cast<void>((*python)->sample(found));
  for (ThreadText& thread : look.threads) {
    thread.python = python_stack(found, look.pid, thread.tid);
    if (const auto stack = stacks.of(look.pid, thread.tid)) thread.native = frames_text(*stack);
  }
}

void add_threads(const sys::Procfs& procfs, HangLook& look, sys::NativeStacks& stacks) {
  for (const cuda::Waiter& waiter : look.snapshot.waiters) {
    ThreadText thread;
    thread.tid = static_cast<std::int32_t>(waiter.tid);
    thread.call = waiter.entry;
    if (waiter.since_ns < look.snapshot.at_ns)
      thread.seconds = 1e-9 * static_cast<double>(look.snapshot.at_ns - waiter.since_ns);
    look.threads.push_back(std::move(thread));
  }
  fill_stacks(procfs, look, stacks);
}

/// Adds the stack of the process that others wait for, if no thread of it waits in the driver.
void add_main_thread(const sys::Procfs& procfs, HangLook& look, sys::NativeStacks& stacks) {
  if (!look.threads.empty() || look.verdict == HangVerdict::kGone) return;
  look.threads.emplace_back().tid = look.pid;
  fill_stacks(procfs, look, stacks);
}

void add_progress(const cuda::Snapshot& before, HangLook& look) {
  for (const cuda::StreamInfo& stream : look.snapshot.streams) {
    const auto old =
        std::find_if(before.streams.begin(), before.streams.end(), [&](const auto& one) {
          return one.index == stream.index && one.generation == stream.generation;
        });
    if (old == before.streams.end() || stream.completed > old->completed ||
        stream.known_done != old->known_done)
      look.moving.push_back(stream.index);
  }
}

/// A thread that runs, wants to, or waits for a disk. Those that wait in the driver may spin there.
bool has_busy_thread(const sys::Procfs& procfs, const HangLook& look) {
  for (const std::int32_t tid : procfs.tids(look.pid)) {
    const auto stat = procfs.thread_stat(look.pid, tid);
    if (!stat || (stat->state != 'R' && stat->state != 'D') || stat->comm == kOwnThread) continue;
    if (std::none_of(look.threads.begin(), look.threads.end(),
                     [&](const ThreadText& thread) { return thread.tid == tid; }))
      return true;
  }
  return false;
}

std::uint64_t ticks_of(const sys::Procfs& procfs, std::int32_t pid) {
  const auto stat = procfs.stat(pid);
  return stat ? stat->user_ticks + stat->system_ticks : 0;
}

bool is_at_work(const sys::Procfs& procfs, const FirstLook& first, const HangLook& look) {
  if (look.is_stopped) return false;
  if (!look.moving.empty()) return true;
  const std::uint64_t ticks = ticks_of(procfs, look.pid);
  const double seconds =
      1e-9 * static_cast<double>(look.snapshot.at_ns - std::min(look.snapshot.at_ns, first.at_ns));
  const double used = ticks < first.ticks ? 0
                                          : static_cast<double>(ticks - first.ticks) /
                                                static_cast<double>(::sysconf(_SC_CLK_TCK));
  const bool did_wait =
      std::any_of(look.snapshot.waiters.begin(), look.snapshot.waiters.end(),
                  [&](const cuda::Waiter& waiter) { return waiter.since_ns <= first.at_ns; });
  return (!did_wait && used >= cuda::kAtWorkShare * seconds) || has_busy_thread(procfs, look);
}

/// Why the library's thread gives no sign of life: then its data are as old.
std::optional<std::string> why_silent(const HangLook& look, bool is_asleep) {
  if (look.is_stopped) return "the process is stopped by a signal or a debugger";
  const wire_cuda_state& state = look.snapshot.state;
  if (is_asleep || !is_silent(look.snapshot)) return std::nullopt;
  const double seconds = 1e-9 * static_cast<double>(look.snapshot.at_ns - state.poller_ns);
  return state.poller_phase == kPhaseInDriver
             ? fmt::format(
                   "the driver has not returned from a call of the library's thread for "
                   "{:.1f} s",
                   seconds)
             : fmt::format("the library's thread has not run for {:.1f} s", seconds);
}

/// "cuStreamSynchronize" of a function that waits for the device, a stand-in's prefix taken off; ""
/// for any other.
std::string_view waiting_call(std::string_view function) {
  constexpr std::array<std::string_view, 7> kCalls{
      "cuStreamSynchronize",   "cuCtxSynchronize",      "cuEventSynchronize",  "cuMemcpy",
      "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"};
  for (const std::string_view call : kCalls)
    if (const std::size_t at = function.find(call); at != std::string_view::npos)
      return function.substr(at);
  return {};
}

bool is_waiter(const std::vector<cuda::Waiter>& waiters, std::int32_t tid) {
  return std::any_of(waiters.begin(), waiters.end(), [&](const auto& waiter) {
    return static_cast<std::int32_t>(waiter.tid) == tid;
  });
}

/// The call in which a thread waits, "" if it waits in none. An asynchronous copy waits as well if
/// the memory is pageable, and is over in no time if not: it counts where every walk finds it.
std::string waits_in(std::int32_t pid, std::int32_t tid, sys::NativeStacks& stacks) {
  std::string found;
  for (std::size_t walk = 0; walk < kWalksOfACopy; ++walk) {
    const auto stack = stacks.of(pid, tid);
    if (!stack) return {};
    std::string_view call;
    for (const sys::NativeFrame& frame : *stack)
      if (call.empty() && !frame.is_guessed) call = waiting_call(frame.function);
    if (call.empty() || (walk > 0 && call != found)) return {};
    found = call;
    if (found.find("Async") == std::string::npos) break;
  }
  return found;
}

/// A thread that waits in the driver, and of whose call the library does not know, not afterwards
/// either: it began before the library awoke.
std::optional<std::string> waits_since_before(const sys::Procfs& procfs, const HangLook& look,
                                              const cuda::Channel& channel,
                                              sys::NativeStacks& stacks) {
  if (look.snapshot.state.awake_ns == 0) return std::nullopt;
  std::size_t left = kThreadsLookedAt;
  for (const std::int32_t tid : procfs.tids(look.pid)) {
    if (left-- == 0) break;
    if (is_waiter(look.snapshot.waiters, tid)) continue;
    const std::string call = waits_in(look.pid, tid, stacks);
    if (!call.empty() && !is_waiter(channel.waiters(), tid))
      return fmt::format("thread {} waits in {} since before the library awoke", tid, call);
  }
  return std::nullopt;
}

/// The longest wait of a thread for the device.
const ThreadText* longest_wait(const HangLook& look) {
  const auto found = std::max_element(
      look.threads.begin(), look.threads.end(),
      [](const ThreadText& a, const ThreadText& b) { return a.seconds < b.seconds; });
  return found == look.threads.end() ? nullptr : &*found;
}

void judge(const sys::Procfs& procfs, const cuda::Channel& channel, HangLook& look,
           sys::NativeStacks& stacks) {
  const bool is_asleep = channel.mode() == cuda::Mode::kDormant;
  if (auto why = why_silent(look, is_asleep)) {
    look.verdict = HangVerdict::kUnknown;
    look.why = std::move(*why);
    look.stuck.clear();
  } else if (!look.stuck.empty()) {
    const StuckKind worst = look.stuck.front().kind;
    look.verdict = worst == StuckKind::kStuck ? HangVerdict::kStuck : HangVerdict::kUnknown;
    if (worst == StuckKind::kUnknown)
      look.why =
          "it runs for long, and too few such operations of that size were seen to end before: "
          "first launches, compilation and evaluation look alike";
    if (worst == StuckKind::kBehind) look.why = "operations wait for something that was not timed";
  } else if (is_asleep) {
    look.verdict = HangVerdict::kUnknown;
    look.why =
        "the library was asleep, so what was submitted before is unknown; `kansoku watch` or "
        "`kansoku cuda top` keeps it awake";
  } else if (const ThreadText* const thread = longest_wait(look);
             thread != nullptr && thread->seconds >= cuda::kStuckFloorS &&
             look.at == RankAt::kNoWork && look.moving.empty()) {
    look.verdict = HangVerdict::kUnknown;
    look.why = fmt::format("a thread waits in {} for {:.1f} s, for an operation that is not known",
                           thread->call, thread->seconds);
  } else if (auto unseen = cuda::unseen_before(look.snapshot)) {
    look.verdict = HangVerdict::kUnknown;
    look.why = std::move(*unseen);
  } else if (auto waits = waits_since_before(procfs, look, channel, stacks)) {
    look.verdict = HangVerdict::kUnknown;
    look.why = std::move(*waits);
  } else {
    look.verdict = HangVerdict::kNothing;
    look.why =
        look.moving.empty() ? "no operation is beyond its deadline" : "streams make progress";
  }
}

/// One of its suspects is a collective.
bool may_be_in_collective(const HangLook& look) {
  return look.at == RankAt::kCollective || look.at == RankAt::kUnclear;
}

std::string pids_text(const std::vector<std::int32_t>& pids) {
  return fmt::format("process{} {}", pids.size() == 1 ? "" : "es", fmt::join(pids, ", "));
}

/// A collective alone tells nothing: the others may compile, evaluate or write a checkpoint.
void judge_waiting(const std::vector<HangLook>& looks, HangLook& look) {
  if (look.verdict != HangVerdict::kStuck || !may_be_in_collective(look)) return;
  if (looks.size() == 1) {
    look.verdict = HangVerdict::kUnknown;
    look.why = "it may wait in a collective, and the other ranks are not known: name all with -p";
    return;
  }
  const auto is_busy = [&](std::int32_t pid) {
    return std::any_of(looks.begin(), looks.end(),
                       [&](const HangLook& other) { return other.pid == pid && other.is_at_work; });
  };
  if (look.waits_for.empty() || !std::all_of(look.waits_for.begin(), look.waits_for.end(), is_busy))
    return;
  look.verdict = HangVerdict::kUnknown;
  look.why = fmt::format("it waits in a collective for {}, which {} at work",
                         pids_text(look.waits_for), look.waits_for.size() == 1 ? "is" : "are");
}

void add_launch_sites(const cuda::Channel& channel, HangLook& look, sys::NativeStacks& stacks) {
  std::set<std::uint32_t> seen;
  for (const cuda::Stuck& one : look.stuck) {
    for (const cuda::Suspect& suspect : one.suspects) {
      const auto kernel = look.snapshot.kernels.find(suspect.kernel);
      if (suspect.what != WIRE_CUDA_LAUNCH || kernel == look.snapshot.kernels.end()) continue;
      if (seen.size() >= kKernelsWithSites || !seen.insert(suspect.kernel).second) continue;
      for (const std::uint16_t site : kernel->second.info.sites) {
        const auto frames = stacks.named(look.pid, channel.stack(site));
        if (!frames || frames->empty()) continue;
        look.launch_sites.push_back({operation_name(look.snapshot, suspect), frames_text(*frames)});
      }
    }
  }
}

}  // namespace

std::string_view hang_verdict_name(HangVerdict verdict) {
  constexpr std::array<std::string_view, 5> kNames{"stuck_kernel", "unknown", "nothing_stuck",
                                                   "not_covered", "gone"};
  return kNames[static_cast<std::size_t>(verdict)];
}

FirstLook first_look(const sys::Procfs& procfs, std::int32_t pid, const cuda::Channel* channel,
                     std::string why_not) {
  FirstLook out{pid, 0, channel, std::move(why_not), {}, 0};
  out.at_ns = static_cast<std::uint64_t>(sys::RealClock().now().time_since_epoch().count());
  if (channel != nullptr) out.snapshot = snapshot_of(*channel);
  out.ticks = ticks_of(procfs, pid);
  return out;
}

HangLook second_look(const sys::Procfs& procfs, const FirstLook& first, sys::NativeStacks& stacks) {
  HangLook out;
  out.pid = first.pid;
  const auto stat = procfs.stat(first.pid);
  if (!stat || stat->state == 'Z' || stat->state == 'X') {
    out.verdict = HangVerdict::kGone;
    out.why = "the process has ended";
    return out;
  }
  if (const auto environment = procfs.environ(first.pid)) out.rank = rank_facts(*environment).rank;
  out.is_stopped = stat->state == 'T' || stat->state == 't';
  if (first.channel == nullptr) {
    const cuda::Coverage coverage = cuda::coverage_of(procfs, first.pid);
    out.why = coverage.has_cuda || coverage.has_library
                  ? "the process uses CUDA without Kansoku's library at work, so nothing is known "
                    "of its operations; start it with `kansoku run --cuda`"
                  : first.why_not;
    return out;
  }
  const cuda::Channel& channel = *first.channel;
  out.snapshot = snapshot_of(channel);
  for (std::uint32_t i = 0; i < WIRE_CUDA_CONTEXTS_MAX; ++i)
    out.devices.push_back(channel.context(i).device);
  out.uses_nccl = maps_nccl(procfs, out.pid);
  add_progress(first.snapshot, out);
  add_threads(procfs, out, stacks);
  out.stuck = stuck_in(out.snapshot);
  add_launch_sites(channel, out, stacks);
  const auto is_collective = collectives_in(out);
  out.at = cuda::rank_at(out.snapshot.streams, out.snapshot.at_ns, is_collective,
                         waiting_since_in(out.snapshot));
  out.collectives = collectives_of(out);
  out.collectives_pending = cuda::pending_collectives(out.snapshot.streams, is_collective);
  out.is_at_work = is_at_work(procfs, first, out);
  judge(procfs, channel, out, stacks);
  return out;
}

std::vector<ThreadText> threads_of(const sys::Procfs& procfs, std::int32_t pid,
                                   sys::NativeStacks& stacks) {
  std::vector<python::PyStack> found;
  const auto python = python::Process::attach(pid, procfs, {});
  if (python) static_cast<void>((*python)->sample(found));
  std::vector<ThreadText> out;
  for (const std::int32_t tid : procfs.tids(pid)) {
    ThreadText thread;
    thread.tid = tid;
    thread.python = python_stack(found, pid, tid);
    if (thread.python.empty() && tid != pid) continue;
    if (const auto stat = procfs.thread_stat(pid, tid)) thread.state = stat->state;
    if (const auto stack = stacks.of(pid, tid)) thread.native = frames_text(*stack);
    out.push_back(std::move(thread));
    if (out.size() == kThreadsTold) break;
  }
  return out;
}

void judge_job(const sys::Procfs& procfs, std::vector<HangLook>& looks, sys::NativeStacks& stacks) {
  std::vector<cuda::RankLook> ranks;
  std::vector<std::size_t> which;
  for (std::size_t i = 0; i < looks.size(); ++i) {
    const HangLook& look = looks[i];
    if (look.verdict == HangVerdict::kNoLibrary) continue;
    ranks.push_back({look.at, look.verdict == HangVerdict::kGone, look.is_stopped, look.collectives,
                     look.collectives_pending});
    which.push_back(i);
  }
  const bool is_any_late = std::any_of(looks.begin(), looks.end(),
                                       [](const HangLook& look) { return !look.stuck.empty(); });
  std::vector<std::int32_t> missing;
  if (looks.size() > 1 && is_any_late)
    for (const std::size_t index : cuda::find_missing(ranks)) {
      HangLook& look = looks[which[index]];
      missing.push_back(look.pid);
      add_main_thread(procfs, look, stacks);
    }
  for (HangLook& look : looks)
    if (!look.stuck.empty() && std::find(missing.begin(), missing.end(), look.pid) == missing.end())
      look.waits_for = missing;
  for (HangLook& look : looks)
    judge_waiting(looks, look);
}

}  // namespace kansoku::capture::hang
