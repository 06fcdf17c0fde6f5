// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/steps/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "diagnose/internal/steps/messages.h"
#include "diagnose/internal/steps/names.h"
#include "diagnose/internal/steps/sched.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"
#include "trace/merge.h"
#include "trace/metadata.h"

namespace kansoku::diagnose {
namespace {

using trace::StringId;
using trace::Trace;

constexpr std::uint32_t kNoSlot = std::numeric_limits<std::uint32_t>::max();
constexpr int kParentDepthMax = 8;

/// That differences do not overflow; times of a merged trace may lie before 0.
bool is_near(std::int64_t time_ns) {
  return time_ns >= -kTimeMaxNs && time_ns <= kTimeMaxNs;
}

bool is_time(std::int64_t time_ns) {
  return time_ns >= 0 && time_ns <= kTimeMaxNs;
}

template <class First, class... Rest>
bool same_size(const First& first, const Rest&... rest) {
  return ((rest.size() == first.size()) && ...);
}

Result<void> check_columns(const Trace& t) {
  const auto& s = t.slices;
  const auto& p = t.samples;
  const auto& w = t.switches;
  const auto& i = t.instants;
  const bool whole =
      same_size(s.start_ns, s.duration_ns, s.track, s.name, s.category, s.arg_begin, s.arg_count) &&
      same_size(p.time_ns, p.pid, p.tid, p.stack, p.state, p.holds_gil, p.is_native) &&
      same_size(w.time_ns, w.cpu, w.prev_tid, w.next_tid, w.prev_state) &&
      same_size(t.wakes.time_ns, t.wakes.tid) &&
      same_size(i.time_ns, i.track, i.name, i.arg_begin, i.arg_count) &&
      same_size(t.counters.time_ns, t.counters.track, t.counters.value);
  if (!whole) return Error{Code::kCorrupt, "diagnose trace: columns of a table differ in length"};
  return {};
}

constexpr std::size_t kJobsMax = 64;

/// Which processes a job is made of.
struct Members {
  std::string name;
  bool is_single{false};
  std::vector<const trace::Process*> ranks;          // that may stand for one
  std::map<std::int32_t, std::int32_t> worker_rank;  // by pid
  std::set<std::int32_t> pids;                       // all
};

bool may_be_rank(const Trace& trace, const trace::Process& process) {
  const std::string_view role = text_of(trace, process.role);
  return process.rank >= 0 && (role == "rank" || role.empty());
}

// Jobs with ranks; most distinct ranks first, the first one seen among equals.
std::vector<Members> declared_jobs(const Trace& trace) {
  std::map<StringId, std::size_t> index;
  std::vector<Members> jobs;
  std::vector<std::set<std::int32_t>> ranks;
  for (const trace::Process& process : trace.processes) {
    if (!may_be_rank(trace, process)) continue;
    const auto [found, is_new] = index.try_emplace(process.job, jobs.size());
    if (is_new) {
      jobs.emplace_back().name = text_of(trace, process.job);
      ranks.emplace_back();
    }
    jobs[found->second].ranks.push_back(&process);
    ranks[found->second].insert(process.rank);
  }
  for (const trace::Process& process : trace.processes) {
    const auto found = index.find(process.job);
    if (found == index.end() || (process.rank < 0 && process.job == StringId{})) continue;
    Members& job = jobs[found->second];
    job.pids.insert(process.pid);
    if (process.rank >= 0 && text_of(trace, process.role) == "worker")
      job.worker_rank.emplace(process.pid, process.rank);
  }
  std::vector<std::size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return ranks[a].size() > ranks[b].size(); });
  std::vector<Members> sorted;
  sorted.reserve(order.size());
  for (const std::size_t i : order)
    sorted.push_back(std::move(jobs[i]));
  return sorted;
}

/// How often each thread was seen to train, by process.
class TrainingThreads {
 public:
  explicit TrainingThreads(const Trace& trace);
  /// The thread that trains: the one that did most often, or else the first.
  [[nodiscard]] std::int32_t main_of(std::int32_t pid) const;
  /// How often that one did.
  [[nodiscard]] std::size_t count_of(std::int32_t pid) const;

 private:
  std::map<std::int32_t, std::map<std::int32_t, std::size_t>> counts_;
};

