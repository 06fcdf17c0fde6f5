// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "capture/python/sampler.h"
#include "cli/commands.h"
#include "cli/cuda/live.h"
#include "cli/cuda/subcommand.h"
#include "cli/wiring.h"
#include "sys/clock.h"

namespace kansoku::cli {
namespace {

using capture::cuda::Channel;
using capture::cuda::Stuck;
using capture::cuda::StuckKind;

/// Between two looks at the streams: whether others make progress.
constexpr Nanos kBetweenLooks = std::chrono::seconds{1};
constexpr std::size_t kFramesShown = 12;
/// Of wire_cuda_state::poller_phase.
constexpr std::uint32_t kPhaseInDriver = 2;

enum class HangVerdict : std::uint8_t { kStuck, kUnknown, kNothing, kNoLibrary };
constexpr std::array kHangVerdictNames{"stuck_kernel", "unknown", "nothing_stuck", "not_covered"};

/// A Python frame, innermost first.
struct FrameText {
  std::string function, file;
  std::uint32_t line{0};
};

struct ThreadText {
  std::int32_t tid{0};
  std::string call;  // of the driver that it waits in; "" in none
  double seconds{0};
  std::vector<FrameText> python;  // innermost first
};

struct Answer {
  std::int32_t pid{0};
  HangVerdict verdict{HangVerdict::kNoLibrary};
  bool is_stopped{false};
  std::string why;
  CudaSnapshot snapshot;
  std::vector<Stuck> stuck;
  std::vector<std::uint32_t> moving;  // streams that completed work between the looks
  std::vector<ThreadText> threads;    // those that wait in the driver
};

/// Of several processes of which some are stuck, those that the others wait for.
std::vector<const Answer*> missing_answers(const std::vector<Answer>& answers) {
  std::vector<capture::cuda::RankLook> looks;
  std::vector<const Answer*> of, out;
  for (const Answer& answer : answers) {
    if (answer.verdict == HangVerdict::kNoLibrary) continue;
    of.push_back(&answer);
    looks.push_back({collectives_of(answer.snapshot), !answer.stuck.empty(), answer.is_stopped});
  }
  for (const std::size_t index : missing_of(looks))
    out.push_back(of[index]);
  return out;
}

std::vector<FrameText> python_stack(std::vector<capture::python::PyStack>& stacks, std::int32_t pid,
                                    std::int32_t tid) {
  std::vector<FrameText> out;
  for (const capture::python::PyStack& stack : stacks) {
    // Before 3.11 the main thread's number is not told.
    if (stack.tid != tid && !(stack.tid == 0 && tid == pid)) continue;
    for (auto frame = stack.frames.rbegin(); frame != stack.frames.rend(); ++frame)
      out.push_back({std::string(frame->function), std::string(frame->file), frame->line});
    break;
  }
  return out;
}

void add_threads(const sys::Procfs& procfs, Answer& answer) {
  std::vector<capture::python::PyStack> stacks;
  const auto python = capture::python::Process::attach(answer.pid, procfs, {});
  if (python) static_cast<void>((*python)->sample(stacks));
  for (const capture::cuda::Waiter& waiter : answer.snapshot.waiters) {
    ThreadText thread;
    thread.tid = static_cast<std::int32_t>(waiter.tid);
    thread.call = waiter.entry;
    if (waiter.since_ns < answer.snapshot.at_ns)
      thread.seconds = 1e-9 * static_cast<double>(answer.snapshot.at_ns - waiter.since_ns);
    thread.python = python_stack(stacks, answer.pid, thread.tid);
    answer.threads.push_back(std::move(thread));
  }
}

void add_progress(const CudaSnapshot& before, Answer& answer) {
  for (const capture::cuda::StreamInfo& stream : answer.snapshot.streams) {
    const auto old =
        std::find_if(before.streams.begin(), before.streams.end(), [&](const auto& one) {
          return one.index == stream.index && one.generation == stream.generation;
        });
    if (old == before.streams.end() || stream.completed > old->completed)
      answer.moving.push_back(stream.index);
  }
}

/// A process, and the first of two looks at it.
struct FirstLook {
  std::int32_t pid{0};
  Result<std::unique_ptr<Channel>> channel;
  CudaSnapshot before;
};

/// Why the library's thread gives no sign of life: then what it wrote is as old.
std::optional<std::string> why_silent(const sys::Procfs& procfs, Answer& answer, bool is_asleep) {
  const auto stat = procfs.stat(answer.pid);
  answer.is_stopped = stat && (stat->state == 'T' || stat->state == 't');
  if (answer.is_stopped) return "the process is stopped by a signal or a debugger";
  const wire_cuda_state& state = answer.snapshot.state;
  if (is_asleep || !is_silent(answer.snapshot)) return std::nullopt;
  const double seconds = 1e-9 * static_cast<double>(answer.snapshot.at_ns - state.poller_ns);
  return state.poller_phase == kPhaseInDriver
             ? fmt::format(
                   "the driver has not returned from a call of the library's thread for "
                   "{:.1f} s",
                   seconds)
             : fmt::format("the library's thread has not run for {:.1f} s", seconds);
}

Answer second_look(const sys::Procfs& procfs, const FirstLook& first) {
  const std::int32_t pid = first.pid;
  const auto& channel = first.channel;
  Answer out;
  out.pid = pid;
  if (!channel) {
    const capture::cuda::Coverage coverage = capture::cuda::coverage_of(procfs, pid);
    out.why = coverage.has_cuda || coverage.has_library
                  ? "the process uses CUDA without Kansoku's library at work, so nothing is known "
                    "of its operations; start it with `kansoku run --cuda`"
                  : channel.error().what;
    return out;
  }
  out.snapshot = snapshot_of(**channel);
  add_progress(first.before, out);
  add_threads(procfs, out);
  out.stuck = stuck_in(out.snapshot);
  const bool is_asleep = (*channel)->mode() == capture::cuda::Mode::kDormant;
  if (auto why = why_silent(procfs, out, is_asleep)) {
    out.verdict = HangVerdict::kUnknown;
    out.why = std::move(*why);
    out.stuck.clear();
  } else if (!out.stuck.empty()) {
    const StuckKind worst = out.stuck.front().kind;
    out.verdict = worst == StuckKind::kStuck ? HangVerdict::kStuck : HangVerdict::kUnknown;
    if (worst == StuckKind::kUnknown)
      out.why =
          "it runs for long, and no such operation was seen to end before: first launches, "
          "compilation and evaluation look alike";
    if (worst == StuckKind::kBehind) out.why = "operations wait for something that was not timed";
  } else if (is_asleep) {
    out.verdict = HangVerdict::kUnknown;
    out.why =
        "the library was asleep, so what was submitted before is unknown; `kansoku watch` or "
        "`kansoku cuda top` keeps it awake";
  } else {
    out.verdict = HangVerdict::kNothing;
    out.why = out.moving.empty() ? "no operation is beyond its deadline" : "streams make progress";
  }
  return out;
}

void print_stuck(const Answer& answer, const Stuck& one) {
  const std::string name = suspects_text(answer.snapshot, one);
  const std::string where = fmt::format("stream {}", one.stream.index);
  if (one.kind == StuckKind::kBehind)
    say(stdout, fmt::format("  behind it: {} on {} waits for {:.1f} s", name, where, one.seconds));
  else
    say(stdout, fmt::format("  {} on {} runs for {:.1f} s (deadline {:.1f} s)", name, where,
                            one.seconds, one.deadline_s));
}

void print_answer(const Answer& answer) {
  say(stdout, fmt::format("process {}: {}{}{}", answer.pid,
                          kHangVerdictNames[static_cast<std::size_t>(answer.verdict)],
                          answer.why.empty() ? "" : ": ", answer.why));
  for (const Stuck& one : answer.stuck)
    print_stuck(answer, one);
  if (!answer.stuck.empty())
    say(stdout, answer.moving.empty() ? std::string("  no stream makes progress")
                                      : fmt::format("  other streams make progress: {}",
                                                    fmt::join(answer.moving, " ")));
  for (const ThreadText& thread : answer.threads) {
    say(stdout, fmt::format("  thread {} waits in {} for {:.1f} s", thread.tid, thread.call,
                            thread.seconds));
    for (std::size_t i = 0; i < thread.python.size() && i < kFramesShown; ++i)
      say(stdout, fmt::format("    {} ({}:{})", thread.python[i].function, thread.python[i].file,
                              thread.python[i].line));
  }
}

Json json_of(const Answer& answer) {
  Json stuck = Json::array(), threads = Json::array();
  for (const Stuck& one : answer.stuck) {
    Json operations = Json::array();
    for (const capture::cuda::Suspect& suspect : one.suspects)
      operations.push(operation_name(answer.snapshot, suspect));
    stuck.push(Json::object()
                   .set("kind", capture::cuda::stuck_kind_name(one.kind))
                   .set("operations", std::move(operations))
                   .set("operations_forgotten", one.forgotten)
                   .set("stream", one.stream.index)
                   .set("thread", one.stream.is_mark ? Json() : Json(one.stream.tid))
                   .set("seconds", one.seconds)
                   .set("deadline_s", one.deadline_s));
  }
  for (const ThreadText& thread : answer.threads) {
    Json python = Json::array();
    for (const FrameText& frame : thread.python)
      python.push(Json::object()
                      .set("function", frame.function)
                      .set("file", frame.file)
                      .set("line", frame.line));
    threads.push(Json::object()
                     .set("thread", thread.tid)
                     .set("call", thread.call)
                     .set("seconds", thread.seconds)
                     .set("python", std::move(python)));
  }
  return Json::object()
      .set("pid", answer.pid)
      .set("verdict", kHangVerdictNames[static_cast<std::size_t>(answer.verdict)])
      .set("why", answer.why)
      .set("every_n", answer.snapshot.state.mode == WIRE_CUDA_SAMPLED
                          ? Json(answer.snapshot.state.every_n)
                          : Json(1))
      .set("collectives", collectives_of(answer.snapshot))
      .set("stuck", std::move(stuck))
      .set("moving_streams", Json::array_of(answer.moving))
      .set("threads", std::move(threads));
}

class Hang final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("-p,--pid", pids_, "process to look at (repeatable)")->required();
    app.add_flag("--json", json_, "print JSON (schema kansoku.hang/1)");
    app.footer(
        "Says within two seconds whether an operation on the GPU is stuck: which kernel, on which\n"
        "stream, for how long, who waits for it, and whether others make progress. Nothing is\n"
        "stopped and no debugger attached. Of several processes of a job it names those that the\n"
        "others wait for. Needs a program that was started with `kansoku run\n"
        "--cuda`, and that `kansoku watch`, `record --cuda` or `cuda top` watches.\n"
        "Exit status: 10 something is stuck; 11 it cannot be told; 0 nothing is.");
  }

