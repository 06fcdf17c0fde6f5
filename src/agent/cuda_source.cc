// SPDX-License-Identifier: Apache-2.0
#include "agent/cuda_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace kansoku::agent {
namespace {

using capture::cuda::Channel;
using capture::cuda::Snapshot;
using capture::cuda::Stuck;
using capture::cuda::StuckKind;

/// A process may begin with CUDA at any time, most do so soon; looking for it means to read its
/// maps.
constexpr Nanos kLookAgainFirst = std::chrono::milliseconds{500};
constexpr Nanos kLookAgainMax = std::chrono::seconds{10};
/// Beyond the window that renews it, for an agent that is late.
constexpr Nanos kLeaseSpare = std::chrono::seconds{2};
constexpr std::size_t kRanksShown = 8;

/// A process of a job with an operation that does not end, or that the others wait for.
struct Concerned {
  const CudaLook* look{nullptr};
  std::vector<Stuck> stuck;  // those beyond their deadline
  bool is_missing{false};
};

std::string process_text(const CudaLook& look) {
  return look.rank >= 0 ? fmt::format("rank {} (pid {})", look.rank, look.pid)
                        : fmt::format("process {}", look.pid);
}

std::string ranks_text(const std::vector<const CudaLook*>& looks) {
  std::vector<std::string> names;
  for (const CudaLook* const look : looks)
    if (names.size() < kRanksShown) names.push_back(process_text(*look));
  const std::size_t more = looks.size() - names.size();
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

std::string stuck_text(const CudaLook& look, const Stuck& stuck) {
  std::string out = fmt::format("{} on stream {} of {} does not end (deadline {:.1f} s)",
                                suspects_text(look.snapshot, stuck), stuck.stream.index,
                                process_text(look), stuck.deadline_s);
  for (const capture::cuda::Waiter& waiter : look.snapshot.waiters)
    if (waiter.since_ns != 0 && waiter.since_ns < look.snapshot.at_ns) {
      out += fmt::format("; thread {} waits in {}", waiter.tid, waiter.entry);
      break;
    }
  return out;
}

/// The looks of one job: those that are to blame first, then those that wait for them.
std::vector<Concerned> concerned_of(const std::vector<const CudaLook*>& looks) {
  std::vector<Concerned> all;
  std::vector<capture::cuda::RankLook> ranks;
  for (const CudaLook* const look : looks) {
    Concerned& one = all.emplace_back();
    one.look = look;
    if (!look->is_stopped && !is_silent(look->snapshot)) one.stuck = stuck_in(look->snapshot);
    std::erase_if(one.stuck, [](const Stuck& stuck) { return stuck.kind != StuckKind::kStuck; });
    ranks.push_back({collectives_of(look->snapshot), !one.stuck.empty(), look->is_stopped});
  }
  for (const std::size_t index : missing_of(ranks))
    all[index].is_missing = true;
  std::erase_if(all, [](const Concerned& one) { return one.stuck.empty() && !one.is_missing; });
  std::stable_sort(all.begin(), all.end(), [](const Concerned& a, const Concerned& b) {
    return a.is_missing && !b.is_missing;
  });
  return all;
}

trace::IncidentFacts facts_of(const std::vector<Concerned>& concerned, std::int64_t end_ns) {
  trace::IncidentFacts out;
  out.kind = trace::IncidentKind::kStuckKernel;
  out.tests = {"event"};
  const bool is_any_missing = concerned.front().is_missing;
  double longest_s = 0;
  std::vector<const CudaLook*> blamed, waiting;
  std::vector<std::int32_t> pids;
  for (const Concerned& one : concerned) {
    pids.push_back(one.look->pid);
    if (!one.stuck.empty()) longest_s = std::max(longest_s, one.stuck.front().seconds);
    const bool is_to_blame = !is_any_missing || one.is_missing;
    (is_to_blame ? blamed : waiting).push_back(one.look);
    if (!is_to_blame) continue;
    out.pids.push_back(one.look->pid);
    if (one.look->rank >= 0) out.ranks.push_back(one.look->rank);
  }
  out.begin_ns = end_ns - static_cast<std::int64_t>(longest_s * 1e9);
  const auto shown = std::find_if(concerned.begin(), concerned.end(),
                                  [](const Concerned& one) { return !one.stuck.empty(); });
  if (is_any_missing)
    out.summary =
        fmt::format("{} {}; ", ranks_text(blamed),
                    blamed.front()->is_stopped ? "is stopped by a signal or a debugger"
                                               : "handed over fewer collectives than the others");
  out.summary += stuck_text(*shown->look, shown->stuck.front());
  if (!waiting.empty()) out.summary += "; held up: " + ranks_text(waiting);
  out.suggestion = fmt::format("kansoku hang -p {}", fmt::join(pids, " -p "));
  return out;
}

}  // namespace

std::vector<incident::Observation> StuckJobs::on_window(const std::vector<CudaLook>& looks,
                                                        std::int64_t end_ns) {
  std::map<std::string, std::vector<const CudaLook*>> jobs;
  for (const CudaLook& look : looks)
    jobs[look.job].push_back(&look);
  std::vector<incident::Observation> out;
  for (const auto& [job, of_job] : jobs) {
    const std::vector<Concerned> concerned = concerned_of(of_job);
    if (concerned.empty()) continue;
    trace::IncidentFacts facts = facts_of(concerned, end_ns);
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
    : clock_(clock), procfs_(procfs), log_(std::move(log)) {}

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
  Snapshot now = snapshot_of(*watched.channel);
  if (watched.before && watched.channel->mode() != capture::cuda::Mode::kDormant) {
    const capture::cuda::DeviceRates rates = device_rates(*watched.before, now);
    set_feature(row.window, "kernel_share", rates.busy_share);
    set_feature(row.window, "kernel_mean", rates.kernel_mean_s);
    set_feature(row.window, "copy_bytes", rates.copied_bytes_per_s);
    row.kernels = watched.kernels.on_window(frame_between(*watched.before, now));
  }
  looks_.push_back({row.job, row.window.rank, row.window.pid,
                    row.process != nullptr && row.process->is_stopped, now});
  watched.before = std::move(now);
}

void CudaSource::forget(std::map<std::int32_t, Watched>::iterator one) {
  if (one->second.channel) one->second.channel->add_losses(gone_);
  processes_.erase(one);
}

void CudaSource::fill(const capture::WatchWindow& window, bool is_full,
                      std::vector<FeatureRow>& rows) {
  const BootTime now = clock_.now();
  if (is_full) looks_.clear();
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
