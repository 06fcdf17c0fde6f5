// SPDX-License-Identifier: Apache-2.0
#include "fleet/summary_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "common/check.h"
#include "fleet/internal/wire_format.h"

namespace kansoku::fleet {
namespace {

// Room kept free for what is written last: the number of parts and seven counts may each become
// longer than the one byte of a zero.
constexpr std::size_t kReserveBytes = 2 + 7 * 4;
constexpr Nanos kClockStep = std::chrono::minutes{1};
// A count in a message, of five bytes at most.
constexpr std::uint64_t kCountMax = UINT32_MAX;
constexpr std::uint64_t kIncrementMax = std::uint64_t{1} << 48;
// An urgent message is worth its head only with some room behind the news.
constexpr std::size_t kUrgentRoomBytes = 2048;
constexpr std::size_t kLengthBytesMax = 4;  // of a part's bytes, as a number

std::string encoded(const stats::LogSketch& sketch) {
  std::string bytes;
  sketch.encode(bytes);
  return bytes;
}

constexpr std::array kCounts{&SummaryDropped::rank_sketches,    &SummaryDropped::sketches,
                             &SummaryDropped::cluster_features, &SummaryDropped::incidents,
                             &SummaryDropped::counters,         &SummaryDropped::jobs,
                             &SummaryDropped::windows};

SummaryDropped capped(SummaryDropped dropped) {
  for (const auto count : kCounts)
    dropped.*count = std::min(dropped.*count, kCountMax);
  return dropped;
}

}  // namespace

/// A message in the making.
struct SummaryWriter::Packing {
  Summary summary;
  std::deque<std::string> storage;                 // bytes that the parts borrow
  std::map<std::uint32_t, std::uint32_t> indices;  // of jobs in the message, by id
  std::vector<std::size_t> incidents;              // that are in it, by place
  bool has_counters{false};
  std::size_t left{0};  // bytes

  [[nodiscard]] bool fits(const SummaryPart& part) const {
    return internal::part_bytes(part) <= left && summary.parts.size() < kSummaryPartsMax;
  }
  /// Adds `part` with `bytes` if it fits.
  bool add(SummaryPart part, std::string bytes) {
    part.bytes = as_bytes(bytes);
    if (!fits(part)) return false;
    left -= internal::part_bytes(part);
    storage.push_back(std::move(bytes));
    part.bytes = as_bytes(storage.back());
    summary.parts.push_back(part);
    return true;
  }
};

SummaryWriter::SummaryWriter(SummaryOptions options, BootTime now)
    : options_(std::move(options)), begin_(now), begin_wall_ns_(options_.epoch_ns) {}

Result<SummaryWriter> SummaryWriter::create(SummaryOptions options, BootTime now) {
  const auto refuse = [](std::string_view what) {
    return Error{Code::kLimit, fmt::format("start fleet summaries: {}", what)};
  };
  if (options.features.size() > kSummaryFeaturesMax) return refuse("too many features");
  if (!options.axes.empty() && options.axes.size() != options.features.size())
    return refuse("not exactly one axis per feature");
  if (options.period < std::chrono::seconds{1}) return refuse("a period below 1 s");
  if (options.budget.bytes_per_second < kBytesPerSecondMin)
    return refuse(fmt::format("fewer than {} bytes/s", kBytesPerSecondMin));
  for (const std::string& name : options.features)
    if (!internal::is_clean_text(name)) return refuse("name of a feature");
  options.host = internal::clean_text(options.host);
  if (options.host.empty()) options.host = "unknown";
  options.boot_id = internal::clean_text(options.boot_id);
  return SummaryWriter(std::move(options), now);
}

Result<SummaryWriter::JobId> SummaryWriter::set_job(SummaryJob job) {
  job.key = internal::clean_text(job.key);
  job.name = internal::clean_text(job.name);
  job.world_size = std::max(job.world_size, 0);
  std::erase_if(job.ranks, [](std::int32_t rank) { return rank < 0; });
  std::sort(job.ranks.begin(), job.ranks.end());
  job.ranks.erase(std::unique(job.ranks.begin(), job.ranks.end()), job.ranks.end());
  const auto known = std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& entry) {
    return entry.second.info.key == job.key;
  });
  const bool is_known = known != jobs_.end();
  const std::size_t before = is_known ? known->second.info.ranks.size() : 0;
  if (rank_count_ - before + job.ranks.size() > kSummaryRanksMax ||
      (!is_known && jobs_.size() >= kSummaryJobsMax)) {
    ++dropped_.jobs;
    return Error{Code::kLimit, fmt::format("publish job {}: more than {} jobs or {} ranks",
                                           job.name, kSummaryJobsMax, kSummaryRanksMax)};
  }
  rank_count_ += job.ranks.size() - before;
  const std::uint32_t id = is_known ? known->first : next_job_++;
  jobs_[id].info = std::move(job);
  jobs_[id].is_over = false;
  return JobId{id};
}

