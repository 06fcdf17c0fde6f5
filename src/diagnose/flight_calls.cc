// SPDX-License-Identifier: Apache-2.0
#include "diagnose/flight_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/time.h"
#include "diagnose/hang_dumps.h"
#include "diagnose/internal/steps/job.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"

namespace kansoku::diagnose {
namespace {

using trace::import::DumpEntry;
using trace::import::FlightDump;

/// When a rank made its calls.
struct CallTimes {
  const DumpEntry* last{nullptr};
  const DumpEntry* pending{nullptr};  // the first that it waits for
  double since_last_s{0}, since_pending_s{0};
  double longest_pause_s{0};
  std::size_t pauses{0};
  bool is_whole{true};  // no call was left out
};

double seconds_between(std::int64_t begin_ns, std::int64_t end_ns) {
  const bool is_near = begin_ns > 0 && begin_ns <= kTimeMaxNs && end_ns <= kTimeMaxNs;
  return is_near ? std::max(0.0, static_cast<double>(end_ns - begin_ns) / 1e9) : 0;
}

CallTimes call_times_of(const FlightDump& dump, std::int64_t read_ns) {
  CallTimes out;
  out.is_whole = dump.bad_entries == 0;
  for (const DumpEntry& entry : dump.entries) {
    if (out.last != nullptr) {
      ++out.pauses;
      out.longest_pause_s =
          std::max(out.longest_pause_s, seconds_between(out.last->created_ns, entry.created_ns));
    }
    if (out.pending == nullptr && entry.is_pending()) out.pending = &entry;
    out.last = &entry;
  }
  if (out.last != nullptr) out.since_last_s = seconds_between(out.last->created_ns, read_ns);
  if (out.pending != nullptr)
    out.since_pending_s = seconds_between(out.pending->created_ns, read_ns);
  return out;
}

class CallJoin {
 public:
  CallJoin(const FlightCalls& calls, Diagnosis& job) : calls_(calls), job_(job) {
    for (const FlightDump& dump : calls.dumps)
      times_[dump.rank] = call_times_of(dump, calls.read_ns);
    for (const RankPlace& place : job.places) {
      if (!place.waits) continue;
      const auto found = times_.find(place.rank);
      if (found == times_.end() || found->second.pending == nullptr) continue;
      const double s = found->second.since_pending_s;
      waited_s_ = std::min(waited_s_.value_or(s), s);
    }
  }

  void join() {
    if (times_.empty()) return;
    const auto of_calls = diagnose_dumps(calls_.dumps, DumpSource::kMemory);
    if (!of_calls) return;
    leave_to_calls(*of_calls);
    const bool is_told = std::any_of(job_.findings.begin(), job_.findings.end(),
                                     [](const Finding& one) { return one.is_standstill(); });
    if (!is_told && !find_elsewhere()) take_over(*of_calls);
    for (Finding& finding : job_.findings) {
      if (!finding.is_standstill()) continue;
      std::erase(job_.notes, job_.standstill_note);
      add_calls(*of_calls, finding);
      if (!is_told) name_victims(finding);
    }
  }

 private:
  [[nodiscard]] bool has_all() const {
    return std::all_of(job_.rank_numbers.begin(), job_.rank_numbers.end(),
                       [&](std::int32_t rank) { return times_.contains(rank); });
  }

  /// True if every rank waits in the call that it waited in before the first was read: else it may
  /// have moved between two readings.
  [[nodiscard]] bool all_stood() const {
    const std::int64_t first_ns = calls_.first_read_ns > 0 ? calls_.first_read_ns : calls_.read_ns;
    return std::all_of(times_.begin(), times_.end(), [&](const auto& one) {
      const CallTimes& times = one.second;
      return times.pending == nullptr || (times.pending->created_ns < first_ns &&
                                          times.since_pending_s * kMsPerS >= kStandstillMinMs);
    });
  }

  [[nodiscard]] bool can_name(const Diagnosis& of_calls) const {
    return has_all() && !job_.places.empty() && all_stood() && !of_calls.findings.empty() &&
           !of_calls.findings.front().ranks.empty();
  }

  /// Stacks that only tell who is in another call than most: ranks of two groups may rightly be.
  void leave_to_calls(const Diagnosis& of_calls) {
    if (!can_name(of_calls)) return;
    std::erase_if(job_.findings, [&](const Finding& one) {
      return one.verdict == "mismatched_collective" && !one.ranks.empty() &&
             one.ranks != of_calls.findings.front().ranks;
    });
  }

