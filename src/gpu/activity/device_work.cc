// SPDX-License-Identifier: Apache-2.0
#include "gpu/activity/device_work.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "common/parse.h"
#include "gpu/activity/internal/arg_reader.h"
#include "gpu/activity/internal/names.h"
#include "gpu/activity/internal/tracks.h"
#include "gpu/activity/thresholds.h"
#include "trace/collective_kernels.h"

namespace kansoku::gpu::activity {
namespace {

// Imported files name no process for their devices: hosts of one file that may have launched.
constexpr std::size_t kHostsMax = 64;

/// The number behind a word in a track's name: "GPU 0 stream 7", "stream 7".
std::optional<std::int64_t> number_after(std::string_view text, std::string_view word) {
  const std::size_t at = text.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = text.substr(at + word.size());
  rest = rest.substr(0, rest.find_first_not_of("0123456789"));
  return parse_int<std::int64_t>(rest);
}

class WorkReader {
 public:
  explicit WorkReader(const trace::Trace& trace)
      : trace_(trace), collective_kernels_(trace), args_(trace) {}
  DeviceWork read();

 private:
  struct Classes {
    std::optional<OpClass> op;
    bool is_cuda{false};
    bool may_launch{false};  // of another runtime, whose names nobody listed
  };
  struct Place {  // place of an operation, before devices have numbers
    std::int32_t pid;
    std::int32_t rank;
    std::int64_t ordinal;
    std::int64_t stream;
    friend auto operator<=>(const Place&, const Place&) = default;
  };

  const Classes& classes_of(std::uint32_t slice);
  void take_op(std::uint32_t slice, OpClass what, stats::Interval time);
  void take_call(std::uint32_t slice, stats::Interval time, bool is_open);
  void order_calls();
  void order_threads();
  void find_hosts();
  [[nodiscard]] std::int32_t launching_process(std::int32_t pid) const;
  void drop_other_clock();
  void align_with_host();
  using Moves =
      std::vector<std::pair<std::int64_t, std::int64_t>>;  // by time: to earlier by so much
  [[nodiscard]] Moves moves_of(std::int32_t pid, const std::vector<Op*>& ops) const;
  [[nodiscard]] static std::pair<std::int64_t, std::int64_t> move_of(
      std::span<const std::pair<std::int64_t, std::int64_t>> late,
      const std::vector<std::pair<std::int64_t, std::int64_t>>& room);
  [[nodiscard]] std::optional<std::int64_t> map_error_ns(std::int32_t pid) const;
  struct Launched {
    std::int64_t at_ns;
    const Op* op;
  };
  [[nodiscard]] std::vector<std::pair<std::int64_t, std::int64_t>> late_ends(
      std::int32_t pid, const std::vector<Launched>& launched) const;
  void place_ops();
  void mark_shared();
  void link_by_correlation();
  void link_by_flow();
  void mark_further();
  void collect_correlations();
  [[nodiscard]] bool is_pointed_to(std::uint32_t slice) const;
  void name_calls_by_ops();
  void mark_first_uses();
  void mark_staged();
  [[nodiscard]] std::uint32_t call_of(const Op& op, std::int32_t pid);
  [[nodiscard]] const trace::Track* track_of(std::uint32_t slice) const;

