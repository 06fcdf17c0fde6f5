// SPDX-License-Identifier: Apache-2.0
#include "simulate/workload/workload.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "common/check.h"
#include "common/hash.h"
#include "common/parse.h"
#include "simulate/workload/number.h"

namespace kansoku::simulate {
namespace {

constexpr std::size_t kSlotsFirst = 64;
constexpr std::size_t kProbesMax = 32;  // slots looked at before a text counts as crowded

std::uint32_t hash_of(std::string_view text) {
  std::uint64_t hash = Fnv().add(text).value();
  hash ^= hash >> 32;  // the high bits are the mixed ones
  return static_cast<std::uint32_t>(hash);
}

}  // namespace

InternLookup::InternLookup(const std::vector<std::string>& table) : slots_(kSlotsFirst) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (!find(table, table[i])) add(table, static_cast<std::uint32_t>(i));
  }
}

std::optional<std::uint32_t> InternLookup::find(const std::vector<std::string>& table,
                                                std::string_view text) const {
  const std::uint32_t hash = hash_of(text);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t probe = 0; probe < kProbesMax; ++probe) {
    const Slot& slot = slots_[(hash + probe) & mask];
    if (slot.index_plus_one == 0) return std::nullopt;
    const std::uint32_t index = slot.index_plus_one - 1;
    if (slot.hash == hash && table[index] == text) return index;
  }
  const auto crowded = crowded_.find(text);
  if (crowded == crowded_.end()) return std::nullopt;
  return crowded->second;
}

bool InternLookup::try_place(Slot slot) {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t probe = 0; probe < kProbesMax; ++probe) {
    Slot& at = slots_[(slot.hash + probe) & mask];
    if (at.index_plus_one != 0) continue;
    at = slot;
    return true;
  }
  return false;
}

void InternLookup::add(const std::vector<std::string>& table, std::uint32_t index) {
  if (2 * (count_ + 1) > slots_.size()) grow(table);
  place(table, {hash_of(table[index]), index + 1});
}

void InternLookup::place(const std::vector<std::string>& table, Slot slot) {
  if (try_place(slot)) {
    ++count_;
  } else {
    crowded_.emplace(table[slot.index_plus_one - 1], slot.index_plus_one - 1);
  }
}

void InternLookup::grow(const std::vector<std::string>& table) {
  std::vector<Slot> slots = std::exchange(slots_, std::vector<Slot>(slots_.size() * 2));
  for (const auto& [text, index] : std::exchange(crowded_, {}))
    slots.push_back({hash_of(text), index + 1});
  count_ = 0;
  for (const Slot& slot : slots) {
    if (slot.index_plus_one != 0) place(table, slot);
  }
}

std::uint32_t intern(std::vector<std::string>& table, std::string_view text, InternLookup& lookup) {
  if (const auto known = lookup.find(table, text)) return *known;
  CHECK(table.size() < std::numeric_limits<std::uint32_t>::max() - 1);
  const auto index = static_cast<std::uint32_t>(table.size());
  table.emplace_back(text);
  lookup.add(table, index);
  return index;
}

void sort_jobs(Workload& workload) {
  std::vector<Job>& jobs = workload.jobs;
  std::vector<Edge>& edges = workload.edges;
  const auto earlier = [](const Job& a, const Job& b) { return a.submit < b.submit; };
  if (!std::is_sorted(jobs.begin(), jobs.end(), earlier)) {
    std::vector<std::pair<Nanos, std::uint32_t>> order(jobs.size());
    for (std::size_t i = 0; i < jobs.size(); ++i)
      order[i] = {jobs[i].submit, static_cast<std::uint32_t>(i)};
    std::sort(order.begin(), order.end());  // the index makes it stable
    std::vector<Job> sorted(jobs.size());
    std::vector<std::uint32_t> place(edges.empty() ? 0 : jobs.size());
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      sorted[i] = jobs[order[i].second];
      if (!place.empty()) place[order[i].second] = static_cast<std::uint32_t>(i);
    }
    jobs = std::move(sorted);
    for (Edge& edge : edges)
      edge = {place[edge.parent], place[edge.child]};
  }
  const auto key = [](const Edge& edge) { return std::tie(edge.child, edge.parent); };
  std::sort(edges.begin(), edges.end(),
            [&](const Edge& a, const Edge& b) { return key(a) < key(b); });
  edges.erase(std::unique(edges.begin(), edges.end(),
                          [&](const Edge& a, const Edge& b) { return key(a) == key(b); }),
              edges.end());
}