TrainingThreads::TrainingThreads(const Trace& trace) {
  const NameTable names(trace);
  for (std::size_t i = 0; i < trace.slices.size(); ++i) {
    if (!names.is_known_category(trace.slices.category[i])) continue;
    const EventKind kind = names.kind_of(trace.slices.name[i]);
    const bool trains =
        kind == EventKind::kInput || kind == EventKind::kOptimizer || kind == EventKind::kBackward;
    if (!trains || trace.slices.track[i].raw >= trace.tracks.size()) continue;
    const trace::Track& track = trace.tracks[trace.slices.track[i].raw];
    if (track.kind == trace::TrackKind::kThread) ++counts_[track.pid][track.tid];
  }
}

std::int32_t TrainingThreads::main_of(std::int32_t pid) const {
  const auto found = counts_.find(pid);
  if (found == counts_.end()) return pid;
  const auto rank_of = [pid](const auto& one) { return std::pair(one.second, one.first == pid); };
  return std::max_element(found->second.begin(), found->second.end(),
                          [&](const auto& a, const auto& b) { return rank_of(a) < rank_of(b); })
      ->first;
}

std::size_t TrainingThreads::count_of(std::int32_t pid) const {
  const auto found = counts_.find(pid);
  return found == counts_.end() ? 0 : found->second.at(main_of(pid));
}

// Processes that tell no rank and train, each a job of its own; the busiest first.
std::vector<Members> single_jobs(const Trace& trace, const TrainingThreads& threads) {
  std::map<std::int32_t, std::int32_t> parents;
  for (const trace::Process& process : trace.processes)
    parents.emplace(process.pid, process.parent_pid);
  std::vector<std::pair<std::size_t, Members>> jobs;
  for (const trace::Process& process : trace.processes) {
    const std::size_t count = threads.count_of(process.pid);
    const std::string_view role = text_of(trace, process.role);
    if (process.rank >= 0 || role == "worker" || role == "launcher") continue;
    if (count < kTrainingEventsMin) continue;
    Members job;
    job.is_single = true;
    job.name =
        fmt::format("{} (pid {})", text_of(trace, process.name), trace::pid_on_host(process.pid));
    job.ranks = {&process};
    for (const auto& [pid, parent] : parents) {
      std::int32_t at = pid;
      for (int depth = 0; depth < kParentDepthMax && at != process.pid; ++depth) {
        const auto above = parents.find(at);
        at = above == parents.end() ? 0 : above->second;
      }
      if (at != process.pid) continue;
      job.pids.insert(pid);
      if (pid != process.pid) job.worker_rank.emplace(pid, 0);
    }
    jobs.emplace_back(count, std::move(job));
  }
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Members> sorted;
  sorted.reserve(jobs.size());
  for (auto& job : jobs)
    sorted.push_back(std::move(job.second));
  return sorted;
}

// Collects the events of all candidate processes in one pass over the slices.
class Collector {
 public:
  Collector(const Trace& trace, const Members& members, const TrainingThreads& threads)
      : trace_(trace), names_(trace) {
    for (const trace::Process* process : members.ranks) {
      if (!slots_.emplace(process->pid, static_cast<std::uint32_t>(data_.size())).second) continue;
      RankData rank;
      rank.rank = std::max(process->rank, 0);
      rank.pid = process->pid;
      rank.main_tid = threads.main_of(process->pid);
      data_.push_back(std::move(rank));
    }
    place_tracks();
  }

  std::int64_t end_ns() const { return std::clamp<std::int64_t>(trace_.end_ns, 0, kTimeMaxNs); }

  void read_slices() {
    for (std::size_t i = 0; i < trace_.slices.size(); ++i)
      read_slice(i);
  }

