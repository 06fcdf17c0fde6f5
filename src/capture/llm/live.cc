// SPDX-License-Identifier: Apache-2.0
#include "capture/llm/live.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "capture/job.h"
#include "capture/observed.h"
#include "common/bytes.h"
#include "trace/writer.h"

namespace kansoku::capture::llm {
namespace {
constexpr Nanos kLookEvery = std::chrono::seconds{2};  // for libraries that came meanwhile
}  // namespace

struct Live::Impl {
  const Clock& clock;
  const sys::Procfs& procfs;
  Processes processes;
  std::unique_ptr<MemorySink> sink;
  std::unique_ptr<trace::Writer> writer;
  std::unique_ptr<Source> source;
  BootTime looked{};

  Impl(const Clock& clock_in, const sys::Procfs& procfs_in) : clock(clock_in), procfs(procfs_in) {}

  // Declares the tracks of a window; the names of tracks are gone with the trace before.
  void declare() {
    for (auto& [pid, process] : processes) {
      const std::string command = process.facts.cmdline();
      process.track = writer->process_track({.pid = pid,
                                             .parent_pid = process.facts.parent_pid,
                                             .name = process.facts.name,
                                             .cmdline = command,
                                             .job = "",
                                             .role = ""});
    }
  }

  void drop_ended() {
    for (auto at = processes.begin(); at != processes.end();) {
      const auto stat = procfs.stat(at->first);
      const bool is_same = stat && stat->start_ticks == at->second.facts.start_ticks;
      if (is_same && stat->state != 'Z') {
        ++at;
        continue;
      }
      source->forget(at->first);
      at = processes.erase(at);
    }
  }

  void look(BootTime now) {
    if (now - looked < kLookEvery && looked != BootTime{}) return;
    looked = now;
    for (const auto& [pid, process] : processes)
      source->inspect(process, now);
  }
};

Live::Live(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Live::~Live() = default;

Result<std::unique_ptr<Live>> Live::create(const Clock& clock, const sys::Procfs& procfs,
                                           SourceOptions options,
                                           const std::vector<std::int32_t>& pids) {
  auto impl = std::make_unique<Impl>(clock, procfs);
  for (const std::int32_t pid : pids) {
    TRY(auto facts, describe_process(procfs, pid));
    Observed& process = impl->processes[pid];
    process.facts = std::move(facts);
  }
  TRY(const auto maker, model_source_maker(clock, procfs, std::move(options)));
  impl->sink = std::make_unique<MemorySink>();
  TRY(impl->writer, trace::Writer::create(*impl->sink, clock.now(), {.can_restart = true}));
  impl->source = maker(*impl->writer);
  return std::unique_ptr<Live>(new Live(std::move(impl)));
}

Result<std::string> Live::window(Nanos length, const std::function<bool()>& should_stop,
                                 const std::function<void(BootTime)>& wait) {
  Impl& live = *impl_;
  const BootTime begin = live.clock.now();
  auto sink = std::make_unique<MemorySink>();
  TRY_VOID(live.writer->restart(*sink, begin));
  live.sink = std::move(sink);
  live.declare();
  live.source->begin_trace(begin);
  live.looked = {};
  const BootTime end = begin + length;
  for (BootTime now = begin; now < end && !should_stop(); now = live.clock.now()) {
    live.drop_ended();
    if (live.processes.empty()) break;
    live.look(now);
    live.source->poll(live.processes, now);
    wait(std::min(end, live.source->due()));
  }
  const BootTime now = live.clock.now();
  live.source->end_trace(now);
  Losses losses;
  live.source->add_losses(losses);
  for (const Losses::Total& one : losses.all())
    live.writer->loss(*one.stat, one.total, now);
  TRY_VOID(live.writer->flush());
  if (live.processes.empty())
    return Error{Code::kNotFound, "watch models: the processes have ended"};
  return live.sink->data();
}

std::vector<std::string> Live::problems() const {
  std::vector<std::string> out;
  impl_->source->add_problems(out);
  return out;
}

}  // namespace kansoku::capture::llm
