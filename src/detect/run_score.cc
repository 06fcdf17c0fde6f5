// SPDX-License-Identifier: Apache-2.0
#include "detect/run_score.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "common/numbers.h"
#include "detect/internal/thresholds.h"
#include "detect/internal/words.h"
#include "detect/thresholds.h"
#include "stats/summary.h"

namespace kansoku::detect {
namespace {

constexpr std::size_t kEvidenceRows = 64, kRunEvidenceMax = 8;

/// Result of one window.
struct WindowResult {
  Range range;
  Range seen;  // part in which the ranks stand out
  bool job{false}, event{false};
  std::vector<std::size_t> ranks;  // indices
  std::size_t column{0};           // behind the ranks
  bool is_tail{false};
};

class RunScorer {
 public:
  RunScorer(const Cube& cube, std::span<const Column> columns, const JobModel* model,
            const RunOptions& options)
      : cube_(cube), columns_(columns), options_(options) {
    if (model != nullptr) scorer_.emplace(*model, options.seed);
  }

  [[nodiscard]] Result<RunVerdict> run();

 private:
  [[nodiscard]] Result<void> choose_reference();
  void choose_cuts();
  void choose_peers();
  [[nodiscard]] WindowResult judge_window(Range window);
  void add_ranks(WindowResult& result);
  void score_job(WindowResult& result);
  void find_events(WindowResult& result);
  void find_incidents(const std::vector<WindowResult>& windows);
  void find_seldom_steps();
  void close(const std::vector<WindowResult>& windows, const std::vector<std::size_t>& flagged,
             const std::set<std::size_t>& ranks, const std::set<std::string>& tests);
  void add_evidence(RunIncident& incident, const WindowResult& window, std::size_t rank_index);
  void add_event_evidence(RunIncident& incident, Range range, std::size_t rank_index);

