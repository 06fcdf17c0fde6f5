// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/process_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <set>
#include <string_view>
#include <tuple>

namespace kansoku::capture {
namespace {

constexpr std::size_t kAncestorsMax = 16;

/// True if two processes, one above the other, do the same thing by their own word.
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

/// In this order processes were started: several may start within one tick.
using Age = std::pair<std::uint64_t, std::int32_t>;
Age age_of(const JobProcess& process) {
  return {process.start_ticks, process.pid};
}

/// With the command and the rank that it had before, if it has ended since and tells them no more.
JobProcess with_known(JobProcess process, const JobProcess& before) {
  if (before.start_ticks != process.start_ticks || !process.arguments.empty()) return process;
  process.arguments = before.arguments;
  process.started_by = before.started_by;
  if (process.facts.job.empty()) process.facts = before.facts;
  return process;
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
  if (const auto known = processes_.find(pid); known != processes_.end())
    facts = with_known(std::move(facts), known->second.facts);
  remove(pid);
  const bool has_room = processes_.size() < options_.processes_max &&
                        (!options_.is_shared || shares_.take(facts.owner.user));
  if (!has_room) {
    ++over_limit_;
    return nullptr;
  }
  clues_[pid].ancestors = ancestors_of(facts);
  has_news_ = true;
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

bool is_counted(const Observed& process) {
  return process.place.role == Role::kRank ||
         (process.place.role == Role::kNone && process.has_stacks);
}

void ProcessTable::note_work(std::int32_t pid, Work work) {
  const auto known = clues_.find(pid);
  if (known == clues_.end()) return;
  Clues& clues = known->second;
  const bool communicates = work == Work::kCommunicates;
  has_news_ = has_news_ || !clues.works || (communicates && !clues.communicates);
  clues.works = true;
  clues.communicates = clues.communicates || communicates;
}

bool ProcessTable::note_seat(const GroupSeat& seat) {
  const auto known = clues_.find(seat.pid);
  if (known == clues_.end()) return false;
  note_work(seat.pid, Work::kCommunicates);
  std::optional<GroupSeat>& greatest = known->second.seat;
  // The first of equal size counts: others are made from it.
  const bool is_less = greatest && (greatest->size > seat.size || *greatest == seat ||
                                    (greatest->size == seat.size && greatest->group != seat.group));
  if (seat.size < 2 || is_less) return true;
  greatest = seat;
  has_news_ = true;
  return true;
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

// By process, the older ones first: whoever is above has its owner already.
std::map<std::int32_t, std::int32_t> ProcessTable::owners() const {
  std::vector<const Observed*> by_age;
  by_age.reserve(processes_.size());
  for (const auto& [pid, process] : processes_)
    by_age.push_back(&process);
  std::sort(by_age.begin(), by_age.end(), [](const Observed* a, const Observed* b) {
    return age_of(a->facts) < age_of(b->facts);
  });
  std::map<std::int32_t, std::int32_t> out;
  for (const Observed* process : by_age) {
    const std::int32_t pid = process->facts.pid;
    const Observed* above = clues_.at(pid).works ? nullptr : nearest_above(*process);
    const bool is_worker = above != nullptr && is_same_work(process->facts, above->facts);
    out.emplace(pid, is_worker ? out.at(above->facts.pid) : pid);
  }
  return out;
}

// Children of a shell, or of nobody, have only their command in common.
bool ProcessTable::may_be_spawned(const JobProcess& process) const {
  if (process.facts.rank != trace::kNoRank) return false;
  const auto parent = processes_.find(process.parent_pid);
  return parent != processes_.end() && !is_wrapper(parent->second.facts.name);
}

/// True if the environment of a process says what its groups say, or more.
bool ProcessTable::is_told(const JobProcess& process) const {
  const auto& seat = clues_.at(process.pid).seat;
  if (process.facts.rank == trace::kNoRank) return false;
  return process.facts.world_size > seat->size ||
         (process.facts.world_size == seat->size && process.facts.rank == seat->rank);
}

/// "pid-N" of the nearest process above all of them, which may be one of them.
std::string ProcessTable::name_by_ancestor(const std::vector<const JobProcess*>& members) const {
  const auto line_of = [&](const JobProcess& process) {
    std::vector<std::int32_t> line{process.pid};
    const auto& above = clues_.at(process.pid).ancestors;
    line.insert(line.end(), above.begin(), above.end());
    return line;
  };
  for (const std::int32_t above : line_of(*members.front())) {
    const bool is_common =
        std::all_of(members.begin(), members.end(), [&](const JobProcess* process) {
          const auto line = line_of(*process);
          return std::find(line.begin(), line.end(), above) != line.end();
        });
    if (is_common) return fmt::format("pid-{}", above);
  }
  return fmt::format("pid-{}", members.front()->pid);
}

/// A name for a job that tells none: one program may start several groups.
std::string ProcessTable::fresh_name(const std::string& told) const {
  std::set<std::string> taken;
  for (const auto& [pid, clues] : clues_)
    if (clues.guess) taken.insert(clues.guess->job);
  std::string job;
  for (int i = 1; job.empty() || taken.contains(job); ++i)
    job = numbered_job(told, i);
  return job;
}

/// Two processes that have the same place, or of which one has none or is in a group of another
/// size; nothing if all fit together.
std::optional<std::pair<std::int32_t, std::int32_t>> ProcessTable::misfits(
    const std::vector<const JobProcess*>& members) const {
  std::map<std::int32_t, std::int32_t> by_rank;
  const auto& first = clues_.at(members.front()->pid).seat;
  for (const JobProcess* one : members) {
    const auto& seat = clues_.at(one->pid).seat;
    if (!first || !seat || seat->size != first->size) return {{members.front()->pid, one->pid}};
    const auto [holder, is_first] = by_rank.emplace(seat->rank, one->pid);
    if (!is_first) return {{holder->second, one->pid}};
  }
  return std::nullopt;
}

/// Gives the processes of one job the ranks that their groups say.
void ProcessTable::seat(const std::vector<const JobProcess*>& members) {
  const bool are_all_told = std::all_of(members.begin(), members.end(),
                                        [&](const JobProcess* one) { return is_told(*one); });
  if (are_all_told) return;
  const auto pair = misfits(members);
  std::string job;
  for (const JobProcess* one : members) {
    Clues& clues = clues_.at(one->pid);
    if (clues.guess && job.empty()) job = clues.guess->job;  // a name stays
    clues.is_contradicted = pair.has_value();
    clues.guess.reset();
  }
  if (pair) {
    const GroupSeat& seat = *clues_.at(pair->first).seat;
    problems_.push_back(fmt::format(
        "processes {} and {} are both rank {} of a group of {}: no rank is told of their job",
        pair->first, pair->second, seat.rank, seat.size));
    return;
  }
  if (job.empty()) job = fresh_name(name_by_ancestor(members));
  for (const JobProcess* one : members) {
    Clues& clues = clues_.at(one->pid);
    clues.guess = Guess{job, clues.seat->rank, clues.seat->size};
  }
}

// While some of a group are not seen to talk to the others yet, they are asked again.
void ProcessTable::seat_ranks(BootTime now) {
  if (!options_.connected) return;
  std::map<std::int32_t, std::vector<const JobProcess*>> by_size;
  std::set<std::int32_t> open;  // sizes of groups in which somebody has no place yet
  for (const auto& [pid, clues] : clues_) {
    if (!clues.seat || clues.is_contradicted) continue;
    const JobProcess& process = processes_.at(pid).facts;
    by_size[clues.seat->size].push_back(&process);
    const bool has_place = clues.guess && clues.guess->rank == clues.seat->rank &&
                           clues.guess->world_size == clues.seat->size;
    if (!has_place && !is_told(process)) open.insert(clues.seat->size);
  }
  for (const std::int32_t size : open) {
    const auto& all = by_size.at(size);
    std::vector<std::int32_t> pids;
    std::vector<std::uint64_t> networks;
    for (const JobProcess* one : all) {
      pids.push_back(one->pid);
      networks.push_back(one->owner.network);
    }
    const std::vector<std::size_t> first = options_.connected(pids, networks, now);
    std::map<std::size_t, std::vector<const JobProcess*>> jobs;
    for (std::size_t i = 0; i < all.size(); ++i)
      jobs[first.at(i)].push_back(all[i]);
    for (const auto& [at, members] : jobs)
      if (members.size() > 1) seat(members);
  }
}

void ProcessTable::guess_ranks(BootTime now) {
  constexpr Nanos kSteadyFor = std::chrono::seconds{30};  // others may wait for one that prepares
  std::map<Siblings, Group> groups;
  for (const auto& [pid, clues] : clues_) {
    const JobProcess& process = processes_.at(pid).facts;
    if (!may_be_spawned(process)) continue;
    const JobOwner owner{process.owner.user, process.owner.network};
    Group& group = groups[{process.parent_pid, owner, without_numbers(process)}];
    ++group.count;
    if (clues.communicates) group.communicating.push_back(&process);
  }
  std::map<Siblings, Growth> growing;
  for (auto& [siblings, group] : groups) {
    auto& ranks = group.communicating;
    // One that communicates alone does so with processes of other hosts: nobody here knows its
    // rank. Those that were told theirs keep them when others end.
    const bool is_settled = std::all_of(ranks.begin(), ranks.end(), [&](const JobProcess* one) {
      return clues_.at(one->pid).guess.has_value();
    });
    if (ranks.size() < 2 || is_settled) continue;
    const auto before = growing_.find(siblings);
    const bool has_grown = before == growing_.end() || before->second.size != ranks.size();
    const Growth growth = has_grown ? Growth{ranks.size(), now} : before->second;
    if (ranks.size() < group.count && now - growth.since < kSteadyFor) {
      growing.emplace(siblings, growth);
      continue;
    }
    const bool is_any_seated = std::any_of(ranks.begin(), ranks.end(), [&](const JobProcess* one) {
      return clues_.at(one->pid).seat.has_value();
    });
    if (!is_any_seated)
      number(std::move(ranks));
    else if (!misfits(ranks) && std::ssize(ranks) == clues_.at(ranks.front()->pid).seat->size)
      seat(ranks);  // a whole group: it may end before its connections are seen
  }
  growing_ = std::move(growing);
}

// A rank that has a number already keeps it.
void ProcessTable::number(std::vector<const JobProcess*> ranks) {
  std::sort(ranks.begin(), ranks.end(),
            [](const JobProcess* a, const JobProcess* b) { return age_of(*a) < age_of(*b); });
  std::string job;
  std::set<std::int32_t> numbers;
  for (const JobProcess* one : ranks) {
    const auto& guess = clues_.at(one->pid).guess;
    if (!guess) continue;
    job = guess->job;
    numbers.insert(guess->rank);
  }
  if (job.empty()) job = fresh_name(fmt::format("pid-{}", ranks.front()->parent_pid));
  std::int32_t next = 0;
  for (const JobProcess* one : ranks) {
    auto& guess = clues_.at(one->pid).guess;
    if (guess) continue;
    while (numbers.contains(next))
      ++next;
    guess = Guess{job, next, 0};
    numbers.insert(next);
  }
  for (const JobProcess* one : ranks)
    clues_.at(one->pid).guess->world_size = *numbers.rbegin() + 1;  // with those that have ended
}

// Place of a process by itself and those above it. Jobs have no names yet.
Place ProcessTable::claim_of(std::int32_t pid, std::int32_t owner) const {
  const JobProcess& process = processes_.at(pid).facts;
  const Clues& clues = clues_.at(pid);
  Place out{.job = own_job_name(process), .owner = owner};
  Place before = processes_.at(pid).place;
  const bool is_orphan = before.role == Role::kWorker && owner == pid && !clues.works &&
                         clues.has_owner_worked && !process.facts.job.empty();
  if (is_orphan) {
    before.owner = 0;
    return before;
  }
  if (const auto& guess = clues.guess) {
    out.role = Role::kRank;
    out.job = guess->job;
    out.rank = out.local_rank = guess->rank;
    out.world_size = guess->world_size;
  } else if (out.owner != pid) {
    out.role = Role::kWorker;
  } else if (clues.is_contradicted) {
    return out;
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
    return std::tuple(DeclaredJob(process.facts.job, job_owner(process)), process.facts.rank);
  };
  const auto merit_of = [&](std::int32_t pid) {
    return std::pair(!clues_.at(pid).works, age_of(processes_.at(pid).facts));
  };
  std::map<std::tuple<DeclaredJob, std::int32_t>, std::int32_t> holders;
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

/// A process that only starts ranks is no program of its own, even if nothing but its children
/// says so. Nor is it a rank of another job: its environment may have the number of its host.
void ProcessTable::find_starters(std::map<std::int32_t, Place>& places) const {
  std::map<std::int32_t, std::int32_t> starters;  // each with the first of its ranks
  for (const auto& [pid, place] : places) {
    if (place.role != Role::kRank) continue;
    for (const std::int32_t above : clues_.at(pid).ancestors)
      starters.emplace(above, pid);
  }
  for (const auto& [pid, rank] : starters) {
    const auto found = places.find(pid);
    if (found == places.end()) continue;
    const Place& started = places.at(rank);
    Place& place = found->second;
    const bool is_of_host = place.role == Role::kRank && !clues_.at(pid).guess &&
                            clues_.at(rank).guess && place.job != started.job;
    if ((place.role != Role::kNone && !is_of_host) || clues_.at(pid).works) continue;
    place = Place{.role = Role::kLauncher,
                  .job = started.job,
                  .is_local_job = started.is_local_job,
                  .owner = pid};
  }
}

void ProcessTable::name_jobs(const std::map<std::int32_t, Place>& places) {
  constexpr Age kNoRankYet{std::numeric_limits<std::uint64_t>::max(), 0};
  std::map<DeclaredJob, Age> begun;  // when the oldest rank did
  for (const auto& [pid, place] : places) {
    const JobProcess& process = processes_.at(pid).facts;
    if (process.facts.job.empty()) continue;
    Age& first = begun.try_emplace(DeclaredJob(process.facts.job, job_owner(process)), kNoRankYet)
                     .first->second;
    if (place.role == Role::kRank) first = std::min(first, age_of(process));
  }
  std::erase_if(names_, [&](const auto& one) { return !begun.contains(one.first); });
  std::map<Age, const DeclaredJob*> fresh;
  for (const auto& [told, first] : begun)
    if (first != kNoRankYet && !names_.contains(told)) fresh.emplace(first, &told);
  if (fresh.empty()) return;
  std::set<std::string> taken;
  for (const auto& [told, name] : names_)
    taken.insert(name);
  std::map<std::string_view, int> numbers;  // of each name, those that were tried
  for (const auto& [first, told] : fresh) {
    int& number = numbers[told->first];
    std::string name;
    do
      name = numbered_job(told->first, ++number);
    while (!taken.insert(name).second);
    names_.emplace(*told, std::move(name));
  }
}

std::string ProcessTable::declared_job(const JobProcess& process) const {
  const std::string& told = process.facts.job;
  if (told.empty()) return {};
  const auto known = names_.find(DeclaredJob(told, job_owner(process)));
  // Another user's processes without a rank gave their rights up for those of the first job.
  return known != names_.end() ? known->second : told;
}

std::vector<std::int32_t> ProcessTable::settle(BootTime now) {
  has_news_ = false;
  seat_ranks(now);
  guess_ranks(now);
  std::map<std::int32_t, Place> places;
  for (const auto& [pid, owner] : owners())
    places.emplace(pid, claim_of(pid, owner));
  leave_one_a_rank(places);
  name_jobs(places);
  for (auto& [pid, place] : places) {
    const bool is_told = place.role == Role::kLauncher || place.role == Role::kRank;
    if (!is_told || clues_.at(pid).guess) continue;
    const JobProcess& process = processes_.at(pid).facts;
    place.job = declared_job(process);
    place.is_local_job = is_local_job(process);
  }
  find_starters(places);
  std::vector<std::int32_t> changed;
  for (auto& [pid, place] : places) {
    const std::int32_t owner = place.owner;
    // An owner is no worker, but for one that has outlived its own.
    if (place.role == Role::kWorker && places.contains(owner)) {
      place = places.at(owner);
      place.role = Role::kWorker;
      place.owner = owner;
      const Clues& of_owner = clues_.at(owner);
      const bool is_orphan = places.at(owner).role == Role::kWorker;
      clues_.at(pid).has_owner_worked = of_owner.works || (is_orphan && of_owner.has_owner_worked);
    }
    Place& known = processes_.at(pid).place;
    if (known == place) continue;
    known = place;
    changed.push_back(pid);
  }
  return changed;
}

}  // namespace kansoku::capture
