// SPDX-License-Identifier: Apache-2.0
#include "diagnose/device_findings.h"

#include <fmt/format.h>

#include <algorithm>
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
  const bool has_steps = job.steps.count > 0 && !host.is_standstill();
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
  if (job.is_unreadable(device.ranks)) return;
  const std::size_t count = job.rank_numbers.size();
  const auto is_effect = [&](const Finding& host) {
    return !host.is_of_device() && verdict::explains(claim_of(device), claim_of(host), count);
  };
  for (Finding& host : job.findings) {
    if (!host.is_of_device() && verdict::explains(claim_of(host), claim_of(device), count)) {
      host.evidence.push_back(fmt::format(words::kSeenOnDevice, device.kind, device.detail,
                                          device.share * 100, found.verdict));
      // Peers that wait for the host's rank say nothing of it.
      if (host.ranks == device.ranks)
        host.evidence.insert(host.evidence.end(), found.evidence.begin(), found.evidence.end());
      return;
    }
    if (is_effect(host)) take_over(host, job, device);
  }
  std::erase_if(job.findings, is_effect);
  job.findings.push_back(std::move(device));
}

/// A process that works a device and is in no job.
Diagnosis job_of_process(const trace::Trace& trace, std::int32_t pid, const Diagnosis& other) {
  Diagnosis out;
  out.job = name_of_process(trace, pid);
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
  if (!is_judged || job.is_unreadable(job.rank_numbers)) return;
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
  for (const auto& [pid, text] : judged.notes) {
    const auto job = job_with(jobs, {pid});
    if (job != jobs.end()) job->notes.push_back(text);
  }
  if (left_out > 0) jobs.front().notes.push_back(fmt::format(words::kDevicesLeftOut, left_out));
  for (Diagnosis& job : jobs) {
    settle_by_devices(judged.pids, job);
    verdict::put_in_order(job.findings);
    if (!job.has_windows() && !job.rank_numbers.empty())
      job.victims = victims_of(job.rank_numbers, job.findings);
    if (!job.findings.empty()) std::erase(job.notes, words::kNoPeers);
  }
  diagnosis = join_jobs(std::move(jobs));
}

}  // namespace kansoku::diagnose
