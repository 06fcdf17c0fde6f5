// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/standstill/hang.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/time.h"
#include "diagnose/internal/standstill/last_stack.h"
#include "diagnose/internal/standstill/standstill.h"
#include "diagnose/internal/steps/names.h"
#include "diagnose/internal/steps/phases.h"
#include "diagnose/internal/steps/processors.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"

namespace kansoku::diagnose {
namespace {

constexpr auto kLookBackNs = static_cast<std::int64_t>(kEndedTogetherMs * kNsPerMs);

struct Stuck {
  std::int64_t since_ns{0};
  std::string operation;
  std::vector<bool> is_inside;  // by rank index
  std::vector<bool> is_asked;   // it belongs to the group; empty: all do
  bool by_seq{false};           // else only open slices tell
  bool by_messages{false};
  std::size_t unseen_count{0};                // members of the group that no rank is known to be
  std::vector<const Instance*> broken_off{};  // with by_seq: it and those of other groups
};

// The message that a rank's main thread waits for when the recording ends.
const MessageEvent* open_message(const RankData& rank) {
  const auto found =
      std::find_if(rank.messages.rbegin(), rank.messages.rend(),
                   [](const MessageEvent& event) { return event.is_open && event.on_main; });
  return found == rank.messages.rend() ? nullptr : &*found;
}

std::size_t inside_count(const Stuck& stuck) {
  return static_cast<std::size_t>(std::count(stuck.is_inside.begin(), stuck.is_inside.end(), true));
}

std::size_t present_count(const Instance& instance) {
  return static_cast<std::size_t>(
      std::count_if(instance.ranks.begin(), instance.ranks.end(),
                    [](const Arrival& arrival) { return arrival.is_present; }));
}

bool shares_rank(const Instance& a, const Instance& b) {
  for (std::size_t r = 0; r < a.ranks.size(); ++r) {
    if (a.ranks[r].is_present && b.ranks[r].is_present) return true;
  }
  return false;
}

// The first collectives that were not whole and after which none of their ranks came to a whole
// one, by first arrival; no rank is in two. Groups go on beside each other.
std::vector<const Instance*> broken_off(const Collectives& collectives) {
  std::vector<const Instance*> out;
  for (const Instance& instance : collectives.instances) {  // by first arrival
    const auto shares = [&](const Instance* one) { return shares_rank(instance, *one); };
    if (instance.is_complete)
      std::erase_if(out, shares);
    else if (std::none_of(out.begin(), out.end(), shares))
      out.push_back(&instance);
  }
  return out;
}

// The earliest of them that some rank waits in. If others wait in another one meanwhile, a rank
// that left out a collective and ran into the next may come first: the collective of more ranks
// counts.
std::optional<Stuck> stuck_by_seq(const JobData& job, const Collectives& collectives) {
  if (collectives.by_order) return std::nullopt;
  std::vector<const Instance*> all = broken_off(collectives);
  if (all.empty()) return std::nullopt;
  const Instance* const earliest = *std::max_element(
      all.begin(), all.end(),
      [](const Instance* a, const Instance* b) { return present_count(*a) < present_count(*b); });
  Stuck stuck{.since_ns = earliest->last_ns,
              .operation = job.op_names[earliest->op],
              .is_inside = {},
              .is_asked = earliest->is_member,
              .by_seq = true,
              .unseen_count = earliest->unseen_count,
              .broken_off = std::move(all)};
  for (const Arrival& arrival : earliest->ranks)
    stuck.is_inside.push_back(arrival.is_present);
  return stuck;
}

std::optional<Stuck> stuck_by_open_slices(const JobData& job) {
  Stuck stuck;
  stuck.is_inside.resize(job.ranks.size());
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    for (const CollectiveEvent& event : job.ranks[r].collectives) {
      if (!event.is_open) continue;
      if (!stuck.is_inside[r]) stuck.since_ns = std::max(stuck.since_ns, event.time.begin_ns);
      stuck.is_inside[r] = true;
      stuck.operation = job.op_names[event.op];
    }
    for (const Event& event : job.ranks[r].events) {
      if (event.kind != EventKind::kFinalize || !event.is_open) continue;
      stuck.since_ns = std::max(stuck.since_ns, event.time.begin_ns);
      stuck.is_inside[r] = true;
    }
  }
  return inside_count(stuck) == 0 ? std::nullopt : std::optional(stuck);
}

std::optional<Stuck> stuck_by_messages(const JobData& job) {
  Stuck stuck;
  stuck.operation = words::kMessage;
  stuck.by_messages = true;
  for (const RankData& rank : job.ranks) {
    const MessageEvent* const open = open_message(rank);
    stuck.is_inside.push_back(open != nullptr);
    if (open != nullptr) stuck.since_ns = std::max(stuck.since_ns, open->time.begin_ns);
  }
  return inside_count(stuck) == 0 ? std::nullopt : std::optional(stuck);
}

// The rank (an index) that another one waits for in a collective of another group: the first that
// never joined it.
std::optional<std::size_t> awaited_elsewhere(const Stuck& stuck, std::size_t rank) {
  if (stuck.is_inside[rank]) return std::nullopt;
  for (const Instance* const one : stuck.broken_off) {
    if (!one->ranks[rank].is_open) continue;
    for (std::size_t r = 0; r < one->ranks.size(); ++r)
      if ((one->is_member.empty() || one->is_member[r]) && !one->ranks[r].is_present) return r;
  }
  return std::nullopt;
}

// The rank (an index) at the end of a chain of ranks, each of which waits for a message of the
// next, or for it in a collective of another group; `rank` itself if that leads to one that waits
// in the collective, or in a circle.
std::size_t end_of_waits(const JobData& job, const Stuck& stuck, std::size_t rank) {
  std::set<std::size_t> passed;
  std::size_t at = rank;
  while (passed.insert(at).second) {
    const MessageEvent* const open = open_message(job.ranks[at]);
    const auto next = open != nullptr ? open->other : awaited_elsewhere(stuck, at);
    if (!next) return stuck.is_inside[at] ? rank : at;
    at = *next;
  }
  return rank;
}

void add_awaited_messages(const JobData& job, Finding& finding) {
  for (const RankData& rank : job.ranks) {
    const MessageEvent* const open = open_message(rank);
    if (open == nullptr || !open->other) continue;
    const auto for_ns = static_cast<double>(job.end_ns - open->time.begin_ns);
    finding.evidence.push_back(fmt::format(words::kWaitsForMessage, rank.rank,
                                           job.ranks[*open->other].rank, for_ns / 1e9));
  }
}

bool has_open_slice(const RankData& rank) {
  const auto is_open = [](const auto& event) { return event.is_open; };
  return std::any_of(rank.collectives.begin(), rank.collectives.end(), is_open) ||
         std::any_of(rank.messages.begin(), rank.messages.end(), is_open) ||
         std::any_of(rank.events.begin(), rank.events.end(), is_open);
}

// A job that simply ended looks quiet too: somebody inside must be seen alive near the end.
bool is_alive_at_end(const JobData& job, const Stuck& stuck) {
  const std::int64_t late_ns = stuck.since_ns + (job.end_ns - stuck.since_ns) / 2;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    if (!stuck.is_inside[r] || job.ranks[r].ended_well()) continue;
    if (has_open_slice(job.ranks[r]) || !samples_since(job.ranks[r], late_ns).empty()) return true;
  }
  return false;
}

