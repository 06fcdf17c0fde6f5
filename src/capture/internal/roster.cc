// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/roster.h"

#include <fmt/format.h>

#include <algorithm>

namespace kansoku::capture {
namespace {
constexpr std::size_t kProcessesMax = 4096;
}  // namespace

std::string Roster::role_of(const JobProcess& process) const {
  if (process.facts.rank == trace::kNoRank) return {};
  if (is_wrapper(process.name)) return "launcher";
  // A rank's children inherit its environment: they are its workers.
  const auto parent = processes_.find(process.parent_pid);
  const bool is_child = parent != processes_.end() && !is_wrapper(parent->second.facts.name) &&
                        parent->second.facts.facts.rank == process.facts.rank;
  return is_child ? "worker" : "rank";
}

void Roster::write_track(Observed& process) {
  const JobProcess& facts = process.facts;
  process.role = role_of(facts);
  if (process.role == "rank") ranks_seen_.insert(facts.facts.rank);
  const std::string shown =
      facts.facts.rank == trace::kNoRank
          ? facts.name
          : fmt::format("{} {} {}", process.role, facts.facts.rank, facts.name);
  const std::string cmdline = facts.cmdline();
  process.track = writer_.process_track({.pid = facts.pid,
                                         .parent_pid = facts.parent_pid,
                                         .name = shown,
                                         .cmdline = cmdline,
                                         .job = facts.facts.job,
                                         .role = process.role,
                                         .rank = facts.facts.rank,
                                         .local_rank = facts.facts.local_rank,
                                         .world_size = facts.facts.world_size});
  writer_.thread_track(facts.pid, facts.pid, facts.name);
}

bool Roster::add(std::int32_t pid, BootTime now) {
  auto facts = describe_process(procfs_, pid);
  if (!facts) return false;
  const auto [found, is_new] = processes_.try_emplace(pid);
  if (is_new && processes_.size() > kProcessesMax) {
    processes_.erase(found);
    ++over_limit_;
    return false;
  }
  Observed fresh;
  fresh.facts = std::move(facts).value();
  fresh.seen_at = now;
  fresh.next_scan = now;
  found->second = std::move(fresh);
  write_track(found->second);
  return true;
}

void Roster::guess_ranks(const std::set<std::int32_t>& collective_pids) {
  std::map<std::int32_t, std::vector<Observed*>> siblings;  // by parent
  bool is_news = false;
  for (const std::int32_t pid : collective_pids) {
    const auto found = processes_.find(pid);
    if (found == processes_.end()) continue;
    const bool knows_its_rank =
        found->second.facts.facts.rank != trace::kNoRank && !guessed_.contains(pid);
    if (knows_its_rank) continue;
    siblings[found->second.facts.parent_pid].push_back(&found->second);
    is_news = is_news || !guessed_.contains(pid);
  }
  if (!is_news) return;
  for (auto& [parent, group] : siblings) {
    std::sort(group.begin(), group.end(), [](const Observed* a, const Observed* b) {
      return std::pair(a->facts.start_ticks, a->facts.pid) <
             std::pair(b->facts.start_ticks, b->facts.pid);
    });
    for (std::size_t rank = 0; rank < group.size(); ++rank) {
      RankFacts& facts = group[rank]->facts.facts;
      facts = {fmt::format("pid-{}", parent), static_cast<std::int32_t>(rank),
               static_cast<std::int32_t>(rank), static_cast<std::int32_t>(group.size())};
      guessed_.insert(group[rank]->facts.pid);
      write_track(*group[rank]);
    }
  }
}

}  // namespace kansoku::capture
