// SPDX-License-Identifier: Apache-2.0
#include "fleet/internal/job_store.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

namespace kansoku::fleet::internal {
namespace {

// Windows that one sketch of one message may count: far more than a period has, and so few that the
// sum of all stays decodable.
constexpr std::uint64_t kSketchCountMax = std::uint64_t{1} << 20;

/// Puts `entry` into `list`, one a rank and host, most extreme first.
template <class Before>
void keep(std::vector<Extremes::Entry>& list, const Extremes::Entry& entry, Before is_before) {
  const auto same = std::find_if(list.begin(), list.end(), [&](const Extremes::Entry& other) {
    return other.rank == entry.rank && *other.host == *entry.host;
  });
  if (same != list.end()) {
    if (!is_before(entry, *same)) return;
    list.erase(same);
  }
  list.insert(std::upper_bound(list.begin(), list.end(), entry, is_before), entry);
  if (list.size() > Extremes::kCount) list.pop_back();
}

std::vector<FleetRank> ranks_of(const std::vector<Extremes::Entry>& entries) {
  std::vector<FleetRank> ranks;
  ranks.reserve(entries.size());
  for (const Extremes::Entry& entry : entries)
    ranks.push_back({entry.rank, *entry.host, entry.p50});
  return ranks;
}

}  // namespace

std::uint32_t Names::id_of(std::string_view name) {
  if (const auto found = ids_.find(name); found != ids_.end()) return found->second;
  if (ids_.size() >= count_max_) return kNoIndex;
  const auto id = static_cast<std::uint32_t>(names_.size());
  names_.push_back(&ids_.emplace(name, id).first->first);
  return id;
}

void Extremes::add(const Entry& entry) {
  const auto key = [](const Entry& e) { return std::tie(e.rank, *e.host); };
  keep(highest_, entry, [&](const Entry& a, const Entry& b) {
    return a.p50 != b.p50 ? a.p50 > b.p50 : key(a) < key(b);
  });
  keep(lowest_, entry, [&](const Entry& a, const Entry& b) {
    return a.p50 != b.p50 ? a.p50 < b.p50 : key(a) < key(b);
  });
}

JobStore::JobStore(const CollectorOptions& options, FleetLoss& loss)
    : options_(options), loss_(loss), features_(options.features_max) {}

std::size_t JobStore::Cell::bytes() const {
  return sizeof(Cell) + live.memory_bytes() + packed.capacity() +
         (extremes.highest().capacity() + extremes.lowest().capacity()) * sizeof(Extremes::Entry);
}

JobStore::Job* JobStore::job_of(const SummaryJob& job, std::int64_t end_ns) {
  auto found = jobs_.find(job.key);
  if (found == jobs_.end()) {
    if (jobs_.size() >= options_.jobs_max) {
      ++loss_.above_limits;
      return nullptr;
    }
    found = jobs_.emplace(job.key, Job{}).first;
  }
  Job& own = found->second;
  // The latest word counts; of several at one time the greatest, whatever came first.
  if (std::tie(end_ns, job.world_size, job.name) >=
      std::tie(own.named_ns, own.world_size, own.name)) {
    own.named_ns = end_ns;
    own.world_size = job.world_size;
    own.name = job.name;
  }
  return &own;
}

void JobStore::add(const Summary& summary, const HostName& host, std::int64_t slot) {
  std::vector<Job*> jobs;
  for (const SummaryJob& job : summary.jobs)
    jobs.push_back(job_of(job, summary.end_ns));
  for (const SummaryPart& part : summary.parts) {
    if (part.kind != PartKind::kSketch || jobs[part.job] == nullptr) continue;
    add_part(*jobs[part.job], summary, part, host, slot);
  }
}

void JobStore::add_part(Job& job, const Summary& summary, const SummaryPart& part,
                        const HostName& host, std::int64_t slot) {
  const auto sketch = stats::LogSketch::decode(part.bytes);
  if (!sketch || sketch->count() > kSketchCountMax) {
    ++loss_.bad_parts;
    return;
  }
  const std::uint32_t feature = features_.id_of(summary.features[part.feature]);
  if (feature == kNoIndex || bytes_ >= options_.sketch_bytes_max) {
    ++loss_.above_limits;
    return;
  }
  if (feature >= places_.size()) places_.resize(feature + 1, kNoIndex);
  places_[feature] = std::min(places_[feature], part.feature);
  Slot& cells = job.slots[slot];
  const auto found = cells.find(feature);
  Cell& cell = found == cells.end() ? cells[feature] : found->second;
  const std::size_t before = found == cells.end() ? 0 : cell.bytes();
  cell.live.merge(*sketch);
  if (part.rank != kAllRanks && sketch->count() > 0)
    cell.extremes.add({sketch->quantile(0.5), part.rank, host});
  bytes_ += cell.bytes() - before;
}

/// Live values join the bytes; the extremes are only told of late slots.
void JobStore::pack(Cell& cell) {
  if (cell.live.count() == 0) return;
  bytes_ -= cell.bytes();
  if (!cell.packed.empty()) {
    // Our own bytes: within limits, since every sketch that went in was far below them.
    if (const auto before = stats::LogSketch::decode(as_bytes(cell.packed)); before)
      cell.live.merge(*before);
  }
  std::string packed;
  cell.live.encode(packed);
  packed.shrink_to_fit();
  cell = {};
  cell.packed = std::move(packed);
  bytes_ += cell.bytes();
}

void JobStore::move_on(std::int64_t first, std::int64_t first_live) {
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    auto& slots = job->second.slots;
    while (!slots.empty() && slots.begin()->first < first) {
      for (const auto& [feature, cell] : slots.begin()->second)
        bytes_ -= cell.bytes();
      slots.erase(slots.begin());
    }
    for (auto slot = slots.begin(); slot != slots.end() && slot->first < first_live; ++slot)
      for (auto& [feature, cell] : slot->second)
        pack(cell);
    job = slots.empty() ? jobs_.erase(job) : std::next(job);
  }
}