/// Open collectives of a group under one number, in different forms.
struct Mismatch {
  std::map<std::string, std::set<std::int32_t>> forms;  // ranks
  [[nodiscard]] bool has(std::int32_t rank) const {
    return std::any_of(forms.begin(), forms.end(),
                       [&](const auto& form) { return form.second.contains(rank); });
  }
};

/// The first one in which all `culprits` (by index) are; nothing if there is none.
std::optional<Mismatch> find_mismatch(const JobData& job, const std::set<std::size_t>& culprits) {
  std::map<std::pair<trace::StringId, std::uint64_t>, Mismatch> calls;  // by group and number
  for (const RankData& rank : job.ranks) {
    for (const CollectiveEvent& event : rank.collectives) {
      if (!event.is_open || !event.has_seq) continue;
      const std::string name = job.op_names[event.op];
      calls[{event.group, event.seq}]
          .forms[event.bytes > 0 ? fmt::format(words::kOfBytes, name, event.bytes) : name]
          .insert(rank.rank);
    }
  }
  for (auto& [key, call] : calls) {
    if (call.forms.size() > 1 && std::all_of(culprits.begin(), culprits.end(), [&](std::size_t r) {
          return call.has(job.ranks[r].rank);
        }))
      return std::move(call);
  }
  return std::nullopt;
}

