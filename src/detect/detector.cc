// SPDX-License-Identifier: Apache-2.0
#include "detect/detector.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/numbers.h"
#include "detect/internal/detector_impl.h"
#include "detect/internal/thresholds.h"
#include "detect/run_score.h"
#include "detect/thresholds.h"
#include "stats/summary.h"

namespace kansoku::detect {
namespace {

constexpr std::size_t kKeptIncidents = 16;

}  // namespace

void Detector::Impl::choose_alarm_counts() {
  const double per_day = kNanosOfDay / static_cast<double>(options.window.count());
  counts_for = members.size();
  counts = choose_counts(healthy_flags, scorer->model().parts().correlation,
                         static_cast<double>(counts_for), per_day, options.alarms_per_day);
}

/// An error that hardware reports needs no statistics, unless it was there while all was well.
bool Detector::Impl::has_event(std::span<const double> row) const {
  const auto& coordinates = scorer->model().parts().coordinates;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].use != Use::kEvent || !(row[c] > 0)) continue;
    const auto label = normal_events.find(c);
    if (label != normal_events.end() && row[c] <= label->second) continue;
    const auto known = std::find_if(coordinates.begin(), coordinates.end(),
                                    [&](const Coordinate& one) { return one.column == c; });
    // A device that the job took up later was never seen to be well.
    if (known == coordinates.end() || known->value_of(0, columns[c]) <= 0) return true;
  }
  return false;
}

/// A job that runs faster than it did is no incident, however odd it is.
bool Detector::Impl::is_for_the_worse(std::span<const double> row) const {
  for (const Coordinate& coordinate : scorer->model().parts().coordinates) {
    const double deviation = coordinate.of(row[coordinate.column], columns[coordinate.column]);
    if (worse[coordinate.column] * deviation > kNoticedSpreads) return true;
  }
  return false;
}

/// True if a single feature goes to the worse as far as it never does in health.
bool Detector::Impl::is_beyond_cuts(std::span<const double> row) const {
  const JobModel::Parts& parts = scorer->model().parts();
  for (std::size_t i = 0; i < parts.cuts.size(); ++i) {
    const std::size_t column = parts.coordinates[i].column;
    const double deviation = parts.coordinates[i].of(row[column], columns[column]);
    if (worse[column] * deviation > parts.cuts[i]) return true;
  }
  return false;
}

/// How far each coordinate is on its worse side, its cut being 1; NaN where it was not seen.
std::vector<double> Detector::Impl::levels_of(std::span<const double> row) const {
  const JobModel::Parts& parts = scorer->model().parts();
  std::vector<double> out(parts.cuts.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t column = parts.coordinates[i].column;
    const double level =
        worse[column] * parts.coordinates[i].of(row[column], columns[column]) / parts.cuts[i];
    out[i] = std::isnan(level) ? kNan : std::max(level, 0.0);
  }
  return out;
}

/// From which pace on windows behind `begin_ns` are slower than before: than the job was in the
/// half minute before it, or when it was learnt, whichever is faster.
std::optional<SlowPace> Detector::Impl::slow_from(std::int64_t begin_ns) const {
  if (pace == columns.size()) return std::nullopt;
  std::vector<double> before;
  for (const auto& [key, member] : members)
    for (const Member::Recent& recent : member.recent)
      if (recent.wall_ns <= begin_ns && !recent.is_flagged && !std::isnan(recent.row[pace]))
        before.push_back(recent.row[pace]);
  double normal = scorer->model().parts().paces[pace].median;
  if (before.size() >= kShortWindows) normal = std::min(normal, stats::median(before));
  return SlowPace{pace, kSlowerMin * normal};
}

/// True if the last windows of a process say that the job has become slower.
bool Detector::Impl::is_slower(const std::vector<MemberKey>& present,
                               const std::optional<SlowPace>& slow) const {
  return slow && std::any_of(present.begin(), present.end(), [&](const MemberKey key) {
           std::vector<double> last;
           const auto& recent = members.at(key).recent;
           for (std::size_t i = 0; i < std::min(kShortWindows, recent.size()); ++i) {
             const double value = recent[recent.size() - 1 - i].row[slow->column];
             if (!std::isnan(value)) last.push_back(value);
           }
           return last.size() == kShortWindows && stats::median(last) > slow->from;
         });
}

