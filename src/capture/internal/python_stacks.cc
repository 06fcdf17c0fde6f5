// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/python_stacks.h"

#include <algorithm>
#include <array>
#include <utility>

namespace kansoku::capture {
namespace {

// An interpreter that starts looks for a moment like a build with a layout of its own.
constexpr Nanos kDoubtedFor = std::chrono::seconds{10};

}  // namespace

PythonStacks::PythonStacks(trace::Writer& writer, const Clock& clock, std::uint32_t hz,
                           Attach attach, std::function<void(const std::string&)> log)
    : writer_(writer),
      attach_(std::move(attach)),
      clock_(clock),
      every_(1'000'000'000 / hz),
      log_(std::move(log)) {}

void PythonStacks::inspect(const Observed& process, BootTime now) {
  if (!is_open_) return;
  const std::int32_t pid = process.facts.pid;
  Sampled& known = processes_[pid];
  if (known.python || known.is_refused) return;
  auto attached = attach_(pid);
  if (attached) {
    known.python = std::move(attached).value();
    known.doubted_since.reset();
    return;
  }
  const Code code = attached.error().code;
  const bool is_in_doubt = code == Code::kUnavailable;
  if (is_in_doubt && !known.doubted_since) known.doubted_since = now;
  if (code == Code::kNotFound) known.doubted_since.reset();
  known.is_refused = code == Code::kUnsupported || code == Code::kPermission ||
                     (is_in_doubt && now - *known.doubted_since >= kDoubtedFor);
  if (!known.is_refused) return;
  known.doubted_since.reset();
  ++refused_;
  if (log_) log_(attached.error().what);
}

bool PythonStacks::has_stacks(std::int32_t pid) const {
  const auto known = processes_.find(pid);
  return known != processes_.end() && known->second.python != nullptr;
}

BootTime PythonStacks::due() const {
  return is_enabled_ && is_open_ ? next_ : BootTime::max();
}

void PythonStacks::poll(const Processes& /*processes*/, BootTime now) {
  // Skipped ticks are not made up for: a late sampler must not hammer the job.
  next_ = std::max(next_ + every_, now + every_ / 2);
  for (auto& [pid, process] : processes_) {
    if (process.python) sample(pid, process, clock_.now());
  }
}

void PythonStacks::sample(std::int32_t pid, Sampled& process, BootTime now) {
  const auto before = process.python->counters();
  const auto sampled = process.python->sample(stacks_);
  const auto& after = process.python->counters();
  torn_ += after.torn - before.torn;
  truncated_ += after.truncated - before.truncated;
  if (!sampled) {
    process.python.reset();  // gone, or exec: the next look tells
    return;
  }
  for (const python::PyStack& stack : stacks_)
    write(pid, process, stack, now);
}

void PythonStacks::write_faults(std::int32_t pid, Sampled& process, std::uint64_t faults,
                                BootTime now) {
  if (process.faults == faults) return;
  if (!process.faults_track)
    process.faults_track =
        writer_.counter_track(writer_.thread_track(pid, pid, ""), "minor faults at stacks", "");
  writer_.counter(*process.faults_track, now, static_cast<double>(faults));
  process.faults = faults;
}

void PythonStacks::write(std::int32_t pid, Sampled& process, const python::PyStack& stack,
                         BootTime now) {
  frame_ids_.clear();
  for (const python::PyFrame& frame : stack.frames) {
    const auto [known, is_new] = process.frames.try_emplace(frame.cache_key);
    if (is_new) known->second = writer_.frame(frame.function, frame.file, frame.line);
    frame_ids_.push_back(known->second);
  }
  const std::int32_t tid = stack.tid == 0 ? pid : stack.tid;
  writer_.sample(pid, tid, now, writer_.stack(frame_ids_), stack.state, stack.holds_gil);
  if (tid == pid && stack.minor_faults) write_faults(pid, process, *stack.minor_faults, now);
  if (!stack.wait.call.empty()) {
    const std::array args{trace::Arg::str(writer_.name("call"), stack.wait.call),
                          trace::Arg::str(writer_.name("on"), stack.wait.on)};
    writer_.instant(writer_.thread_track(pid, tid, ""), now, writer_.name("wait"),
                    writer_.category("host"), args);
  }
  ++samples_;
}

void PythonStacks::begin_trace(BootTime now) {
  is_open_ = true;
  next_ = now;
  samples_ = torn_ = truncated_ = 0;
  for (auto& [pid, process] : processes_) {
    process.frames.clear();
    process.faults_track.reset();
    process.faults.reset();
  }
}

void PythonStacks::end_trace(BootTime /*now*/) {
  is_open_ = false;
  for (auto& [pid, process] : processes_)
    process.python.reset();
}

void PythonStacks::add_losses(Losses& out) const {
  out.add(python::python_torn_reads, torn_);
  out.add(python::python_stacks_truncated, truncated_);
  const auto doubted = std::count_if(processes_.begin(), processes_.end(), [](const auto& one) {
    return one.second.doubted_since.has_value();
  });
  out.add(python::python_unreadable_processes, refused_ + static_cast<std::uint64_t>(doubted));
}

}  // namespace kansoku::capture