  int run() override {
    const sys::Procfs procfs;
    std::vector<FirstLook> looks;
    for (const std::int32_t pid : pids_) {
      if (const auto stat = procfs.stat(pid); !stat) return report(stat.error());
      looks.push_back({pid, Channel::open(procfs, pid, Channel::Access::kLook), {}});
      if (looks.back().channel) looks.back().before = snapshot_of(**looks.back().channel);
    }
    const sys::RealClock clock;
    sys::sleep_until(clock.now() + kBetweenLooks);
    std::vector<Answer> answers;
    for (const FirstLook& first : looks)
      answers.push_back(second_look(procfs, first));
    Json processes = Json::array();
    for (const Answer& answer : answers) {
      if (json_)
        processes.push(json_of(answer));
      else
        print_answer(answer);
    }
    Json missing = Json::array();
    for (const Answer* const answer : missing_answers(answers)) {
      if (json_)
        missing.push(answer->pid);
      else
        say(stdout,
            answer->is_stopped
                ? fmt::format("the others wait for process {}: it is stopped", answer->pid)
                : fmt::format("the others wait for process {}: it handed over {} collectives, "
                              "fewer than they",
                              answer->pid, collectives_of(answer->snapshot)));
    }
    if (json_)
      say(stdout, Json::object()
                      .set("schema", "kansoku.hang/1")
                      .set("processes", std::move(processes))
                      .set("missing", std::move(missing))
                      .dump(2));
    const auto has = [&](HangVerdict verdict) {
      return std::any_of(answers.begin(), answers.end(),
                         [&](const Answer& answer) { return answer.verdict == verdict; });
    };
    if (has(HangVerdict::kStuck)) return kExitFindings;
    return has(HangVerdict::kUnknown) || has(HangVerdict::kNoLibrary) ? kExitNotEnoughData
                                                                      : kExitOk;
  }

 private:
  std::vector<std::int32_t> pids_;
  bool json_{false};
};

}  // namespace

std::unique_ptr<Command> make_hang() {
  return std::make_unique<Hang>();
}

}  // namespace kansoku::cli
