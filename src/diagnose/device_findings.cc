// SPDX-License-Identifier: Apache-2.0
#include "diagnose/device_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "diagnose/internal/order.h"
#include "diagnose/internal/words.h"

namespace kansoku::diagnose {
namespace {

/// Processes beyond the jobs that a trace may have are left where the first job is.
constexpr std::size_t kJobsWithProcessesMax = 128;

enum class Leads : std::uint8_t { kDevice, kHost };

/// The same time seen from two sides, and the side that knows its cause.
struct SameThing {
  std::string_view device_kind, detail;  // no detail: any
  std::string_view host_kind;            // "slow_*": all kinds that begin so
  Leads leads;
};
constexpr std::array kSameThings{
    // The host only waits for its device.
    SameThing{"slow_kernel", "", "slow_*", Leads::kDevice},
    SameThing{"slow_kernel", "", "asymmetry", Leads::kDevice},
    SameThing{"slow_kernel", "", "blocked", Leads::kDevice},
    SameThing{"slow_kernel", "", "uneven_work", Leads::kDevice},
    SameThing{"slow_kernel", "", "uneven_time", Leads::kDevice},
    SameThing{"copy_bound", "", "slow_*", Leads::kDevice},
    SameThing{"copy_bound", "", "asymmetry", Leads::kDevice},
    SameThing{"copy_bound", "", "blocked", Leads::kDevice},
    // The device only waits for its host, which says where it spends the time.
    SameThing{"gpu_starved", "", "slow_*", Leads::kHost},
    SameThing{"gpu_starved", "", "asymmetry", Leads::kHost},
    SameThing{"gpu_starved", "", "uneven_work", Leads::kHost},
    SameThing{"gpu_starved", "", "slowed", Leads::kHost},
    SameThing{"gpu_starved", "", "cpu_contention", Leads::kHost},
    SameThing{"gpu_starved", "", "cpu_throttled", Leads::kHost},
    SameThing{"gpu_starved", "", "interpreter_lock", Leads::kHost},
    SameThing{"gpu_starved", "", "blocked", Leads::kHost},
    SameThing{"gpu_starved", "loader", "common_input", Leads::kHost},
    SameThing{"launch_bound", "", "slow_*", Leads::kHost},
    SameThing{"launch_bound", "", "asymmetry", Leads::kHost},
    SameThing{"launch_bound", "", "cpu_contention", Leads::kHost},
    SameThing{"launch_bound", "", "cpu_throttled", Leads::kHost},
    SameThing{"launch_bound", "", "interpreter_lock", Leads::kHost},
    // A process that got no memory ends, and its peers wait.
    SameThing{"memory_pressure", "out_of_memory", "hang", Leads::kDevice},
    SameThing{"memory_pressure", "out_of_memory", "stopped", Leads::kDevice},
};

bool is_of_kind(std::string_view kind, std::string_view pattern) {
  if (!pattern.ends_with('*')) return kind == pattern;
  return kind.starts_with(pattern.substr(0, pattern.size() - 1));
}

const SameThing* same_thing(const Finding& device, const Finding& host) {
  const auto row = std::find_if(kSameThings.begin(), kSameThings.end(), [&](const SameThing& r) {
    return device.kind == r.device_kind && (r.detail.empty() || device.detail == r.detail) &&
           is_of_kind(host.kind, r.host_kind);
  });
  return row == kSameThings.end() ? nullptr : &*row;
}

/// Ranks wait for others in collectives, so their devices do: an effect of any finding about those.
bool is_effect_of(const Finding& device, const Finding& host) {
  if (device.kind != "gpu_starved" || device.detail != "collective" || host.ranks.empty())
    return false;
  return std::none_of(host.ranks.begin(), host.ranks.end(), [&](std::int32_t rank) {
    return std::find(device.ranks.begin(), device.ranks.end(), rank) != device.ranks.end();
  });
}

Finding finding_from(const DeviceFinding& found, const Diagnosis& job) {
  Finding out;
  out.kind = found.kind;
  out.detail = found.detail;
  out.basis = Basis::kObservation;
  out.ranks = found.ranks;
  if (out.ranks.empty() && job.rank_numbers.size() == 1) out.ranks = job.rank_numbers;
  out.share = std::clamp(found.share.value_or(0), 0.0, 1.0);
  out.cost_ms_per_step = out.share * job.steps.mean_ms;
  out.evidence = found.evidence;
  out.evidence.insert(out.evidence.begin(), found.verdict);
  return out;
}

std::string seen_on_host(const Finding& host, const Diagnosis& job) {
  const bool has_steps = job.steps.count > 0 && host.kind != "hang" && host.kind != "stopped";
  const std::string where =
      host.function.empty() ? std::string() : fmt::format(words::kInCall, host.function);
  return fmt::format(words::kSeenOnHost, host.kind,
                     has_steps ? fmt::format(words::kCostOnHost, host.cost_ms_per_step) : "",
                     where.empty() ? "" : " " + where);
}

void take_over(const Finding& host, const Diagnosis& job, Finding& device) {
  device.evidence.push_back(seen_on_host(host, job));
  if (!device.function.empty()) return;
  device.phase = host.phase;
  device.function = host.function;
  device.file = host.file;
  device.line = host.line;
  device.stack = host.stack;
}

void add_to_job(const DeviceFinding& found, Diagnosis& job) {
  Finding device = finding_from(found, job);
  for (Finding& host : job.findings) {
    if (host.is_of_device()) continue;
    const SameThing* const row = host.ranks == device.ranks ? same_thing(device, host) : nullptr;
    if ((row != nullptr && row->leads == Leads::kHost) || is_effect_of(device, host)) {
      host.evidence.push_back(fmt::format(words::kSeenOnDevice, device.kind, device.detail,
                                          device.share * 100, found.verdict));
      return;
    }
    if (row != nullptr) take_over(host, job, device);
  }
  std::erase_if(job.findings, [&](const Finding& host) {
    return !host.is_of_device() && host.ranks == device.ranks &&
           same_thing(device, host) != nullptr;
  });
  job.findings.push_back(std::move(device));
}

/// A process that works a device and is in no job.
Diagnosis job_of_process(const trace::Trace& trace, std::int32_t pid, const Diagnosis& other) {
  Diagnosis out;
  std::string_view name = "process";
  for (const trace::Process& process : trace.processes) {
    if (process.pid == pid && !trace.str(process.name).empty()) name = trace.str(process.name);
  }
  out.job = fmt::format("{} {}", name, pid);
  out.is_single = true;
  out.rank_numbers = {0};
  out.pids = {pid};
  out.losses = other.losses;
  out.notes = {words::kOnlyDevices};
  return out;
}

/// Notes and gaps of a job that its devices close.
void settle_by_devices(const std::vector<std::int32_t>& judged, Diagnosis& job) {
  // That all ranks sleep in one place needs no further look once it is known what for.
  const bool is_told = std::any_of(job.findings.begin(), job.findings.end(), [](const Finding& f) {
    return f.kind == "gpu_starved" || f.kind == "slow_kernel" || f.kind == "copy_bound";
  });
  // g++ 12 evaluates no find() at compile time under the sanitizers.
  const std::string_view sentence(words::kCommonSleep);
  const std::string_view begin = sentence.substr(0, sentence.find('{'));
  if (is_told)
    std::erase_if(job.notes, [&](const std::string& note) { return note.starts_with(begin); });
  const auto is_any_judged = [&](const std::vector<std::int32_t>& pids) {
    return std::find_first_of(pids.begin(), pids.end(), judged.begin(), judged.end()) != pids.end();
  };
  const bool is_judged = !job.rank_pids.empty() && job.verdict() == Verdict::kNotEnoughData &&
                         std::all_of(job.rank_pids.begin(), job.rank_pids.end(), is_any_judged);
  if (!is_judged) return;
  job.missing.clear();
  job.notes.emplace_back(words::kOnlyDevicesOfRanks);
}

std::vector<Diagnosis>::iterator job_with(std::vector<Diagnosis>& jobs,
                                          const std::vector<std::int32_t>& pids) {
  return std::find_if(jobs.begin(), jobs.end(), [&](const Diagnosis& job) {
    return std::any_of(pids.begin(), pids.end(), [&](std::int32_t pid) {
      return std::find(job.pids.begin(), job.pids.end(), pid) != job.pids.end();
    });
  });
}

}  // namespace

void add_device_findings(const trace::Trace& trace, const DeviceJudgement& judged,
                         Diagnosis& diagnosis) {
  std::vector<Diagnosis> jobs = std::exchange(diagnosis.other_jobs, {});
  jobs.insert(jobs.begin(), std::move(diagnosis));
  std::vector<std::int32_t> pids = judged.pids;
  for (const DeviceFinding& finding : judged.findings)
    pids.insert(pids.end(), finding.pids.begin(), finding.pids.end());
  for (const std::int32_t pid : pids) {
    if (job_with(jobs, {pid}) != jobs.end() || jobs.size() > kJobsWithProcessesMax) continue;
    Diagnosis own = job_of_process(trace, pid, jobs.front());
    // A diagnosis of no job at all says nothing beside one of a process.
    if (jobs.front().rank_numbers.empty()) jobs.erase(jobs.begin());
    jobs.push_back(std::move(own));
  }
  std::size_t left_out = 0;
  for (const DeviceFinding& finding : judged.findings) {
    const auto job = job_with(jobs, finding.pids);
    if (job == jobs.end())
      ++left_out;
    else
      add_to_job(finding, *job);
  }
  if (left_out > 0) jobs.front().notes.push_back(fmt::format(words::kDevicesLeftOut, left_out));
  for (Diagnosis& job : jobs) {
    settle_by_devices(judged.pids, job);
    sort_findings(job.findings);
    if (!job.has_windows() && !job.rank_numbers.empty())
      job.victims = victims_of(job.rank_numbers, job.findings);
    if (!job.findings.empty()) std::erase(job.notes, words::kNoPeers);
  }
  diagnosis = join_jobs(std::move(jobs));
}

}  // namespace kansoku::diagnose