/// True if the last windows of a process show another fault than `incident`: something far worse,
/// or the first error that hardware reports.
bool Detector::Impl::is_another(const Episode& incident,
                                const std::vector<MemberKey>& present) const {
  if (!incident.has_effect() && is_slower(present, incident.slow())) return true;
  for (const MemberKey key : present) {
    const Member& member = members.at(key);
    const auto& recent = member.recent;
    if (recent.back().is_event && !incident.has_event) return true;
    const std::vector<double>* const worst = incident.worst_of(key);
    const bool is_settled = member.windows > kSettleWindows + kWindowsInARow;
    if (worst == nullptr || !is_settled || recent.size() < kWindowsInARow) continue;
    std::vector<double> least(worst->size(), 1e300);
    for (auto it = recent.end() - kWindowsInARow; it != recent.end(); ++it) {
      const std::vector<double> levels = levels_of(it->row);
      for (std::size_t i = 0; i < least.size(); ++i)
        least[i] = std::isnan(levels[i]) ? 0 : std::min(least[i], levels[i]);
    }
    // A level that was not seen in this incident before may have been as bad all along.
    for (std::size_t i = 0; i < least.size(); ++i)
      if (least[i] > kLevelOfAnother && least[i] > kTimesWorse * (*worst)[i]) return true;
  }
  return false;
}

void Detector::Impl::score(std::int64_t wall_ns, const Window& window) {
  Member& member = members[key_of(window)];
  if (member.pid != window.pid) {  // the rank was started anew
    if (member.pid != 0) left.push_back(key_of(window));
    member = Member{};
  }
  member.rank = window.rank;
  member.pid = window.pid;
  member.last_ns = wall_ns;
  Member::Recent recent;
  recent.wall_ns = wall_ns;
  recent.row = window.values;
  recent.score = scorer->score(window.values);
  recent.is_event = has_event(window.values);
  // A process that starts is not yet as it will be: libraries and weights load, the first windows
  // are no whole ones.
  const bool is_starting = pace < columns.size() && std::isnan(window.values[pace]) &&
                           member.windows == 0 && ++member.start_windows <= kStartWindows;
  if (!is_starting) ++member.windows;
  const bool is_settled = member.windows > kSettleWindows;
  recent.is_beyond = is_beyond_cuts(window.values);
  const bool is_odd =
      recent.is_beyond || (scorer->is_flagged(recent.score) && is_for_the_worse(window.values));
  recent.is_flagged = recent.is_event || (is_settled && is_odd);
  recent.is_clear = recent.is_flagged && (recent.is_event || recent.is_beyond ||
                                          recent.score > scorer->model().parts().clear_cut());
  member.score = recent.score;
  member.is_flagged = recent.is_flagged;
  ++windows;
  flagged += recent.is_flagged ? 1 : 0;
  member.recent.push_back(std::move(recent));
  if (member.recent.size() > kLongWindows) member.recent.pop_front();
}

/// Two windows in a row so far from all modes that a third is not waited for. Not where health has
/// such windows now and then: two of them would meet by chance.
bool Detector::Impl::is_far_out(const Member& member) const {
  const double share = far_flags > 0 ? (far_flags + 0.5) / (far_points + 1) : 0;
  const double trials = kNanosOfDay / static_cast<double>(options.window.count()) *
                        static_cast<double>(std::max<std::size_t>(1, counts_for));
  if (far_points < kFarPointsMin ||
      kFarTogether * share * share * trials > kFarShareOfBudget * options.alarms_per_day)
    return false;
  const std::size_t count = member.recent.size();
  return count >= 2 && std::all_of(member.recent.end() - 2, member.recent.end(),
                                   [&](const Member::Recent& recent) {
                                     return recent.is_flagged &&
                                            recent.score > scorer->model().parts().far_cut;
                                   });
}