  const trace::Trace& trace_;
  trace::CollectiveKernels collective_kernels_;
  ArgReader args_;
  DeviceWork out_;
  std::map<std::pair<trace::StringId, trace::StringId>, Classes> classes_;
  std::map<trace::TrackId, std::uint32_t> threads_;
  std::map<std::int32_t, const trace::Process*> processes_;
  std::map<std::int32_t, std::vector<std::int32_t>> hosts_of_rank_;  // processes that call CUDA
  std::set<std::int32_t> hosts_;
  std::map<std::pair<std::int32_t, std::uint64_t>, std::uint32_t> by_correlation_;
  std::unordered_set<std::uint64_t> correlations_;  // of operations
};

const WorkReader::Classes& WorkReader::classes_of(std::uint32_t slice) {
  const std::pair key(trace_.slices.category[slice], trace_.slices.name[slice]);
  const auto [known, is_new] = classes_.try_emplace(key);
  if (is_new) {
    const std::string_view category = args_.string(key.first);
    known->second = {op_class_of(category), is_cuda_category(category),
                     is_foreign_category(category)};
    if (known->second.op == OpClass::kKernel && collective_kernels_.contains(slice))
      known->second.op = OpClass::kCollective;
  }
  return known->second;
}

const trace::Track* WorkReader::track_of(std::uint32_t slice) const {
  const trace::TrackId id = trace_.slices.track[slice];
  return id.raw < trace_.tracks.size() ? &trace_.tracks[id.raw] : nullptr;
}

void WorkReader::take_op(std::uint32_t slice, OpClass what, stats::Interval time) {
  Op op;
  op.time = time;
  op.slice = slice;
  op.what = what;
  op.correlation = args_.count(slice, ArgName::kCorrelation);
  op.is_shared = args_.number(slice, ArgName::kShared).value_or(0) != 0;
  out_.ops.push_back(op);
}

void WorkReader::take_call(std::uint32_t slice, stats::Interval time, bool is_open) {
  const trace::Track* const track = track_of(slice);
  if (track == nullptr || track->kind != trace::TrackKind::kThread) return;
  const trace::TrackId id = trace_.slices.track[slice];
  const auto [known, is_new] =
      threads_.try_emplace(id, static_cast<std::uint32_t>(out_.threads.size()));
  if (is_new) out_.threads.push_back({.track = id, .pid = track->pid, .tid = track->tid});
  const CallKind kind = call_kind_of(args_.string(trace_.slices.name[slice]));
  Call call;
  call.time = time;
  call.slice = slice;
  call.thread = known->second;
  call.what = kind.what;
  call.is_blocking = kind.is_blocking;
  call.is_open = is_open;
  call.correlation = args_.count(slice, ArgName::kCorrelation);
  out_.calls.push_back(call);
}

/// By begin, and calls inside others of their thread marked.
void WorkReader::order_calls() {
  std::stable_sort(out_.calls.begin(), out_.calls.end(), [](const Call& a, const Call& b) {
    return std::tie(a.time.begin_ns, b.time.end_ns) < std::tie(b.time.begin_ns, a.time.end_ns);
  });
  std::vector<std::int64_t> covered_until(out_.threads.size(), -1);
  for (Call& call : out_.calls) {
    std::int64_t& until = covered_until[call.thread];
    call.is_nested = call.time.begin_ns < until && call.time.end_ns <= until;
    until = std::max(until, call.time.end_ns);
  }
}

void WorkReader::order_threads() {
  for (std::uint32_t i = 0; i < trace_.slices.size(); ++i) {
    const auto known = threads_.find(trace_.slices.track[i]);
    if (known == threads_.end()) continue;
    const std::int64_t start_ns = trace_.slices.start_ns[i];
    if (start_ns >= 0 && start_ns <= kTimeMaxNs) out_.threads[known->second].slices.push_back(i);
  }
  const auto end_of = [&](std::uint32_t slice) {
    const std::int64_t duration_ns = trace_.slices.duration_ns[slice];
    return duration_ns < 0 ? kTimeMaxNs
                           : std::min(duration_ns, kTimeMaxNs) + trace_.slices.start_ns[slice];
  };
  for (Thread& thread : out_.threads) {
    std::stable_sort(thread.slices.begin(), thread.slices.end(),
                     [&](std::uint32_t a, std::uint32_t b) {
                       const std::int64_t begin_a = trace_.slices.start_ns[a];
                       const std::int64_t begin_b = trace_.slices.start_ns[b];
                       return begin_a != begin_b ? begin_a < begin_b : end_of(a) > end_of(b);
                     });
  }
}

void WorkReader::find_hosts() {
  for (const trace::Process& process : trace_.processes)
    processes_.emplace(process.pid, &process);
  for (const Thread& thread : out_.threads)
    hosts_.insert(thread.pid);
  for (const std::int32_t pid : hosts_) {
    const auto process = processes_.find(pid);
    hosts_of_rank_[process == processes_.end() ? trace::kNoRank : process->second->rank].push_back(
        pid);
  }
  for (std::uint32_t i = 0; i < out_.calls.size(); ++i) {
    const Call& call = out_.calls[i];
    if (!call.correlation) continue;
    const std::pair key(out_.threads[call.thread].pid, *call.correlation);
    const auto [known, is_new] = by_correlation_.try_emplace(key, i);
    if (!is_new && out_.calls[known->second].is_nested && !call.is_nested) known->second = i;
  }
}

/// Profilers put devices into processes of their own: the one host of that rank, if it is one.
std::int32_t WorkReader::launching_process(std::int32_t pid) const {
  if (hosts_.contains(pid)) return pid;
  const auto process = processes_.find(pid);
  const std::int32_t rank = process == processes_.end() ? trace::kNoRank : process->second->rank;
  const auto hosts = hosts_of_rank_.find(rank);
  const bool is_one = hosts != hosts_of_rank_.end() && hosts->second.size() == 1;
  return is_one ? hosts->second.front() : pid;
}

/// Until the clock of a context is known, its operations may be written on a clock of their own: a
/// few of them, at the begin. The rest of the recording is as good without them.
void WorkReader::drop_other_clock() {
  const auto is_other = [&](const Op& op) {
    const trace::Track* const track = track_of(op.slice);
    return track != nullptr && is_device_clock(args_.string(track->name));
  };
  const auto count =
      static_cast<std::uint64_t>(std::count_if(out_.ops.begin(), out_.ops.end(), is_other));
  if (static_cast<double>(count) > kOtherClockShareMax * static_cast<double>(out_.ops.size()))
    return;
  out_.other_clock_count = count;
  std::erase_if(out_.ops, is_other);
}

/// How far the recorder's map from a process's device clock to the host's may be wrong at its end,
/// by its own account; nothing if there is none.
std::optional<std::int64_t> WorkReader::map_error_ns(std::int32_t pid) const {
  constexpr std::string_view kWord = "error_ns=";
  const std::string prefix = "kansoku.clock.cuda." + std::to_string(pid) + ".";
  std::optional<std::int64_t> worst_ns;
  for (auto at = trace_.metadata.lower_bound(prefix);
       at != trace_.metadata.end() && at->first.starts_with(prefix); ++at) {
    const std::size_t word = at->second.find(kWord);
    if (word == std::string::npos) continue;
    std::string_view number = std::string_view(at->second).substr(word + kWord.size());
    number = number.substr(0, number.find(' '));
    const auto error_ns = parse_int<std::int64_t>(number).value_or(0);
    worst_ns = std::clamp<std::int64_t>(error_ns, worst_ns.value_or(0), kAlignErrorMaxNs);
  }
  return worst_ns;
}

/// Returns of waits, with how long after them the last operation before them seems to end. Only
/// where all that was launched since the wait before went into one stream: a wait does not say
/// which one it waits for.
std::vector<std::pair<std::int64_t, std::int64_t>> WorkReader::late_ends(
    std::int32_t pid, const std::vector<Launched>& launched) const {
  std::vector<std::pair<std::int64_t, std::int64_t>> late;
  std::size_t next = 0;
  for (const Call& call : out_.calls) {
    const bool is_wait =
        call.what == CallClass::kSync && !call.is_open && out_.threads[call.thread].pid == pid;
    if (!is_wait) continue;
    const std::size_t first = next;
    std::int64_t end_ns = 0;
    bool is_one_stream = true;
    for (; next < launched.size() && launched[next].at_ns < call.time.begin_ns; ++next) {
      end_ns = std::max(end_ns, launched[next].op->time.end_ns);
      is_one_stream = is_one_stream && trace_.slices.track[launched[next].op->slice] ==
                                           trace_.slices.track[launched[first].op->slice];
    }
    const bool is_for_event =
        args_.string(trace_.slices.name[call.slice]).find("Event") != std::string_view::npos;
    if (next == first || !is_one_stream || is_for_event ||
        call.time.end_ns - call.time.begin_ns < kAlignWaitMinNs)
      continue;
    const std::int64_t by_ns = end_ns - call.time.end_ns;
    if (std::abs(by_ns) <= kAlignErrorMaxNs) late.emplace_back(call.time.end_ns, by_ns);
  }
  return late;
}

/// How far device times come too late, or negative too early, along a recording: waits of the host
/// seem to return before the device is done, or operations to begin before their launch. Neither is
/// cured at the expense of the other. By groups of waits, as the map gets better with each reading.
WorkReader::Moves WorkReader::moves_of(std::int32_t pid, const std::vector<Op*>& ops) const {
  if (!map_error_ns(pid)) return {};
  std::vector<Launched> launched;
  std::vector<std::pair<std::int64_t, std::int64_t>> room;  // begin, and how long after its launch
  for (const Op* const op : ops) {
    if (!op->correlation) continue;
    const auto call = by_correlation_.find({pid, *op->correlation});
    if (call == by_correlation_.end()) continue;
    const std::int64_t at_ns = out_.calls[call->second].time.begin_ns;
    launched.push_back({at_ns, op});
    room.emplace_back(op->time.begin_ns, op->time.begin_ns - at_ns);
  }
  std::stable_sort(launched.begin(), launched.end(),
                   [](const Launched& a, const Launched& b) { return a.at_ns < b.at_ns; });
  std::sort(room.begin(), room.end());
  auto late = late_ends(pid, launched);
  Moves moves;
  std::sort(late.begin(), late.end());
  for (std::size_t first = 0; first + kAlignWaitsMin <= late.size(); first += kAlignWaitsMin) {
    const bool is_last = first + 2 * kAlignWaitsMin > late.size();
    const std::size_t end = is_last ? late.size() : first + kAlignWaitsMin;
    moves.push_back(move_of({late.data() + first, end - first}, room));
    if (moves.size() < 2) continue;
    // Half as fast as time, so that nothing overtakes what came before.
    const auto& [before_ns, before] = *(moves.end() - 2);
    moves.back().second =
        std::min(moves.back().second, before + (moves.back().first - before_ns) / 2);
  }
  return moves;
}

/// Middle and move of one group of waits. It goes to earlier if waits seem to return before the
/// device is done, to later if operations seem to begin before their launch.
std::pair<std::int64_t, std::int64_t> WorkReader::move_of(
    std::span<const std::pair<std::int64_t, std::int64_t>> late,
    const std::vector<std::pair<std::int64_t, std::int64_t>>& room) {
  std::int64_t latest_ns = late.front().second;
  for (const auto& [at_ns, by_ns] : late)
    latest_ns = std::max(latest_ns, by_ns);
  std::vector<std::int64_t> least;
  const std::int64_t middle_ns = late.front().first + (late.back().first - late.front().first) / 2;
  for (auto at = std::lower_bound(room.begin(), room.end(),
                                  std::pair(late.front().first, std::int64_t{0}));
       at != room.end() && at->first <= late.back().first; ++at)
    least.push_back(at->second);
  if (least.empty()) return {middle_ns, 0};
  std::sort(least.begin(), least.end());
  const std::int64_t room_ns =
      least[static_cast<std::size_t>(kAlignTail * static_cast<double>(least.size()))];
  if (latest_ns > 0) return {middle_ns, std::min(latest_ns, std::max<std::int64_t>(room_ns, 0))};
  return {middle_ns, std::clamp<std::int64_t>(room_ns, latest_ns, 0)};
}

/// Device times and host times are compared more closely than the map between their clocks is
/// known, so what must have been before what corrects it.
void WorkReader::align_with_host() {
  std::map<std::int32_t, std::vector<Op*>> of_process;
  for (Op& op : out_.ops)
    of_process[launching_process(process_of_track(trace_, trace_.slices.track[op.slice]))]
        .push_back(&op);
  for (const auto& [pid, ops] : of_process) {
    const Moves moves = moves_of(pid, ops);
    if (moves.empty()) continue;
    const auto moved = [&](std::int64_t at_ns) {
      const auto after = std::partition_point(
          moves.begin(), moves.end(), [&](const auto& move) { return move.first <= at_ns; });
      if (after == moves.begin()) return at_ns - moves.front().second;
      const auto& [from_ns, from] = *(after - 1);
      if (after == moves.end()) return at_ns - from;
      const double part = static_cast<double>(at_ns - from_ns) /
                          static_cast<double>(std::max<std::int64_t>(after->first - from_ns, 1));
      return at_ns - from -
             static_cast<std::int64_t>(part * static_cast<double>(after->second - from));
    };
    for (const auto& [at_ns, move_ns] : moves)
      out_.moved_ns = std::max(out_.moved_ns, std::abs(move_ns));
    for (Op* const op : ops) {
      op->time.begin_ns = std::max<std::int64_t>(moved(op->time.begin_ns), 0);
      op->time.end_ns = std::max(moved(op->time.end_ns), op->time.begin_ns);
    }
  }
}

void WorkReader::place_ops() {
  // A graph before its nodes.
  std::stable_sort(out_.ops.begin(), out_.ops.end(), [](const Op& a, const Op& b) {
    return std::tie(a.time.begin_ns, b.time.end_ns) < std::tie(b.time.begin_ns, a.time.end_ns);
  });
  std::vector<Place> places;
  places.reserve(out_.ops.size());
  for (const Op& op : out_.ops) {
    const trace::Track* const track = track_of(op.slice);
    Place place{0, trace::kNoRank, -1, 0};
    if (track != nullptr) {
      const std::string_view name = args_.string(track->name);
      place.pid = launching_process(process_of_track(trace_, trace_.slices.track[op.slice]));
      place.ordinal = number_after(name, "GPU ").value_or(-1);
      place.stream = number_after(name, "stream ").value_or(track->tid);
    }
    if (const auto process = processes_.find(place.pid); process != processes_.end())
      place.rank = process->second->rank;
    place.ordinal = args_.number(op.slice, ArgName::kDevice).value_or(place.ordinal);
    place.stream = args_.number(op.slice, ArgName::kStream).value_or(place.stream);
    places.push_back(place);
  }
  std::vector<Place> sorted(places);
  const auto by_device = [](const Place& place) {
    return std::tuple(place.rank, place.pid, place.ordinal, place.stream);
  };
  std::sort(sorted.begin(), sorted.end(),
            [&](const Place& a, const Place& b) { return by_device(a) < by_device(b); });
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::map<Place, std::uint32_t> streams;
  for (const Place& place : sorted) {
    const bool is_new_device = out_.devices.empty() || out_.devices.back().pid != place.pid ||
                               out_.devices.back().ordinal != place.ordinal;
    if (is_new_device)
      out_.devices.push_back({.pid = place.pid,
                              .rank = place.rank,
                              .ordinal = place.ordinal,
                              .map_error_ns = map_error_ns(place.pid).value_or(0)});
    streams.emplace(place, static_cast<std::uint32_t>(out_.streams.size()));
    out_.streams.push_back(
        {.device = static_cast<std::uint32_t>(out_.devices.size() - 1), .number = place.stream});
  }
  for (std::uint32_t i = 0; i < out_.ops.size(); ++i) {
    Op& op = out_.ops[i];
    op.stream = streams.at(places[i]);
    out_.streams[op.stream].ops.push_back(i);
    out_.devices[out_.streams[op.stream].device].ops.push_back(i);
  }
}

/// Operations beside which another stream of their device was at work. A sweep by begin: whoever
/// reaches furthest, and whoever reaches furthest in another stream than that one.
void WorkReader::mark_shared() {
  struct Reach {
    std::int64_t end_ns{-1};
    std::uint32_t op{kNoIndex};
  };
  for (const Device& device : out_.devices) {
    Reach furthest, other;
    for (const std::uint32_t i : device.ops) {
      Op& op = out_.ops[i];
      if (!is_busy(op.what)) continue;
      for (const Reach& reach : {furthest, other}) {
        if (reach.op == kNoIndex || reach.end_ns <= op.time.begin_ns) continue;
        if (out_.ops[reach.op].stream == op.stream) continue;
        op.is_shared = out_.ops[reach.op].is_shared = true;
      }
      if (op.time.end_ns > furthest.end_ns) {
        if (furthest.op != kNoIndex && out_.ops[furthest.op].stream != op.stream) other = furthest;
        furthest = {op.time.end_ns, i};
      } else if (op.time.end_ns > other.end_ns && out_.ops[furthest.op].stream != op.stream) {
        other = {op.time.end_ns, i};
      }
    }
  }
}

std::uint32_t WorkReader::call_of(const Op& op, std::int32_t pid) {
  if (!op.correlation) return kNoIndex;
  const auto find = [&](std::int32_t of) {
    const auto found = by_correlation_.find({of, *op.correlation});
    return found == by_correlation_.end() ? kNoIndex : found->second;
  };
  if (hosts_.contains(pid)) return find(pid);
  const auto process = processes_.find(pid);
  const auto hosts =
      hosts_of_rank_.find(process == processes_.end() ? trace::kNoRank : process->second->rank);
  if (hosts == hosts_of_rank_.end() || hosts->second.size() > kHostsMax) return kNoIndex;
  std::uint32_t call = kNoIndex;
  for (const std::int32_t host : hosts->second) {
    const std::uint32_t found = find(host);
    if (found == kNoIndex) continue;
    if (call != kNoIndex) {
      ++out_.ambiguous_count;
      return kNoIndex;
    }
    call = found;
  }
  return call;
}

void WorkReader::mark_further() {
  std::vector<bool> has_one(out_.calls.size(), false);
  for (Op& op : out_.ops) {
    if (op.call == kNoIndex) continue;
    op.is_further = has_one[op.call];
    has_one[op.call] = true;
  }
}

void WorkReader::collect_correlations() {
  for (std::uint32_t i = 0; i < trace_.slices.size(); ++i) {
    if (!classes_of(i).op) continue;
    if (const auto number = args_.count(i, ArgName::kCorrelation)) correlations_.insert(*number);
  }
}

/// True if an operation of a device has the correlation number of this slice of a host's thread.
bool WorkReader::is_pointed_to(std::uint32_t slice) const {
  const auto number = args_.count(slice, ArgName::kCorrelation);
  return number && correlations_.contains(*number);
}

/// A function whose name tells nothing is known by the operation that it brought about.
void WorkReader::name_calls_by_ops() {
  for (const Op& op : out_.ops) {
    if (op.call == kNoIndex || out_.calls[op.call].what != CallClass::kOther) continue;
    out_.calls[op.call].what = op.what == OpClass::kCopy  ? CallClass::kCopy
                               : op.what == OpClass::kSet ? CallClass::kSet
                                                          : CallClass::kLaunch;
  }
}

void WorkReader::link_by_correlation() {
  for (Op& op : out_.ops)
    op.call = call_of(op, out_.devices[out_.streams[op.stream].device].pid);
}

void WorkReader::link_by_flow() {
  std::map<std::uint32_t, std::uint32_t> call_of_slice;
  for (std::uint32_t i = 0; i < out_.calls.size(); ++i)
    call_of_slice.emplace(out_.calls[i].slice, i);
  std::map<std::uint64_t, std::uint32_t> call_of_flow;
  for (std::size_t i = 0; i < trace_.flows.size(); ++i) {
    const auto call = call_of_slice.find(trace_.flows.slice[i]);
    if (call != call_of_slice.end()) call_of_flow.try_emplace(trace_.flows.id[i], call->second);
  }
  std::map<std::uint32_t, std::uint64_t> flow_of_slice;
  for (std::size_t i = 0; i < trace_.flows.size(); ++i)
    flow_of_slice.try_emplace(trace_.flows.slice[i], trace_.flows.id[i]);
  for (Op& op : out_.ops) {
    if (op.call != kNoIndex) continue;
    const auto flow = flow_of_slice.find(op.slice);
    if (flow == flow_of_slice.end()) continue;
    if (const auto call = call_of_flow.find(flow->second); call != call_of_flow.end())
      op.call = call->second;
  }
}

void WorkReader::mark_first_uses() {
  std::set<std::pair<std::int32_t, trace::StringId>> seen;
  for (const Op& op : out_.ops) {
    if (op.what != OpClass::kKernel && op.what != OpClass::kCollective) continue;
    const std::int32_t pid = out_.devices[out_.streams[op.stream].device].pid;
    if (!seen.emplace(pid, trace_.slices.name[op.slice]).second || op.call == kNoIndex) continue;
    Call& call = out_.calls[op.call];
    call.is_first_use = call.time.end_ns - call.time.begin_ns >= kFirstUseMinNs;
  }
}

/// The driver takes pageable memory along before an asynchronous copy returns, at about the speed
/// of the copy; from pinned memory it returns at once, whatever the size.
void WorkReader::mark_staged() {
  for (const Op& op : out_.ops) {
    if (op.what != OpClass::kCopy || op.call == kNoIndex) continue;
    Call& call = out_.calls[op.call];
    const std::int64_t held_ns = call.time.end_ns - call.time.begin_ns;
    const auto copied_ns = static_cast<double>(op.time.end_ns - op.time.begin_ns);
    call.is_staged = call.what == CallClass::kCopy && !call.is_blocking && !call.is_open &&
                     held_ns >= kStagedMinNs &&
                     static_cast<double>(held_ns) >= kStagedShareMin * copied_ns;
  }
}

DeviceWork WorkReader::read() {
  collect_correlations();
  for (std::uint32_t i = 0; i < trace_.slices.size(); ++i) {
    const Classes& classes = classes_of(i);
    const bool is_call = classes.is_cuda || (classes.may_launch && is_pointed_to(i));
    if (!classes.op && !is_call) continue;
    const std::int64_t start_ns = trace_.slices.start_ns[i];
    const std::int64_t duration_ns = trace_.slices.duration_ns[i];
    const bool is_open = duration_ns == trace::kOpenDuration;
    const bool is_odd = start_ns < 0 || start_ns > kTimeMaxNs || (!is_open && duration_ns < 0) ||
                        duration_ns > kTimeMaxNs - start_ns;
    if (is_odd) {
      ++out_.odd_count;
    } else if (classes.op && is_open) {
      ++out_.open_count;
    } else if (classes.op) {
      take_op(i, *classes.op, {start_ns, start_ns + duration_ns});
    } else {
      const std::int64_t end_ns =
          is_open ? std::clamp(trace_.end_ns, start_ns, kTimeMaxNs) : start_ns + duration_ns;
      take_call(i, {start_ns, end_ns}, is_open);
    }
  }
  order_calls();
  order_threads();
  find_hosts();
  drop_other_clock();
  align_with_host();
  place_ops();
  mark_shared();
  link_by_correlation();
  if (trace_.flows.size() > 0) link_by_flow();
  name_calls_by_ops();
  mark_further();
  mark_first_uses();
  mark_staged();
  for (const Op& op : out_.ops)
    out_.unlinked_count += op.call == kNoIndex ? 1 : 0;
  return std::move(out_);
}

}  // namespace

std::span<const Stream> streams_of(const DeviceWork& work, std::uint32_t device) {
  const auto [begin, end] = std::equal_range(
      work.streams.begin(), work.streams.end(), Stream{.device = device, .number = 0},
      [](const Stream& a, const Stream& b) { return a.device < b.device; });
  return {begin, end};
}

Result<DeviceWork> read_device_work(const trace::Trace& trace) {
  const trace::SliceTable& slices = trace.slices;
  const std::size_t count = slices.size();
  const bool is_whole = slices.duration_ns.size() == count && slices.track.size() == count &&
                        slices.name.size() == count && slices.category.size() == count &&
                        slices.arg_begin.size() == count && slices.arg_count.size() == count &&
                        trace.flows.slice.size() == trace.flows.id.size() && count < kNoIndex;
  if (!is_whole) return Error{Code::kCorrupt, "read device work: columns of unequal length"};
  return WorkReader(trace).read();
}

}  // namespace kansoku::gpu::activity
