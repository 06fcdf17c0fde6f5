// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>

#include "detect/internal/detector_impl.h"
#include "detect/internal/model_fit.h"
#include "detect/thresholds.h"
#include "stats/summary.h"

namespace kansoku::detect {
namespace {

constexpr std::size_t kLearnRowsMax = 200'000;
constexpr std::size_t kHealthyRowsMax = 1500;
constexpr std::size_t kRetryAfter = 60;  // windows after a refresh that failed
// Features that measure a job's pace; the last one that it has counts.
constexpr std::array<std::string_view, 2> kPaces{"decode_mean", "step_mean"};
bool is_pace(const Column& column) {
  return std::find(kPaces.begin(), kPaces.end(), column.name) != kPaces.end();
}
/// Above it a job is slower than it was.
double cut_of(const Pace& normal) {
  return normal.median *
         std::max(kSlowerMin, 1 + kNormalSpreads * (normal.high / normal.median - 1));
}

}  // namespace

void Detector::Impl::learn(std::span<const Window> taken) {
  for (const Window& window : taken) {
    const bool is_known = members.count(key_of(window)) != 0;
    if (learning.rows() >= kLearnRowsMax || (!is_known && members.size() >= kMembersMax)) {
      ++skipped;
      continue;
    }
    learning.times.push_back(static_cast<double>(learnt_windows));
    // Ranks of a table are 32 bits wide; a pid stands in where there is none.
    learning.ranks.push_back(window.rank >= 0 ? window.rank : window.pid);
    learning.values.insert(learning.values.end(), window.values.begin(), window.values.end());
    Member& member = members[key_of(window)];
    member.rank = window.rank;
    member.pid = window.pid;
  }
  ++learnt_windows;
  if (learnt_windows >= learn_windows() && learning.rows() >= 40) finish_learning();
}

void Detector::Impl::finish_learning() {
  ModelOptions fit;
  fit.window_steps = kShortWindows;
  fit.long_steps = kLongWindows;
  fit.rows_max = 1500;
  fit.components_max = 6;
  fit.spread_min = kSpreadMin;
  fit.blur = 1;
  fit.seed = options.seed;
  const double trials = kNanosOfDay / static_cast<double>(options.window.count()) *
                        static_cast<double>(std::max<std::size_t>(1, members.size()));
  // Ten in a thousand of five windows' triples: 10 p^3 a window of budget.
  fit.flag_rate = std::clamp(std::cbrt(options.alarms_per_day / 2 / trials / 10), 5e-4, 5e-3);
  fit.window_alpha = options.alarms_per_day / 4 / trials;
  learning.columns = columns;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (!is_pace(columns[c]) || !begins_late(c)) continue;
    forget_learning();  // loading and compiling are not the job
    return;
  }
  const auto cube = make_cube(learning);
  JobModel::Key key = options.key;
  if (key.command.empty()) {
    key.command = options.job;
    key.world_size = static_cast<std::int32_t>(members.size());
  }
  auto model = cube ? JobModel::fit(*cube, columns, fit, key) : Result<JobModel>(cube.error());
  if (!model) {  // too little, or nothing that holds still: look longer
    note_failed_fit(model.error());
    forget_learning();
    return;
  }
  const Range steady{cube->steps() / 10, cube->steps()};
  JobModel::Parts parts = model->parts();
  parts.window_s = static_cast<double>(options.window.count()) * 1e-9;
  if (cube->ranks.size() >= 3) {
    auto scales = peer_scales(*cube, columns, steady);
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const double middle = std::fabs(window_median(*cube, steady, c));
      if (middle > 0) scales[c] = std::max(scales[c], kPeerShare * middle);
    }
    const auto all = peer_offsets(*cube, steady);
    parts.peers = learn_peers(*cube, scales, windows_of(steady, kShortWindows, kShortWindows),
                              fit.window_alpha, all);
    const bool have_ranks = std::all_of(members.begin(), members.end(),
                                        [](const auto& member) { return member.second.rank >= 0; });
    if (have_ranks) {
      parts.peers.ranks = cube->ranks;
      parts.peers.offsets = all;
    }
    for (const auto& [member_key, member] : members) {
      const std::int32_t id = member.rank >= 0 ? member.rank : member.pid;
      const auto found = std::lower_bound(cube->ranks.begin(), cube->ranks.end(), id);
      if (found != cube->ranks.end() && *found == id)
        take_offsets(member_key, all, static_cast<std::size_t>(found - cube->ranks.begin()));
    }
  }
  auto whole = JobModel::from_parts(std::move(parts));
  learning = Table{};
  start_watching(whole ? std::move(*whole) : std::move(*model));
}

void Detector::Impl::forget_learning() {
  learning = Table{};
  members.clear();
  learnt_windows = 0;
}

