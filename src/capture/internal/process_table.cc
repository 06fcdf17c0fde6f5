// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/process_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <string_view>
#include <tuple>

namespace kansoku::capture {
namespace {

constexpr std::size_t kAncestorsMax = 16;

/// Whether two processes, one above the other, do the same thing by what they tell.
bool is_same_work(const JobProcess& process, const JobProcess& above) {
  return process.facts.job.empty()
             ? above.facts.job.empty() && above.arguments == process.arguments
             : above.facts.job == process.facts.job && above.facts.rank == process.facts.rank;
}

/// The command line with each number as '#'.
std::string without_numbers(const JobProcess& process) {
  std::string out;
  for (const char c : process.cmdline()) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (is_digit && !out.empty() && out.back() == '#') continue;
    out += is_digit ? '#' : c;
  }
  return out;
}

/// In this order processes were started.
std::pair<std::uint64_t, std::int32_t> age_of(const JobProcess& process) {
  return {process.start_ticks, process.pid};
}

std::string numbered_job(const std::string& told, int number) {
  return number == 1 ? told : fmt::format("{}#{}", told, number);
}

}  // namespace

std::string_view role_name(Role role) {
  static constexpr std::array<std::string_view, 4> kNames{"", "launcher", "rank", "worker"};
  return kNames.at(static_cast<std::size_t>(role));
}

ProcessTable::ProcessTable(const sys::Procfs& procfs, const Options& options)
    : procfs_(procfs), options_(options), shares_(options.processes_max) {}

std::vector<std::int32_t> ProcessTable::ancestors_of(const JobProcess& process) const {
  std::vector<std::int32_t> out;
  std::int32_t above = process.parent_pid;
  while (above > 1 && out.size() < kAncestorsMax) {
    out.push_back(above);
    const auto stat = procfs_.stat(above);
    above = stat ? stat->parent_pid : 0;
  }
  return out;
}

Observed* ProcessTable::add(JobProcess facts, BootTime now) {
  const std::int32_t pid = facts.pid;
  remove(pid);
  const bool has_room = processes_.size() < options_.processes_max &&
                        (!options_.is_shared || shares_.take(facts.owner.user));
  if (!has_room) {
    ++over_limit_;
    return nullptr;
  }
  clues_[pid].ancestors = ancestors_of(facts);
  Observed& process = processes_[pid];
  process.facts = std::move(facts);
  process.seen_at = process.next_scan = now;
  return &process;
}

void ProcessTable::remove(std::int32_t pid) {
  const auto known = processes_.find(pid);
  if (known == processes_.end()) return;
  if (options_.is_shared) shares_.give(known->second.facts.owner.user);
  processes_.erase(known);
  clues_.erase(pid);
}

void ProcessTable::saw_work(std::int32_t pid, Work work) {
  const auto known = clues_.find(pid);
  if (known == clues_.end()) return;
  known->second.works = true;
  if (work == Work::kCommunicates) known->second.communicates = true;
}

// Shells and tools in between are looked through. A younger one has the number of an ancestor that
// ended; so no walk upwards goes in circles.
const Observed* ProcessTable::nearest_above(const Observed& process) const {
  for (const std::int32_t above : clues_.at(process.facts.pid).ancestors) {
    const auto found = processes_.find(above);
    if (found == processes_.end() || is_wrapper(found->second.facts.name)) continue;
    if (age_of(found->second.facts) < age_of(process.facts)) return &found->second;
  }
  return nullptr;
}

std::int32_t ProcessTable::owner_of(std::int32_t pid) const {
  const Observed* process = &processes_.at(pid);
  while (!clues_.at(process->facts.pid).works) {
    const Observed* above = nearest_above(*process);
    if (above == nullptr || !is_same_work(process->facts, above->facts)) break;
    process = above;
  }
  return process->facts.pid;
}

void ProcessTable::guess_ranks() {
  std::map<std::pair<std::int32_t, std::string>, std::vector<const JobProcess*>> siblings;
  for (const auto& [pid, clues] : clues_) {
    const JobProcess& process = processes_.at(pid).facts;
    if (clues.communicates && process.facts.rank == trace::kNoRank)
      siblings[{process.parent_pid, without_numbers(process)}].push_back(&process);
  }
  for (auto& [parent, group] : siblings) {
    // One that communicates alone does so with processes of other hosts: nobody here knows its
    // rank. Those that were told theirs keep them when others end.
    const bool is_settled = std::all_of(group.begin(), group.end(), [&](const JobProcess* one) {
      return clues_.at(one->pid).guess.has_value();
    });
    if (group.size() < 2 || is_settled) continue;
    std::sort(group.begin(), group.end(),
              [](const JobProcess* a, const JobProcess* b) { return age_of(*a) < age_of(*b); });
    const auto world_size = static_cast<std::int32_t>(group.size());
    for (std::int32_t rank = 0; rank < world_size; ++rank)
      clues_.at(group[static_cast<std::size_t>(rank)]->pid).guess = Guess{rank, world_size};
  }
}