  const Cube& cube_;
  std::span<const Column> columns_;
  RunOptions options_;
  std::optional<Scorer> scorer_;
  RunVerdict verdict_;
  Range reference_;
  std::size_t first_{0};  // step that is looked at first
  std::size_t pace_{0};
  bool is_steady_{true};
  double own_cut_{0}, model_cut_{0}, reference_pace_{0};
  std::uint32_t event_cut_{0};
  PeerModel peers_, long_peers_;
  std::vector<double> offsets_;  // of the reference, if it is steady
};

std::size_t index_of_time(const Cube& cube, double time) {
  return static_cast<std::size_t>(std::lower_bound(cube.times.begin(), cube.times.end(), time) -
                                  cube.times.begin());
}

Result<void> RunScorer::choose_reference() {
  const std::size_t steps = cube_.steps();
  if (options_.reference_begin && options_.reference_end) {
    reference_ = {index_of_time(cube_, *options_.reference_begin),
                  index_of_time(cube_, *options_.reference_end)};
    if (reference_.begin >= reference_.end) {
      return Error{
          Code::kNotFound,
          fmt::format("score run: no step between {} and {}", *options_.reference_begin,
                      *options_.reference_end),
          fmt::format("its steps go from {} to {}", cube_.times.front(), cube_.times.back())};
    }
    return {};
  }
  const std::size_t begin = std::min(kWarmUpMax, steps / 10);
  reference_ = {begin, begin + std::min(kReferenceStepsMax, steps / 5)};
  if (reference_.size() < 4) verdict_.notes.emplace_back(words::kFewSteps);
  return {};
}

/// How far the job's speed may be off: its error in healthy windows, and at least 5 or 8 %.
void RunScorer::choose_cuts() {
  if (pace_ == columns_.size()) return;
  reference_pace_ = window_median(cube_, reference_, pace_);
  const std::size_t part = std::max<std::size_t>(4, options_.window_steps / 2);
  double low = reference_pace_, high = reference_pace_;
  for (const Range& window : windows_of(reference_, part, part)) {
    const double middle = window_median(cube_, window, pace_);
    low = std::min(low, middle);
    high = std::max(high, middle);
  }
  own_cut_ = std::max(kOwnSlower, 1 + kNormalSpreads * (high - low) / reference_pace_);
  if (!scorer_) return;
  const Pace& pace = scorer_->model().parts().paces[pace_];
  if (pace.median > 0)
    model_cut_ = std::max(kModelSlower, 1 + kNormalSpreads * (pace.high / pace.median - 1));
}

void RunScorer::choose_peers() {
  if (cube_.ranks.size() < 3) {
    if (cube_.ranks.size() == 2) verdict_.notes.emplace_back(words::kTwoRanks);
    return;
  }
  const auto scales = peer_scales(cube_, columns_, reference_);
  const std::size_t window = options_.window_steps;
  const auto own = learn_peers(
      cube_, scales, windows_of(reference_, std::min(window, reference_.size()), window), 1e-5);
  if (is_steady_) offsets_ = peer_offsets(cube_, reference_);
  peers_ = own;
  long_peers_ = own;
  if (!scorer_) return;
  const JobModel::Parts& parts = scorer_->model().parts();
  if (!parts.peers.empty()) peers_ = parts.peers;
  if (!parts.long_peers.empty()) long_peers_ = stricter(parts.long_peers, own);
}

void RunScorer::score_job(WindowResult& result) {
  if (pace_ == columns_.size()) return;
  const double middle = window_median(cube_, result.range, pace_);
  if (std::isnan(middle)) return;
  const bool is_behind = result.range.begin >= reference_.end;
  if (is_steady_ && is_behind && middle > own_cut_ * reference_pace_) result.job = true;
  if (scorer_ && model_cut_ > 0 &&
      middle > model_cut_ * scorer_->model().parts().paces[pace_].median)
    result.job = true;
}

void RunScorer::find_events(WindowResult& result) {
  if (!scorer_) return;
  const ScoredWindow scored = score_window(*scorer_, cube_, result.range);
  verdict_.flagged_share += scored.flagged_steps;
  result.event = scored.flagged_steps >= static_cast<double>(event_cut_);
  const JobModel::Parts& parts = scorer_->model().parts();
  // A rank that is odd among peers that are not: a gap alone may be all ranks' fault.
  std::vector<double> shares = scored.flag_shares;
  const bool is_alone = stats::median(shares) < 0.2 && scored.flag_shares[scored.worst] > 0.5;
  if (is_steady_ && result.ranks.empty() && parts.gap_cut > 0 && is_alone &&
      cube_.ranks.size() >= 3 && scored.gap > parts.gap_cut) {
    result.ranks.push_back(scored.worst);
    result.column = columns_.size();
  }
}

void RunScorer::add_ranks(WindowResult& result) {
  if (peers_.empty()) return;
  PeerVerdict best;
  if (is_steady_) {
    const auto raw = peer_window(cube_, result.range, peers_.scales);
    best = judge_peers(raw, cube_.ranks.size(), peers_, true);
    if (result.range.begin >= reference_.end) {
      const auto changed = peer_window(cube_, result.range, peers_.scales, offsets_);
      auto other = judge_peers(changed, cube_.ranks.size(), peers_, true);
      if (best.ranks.empty() || other.excess > best.excess) best = std::move(other);
    }
  } else if (result.range.end >= reference_.end + options_.long_steps) {
    result.seen = {result.range.end - options_.long_steps, result.range.end};
    best = judge_peers(peer_window(cube_, result.seen, long_peers_.scales), cube_.ranks.size(),
                       long_peers_, false);
  }
  result.ranks = best.ranks;
  result.column = best.column;
  result.is_tail = best.is_tail;
}

WindowResult RunScorer::judge_window(Range window) {
  WindowResult out;
  out.range = out.seen = window;
  score_job(out);
  add_ranks(out);
  find_events(out);
  return out;
}

/// Windows in which a flag holds that holds in three of five.
std::vector<bool> sustained(const std::vector<bool>& flags) {
  std::vector<bool> out(flags.size(), false);
  for (std::size_t i = 0; i < flags.size(); ++i) {
    std::size_t count = 0;
    const std::size_t end = std::min(flags.size(), i + kShortWindows);
    for (std::size_t j = i; j < end; ++j)
      count += flags[j] ? 1 : 0;
    if (count < kConfirmWindows) continue;
    for (std::size_t j = i; j < end; ++j)
      if (flags[j]) out[j] = true;
  }
  return out;
}

void RunScorer::find_incidents(const std::vector<WindowResult>& windows) {
  const auto flags_of = [&](const auto& test) {
    std::vector<bool> out;
    out.reserve(windows.size());
    for (const WindowResult& window : windows)
      out.push_back(test(window));
    return sustained(out);
  };
  const auto job = flags_of([](const WindowResult& window) { return window.job; });
  const auto event = flags_of([](const WindowResult& window) { return window.event; });
  std::map<std::size_t, std::vector<bool>> by_rank;
  for (std::size_t r = 0; r < cube_.ranks.size(); ++r) {
    const auto named = [&](const WindowResult& window) {
      return std::find(window.ranks.begin(), window.ranks.end(), r) != window.ranks.end();
    };
    if (is_steady_) {
      by_rank[r] = flags_of(named);
    } else {  // a long window is sustained by itself
      for (const WindowResult& window : windows)
        by_rank[r].push_back(named(window));
    }
  }
  std::vector<std::size_t> flagged;
  std::set<std::size_t> ranks;
  std::set<std::string> tests;
  for (std::size_t i = 0; i <= windows.size(); ++i) {
    const bool is_over =
        i == windows.size() || (!flagged.empty() && i - flagged.back() > kShortWindows);
    if (is_over && !flagged.empty()) {
      close(windows, flagged, ranks, tests);
      flagged.clear();
      ranks.clear();
      tests.clear();
    }
    if (i == windows.size()) break;
    bool is_flagged = job[i] || event[i];
    if (job[i]) tests.insert("job");
    if (event[i]) tests.insert("event");
    for (const auto& [rank, flags] : by_rank) {
      if (!flags[i]) continue;
      is_flagged = true;
      ranks.insert(rank);
      tests.insert("rank");
    }
    if (is_flagged) flagged.push_back(i);
  }
}

void RunScorer::add_event_evidence(RunIncident& incident, Range range, std::size_t rank_index) {
  if (!scorer_) return;
  struct Sum {
    double drop{0};
    std::vector<double> expected, seen;
  };
  std::map<std::size_t, Sum> sums;
  std::size_t rows = 0;
  for (std::size_t step = range.begin; step < range.end && rows < kEvidenceRows; ++step) {
    for (std::size_t r = 0; r < cube_.ranks.size() && rows < kEvidenceRows; ++r) {
      if (rank_index < cube_.ranks.size() && r != rank_index) continue;
      const auto row = cube_.row(step, r);
      const double score = scorer_->score(row);
      if (std::isnan(score) || !scorer_->is_flagged(score)) continue;
      ++rows;
      for (const Contribution& one : scorer_->explain(row, kRunEvidenceMax)) {
        Sum& sum = sums[one.column];
        sum.drop += one.share;
        sum.expected.push_back(one.expected);
        sum.seen.push_back(one.seen);
      }
    }
  }
  for (const auto& [column, sum] : sums) {
    incident.evidence.push_back({columns_[column].name, columns_[column].unit,
                                 std::string(layer_name(columns_[column].layer)),
                                 stats::median(sum.expected), stats::median(sum.seen),
                                 sum.drop / static_cast<double>(std::max<std::size_t>(rows, 1))});
  }
}

void RunScorer::add_evidence(RunIncident& incident, const WindowResult& window,
                             std::size_t rank_index) {
  const std::size_t ranks = cube_.ranks.size();
  if (window.column < columns_.size() && rank_index < ranks && !peers_.empty()) {
    const auto entries = peer_window(cube_, window.seen, peers_.scales);
    double sum = 0;
    for (std::size_t c = 0; c < columns_.size(); ++c)
      sum += std::fabs(entries.at(rank_index, c).persistent) + entries.at(rank_index, c).tail;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const PeerEntry& entry = entries.at(rank_index, c);
      const double size = std::fabs(entry.persistent) + entry.tail;
      if (size <= 1 || sum <= 0) continue;
      std::vector<double> own, others;
      for (std::size_t step = window.seen.begin; step < window.seen.end; ++step)
        for (std::size_t r = 0; r < ranks; ++r)
          if (const double value = cube_.at(step, r, c); !std::isnan(value))
            (r == rank_index ? own : others).push_back(value);
      const double quantile = std::fabs(entry.persistent) > 0 ? 0.5 : 0.9;
      incident.evidence.push_back(
          {columns_[c].name, columns_[c].unit, std::string(layer_name(columns_[c].layer)),
           stats::quantile(others, quantile), stats::quantile(own, quantile), size / sum});
    }
  } else if (window.event || !window.job) {
    add_event_evidence(incident, window.range, rank_index);
  } else {
    const double normal =
        is_steady_ && window.range.begin >= reference_.end &&
                window_median(cube_, window.range, pace_) > own_cut_ * reference_pace_
            ? reference_pace_
            : scorer_->model().parts().paces[pace_].median;
    incident.evidence.push_back({columns_[pace_].name, columns_[pace_].unit,
                                 std::string(layer_name(columns_[pace_].layer)), normal,
                                 window_median(cube_, window.range, pace_), 1});
  }
  std::sort(incident.evidence.begin(), incident.evidence.end(),
            [](const trace::Evidence& a, const trace::Evidence& b) {
              return a.share != b.share ? a.share > b.share : a.feature < b.feature;
            });
  if (incident.evidence.size() > kRunEvidenceMax) incident.evidence.resize(kRunEvidenceMax);
}

void RunScorer::close(const std::vector<WindowResult>& windows,
                      const std::vector<std::size_t>& flagged, const std::set<std::size_t>& ranks,
                      const std::set<std::string>& tests) {
  RunIncident out;
  std::size_t begin = windows[flagged.front()].range.begin;
  if (!windows[flagged.front()].ranks.empty()) begin = windows[flagged.front()].seen.begin;
  out.begin = cube_.times[begin];
  out.end = cube_.times[windows[flagged.back()].range.end - 1];
  out.windows = static_cast<std::uint32_t>(flagged.size());
  out.tests.assign(tests.begin(), tests.end());
  for (const std::size_t rank : ranks)
    out.ranks.push_back(cube_.ranks[rank]);
  const WindowResult* shown = &windows[flagged[flagged.size() / 2]];
  for (const std::size_t i : flagged)
    if (!ranks.empty() && shown->ranks.empty() && !windows[i].ranks.empty()) shown = &windows[i];
  add_evidence(out, *shown, ranks.empty() ? cube_.ranks.size() : *ranks.begin());
  out.summary = words::ranks_text(out.ranks, words::kNoSingleRank) +
                words::changes_text(out.evidence, words::Names::kAsWritten);
  verdict_.incidents.push_back(std::move(out));
}

/// One incident for each rank with long steps now and then that is not named yet.
void RunScorer::find_seldom_steps() {
  // Steps that swing anyway swing on some ranks more often than on others.
  if (pace_ == columns_.size() || !is_steady_) return;
  const Range range{first_, cube_.steps()};
  const double pace = window_median(cube_, range, pace_);
  for (const SeldomRank& seldom : find_seldom(cube_, columns_, range, pace)) {
    const std::int32_t number = cube_.ranks[seldom.rank];
    const bool is_named = std::any_of(
        verdict_.incidents.begin(), verdict_.incidents.end(), [&](const RunIncident& incident) {
          return std::find(incident.ranks.begin(), incident.ranks.end(), number) !=
                 incident.ranks.end();
        });
    if (is_named) continue;
    std::vector<double> own, others;
    std::set<std::size_t> windows;
    for (const std::size_t step : seldom.steps) {
      windows.insert((step - first_) / options_.window_steps);
      for (std::size_t r = 0; r < cube_.ranks.size(); ++r)
        if (const double value = cube_.at(step, r, seldom.column); !std::isnan(value))
          (r == seldom.rank ? own : others).push_back(value);
    }
    const Column& column = columns_[seldom.column];
    RunIncident out;
    out.begin = cube_.times[seldom.steps.front()];
    out.end = cube_.times[seldom.steps.back()];
    out.windows = static_cast<std::uint32_t>(windows.size());
    out.ranks = {number};
    out.tests = {"rank"};
    out.evidence = {{column.name, column.unit, std::string(layer_name(column.layer)),
                     stats::median(others), stats::median(own), 1}};
    out.summary = words::ranks_text(out.ranks, words::kNoSingleRank) +
                  words::changes_text(out.evidence, words::Names::kAsWritten) +
                  fmt::format(words::kSeldom, seldom.steps.size(), range.size());
    verdict_.incidents.push_back(std::move(out));
  }
}

Result<RunVerdict> RunScorer::run() {
  verdict_.steps = cube_.steps();
  verdict_.ranks = cube_.ranks.size();
  TRY_VOID(choose_reference());
  pace_ = pace_column(cube_, columns_);
  if (pace_ < columns_.size()) verdict_.pace = columns_[pace_].name;
  const Stationarity steady =
      pace_ < columns_.size() ? check_stationarity(cube_, reference_, pace_) : Stationarity{};
  is_steady_ = steady.is_stationary;
  if (!is_steady_) verdict_.notes.push_back(fmt::format(words::kPastNotUsed, steady.reason));
  if (scorer_ && pace_ < columns_.size()) {
    const Pace& pace = scorer_->model().parts().paces[pace_];
    if (pace.high > kModelSteadySpread * pace.low && is_steady_) {
      is_steady_ = false;
      verdict_.notes.push_back(fmt::format(words::kPastNotUsed, words::kModelNotSteady));
    }
  }
  choose_cuts();
  choose_peers();
  if (scorer_) {
    const JobModel::Parts& parts = scorer_->model().parts();
    const auto n = static_cast<std::uint32_t>(options_.window_steps);
    const double share =
        std::max(parts.flag_rate, share_interval(parts.measured_flags, parts.measured_points).high);
    event_cut_ = smallest_k({std::min(share, 0.5), parts.correlation}, n, kEventAlpha);
  }
  first_ = scorer_ ? std::min<std::size_t>(50, cube_.steps() / 10) : reference_.end;
  std::vector<WindowResult> windows;
  for (const Range& window :
       windows_of({first_, cube_.steps()}, options_.window_steps, options_.window_steps))
    windows.push_back(judge_window(window));
  if (!windows.empty())
    verdict_.flagged_share /= static_cast<double>(windows.size() * options_.window_steps);
  if (pace_ < columns_.size()) {
    const double middle =
        window_median(cube_, {std::min(reference_.end, cube_.steps() - 1), cube_.steps()}, pace_);
    if (is_steady_) verdict_.own_ratio = middle / reference_pace_;
    if (model_cut_ > 0)
      verdict_.model_ratio = middle / scorer_->model().parts().paces[pace_].median;
  }
  find_incidents(windows);
  find_seldom_steps();
  std::set<std::int32_t> named;
  for (const RunIncident& incident : verdict_.incidents)
    named.insert(incident.ranks.begin(), incident.ranks.end());
  verdict_.named.assign(named.begin(), named.end());
  return std::move(verdict_);
}

/// The cube with the model's columns in the model's order.
Result<Cube> aligned(const Cube& cube, std::span<const Column> columns, const JobModel& model) {
  std::vector<std::size_t> from;
  for (const Column& wanted : model.parts().columns) {
    const auto found = std::find_if(columns.begin(), columns.end(), [&](const Column& column) {
      return column.name == wanted.name && column.unit == wanted.unit;
    });
    if (found == columns.end()) {
      return Error{Code::kUnsupported,
                   fmt::format("score run: the model's column \"{}\" is not in it", wanted.name),
                   "fit a model to a run with the same columns"};
    }
    from.push_back(static_cast<std::size_t>(found - columns.begin()));
  }
  Cube out;
  out.times = cube.times;
  out.ranks = cube.ranks;
  out.columns = from.size();
  out.values.reserve(cube.steps() * cube.ranks.size() * from.size());
  for (std::size_t step = 0; step < cube.steps(); ++step)
    for (std::size_t r = 0; r < cube.ranks.size(); ++r)
      for (const std::size_t column : from)
        out.values.push_back(cube.at(step, r, column));
  return out;
}

}  // namespace

