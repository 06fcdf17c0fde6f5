// SPDX-License-Identifier: Apache-2.0
#include "agent/internal/fleet_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "common/rng.h"
#include "detect/feature.h"
#include "sys/clock.h"
#include "sys/fd.h"

namespace kansoku::agent {
namespace {

constexpr Nanos kForgetAfter = std::chrono::seconds{30};

// The features that say most about a job come first: a narrow budget keeps those.
constexpr std::array<std::string_view, 8> kMostTelling{
    "step_mean", "collective_p99", "decode_p99", "gpu_process_utilization",
    "cpu_wait",  "input_share",    "tcp_rtt",    "gpu_sm_clock"};

const sys::RealClock& real_clock() {
  static const sys::RealClock kClock;
  return kClock;
}

/// Indexes of the features in the order of the summaries.
const std::vector<std::size_t>& feature_order() {
  static const auto kOrder = [] {
    std::vector<std::size_t> out;
    out.reserve(kMostTelling.size());
    for (const std::string_view name : kMostTelling)
      out.push_back(static_cast<std::size_t>(detect::feature_index(name)));
    for (std::size_t i = 0; i < detect::known_features().size(); ++i) {
      if (std::find(out.begin(), out.end(), i) == out.end()) out.push_back(i);
    }
    return out;
  }();
  return kOrder;
}

/// In multiples of the least difference that matters: a tenth of durations, rates and bytes, else
/// the feature's floor.
fleet::ClusterAxis axis_of(const detect::Feature& feature) {
  using Scale = fleet::ClusterAxis::Scale;
  if (feature.use != detect::Use::kModelled) return {};
  if (feature.scale == detect::Scale::kLog) return {Scale::kLog, feature.floor, 0.1};
  return {Scale::kLinear, 0, feature.floor};
}

std::string boot_id() {
  auto text = sys::read_file("/proc/sys/kernel/random/boot_id", 256);
  if (!text) return "unknown";
  while (!text->empty() && text->back() == '\n')
    text->pop_back();
  return *text;
}

}  // namespace

Result<std::unique_ptr<FleetOutput>> FleetOutput::create(const std::string& host,
                                                         fleet::NatsOptions collector, BootTime now,
                                                         std::int64_t wall_ns) {
  collector.client_name = "kansoku-watch";
  collector.seed = hash_of(host);
  TRY(auto bus, fleet::connect_nats(collector, real_clock()));
  fleet::SummaryOptions options;
  options.host = host.empty() ? "unknown" : host;
  options.boot_id = boot_id();
  options.epoch_ns = wall_ns;
  for (const std::size_t index : feature_order()) {
    const detect::Feature& feature = detect::known_features()[index];
    options.features.emplace_back(feature.name);
    options.axes.push_back(axis_of(feature));
  }
  std::string name = options.host;
  TRY(auto writer, fleet::SummaryWriter::create(std::move(options), now));
  return std::unique_ptr<FleetOutput>(
      new FleetOutput(std::move(name), std::move(bus), std::move(writer)));
}

void FleetOutput::on_window(std::int64_t wall_ns, BootTime now, const std::vector<FeatureRow>& rows,
                            const std::vector<JobTable::JobStatus>& jobs) {
  std::map<std::string_view, std::vector<std::int32_t>> ranks;
  for (const FeatureRow& row : rows)
    ranks[row.job].push_back(row.window.rank);
  for (const JobTable::JobStatus& status : jobs) {
    const auto here = ranks.find(status.name);
    if (here == ranks.end()) continue;
    Job& job = jobs_[status.name];
    job.seen_at = now;
    if (job.id.raw != fleet::kNoIndex && job.ranks == here->second) continue;
    job.ranks = here->second;
    // Two hosts may each have a job of their own at 127.0.0.1:29500.
    const std::string key =
        status.is_local ? fmt::format("{}/{}", host_, status.name) : status.name;
    const auto id = writer_.set_job({key, status.command, status.world_size, job.ranks});
    if (id) job.id = *id;
  }
  std::vector<double> values(feature_order().size());
  for (const FeatureRow& row : rows) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = row.window.values[feature_order()[i]];
    // A row that is of no job yet is not left out for want of room, and is not counted as that.
    const auto job = jobs_.find(row.job);
    if (job != jobs_.end()) writer_.add_window(job->second.id, row.window.rank, values);
  }
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    if (now - job->second.seen_at > kForgetAfter) {
      writer_.remove_job(job->second.id);
      job = jobs_.erase(job);
    } else {
      ++job;
    }
  }
  if (writer_.is_due(now)) send(wall_ns, now);
  bus_->poll(Nanos{});
}

void FleetOutput::on_incident(const trace::IncidentRecord& incident) {
  const auto job = jobs_.find(incident.job);
  writer_.add_incident(job == jobs_.end() ? fleet::SummaryWriter::JobId{} : job->second.id,
                       incident.id, incident.to_json().dump());
}

void FleetOutput::send(std::int64_t wall_ns, BootTime now) {
  const std::string message = writer_.take(now, wall_ns);
  if (!message.empty())
    static_cast<void>(bus_->publish(
        fmt::format("{}.{}", fleet::kSummarySubject, fleet::subject_word(host_)), message));
}

void FleetOutput::finish(std::int64_t wall_ns, BootTime now) {
  send(wall_ns, now);
  static_cast<void>(bus_->flush(kFinishLimit));
}

}  // namespace kansoku::agent
