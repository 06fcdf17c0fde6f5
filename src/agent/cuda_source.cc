// SPDX-License-Identifier: Apache-2.0
#include "agent/cuda_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace kansoku::agent {
namespace {

using capture::cuda::Channel;
using capture::cuda::Stuck;

/// A process may begin with CUDA at any time, most do so soon; looking for it means to read its
/// maps.
constexpr Nanos kLookAgainFirst = std::chrono::milliseconds{500};
constexpr Nanos kLookAgainMax = std::chrono::seconds{10};
/// Beyond the window that renews it, for an agent that is late.
constexpr Nanos kLeaseSpare = std::chrono::seconds{2};
constexpr std::size_t kRanksShown = 8;

std::string process_text(const StuckLook& look) {
  return look.rank >= 0 ? fmt::format("rank {} (pid {})", look.rank, look.hang.pid)
                        : fmt::format("process {}", look.hang.pid);
}

std::string ranks_text(const std::vector<const StuckLook*>& looks) {
  std::vector<std::string> names;
  for (const StuckLook* const look : looks)
    if (names.size() < kRanksShown) names.push_back(process_text(*look));
  const std::size_t more = looks.size() - names.size();
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

/// The innermost function that a person would look for.
std::string frame_text(const capture::hang::ThreadText& thread) {
  if (!thread.python.empty())
    return fmt::format(", in {} ({}:{})", thread.python[0].function, thread.python[0].file,
                       thread.python[0].line);
  return {};
}

/// The innermost functions of the first launches that the library saw.
std::string site_text(const capture::hang::HangLook& look) {
  constexpr std::size_t kFunctionsShown = 4;
  if (look.launch_sites.empty()) return {};
  std::vector<std::string> names;
  for (const capture::hang::FrameText& frame : look.launch_sites.front().native) {
    if (!frame.function.empty() && names.size() < kFunctionsShown) names.push_back(frame.function);
  }
  return names.empty() ? std::string() : fmt::format("; launched by {}", fmt::join(names, " < "));
}

std::string stuck_text(const StuckLook& look) {
  const Stuck& stuck = look.hang.stuck.front();
  std::string out = fmt::format("{} on stream {} of {} does not end (deadline {:.1f} s)",
                                suspects_text(look.hang.snapshot, stuck), stuck.stream.index,
                                process_text(look), stuck.deadline_s);
  if (!look.hang.threads.empty() && !look.hang.threads[0].call.empty())
    out += fmt::format("; thread {} waits in {}{}", look.hang.threads[0].tid,
                       look.hang.threads[0].call, frame_text(look.hang.threads[0]));
  return out + site_text(look.hang);
}

std::string missing_text(const std::vector<const StuckLook*>& missing) {
  const capture::hang::HangLook& first = missing.front()->hang;
  const std::string why = first.is_stopped ? "is stopped by a signal or a debugger"
                          : first.verdict == capture::hang::HangVerdict::kGone
                              ? "has ended"
                              : fmt::format(
                                    "has not come to the collective of the others, after "
                                    "{} of its own",
                                    first.collectives);
  return fmt::format("{} {}{}", ranks_text(missing), why,
                     first.threads.empty() ? "" : frame_text(first.threads[0]));
}

/// Processes of a job that are stuck by themselves, are missing in a collective, or wait for those.
struct Roles {
  std::vector<const StuckLook*> stuck, missing, waiting, all;
};

Roles roles_of(const std::vector<const StuckLook*>& looks) {
  Roles out;
  std::set<std::int32_t> missing;
  for (const StuckLook* const look : looks)
    if (look->hang.verdict == capture::hang::HangVerdict::kStuck)
      missing.insert(look->hang.waits_for.begin(), look->hang.waits_for.end());
  for (const StuckLook* const look : looks) {
    const bool is_stuck = look->hang.verdict == capture::hang::HangVerdict::kStuck;
    if (is_stuck && look->hang.waits_for.empty())
      out.stuck.push_back(look);
    else if (missing.contains(look->hang.pid))
      out.missing.push_back(look);
    else if (is_stuck)
      out.waiting.push_back(look);
    else
      continue;
    out.all.push_back(look);
  }
  return out;
}

trace::IncidentFacts facts_of(const Roles& roles, std::int64_t end_ns) {
  trace::IncidentFacts out;
  out.kind = trace::IncidentKind::kStuckKernel;
  out.tests = {"event"};
  double longest_s = 0;
  std::vector<std::int32_t> pids;
  for (const StuckLook* const look : roles.all) {
    pids.push_back(look->hang.pid);
    if (!look->hang.stuck.empty())
      longest_s = std::max(longest_s, look->hang.stuck.front().seconds);
  }
  for (const auto* const blamed : {&roles.stuck, &roles.missing}) {
    for (const StuckLook* const look : *blamed) {
      out.pids.push_back(look->hang.pid);
      if (look->rank >= 0) out.ranks.push_back(look->rank);
    }
  }
  out.begin_ns = end_ns - static_cast<std::int64_t>(longest_s * 1e9);
  std::vector<std::string> parts;
  if (!roles.stuck.empty()) parts.push_back(stuck_text(*roles.stuck.front()));
  if (!roles.missing.empty()) parts.push_back(missing_text(roles.missing));
  if (roles.stuck.empty() && !roles.waiting.empty())
    parts.push_back(stuck_text(*roles.waiting.front()));
  if (!roles.waiting.empty()) parts.push_back("held up: " + ranks_text(roles.waiting));
  out.summary = fmt::format("{}", fmt::join(parts, "; "));
  out.suggestion = fmt::format("kansoku hang -p {}", fmt::join(pids, " -p "));
  return out;
}

}  // namespace

std::vector<incident::Observation> StuckJobs::on_window(const std::vector<StuckLook>& looks,
                                                        std::int64_t end_ns) {
  std::map<std::string, std::vector<const StuckLook*>> jobs;
  for (const StuckLook& look : looks)
    jobs[look.job].push_back(&look);
  std::vector<incident::Observation> out;
  for (const auto& [job, of_job] : jobs) {
    const Roles roles = roles_of(of_job);
    if (roles.all.empty()) continue;
    trace::IncidentFacts facts = facts_of(roles, end_ns);
    const auto [found, is_new] = open_.try_emplace(job);
    Episode& episode = found->second;
    if (is_new)
      episode.number = ++episodes_;
    else
      facts.begin_ns = episode.facts.begin_ns;
    facts.window_count = episode.facts.window_count + 1;
    episode.facts = std::move(facts);
    out.push_back({job, incident::Source::kStuck, episode.number, episode.facts});
  }
  for (auto one = open_.begin(); one != open_.end();) {
    const bool goes_on = std::any_of(out.begin(), out.end(), [&](const auto& observation) {
      return observation.job == one->first;
    });
    if (goes_on) {
      ++one;
      continue;
    }
    one->second.facts.end_ns = end_ns;
    out.push_back({one->first, incident::Source::kStuck, one->second.number, one->second.facts});
    one = open_.erase(one);
  }
  return out;
}

std::vector<KernelShare> TopKernels::on_window(const capture::cuda::Frame& frame) {
  std::map<std::string, double> shares;
  for (const capture::cuda::FrameRow& row : frame.kernels) {
    shares[row.name] += row.device_share.value_or(0);
    seconds_[row.name] += row.device_share.value_or(0) * frame.seconds;
  }
  std::vector<std::pair<double, std::string>> by_time;
  for (const auto& [name, seconds] : seconds_)
    by_time.emplace_back(-seconds, name);
  const std::size_t shown = std::min(kShown, by_time.size());
  std::partial_sort(by_time.begin(), by_time.begin() + static_cast<std::ptrdiff_t>(shown),
                    by_time.end());
  std::vector<KernelShare> out;
  for (std::size_t i = 0; i < shown; ++i) {
    const auto found = shares.find(by_time[i].second);
    out.push_back({by_time[i].second, found == shares.end() ? 0 : found->second});
    if (found != shares.end()) shares.erase(found);
  }
  if (by_time.size() == shown) return out;
  KernelShare other{"other", 0};
  for (const auto& [name, share] : shares)
    other.share += share;
  out.push_back(std::move(other));
  return out;
}

CudaSource::CudaSource(const Clock& clock, const sys::Procfs& procfs,
                       std::function<void(const std::string&)> log)
    : clock_(clock), procfs_(procfs), log_(std::move(log)), stacks_(procfs) {}

void CudaSource::open(std::int32_t pid, Watched& watched, BootTime now) {
  watched.pause = std::clamp(2 * watched.pause, kLookAgainFirst, kLookAgainMax);
  watched.retry_at = now + watched.pause;
  auto channel = Channel::open(procfs_, pid, Channel::Access::kLook);
  if (channel) {
    watched.channel = std::move(*channel);
    return;
  }
  if (channel.error().code == Code::kNotFound || std::exchange(is_refused_, true)) return;
  if (log_) log_(channel.error().what);  // once: the others will be refused alike
}

void CudaSource::hold(Watched& watched, Nanos window, BootTime now) const {
  Channel& channel = *watched.channel;
  if (!is_enabled_ || (!channel.is_held() && !channel.take_over(Channel::Access::kWatch))) return;
  channel.request(capture::cuda::Mode::kSampled, 0, now + 2 * window + kLeaseSpare);
  channel.skip_records();
}

void CudaSource::look(FeatureRow& row, Watched& watched) {
  capture::hang::FirstLook now =
      capture::hang::first_look(procfs_, row.window.pid, watched.channel.get());
  watched.job = row.job;
  watched.rank = row.window.rank;
  if (watched.before && watched.channel->mode() != capture::cuda::Mode::kDormant) {
    const capture::cuda::DeviceRates rates = device_rates(watched.before->snapshot, now.snapshot);
    set_feature(row.window, "kernel_share", rates.busy_share);
    set_feature(row.window, "kernel_mean", rates.kernel_mean_s);
    set_feature(row.window, "copy_bytes", rates.copied_bytes_per_s);
    row.kernels = watched.kernels.on_window(frame_between(watched.before->snapshot, now.snapshot));
    if (!stuck_in(now.snapshot).empty()) suspected_.insert(row.job);
  }
  watched.now = std::move(now);
}

/// All processes of these jobs, as `kansoku hang` looks at them: the other look was a window ago.
void CudaSource::look_again(const std::set<std::string>& jobs) {
  for (const std::string& job : jobs) {
    std::vector<capture::hang::HangLook> hangs;
    std::vector<std::int32_t> ranks;
    for (auto& [pid, watched] : processes_) {
      if (!watched.channel || watched.job != job || !watched.before) continue;
      hangs.push_back(capture::hang::second_look(procfs_, *watched.before, stacks_));
      ranks.push_back(watched.rank);
    }
    judge_job(procfs_, hangs, stacks_);
    for (std::size_t i = 0; i < hangs.size(); ++i)
      looks_.push_back({job, ranks[i], std::move(hangs[i])});
  }
}

void CudaSource::forget(std::map<std::int32_t, Watched>::iterator one) {
  if (one->second.channel) one->second.channel->add_losses(gone_);
  processes_.erase(one);
}

void CudaSource::fill(const capture::WatchWindow& window, bool is_full,
                      std::vector<FeatureRow>& rows) {
  const BootTime now = clock_.now();
  if (is_full) {
    looks_.clear();
    suspected_.clear();
  }
  for (auto& [pid, watched] : processes_)
    watched.is_in_window = false;
  for (FeatureRow& row : rows) {
    Watched& watched = processes_[row.window.pid];
    watched.is_in_window = true;
    if (!watched.channel && now >= watched.retry_at) open(row.window.pid, watched, now);
    if (!watched.channel) continue;
    hold(watched, window.end - window.begin, now);
    if (is_full) look(row, watched);
  }
  if (is_full) look_again(suspected_);
  for (auto& [pid, watched] : processes_)
    if (watched.now) watched.before = std::exchange(watched.now, std::nullopt);
  for (auto one = processes_.begin(); one != processes_.end();) {
    const auto next = std::next(one);
    if (!one->second.is_in_window) forget(one);
    one = next;
  }
}

std::vector<incident::Observation> CudaSource::observations(std::int64_t /*begin_ns*/,
                                                            std::int64_t end_ns) {
  return stuck_.on_window(looks_, end_ns);
}

void CudaSource::set_enabled(bool is_enabled) {
  is_enabled_ = is_enabled;
  if (is_enabled) return;
  for (auto& [pid, watched] : processes_) {
    if (!watched.channel || !watched.channel->is_held()) continue;
    watched.channel->request(capture::cuda::Mode::kDormant, 0, BootTime{});
    watched.before.reset();
  }
}

std::string CudaSource::state() const {
  std::size_t held = 0, others = 0;
  for (const auto& [pid, watched] : processes_) {
    if (!watched.channel) continue;
    ++(watched.channel->is_held() ? held : others);
  }
  if (held + others == 0) return "no process was started with `kansoku run --cuda`";
  return others == 0
             ? fmt::format("{} process{}", held, held == 1 ? "" : "es")
             : fmt::format("{} of {} processes; others record the rest", held, held + others);
}

void CudaSource::add_losses(Losses& out) const {
  for (const Losses::Total& one : gone_.all())
    out.add(*one.stat, one.total);
  for (const auto& [pid, watched] : processes_)
    if (watched.channel) watched.channel->add_losses(out);
}

}  // namespace kansoku::agent