bool is_in_two_at_once(const RankData& rank) {
  std::map<trace::StringId, std::size_t> open;  // by group
  for (const CollectiveEvent& event : rank.collectives)
    if (event.is_open && event.has_seq) ++open[event.group];
  return std::any_of(open.begin(), open.end(), [](const auto& one) { return one.second > 1; });
}

/// Names the minority, and where it stands; nobody if there is none.
void describe_mismatch(const trace::Trace& trace, const JobData& job, const Stuck& stuck,
                       const Mismatch& mismatch, Finding& finding) {
  finding.verdict = "mismatched_collective";
  std::size_t most = 0, fewest = job.ranks.size();
  for (const auto& [form, ranks] : mismatch.forms) {
    most = std::max(most, ranks.size());
    fewest = std::min(fewest, ranks.size());
  }
  finding.ranks.clear();
  for (const auto& [form, ranks] : mismatch.forms) {
    if (ranks.size() < most && ranks.size() == fewest)
      finding.ranks.insert(finding.ranks.end(), ranks.begin(), ranks.end());
    finding.evidence.push_back(fmt::format("rank {}: {}", fmt::join(ranks, ", "), form));
  }
  const auto two = std::find_if(job.ranks.begin(), job.ranks.end(), is_in_two_at_once);
  if (two != job.ranks.end())
    finding.evidence.push_back(fmt::format(words::kTwoThreads, two->rank));
  std::vector<const ThreadSample*> samples;
  for (const RankData& rank : job.ranks) {
    if (std::count(finding.ranks.begin(), finding.ranks.end(), rank.rank) == 0) continue;
    const auto own = samples_since(rank, stuck.since_ns);
    samples.insert(samples.end(), own.begin(), own.end());
  }
  std::sort(finding.ranks.begin(), finding.ranks.end());
  add_last_stack(trace, last_stack(trace, samples), finding);
}

/// Ranks that have arrived too, but whose process is stopped: they hold up all others.
bool find_stopped(const trace::Trace& trace, const JobData& job, const Stuck& stuck,
                  Finding& finding) {
  std::vector<const ThreadSample*> samples;
  bool is_anyone_sampled = false;
  for (const RankData& rank : job.ranks)
    is_anyone_sampled = is_anyone_sampled || !samples_since(rank, stuck.since_ns).empty();
  for (const RankData& rank : job.ranks) {
    const auto own = samples_since(rank, stuck.since_ns);
    if (!is_stopped(own, is_anyone_sampled)) continue;
    finding.ranks.push_back(rank.rank);
    samples.insert(samples.end(), own.begin(), own.end());
  }
  if (finding.ranks.empty() || finding.ranks.size() == job.ranks.size()) {
    finding.ranks.clear();
    return false;
  }
  finding.kind = "stopped";
  finding.verdict = "dead_process";
  finding.evidence.push_back(
      fmt::format(words::kArrivedButProcess, fmt::join(finding.ranks, ", "),
                  samples.empty() ? words::kNotSeenSince : words::kIsStopped));
  add_last_stack(trace, last_stack(trace, samples), finding);
  return true;
}

