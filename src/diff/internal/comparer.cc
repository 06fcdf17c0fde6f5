// SPDX-License-Identifier: Apache-2.0
#include "diff/internal/comparer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "diff/internal/names.h"
#include "diff/thresholds.h"
#include "stats/summary.h"

namespace kansoku::diff {
namespace {

constexpr std::size_t kShownColumns = 72;

struct PriorRow {
  Kind kind;
  double sigma;
};
constexpr std::array<PriorRow, kKindCount> kPriors{{
    {Kind::kKernel, kSigmaKernel},
    {Kind::kCopy, kSigmaCopy},
    {Kind::kGraph, kSigmaKernel},
    {Kind::kStreamWait, kSigmaStreamWait},
    {Kind::kCollective, kSigmaCollective},
    {Kind::kOperator, kSigmaOperator},
    {Kind::kHostCall, kSigmaHostCall},
    {Kind::kRange, kSigmaRange},
    {Kind::kFunction, kSigmaFunction},
}};

/// Time of each lane in each step: operations of the device added up; on the host the step without
/// waiting for a processor.
std::array<std::vector<double>, kLaneCount> lanes_of(const Recording& recording,
                                                     const KeptSteps& kept) {
  std::vector<double> device(recording.unit_count()), host(recording.unit_count());
  for (const Item& item : recording.items) {
    if (item.lane != Lane::kDevice) continue;
    for (const Cell& cell : item.cells)
      device[cell.unit] += cell.lane_ms;
  }
  for (std::size_t unit = 0; unit < host.size(); ++unit)
    host[unit] = recording.step_ms[unit] - recording.queue_ms[unit];
  const std::vector<double> of_host = step_series(host, recording, kept);
  return {step_series(device, recording, kept), of_host, of_host};
}

double mean_step(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values)
    sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

std::vector<double> ones(const Series& series) {
  return std::vector<double>(series.ms.size(), 1.0);
}

bool varies(const std::vector<LogRatio>& runs) {
  return std::any_of(runs.begin(), runs.end(), [](const LogRatio& run) { return run.varies; });
}

class Drafter {
 public:
  explicit Drafter(const Sides& sides) : sides_(sides) {}
  Draft draft(Matched matched) const;

 private:
  [[nodiscard]] std::vector<const Item*> side(const Draft& draft, bool before) const;
  void describe(Draft& draft) const;
  void add_means(const std::vector<Series>& series, Draft& draft) const;
  template <class Over, class Under>
  [[nodiscard]] std::vector<LogRatio> sums(const std::vector<Series>& series, Over over,
                                           Under under) const;
  [[nodiscard]] Prior prior_of(const Row& row, double call_us) const;
  void estimate(const std::vector<Series>& series, Draft& draft) const;
  void estimate_presence(const std::vector<Series>& series, Draft& draft) const;
  [[nodiscard]] std::vector<LogRatio> call_runs(const std::vector<Series>& series,
                                                const Row& row) const;