FleetFeature JobStore::feature_of(const Job& job, std::uint32_t feature,
                                  std::int64_t now_slot) const {
  FleetFeature result;
  result.name = features_.name(feature);
  stats::LogSketch sum;
  const Extremes* extremes = nullptr;
  for (const auto& [slot, cells] : job.slots) {
    const auto cell = cells.find(feature);
    if (cell == cells.end()) continue;
    sum.merge(cell->second.live);
    if (!cell->second.packed.empty()) {
      if (const auto packed = stats::LogSketch::decode(as_bytes(cell->second.packed)); packed)
        sum.merge(*packed);
    }
    const bool has_ranks = !cell->second.extremes.highest().empty();
    if (has_ranks && (slot < now_slot || extremes == nullptr)) extremes = &cell->second.extremes;
  }
  result.count = sum.count();
  result.p10 = sum.quantile(0.1);
  result.p50 = sum.quantile(0.5);
  result.p90 = sum.quantile(0.9);
  result.p99 = sum.quantile(0.99);
  if (extremes != nullptr) {
    result.highest = ranks_of(extremes->highest());
    result.lowest = ranks_of(extremes->lowest());
  }
  return result;
}

std::vector<FleetJob> JobStore::jobs(std::int64_t now_slot) const {
  std::vector<FleetJob> result;
  for (const auto& [key, job] : jobs_) {
    FleetJob entry{key, job.name, job.world_size, 0, 0, {}};
    const auto by_place = [this](std::uint32_t a, std::uint32_t b) {
      return std::tie(places_[a], features_.name(a)) < std::tie(places_[b], features_.name(b));
    };
    std::set<std::uint32_t, decltype(by_place)> features(by_place);
    for (const auto& [slot, cells] : job.slots)
      for (const auto& [feature, cell] : cells)
        features.insert(feature);
    for (const std::uint32_t feature : features)
      entry.features.push_back(feature_of(job, feature, now_slot));
    result.push_back(std::move(entry));
  }
  return result;
}

}  // namespace kansoku::fleet::internal
