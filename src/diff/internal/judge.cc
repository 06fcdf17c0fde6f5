// SPDX-License-Identifier: Apache-2.0
#include "diff/internal/judge.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "diff/thresholds.h"
#include "stats/significance.h"
#include "stats/summary.h"

namespace kansoku::diff {
namespace {

constexpr std::size_t kAllRanks = SIZE_MAX;

bool is_busy_row(const Row& row) {
  return row.kind != Kind::kStreamWait;
}

double effect_min(const Sides& sides, const Row& row) {
  return row.lane == Lane::kDevice && sides.is_exact ? kExactEffectMin : kEffectMin;
}

/// One hypothesis of the family.
struct Test {
  std::size_t draft{0};
  std::size_t rank{kAllRanks};
  Change Row::*metric{nullptr};
  Change change;
  double chance{1};
  double away{0};  // of the difference from the centre
};

class Judge {
 public:
  Judge(const Sides& sides, std::vector<Draft> drafts, Comparison& out)
      : sides_(sides), drafts_(std::move(drafts)), out_(out) {}
  void run();

 private:
  void find_batch(Lane lane, std::string_view unit);
  void mark_batch(double log_factor);
  void find_centres();
  void find_centre(Lane lane, std::size_t rank);
  [[nodiscard]] bool is_heard(const Draft& draft, Lane lane) const;
  [[nodiscard]] double centre_of(Lane lane, std::size_t rank) const;
  void tell_common(Lane lane, std::size_t rank, std::size_t rows, const Difference& difference);
  [[nodiscard]] static const std::vector<LogRatio>& runs_of(const Draft& draft, std::size_t rank);
  [[nodiscard]] Difference call_difference(const Draft& draft, std::size_t rank) const;
  static void add_rank_spread(const std::vector<Difference>& ranks, Difference& all);
  void test_rows();
  void add_tests(std::size_t number);
  void add_test(std::size_t number, std::size_t rank, Change Row::*metric,
                const Difference& difference, double centre);
  [[nodiscard]] static bool changed_itself(const Test& test);
  [[nodiscard]] bool takes_longer_for_its_work(const Test& test) const;
  void accept(const Test& test, double corrected);
  void name_changes();
  void sum_lanes();