std::set<MemberKey> Detector::Impl::event_alarms(const std::vector<MemberKey>& present) const {
  std::set<MemberKey> out;
  for (const MemberKey key : present) {
    const Member& member = members.at(key);
    std::size_t clear = 0, of_short = 0, of_long = 0;
    for (std::size_t i = 0; i < member.recent.size(); ++i) {
      const Member::Recent& recent = member.recent[member.recent.size() - 1 - i];
      if (!recent.is_flagged) continue;
      clear += i < kShortWindows && recent.is_clear ? 1 : 0;
      of_short += i < kShortWindows ? 1 : 0;
      ++of_long;
    }
    const bool is_event = !member.recent.empty() && member.recent.back().is_event;
    if (is_event || is_far_out(member) || clear >= counts.of_short || of_short == kShortWindows ||
        of_long >= counts.of_long)
      out.insert(key);
  }
  return out;
}

Cube Detector::Impl::recent_cube(const std::vector<MemberKey>& present, std::size_t length) const {
  Cube out;
  out.columns = columns.size();
  for (std::size_t i = 0; i < present.size(); ++i)
    out.ranks.push_back(static_cast<std::int32_t>(i));
  out.values.assign(length * present.size() * columns.size(), kNan);
  for (std::size_t step = 0; step < length; ++step)
    out.times.push_back(static_cast<double>(step));
  for (std::size_t r = 0; r < present.size(); ++r) {
    const auto& recent = members.at(present[r]).recent;
    for (std::size_t back = 0; back < std::min(length, recent.size()); ++back) {
      const auto& row = recent[recent.size() - 1 - back].row;
      const std::size_t step = length - 1 - back;
      std::copy(row.begin(), row.end(),
                out.values.begin() +
                    static_cast<std::ptrdiff_t>((step * present.size() + r) * columns.size()));
    }
  }
  return out;
}

std::map<MemberKey, PeerFinding> Detector::Impl::peer_alarms(
    const std::vector<MemberKey>& present) {
  std::map<MemberKey, PeerFinding> out;
  const PeerModel& peers = scorer->model().parts().peers;
  if (peers.empty() || present.size() < 3 || !learn_offsets(present)) return out;
  const Cube cube = recent_cube(present, kShortWindows);
  std::vector<double> taken_off;
  for (const MemberKey key : present) {
    const std::vector<double>& own = offsets.at(key);
    taken_off.insert(taken_off.end(), own.begin(), own.end());
  }
  PeerWindow entries = peer_window(cube, {0, kShortWindows}, peers.scales, taken_off);
  std::vector<bool> is_judged(columns.size(), false);
  for (const Coordinate& coordinate : scorer->model().parts().coordinates)
    is_judged[coordinate.column] = true;
  for (std::size_t c = 0; c < columns.size(); ++c)
    for (std::size_t r = 0; r < present.size() && !is_judged[c]; ++r)
      entries.entries[r * columns.size() + c] = {};
  const PeerVerdict verdict = judge_peers(entries, present.size(), peers, false);
  for (std::size_t r = 0; r < present.size(); ++r) {
    Member& member = members.at(present[r]);
    const bool stands_out =
        member.recent.size() >= kShortWindows && member.windows >= kShortWindows &&
        std::find(verdict.ranks.begin(), verdict.ranks.end(), r) != verdict.ranks.end();
    member.peer_streak = stands_out ? member.peer_streak + 1 : 0;
    if (member.peer_streak < kWindowsInARow) continue;
    PeerFinding& finding = out[present[r]];
    finding.column = verdict.column;
    finding.deviation = entries.at(r, verdict.column).persistent;
    finding.others = window_median(cube, {0, kShortWindows}, verdict.column);
    std::vector<double> own;
    for (std::size_t step = 0; step < kShortWindows; ++step)
      if (const double value = cube.at(step, r, verdict.column); !std::isnan(value))
        own.push_back(value);
    finding.seen = own.empty() ? kNan : stats::median(own);
  }
  return out;
}