  void read_samples(const std::map<std::int32_t, std::int32_t>& rank_of_worker) {
    const auto& table = trace_.samples;
    std::map<std::pair<std::int32_t, std::int32_t>, WorkerData> workers;
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (!is_time(table.time_ns[i])) continue;
      if (table.is_native[i] != 0) continue;  // another rate, and only while on a processor
      const ThreadSample sample{table.time_ns[i], table.stack[i], table.state[i],
                                table.holds_gil[i] != 0};
      if (const auto slot = slots_.find(table.pid[i]); slot != slots_.end()) {
        RankData& rank = data_[slot->second];
        if (table.tid[i] == rank.main_tid) rank.samples.push_back(sample);
      } else if (table.pid[i] != table.tid[i]) {
        continue;
      } else if (const auto rank = rank_of_worker.find(table.pid[i]);
                 rank != rank_of_worker.end()) {
        workers[{rank->second, table.pid[i]}].samples.push_back(sample);
      }
    }
    for (auto& [key, worker] : workers) {
      worker.pid = key.second;
      for (RankData& rank : data_) {
        if (rank.rank == key.first) rank.workers.push_back(worker);
      }
    }
  }

  // One process a rank: of several, the one with most events (then the first).
  JobData finish() {
    JobData job;
    std::vector<std::string>& notes = job.notes;
    job.op_names = names_.ops();
    job.end_ns = end_ns();
    std::stable_sort(data_.begin(), data_.end(), [](const RankData& a, const RankData& b) {
      return std::tuple(a.rank, b.events.size() + b.collectives.size() + b.samples.size()) <
             std::tuple(b.rank, a.events.size() + a.collectives.size() + a.samples.size());
    });
    std::size_t extra_count = 0;
    for (RankData& rank : data_) {
      if (!job.ranks.empty() && job.ranks.back().rank == rank.rank) {
        ++extra_count;
        continue;
      }
      sort_by_time(rank);
      job.ranks.push_back(std::move(rank));
    }
    if (extra_count > 0) {
      notes.push_back(fmt::format(words::kClaimedRanks, extra_count));
    }
    if (odd_count_ > 0) {
      notes.push_back(fmt::format(words::kImpossibleTimes, odd_count_));
    }
    return job;
  }

 private:
  struct Place {
    std::uint32_t slot{kNoSlot};
    bool on_main{false};
  };

  /// A call that makes another one, which has the number, is no collective of its own: PyTorch's
  /// newer names for gloo (reduce_scatter_single calls allreduce). By begin.
  static void leave_out_wrappers(std::vector<CollectiveEvent>& events) {
    std::map<std::uint32_t, std::vector<std::size_t>> open;  // by track, outermost first
    std::vector<bool> is_wrapper(events.size());
    for (std::size_t i = 0; i < events.size(); ++i) {
      const CollectiveEvent& event = events[i];
      if (!event.is_issue) continue;
      std::vector<std::size_t>& around = open[event.track.raw];
      while (!around.empty() && events[around.back()].time.end_ns < event.time.end_ns)
        around.pop_back();
      for (const std::size_t outer : around)
        is_wrapper[outer] = is_wrapper[outer] || (event.has_seq && !events[outer].has_seq);
      around.push_back(i);
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < events.size(); ++i)
      if (!is_wrapper[i]) events[kept++] = events[i];
    events.resize(kept);
  }

  static void sort_by_time(RankData& rank) {
    const auto by_begin = [](const auto& a, const auto& b) {
      return a.time.begin_ns < b.time.begin_ns;
    };
    std::stable_sort(rank.events.begin(), rank.events.end(), by_begin);
    std::stable_sort(rank.collectives.begin(), rank.collectives.end(), by_begin);
    leave_out_wrappers(rank.collectives);
    std::stable_sort(rank.messages.begin(), rank.messages.end(), by_begin);
    const auto by_time = [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; };
    std::stable_sort(rank.samples.begin(), rank.samples.end(), by_time);
    for (WorkerData& worker : rank.workers)
      std::stable_sort(worker.samples.begin(), worker.samples.end(), by_time);
  }

  void place_tracks() {
    places_.resize(trace_.tracks.size());
    for (std::size_t i = 0; i < trace_.tracks.size(); ++i) {
      const trace::Track& track = trace_.tracks[i];
      const auto slot = slots_.find(process_of_track(trace_, {static_cast<std::uint32_t>(i)}));
      if (slot == slots_.end()) continue;
      places_[i] = {slot->second, track.kind == trace::TrackKind::kThread &&
                                      track.tid == data_[slot->second].main_tid};
    }
  }

  void read_slice(std::size_t i) {
    const auto& table = trace_.slices;
    const auto message = names_.is_message(table.category[i])
                             ? classify_message(text_of(trace_, table.name[i]))
                             : std::nullopt;
    const EventKind kind = names_.is_known_category(table.category[i])
                               ? names_.kind_of(table.name[i])
                               : EventKind::kNone;
    if ((!message && kind == EventKind::kNone) || table.track[i].raw >= places_.size()) return;
    const Place place = places_[table.track[i].raw];
    if (place.slot == kNoSlot) return;
    if (!is_time(table.start_ns[i]) || table.duration_ns[i] < trace::kOpenDuration) {
      ++odd_count_;
      return;
    }
    const bool is_open = table.duration_ns[i] == trace::kOpenDuration;
    const std::int64_t begin = table.start_ns[i];
    const std::int64_t end = is_open ? std::max(begin, end_ns())
                                     : begin + std::min(table.duration_ns[i], kTimeMaxNs - begin);
    RankData& rank = data_[place.slot];
    if (message) {
      MessageEvent event = read_message(i);
      event.time = {begin, end};
      event.kind = *message;
      event.is_open = is_open;
      event.on_main = place.on_main;
      rank.messages.push_back(event);
    } else if (kind == EventKind::kIssue || kind == EventKind::kExecute) {
      CollectiveEvent event = read_collective(i);
      event.time = {begin, end};
      event.track = table.track[i];
      event.is_issue = kind == EventKind::kIssue;
      event.is_open = is_open;
      event.on_main = place.on_main;
      rank.collectives.push_back(event);
    } else {
      rank.events.push_back({{begin, end}, kind, place.on_main, is_open, table.name[i]});
    }
  }

  /// Numbers among the arguments of a slice, by name.
  class Numbers {
   public:
    Numbers(const Trace& trace, std::size_t slice)
        : trace_(trace),
          args_(args_of(trace, trace.slices.arg_begin[slice], trace.slices.arg_count[slice])) {}
    [[nodiscard]] std::optional<std::uint64_t> operator[](std::string_view name) const {
      for (const trace::ArgValue& arg : args_) {
        const bool is_integer =
            arg.kind == trace::ArgValue::Kind::kUint || arg.kind == trace::ArgValue::Kind::kInt;
        if (is_integer && text_of(trace_, arg.key) == name) return arg.u64;
      }
      return std::nullopt;
    }
    /// Name of the process group; empty where its version has no such fields: its rank and its size
    /// do not agree there.
    [[nodiscard]] StringId group() const {
      if ((*this)["group_rank"].value_or(0) >= (*this)["group_size"].value_or(0)) return {};
      for (const trace::ArgValue& arg : args_)
        if (arg.kind == trace::ArgValue::Kind::kString && text_of(trace_, arg.key) == "group_name")
          return arg.text;
      return {};
    }

   private:
    const Trace& trace_;
    std::span<const trace::ArgValue> args_;
  };

  MessageEvent read_message(std::size_t i) const {
    const Numbers numbers(trace_, i);
    MessageEvent event;
    event.group = numbers.group();
    event.seat = numbers["group_rank"].value_or(MessageEvent::kUnknown);
    event.peer = numbers["peer"].value_or(MessageEvent::kUnknown);
    event.tag = numbers["tag"].value_or(0);
    event.bytes = numbers["bytes"].value_or(0);
    event.work = numbers["work"].value_or(0);
    return event;
  }

  CollectiveEvent read_collective(std::size_t i) const {
    const Numbers numbers(trace_, i);
    CollectiveEvent event;
    event.op = names_.op_of(trace_.slices.name[i]);
    event.has_seq = numbers["seq"].has_value();
    event.seq = numbers["seq"].value_or(0);
    event.has_pg = numbers["pg"].has_value();
    event.pg = numbers["pg"].value_or(0);
    event.group = numbers.group();
    if (event.group != StringId{}) event.group_size = numbers["group_size"].value_or(0);
    event.bytes = numbers["bytes"].value_or(0);
    return event;
  }

  const Trace& trace_;
  NameTable names_;
  std::vector<RankData> data_;
  std::unordered_map<std::int32_t, std::uint32_t> slots_;  // pid -> index into data_
  std::vector<Place> places_;                              // by track
  std::size_t odd_count_{0};
};