std::size_t pace_column(const Cube& cube, std::span<const Column> columns) {
  std::size_t best = columns.size();
  double longest = 0;
  for (const std::string_view name : {"step_mean", "decode_mean"})
    for (std::size_t c = 0; c < columns.size(); ++c)
      if (columns[c].name == name) return c;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].unit != "s") continue;
    if (columns[c].name.rfind("step", 0) == 0) return c;
    const double middle = window_median(cube, {0, cube.steps()}, c);
    if (middle <= longest) continue;
    longest = middle;
    best = c;
  }
  return best;
}

Result<RunVerdict> score_run(const Cube& cube, std::span<const Column> columns,
                             const JobModel* model, const RunOptions& options) {
  if (cube.steps() < 2 * options.window_steps || options.window_steps < 4) {
    return Error{Code::kLimit,
                 fmt::format("score run: {} steps, two windows of {} (at least 4) are needed",
                             cube.steps(), options.window_steps),
                 "choose a shorter --window"};
  }
  if (model == nullptr) return RunScorer(cube, columns, nullptr, options).run();
  TRY(const Cube same, aligned(cube, columns, *model));
  return RunScorer(same, model->parts().columns, model, options).run();
}

Json RunVerdict::to_json() const {
  Json list = Json::array();
  for (const RunIncident& incident : incidents) {
    Json evidence = Json::array();
    for (const trace::Evidence& one : incident.evidence) {
      evidence.push(Json::object()
                        .set("feature", one.feature)
                        .set("unit", one.unit)
                        .set("normal", one.normal)
                        .set("seen", one.seen)
                        .set("share", one.share));
    }
    list.push(Json::object()
                  .set("begin", incident.begin)
                  .set("end", incident.end)
                  .set("ranks", Json::array_of(incident.ranks))
                  .set("tests", Json::array_of(incident.tests))
                  .set("windows", incident.windows)
                  .set("evidence", evidence)
                  .set("summary", incident.summary));
  }
  return Json::object()
      .set("schema", "kansoku.detect_score/1")
      .set("steps", static_cast<std::uint64_t>(steps))
      .set("ranks", static_cast<std::uint64_t>(ranks))
      .set("pace", pace)
      .set("own_ratio", own_ratio > 0 ? Json(own_ratio) : Json())
      .set("model_ratio", model_ratio > 0 ? Json(model_ratio) : Json())
      .set("flagged_share", flagged_share)
      .set("named_ranks", Json::array_of(named))
      .set("incidents", list)
      .set("notes", Json::array_of(notes));
}

std::string RunVerdict::to_text() const {
  std::string out = fmt::format(words::kRun, steps, ranks, ranks == 1 ? "" : "s");
  if (own_ratio > 0) out += fmt::format(words::kAgainstOwnPast, pace, own_ratio);
  if (model_ratio > 0) {
    out += fmt::format(words::kAgainstModel, model_ratio, 100 * flagged_share);
  }
  for (const std::string& note : notes)
    out += fmt::format(words::kNote, note);
  if (incidents.empty()) return out + words::kNothingFound;
  for (const RunIncident& incident : incidents) {
    out += fmt::format(words::kRunIncident, incident.begin, incident.end, incident.windows,
                       fmt::join(incident.tests, ", "), incident.summary);
  }
  return out;
}

}  // namespace kansoku::detect