std::vector<std::uint32_t> sessions(const Workload& workload, Nanos gap) {
  struct Last {
    Nanos submit{0};
    std::uint32_t session{0};
    bool any{false};
  };
  std::vector<Last> last(workload.groups.size());
  std::vector<std::uint32_t> numbers;
  numbers.reserve(workload.jobs.size());
  std::uint32_t next = 0;
  for (const Job& job : workload.jobs) {
    CHECK(job.group < last.size());
    Last& before = last[job.group];
    CHECK(!before.any || before.submit <= job.submit);
    if (!before.any || job.submit - before.submit > gap) before.session = next++;
    before.submit = job.submit;
    before.any = true;
    numbers.push_back(before.session);
  }
  return numbers;
}

double gpu_seconds(const Job& job) {
  if (job.duration < Nanos{0}) return 0;
  const double gpus = static_cast<double>(job.gpus) * job.gpu_milli / 1000.0;
  return gpus * (static_cast<double>(job.duration.count()) / 1e9) * job.instances;
}

double gpu_seconds(const Workload& workload) {
  double sum = 0;
  for (const Job& job : workload.jobs)
    sum += gpu_seconds(job);
  return sum;
}

std::optional<std::uint32_t> job_on_cycle(const Workload& workload) {
  if (workload.edges.empty()) return std::nullopt;
  const std::size_t job_count = workload.jobs.size();
  std::vector<std::uint32_t> parents_left(job_count), first_child(job_count + 1);
  for (const Edge& edge : workload.edges) {
    CHECK(edge.parent < job_count && edge.child < job_count);
    ++parents_left[edge.child];
    ++first_child[edge.parent + 1];
  }
  std::partial_sum(first_child.begin(), first_child.end(), first_child.begin());
  std::vector<std::uint32_t> children(workload.edges.size()), filled(first_child);
  for (const Edge& edge : workload.edges)
    children[filled[edge.parent]++] = edge.child;

  std::vector<std::uint32_t> ready;
  for (std::uint32_t i = 0; i < job_count; ++i) {
    if (parents_left[i] == 0) ready.push_back(i);
  }
  std::size_t done = 0;
  for (; done < ready.size(); ++done) {
    const std::uint32_t job = ready[done];
    for (std::uint32_t i = first_child[job]; i < first_child[job + 1]; ++i) {
      if (--parents_left[children[i]] == 0) ready.push_back(children[i]);
    }
  }
  if (done == job_count) return std::nullopt;
  // The rest lies on a cycle or behind one; going up often enough ends on one.
  std::vector<std::uint32_t> blocked_by(job_count);
  for (const Edge& edge : workload.edges) {
    if (parents_left[edge.parent] != 0) blocked_by[edge.child] = edge.parent;
  }
  std::uint32_t at = 0;
  while (parents_left[at] == 0)
    ++at;
  for (std::size_t step = 0; step < job_count; ++step)
    at = blocked_by[at];
  return at;
}

std::optional<Nanos> parse_span(std::string_view untrusted) {
  if (untrusted.empty()) return std::nullopt;
  constexpr std::int64_t kDayNs = 86'400'000'000'000;
  const char unit = untrusted.back();
  const std::int64_t scale_ns = unit == 'd'   ? kDayNs
                                : unit == 'w' ? 7 * kDayNs
                                : unit == 'y' ? 365 * kDayNs
                                              : 0;
  if (scale_ns > 0) {
    const auto count = parse_int<std::int64_t>(untrusted.substr(0, untrusted.size() - 1));
    if (!count || *count < 0 || *count > kTimeNsMax / scale_ns) return std::nullopt;
    return Nanos{*count * scale_ns};
  }
  if (const auto seconds = parse_decimal(untrusted, 9))
    return *seconds >= 0 && *seconds <= kTimeNsMax ? std::optional(Nanos{*seconds}) : std::nullopt;
  const auto span = parse_duration(untrusted);
  if (!span || *span < Nanos{0} || span->count() > kTimeNsMax) return std::nullopt;
  return span;
}

Result<Nanos> offset_of(const Workload& workload, std::string_view untrusted) {
  if (const auto span = parse_span(untrusted)) return *span;
  std::string civil(untrusted);
  if (civil.size() == 10) civil += " 00:00:00";
  const auto wanted = parse_civil_ns(civil);
  if (!wanted)
    return Error{Code::kCorrupt, "time \"" + std::string(untrusted) + "\": not understood",
                 "give a date (2017-09-25, 2017-09-25 08:00:00) or a span from the start (21d)"};
  const auto epoch = parse_civil_ns(workload.epoch);
  if (!epoch)
    return Error{Code::kUnsupported, "time \"" + std::string(untrusted) +
                                         "\": the trace has no calendar; give a span (21d)"};
  return Nanos{*wanted - *epoch};
}

}  // namespace kansoku::simulate
