// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/steps/kernel_use.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "common/parse.h"
#include "common/time.h"
#include "diagnose/internal/steps/names.h"
#include "diagnose/thresholds.h"
#include "stats/summary.h"

namespace kansoku::diagnose {
namespace {

constexpr std::string_view kUserTime = "user time", kSystemTime = "system time",
                           kMinorFaults = "minor faults",
                           kFaultsAtStacks = "minor faults at stacks";
// As the recorder writes them: where the thread's clock was sampled.
constexpr std::string_view kFaultsAtPlace = "page faults ";
constexpr std::string_view kSampled = "time ", kCall = "time in call ", kUser = "time in user code",
                           kUnknown = "time unknown";
struct SampledPart {
  std::string_view name;
  double KernelUse::*ms;
};
constexpr std::array kParts{SampledPart{"time in page faults", &KernelUse::page_fault_ms},
                            SampledPart{"time in reclaim", &KernelUse::reclaim_ms},
                            SampledPart{"time in interrupts", &KernelUse::interrupt_ms},
                            SampledPart{"time in probes", &KernelUse::probe_ms}};
// Calls by which memory is taken and given back: what faults has been taken by one of these.
constexpr std::array<std::string_view, 5> kMemoryCalls{"brk", "mmap", "munmap", "madvise",
                                                       "mremap"};

// Clock ticks are of 10 ms: 1 % of the least span is two of them.
constexpr double kSpanMinMs = 1900;
// Counters are written once a second: one that begins so late was not there before.
constexpr std::int64_t kLaterNs = 500'000'000;
constexpr std::int64_t kPlacesLaterNs = 2'500'000'000;  // these every two seconds
// Samples whose stack had no place say nothing; where they are more than that, the others do not
// either.
constexpr double kUnknownShareMax = 0.1;
// No machine takes as long for a page fault.
constexpr std::int64_t kPriceMaxNs = 1'000'000;

struct Point {
  std::int64_t time_ns{0};
  double value{0};
};
struct CounterSpan {
  std::int64_t first_ns{0}, last_ns{0};
  double first{-1}, last{0};
  std::vector<Point> points{};  // of minor faults and faults at stacks alone
  [[nodiscard]] double per_ns() const {
    return last_ns > first_ns ? (last - first) / static_cast<double>(last_ns - first_ns) : -1;
  }
  [[nodiscard]] bool is_long() const {
    return per_ns() >= 0 && static_cast<double>(last_ns - first_ns) >= kSpanMinMs * kNsPerMs;
  }
};
using Spans = std::map<std::string, CounterSpan, std::less<>>;  // by counter

/// Which counter of which rank (an index) a track holds.
struct Holds {
  std::size_t rank{0};
  std::string_view counter{};  // empty: none of these
};
std::vector<Holds> counters_of_tracks(const trace::Trace& trace, const JobData& job) {
  std::map<std::int32_t, std::size_t> ranks;  // by pid
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    ranks.emplace(job.ranks[r].pid, r);
  std::vector<Holds> out(trace.tracks.size());
  for (std::size_t i = 0; i < trace.tracks.size(); ++i) {
    const trace::Track& track = trace.tracks[i];
    if (track.kind != trace::TrackKind::kCounter || track.parent.raw >= trace.tracks.size())
      continue;
    const trace::Track& thread = trace.tracks[track.parent.raw];
    const auto rank = ranks.find(thread.pid);
    const std::string_view name = text_of(trace, track.name);
    const bool is_wanted = name == kUserTime || name == kSystemTime || name == kMinorFaults ||
                           name == kFaultsAtStacks || name.starts_with(kSampled) ||
                           name.starts_with(kFaultsAtPlace);
    if (is_wanted && rank != ranks.end() && thread.tid == job.ranks[rank->second].main_tid)
      out[i] = {rank->second, name};
  }
  return out;
}

/// By rank index: the counters' first and last values within the steps of the rank.
std::vector<Spans> read_spans(const trace::Trace& trace, const JobData& job,
                              const StepTable& steps) {
  const std::vector<Holds> tracks = counters_of_tracks(trace, job);
  std::vector<Spans> spans(job.ranks.size());
  for (std::size_t i = 0; i < trace.counters.size(); ++i) {
    const std::int64_t time_ns = trace.counters.time_ns[i];
    const double value = trace.counters.value[i];
    const std::size_t track = trace.counters.track[i].raw;
    if (track >= tracks.size() || tracks[track].counter.empty() || !(value >= 0) ||
        !std::isfinite(value))
      continue;
    const auto& own = steps.ranks[tracks[track].rank];
    if (time_ns < own.front().begin_ns || time_ns > own.back().end_ns) continue;
    Spans& of_rank = spans[tracks[track].rank];
    CounterSpan& span = of_rank.try_emplace(std::string(tracks[track].counter)).first->second;
    if (span.first < 0) {
      span.first = value;
      span.first_ns = time_ns;
    }
    span.last = value;
    span.last_ns = time_ns;
    if (tracks[track].counter == kMinorFaults || tracks[track].counter == kFaultsAtStacks)
      span.points.push_back({time_ns, value});
  }
  return spans;
}

/// A counter of samples begins with the first of them, and is 0 until then.
void add_sampled(const Spans& spans, const CounterSpan& whole, double step_ns, KernelUse& use) {
  const auto whole_ns = static_cast<double>(whole.last_ns - whole.first_ns);
  double user_ms = 0, kernel_ms = 0, unknown_ms = 0;
  for (const auto& [name, span] : spans) {
    if (!name.starts_with(kSampled)) continue;
    const double from = span.first_ns > whole.first_ns + kLaterNs ? 0 : span.first;
    const double ms = (span.last - from) / whole_ns * step_ns / kNsPerMs;
    // No thread runs for longer than it is there.
    if (!(ms >= 0) || ms > step_ns / kNsPerMs) continue;
    (name == kUnknown ? unknown_ms : name == kUser ? user_ms : kernel_ms) += ms;
    for (const SampledPart& part : kParts) {
      if (name == part.name) use.*part.ms += ms;
    }
    if (name.starts_with(kCall)) use.call_ms[name.substr(kCall.size())] += ms;
  }
  use.is_sampled = user_ms + kernel_ms > 0 && unknown_ms <= kUnknownShareMax * kernel_ms;
  for (const std::string_view name : kMemoryCalls) {
    const auto call = use.call_ms.find(name);
    if (call == use.call_ms.end()) continue;
    use.memory_call_ms += call->second;
    use.call_ms.erase(call);
  }
}

/// A counter of places begins with the first sampled fault there, and is 0 until then.
void add_places(const Spans& spans, std::int64_t begin_ns, double step_ns, KernelUse& use) {
  for (const auto& [name, span] : spans) {
    if (!name.starts_with(kFaultsAtPlace)) continue;
    const double from = span.first_ns > begin_ns + kPlacesLaterNs ? 0 : span.first;
    const auto whole_ns = static_cast<double>(span.last_ns - begin_ns);
    const double faults = whole_ns > 0 ? (span.last - from) / whole_ns * step_ns : 0;
    if (faults > 0) use.fault_places[name.substr(kFaultsAtPlace.size())] = faults;
  }
}

std::optional<KernelUse> use_of(const Spans& spans, double step_ns) {
  const auto per_step = [&](std::string_view name) {
    const auto span = spans.find(name);
    return span != spans.end() && span->second.is_long() ? span->second.per_ns() * step_ns : -1;
  };
  KernelUse use;
  use.user_ms = per_step(kUserTime) / kNsPerMs;
  use.system_ms = per_step(kSystemTime) / kNsPerMs;
  use.faults = per_step(kMinorFaults);
  if (use.user_ms < 0 || use.system_ms < 0 || use.faults < 0) return std::nullopt;
  const CounterSpan& whole = spans.find(kUserTime)->second;
  add_sampled(spans, whole, step_ns, use);
  add_places(spans, whole.first_ns, step_ns, use);
  return use;
}

/// A step's part of the faults over the mean step's, by step: as many a second as between the two
/// readings around its middle. One for each if that is not known.
std::vector<double> fault_parts(const std::vector<Point>& points,
                                const std::vector<Interval>& steps) {
  std::vector<double> parts;
  std::size_t next = 1;
  for (const Interval& step : steps) {
    const std::int64_t middle_ns = std::midpoint(step.begin_ns, step.end_ns);
    while (next + 1 < points.size() && points[next].time_ns <= middle_ns)
      ++next;
    const Point &from = points[next - 1], &to = points[next];
    const auto span_ns = static_cast<double>(to.time_ns - from.time_ns);
    const double a_ns = span_ns > 0 ? std::max(to.value - from.value, 0.0) / span_ns : 0;
    parts.push_back(a_ns * static_cast<double>(step.end_ns - step.begin_ns));
  }
  const double mean = stats::mean(parts);
  for (double& part : parts)
    part = mean > 0 ? part / mean : 1;
  return parts;
}

/// A count that holds until the next one is there: faults of each sample's neighbourhood.
std::vector<double> faults_of_samples(const Spans& spans,
                                      const std::vector<ThreadSample>& samples) {
  const auto span = spans.find(kFaultsAtStacks);
  if (span == spans.end()) return {};
  const std::vector<Point>& points = span->second.points;
  std::vector<double> out(samples.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    double more = 0;
    for (; next < points.size() && points[next].time_ns <= samples[i].time_ns; ++next)
      more += next == 0 ? 0 : std::max(points[next].value - points[next - 1].value, 0.0);
    out[i] += more / 2;
    out[i == 0 ? 0 : i - 1] += more / 2;
  }
  return out;
}

double measured_price_us(const trace::Trace& trace) {
  const auto found = trace.metadata.find("kansoku.page_fault_ns");
  const auto ns =
      found == trace.metadata.end() ? std::nullopt : parse_int<std::int64_t>(found->second);
  return ns && *ns > 0 && *ns < kPriceMaxNs ? static_cast<double>(*ns) / 1e3 : 0;
}

/// Milliseconds of user time a fault, by ranks of equal work: the lower quartile of the slopes
/// between two, since whoever works more takes longer and faults more for that.
std::optional<double> user_slope(const std::vector<KernelUse>& ranks) {
  double least = 1e300, most = 0;
  for (const KernelUse& use : ranks) {
    least = std::min(least, use.faults);
    most = std::max(most, use.faults);
  }
  const double apart = kMostShare * (most - least);
  if (!(most > 0) || most - least < kMostShare * most) return std::nullopt;
  std::vector<double> slopes;
  for (const KernelUse& a : ranks) {
    for (const KernelUse& b : ranks) {
      if (b.faults - a.faults >= apart)
        slopes.push_back((b.user_ms - a.user_ms) / (b.faults - a.faults));
    }
  }
  return stats::quantile(slopes, 0.25);
}

/// System time of a rank that goes with faults: as sampled; else by their price.
double fault_system_ms(const KernelUse& use, double price_ms) {
  const double priced_ms = use.faults * price_ms;
  // Memory that is taken once in a long while goes with no faults to speak of.
  if (use.is_sampled)
    return use.page_fault_ms + std::min(use.memory_call_ms, std::max(use.page_fault_ms, priced_ms));
  return priced_ms >= kMostShare * use.system_ms ? use.system_ms : priced_ms;
}

}  // namespace

double KernelUse::calls_ms() const {
  double sum = 0;
  for (const auto& [call, ms] : call_ms)
    sum += ms;
  return sum;
}

KernelUses read_kernel_use(const trace::Trace& trace, const JobData& job, const StepTable& steps,
                           double mean_step_ms) {
  KernelUses out;
  const double measured_us = measured_price_us(trace);
  if (steps.count() == 0 || !(mean_step_ms > 0) || !(measured_us > 0)) return out;
  for (const Spans& spans : read_spans(trace, job, steps)) {
    const auto use = use_of(spans, mean_step_ms * kNsPerMs);
    // Counters of some ranks alone compare none.
    if (!use) return {};
    out.ranks.push_back(*use);
    const std::size_t rank = out.ranks.size() - 1;
    out.ranks[rank].fault_parts =
        fault_parts(spans.find(kMinorFaults)->second.points, steps.ranks[rank]);
    out.ranks[rank].sample_faults = faults_of_samples(spans, job.ranks[rank].samples);
  }
  // Nor do samples of some.
  if (std::any_of(out.ranks.begin(), out.ranks.end(),
                  [](const KernelUse& use) { return !use.is_sampled; })) {
    for (KernelUse& use : out.ranks)
      use = {.user_ms = use.user_ms,
             .system_ms = use.system_ms,
             .faults = use.faults,
             .fault_parts = std::move(use.fault_parts),
             .sample_faults = std::move(use.sample_faults),
             .fault_places = std::move(use.fault_places)};
  }
  const double price_ms = measured_us / 1e3;
  double system_ms = 0, faults = 0;
  for (KernelUse& use : out.ranks) {
    use.fault_system_ms = fault_system_ms(use, price_ms);
    system_ms += use.fault_system_ms;
    faults += use.faults;
  }
  if (!(faults > 0)) return out;
  out.fault_us = system_ms * 1e3 / faults;
  const auto slope = user_slope(out.ranks);
  out.knows_user = slope.has_value();
  out.fault_user_us = std::clamp(slope.value_or(0) * 1e3, 0.0, kFaultUserRatioMax * out.fault_us);
  for (KernelUse& use : out.ranks)
    use.fault_user_ms = std::min(use.faults * out.fault_user_us / 1e3, use.user_ms);
  return out;
}

}  // namespace kansoku::diagnose