  /// Somebody is elsewhere while others wait: told as a hang, or by a note. False: nobody is.
  bool find_elsewhere() {
    std::vector<const RankPlace*> elsewhere;
    for (const RankPlace& place : job_.places)
      if (!place.waits) elsewhere.push_back(&place);
    if (elsewhere.empty()) return false;
    Finding finding;
    bool is_hang = waited_s_.has_value();
    for (const RankPlace* const place : elsewhere) {
      const auto found = times_.find(place->rank);
      if (found == times_.end() || found->second.last == nullptr) {
        is_hang = false;
        continue;
      }
      const CallTimes& times = found->second;
      const bool writes = calls_.with_storage.contains(place->rank);
      std::string line = fmt::format(words::kNoCallFor, place->rank, times.since_last_s,
                                     times.pauses + 1, times.longest_pause_s);
      if (writes) line += words::kWritesMeanwhile;
      finding.evidence.push_back(std::move(line));
      is_hang = is_hang && place->is_at_work && place->stands_still && !writes && times.is_whole &&
                times.pauses >= kPausesMin &&
                times.since_last_s > kHangStepMultiple * times.longest_pause_s;
      finding.ranks.push_back(place->rank);
    }
    if (!is_hang) {
      job_.notes.insert(job_.notes.end(), finding.evidence.begin(), finding.evidence.end());
      return true;
    }
    finding.kind = "hang";
    finding.verdict = "missing_rank";
    finding.share = 1;
    finding.basis = Basis::kObservation;
    set_place_of(*elsewhere.front(), finding);
    job_.findings.push_back(std::move(finding));
    return true;
  }

  /// The stacks name nobody: the calls may.
  void take_over(const Diagnosis& of_calls) {
    if (!can_name(of_calls)) return;
    Finding finding = of_calls.findings.front();
    const auto place =
        std::find_if(job_.places.begin(), job_.places.end(),
                     [&](const RankPlace& one) { return one.rank == finding.ranks.front(); });
    if (place != job_.places.end()) set_place_of(*place, finding);
    job_.findings.push_back(std::move(finding));
    taken_over_ = true;
  }

  void add_calls(const Diagnosis& of_calls, Finding& finding) {
    if (waited_s_) {
      const std::string unknown =
          fmt::format(words::kSinceUnknown, finding.cost_ms_per_step / kMsPerS);
      std::erase(finding.evidence, unknown);
      finding.cost_ms_per_step = *waited_s_ * kMsPerS;
      finding.evidence.push_back(fmt::format(words::kOthersWaitSince, *waited_s_));
    }
    // Not that of other ranks: one without calls is only missing.
    for (const Finding& other : of_calls.findings)
      if (!taken_over_ && other.ranks == finding.ranks)
        finding.evidence.insert(finding.evidence.end(), other.evidence.begin(),
                                other.evidence.end());
    for (const std::int32_t rank : finding.ranks) {
      const auto found = times_.find(rank);
      if (found == times_.end() || found->second.last == nullptr) continue;
      const DumpEntry& last = *found->second.last;
      finding.evidence.push_back(fmt::format(words::kLastCall, rank, last.name,
                                             last.is_p2p ? last.p2p_seq : last.collective_seq,
                                             group_text(last), found->second.since_last_s));
    }
  }

  void name_victims(const Finding& finding) {
    for (const RankPlace& place : job_.places)
      if (place.waits && std::count(finding.ranks.begin(), finding.ranks.end(), place.rank) == 0)
        job_.victims.push_back(place.rank);
  }

  static void set_place_of(const RankPlace& place, Finding& finding) {
    finding.function = place.function;
    finding.file = place.file;
    finding.line = place.line;
    finding.stack = place.stack;
  }

  static constexpr double kMsPerS = 1000;
  const FlightCalls& calls_;
  Diagnosis& job_;
  std::map<std::int32_t, CallTimes> times_;
  std::optional<double> waited_s_;
  bool taken_over_{false};
};

}  // namespace

void join_flight_calls(const FlightCalls& calls, Diagnosis& job) {
  if (job.moves) return;
  CallJoin(calls, job).join();
}

}  // namespace kansoku::diagnose