Finding describe_hang(const trace::Trace& trace, const JobData& job, const Stuck& stuck) {
  Finding finding;
  finding.kind = "hang";
  finding.share = 1;
  finding.cost_ms_per_step = static_cast<double>(job.end_ns - stuck.since_ns) / kNsPerMs;
  finding.basis = Basis::kObservation;
  std::vector<std::int32_t> inside;
  std::vector<std::int32_t> never_joined;
  std::set<std::size_t> culprits;  // by index
  bool are_others_sampled = false;
  std::vector<const ThreadSample*> samples;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const auto own = samples_since(job.ranks[r], stuck.since_ns);
    if (stuck.is_inside[r]) {
      inside.push_back(job.ranks[r].rank);
      are_others_sampled = are_others_sampled || !own.empty();
    } else if (stuck.is_asked.empty() || stuck.is_asked[r]) {
      never_joined.push_back(job.ranks[r].rank);
      culprits.insert(end_of_waits(job, stuck, r));
    }
  }
  for (const std::size_t r : culprits) {
    finding.ranks.push_back(job.ranks[r].rank);
    const auto own = samples_since(job.ranks[r], stuck.since_ns);
    samples.insert(samples.end(), own.begin(), own.end());
  }
  finding.evidence.push_back(
      fmt::format(words::kInsideFor, fmt::join(inside, ", "),
                  stuck.operation.empty() ? words::kGradientReduction : stuck.operation,
                  finding.cost_ms_per_step / 1000));
  const auto mismatch = find_mismatch(job, culprits);
  if (finding.ranks.empty() && find_stopped(trace, job, stuck, finding)) return finding;
  if (mismatch) {
    describe_mismatch(trace, job, stuck, *mismatch, finding);
    return finding;
  }
  if (finding.ranks.empty()) {
    if (stuck.by_messages)
      add_awaited_messages(job, finding);
    else if (stuck.unseen_count > 0)
      finding.evidence.push_back(fmt::format(words::kMembersUnseen, stuck.unseen_count));
    else
      finding.evidence.emplace_back(words::kAllArrived);
    return finding;
  }
  if (!stuck.by_messages)
    finding.evidence.push_back(fmt::format(words::kNeverJoined, fmt::join(never_joined, ", ")));
  add_awaited_messages(job, finding);
  if (is_stopped(samples, are_others_sampled)) {
    finding.kind = "stopped";
    finding.evidence.emplace_back(samples.empty() ? words::kItNotSeenSince
                                                  : words::kItsProcessStopped);
  }
  const LastStack stack = last_stack(trace, samples);
  add_last_stack(trace, stack, finding);
  finding.verdict = standstill_verdict(trace, job, stuck.since_ns, stack, finding);
  if (finding.kind != "stopped" && !culprits.empty())
    tell_sleep(trace, job, job.ranks[*culprits.begin()], stuck.since_ns, finding);
  return finding;
}

/// Ended from outside or by a fault of its own; SIGABRT and SIGPIPE are how a program ends itself
/// when an operation failed, maybe because of another rank.
bool is_killed(const RankData& rank) {
  constexpr std::uint64_t kAbort = 6, kPipe = 13;
  return rank.exit_signal != 0 && rank.exit_signal != kAbort && rank.exit_signal != kPipe;
}

/// By a signal that people, shells and launchers end programs with.
bool was_asked_to_end(const RankData& rank) {
  constexpr std::array<std::uint64_t, 5> kAsking{SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGTERM};
  return rank.exit_ns > 0 &&
         std::find(kAsking.begin(), kAsking.end(), rank.exit_signal) != kAsking.end();
}

/// ", which bash (pid 4121) sent"; "" if that was not seen.
std::string sender_text(const trace::Trace& trace, const RankData& rank) {
  const auto sent =
      std::find_if(rank.end_signals.begin(), rank.end_signals.end(),
                   [&](const EndSignal& end) { return end.signal == rank.exit_signal; });
  if (sent == rank.end_signals.end()) return "";
  if (sent->sender_tid == 0) return words::kKernelSent;
  return fmt::format(words::kSenderSent, ThreadNames(trace).shown(sent->sender_tid));
}

