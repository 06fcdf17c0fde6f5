// SPDX-License-Identifier: Apache-2.0
#include "fleet/internal/cluster_store.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "stats/peers.h"
#include "stats/summary.h"
#include "stats/thresholds.h"

namespace kansoku::fleet::internal {
namespace {

constexpr int kComponentsMax = 4;
constexpr int kIterationsMax = 30;
constexpr double kRidge = 0.25;  // no mode is narrower than half of what matters
constexpr std::uint64_t kSeed = 1;
constexpr std::size_t kHostsMin = 4;  // below it nobody is odd
constexpr std::size_t kOddMax = 3;
constexpr int kSlotsLost = 2;  // in a row, before a job is learnt of what other hosts have

std::vector<double> mean_of(const stats::ClusterFeatures& rows) {
  std::vector<double> out(static_cast<std::size_t>(rows.dimensions()));
  for (const auto& cluster : rows.clusters())
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] +=
          cluster.mean[i] * static_cast<double>(cluster.rows) / static_cast<double>(rows.rows());
  return out;
}

}  // namespace

/// Forgets what was learnt of other features. False: of so many none can be learnt.
bool ClusterStore::begin(Job& job, std::vector<std::string> features, std::vector<ClusterAxis> axes,
                         std::int64_t slot) {
  auto made = stats::ClusterFeatures::make(static_cast<int>(features.size()), kClusters);
  if (!made) return false;
  job = Job{};
  job.features = std::move(features);
  job.axes = std::move(axes);
  job.begin_slot = slot;
  job.now.emplace(std::move(*made));
  return true;
}

void ClusterStore::vote(Job& job, std::vector<std::string> features,
                        std::vector<ClusterAxis> axes) {
  if (job.votes == 0) {
    job.rival_features = std::move(features);
    job.rival_axes = std::move(axes);
    job.votes = 1;
  } else if (job.rival_features == features && job.rival_axes == axes) {
    ++job.votes;
  } else {
    --job.votes;
  }
}

ClusterStore::Job* ClusterStore::job_of(const std::string& key, const Summary& summary,
                                        const ClusterPart& part, const std::string& host,
                                        std::int64_t slot) {
  std::vector<std::string> features;
  for (const std::uint32_t feature : part.features)
    features.push_back(summary.features[feature]);
  auto found = jobs_.find(key);
  if (found == jobs_.end()) {
    if (jobs_.size() >= options_.cluster_jobs_max) {
      ++left_out_;
      return nullptr;
    }
    found = jobs_.emplace(key, Job{}).first;
  }
  Job& job = found->second;
  if (!job.now && !begin(job, features, part.axes, slot)) return nullptr;
  const bool is_first = job.heard.insert(host).second;
  // Hosts of one job see the same features, or another version of the agent runs on some.
  if (job.features == features && job.axes == part.axes) {
    job.alike += is_first ? 1 : 0;
    return &job;
  }
  ++loss_.unlike;
  if (is_first) vote(job, std::move(features), part.axes);
  return nullptr;
}

void ClusterStore::add(const Summary& summary, const SummaryPart& part, const HostName& host,
                       std::int64_t slot) {
  if (part.job == kNoIndex) {
    ++loss_.bad_parts;
    return;
  }
  const auto read = decode_cluster_part(part.bytes, summary.features.size());
  if (!read || read->rows.rows() == 0) {
    ++loss_.bad_parts;
    return;
  }
  Job* const job = job_of(summary.jobs[part.job].key, summary, *read, *host, slot);
  if (job == nullptr) return;
  if (Host& known = job->hosts[*host]; slot >= known.slot) known = {slot, mean_of(read->rows)};
  if (parts_of_slot_ >= options_.cluster_parts_max || !job->now->merge(read->rows)) {
    ++left_out_;
    return;
  }
  ++parts_of_slot_;
}

void ClusterStore::fit(Job& job) {
  stats::ClusterFeatures all = *job.now;
  if (job.before && !all.merge(*job.before)) return;
  std::optional<stats::MixtureFit> best;
  stats::MixtureOptions options;
  options.ridge = kRidge;
  options.seed = kSeed;
  options.tolerance = 1e-4;
  options.iterations_max = kIterationsMax;
  for (options.components = 1; options.components <= kComponentsMax; ++options.components) {
    auto fit = stats::fit_mixture(all, options);
    if (!fit || (best && fit->bic >= best->bic)) break;
    best = std::move(*fit);
  }
  if (best) job.modes = best->mixture.components();
}

void ClusterStore::move_on(std::int64_t first, std::int64_t now_slot) {
  parts_of_slot_ = 0;
  const std::int64_t half =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(options_.slots) / 2);
  for (auto& [key, job] : jobs_) {
    if (!job.now) continue;
    // The one that was heard first is the odd one out: the job is learnt of the others.
    job.slots_lost = job.votes > job.alike ? job.slots_lost + 1 : 0;
    if (job.slots_lost >= kSlotsLost &&
        begin(job, std::move(job.rival_features), std::move(job.rival_axes), now_slot))
      continue;
    job.heard.clear();
    job.alike = job.votes = 0;
    std::erase_if(job.hosts, [&](const auto& entry) { return entry.second.slot < first; });
    if (job.now->rows() > 0) fit(job);
    if (now_slot - job.begin_slot < half) continue;
    if (job.now->rows() == 0) {
      job.now.reset();  // the job is over: it makes room
      continue;
    }
    auto made = stats::ClusterFeatures::make(job.now->dimensions(), kClusters);
    if (!made) continue;
    job.before = std::exchange(job.now, std::move(*made));
    job.begin_slot = now_slot;
  }
  std::erase_if(jobs_, [](const auto& entry) { return !entry.second.now; });
}

std::optional<FleetModel> ClusterStore::model(std::string_view job_key) const {
  const auto found = jobs_.find(job_key);
  if (found == jobs_.end() || found->second.modes == 0) return std::nullopt;
  const Job& job = found->second;
  FleetModel out;
  out.features = job.features;
  out.rows = job.now->rows() + (job.before ? job.before->rows() : 0);
  out.modes = job.modes;
  out.hosts = job.hosts.size();
  if (job.hosts.size() < kHostsMin) return out;
  std::map<std::string_view, FleetOddHost> odd;
  for (std::size_t i = 0; i < job.features.size(); ++i) {
    std::vector<double> means;
    for (const auto& [name, host] : job.hosts)
      means.push_back(host.mean[i]);
    const std::vector<stats::Peers> all_peers = stats::leave_one_out(means);
    auto peers = all_peers.begin();
    for (const auto& [name, host] : job.hosts) {
      const auto [middle, deviation] = *peers++;
      const double spread = std::max(1.0, stats::kMadToSigma * deviation);
      const double spreads = std::fabs(host.mean[i] - middle) / spread;
      if (spreads <= stats::kOddMemberSpreads || spreads <= odd[name].spreads) continue;
      odd[name] = {name, job.features[i], spreads, job.axes[i].value_of(host.mean[i]),
                   job.axes[i].value_of(middle)};
    }
  }
  for (auto& [name, one] : odd)
    if (one.spreads > 0) out.odd.push_back(std::move(one));
  std::sort(out.odd.begin(), out.odd.end(), [](const FleetOddHost& a, const FleetOddHost& b) {
    return a.spreads != b.spreads ? a.spreads > b.spreads : a.host < b.host;
  });
  out.odd_count = out.odd.size();
  if (out.odd.size() > kOddMax) out.odd.resize(kOddMax);
  return out;
}

}  // namespace kansoku::fleet::internal
