// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/waits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "common/text.h"
#include "diagnose/internal/steps/names.h"
#include "diagnose/internal/steps/phases.h"
#include "diagnose/internal/steps/processors.h"
#include "diagnose/internal/steps/sleeps.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"
#include "trace/merge.h"

namespace kansoku::diagnose {
namespace {

constexpr std::size_t kWakersMax = 3;  // named

/// A pause of its own, or a disk: nobody else has to do anything.
bool is_own(std::string_view call) {
  static constexpr std::array<std::string_view, 8> kOwn{
      "nanosleep", "clock_nanosleep", "fsync", "fdatasync", "sync", "pread", "pwrite", "openat"};
  return std::find(kOwn.begin(), kOwn.end(), call) != kOwn.end();
}

/// The Python stacks of the other threads of a process, when its main thread was seen waiting.
class Others {
 public:
  Others(const trace::Trace& trace, const RankData& rank, const std::vector<SleepSample>& waits)
      : trace_(trace) {
    std::set<std::int64_t> times;
    for (const SleepSample& seen : waits)
      times.insert(seen.time_ns);
    const auto& samples = trace.samples;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (samples.pid[i] != rank.pid || samples.tid[i] == rank.main_tid ||
          samples.is_native[i] != 0)
        continue;
      if (!times.contains(samples.time_ns[i])) continue;
      ++stacks_[samples.tid[i]][samples.stack[i]];
      if (samples.holds_gil[i] == 0) continue;
      ++holders_[samples.tid[i]];
      ++held_[samples.tid[i]][samples.stack[i]];
    }
  }
  /// How often each thread held the interpreter lock.
  [[nodiscard]] const std::map<std::int32_t, std::size_t>& holders() const { return holders_; }
  /// The most frequent stack of a thread, outermost first; empty if it was not seen.
  [[nodiscard]] std::vector<trace::Frame> stack_of(std::int32_t tid) const {
    return most_of(stacks_, tid);
  }
  /// The same, of those in which it held the interpreter lock.
  [[nodiscard]] std::vector<trace::Frame> stack_of_holder(std::int32_t tid) const {
    return most_of(held_, tid);
  }

 private:
  using Stacks = std::map<std::int32_t, std::map<trace::StackId, std::size_t>>;  // by thread
  [[nodiscard]] std::vector<trace::Frame> most_of(const Stacks& stacks, std::int32_t tid) const {
    const auto found = stacks.find(tid);
    return found == stacks.end() ? std::vector<trace::Frame>{}
                                 : most_frequent(trace_, found->second);
  }