bool Detector::Impl::job_alarm(const std::vector<MemberKey>& present) {
  if (pace == columns.size()) return false;
  std::vector<double> values;
  for (const MemberKey key : present)
    if (const double value = members.at(key).recent.back().row[pace]; !std::isnan(value))
      values.push_back(value);
  if (values.empty()) return false;
  paces.push_back(stats::median(values));
  if (paces.size() > kLongWindows) paces.pop_front();
  if (paces.size() < kLongWindows) return false;
  // Three of four windows, so that a pause now and then is none.
  const std::vector<double> last(paces.begin(), paces.end());
  return stats::quantile(last, 0.25) > pace_cut;
}

/// Back over the flagged windows, with one that fits between two of them: windows farther apart may
/// be chance, and so may slightly odd ones before the first that is clearly so.
std::int64_t Detector::Impl::begin_of(std::int64_t wall_ns,
                                      const std::set<MemberKey>& alarmed) const {
  std::int64_t first = wall_ns, first_clear = wall_ns;
  for (const MemberKey key : alarmed) {
    const auto& recent = members.at(key).recent;
    std::size_t quiet = 0;
    for (auto it = recent.rbegin(); it != recent.rend() && quiet < kWindowsInARow; ++it) {
      quiet = it->is_flagged ? 0 : quiet + 1;
      if (!it->is_flagged) continue;
      const std::int64_t begin = it->wall_ns - options.window.count();
      first = std::min(first, begin);
      if (it->is_clear) first_clear = std::min(first_clear, begin);
    }
  }
  return first_clear < wall_ns ? first_clear : first;
}

void Detector::Impl::begin_incident(std::int64_t wall_ns, const std::set<MemberKey>& alarmed) {
  if (ended && wall_ns - ended->last_ns <= kEpisodePause.count()) {
    open = std::move(ended);
    open->set_end(0);
    open->quiet_windows = 0;
  } else {
    const std::int64_t begin = begin_of(wall_ns, alarmed);
    open.emplace(++last_episode, options.job, begin, slow_from(begin));
    for (const auto& [key, member] : members) {
      for (const Member::Recent& recent : member.recent) {
        if (recent.wall_ns <= begin && !recent.is_flagged)
          open->add_before(key, member, recent, scorer->model().parts());
        if (recent.wall_ns <= begin || recent.wall_ns >= wall_ns) continue;
        open->add_deviations(key, member, recent, scorer->model().parts());
        if (recent.is_flagged && alarmed.count(key) != 0) open->add(key, member, recent, *scorer);
      }
    }
  }
  ended.reset();
  pending.clear();
}

void Detector::Impl::end_incident(std::vector<Observation>& out) {
  open->set_end(open->last_ns);
  out.push_back(open->observed());
  const auto known = std::find_if(kept.begin(), kept.end(),
                                  [&](const Kept& one) { return one.episode == open->number(); });
  Kept now{open->number(), open->is_normal, open->rows, open->peer_deviations};
  if (known == kept.end()) {
    kept.push_back(std::move(now));
  } else {
    *known = std::move(now);
  }
  if (kept.size() > kKeptIncidents) kept.pop_front();
  ended = std::move(open);
  open.reset();
  paces.clear();  // the steps of an incident are no measure of later ones
}

/// Processes that ended make room for others.
void Detector::Impl::forget_gone(std::int64_t wall_ns) {
  const std::int64_t limit = kGoneWindows * options.window.count();
  for (auto it = members.begin(); it != members.end();) {
    const bool is_gone = wall_ns - it->second.last_ns > limit;
    if (is_gone) left.push_back(it->first);
    if (is_gone && it->first < 0) offsets.erase(it->first);  // no other process is that one
    it = is_gone ? members.erase(it) : std::next(it);
  }
}