  const Sides& sides_;
  std::vector<Draft> drafts_;
  Comparison& out_;
  struct Centre {
    std::vector<LogRatio> runs;  // by recording
    double difference{0};
  };
  std::map<std::pair<Lane, std::size_t>, Centre> centres_;
  std::vector<Test> tests_;
};

/// The factor that most of the sizes changed by. Rows of weights alone keep theirs.
void Judge::find_batch(Lane lane, std::string_view unit) {
  if (out_.batch) return;
  std::vector<double> logs;
  std::size_t unchanged = 0;
  for (const Draft& draft : drafts_) {
    if (!draft.is_tested || draft.row.lane != lane || draft.row.size_unit != unit) continue;
    if (!draft.size.is_known) continue;
    if (std::abs(draft.size.value) > kSizeEqualLog) {
      logs.push_back(draft.size.value);
    } else {
      ++unchanged;
    }
  }
  std::sort(logs.begin(), logs.end());
  std::pair<std::size_t, std::size_t> best{0, 0};  // count, first
  for (std::size_t i = 0, end = 0; i < logs.size(); ++i) {
    while (end < logs.size() && logs[end] - logs[i] <= 2 * kBatchLog)
      ++end;
    if (end - i > best.first) best = {end - i, i};
  }
  const bool is_batch =
      best.first >= kBatchRowsMin &&
      static_cast<double>(best.first) >= kBatchShareMin * static_cast<double>(logs.size());
  if (!is_batch) return;
  const double log_factor = logs[best.second + best.first / 2];
  out_.batch = Batch{.factor = std::exp(log_factor),
                     .scaled = best.first,
                     .otherwise = logs.size() - best.first,
                     .unchanged = unchanged,
                     .unit = unit == "blocks" ? "grids" : std::string(unit),
                     .bytes_factor = {}};
  mark_batch(log_factor);
}

/// Every row whose size changed is told with the batch; copies, too, if they scale by its factor.
void Judge::mark_batch(double log_factor) {
  std::vector<double> copies;
  for (Draft& draft : drafts_) {
    if (!draft.size.is_known || std::abs(draft.size.value) <= kSizeEqualLog) continue;
    const bool agrees = std::abs(draft.size.value - log_factor) <= kBatchLog;
    if (draft.row.size_unit == "bytes" && !agrees) continue;
    draft.row.is_by_batch = true;
    if (draft.row.size_unit == "bytes") copies.push_back(draft.size.value);
  }
  if (!copies.empty()) out_.batch->bytes_factor = std::exp(stats::median(copies));
}

double Judge::centre_of(Lane lane, std::size_t rank) const {
  const auto found = centres_.find({lane, rank});
  return found == centres_.end() ? 0 : found->second.difference;
}

const std::vector<LogRatio>& Judge::runs_of(const Draft& draft, std::size_t rank) {
  return rank == kAllRanks ? draft.call : draft.call_of_rank[rank];
}

bool Judge::is_heard(const Draft& draft, Lane lane) const {
  const Row& row = draft.row;
  return draft.is_tested && row.lane == lane && !row.is_by_batch && row.match != Match::kNone &&
         is_busy_row(row) &&
         std::max(row.before_ms, row.after_ms) >= kCommonShareMin * sides_.whole_ms(lane);
}

/// A change that the rows of a lane share is the machine's, or in every call: it is taken off each
/// row of each recording and told once.
void Judge::find_centres() {
  const std::size_t ranks = sides_.compares_ranks ? sides_.rank_count() : 0;
  for (const Lane lane : {Lane::kDevice, Lane::kHost, Lane::kSamples}) {
    for (std::size_t k = 0; k <= ranks; ++k)
      find_centre(lane, k == 0 ? kAllRanks : k - 1);
  }
}

void Judge::find_centre(Lane lane, std::size_t rank) {
  std::vector<std::vector<double>> logs(sides_.recordings.size());
  std::size_t rows = 0;
  for (const Draft& draft : drafts_) {
    if (!is_heard(draft, lane)) continue;
    const auto& runs = runs_of(draft, rank);
    const bool is_known =
        std::all_of(runs.begin(), runs.end(), [](const LogRatio& run) { return run.is_known; });
    if (!is_known) continue;
    ++rows;
    double before = 0;  // measure of the row, so that rows can be compared
    for (std::size_t r = 0; r < sides_.before_count; ++r)
      before += runs[r].value / static_cast<double>(sides_.before_count);
    for (std::size_t r = 0; r < runs.size(); ++r)
      logs[r].push_back(runs[r].value - before);
  }
  if (rows < kCommonRowsMin) return;
  Centre& centre = centres_[{lane, rank}];
  for (std::size_t r = 0; r < logs.size(); ++r) {
    LogRatio run = lane_ratio(sides_, lane, r);
    run.value = stats::median(logs[r]);
    run.error = stats::kMadToSigma * stats::mad(logs[r]) / std::sqrt(static_cast<double>(rows));
    centre.runs.push_back(run);
  }
  const bool is_exact = lane == Lane::kDevice && sides_.is_exact;
  const double sigma = is_exact ? 0 : lane == Lane::kDevice ? kSigmaCommonDevice : kSigmaCommon;
  const Difference difference = difference_of(
      sides_, centre.runs, {.sigma = sigma, .spread_multiple = kCommonSpreadMultiple});
  centre.difference = difference.value;
  if (lane != Lane::kSamples)  // they add up to the step whatever happens
    tell_common(lane, rank, rows, difference);
}

void Judge::tell_common(Lane lane, std::size_t rank, std::size_t rows,
                        const Difference& difference) {
  Common common{.lane = lane, .rank = {}, .rows = rows, .factor = {}};
  common.factor.before = 1;
  common.factor.after = std::exp(difference.value);
  // A rank is told where it differs from all of them.
  const double others = rank == kAllRanks ? 0 : centre_of(lane, kAllRanks);
  common.factor.p = put(difference, others, common.factor);
  const bool is_exact = lane == Lane::kDevice && sides_.is_exact;
  const double least = is_exact ? kExactEffectMin : kCommonEffectMin;
  common.factor.is_significant = common.factor.p <= kFamilyErrorMax &&
                                 std::abs(std::expm1(difference.value - others)) >= least;
  if (!common.factor.is_significant) return;
  if (rank != kAllRanks) common.rank = sides_.recordings.front().ranks[rank];
  out_.commons.push_back(common);
}

/// Difference of a row beside its lane, with the lane's difference put back.
Difference Judge::call_difference(const Draft& draft, std::size_t rank) const {
  std::vector<LogRatio> runs = runs_of(draft, rank);
  const auto centre = centres_.find({draft.row.lane, rank});
  const bool is_centred = centre != centres_.end() && is_busy_row(draft.row);
  for (std::size_t r = 0; is_centred && r < runs.size(); ++r)
    runs[r].value -= centre->second.runs[r].value;
  Prior prior = draft.prior;
  if (is_centred && prior.sigma > 0)
    prior.sigma = std::hypot(prior.sigma, kUnevenShare * std::abs(centre->second.difference));
  Difference out = difference_of(sides_, runs, prior);
  if (is_centred) out.value += centre->second.difference;
  return out;
}

/// With several ranks they are the units, too: what only some of them show is no sure change of
/// all.
void Judge::add_rank_spread(const std::vector<Difference>& ranks, Difference& all) {
  double mean = 0, squares = 0;
  const auto count = static_cast<double>(ranks.size());
  for (const Difference& rank : ranks) {
    if (!rank.is_known) return;
    mean += rank.value / count;
  }
  for (const Difference& rank : ranks)
    squares += (rank.value - mean) * (rank.value - mean);
  if (count > 1) all.error = std::max(all.error, std::sqrt(squares / (count * (count - 1))));
}

void Judge::add_test(std::size_t number, std::size_t rank, Change Row::*metric,
                     const Difference& difference, double centre) {
  if (!difference.is_known) return;
  Test test{.draft = number, .rank = rank, .metric = metric, .change = {}, .chance = 1, .away = 0};
  test.change = drafts_[number].row.*metric;
  test.chance = put(difference, centre, test.change);
  test.away = difference.value - centre;
  tests_.push_back(test);
}

void Judge::add_tests(std::size_t number) {
  const Draft& draft = drafts_[number];
  if (draft.row.match == Match::kNone)
    return add_test(number, kAllRanks, &Row::call, draft.presence, 0);
  const auto centre = [&](std::size_t rank) {
    return is_busy_row(draft.row) ? centre_of(draft.row.lane, rank) : 0;
  };
  std::vector<Difference> ranks;
  for (std::size_t rank = 0; rank < draft.call_of_rank.size(); ++rank)
    ranks.push_back(call_difference(draft, rank));
  Difference all = call_difference(draft, kAllRanks);
  add_rank_spread(ranks, all);
  add_test(number, kAllRanks, &Row::call, all, centre(kAllRanks));
  add_test(number, kAllRanks, &Row::calls, draft.calls, 0);
  add_test(number, kAllRanks, &Row::size, draft.size, 0);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    add_test(number, rank, &Row::call, ranks[rank], centre(rank));
}

/// Beside the lane's common factor: what stands still while others change is not told for that.
bool Judge::changed_itself(const Test& test) {
  const bool is_sure = test.change.low.value_or(0) > 1 || test.change.high.value_or(2) < 1;
  return is_sure && (test.away > 0) == (test.change.ratio.value_or(1) > 1);
}

/// Time does not grow with work in proportion: a kernel's start and its last wave do not, and a
/// host that only launches takes the same time for any work.
bool Judge::takes_longer_for_its_work(const Test& test) const {
  const Row& row = drafts_[test.draft].row;
  return std::expm1(test.away) >= kPerWorkEffectMin &&
         (row.lane == Lane::kDevice || row.call.after >= (1 + kPerWorkEffectMin) * row.call.before);
}

void Judge::accept(const Test& test, double corrected) {
  Row& row = drafts_[test.draft].row;
  Change change = test.change;
  change.p = corrected;
  change.is_significant =
      corrected <= kFamilyErrorMax && std::abs(std::expm1(test.away)) >= effect_min(sides_, row);
  if (test.metric == &Row::call)
    change.is_significant = change.is_significant && changed_itself(test) &&
                            (!row.is_per_work || takes_longer_for_its_work(test));
  if (row.match == Match::kNone) change.ratio = change.low = change.high = std::nullopt;
  if (test.rank == kAllRanks) {
    row.*test.metric = change;
  } else if (change.is_significant && !row.call.is_significant && !row.rank) {
    row.call = change;  // of this rank alone
    row.rank = sides_.recordings.front().ranks[test.rank];
  }
  row.is_significant = row.is_significant || change.is_significant;
}

void Judge::test_rows() {
  for (std::size_t i = 0; i < drafts_.size(); ++i) {
    if (drafts_[i].is_tested) {
      add_tests(i);
    } else {
      ++out_.untested;
    }
  }
  std::vector<double> chances;
  for (const Test& test : tests_)
    chances.push_back(test.chance);
  const std::vector<double> corrected = stats::holm(chances);
  for (std::size_t i = 0; i < tests_.size(); ++i)
    accept(tests_[i], corrected[i]);
  out_.comparisons = tests_.size();
}

void Judge::name_changes() {
  for (Draft& draft : drafts_) {
    Row& row = draft.row;
    if (!row.is_significant) continue;
    if (row.match == Match::kNone) {
      row.what = row.before_name.empty() ? "new" : "removed";
      continue;
    }
    // At equal shapes, or per unit of work: no batch explains it.
    if (row.call.is_significant) row.is_by_batch = false;
    const auto add = [&](const Change& change, std::string_view more, std::string_view less) {
      if (!change.is_significant) return;
      if (!row.what.empty()) row.what += ", ";
      row.what += change.ratio.value_or(1) > 1 ? more : less;
    };
    add(row.calls, "more calls", "fewer calls");
    add(row.size, "larger", "smaller");
    const bool is_time = row.lane == Lane::kSamples;
    add(row.call, is_time ? "more time" : "slower", is_time ? "less time" : "faster");
  }
}

void Judge::sum_lanes() {
  for (const Lane lane : {Lane::kDevice, Lane::kHost, Lane::kSamples}) {
    LaneSum& sum = out_.lanes[static_cast<std::size_t>(lane)];
    sum.is_known = std::all_of(sides_.recordings.begin(), sides_.recordings.end(),
                               [&](const Recording& recording) {
                                 return recording.has_lane[static_cast<std::size_t>(lane)];
                               });
    for (const Draft& draft : drafts_) {
      const Row& row = draft.row;
      if (row.lane != lane) continue;
      sum.before_ms += row.lane_before_ms;
      sum.after_ms += row.lane_after_ms;
      const double more = row.lane_after_ms - row.lane_before_ms;
      (row.is_significant || row.is_by_batch ? sum.explained_ms : sum.others_ms) += more;
    }
    const bool is_part = lane != Lane::kDevice || !sides_.is_clock_apart();
    if (is_part)
      sum.uncovered_ms =
          (sides_.step_after_ms - sides_.step_before_ms) - (sum.after_ms - sum.before_ms);
    if (sum.uncovered_ms && lane != Lane::kDevice)
      *sum.uncovered_ms -= sides_.queue_after_ms - sides_.queue_before_ms;
  }
}

void Judge::run() {
  find_batch(Lane::kDevice, kUnitWork);
  find_batch(Lane::kDevice, "blocks");
  find_batch(Lane::kHost, "elements");
  find_centres();
  test_rows();
  name_changes();
  sum_lanes();
  std::stable_sort(drafts_.begin(), drafts_.end(), [](const Draft& a, const Draft& b) {
    if (a.row.is_significant != b.row.is_significant) return a.row.is_significant;
    return std::abs(a.row.lane_after_ms - a.row.lane_before_ms) >
           std::abs(b.row.lane_after_ms - b.row.lane_before_ms);
  });
  for (Draft& draft : drafts_)
    out_.rows.push_back(std::move(draft.row));
}

}  // namespace

void judge(const Sides& sides, std::vector<Draft> drafts, Comparison& out) {
  Judge(sides, std::move(drafts), out).run();
}

}  // namespace kansoku::diff