  const trace::Trace& trace_;
  Stacks stacks_, held_;
  std::map<std::int32_t, std::size_t> holders_;
};

std::string innermost_place(const trace::Trace& trace, const std::vector<trace::Frame>& stack) {
  if (stack.empty()) return "";
  const std::string_view file = text_of(trace, stack.back().file);
  return fmt::format("{} ({}:{})", text_of(trace, stack.back().function), base_name(file),
                     stack.back().line);
}

void add_holder(const Context& context, std::size_t wait_count, const Others& others,
                MainWait& out) {
  const auto& holders = others.holders();
  const auto most =
      std::max_element(holders.begin(), holders.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const double share = most == holders.end()
                           ? 0
                           : static_cast<double>(most->second) / static_cast<double>(wait_count);
  if (share < kMostShare) {
    out.evidence.emplace_back(words::kNoHolder);
    return;
  }
  out.blamed = others.stack_of_holder(most->first);
  out.evidence.push_back(fmt::format(words::kHolder, trace::pid_on_host(most->first),
                                     std::min(share, 1.0) * 100,
                                     innermost_place(context.trace, out.blamed)));
}

std::string waker_name(const Context& context, const ThreadNames& names, const Others& others,
                       std::int32_t tid, std::int32_t pid) {
  if (tid == 0) return words::kInterrupt;
  if (names.process_of(tid) != pid) return names.shown(tid);
  const std::string place = innermost_place(context.trace, others.stack_of(tid));
  return fmt::format(words::kOwnThread, trace::pid_on_host(tid), names.name_of(tid),
                     place.empty() ? "" : words::kMostlyIn + place);
}

void add_wakers(const Context& context, std::size_t r, const IntervalSet& region,
                const Others& others, MainWait& out) {
  const RankData& rank = context.job.ranks[r];
  const ThreadNames names(context.trace);
  std::map<std::int32_t, double> wakers;
  double all = 0, known = 0;
  for (const BlockedWait& wait : rank.main.blocked_waits) {
    const auto ns = static_cast<double>(region.measure_ns(wait.time));
    all += ns;
    if (!wait.waker_tid) continue;
    known += ns;
    wakers[*wait.waker_tid] += ns;
  }
  if (!(all > 0)) return;
  std::vector<std::pair<double, std::int32_t>> order;
  order.reserve(wakers.size());
  for (const auto& [tid, ns] : wakers)
    order.emplace_back(-ns / all, tid);
  std::sort(order.begin(), order.end());
  std::vector<std::string> parts;
  for (const auto& [negative, tid] : order) {
    if (parts.size() == kWakersMax || -negative < kToldShareMin) break;
    parts.push_back(fmt::format("{} {:.0f} %", waker_name(context, names, others, tid, rank.pid),
                                -negative * 100));
    const bool is_most = parts.size() == 1 && -negative >= kMostShare && tid != 0;
    if (is_most && names.process_of(tid) == rank.pid) out.blamed = others.stack_of(tid);
  }
  if (!parts.empty()) out.evidence.push_back(fmt::format(words::kWakers, fmt::join(parts, "; ")));
  if (known < kWakersKnownMin * all)
    out.evidence.push_back(fmt::format(words::kUnknownWaker, 100 * (1 - known / all)));
}

}  // namespace

std::optional<MainWait> explain_wait(const Context& context, std::size_t rank,
                                     std::optional<Phase> phase) {
  const RankPhases& phases = context.phases[rank];
  const IntervalSet region =
      phase ? phases.sets[static_cast<std::size_t>(*phase)].unite(phases.unknown) : phases.work;
  const std::vector<SleepSample> waits =
      sleep_samples(context.trace, context.job.ranks[rank].main_tid, region);
  if (waits.size() < kSamplesMin) return std::nullopt;
  std::map<std::pair<std::string_view, std::string_view>, std::size_t> kinds;
  for (const SleepSample& seen : waits)
    ++kinds[{seen.call, seen.on}];
  const auto most = std::max_element(
      kinds.begin(), kinds.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const double share = static_cast<double>(most->second) / static_cast<double>(waits.size());
  if (share < kMostShare) return std::nullopt;
  const std::string_view call = most->first.first, on = most->first.second;
  MainWait out;
  out.is_interpreter_lock = on == kInterpreterLock;
  out.is_for_others = !is_own(call);
  // Each sample stands for an equal part of the region, whatever the rate was.
  const std::vector<ThreadSample>& samples = context.job.ranks[rank].samples;
  const auto looks = std::count_if(samples.begin(), samples.end(), [&](const ThreadSample& sample) {
    return region.contains(sample.time_ns);
  });
  const auto& steps = context.steps.ranks[rank];
  const double region_ms =
      static_cast<double>(region.measure_ns({steps.front().begin_ns, steps.back().end_ns})) / 1e6 /
      static_cast<double>(steps.size());
  const double look_count = static_cast<double>(std::max<std::ptrdiff_t>(looks, 1));
  const double part = std::min(static_cast<double>(most->second) / look_count, 1.0);
  out.ms_per_step = region_ms * part;
  out.ms_per_step_low =
      region_ms * std::max(0.0, part - 1.96 * std::sqrt(part * (1 - part) / look_count));
  out.evidence.push_back(
      fmt::format(words::kWaits, wait_text(call, on), share * 100, waits.size()));
  std::vector<SleepSample> of_kind;
  std::copy_if(waits.begin(), waits.end(), std::back_inserter(of_kind),
               [&](const SleepSample& seen) { return seen.call == call && seen.on == on; });
  const Others others(context.trace, context.job.ranks[rank], of_kind);
  if (out.is_interpreter_lock) {
    add_holder(context, of_kind.size(), others, out);
  } else if (out.is_for_others) {
    add_wakers(context, rank, region, others, out);
  }
  return out;
}

double stopped_ms(const Context& context, std::size_t rank) {
  const IntervalSet& work = context.phases[rank].work;
  std::int64_t sum_ns = 0;
  for (const BlockedWait& wait : context.job.ranks[rank].main.blocked_waits)
    sum_ns += wait.is_stopped ? work.measure_ns(wait.time) : 0;
  return static_cast<double>(sum_ns) / 1e6 / static_cast<double>(context.steps.count());
}

}  // namespace kansoku::diagnose