/// True if a column is there at the end of the learning time and not in the part that modes are
/// fitted to.
bool Detector::Impl::begins_late(std::size_t column) const {
  double of_first = 0, in_first = 0, of_last = 0, in_last = 0;
  for (std::size_t row = 0; row < learning.rows(); ++row) {
    const double share = learning.times[row] / static_cast<double>(learnt_windows);
    const bool is_there = !std::isnan(learning.values[row * columns.size() + column]);
    if (share < kFitShare) {
      of_first += 1;
      in_first += is_there ? 1 : 0;
    } else if (share >= kCutShare) {
      of_last += 1;
      in_last += is_there ? 1 : 0;
    }
  }
  return in_first < kSeldomShare * of_first && in_last > kMostShare * of_last;
}

void Detector::Impl::take_offsets(MemberKey key, std::span<const double> all, std::size_t index) {
  const auto own = all.subspan(index * columns.size(), columns.size());
  offsets[key].assign(own.begin(), own.end());
}

void Detector::Impl::start_watching(JobModel model) {
  const JobModel::Parts& parts = model.parts();
  for (std::size_t i = 0; i < parts.peers.ranks.size(); ++i)
    take_offsets(parts.peers.ranks[i], parts.peers.offsets, i);
  pace = columns.size();
  for (const std::string_view name : kPaces)
    for (std::size_t c = 0; c < columns.size(); ++c)
      if (columns[c].name == name && parts.paces.size() == columns.size() &&
          parts.paces[c].median > 0)
        pace = c;
  late_windows = 0;
  if (pace < columns.size()) pace_cut = cut_of(parts.paces[pace]);
  healthy_flags = {parts.measured_points, parts.measured_flags, parts.measured_clear};
  far_flags = 0;
  far_points = parts.far_points;
  scorer.emplace(std::move(model), options.seed);
  fit_problem.clear();
  members.clear();
  counts_for = 0;
  state = State::kWatching;
}

/// True if it is known of each rank by how much it always differs. Offsets that a stored model or
/// the learning time has not seen are learnt from a rank's first quiet windows.
bool Detector::Impl::learn_offsets(const std::vector<MemberKey>& present) {
  const auto is_known = [&](const MemberKey key) { return offsets.contains(key); };
  if (std::all_of(present.begin(), present.end(), is_known)) return true;
  const bool is_quiet =
      !open && std::all_of(present.begin(), present.end(), [&](const MemberKey key) {
        const Member& member = members.at(key);
        return member.windows >= kSettleWindows + kLongWindows &&
               member.recent.size() == kLongWindows;
      });
  if (!is_quiet) return false;
  const auto all = peer_offsets(recent_cube(present, kLongWindows), {0, kLongWindows});
  for (std::size_t r = 0; r < present.size(); ++r)
    if (!is_known(present[r])) take_offsets(present[r], all, r);
  return true;
}

void Detector::Impl::keep_healthy(const std::vector<MemberKey>& present) {
  Pending moment;
  for (const MemberKey key : present) {
    const Member& member = members.at(key);
    if (member.windows <= kSettleWindows) continue;  // not judged: nobody knows that it is well
    const Member::Recent& recent = member.recent.back();
    moment.rows.insert(moment.rows.end(), recent.row.begin(), recent.row.end());
    moment.seen.points += 1;
    moment.seen.flags += recent.is_flagged ? 1 : 0;
    moment.seen.clear += recent.is_clear ? 1 : 0;
    moment.far_flags += recent.is_flagged && recent.score > scorer->model().parts().far_cut ? 1 : 0;
  }
  if (moment.rows.empty()) return;
  pending.push_back(std::move(moment));
  if (pending.size() <= kPendingWindows) return;
  const Pending safe = std::move(pending.front());
  pending.pop_front();
  healthy_flags.points += safe.seen.points;
  healthy_flags.flags += safe.seen.flags;
  healthy_flags.clear += safe.seen.clear;
  far_points += safe.seen.points;
  far_flags += safe.far_flags;
  const std::size_t of_moment = std::max<std::size_t>(1, safe.rows.size() / columns.size());
  const std::size_t every = std::max<std::size_t>(1, refresh_after * of_moment / kHealthyRowsMax);
  const bool is_kept = healthy_moments++ % every == 0;
  for (std::size_t i = 0; is_kept && i + columns.size() <= safe.rows.size(); i += columns.size()) {
    const auto from = safe.rows.begin() + static_cast<std::ptrdiff_t>(i);
    healthy.emplace_back(from, from + static_cast<std::ptrdiff_t>(columns.size()));
    if (healthy.size() > kHealthyRowsMax) healthy.pop_front();
  }
  if (++since_refresh >= refresh_after) refresh();
}

