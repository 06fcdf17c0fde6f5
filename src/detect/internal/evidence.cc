// SPDX-License-Identifier: Apache-2.0
#include "detect/internal/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "common/text.h"
#include "detect/internal/words.h"
#include "detect/thresholds.h"
#include "stats/peers.h"
#include "stats/summary.h"

namespace kansoku::detect {
namespace {

using trace::IncidentKind;

struct Sign {
  std::string_view feature;
  int worse{1};  // +1: more is worse, -1: less is worse, 0: either
};
constexpr std::array kHardwareSigns{Sign{"gpu_sm_clock", -1}, Sign{"gpu_memory_clock", -1},
                                    Sign{"gpu_throttled", 1}, Sign{"gpu_ecc_errors", 1},
                                    Sign{"gpu_xid", 1},       Sign{"gpu_pcie_replays", 1}};
constexpr std::array kNetwork{Sign{"tcp_retransmits", 1}, Sign{"tcp_rtt", 1}};
constexpr std::array kContention{Sign{"cpu_wait", 1},    Sign{"throttled_share", 1},
                                 Sign{"psi_cpu", 1},     Sign{"psi_memory", 1},
                                 Sign{"preemptions", 1}, Sign{"major_faults", 1}};
constexpr std::array kDisk{Sign{"block_latency", 1}, Sign{"psi_io", 1}, Sign{"disk_wait", 1}};
constexpr std::array kGrowingSigns{Sign{"resident_growth", 1}, Sign{"gpu_process_growth", 1}};
// Features that grow, each with the feature of the room left.
constexpr std::array kRooms{
    std::pair<std::string_view, std::string_view>{"resident_growth", "memory_room"},
    std::pair<std::string_view, std::string_view>{"gpu_process_growth", "gpu_memory_room"}};
constexpr std::array kInputSigns{Sign{"input_share", 1}};
constexpr std::array kCollectiveSigns{Sign{"collective_mean", 1}, Sign{"collective_p99", 1},
                                      Sign{"collective_share", 1}};
constexpr std::array kLatencySigns{
    Sign{"step_mean", 1},     Sign{"step_max", 1},     Sign{"step_rate", -1},
    Sign{"backward_mean", 1}, Sign{"forward_mean", 1}, Sign{"launch_mean", 1},
    Sign{"sync_mean", 1},     Sign{"decode_mean", 1},  Sign{"decode_p99", 1},
    Sign{"decode_rate", -1},  Sign{"graph_mean", 1},   Sign{"collective_p99", 1}};
// Signs of own work: a process that waits for others has no more of them. Not the time outside
// backward: replicas may wait for each other there as well. Nor time in the kernel: who waits
// polls.
constexpr std::array kTimedSigns{Sign{"input_share", 1}, Sign{"optimizer_share", 1},
                                 Sign{"gc_share", 1}};
// Counted by the kernel for that process, not compared times.
constexpr std::array kSeenSigns{
    Sign{"cpu_wait", 1},        Sign{"throttled_share", 1},    Sign{"major_faults", 1},
    Sign{"stopped_share", 1},   Sign{"disk_wait", 1},          Sign{"block_latency", 1},
    Sign{"resident_growth", 1}, Sign{"gpu_process_growth", 1}, Sign{"faults_per_step", 1}};
constexpr std::array kFaultSigns{Sign{"faults_per_step", 1}};
constexpr std::array kMajorFaultSigns{Sign{"major_faults", 1}};
constexpr std::array kSystemSigns{Sign{"system_share", 1}};
// The process that waits least is the one that is waited for.
constexpr std::array kWaitingSigns{Sign{"collective_share", -1}};
// Phases of a step. Not input: it has a kind of its own above.
struct Phase {
  Sign sign;
  IncidentKind kind;
};
constexpr std::array kPhases{Phase{{"forward_mean", 1}, IncidentKind::kSlowForward},
                             Phase{{"backward_mean", 1}, IncidentKind::kSlowBackward},
                             Phase{{"optimizer_share", 1}, IncidentKind::kSlowOptimizer},
                             Phase{{"gc_share", 1}, IncidentKind::kGarbageCollection}};
constexpr std::array kStoppedSigns{Sign{"stopped_share", 1}};
constexpr std::array kCpuSigns{Sign{"cpu_cores", 0}, Sign{"cpu_wait", 1},
                               Sign{"throttled_share", 1}};
constexpr std::array kGpuSigns{Sign{"gpu_utilization", 0}, Sign{"gpu_sm_clock", -1},
                               Sign{"gpu_throttled", 1}};

/// columns.size() if there is none of that name.
std::size_t index_of(std::span<const Column> columns, std::string_view name) {
  std::size_t c = 0;
  while (c < columns.size() && columns[c].name != name)
    ++c;
  return c;
}

/// The largest deviation for the worse among some columns.
double worst(const EvidenceSum& sum, std::span<const Column> columns, std::span<const Sign> signs) {
  double out = 0;
  for (const Sign& sign : signs) {
    const std::size_t c = index_of(columns, sign.feature);
    if (c == columns.size()) continue;
    const double deviation = sum.deviation(c);
    out = std::max(out, sign.worse == 0 ? std::fabs(deviation) : sign.worse * deviation);
  }
  return out;
}

/// True if a column of the layer was seen at all.
bool has_any(const EvidenceSum& sum, std::span<const Column> columns, std::string_view prefix) {
  for (std::size_t c = 0; c < columns.size(); ++c)
    if (columns[c].name.rfind(prefix, 0) == 0 && sum.has(c)) return true;
  return false;
}

/// The phase that is longer than it was by the most spreads, if one clearly is.
IncidentKind phase_of(const EvidenceSum& sum, std::span<const Column> columns) {
  IncidentKind out = IncidentKind::kLatencySpike;
  double most = kOddSpreads;
  for (const Phase& phase : kPhases) {
    const double deviation = worst(sum, columns, std::span(&phase.sign, 1));
    if (deviation <= most) continue;
    most = deviation;
    out = phase.kind;
  }
  return out;
}

}  // namespace

void Deviations::add(const JobModel::Parts& model, std::int64_t wall_ns,
                     std::span<const double> row) {
  for (const Coordinate& coordinate : model.coordinates) {
    const double value = coordinate.of(row[coordinate.column], model.columns[coordinate.column]);
    if (std::isnan(value)) continue;
    auto& kept = kept_[coordinate.column];
    if (kept.size() < kWindowsKept) kept.push_back({wall_ns, value});
  }
}

double Deviations::of(std::size_t column) const {
  const auto found = kept_.find(column);
  if (found == kept_.end()) return 0;
  std::vector<double> values;
  for (const Kept& one : found->second)
    values.push_back(one.value);
  return stats::median(values);
}

std::optional<double> Deviations::at(std::size_t column, std::int64_t wall_ns) const {
  const auto found = kept_.find(column);
  if (found == kept_.end()) return std::nullopt;
  const auto one =
      std::lower_bound(found->second.begin(), found->second.end(), wall_ns,
                       [](const Kept& kept, std::int64_t time) { return kept.wall_ns < time; });
  return one == found->second.end() || one->wall_ns != wall_ns ? std::nullopt
                                                               : std::optional(one->value);
}

void EvidenceSum::add(const JobModel::Parts& model, std::int64_t wall_ns,
                      std::span<const double> row, std::span<const Contribution> contributions) {
  windows_ += 1;
  for (const Contribution& one : contributions) {
    Sum& sum = sums_[one.column];
    sum.share += one.share;
    if (sum.seen.size() < kWindowsKept) sum.seen.push_back(one.seen);
  }
  note_room(model.columns, row);
  // The value expected from a window's other features is no measure if those are odd too.
  for (const Coordinate& coordinate : model.coordinates)
    usual_[coordinate.column] = coordinate.value_of(0, model.columns[coordinate.column]);
  deviations_.add(model, wall_ns, row);
}

/// How long memory lasts if it grows on as in this window.
void EvidenceSum::note_room(std::span<const Column> columns, std::span<const double> row) {
  double least_s = std::numeric_limits<double>::infinity();
  for (const auto& [growth, room] : kRooms) {
    const std::size_t g = index_of(columns, growth), r = index_of(columns, room);
    if (g == columns.size() || !(row[g] > 0)) continue;
    if (r == columns.size() || std::isnan(row[r])) return;  // nobody knows how much there is
    least_s = std::min(least_s, row[r] / row[g]);
  }
  if (std::isfinite(least_s) && room_s_.size() < kWindowsKept) room_s_.push_back(least_s);
}

bool EvidenceSum::has_room() const {
  return !room_s_.empty() && stats::median(room_s_) > kRoomMinS;
}

std::vector<trace::Evidence> EvidenceSum::evidence(std::span<const Column> columns,
                                                   std::size_t count) const {
  std::vector<trace::Evidence> out;
  const auto is_odd = [&](const auto& one) {
    return std::fabs(deviation(one.first)) >= kNoticedSpreads;
  };
  const bool has_odd = std::any_of(sums_.begin(), sums_.end(), is_odd);
  for (const auto& one : sums_) {
    if (findings_.count(one.first) != 0) continue;
    if (has_odd && !is_odd(one)) continue;  // odd only together with others
    const auto& [column, sum] = one;
    const auto usual = usual_.find(column);
    out.push_back({columns[column].name, columns[column].unit,
                   std::string(layer_name(columns[column].layer)),
                   usual == usual_.end() ? std::nan("") : usual->second, stats::median(sum.seen),
                   sum.share / std::max(1.0, windows_)});
  }
  std::sort(out.begin(), out.end(), [](const trace::Evidence& a, const trace::Evidence& b) {
    return a.share != b.share ? a.share > b.share : a.feature < b.feature;
  });
  std::vector<trace::Evidence> first;
  std::vector<PeerFinding> findings;
  for (const auto& [column, finding] : findings_)
    findings.push_back(finding);
  std::sort(findings.begin(), findings.end(), [](const PeerFinding& a, const PeerFinding& b) {
    const double x = std::fabs(a.deviation), y = std::fabs(b.deviation);
    return x != y ? x > y : a.column < b.column;
  });
  for (const PeerFinding& finding : findings) {
    const auto sum = sums_.find(finding.column);
    const Column& column = columns[finding.column];
    first.push_back({column.name, column.unit, std::string(layer_name(column.layer)),
                     finding.others, finding.seen,
                     sum == sums_.end() ? 0 : sum->second.share / std::max(1.0, windows_)});
  }
  out.insert(out.begin(), first.begin(), first.end());
  if (out.size() > count) out.resize(count);
  return out;
}

double EvidenceSum::deviation(std::size_t column) const {
  const double own = deviations_.of(column);
  const auto found = findings_.find(column);
  if (found == findings_.end()) return own;
  return std::fabs(own) > std::fabs(found->second.deviation) ? own : found->second.deviation;
}

std::vector<OwnCost> own_costs(std::span<const MemberLevels> members,
                               std::span<const Column> columns,
                               std::optional<std::int64_t> wall_ns) {
  std::vector<OwnCost> out(members.size());
  const auto raise = [&](double OwnCost::*cost, std::span<const Sign> signs) {
    for (const Sign& sign : signs) {
      const std::size_t c = index_of(columns, sign.feature);
      std::vector<std::size_t> who;
      std::vector<double> values;
      for (std::size_t m = 0; c < columns.size() && m < members.size(); ++m) {
        const Deviations& now = *members[m].now;
        if (!now.has(c)) continue;
        const auto value = wall_ns ? now.at(c, *wall_ns) : now.of(c);
        if (!value) continue;
        who.push_back(m);
        values.push_back(*value - members[m].before->of(c));
      }
      const std::vector<double> others = stats::centres_of_others(values);
      for (std::size_t i = 0; i < who.size(); ++i)
        out[who[i]].*cost = std::max(out[who[i]].*cost, sign.worse * (values[i] - others[i]));
    }
  };
  raise(&OwnCost::seen, kSeenSigns);
  raise(&OwnCost::seen, kHardwareSigns);
  raise(&OwnCost::work, kTimedSigns);
  raise(&OwnCost::waited_for, kWaitingSigns);
  for (OwnCost& cost : out)
    cost.work = std::max(cost.work, cost.seen);
  return out;
}

bool is_between(std::span<const Deviations* const> all, std::span<const Column> columns) {
  std::size_t suffering = 0, waiting = 0;
  const std::size_t share = index_of(columns, "collective_share");
  for (const Deviations* one : all) {
    double most = 0;
    for (const Sign& sign : kNetwork)
      if (const std::size_t c = index_of(columns, sign.feature); c < columns.size())
        most = std::max(most, one->of(c));
    suffering += most > kNormalSpreads ? 1 : 0;
    waiting += share < columns.size() && one->of(share) > kNoticedSpreads ? 1 : 0;
  }
  return !all.empty() && (2 * suffering >= all.size() || waiting == all.size());
}

IncidentKind kind_of(const EvidenceSum& sum, std::span<const Column> columns,
                     bool is_of_single_ranks, bool is_of_one) {
  if (worst(sum, columns, kStoppedSigns) > kOddSpreads) return IncidentKind::kResourceContention;
  if (worst(sum, columns, kHardwareSigns) > kOddSpreads) return IncidentKind::kHardwareFault;
  const double growing = worst(sum, columns, kGrowingSigns);
  const double network = worst(sum, columns, kNetwork),
               contention = worst(sum, columns, kContention);
  const double disk = worst(sum, columns, kDisk), input = worst(sum, columns, kInputSigns);
  const double faults = worst(sum, columns, kFaultSigns),
               system = worst(sum, columns, kSystemSigns);
  const double collective = worst(sum, columns, kCollectiveSigns);
  if (growing > kNormalSpreads && growing >= std::max(contention, network))
    return IncidentKind::kMemoryGrowth;
  if (network > kNormalSpreads && network >= contention)
    return IncidentKind::kCommunicationInefficiency;
  // Their time is the kernel's: more work of it also means more waiting for processors. Pages that
  // come from the disk make faults of both kinds.
  if (faults > kOddSpreads && system > kNormalSpreads && faults >= contention &&
      worst(sum, columns, kMajorFaultSigns) <= kOddSpreads)
    return IncidentKind::kPageFaults;
  // A job that waits for its input runs less, so nobody takes its processors away.
  if (contention > kOddSpreads && contention >= 0.5 * input)
    return IncidentKind::kResourceContention;
  if (input > kOddSpreads && input >= 0.5 * collective) return IncidentKind::kInputStarvation;
  if (disk > kOddSpreads)
    return input > kNormalSpreads ? IncidentKind::kInputStarvation
                                  : IncidentKind::kResourceContention;
  if (contention > kOddSpreads) return IncidentKind::kResourceContention;
  if (collective > kOddSpreads && !is_of_single_ranks)
    return IncidentKind::kCommunicationInefficiency;
  if (worst(sum, columns, kLatencySigns) <= kNormalSpreads) return IncidentKind::kUnknown;
  if (!is_of_one) return IncidentKind::kLatencySpike;
  // A phase holds the kernel's time too, and says nothing of the program's own.
  const IncidentKind phase = phase_of(sum, columns);
  return system > kOddSpreads && phase != IncidentKind::kGarbageCollection
             ? IncidentKind::kKernelTime
             : phase;
}

bool is_harm_by_itself(const EvidenceSum& sum, std::span<const Column> columns) {
  return worst(sum, columns, kStoppedSigns) > kOddSpreads ||
         worst(sum, columns, kHardwareSigns) > kOddSpreads ||
         (worst(sum, columns, kGrowingSigns) > kNormalSpreads && !sum.has_room());
}

std::string summary_of(const trace::IncidentFacts& incident, const EvidenceSum& sum,
                       std::span<const Column> columns) {
  std::string out = words::ranks_text(incident.ranks, words::kAllRanks) +
                    words::changes_text(incident.evidence, words::Names::kSpoken);
  const auto stopped = std::find_if(
      incident.evidence.begin(), incident.evidence.end(), [](const trace::Evidence& one) {
        return one.feature == "stopped_share" && one.seen > kMostShare;
      });
  if (stopped != incident.evidence.end()) out += words::kStopped;
  const bool has_cpu = has_any(sum, columns, "cpu_"), has_gpu = has_any(sum, columns, "gpu_");
  const bool is_cpu_normal = has_cpu && worst(sum, columns, kCpuSigns) < kNormalSpreads;
  const bool is_gpu_normal = has_gpu && worst(sum, columns, kGpuSigns) < kNormalSpreads;
  if (is_cpu_normal || is_gpu_normal) {
    out += fmt::format(words::kNormal, is_cpu_normal && is_gpu_normal ? "CPU and GPU"
                                       : is_cpu_normal                ? "CPU"
                                                                      : "GPU");
  }
  return out;
}

std::string suggestion_of(std::string_view job, const trace::IncidentFacts& facts) {
  // A rank alone could not be compared with its peers.
  const bool is_one = facts.ranks.empty() && facts.pids.size() == 1 && facts.pids.front() > 0;
  if (is_one) return fmt::format(words::kRecordProcess, facts.pids.front());
  // A process that tells no job is one of its own, by its name: "python3/1234".
  const std::string_view own = base_name(job);
  if (job.find('/') != std::string_view::npos && !own.empty() &&
      own.find_first_not_of("0123456789") == std::string_view::npos)
    return fmt::format(words::kRecordProcess, own);
  return fmt::format(words::kProfileJob, job);
}

}  // namespace kansoku::detect