void note_missing_ranks(const std::vector<const trace::Process*>& processes, JobData& job) {
  for (const trace::Process* process : processes)
    job.world_size = std::max(job.world_size, process->world_size);
  if (job.world_size > static_cast<std::int64_t>(job.ranks.size())) {
    job.notes.push_back(fmt::format(words::kRanksMissing, job.world_size, job.ranks.size()));
  }
}

/// An event that a process had not returned from when it ended well is no standstill.
void close_events(RankData& rank) {
  const auto close = [&](auto& events) {
    for (auto& event : events) {
      if (!event.is_open) continue;
      event.is_open = false;
      event.time.end_ns = std::max(event.time.begin_ns, rank.exit_ns);
    }
  };
  close(rank.events);
  close(rank.collectives);
  close(rank.messages);
}

/// A number among the arguments of an instant; 0 if it has none of that name.
std::uint64_t number_of(const Trace& trace, std::size_t instant, std::string_view name) {
  const StringId key = trace.strings.find(name);
  for (const trace::ArgValue& arg :
       args_of(trace, trace.instants.arg_begin[instant], trace.instants.arg_count[instant])) {
    if (arg.key == key && key != StringId{}) return arg.u64;
  }
  return 0;
}

void read_exits(const Trace& trace, JobData& job) {
  for (const trace::MetadataFact& fact : trace::metadata_facts(trace, "kansoku.stop_signal")) {
    if (is_near(fact.time_ns))
      job.stopped_ns = std::min(job.stopped_ns.value_or(fact.time_ns), fact.time_ns);
  }
  const auto& instants = trace.instants;
  for (std::size_t i = 0; i < instants.size(); ++i) {
    const std::string_view name = text_of(trace, instants.name[i]);
    const bool is_exit = name == "process exit";
    if ((!is_exit && name != "asked to end") || !is_near(instants.time_ns[i]) ||
        instants.track[i].raw >= trace.tracks.size())
      continue;
    const std::int32_t pid = trace.tracks[instants.track[i].raw].pid;
    const auto rank = std::find_if(job.ranks.begin(), job.ranks.end(),
                                   [&](const RankData& r) { return r.pid == pid; });
    if (rank == job.ranks.end()) continue;
    const std::uint64_t signal = number_of(trace, i, "signal");
    if (is_exit) {
      rank->exit_ns = instants.time_ns[i];
      rank->exit_status = number_of(trace, i, "status");
      rank->exit_signal = signal;
      if (rank->ended_well()) close_events(*rank);
    } else {
      // A merged trace numbers the threads of its hosts apart, but not in arguments.
      const std::uint64_t sender = number_of(trace, i, "sender");
      if (sender >= std::uint64_t{trace::kPidsPerHost}) continue;  // no thread has that number
      const auto host = static_cast<std::int32_t>(trace::host_of(pid));
      const std::int32_t tid =
          sender == 0 ? 0 : static_cast<std::int32_t>(sender) + host * trace::kPidsPerHost;
      rank->end_signals.push_back(
          {.time_ns = instants.time_ns[i], .signal = signal, .sender_tid = tid});
    }
  }
  for (RankData& rank : job.ranks) {
    std::stable_sort(rank.end_signals.begin(), rank.end_signals.end(),
                     [](const EndSignal& a, const EndSignal& b) { return a.time_ns < b.time_ns; });
  }
}

}  // namespace