void SummaryWriter::remove_job(JobId job) {
  if (const auto found = jobs_.find(job.raw); found != jobs_.end()) found->second.is_over = true;
}

void SummaryWriter::add_window(JobId job, std::int32_t rank, std::span<const double> values) {
  const auto found = jobs_.find(job.raw);
  if (found == jobs_.end() || values.size() != options_.features.size() || rank < -1) {
    ++dropped_.windows;
    return;
  }
  RankSketches& ranks = found->second.ranks;
  auto place = ranks.find(rank);
  if (place == ranks.end()) {
    if (sketch_count_ + values.size() > kSketchesMax) {
      ++dropped_.windows;
      return;
    }
    sketch_count_ += values.size();
    place = ranks.emplace(rank, std::vector<stats::LogSketch>(values.size())).first;
  }
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isnan(values[i])) place->second[i].add(values[i]);
  found->second.rows.add(values, options_.axes);
}

void SummaryWriter::add_incident(JobId job, std::string_view id, std::string_view json) {
  const auto known = std::find_if(incidents_.begin(), incidents_.end(),
                                  [&](const Incident& incident) { return incident.id == id; });
  if (json.size() > kSummaryIncidentBytesMax || id.size() > kSummaryTextMax) {
    ++dropped_.incidents;
    return;
  }
  if (known != incidents_.end()) incidents_.erase(known);
  incidents_.push_back({job, std::string(id), std::string(json)});
  if (incidents_.size() <= kIncidentsMax) return;
  // An incident that was said at least once is dropped first; else the oldest is.
  const auto said = std::find_if(incidents_.begin(), incidents_.end(),
                                 [](const Incident& incident) { return incident.times_said > 0; });
  if (said == incidents_.end()) ++dropped_.incidents;
  incidents_.erase(said == incidents_.end() ? incidents_.begin() : said);
}

void SummaryWriter::add_counter(std::string_view name, std::uint64_t increment) {
  const std::string clean = internal::clean_text(name);
  if (!counters_.contains(clean) && counters_.size() >= kSummaryCountersMax) {
    ++dropped_.counters;
    return;
  }
  std::uint64_t& counter = counters_[clean];
  counter = std::min(kIncrementMax, counter + std::min(increment, kIncrementMax));
}

bool SummaryWriter::has_news() const {
  return std::any_of(incidents_.begin(), incidents_.end(),
                     [](const Incident& incident) { return incident.times_said == 0; });
}

std::size_t SummaryWriter::allowance(BootTime now) const {
  const double rate = options_.budget.bytes_per_second;
  const double most = rate * static_cast<double>(options_.period.count()) * 1e-9;
  const double elapsed = static_cast<double>(std::max<std::int64_t>((now - begin_).count(), 0));
  const double bytes = std::min(most, saved_bytes_ + rate * elapsed * 1e-9);
  return static_cast<std::size_t>(std::min(bytes, static_cast<double>(kSummaryBytesMax)));
}

bool SummaryWriter::is_due(BootTime now) const {
  const Nanos elapsed = now - begin_;
  if (elapsed >= options_.period) return true;
  if (!has_news() || elapsed < options_.urgent_delay) return false;
  std::size_t news_bytes = kUrgentRoomBytes;
  for (const Incident& incident : incidents_)
    if (incident.times_said == 0) news_bytes += incident.json.size();
  return allowance(now) >= news_bytes;
}