  const Sides& sides_;
};

std::vector<const Item*> Drafter::side(const Draft& draft, bool before) const {
  std::vector<const Item*> out;
  for (std::size_t r = 0; r < sides_.recordings.size(); ++r) {
    if (sides_.is_before(r) == before) out.push_back(draft.matched.items[r]);
  }
  return out;
}

void Drafter::describe(Draft& draft) const {
  Row& row = draft.row;
  row.match = draft.matched.match;
  for (std::size_t r = 0; r < sides_.recordings.size(); ++r) {
    const Item* item = draft.matched.items[r];
    if (item == nullptr) continue;
    row.kind = item->kind;
    row.lane = item->lane;
    std::string& name = sides_.is_before(r) ? row.before_name : row.after_name;
    if (name.empty()) name = item->name;
    if (!item->caller.empty()) row.caller = item->caller;
    if (row.size_unit.empty()) row.size_unit = item->size_unit;
  }
  if (row.before_name.empty() || row.after_name.empty()) row.match = Match::kNone;
  const std::string& name = row.after_name.empty() ? row.before_name : row.after_name;
  const bool is_code = row.lane == Lane::kDevice;
  row.shown = is_code ? shown_name(name, kShownColumns) : name.substr(0, 2 * kShownColumns);
  if (is_code && row.match != Match::kNone && row.before_name != row.after_name)
    row.before_shown = shown_name(row.before_name, kShownColumns);
  row.before_shape = usual_shape(side(draft, true));
  row.after_shape = usual_shape(side(draft, false));
}

void Drafter::add_means(const std::vector<Series>& series, Draft& draft) const {
  Row& row = draft.row;
  double counts[2] = {0, 0}, sizes[2] = {0, 0}, calls[2] = {0, 0};
  for (std::size_t r = 0; r < series.size(); ++r) {
    const bool before = sides_.is_before(r);
    const std::size_t runs =
        before ? sides_.before_count : sides_.recordings.size() - sides_.before_count;
    const double weight = 1 / static_cast<double>(runs);
    (before ? row.before_ms : row.after_ms) += weight * mean_step(series[r].ms);
    (before ? row.lane_before_ms : row.lane_after_ms) += weight * mean_step(series[r].lane_ms);
    calls[before ? 0 : 1] += weight * mean_step(series[r].calls);
    sizes[before ? 0 : 1] += weight * mean_step(series[r].size);
    counts[before ? 0 : 1] += series[r].call_count;
  }
  row.calls.before = calls[0];
  row.calls.after = calls[1];
  row.call.before = calls[0] > 0 ? row.before_ms / calls[0] : 0;
  row.call.after = calls[1] > 0 ? row.after_ms / calls[1] : 0;
  row.size.before = calls[0] > 0 ? sizes[0] / calls[0] : 0;
  row.size.after = calls[1] > 0 ? sizes[1] / calls[1] : 0;
  if (row.lane == Lane::kSamples) {
    row.call.before = row.before_ms;
    row.call.after = row.after_ms;
  }
  draft.call_count = static_cast<std::size_t>(std::max(counts[0], counts[1]));
}

template <class Over, class Under>
std::vector<LogRatio> Drafter::sums(const std::vector<Series>& series, Over over,
                                    Under under) const {
  std::vector<LogRatio> out;
  for (std::size_t r = 0; r < series.size(); ++r)
    out.push_back(log_ratio(over(series[r]), under(series[r]), sides_.draws[r]));
  return out;
}

Prior Drafter::prior_of(const Row& row, double call_us) const {
  if (row.lane == Lane::kDevice && sides_.is_exact && row.kind != Kind::kStreamWait) return {0};
  double sigma = 0;
  for (const PriorRow& prior : kPriors) {
    if (prior.kind == row.kind) sigma = prior.sigma;
  }
  if (row.lane == Lane::kSamples) return {.sigma = sigma, .spread_multiple = 0};
  const double grain =
      (row.lane == Lane::kDevice ? kSigmaDeviceUs : kSigmaHostUs) / std::max(call_us, 1e-3);
  return {std::hypot(sigma, grain)};
}

std::vector<LogRatio> Drafter::call_runs(const std::vector<Series>& series, const Row& row) const {
  // A step holds few samples: sums alone mean something.
  if (row.lane == Lane::kSamples)
    return sums(
        series, [](const Series& s) { return s.ms; }, ones);
  std::vector<LogRatio> out;
  for (std::size_t r = 0; r < series.size(); ++r) {
    out.push_back(typical_ratio(series[r].common_ms, series[r].expected_ms,
                                sides_.factors[r][static_cast<std::size_t>(row.lane)],
                                sides_.draws[r]));
  }
  return out;
}

void Drafter::estimate(const std::vector<Series>& series, Draft& draft) const {
  const Row& row = draft.row;
  draft.prior = prior_of(row, 1000 * std::max(row.call.before, row.call.after));
  draft.call = call_runs(series, row);
  if (row.lane != Lane::kSamples) {
    const auto calls_of = [](const Series& s) { return s.calls; };
    const auto calls = sums(series, calls_of, ones);
    draft.calls = difference_of(sides_, calls, {varies(calls) ? kSigmaCalls : 0});
    const auto size = sums(
        series, [](const Series& s) { return s.size; }, calls_of);
    if (have_one_unit(side(draft, true), side(draft, false)))
      draft.size = difference_of(sides_, size, {varies(size) ? kSigmaCalls : 0});
  }
  for (std::size_t k = 0; sides_.compares_ranks && k < sides_.rank_count(); ++k) {
    std::vector<Series> of_rank;
    for (std::size_t r = 0; r < sides_.recordings.size(); ++r)
      of_rank.push_back(
          series_of(draft.matched.items[r], sides_.recordings[r], sides_.kept[r], draft.times, k));
    draft.call_of_rank.push_back(call_runs(of_rank, row));
  }
}

/// Estimate for an item that one side lacks: how sure is it that the other has it? As a logarithm
/// of 1 with that error.
void Drafter::estimate_presence(const std::vector<Series>& series, Draft& draft) const {
  const bool is_new = draft.row.before_name.empty();
  double error2 = 0, degrees = 0, runs = 0;
  for (std::size_t r = 0; r < series.size(); ++r) {
    if (sides_.is_before(r) == is_new) continue;
    const LogRatio here =
        log_ratio(series[r].ms, std::vector<double>(series[r].ms.size(), 1.0), sides_.draws[r]);
    if (!here.is_known) return;
    error2 += here.error * here.error;
    degrees += here.degrees;
    runs += 1;
  }
  const double sigma = prior_of(draft.row, 1e6).sigma;
  draft.presence.value = is_new ? 1 : -1;
  draft.presence.error = std::sqrt(error2 / (runs * runs) + sigma * sigma / runs);
  draft.presence.degrees = std::max(1.0, std::min(degrees, kPriorDegrees));
  draft.presence.is_known = true;
}

Draft Drafter::draft(Matched matched) const {
  Draft out;
  out.matched = std::move(matched);
  describe(out);
  const auto before = side(out, true), after = side(out, false);
  out.times = common_times(before, after);
  out.row.is_per_work = out.row.match != Match::kNone && !out.times.contains("*") &&
                        !have_common_shape(before, after);
  std::vector<Series> series;
  for (std::size_t r = 0; r < sides_.recordings.size(); ++r)
    series.push_back(series_of(out.matched.items[r], sides_.recordings[r], sides_.kept[r],
                               out.times, std::nullopt));
  add_means(series, out);
  const std::size_t calls_min = out.row.lane == Lane::kSamples ? kSamplesMin : kCallsMin;
  const bool is_material = std::max(out.row.before_ms, out.row.after_ms) >=
                           kMaterialShare * sides_.whole_ms(out.row.lane);
  out.is_tested = is_material && out.call_count >= calls_min;
  if (!out.is_tested) return out;
  if (out.row.match == Match::kNone) {
    estimate_presence(series, out);
  } else {
    estimate(series, out);
  }
  return out;
}

}  // namespace

bool Sides::is_clock_apart() const {
  return std::any_of(recordings.begin(), recordings.end(),
                     [](const Recording& recording) { return recording.device_clock_apart; });
}

double Sides::whole_ms(Lane lane) const {
  return lane == Lane::kDevice && is_clock_apart() ? device_ms
                                                   : std::max(step_before_ms, step_after_ms);
}

Sides make_sides(std::vector<Recording> recordings, std::size_t before_count,
                 const Options& options) {
  Sides out;
  out.recordings = std::move(recordings);
  out.before_count = before_count;
  out.is_exact = std::all_of(out.recordings.begin(), out.recordings.end(), is_exact);
  out.compares_ranks = out.rank_count() > 1;
  for (std::size_t r = 0; r < out.recordings.size(); ++r) {
    const Recording& recording = out.recordings[r];
    out.compares_ranks = out.compares_ranks && recording.ranks == out.recordings.front().ranks;
    out.kept.push_back(keep_steps(recording));
    out.draws.emplace_back(out.kept.back().count, options.resamples, options.seed + r);
    const bool before = out.is_before(r);
    const double weight =
        1 / static_cast<double>(before ? before_count : out.recordings.size() - before_count);
    (before ? out.step_before_ms : out.step_after_ms) +=
        weight * mean_step(step_series(recording.step_ms, recording, out.kept[r]));
    (before ? out.queue_before_ms : out.queue_after_ms) +=
        weight * mean_step(step_series(recording.queue_ms, recording, out.kept[r]));
    out.lanes.push_back(lanes_of(recording, out.kept[r]));
    out.factors.push_back({lane_factors(recording, out.kept[r], Lane::kDevice),
                           lane_factors(recording, out.kept[r], Lane::kHost),
                           std::vector<double>(out.kept[r].count, 1.0)});
    double device_ms = 0;
    for (const Item& item : recording.items) {
      if (item.lane == Lane::kDevice) device_ms += item.total_ms;
    }
    out.device_ms =
        std::max(out.device_ms, device_ms / static_cast<double>(recording.unit_count()));
  }
  return out;
}

std::vector<Draft> draft_rows(const Sides& sides) {
  std::vector<const Recording*> recordings;
  for (const Recording& recording : sides.recordings)
    recordings.push_back(&recording);
  const Drafter drafter(sides);
  std::vector<Draft> out;
  for (Matched& matched : match_items(recordings))
    out.push_back(drafter.draft(std::move(matched)));
  return out;
}

Difference difference_of(const Sides& sides, std::span<const LogRatio> runs, Prior prior) {
  return difference(runs.subspan(0, sides.before_count), runs.subspan(sides.before_count), prior);
}

LogRatio lane_ratio(const Sides& sides, Lane lane, std::size_t r) {
  const auto& ms = sides.lanes[r][static_cast<std::size_t>(lane)];
  return log_ratio(ms, std::vector<double>(ms.size(), 1.0), sides.draws[r]);
}

Difference step_difference(const Sides& sides) {
  std::vector<LogRatio> runs;
  for (std::size_t r = 0; r < sides.recordings.size(); ++r)
    runs.push_back(lane_ratio(sides, Lane::kHost, r));
  return difference_of(sides, runs, {.sigma = kSigmaStep, .spread_multiple = kStepSpreadMultiple});
}

}  // namespace kansoku::diff