/// True if no process of the windows was there before: the job was started anew.
bool Detector::Impl::is_another_run(std::span<const Window> taken) const {
  return !members.empty() && !taken.empty() &&
         std::all_of(taken.begin(), taken.end(), [&](const Window& window) {
           const auto known = members.find(key_of(window));
           return known == members.end() || known->second.pid != window.pid;
         });
}

/// The reports of a run are over with it, and say nothing of the next one.
void Detector::Impl::end_run(std::int64_t wall_ns, std::vector<Observation>& out) {
  if (open) end_incident(out);
  ended.reset();
  growth->finish(wall_ns, out);
  for (auto& [key, member] : members) {
    member.recent.clear();
    member.peer_streak = 0;
  }
  paces.clear();
}

std::vector<Observation> Detector::Impl::watch(std::int64_t wall_ns,
                                               std::span<const Window> taken) {
  std::vector<Observation> out;
  if (is_another_run(taken)) end_run(wall_ns, out);
  std::vector<MemberKey> present;
  for (const Window& window : taken) {
    if (members.size() >= kMembersMax && members.count(key_of(window)) == 0) {
      ++skipped;
      continue;
    }
    score(wall_ns, window);
    present.push_back(key_of(window));
  }
  std::sort(present.begin(), present.end());
  present.erase(std::unique(present.begin(), present.end()), present.end());
  if (present.empty()) return out;
  forget_gone(wall_ns);
  for (const MemberKey key : std::exchange(left, {}))
    growth->forget(wall_ns, key, out);
  apply_operator_label(wall_ns, out);
  if (members.size() != counts_for) choose_alarm_counts();
  for (const Window& window : taken)
    if (members.count(key_of(window)) != 0) growth->on_window(wall_ns, window, out);
  if (sees_unknown_steps(present)) {
    learn_anew(out);
    return out;
  }
  const Alarms alarms{event_alarms(present), peer_alarms(present), job_alarm(present)};
  if (alarms.are_sudden()) end_incident_of_another_fault(wall_ns, present, alarms, out);
  bool is_restart = false;
  if (!open && (alarms.are_sudden() || alarms.is_job_slow)) {
    is_restart = ended && wall_ns - ended->last_ns <= kEpisodePause.count();
    std::set<MemberKey> alarmed = alarms.events;
    for (const auto& [key, finding] : alarms.peers)
      alarmed.insert(key);
    begin_incident(wall_ns, alarmed);
  }
  if (!open) {
    keep_healthy(present);
    return out;
  }
  const bool is_alive = add_windows_to_incident(present, alarms);
  if (open->update(columns, present.size()) || is_restart) out.push_back(open->observed());
  open->quiet_windows = is_alive ? 0 : open->quiet_windows + 1;
  if (open->quiet_windows < kSettleWindows) return out;
  end_incident(out);
  forget_flags();
  return out;
}

/// The last windows of all processes go into the open incident. True if they speak for it.
bool Detector::Impl::add_windows_to_incident(const std::vector<MemberKey>& present,
                                             const Alarms& alarms) {
  ++open->windows;
  // A job that is slower than it was keeps no sudden incident open: it is one of its own.
  bool is_alive =
      !alarms.peers.empty() || (alarms.is_job_slow && !alarms.are_sudden() && !open->is_sudden());
  for (const MemberKey key : present) {
    const Member& member = members.at(key);
    const Member::Recent& last = member.recent.back();
    if (member.recent.size() >= kWindowsInARow)
      open->raise_worst_levels(key, levels_of((member.recent.end() - kWindowsInARow)->row));
    open->add_deviations(key, member, last, scorer->model().parts());
    open->has_event = open->has_event || last.is_event;
    if (alarms.events.count(key) != 0) open->include(key, member);
    const auto found = alarms.peers.find(key);
    const bool is_peer = found != alarms.peers.end();
    if (is_peer) {
      open->include(key, member, found->second);
      double& most = open->peer_deviations[found->second.column];
      most = std::max(most, std::fabs(found->second.deviation));
    }
    // If single windows do not stand out, the tests over many speak for the last one.
    const bool is_event = open->has_test("event") || !alarms.events.empty();
    const bool is_sign = member.is_flagged && open->speaks_for_it(last, excess_of(last));
    const bool counts_here = is_sign || (!is_event && is_peer) ||
                             (alarms.is_job_slow && !is_event && alarms.peers.empty());
    if (!counts_here) continue;
    if (open->has(key)) is_alive = true;
    open->add(key, member, last, *scorer);
  }
  if (!alarms.events.empty()) open->add_test("event");
  if (!alarms.peers.empty()) open->add_test("rank");
  if (alarms.is_job_slow) open->add_test("job");
  return is_alive;
}