std::size_t SummaryWriter::memory_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [id, job] : jobs_)
    for (const auto& [rank, sketches] : job.ranks)
      for (const stats::LogSketch& sketch : sketches)
        bytes += sketch.memory_bytes();
  return bytes;
}

/// Names of features take at most half of the message; without them no sketch can be sent. Jobs
/// that do not fit are left out, the youngest first.
void SummaryWriter::pack_jobs(Packing& packing) const {
  const auto size_with = [&](const Summary& summary) {
    const auto bytes = encode_summary(summary);
    return bytes ? bytes->size() : SIZE_MAX;
  };
  Summary& summary = packing.summary;
  const std::size_t most = packing.left;
  summary.features = options_.features;
  std::size_t used = size_with(summary);
  if (used > most / 2) {
    summary.features.clear();
    used = size_with(summary);
  }
  for (const auto& [id, job] : jobs_) {
    summary.jobs.push_back(job.info);
    const std::size_t with_job = size_with(summary);
    if (with_job > most) {
      summary.jobs.pop_back();
      ++summary.dropped.jobs;
      continue;
    }
    packing.indices[id] = static_cast<std::uint32_t>(summary.jobs.size() - 1);
    used = with_job;
  }
  packing.left = used > most ? 0 : most - used;
}

void SummaryWriter::pack_counters(Packing& packing) const {
  if (counters_.empty()) return;
  const Counters counters(counters_.begin(), counters_.end());
  packing.has_counters = packing.add({.kind = PartKind::kCounters}, encode_counters(counters));
}

void SummaryWriter::pack_incidents(Packing& packing, bool are_new) const {
  for (std::size_t i = 0; i < incidents_.size(); ++i) {
    const Incident& incident = incidents_[i];
    if ((incident.times_said == 0) != are_new) continue;
    const auto job = packing.indices.find(incident.job.raw);
    const std::uint32_t index = job == packing.indices.end() ? kNoIndex : job->second;
    if (packing.add({.kind = PartKind::kIncident, .job = index}, incident.json))
      packing.incidents.push_back(i);
  }
}

void SummaryWriter::pack_cluster_features(Packing& packing) const {
  std::size_t waiting = 0;
  for (const auto& [id, job] : jobs_)
    waiting += job.rows.empty() ? 0 : 1;
  for (const auto& [id, job] : jobs_) {
    if (job.rows.empty()) continue;
    const std::size_t share = packing.left / waiting--;
    const auto index = packing.indices.find(id);
    SummaryPart part{.kind = PartKind::kClusterFeatures};
    part.job = index == packing.indices.end() ? kNoIndex : index->second;
    const std::size_t head = internal::part_bytes(part) + kLengthBytesMax;
    // Without the names of the features nobody could read them.
    std::string bytes;
    if (part.job != kNoIndex && !packing.summary.features.empty() && share > head)
      bytes = job.rows.encode(options_.axes, share - head);
    if (bytes.empty() || !packing.add(part, std::move(bytes)))
      ++packing.summary.dropped.cluster_features;
  }
}

/// Each job's sketch of each feature, over its ranks.
void SummaryWriter::pack_sketches(Packing& packing) const {
  for (std::uint32_t feature = 0; feature < options_.features.size(); ++feature) {
    for (const auto& [id, job] : jobs_) {
      stats::LogSketch sum;
      std::int32_t last_rank = kAllRanks;
      int rank_count = 0;
      for (const auto& [rank, sketches] : job.ranks) {
        if (sketches[feature].count() == 0) continue;
        sum.merge(sketches[feature]);
        last_rank = rank;
        ++rank_count;
      }
      if (rank_count == 0) continue;
      const auto index = packing.indices.find(id);
      if (index == packing.indices.end() || packing.summary.features.empty() ||
          !packing.add({.kind = PartKind::kSketch,
                        .job = index->second,
                        .rank = rank_count == 1 ? last_rank : kAllRanks,
                        .feature = feature},
                       encoded(sum)))
        ++packing.summary.dropped.sketches;
    }
  }
}