// What a process is by itself and those above it. Jobs have no names yet.
Place ProcessTable::claim_of(std::int32_t pid) const {
  const JobProcess& process = processes_.at(pid).facts;
  Place out{.job = own_job_name(process), .owner = owner_of(pid)};
  Place before = processes_.at(pid).place;
  const bool is_orphan = before.role == Role::kWorker && out.owner == pid &&
                         !clues_.at(pid).works && !process.facts.job.empty();
  if (is_orphan) {
    before.owner = 0;
    return before;
  }
  if (const auto& guess = clues_.at(pid).guess) {
    out.role = Role::kRank;
    out.job = fmt::format("pid-{}", process.parent_pid);
    out.rank = out.local_rank = guess->rank;
    out.world_size = guess->world_size;
  } else if (out.owner != pid) {
    out.role = Role::kWorker;
  } else if (process.facts.rank != trace::kNoRank) {
    out.role = is_wrapper(process.name) ? Role::kLauncher : Role::kRank;
    out.rank = process.facts.rank;
    out.local_rank = process.facts.local_rank;
    out.world_size = process.facts.world_size;
  }
  return out;
}

void ProcessTable::leave_one_a_rank(std::map<std::int32_t, Place>& places) const {
  const auto claims = [&](std::int32_t pid, const Place& place) {
    return place.role == Role::kRank && !clues_.at(pid).guess;
  };
  const auto rank_of = [&](std::int32_t pid) {
    const JobProcess& process = processes_.at(pid).facts;
    return std::tuple(Told(process.facts.job, job_owner(process)), process.facts.rank);
  };
  const auto merit_of = [&](std::int32_t pid) {
    return std::pair(!clues_.at(pid).works, age_of(processes_.at(pid).facts));
  };
  std::map<std::tuple<Told, std::int32_t>, std::int32_t> holders;
  for (const auto& [pid, place] : places) {
    if (!claims(pid, place)) continue;
    std::int32_t& holder = holders.try_emplace(rank_of(pid), pid).first->second;
    if (merit_of(pid) < merit_of(holder)) holder = pid;
  }
  for (auto& [pid, place] : places) {
    if (!claims(pid, place)) continue;
    const std::int32_t holder = holders.at(rank_of(pid));
    if (holder == pid) continue;
    const auto& above = clues_.at(holder).ancestors;
    if (std::find(above.begin(), above.end(), pid) != above.end())
      place.role = Role::kLauncher;
    else
      place = Place{.job = own_job_name(processes_.at(pid).facts), .owner = pid};
  }
}

std::string ProcessTable::free_name(const std::string& told) const {
  for (int number = 1;; ++number) {
    std::string name = numbered_job(told, number);
    const bool is_taken = std::any_of(names_.begin(), names_.end(),
                                      [&](const auto& one) { return one.second == name; });
    if (!is_taken) return name;
  }
}

void ProcessTable::name_jobs(const std::map<std::int32_t, Place>& places) {
  constexpr std::uint64_t kNoRankYet = std::numeric_limits<std::uint64_t>::max();
  std::map<Told, std::uint64_t> begun;  // when the oldest rank did
  for (const auto& [pid, place] : places) {
    const JobProcess& process = processes_.at(pid).facts;
    if (process.facts.job.empty()) continue;
    std::uint64_t& first =
        begun.try_emplace(Told(process.facts.job, job_owner(process)), kNoRankYet).first->second;
    if (place.role == Role::kRank) first = std::min(first, process.start_ticks);
  }
  std::erase_if(names_, [&](const auto& one) { return !begun.contains(one.first); });
  std::vector<std::pair<std::uint64_t, const Told*>> fresh;
  for (const auto& [told, first] : begun)
    if (first != kNoRankYet && !names_.contains(told)) fresh.emplace_back(first, &told);
  std::stable_sort(fresh.begin(), fresh.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [first, told] : fresh)
    names_.emplace(*told, free_name(told->first));
}

std::string ProcessTable::told_job(const JobProcess& process) const {
  const std::string& told = process.facts.job;
  if (told.empty()) return {};
  const auto known = names_.find(Told(told, job_owner(process)));
  // Another user's processes without a rank gave their rights up for those of the first job.
  return known != names_.end() ? known->second : told;
}

std::vector<std::int32_t> ProcessTable::settle() {
  guess_ranks();
  std::map<std::int32_t, Place> places;
  for (const auto& [pid, process] : processes_)
    places.emplace(pid, claim_of(pid));
  leave_one_a_rank(places);
  name_jobs(places);
  for (auto& [pid, place] : places) {
    const bool is_told = place.role == Role::kLauncher || place.role == Role::kRank;
    if (!is_told || clues_.at(pid).guess) continue;
    const JobProcess& process = processes_.at(pid).facts;
    place.job = told_job(process);
    place.is_local_job = is_local_job(process);
  }
  std::vector<std::int32_t> changed;
  for (auto& [pid, place] : places) {
    const std::int32_t owner = place.owner;
    if (place.role == Role::kWorker && places.contains(owner)) {  // an owner is no worker
      place = places.at(owner);
      place.role = Role::kWorker;
      place.owner = owner;
    }
    Place& known = processes_.at(pid).place;
    if (known == place) continue;
    known = place;
    changed.push_back(pid);
  }
  return changed;
}

}  // namespace kansoku::capture