/// True if the present alarms may be the incident that ended a moment ago: one of the processes
/// whose windows alarm is as odd, or a rank stands out of its peers.
bool Detector::Impl::continues_incident(const Episode& incident, const Alarms& alarms) const {
  return !alarms.peers.empty() ||
         std::any_of(alarms.events.begin(), alarms.events.end(), [&](const MemberKey key) {
           const Member::Recent& last = members.at(key).recent.back();
           return last.is_flagged && incident.speaks_for_it(last, excess_of(last));
         });
}

/// Ends the incident that is open, or forgets the last one, if the present fault is another one.
void Detector::Impl::end_incident_of_another_fault(std::int64_t wall_ns,
                                                   const std::vector<MemberKey>& present,
                                                   const Alarms& alarms,
                                                   std::vector<Observation>& out) {
  if (open && !open->is_sudden()) {  // more than a job that has become slower
    end_incident(out);
    ended.reset();
  } else if (open && open->windows >= kWindowsToUnfold && is_another(*open, present)) {
    // Its evidence may hold the first window of the other one, its time does not.
    const auto windows_of_other = static_cast<std::int64_t>(kWindowsInARow);
    open->last_ns =
        std::max(open->begin_ns(),
                 std::min(open->last_ns, wall_ns - windows_of_other * options.window.count()));
    end_incident(out);
    ended.reset();
    for (auto& [key, member] : members) {  // earlier windows belong to the other one
      for (std::size_t i = 0; i + kWindowsInARow < member.recent.size(); ++i)
        member.recent[i].is_flagged = member.recent[i].is_event = false;
    }
  } else if (!open && ended &&
             (is_another(*ended, present) || !continues_incident(*ended, alarms))) {
    ended.reset();
  }
}

/// Flags that were reported are not reported again.
void Detector::Impl::forget_flags() {
  for (auto& [key, member] : members) {
    for (Member::Recent& recent : member.recent)
      recent.is_flagged = recent.is_event = false;
    member.peer_streak = 0;
  }
}

/// An incident that the operator calls normal while it lasts ends here and is learnt at once, or as
/// soon as there is enough of it: it might last for ever.
void Detector::Impl::apply_operator_label(std::int64_t wall_ns, std::vector<Observation>& out) {
  growth->end_normal(wall_ns, out);
  if (!open || !open->is_normal || !can_learn(open->rows.size())) return;
  end_incident(out);
  ended.reset();
  forget_flags();
  refresh();
}

