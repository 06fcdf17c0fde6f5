// SPDX-License-Identifier: Apache-2.0
#include "diagnose/hang_dumps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/parse.h"
#include "common/python_code.h"
#include "common/time.h"
#include "diagnose/internal/steps/job.h"
#include "diagnose/internal/words.h"

namespace kansoku::diagnose {
namespace {

using trace::import::DumpEntry;
using trace::import::DumpGroup;
using trace::import::DumpStatus;
using trace::import::FlightDump;

constexpr std::size_t kEvidenceLinesMax = 12;
constexpr std::size_t kFormBytesMax = 4096;
constexpr std::int64_t kTimeoutMaxMs = std::int64_t{1} << 40;

/// "nccl:send 0->3" and "nccl:recv 3<-0": the other end's place within the group.
std::optional<std::size_t> peer_of(const DumpEntry& entry) {
  for (const std::string_view arrow : {"->", "<-"}) {
    const std::size_t at = entry.name.find(arrow);
    if (at == std::string::npos) continue;
    return parse_int<std::size_t>(std::string_view(entry.name).substr(at + 2));
  }
  return std::nullopt;
}

/// Operations in which all ranks must name equal sizes.
bool needs_equal_sizes(std::string_view name) {
  constexpr std::array<std::string_view, 7> kEqual{
      "all_reduce", "broadcast", "_reduce_scatter_base", "_all_gather_base", "reduce_scatter",
      "all_gather", "reduce"};
  const std::size_t colon = name.find(':');
  const std::string_view op = colon == std::string_view::npos ? name : name.substr(colon + 1);
  return std::find(kEqual.begin(), kEqual.end(), op) != kEqual.end();
}

/// Operations that no rank completes before all have begun them. Not an all_to_all, in which two
/// ranks may have nothing for each other, and none without elements.
bool needs_all(const DumpEntry& entry) {
  constexpr std::array<std::string_view, 6> kJoint{"all_reduce", "allreduce",      "all_gather",
                                                   "allgather",  "reduce_scatter", "barrier"};
  for (const char* nothing : {"[0]", "[0,", ", 0"})
    if (entry.input_sizes.find(nothing) != std::string::npos) return false;
  std::string lower(entry.name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::any_of(kJoint.begin(), kJoint.end(),
                     [&](std::string_view word) { return lower.find(word) != std::string::npos; });
}

/// How far a group has come on a rank.
struct Progress {
  std::int64_t enqueued{-1}, completed{-1};
};

/// Operation that a rank waits in.
struct Wait {
  const DumpEntry* entry{nullptr};
  std::vector<std::int32_t> for_ranks;  // by rank number
  bool is_behind{false};  // a peer completed this very operation: the device here did not
};

class DumpAnalysis {
 public:
  DumpAnalysis(std::span<const FlightDump> dumps, DumpSource source)
      : dumps_(dumps), source_(source) {}
  Result<Diagnosis> run();

 private:
  struct Rank {
    const FlightDump* dump{nullptr};
    std::map<std::string, Progress> progress;    // by group name
    std::map<std::string, std::int64_t> joint;   // completed one that needs all ranks, likewise
    bool is_older{false};                        // than the dumps of its peers
    std::map<std::string, std::int64_t> oldest;  // collective that the ring holds, likewise
    std::vector<const DumpEntry*> pending;       // by time of creation
    Wait wait;
  };

  [[nodiscard]] Result<void> take_dumps();
  void name_groups();
  void find_older();
  void find_wait(std::int32_t number, Rank& rank);
  void find_pair_wait(const DumpEntry& entry, std::int32_t number, Wait& wait) const;
  void find_group_wait(const DumpEntry& entry, std::int32_t number, Wait& wait) const;
  [[nodiscard]] const std::vector<std::int32_t>* members_of(const std::string& group) const;
  void find_mismatches(Diagnosis& out) const;
  void find_culprits(Diagnosis& out) const;
  void find_circle(Diagnosis& out) const;
  [[nodiscard]] Finding missing_finding(const std::vector<std::int32_t>& ranks) const;
  [[nodiscard]] Finding stuck_finding(const std::vector<std::int32_t>& ranks) const;
  void add_board(const std::set<std::int32_t>& culprits, Diagnosis& out) const;
  void add_waiters(const std::vector<std::int32_t>& ranks, Finding& finding) const;
  void locate(std::int32_t rank, Finding& finding) const;
  [[nodiscard]] std::optional<std::int64_t> timeout_ms() const;
  [[nodiscard]] std::size_t reaching_count(const std::set<std::int32_t>& culprits) const;
  [[nodiscard]] std::size_t waiting_count() const;
  [[nodiscard]] bool all_have_arrived() const;
  void add_gaps(Diagnosis& out) const;

  /// A rank without a file left none: dead, or its file was not given. One whose memory was not
  /// read may run on another host.
  [[nodiscard]] bool is_told(std::int32_t rank) const {
    return source_ == DumpSource::kFiles || ranks_.contains(rank);
  }

  void advise(const char* what, Finding& finding) const {
    if (source_ == DumpSource::kFiles) finding.evidence.emplace_back(what);
  }

  std::span<const FlightDump> dumps_;
  DumpSource source_;
  std::map<std::int32_t, Rank> ranks_;
  std::map<std::string, std::vector<std::int32_t>> members_;  // by group name
  // Groups whose numbers mean other operations on each rank: transfers take some of them.
  std::set<std::string> not_aligned_;
};

Result<void> DumpAnalysis::take_dumps() {
  if (dumps_.empty()) return Error{Code::kNotFound, "diagnose hang: no flight recorder dump"};
  for (const FlightDump& dump : dumps_) {
    if (dump.rank < 0) {
      return Error{Code::kCorrupt, "diagnose hang: a dump file has no rank in its name",
                   "dump files end in their rank, as in _dump_12"};
    }
    if (!ranks_.try_emplace(dump.rank).second) {
      return Error{Code::kCorrupt, fmt::format("diagnose hang: two dumps of rank {}", dump.rank)};
    }
    ranks_[dump.rank].dump = &dump;
    for (const DumpGroup& group : dump.groups) {
      auto& members = members_[group.name];
      if (members.size() < group.ranks.size()) members = group.ranks;
    }
    for (const DumpEntry& entry : dump.entries) {
      if (dump.counts_together && entry.is_p2p) not_aligned_.insert(entry.group_name);
    }
  }
  return {};
}

/// Ids in the status are local. A rank's own entries give some of them names; ranks whose status
/// has the same ids were set up alike, so an id means a group of the same description there.
void DumpAnalysis::name_groups() {
  std::set<std::string> described;
  for (const auto& [group, members] : members_)
    if (!members.empty()) described.insert(group);
  std::map<std::vector<std::int64_t>, std::map<std::int64_t, std::string>> layouts;
  const auto layout_of = [](const FlightDump& dump) {
    std::vector<std::int64_t> ids;
    for (const DumpStatus& status : dump.status)
      ids.push_back(status.local_id);
    std::sort(ids.begin(), ids.end());
    return ids;
  };
  for (const auto& [number, rank] : ranks_) {
    for (const DumpEntry& entry : rank.dump->entries)
      layouts[layout_of(*rank.dump)][entry.local_id] = entry.group_description;
  }
  for (auto& [number, rank] : ranks_) {
    const FlightDump& dump = *rank.dump;
    std::map<std::int64_t, std::string> names;
    for (const auto& [id, description] : layouts[layout_of(dump)]) {
      // clang 14 captures no structured binding without a name of its own.
      const auto fits = [&wanted = description](const DumpGroup& g) {
        return g.description == wanted;
      };
      const auto group = std::find_if(dump.groups.begin(), dump.groups.end(), fits);
      const bool is_clear = group != dump.groups.end() &&
                            std::count_if(dump.groups.begin(), dump.groups.end(), fits) == 1;
      if (is_clear) names[id] = group->name;
    }
    for (const DumpEntry& entry : dump.entries)
      names[entry.local_id] = entry.group_name;
    for (const DumpStatus& status : dump.status) {
      if (const auto name = names.find(status.local_id); name != names.end())
        rank.progress[name->second] = {status.enqueued, status.completed};
    }
    for (const DumpEntry& entry : dump.entries) {
      if (entry.is_pending()) rank.pending.push_back(&entry);
      if (!entry.is_p2p) rank.oldest.try_emplace(entry.group_name, entry.collective_seq);
      auto& progress = rank.progress[entry.group_name];
      if (!entry.is_p2p) progress.enqueued = std::max(progress.enqueued, entry.collective_seq);
      if (entry.is_p2p || entry.is_pending()) continue;
      progress.completed = std::max(progress.completed, entry.collective_seq);
      if (needs_all(entry)) {
        std::int64_t& joint = rank.joint.try_emplace(entry.group_name, -1).first->second;
        joint = std::max(joint, entry.collective_seq);
      }
    }
    // Not every version describes its groups: who took part belongs to one.
    for (const DumpEntry& entry : dump.entries) {
      if (described.contains(entry.group_name) || entry.is_p2p) continue;
      auto& members = members_[entry.group_name];
      if (members.empty() || members.back() != number) members.push_back(number);
    }
    std::stable_sort(
        rank.pending.begin(), rank.pending.end(), [](const DumpEntry* a, const DumpEntry* b) {
          return std::pair(a->created_ns, a->op_id) < std::pair(b->created_ns, b->op_id);
        });
  }
}

const std::vector<std::int32_t>* DumpAnalysis::members_of(const std::string& group) const {
  const auto known = members_.find(group);
  return known == members_.end() ? nullptr : &known->second;
}

/// A rank whose peers completed an operation of all behind the one that it is in took part in that,
/// too: its dump is of an earlier moment, and tells nothing of the present.
void DumpAnalysis::find_older() {
  std::map<std::string, std::int64_t> joint;  // the latest of all ranks
  for (const auto& [number, rank] : ranks_)
    for (const auto& [group, seq] : rank.joint) {
      std::int64_t& latest = joint.try_emplace(group, seq).first->second;
      latest = std::max(latest, seq);
    }
  for (auto& [number, rank] : ranks_) {
    if (rank.dump->bad_entries > 0) continue;  // one of these may be its latest
    std::map<std::string, std::int64_t> at;    // the operation that it is in, or the one to come
    for (const auto& [group, progress] : rank.progress)
      at[group] = progress.enqueued;
    for (const DumpEntry* entry : rank.pending)
      if (!entry->is_p2p)
        at[entry->group_name] = std::min(at[entry->group_name], entry->collective_seq);
    for (const auto& [group, seq] : at) {
      const auto latest = joint.find(group);
      const auto* members = members_of(group);
      const bool is_member = members == nullptr ||
                             std::find(members->begin(), members->end(), number) != members->end();
      if (is_member && latest != joint.end() && latest->second > seq &&
          !not_aligned_.contains(group))
        rank.is_older = true;
    }
    if (rank.is_older) rank.pending.clear();
  }
}

void DumpAnalysis::find_pair_wait(const DumpEntry& entry, std::int32_t number, Wait& wait) const {
  const auto* members = members_of(entry.group_name);
  const auto place = peer_of(entry);
  if (members == nullptr || !place || *place >= members->size()) return;
  const std::int32_t peer = (*members)[*place];
  const auto known = ranks_.find(peer);
  const bool is_older = known != ranks_.end() && known->second.is_older;
  if (peer != number && !is_older && is_told(peer)) wait.for_ranks.push_back(peer);
}

void DumpAnalysis::find_group_wait(const DumpEntry& entry, std::int32_t number, Wait& wait) const {
  const auto* members = members_of(entry.group_name);
  if (members == nullptr || not_aligned_.contains(entry.group_name)) return;
  for (const std::int32_t member : *members) {
    if (member == number) continue;
    const auto peer = ranks_.find(member);
    if (peer == ranks_.end()) {
      if (is_told(member)) wait.for_ranks.push_back(member);
      continue;
    }
    if (peer->second.is_older) continue;
    const auto progress = peer->second.progress.find(entry.group_name);
    const bool is_known = peer->second.dump->bad_entries == 0;  // one left out may be the latest
    if (progress == peer->second.progress.end()) continue;      // not known how far it came
    if (progress->second.completed >= entry.collective_seq) wait.is_behind = true;
    if (is_known && progress->second.enqueued < entry.collective_seq)
      wait.for_ranks.push_back(member);
  }
}

void DumpAnalysis::find_wait(std::int32_t number, Rank& rank) {
  if (rank.pending.empty()) return;
  // The operation handed over first is the one that holds up the rest of its stream.
  const DumpEntry& first = *rank.pending.front();
  rank.wait.entry = &first;
  if (first.is_p2p) {
    find_pair_wait(first, number, rank.wait);
  } else {
    find_group_wait(first, number, rank.wait);
  }
}

/// The call as peers must make it: name, types, and sizes where these must be equal. A coalesced
/// group is its operations, one behind the other; "" where the dump holds its own entry alone.
std::string form_of(const std::vector<const DumpEntry*>& entries) {
  std::string form;
  for (const DumpEntry* entry : entries) {
    if (entry->is_of_coalesced()) continue;
    if (form.size() > kFormBytesMax) break;
    form += fmt::format("{}{} {}", form.empty() ? "" : ", ", entry->name, entry->input_dtypes);
    if (needs_equal_sizes(entry->name))
      form += fmt::format(" {} -> {}", entry->input_sizes, entry->output_sizes);
  }
  return form;
}

/// The same operation of a group, but not the same call, or unequal sizes where they must be equal.
void DumpAnalysis::find_mismatches(Diagnosis& out) const {
  std::map<std::pair<std::string, std::int64_t>,
           std::map<std::int32_t, std::vector<const DumpEntry*>>>
      operations;
  for (const auto& [number, rank] : ranks_) {
    for (const DumpEntry* entry : rank.pending) {
      if (!entry->is_p2p && !not_aligned_.contains(entry->group_name))
        operations[{entry->group_name, entry->collective_seq}][number].push_back(entry);
    }
  }
  // Whoever has completed it has made a call as well. Files may be of different moments, and a
  // number of an earlier one of a group that was made anew.
  for (const auto& [number, rank] : ranks_) {
    if (source_ == DumpSource::kFiles) break;
    for (const DumpEntry& entry : rank.dump->entries) {
      if (entry.is_p2p || entry.is_pending() || rank.is_older) continue;
      const auto operation = operations.find({entry.group_name, entry.collective_seq});
      if (operation != operations.end()) operation->second[number].push_back(&entry);
    }
  }
  for (const auto& [key, calls] : operations) {
    const DumpEntry& first = *calls.begin()->second.front();
    std::map<std::string, std::vector<std::int32_t>> forms;
    for (const auto& [number, entries] : calls) {
      // A ring whose oldest operation is of this coalesced group may have lost others of it.
      const bool is_coalesced =
          std::any_of(entries.begin(), entries.end(),
                      [](const DumpEntry* entry) { return entry->is_of_coalesced(); });
      if (is_coalesced && key.second > 1 && ranks_.at(number).oldest.at(key.first) == key.second)
        continue;
      if (const std::string form = form_of(entries); !form.empty()) forms[form].push_back(number);
    }
    if (forms.size() < 2) continue;
    const auto fewest = std::min_element(
        forms.begin(), forms.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    const bool is_even = std::all_of(forms.begin(), forms.end(), [&](const auto& form) {
      return form.second.size() == fewest->second.size();
    });
    Finding finding;
    finding.kind = "hang";
    finding.verdict = "mismatched_collective";
    finding.function = first.name;
    for (const auto& [form, numbers] : forms) {
      if (is_even || &form == &fewest->first)
        finding.ranks.insert(finding.ranks.end(), numbers.begin(), numbers.end());
      finding.evidence.push_back(fmt::format("rank {}: {}", fmt::join(numbers, ", "), form));
    }
    std::sort(finding.ranks.begin(), finding.ranks.end());
    locate(finding.ranks.front(), finding);
    finding.evidence.insert(finding.evidence.begin(),
                            fmt::format(words::kDifferentCalls, key.second, group_text(first)));
    out.findings.push_back(std::move(finding));
    return;  // later mismatches follow from the first one
  }
}

/// The timeout of the first operation that is pending, milliseconds; nothing if none says it. When
/// the dumps were written they do not say.
std::optional<std::int64_t> DumpAnalysis::timeout_ms() const {
  const DumpEntry* first = nullptr;
  for (const auto& [number, rank] : ranks_) {
    for (const DumpEntry* entry : rank.pending) {
      const bool is_known = entry->created_ns > 0 && entry->created_ns <= kTimeMaxNs &&
                            entry->timeout_ms > 0 && entry->timeout_ms <= kTimeoutMaxMs;
      if (is_known && (first == nullptr || entry->created_ns < first->created_ns)) first = entry;
    }
  }
  return first == nullptr ? std::nullopt : std::optional(first->timeout_ms);
}

/// Adds the rank's place in its code, as far as the dump says.
void DumpAnalysis::locate(std::int32_t number, Finding& finding) const {
  const auto known = ranks_.find(number);
  if (known == ranks_.end() || known->second.dump->entries.empty()) return;
  const DumpEntry* entry = known->second.wait.entry != nullptr
                               ? known->second.wait.entry
                               : &known->second.dump->entries.back();
  if (entry->frames.empty()) return;
  // Innermost first: below the job's own function are those of torch.
  auto named = std::find_if(entry->frames.begin(), entry->frames.end(),
                            [](const auto& frame) { return is_own_python_file(frame.file); });
  if (named == entry->frames.end()) named = entry->frames.begin();
  finding.function = named->function;
  finding.file = named->file;
  finding.line = named->line;
  for (auto frame = entry->frames.rbegin(); frame != entry->frames.rend(); ++frame) {
    finding.stack.push_back(frame->function);
    if (&*frame == &*named) break;
  }
}

void DumpAnalysis::add_waiters(const std::vector<std::int32_t>& ranks, Finding& finding) const {
  // One line a group and operation: who waits there for the culprits; collectives before transfers.
  std::map<std::pair<bool, std::string>, std::vector<std::int32_t>> lines;
  const DumpEntry* shown = nullptr;
  for (const auto& [number, rank] : ranks_) {
    const bool waits_for_them = std::any_of(
        rank.wait.for_ranks.begin(), rank.wait.for_ranks.end(),
        [&](std::int32_t r) { return std::find(ranks.begin(), ranks.end(), r) != ranks.end(); });
    if (!waits_for_them) continue;
    const DumpEntry& entry = *rank.wait.entry;
    const std::int64_t seq = entry.is_p2p ? entry.p2p_seq : entry.collective_seq;
    lines[{entry.is_p2p, fmt::format("{} {} of {}", entry.name, seq, group_text(entry))}].push_back(
        number);
    if (shown == nullptr || (shown->is_p2p && !entry.is_p2p)) shown = &entry;
  }
  if (finding.function.empty() && shown != nullptr) finding.function = shown->name;
  for (const auto& [line, numbers] : lines) {
    if (finding.evidence.size() >= kEvidenceLinesMax) break;
    finding.evidence.push_back(
        fmt::format(words::kWaitedFor, line.second, fmt::join(numbers, ", ")));
  }
}

Finding DumpAnalysis::missing_finding(const std::vector<std::int32_t>& ranks) const {
  const bool has_dumps =
      std::all_of(ranks.begin(), ranks.end(), [&](std::int32_t r) { return ranks_.contains(r); });
  Finding finding;
  finding.kind = "hang";
  finding.verdict = has_dumps ? "missing_rank" : "dead_process";
  finding.ranks = ranks;
  locate(ranks.front(), finding);
  // The stacks of a rank that is there tell whether it stands still.
  const char* const outside = source_ == DumpSource::kFiles ? words::kOutsideOfCommunication : "";
  finding.evidence.push_back(
      has_dumps ? fmt::format(words::kNeverHandedOver, fmt::join(ranks, ", ")) + outside
                : fmt::format(words::kNoDumpPeersWait, fmt::join(ranks, ", ")));
  add_waiters(ranks, finding);
  advise(has_dumps ? words::kAdviceStacks : words::kAdviceExit, finding);
  return finding;
}

Finding DumpAnalysis::stuck_finding(const std::vector<std::int32_t>& ranks) const {
  Finding finding;
  finding.kind = "hang";
  finding.verdict = "stuck_device";
  finding.ranks = ranks;
  locate(ranks.front(), finding);
  for (const std::int32_t number : ranks) {
    const DumpEntry& entry = *ranks_.at(number).wait.entry;
    if (finding.function.empty()) finding.function = entry.name;
    finding.evidence.push_back(fmt::format(words::kDeviceStuck, number, entry.name,
                                           entry.collective_seq, group_text(entry)));
  }
  add_waiters(ranks, finding);
  advise(words::kAdviceDevice, finding);
  return finding;
}

/// Ranks at which waiting ends: those that nobody holds up while they hold up others.
void DumpAnalysis::find_culprits(Diagnosis& out) const {
  std::set<std::int32_t> waited_for;
  for (const auto& [number, rank] : ranks_)
    waited_for.insert(rank.wait.for_ranks.begin(), rank.wait.for_ranks.end());
  std::vector<std::int32_t> missing, dead, stuck;
  for (const std::int32_t number : waited_for) {
    const auto rank = ranks_.find(number);
    if (rank == ranks_.end()) {
      dead.push_back(number);
    } else if (rank->second.wait.entry == nullptr) {
      missing.push_back(number);
    }
  }
  std::size_t waiting = 0;
  for (const auto& [number, rank] : ranks_) {
    if (rank.wait.entry == nullptr) continue;
    ++waiting;
    if (rank.wait.is_behind && rank.wait.for_ranks.empty()) stuck.push_back(number);
  }
  // Peers that completed it and wait for nobody may have done so a moment before their dump. And
  // gloo has no device that could stand still.
  const bool is_of_device = source_ == DumpSource::kFiles ||
                            std::all_of(stuck.begin(), stuck.end(), [&](std::int32_t number) {
                              return ranks_.at(number).wait.entry->name.starts_with("nccl:");
                            });
  if (!stuck.empty() && (stuck.size() == waiting || !is_of_device)) {
    out.notes.push_back(fmt::format(words::kAboutToComplete, fmt::join(stuck, ", ")));
    stuck.clear();
  }
  if (!missing.empty()) out.findings.push_back(missing_finding(missing));
  if (!stuck.empty()) out.findings.push_back(stuck_finding(stuck));
  // A rank without a dump is blamed only if nothing else explains the hang: dumps get lost.
  if (!dead.empty() && out.findings.empty()) {
    out.findings.push_back(missing_finding(dead));
  } else if (!dead.empty()) {
    out.notes.push_back(fmt::format(words::kNoDumpOf, fmt::join(dead, ", ")));
  }
}

/// Everybody waits for somebody who waits: follow the waits into their circle.
void DumpAnalysis::find_circle(Diagnosis& out) const {
  std::vector<std::int32_t> path;
  for (const auto& [number, rank] : ranks_) {
    if (rank.wait.entry == nullptr || rank.wait.for_ranks.empty()) continue;
    path.clear();
    std::int32_t at = number;
    while (std::find(path.begin(), path.end(), at) == path.end()) {
      path.push_back(at);
      const auto known = ranks_.find(at);
      if (known == ranks_.end() || known->second.wait.for_ranks.empty()) {
        path.clear();
        break;
      }
      at = known->second.wait.for_ranks.front();
    }
    if (path.empty()) continue;
    path.erase(path.begin(), std::find(path.begin(), path.end(), at));
    break;
  }
  if (path.size() < 2) return;
  Finding finding;
  finding.kind = "hang";
  finding.verdict = "deadlock";
  finding.ranks = path;
  std::sort(finding.ranks.begin(), finding.ranks.end());
  locate(finding.ranks.front(), finding);
  for (const std::int32_t number : path) {
    const Rank& rank = ranks_.at(number);
    const DumpEntry& entry = *rank.wait.entry;
    if (finding.function.empty()) finding.function = entry.name;
    if (finding.evidence.size() >= kEvidenceLinesMax) break;
    finding.evidence.push_back(fmt::format(words::kWaitsForRank, number, entry.name,
                                           entry.is_p2p ? entry.p2p_seq : entry.collective_seq,
                                           group_text(entry),
                                           fmt::join(rank.wait.for_ranks, ", ")));
  }
  advise(words::kAdviceOrder, finding);
  out.findings.push_back(std::move(finding));
}

/// Adds the places of all ranks, culprits first.
void DumpAnalysis::add_board(const std::set<std::int32_t>& culprits, Diagnosis& out) const {
  std::map<std::pair<bool, std::string>, HangGroup> groups;
  for (const auto& [number, rank] : ranks_) {
    std::string place = words::kWaitsInNothing;
    if (rank.wait.entry != nullptr) {
      // Transfers differ in their ends on every rank: the same kind in alike groups is one place.
      const DumpEntry& entry = *rank.wait.entry;
      place = entry.is_p2p && !entry.group_description.empty()
                  ? fmt::format("{} in groups {}", entry.name.substr(0, entry.name.find(' ')),
                                entry.group_description)
                  : fmt::format("{} of {}", entry.name, group_text(entry));
    }
    const bool is_culprit = culprits.contains(number);
    HangGroup& group = groups[{!is_culprit, place}];
    group.place = place;
    group.is_culprit = is_culprit;
    group.ranks.push_back(number);
  }
  for (auto& [key, group] : groups)
    out.view.hang_groups.push_back(std::move(group));
}

/// Number of the waiting ranks whose waiting leads to the culprits, directly or over others; those
/// themselves do not count.
std::size_t DumpAnalysis::reaching_count(const std::set<std::int32_t>& culprits) const {
  std::set<std::int32_t> reached = culprits;
  for (bool grows = true; grows;) {
    grows = false;
    for (const auto& [number, rank] : ranks_) {
      if (reached.contains(number)) continue;
      const auto& waits = rank.wait.for_ranks;
      const bool leads_there = std::any_of(waits.begin(), waits.end(),
                                           [&](std::int32_t r) { return reached.contains(r); });
      if (leads_there) grows = reached.insert(number).second;
    }
  }
  return static_cast<std::size_t>(
      std::count_if(ranks_.begin(), ranks_.end(), [&](const auto& of_number) {
        return of_number.second.wait.entry != nullptr && reached.contains(of_number.first) &&
               !culprits.contains(of_number.first);
      }));
}

std::size_t DumpAnalysis::waiting_count() const {
  return static_cast<std::size_t>(
      std::count_if(ranks_.begin(), ranks_.end(),
                    [](const auto& of_number) { return of_number.second.wait.entry != nullptr; }));
}

Result<Diagnosis> DumpAnalysis::run() {
  TRY_VOID(take_dumps());
  name_groups();
  find_older();
  for (auto& [number, rank] : ranks_)
    find_wait(number, rank);
  Diagnosis out;
  for (const auto& [number, rank] : ranks_) {
    RankSummary summary;
    summary.rank = number;
    out.ranks.push_back(summary);
  }
  find_mismatches(out);
  if (out.findings.empty()) find_culprits(out);
  if (out.findings.empty()) find_circle(out);
  std::set<std::int32_t> culprits;
  for (const Finding& finding : out.findings)
    culprits.insert(finding.ranks.begin(), finding.ranks.end());
  const std::size_t reaching = reaching_count(culprits);
  const std::size_t waiting = waiting_count();
  add_board(culprits, out);
  for (Finding& finding : out.findings) {
    finding.share = 1;
    finding.basis = Basis::kObservation;
    if (reaching > 0)
      finding.evidence.push_back(fmt::format(words::kWaitsLeadThere, reaching, waiting));
    if (const auto ms = timeout_ms(); ms && source_ == DumpSource::kFiles)
      finding.evidence.push_back(
          fmt::format(words::kTimeoutOfFirst, static_cast<double>(*ms) / 1000));
  }
  for (const auto& [number, rank] : ranks_) {
    if (!culprits.empty() && rank.wait.entry != nullptr && !culprits.contains(number))
      out.victims.push_back(number);
  }
  out.notes.push_back(fmt::format(words::kRanksWait, waiting, ranks_.size()));
  if (waiting > 0 && out.findings.empty()) {
    if (all_have_arrived())
      out.notes.emplace_back(words::kNoneCompleted);
    else
      out.missing.emplace_back(words::kNotKnownWhoIsBehind);
  }
  add_gaps(out);
  return out;
}

/// True if every wait is for ranks that are known to have issued the operation.
bool DumpAnalysis::all_have_arrived() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [&](const auto& of_number) {
    const DumpEntry* entry = of_number.second.wait.entry;
    if (entry == nullptr) return true;
    const auto* members = members_of(entry->group_name);
    if (entry->is_p2p || members == nullptr || not_aligned_.contains(entry->group_name))
      return false;
    return std::all_of(members->begin(), members->end(), [&](std::int32_t member) {
      const auto peer = ranks_.find(member);
      if (peer == ranks_.end()) return false;
      const auto progress = peer->second.progress.find(entry->group_name);
      return progress != peer->second.progress.end() &&
             progress->second.enqueued >= entry->collective_seq;
    });
  });
}

/// Whatever the dumps do not hold.
void DumpAnalysis::add_gaps(Diagnosis& out) const {
  std::uint64_t bad_entries = 0;
  for (const FlightDump& dump : dumps_)
    bad_entries += dump.bad_entries;
  if (bad_entries > 0) out.notes.push_back(fmt::format(words::kBadEntries, bad_entries));
  std::vector<std::int32_t> older;
  for (const auto& [number, rank] : ranks_)
    if (rank.is_older) older.push_back(number);
  if (!older.empty()) out.notes.push_back(fmt::format(words::kOlderDumps, fmt::join(older, ", ")));
  for (const std::string& group : not_aligned_)
    out.notes.push_back(fmt::format(words::kNotAligned, group));
}

}  // namespace

std::string group_text(const DumpEntry& entry) {
  return entry.group_description.empty()
             ? fmt::format("group {}", entry.group_name)
             : fmt::format("group {} ({})", entry.group_name, entry.group_description);
}

Result<Diagnosis> diagnose_dumps(std::span<const trace::import::FlightDump> dumps,
                                 DumpSource source) {
  return DumpAnalysis(dumps, source).run();
}

}  // namespace kansoku::diagnose