/// When the recorder was told to end the job, or somebody ended several ranks together, by one
/// signal; nothing: nobody did.
std::optional<std::int64_t> first_end_of_run(const JobData& job) {
  // By signal, a time a rank: when it was sent the last time before the process ended, for one that
  // catches it ends with an error; else when it ended by it.
  std::map<std::uint64_t, std::vector<std::int64_t>> ends;
  for (const RankData& rank : job.ranks) {
    std::map<std::uint64_t, std::int64_t> of_rank;
    if (was_asked_to_end(rank)) of_rank[rank.exit_signal] = rank.exit_ns;
    for (const EndSignal& sent : rank.end_signals) {
      const double left_ms = static_cast<double>(rank.exit_ns - sent.time_ns) / kNsPerMs;
      if (rank.exit_ns > 0 && left_ms >= 0 && left_ms <= kEndedAfterSignalMs)
        of_rank[sent.signal] = sent.time_ns;
    }
    for (const auto& [signal, time_ns] : of_rank)
      ends[signal].push_back(time_ns);
  }
  std::optional<std::int64_t> first = job.stopped_ns;
  for (auto& [signal, times] : ends) {
    std::sort(times.begin(), times.end());
    for (std::size_t i = 1; i < times.size(); ++i) {
      if (static_cast<double>(times[i] - times[i - 1]) > kEndedTogetherMs * kNsPerMs) continue;
      first = std::min(first.value_or(times[i - 1]), times[i - 1]);
      break;
    }
  }
  return first;
}

/// The last sample in which the main thread ran the program. Code that runs once the program has
/// ended, such as finalizers, is called from nothing of it: its outermost function is another one.
const ThreadSample* last_of_program(const trace::Trace& trace, const RankData& rank) {
  const auto root_of = [&](const ThreadSample& sample) {
    const auto frames = frames_of(trace, sample.stack);
    return frames.empty() ? trace::StringId{} : frames.front().function;
  };
  std::map<trace::StringId, std::size_t> roots;
  for (const ThreadSample& sample : rank.samples)
    ++roots[root_of(sample)];
  const auto most = std::max_element(
      roots.begin(), roots.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto last =
      std::find_if(rank.samples.rbegin(), rank.samples.rend(),
                   [&](const ThreadSample& sample) { return root_of(sample) == most->first; });
  return last == rank.samples.rend() ? nullptr : &*last;
}

/// The last sample of each culprit before the job broke off. If the culprit was in the collective
/// too, only samples inside of it count: a call that fails at once ends before the next sample, and
/// the one before shows where the process was earlier. Then the other ranks in the collective show
/// the caller.
std::vector<const ThreadSample*> samples_of_abort(const trace::Trace& trace, const JobData& job,
                                                  const Instance* last,
                                                  const std::vector<std::int32_t>& culprits) {
  std::vector<const ThreadSample*> of_culprits, of_others;
  bool is_any_culprit_inside = false;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankData& rank = job.ranks[r];
    const bool is_culprit =
        std::find(culprits.begin(), culprits.end(), rank.rank) != culprits.end();
    const bool is_inside = last != nullptr && last->ranks[r].is_present;
    is_any_culprit_inside = is_any_culprit_inside || (is_culprit && is_inside);
    const ThreadSample* const sample = last_of_program(trace, rank);
    if (sample == nullptr) continue;
    const bool is_sampled_inside = is_inside && sample->time_ns >= last->ranks[r].arrive_ns;
    if (is_culprit && (!is_inside || is_sampled_inside)) of_culprits.push_back(sample);
    if (!is_culprit && is_sampled_inside) of_others.push_back(sample);
  }
  return of_culprits.empty() && is_any_culprit_inside ? of_others : of_culprits;
}