Detector::Detector(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Detector::Detector(Detector&&) noexcept = default;
Detector& Detector::operator=(Detector&&) noexcept = default;
Detector::~Detector() = default;

Result<Detector> Detector::create(std::span<const Feature> features, DetectorOptions options,
                                  std::optional<JobModel> model) {
  if (options.window.count() <= 0 || !(options.alarms_per_day > 0))
    return Error{Code::kUnsupported, "detector: the window or the alarm budget is not positive"};
  auto impl = std::make_unique<Impl>();
  for (const Feature& feature : features) {
    impl->columns.push_back(column_of(feature));
    impl->worse.push_back(feature.worse);
  }
  impl->options = std::move(options);
  impl->growth.emplace(impl->columns, impl->options.job, impl->last_episode);
  if (!model) return Detector(std::move(impl));
  const auto& columns = model->parts().columns;
  const auto is_same = [](const Column& a, const Column& b) {
    return a.name == b.name && a.unit == b.unit && a.scale == b.scale && a.floor == b.floor &&
           a.use == b.use;
  };
  if (!std::equal(columns.begin(), columns.end(), impl->columns.begin(), impl->columns.end(),
                  is_same)) {
    return Error{Code::kUnsupported, "detector: the stored model is of other features",
                 "it was made by another version; let it be learnt anew"};
  }
  const double window_s = static_cast<double>(impl->options.window.count()) * 1e-9;
  if (model->parts().window_s > 0 && model->parts().window_s != window_s) {
    return Error{Code::kUnsupported,
                 fmt::format("detector: the stored model is of windows of {} s, not of {} s",
                             model->parts().window_s, window_s),
                 "let it be learnt anew"};
  }
  impl->start_watching(std::move(*model));
  return Detector(std::move(impl));
}

std::vector<Observation> Detector::on_windows(std::int64_t wall_ns,
                                              std::span<const Window> windows) {
  Impl& self = *impl_;
  if (wall_ns <= self.last_ns) {
    self.skipped += windows.size();
    return {};
  }
  std::vector<Observation> out;
  const bool has_past = self.last_ns != std::numeric_limits<std::int64_t>::min();
  if (has_past && wall_ns - self.last_ns >
                      static_cast<std::int64_t>(kLongWindows) * self.options.window.count()) {
    if (self.open) self.end_incident(out);
    for (auto& [key, member] : self.members) {
      member.recent.clear();
      member.peer_streak = 0;
    }
    self.paces.clear();
  }
  self.last_ns = wall_ns;
  std::vector<Window> taken;
  for (const Window& window : windows) {
    if (window.values.size() != self.columns.size()) {
      ++self.skipped;
      continue;
    }
    taken.push_back(window);
    for (double& value : taken.back().values)
      if (!std::isfinite(value)) value = kNan;
  }
  if (self.state == State::kLearning) {
    if (!taken.empty()) self.learn(taken);
    return out;
  }
  auto told = self.watch(wall_ns, taken);
  out.insert(out.end(), told.begin(), told.end());
  return out;
}

std::vector<Observation> Detector::finish(std::int64_t wall_ns) {
  std::vector<Observation> out;
  impl_->end_run(wall_ns, out);
  return out;
}

bool Detector::take_label(std::uint64_t episode, bool is_normal) {
  Impl& self = *impl_;
  bool is_known = self.growth->take_label(episode, is_normal);
  for (std::optional<Episode>* one : {&self.open, &self.ended}) {  // an ended one may go on
    if (!*one || (*one)->number() != episode) continue;
    (*one)->is_normal = is_normal;
    is_known = true;
  }
  for (Impl::Kept& one : self.kept) {
    if (one.episode != episode) continue;
    one.is_normal = is_normal;
    is_known = true;
  }
  return is_known;
}

Detector::Status Detector::status() const {
  const Impl& self = *impl_;
  Status out;
  out.state = self.state;
  out.learned = self.state == State::kWatching
                    ? 1
                    : std::min(1.0, static_cast<double>(self.learnt_windows) /
                                        static_cast<double>(self.learn_windows()));
  out.threshold = self.scorer ? self.scorer->model().parts().threshold : 0;
  for (const auto& [key, member] : self.members)
    out.ranks.push_back(
        {member.rank, member.pid, self.scorer ? member.score : kNan, member.is_flagged});
  out.alarms_per_day = self.counts.per_day;
  out.alarms_low = self.counts.low;
  out.alarms_high = self.counts.high;
  out.windows = self.windows;
  out.flagged = self.flagged;
  out.skipped = self.skipped;
  out.refreshes = self.refreshes;
  out.failed_fits = self.failed_fits;
  out.fit_problem = self.fit_problem;
  return out;
}

const JobModel* Detector::model() const {
  return impl_->scorer ? &impl_->scorer->model() : nullptr;
}

}  // namespace kansoku::detect