/// If there is room, puts the sketches of single ranks in place of their job's.
void SummaryWriter::split_by_rank(Packing& packing) const {
  std::map<std::uint32_t, const Job*> jobs;  // by index in the message
  for (const auto& [id, index] : packing.indices)
    jobs[index] = &jobs_.at(id);
  std::vector<SummaryPart> parts;
  parts.swap(packing.summary.parts);
  std::size_t part_count = parts.size();
  for (const SummaryPart& part : parts) {
    std::vector<SummaryPart> split;
    std::size_t bytes = 0;
    if (part.kind == PartKind::kSketch && part.rank == kAllRanks) {
      for (const auto& [rank, sketches] : jobs.at(part.job)->ranks) {
        if (sketches[part.feature].count() == 0) continue;
        packing.storage.push_back(encoded(sketches[part.feature]));
        split.push_back(
            {part.kind, part.job, rank, part.feature, as_bytes(packing.storage.back())});
        bytes += internal::part_bytes(split.back());
      }
    }
    const std::size_t left = packing.left + internal::part_bytes(part);
    if (!split.empty() && bytes <= left && part_count + split.size() <= kSummaryPartsMax) {
      packing.left = left - bytes;
      part_count += split.size();
      packing.summary.parts.insert(packing.summary.parts.end(), split.begin(), split.end());
      continue;
    }
    packing.summary.dropped.rank_sketches += split.size();
    packing.summary.parts.push_back(part);
  }
}

std::string SummaryWriter::take(BootTime now, std::int64_t wall_ns) {
  const std::size_t most = allowance(now);
  // An agent that was started before its clock was right would always seem to be the one that ran
  // before another one of its host; of an epoch that is still to come nothing is taken.
  const std::int64_t elapsed_ns = (now - begin_).count();
  if (wall_ns - begin_wall_ns_ > elapsed_ns + kClockStep.count() ||
      options_.epoch_ns - wall_ns > 3 * kClockStep.count()) {
    options_.epoch_ns = wall_ns;
    sequence_ = 0;
    begin_wall_ns_ = wall_ns - elapsed_ns;
  }
  Packing packing;
  Summary& summary = packing.summary;
  summary.host = options_.host;
  summary.boot_id = options_.boot_id;
  summary.epoch_ns = options_.epoch_ns;
  summary.sequence = sequence_;
  summary.begin_ns = std::min(begin_wall_ns_, wall_ns);  // the wall clock may have been set back
  summary.end_ns = wall_ns;
  const auto head = encode_summary(summary);
  CHECK(head.has_value());
  if (head->size() + kReserveBytes > most) return "";
  packing.left = most - kReserveBytes;
  summary.dropped = capped(dropped_);
  pack_jobs(packing);
  pack_counters(packing);
  pack_incidents(packing, true);
  pack_sketches(packing);
  pack_incidents(packing, false);
  pack_cluster_features(packing);
  split_by_rank(packing);
  summary.dropped = capped(summary.dropped);
  auto bytes = encode_summary(summary);
  CHECK(bytes.has_value() && bytes->size() <= most);
  end_period(packing);
  saved_bytes_ = static_cast<double>(most - bytes->size());
  begin_ = now;
  begin_wall_ns_ = wall_ns;
  return *std::move(bytes);
}

void SummaryWriter::end_period(const Packing& packing) {
  ++sequence_;
  for (std::size_t i = 0; i < kCounts.size(); ++i)
    dropped_total_.*kCounts[i] += packing.summary.dropped.*kCounts[i];
  dropped_ = {};
  if (packing.has_counters) counters_.clear();
  for (const std::size_t place : packing.incidents)
    ++incidents_[place].times_said;
  std::erase_if(incidents_,
                [](const Incident& incident) { return incident.times_said >= kIncidentRepeats; });
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    job->second.ranks.clear();
    job->second.rows.end_period(options_.axes);
    if (job->second.is_over) rank_count_ -= job->second.info.ranks.size();
    job = job->second.is_over ? jobs_.erase(job) : std::next(job);
  }
  sketch_count_ = 0;
}

}  // namespace kansoku::fleet
