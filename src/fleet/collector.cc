// SPDX-License-Identifier: Apache-2.0
#include "fleet/collector.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "fleet/bus.h"
#include "fleet/internal/arrivals.h"
#include "fleet/internal/cluster_store.h"
#include "fleet/internal/incident_store.h"
#include "fleet/internal/job_store.h"

namespace kansoku::fleet {
namespace {

using internal::Arrivals;
using internal::ClusterStore;
using internal::IncidentStore;
using internal::JobStore;
using internal::Names;

// Slots that are kept as sketches: the one being filled and the one before it, for what is late.
constexpr std::int64_t kLiveSlots = 2;
constexpr std::size_t kBootIdsMax = 32;  // of a host: reboots that are counted

struct Host {
  internal::HostName name;
  std::string boot_id;
  std::set<std::string> boot_ids;  // all that were seen, to kBootIdsMax
  Arrivals arrivals;
  Arrivals::Position latest{INT64_MIN, 0};
  BootTime heard_at{};
  std::uint64_t dropped{0};
  std::vector<std::pair<std::string, std::vector<std::int32_t>>> jobs;  // key and ranks, now
};

/// Division that rounds down for times before 1970 too.
std::int64_t floor_div(std::int64_t value, std::int64_t by) {
  return value / by - (value % by < 0 ? 1 : 0);
}

}  // namespace

struct Collector::Impl {
  explicit Impl(CollectorOptions its_options)
      : options(its_options),
        jobs(options, loss),
        incidents(options, loss),
        clusters(options, loss),
        counter_names(options.counters_max) {}

  Result<void> add(ByteSpan untrusted, CollectorTime now, std::string_view subject);
  Host* host_of(const Summary& summary);
  void note(Host& host, const Summary& summary, Arrivals::Position position);
  void add_parts(const Summary& summary, const internal::HostName& host, std::int64_t slot);
  void add_counters(ByteSpan bytes, std::int64_t slot);
  void move_on(CollectorTime now);
  void fill_hosts(FleetReport& report, BootTime now) const;

  [[nodiscard]] std::int64_t slot_of(std::int64_t wall_ns) const {
    return floor_div(wall_ns, options.slot.count());
  }