std::optional<Interval> slice_time(const trace::SliceTable& slices, std::size_t slice) {
  const std::int64_t begin_ns = slices.start_ns[slice], duration_ns = slices.duration_ns[slice];
  if (!is_near(begin_ns) || duration_ns < 0) return std::nullopt;
  return Interval{begin_ns, begin_ns + std::min(duration_ns, kTimeMaxNs - begin_ns)};
}

std::map<std::int32_t, std::int32_t> ranks_by_pid(const JobData& job) {
  std::map<std::int32_t, std::int32_t> out;
  for (const RankData& rank : job.ranks)
    out.emplace(rank.pid, rank.rank);
  return out;
}

Result<std::vector<JobData>> read_jobs(const Trace& trace) {
  TRY_VOID(check_columns(trace));
  std::vector<Members> members = declared_jobs(trace);
  const TrainingThreads threads(trace);
  for (Members& single : single_jobs(trace, threads))
    members.push_back(std::move(single));
  const std::size_t left_out = members.size() - std::min(members.size(), kJobsMax);
  members.resize(members.size() - left_out);
  std::vector<JobData> jobs;
  for (Members& of : members) {
    Collector collector(trace, of, threads);
    collector.read_slices();
    collector.read_samples(of.worker_rank);
    JobData job = collector.finish();
    job.name = std::move(of.name);
    job.is_single = of.is_single;
    job.pids = std::move(of.pids);
    read_exits(trace, job);
    match_messages(job);
    note_missing_ranks(of.ranks, job);
    read_thread_times(trace, job);
    jobs.push_back(std::move(job));
  }
  if (left_out > 0) jobs.front().notes.push_back(fmt::format(words::kFurtherJobs, left_out));
  return jobs;
}

Result<JobData> read_job(const Trace& trace) {
  TRY(auto jobs, read_jobs(trace));
  return jobs.empty() ? JobData{} : std::move(jobs.front());
}

}  // namespace kansoku::diagnose
