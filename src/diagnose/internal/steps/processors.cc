// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/steps/processors.h"

#include <fmt/format.h>

#include <algorithm>

#include "diagnose/internal/steps/job.h"
#include "diagnose/internal/steps/names.h"
#include "diagnose/internal/words.h"
#include "trace/merge.h"

namespace kansoku::diagnose {

ProcessorUse::ProcessorUse(const trace::Trace& trace) {
  const auto& table = trace.switches;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table.time_ns[i] < 0 || table.time_ns[i] > kTimeMaxNs) continue;
    const std::int32_t tid = std::max(table.prev_tid[i], table.next_tid[i]);  // the other may be 0
    changes_[{trace::host_of(tid), table.cpu[i]}].push_back(
        {table.time_ns[i], table.prev_tid[i], table.next_tid[i]});
  }
  for (auto& [processor, changes] : changes_) {
    std::stable_sort(changes.begin(), changes.end(),
                     [](const Change& a, const Change& b) { return a.time_ns < b.time_ns; });
  }
}

void ProcessorUse::add_users(std::int32_t tid, std::uint32_t cpu, Interval window,
                             std::map<std::int32_t, std::int64_t>& ns) const {
  const auto found = changes_.find({trace::host_of(tid), cpu});
  if (found == changes_.end()) return;
  const std::vector<Change>& changes = found->second;
  const auto add = [&](std::int32_t user, std::int64_t begin_ns, std::int64_t end_ns) {
    begin_ns = std::max(begin_ns, window.begin_ns);
    end_ns = std::min(end_ns, window.end_ns);
    if (end_ns > begin_ns) ns[user] += end_ns - begin_ns;
  };
  auto next =
      std::upper_bound(changes.begin(), changes.end(), window.begin_ns,
                       [](std::int64_t t, const Change& change) { return t < change.time_ns; });
  if (next == changes.begin()) add(next->prev_tid, window.begin_ns, next->time_ns);
  for (auto at = next == changes.begin() ? next : next - 1;
       at != changes.end() && at->time_ns < window.end_ns; ++at) {
    const bool is_last = at + 1 == changes.end();
    const std::int64_t end_ns = is_last ? window.end_ns : (at + 1)->time_ns;
    const bool fits = is_last || (at + 1)->prev_tid == at->next_tid;
    const std::int64_t handed_ns = fits ? end_ns : at->time_ns + (end_ns - at->time_ns) / 2;
    add(at->next_tid, at->time_ns, handed_ns);
    if (!fits) add((at + 1)->prev_tid, handed_ns, end_ns);
  }
}

ThreadNames::ThreadNames(const trace::Trace& trace) {
  for (const trace::Track& track : trace.tracks) {
    if (track.kind != trace::TrackKind::kThread) continue;
    Known& known = threads_[track.tid];
    known.pid = track.pid;
    if (const std::string_view name = text_of(trace, track.name); !name.empty()) known.name = name;
  }
  for (const trace::Process& process : trace.processes) {
    Known& known = threads_[process.pid];
    known.pid = process.pid;
    if (const std::string_view name = text_of(trace, process.name); !name.empty())
      known.name = name;
    known.job = text_of(trace, process.job);
  }
}

const ThreadNames::Known* ThreadNames::find(std::int32_t tid) const {
  const auto found = threads_.find(tid);
  return found == threads_.end() ? nullptr : &found->second;
}

std::int32_t ThreadNames::process_of(std::int32_t tid) const {
  const Known* known = find(tid);
  return known == nullptr ? tid : known->pid;
}

std::string_view ThreadNames::name_of(std::int32_t tid) const {
  const Known* known = find(tid);
  return known == nullptr ? std::string_view{} : known->name;
}

std::string ThreadNames::shown(std::int32_t tid) const {
  const std::string_view name = name_of(tid);
  return fmt::format("{} (pid {})", name.empty() ? words::kAProcess : name,
                     trace::pid_on_host(process_of(tid)));
}

std::string_view ThreadNames::job_of(std::int32_t tid) const {
  const Known* process = find(process_of(tid));
  return process == nullptr ? std::string_view{} : process->job;
}

}  // namespace kansoku::diagnose