  CollectorOptions options;
  FleetLoss loss;
  JobStore jobs;
  IncidentStore incidents;
  ClusterStore clusters;
  Names counter_names;
  std::map<std::int64_t, std::map<std::uint32_t, std::uint64_t>> counters;  // by slot and name
  std::map<std::string, Host, std::less<>> hosts;
  std::uint64_t messages{0}, bytes{0};
  std::int64_t moved_to{INT64_MIN};  // slot
};

Collector::Collector(CollectorOptions options) : impl_(std::make_unique<Impl>(options)) {}
Collector::Collector(Collector&&) noexcept = default;
Collector& Collector::operator=(Collector&&) noexcept = default;
Collector::~Collector() = default;

std::size_t Collector::sketch_bytes() const {
  return impl_->jobs.bytes();
}

Result<void> Collector::add(ByteSpan untrusted, CollectorTime now, std::string_view subject) {
  return impl_->add(untrusted, now, subject);
}

Host* Collector::Impl::host_of(const Summary& summary) {
  if (const auto found = hosts.find(summary.host); found != hosts.end()) return &found->second;
  if (hosts.size() >= options.hosts_max) {
    ++loss.above_limits;
    return nullptr;
  }
  Host& host = hosts[summary.host];
  host.name = std::make_shared<const std::string>(summary.host);
  return &host;
}

/// Takes a host's facts from its latest message.
void Collector::Impl::note(Host& host, const Summary& summary, Arrivals::Position position) {
  host.dropped += summary.dropped.total();
  if (host.boot_ids.size() < kBootIdsMax) host.boot_ids.insert(summary.boot_id);
  if (position < host.latest) return;
  host.latest = position;
  host.boot_id = summary.boot_id;
  host.jobs.clear();
  for (const SummaryJob& job : summary.jobs)
    host.jobs.emplace_back(job.key, job.ranks);
}

void Collector::Impl::add_counters(ByteSpan untrusted, std::int64_t slot) {
  const auto read = decode_counters(untrusted);
  if (!read) {
    ++loss.bad_parts;
    return;
  }
  for (const auto& [name, increment] : *read) {
    const std::uint32_t id = counter_names.id_of(name);
    if (id == kNoIndex) {
      ++loss.above_limits;
    } else {
      counters[slot][id] += increment;
    }
  }
}

void Collector::Impl::add_parts(const Summary& summary, const internal::HostName& host,
                                std::int64_t slot) {
  std::set<std::string_view> clustered;  // jobs: one part each
  for (std::uint32_t i = 0; i < summary.parts.size(); ++i) {
    const SummaryPart& part = summary.parts[i];
    switch (part.kind) {
      case PartKind::kSketch:  // JobStore has them
        break;
      case PartKind::kClusterFeatures:
        if (part.job == kNoIndex || clustered.insert(summary.jobs[part.job].key).second)
          clusters.add(summary, part, host, slot);
        else
          ++loss.bad_parts;
        break;
      case PartKind::kIncident:
        incidents.add(as_text(part.bytes), summary,
                      part.job == kNoIndex ? "" : summary.jobs[part.job].key, i);
        break;
      case PartKind::kCounters:
        add_counters(part.bytes, slot);
        break;
    }
  }
}

Result<void> Collector::Impl::add(ByteSpan untrusted, CollectorTime now, std::string_view subject) {
  ++messages;
  bytes += untrusted.size();
  move_on(now);
  const auto summary = decode_summary(untrusted);
  if (!summary) {
    ++loss.refused;
    return summary.error();
  }
  // A server may let each host publish by its own subject only.
  if (!subject.empty() &&
      subject != fmt::format("{}.{}", kSummarySubject, subject_word(summary->host))) {
    ++loss.refused;
    return Error{Code::kCorrupt, "collect: message of one host on the subject of another"};
  }
  Host* const host = host_of(*summary);
  if (host == nullptr) return Error{Code::kLimit, "collect: more hosts than the collector keeps"};
  host->heard_at = std::max(host->heard_at, now.boot);
  // A period belongs to the slot in which its last moment lies. A message with a clock that is off
  // is used for nothing: positions of the future would make all later ones stale.
  const std::int64_t slot = slot_of(std::max(summary->end_ns, std::int64_t{1}) - 1),
                     now_slot = slot_of(now.wall_ns);
  const auto slots = static_cast<std::int64_t>(options.slots);
  const bool is_of_the_future =
      slot > now_slot + 1 || summary->epoch_ns > summary->end_ns + options.slot.count();
  if (slot <= now_slot - slots || is_of_the_future) {
    ++loss.out_of_window;
    return Error{Code::kLimit, "collect: message with a wrong time; check the clocks of the hosts"};
  }
  const Arrivals::Position position{summary->epoch_ns, summary->sequence};
  const auto verdict = host->arrivals.add(position);
  if (verdict == Arrivals::Verdict::kStale) ++loss.stale;
  if (verdict != Arrivals::Verdict::kNew) return {};
  note(*host, *summary, position);
  jobs.add(*summary, host->name, slot);
  add_parts(*summary, host->name, slot);
  return {};
}

void Collector::Impl::move_on(CollectorTime now) {
  const std::int64_t slot = slot_of(now.wall_ns);
  if (slot == moved_to) return;
  moved_to = slot;
  const std::int64_t first = slot - static_cast<std::int64_t>(options.slots) + 1;
  jobs.move_on(first, slot - kLiveSlots + 1);
  clusters.move_on(first, slot);
  counters.erase(counters.begin(), counters.lower_bound(first));
  incidents.forget_before(now.wall_ns - options.incidents_for.count());
  std::erase_if(hosts, [&](const auto& entry) {
    return now.boot - entry.second.heard_at > options.forget_after;
  });
}

void Collector::Impl::fill_hosts(FleetReport& report, BootTime now) const {
  std::map<std::string_view, std::pair<std::uint32_t, std::set<std::int32_t>>> seen;  // by job
  for (const auto& [name, host] : hosts) {
    FleetHost entry;
    entry.host = name;
    entry.boot_id = host.boot_id;
    entry.silent_ns = (now - host.heard_at).count();
    entry.is_lost = now - host.heard_at > options.lost_after;
    entry.messages = host.arrivals.messages();
    entry.missing = host.arrivals.missing();
    entry.duplicates = host.arrivals.duplicates();
    entry.restarts = host.arrivals.restarts();
    entry.reboots =
        host.boot_ids.empty() ? 0 : static_cast<std::uint32_t>(host.boot_ids.size() - 1);
    entry.dropped = host.dropped;
    report.hosts.push_back(std::move(entry));
    if (report.hosts.back().is_lost) continue;
    for (const auto& [key, ranks] : host.jobs) {
      auto& [host_count, all_ranks] = seen[key];
      ++host_count;
      all_ranks.insert(ranks.begin(), ranks.end());
    }
  }
  for (FleetJob& job : report.jobs) {
    const auto found = seen.find(job.key);
    if (found == seen.end()) continue;
    job.host_count = found->second.first;
    job.rank_count = static_cast<std::uint32_t>(found->second.second.size());
  }
}

FleetReport Collector::report(CollectorTime now) {
  Impl& own = *impl_;
  own.move_on(now);
  FleetReport report;
  report.time_ns = now.wall_ns;
  report.window_ns = own.options.slot.count() * static_cast<std::int64_t>(own.options.slots);
  report.messages = own.messages;
  report.bytes = own.bytes;
  report.loss = own.loss;
  report.jobs = own.jobs.jobs(own.slot_of(now.wall_ns));
  for (FleetJob& job : report.jobs)
    job.model = own.clusters.model(job.key);
  report.unlearnt_parts = own.clusters.left_out();
  report.groups = own.incidents.groups();
  own.fill_hosts(report, now.boot);
  std::map<std::string, std::uint64_t> sums;
  for (const auto& [slot, counts] : own.counters)
    for (const auto& [id, count] : counts)
      sums[own.counter_names.name(id)] += count;
  report.counters.assign(sums.begin(), sums.end());
  return report;
}

}  // namespace kansoku::fleet