/// Learns the pace of rows that the operator calls normal. A mere refresh leaves the job's speed
/// alone, so that it cannot creep.
void Detector::Impl::learn_pace(std::span<const double> rows, JobModel& model) {
  if (pace == columns.size()) return;
  std::vector<double> values;
  for (std::size_t i = 0; i + columns.size() <= rows.size(); i += columns.size())
    if (const double value = rows[i + pace]; !std::isnan(value)) values.push_back(value);
  if (values.empty() || stats::median(values) <= pace_cut / kSlowerMin) return;
  JobModel::Parts parts = model.parts();
  parts.paces[pace] = {stats::median(values), stats::quantile(values, 0.25),
                       stats::quantile(values, 0.75)};
  const double cut = cut_of(parts.paces[pace]);
  auto changed = JobModel::from_parts(std::move(parts));
  if (!changed) return;
  model = std::move(*changed);
  pace_cut = cut;
}

/// Values that the operator calls normal are odd no more in a single feature, between ranks, or as
/// an error.
void Detector::Impl::learn_word(const Kept& one, JobModel& model) {
  JobModel::Parts parts = model.parts();
  for (std::size_t i = 0; i + columns.size() <= one.rows.size(); i += columns.size()) {
    const auto row = std::span(one.rows).subspan(i, columns.size());
    for (std::size_t j = 0; j < parts.cuts.size(); ++j) {
      const std::size_t c = parts.coordinates[j].column;
      const double level = worse[c] * parts.coordinates[j].of(row[c], columns[c]);
      if (!std::isnan(level)) parts.cuts[j] = std::max(parts.cuts[j], kAboveLabel * level);
    }
    for (std::size_t c = 0; c < columns.size(); ++c)
      if (columns[c].use == Use::kEvent && row[c] > 0)
        normal_events[c] = std::max(normal_events[c], row[c]);
  }
  for (const auto& [column, deviation] : one.peers)
    if (column < parts.peers.persistent.size())
      parts.peers.persistent[column] =
          std::max(parts.peers.persistent[column], kBeyondLabel * deviation);
  if (auto changed = JobModel::from_parts(std::move(parts))) model = std::move(*changed);
}

/// Without the operator's label a refresh can wait until there is more to learn from.
bool Detector::Impl::can_learn(std::size_t labelled_values) const {
  const std::size_t least = labelled_values > 0 ? kLabelledRowsMin : kRefreshRowsMin;
  return labelled_values + healthy.size() * columns.size() >= least * columns.size();
}

void Detector::Impl::refresh() {
  since_refresh = 0;
  std::vector<double> rows;
  std::vector<std::vector<double>> labelled_rows;
  std::size_t said = 0;
  for (const Kept& one : kept) {
    if (!one.is_normal) continue;
    labelled_rows.push_back(one.rows);
    said += one.rows.size();
  }
  if (!can_learn(said)) return;
  for (const auto& row : healthy)
    rows.insert(rows.end(), row.begin(), row.end());
  auto model =
      scorer->model().refresh(rows, labelled_rows, kRefreshShare, options.seed + refreshes);
  if (!model) {
    note_failed_fit(model.error());
    since_refresh = refresh_after - std::min(refresh_after, kRetryAfter);
    return;
  }
  fit_problem.clear();
  for (Kept& one : kept) {
    if (!one.is_normal || one.is_taken) continue;
    learn_pace(one.rows, *model);
    learn_word(one, *model);
    one.is_taken = true;  // its rows stay, so that they are not forgotten
  }
  ++refreshes;
  refresh_after = std::min(2 * refresh_after, kRefreshLast);
  scorer.emplace(std::move(*model), options.seed);
  choose_alarm_counts();
}

void Detector::Impl::note_failed_fit(const Error& error) {
  ++failed_fits;
  fit_problem = error.what;
}

/// True if a job has had steps for as long as it takes to learn them, and none when it was learnt:
/// the model, which may be a stored one, is of something else.
bool Detector::Impl::sees_unknown_steps(const std::vector<MemberKey>& present) {
  if (pace < columns.size()) return false;
  const bool has_steps = std::any_of(present.begin(), present.end(), [&](const MemberKey key) {
    const std::vector<double>& row = members.at(key).recent.back().row;
    for (std::size_t c = 0; c < columns.size(); ++c)
      if (is_pace(columns[c]) && !std::isnan(row[c])) return true;
    return false;
  });
  late_windows += has_steps ? 1 : 0;
  return late_windows >= learn_windows();
}

void Detector::Impl::learn_anew(std::vector<Observation>& out) {
  end_run(last_ns, out);
  for (const auto& [key, member] : members)
    growth->forget(last_ns, key, out);
  for (Kept& one : kept)
    one.is_taken = false;  // the next model has to hear of it
  forget_learning();
  pending.clear();
  healthy.clear();
  offsets.clear();
  paces.clear();
  scorer.reset();
  state = State::kLearning;
  since_refresh = 0;
  refresh_after = kRefreshFirst;
  ++refreshes;  // another model than the one that was stored
}

}  // namespace kansoku::detect