/// The job broke off: the last collective was never whole, and processes ended. The culprit ended
/// first while the others were in an operation that it never joined, or called it with another
/// size.
std::optional<Hang> find_abort(const trace::Trace& trace, const JobData& job,
                               const Collectives& collectives) {
  // Whoever ends once the run is ended follows.
  const auto end_of_run = first_end_of_run(job);
  const auto broke_off = [&](const RankData& rank) {
    return rank.exit_ns > 0 && (rank.exit_status != 0 || rank.exit_signal != 0) &&
           (!end_of_run || rank.exit_ns < *end_of_run);
  };
  if (std::none_of(job.ranks.begin(), job.ranks.end(), broke_off)) return std::nullopt;
  // Positions from the end are no numbers.
  const auto broken =
      collectives.by_order ? std::vector<const Instance*>() : broken_off(collectives);
  const Instance* const last = broken.empty() ? nullptr : broken.front();
  Hang out;
  Finding& finding = out.finding;
  finding.kind = "stopped";
  finding.share = 1;
  finding.basis = Basis::kObservation;
  const RankData* first = nullptr;  // to end by a signal, or with an error before all others
  for (const RankData& rank : job.ranks) {
    if (!broke_off(rank)) continue;
    if (first == nullptr || (is_killed(rank) && !is_killed(*first)) ||
        (is_killed(rank) == is_killed(*first) && rank.exit_ns < first->exit_ns))
      first = &rank;
  }
  std::map<std::uint64_t, std::vector<std::int32_t>> sizes;
  for (std::size_t r = 0; last != nullptr && r < job.ranks.size(); ++r) {
    if (last->ranks[r].is_present && last->ranks[r].bytes > 0)
      sizes[last->ranks[r].bytes].push_back(job.ranks[r].rank);
  }
  const std::string operation = last == nullptr ? "" : job.op_names[last->op];
  if (sizes.size() > 1 && !is_killed(*first)) {
    const auto fewest = std::min_element(
        sizes.begin(), sizes.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    finding.verdict = "mismatched_collective";
    finding.ranks = fewest->second;
    for (const auto& [bytes, ranks] : sizes) {
      finding.evidence.push_back(
          fmt::format("rank {}: {} of {} bytes", fmt::join(ranks, ", "), operation, bytes));
    }
  } else if (is_killed(*first) || last != nullptr) {
    finding.verdict = "dead_process";
    finding.ranks = {first->rank};
    finding.evidence.push_back(
        first->exit_signal != 0 ? fmt::format(words::kEndedBySignal, first->rank,
                                              first->exit_signal, sender_text(trace, *first))
                                : fmt::format(words::kEndedFirst, first->rank, first->exit_status));
    if (!operation.empty())
      finding.evidence.push_back(fmt::format(words::kNeverCompleted, operation));
  } else {
    return std::nullopt;
  }
  std::int64_t end_ns = first->exit_ns;
  for (const RankData& rank : job.ranks)
    end_ns = std::max(end_ns, rank.exit_ns);
  finding.cost_ms_per_step = static_cast<double>(end_ns - first->exit_ns) / kNsPerMs;
  add_last_stack(trace, last_stack(trace, samples_of_abort(trace, job, last, finding.ranks)),
                 finding);
  if (finding.function.empty()) finding.function = operation;
  out.groups = groups_by_stack(trace, job, first->exit_ns - kLookBackNs, finding);
  return out;
}

}  // namespace

std::optional<Hang> find_hang(const trace::Trace& trace, const JobData& job,
                              const Collectives& collectives, double mean_step_ms) {
  if (job.ranks.size() < 2) return std::nullopt;
  if (auto aborted = find_abort(trace, job, collectives)) return aborted;
  auto stuck = stuck_by_seq(job, collectives);
  if (!stuck) stuck = stuck_by_open_slices(job);
  if (!stuck) stuck = stuck_by_messages(job);
  if (!stuck) return std::nullopt;
  const double limit_ms = std::max(kHangMinMs, kHangStepMultiple * mean_step_ms);
  const double age_ms = static_cast<double>(job.end_ns - stuck->since_ns) / kNsPerMs;
  if (age_ms < limit_ms || !is_alive_at_end(job, *stuck)) return std::nullopt;
  Hang out{.finding = describe_hang(trace, job, *stuck), .groups = {}};
  out.groups = groups_by_stack(trace, job, stuck->since_ns, out.finding);
  return out;
}

}  // namespace kansoku::diagnose
