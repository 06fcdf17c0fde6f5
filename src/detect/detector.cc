// SPDX-License-Identifier: Apache-2.0
#include "detect/detector.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "detect/internal/growth_watch.h"
#include "detect/internal/thresholds.h"
#include "detect/internal/watch_state.h"
#include "detect/run_score.h"
#include "stats/summary.h"

namespace kansoku::detect {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kMembersMax = 1024;
constexpr std::size_t kLearnRowsMax = 200'000;
constexpr std::int64_t kGapWindows = 30;   // without data: histories begin anew
constexpr std::size_t kQuietWindows = 10;  // that end an incident
// Another fault than the one that is told: in so many windows in a row a feature is so many times
// its cut, and so many times as far from normal as it was at any time before in this incident. What
// an incident shows in its first windows is how it unfolds.
constexpr std::size_t kWindowsOfAnother = 2, kWindowsToUnfold = 5;
constexpr double kLevelOfAnother = 1.5, kTimesWorse = 2;
constexpr std::size_t kPendingWindows = 60;  // before a window counts as healthy
constexpr std::size_t kRefreshFirst = 600, kRefreshLast = 4800;  // windows; doubling in between
constexpr std::int64_t kGoneWindows = 300;
constexpr std::size_t kHealthyRowsMax = 1500, kRefreshRowsMin = 200,
                      kWordRowsMin = 75;  // with rows that the operator calls normal
constexpr double kRefreshShare = 0.3;
constexpr int kPeerStreak = 2;
constexpr std::uint64_t kYoungWindows = 10;
constexpr double kFarPointsMin = 400, kFarTogether = 10, kFarShareOfBudget = 0.1;
constexpr std::size_t kGapInAlarm = 2;
constexpr double kForTheWorse = 2;   // spreads
constexpr double kPeerShare = 0.05;  // of a column's median: the least scale between ranks
constexpr double kSpreadMin = 0.1;   // a tenth more or less is nobody's concern by itself
constexpr double kPaceSlower = 1.10, kPaceSpreads = 3;
constexpr std::size_t kKeptIncidents = 16;
constexpr double kNanosOfDay = 86400e9;

/// Above it a job is slower than it was.
double cut_of(const Pace& normal) {
  return normal.median *
         std::max(kPaceSlower, 1 + kPaceSpreads * (normal.high / normal.median - 1));
}

}  // namespace

struct Detector::Impl {
  std::vector<Column> columns;
  std::vector<int> worse;  // of each column, as in Feature
  DetectorOptions options;
  State state{State::kLearning};
  std::int64_t last_ns{std::numeric_limits<std::int64_t>::min()};
  std::uint64_t windows{0}, flagged{0}, skipped{0}, refreshes{0};

  Table learning;
  std::size_t learnt_windows{0};

  std::optional<Scorer> scorer;
  std::map<MemberKey, Member> members;
  std::map<MemberKey, std::vector<double>> offsets;  // by column
  AlarmCounts counts;
  std::size_t counts_for{0};  // members that they were chosen for
  HealthyFlags healthy_flags;
  double far_flags{0}, far_points{0};  // the same of single windows above the model's far_cut
  std::size_t pace{0};
  std::deque<double> paces;
  double pace_cut{0};

  std::optional<OpenIncident> open;
  std::optional<OpenIncident> ended;  // for the pause
  struct Kept {
    std::string id, label;
    std::vector<double> rows;
  };
  std::deque<Kept> kept;
  std::optional<GrowthWatch> growth;
  std::vector<MemberKey> left;  // processes that ended since the last window

  /// All ranks at one time, while it may yet turn out that they were ill.
  struct Pending {
    std::vector<double> rows;
    HealthyFlags seen;
    double far_flags{0};
  };
  std::deque<Pending> pending;
  std::deque<std::vector<double>> healthy;  // rows
  std::size_t since_refresh{0}, refresh_after{kRefreshFirst};

  /// What the tests say of the last window.
  struct Alarms {
    std::set<MemberKey> events;  // that stand out of their own history
    std::map<MemberKey, PeerFinding> peers;
    bool is_job_slow{false};
    [[nodiscard]] bool are_sudden() const { return !events.empty() || !peers.empty(); }
  };

  [[nodiscard]] std::size_t learn_windows() const {
    const auto window = std::max<std::int64_t>(1, options.window.count());
    return static_cast<std::size_t>(
        std::max<std::int64_t>(40, options.learn_time.count() / window));
  }
  void learn(std::span<const Window> taken);
  void finish_learning();
  void start_watching(JobModel model);
  void take_offsets(MemberKey key, std::span<const double> all, std::size_t index);
  void choose_alarm_counts();

  std::vector<trace::IncidentRecord> watch(std::int64_t wall_ns, std::span<const Window> taken);
  void score(std::int64_t wall_ns, const Window& window);
  [[nodiscard]] bool has_event(std::span<const double> row) const;
  [[nodiscard]] bool is_for_the_worse(std::span<const double> row) const;
  [[nodiscard]] bool is_beyond_cuts(std::span<const double> row) const;
  [[nodiscard]] std::vector<double> levels_of(std::span<const double> row) const;
  [[nodiscard]] bool is_another(const OpenIncident& incident,
                                const std::vector<MemberKey>& present) const;
  [[nodiscard]] bool goes_on(const OpenIncident& incident, const Alarms& alarms) const;
  [[nodiscard]] double excess_of(const Member::Recent& recent) const {
    return recent.score - scorer->model().parts().threshold;
  }
  [[nodiscard]] bool is_far_out(const Member& member) const;
  std::set<MemberKey> event_alarms(const std::vector<MemberKey>& present) const;
  std::map<MemberKey, PeerFinding> peer_alarms(const std::vector<MemberKey>& present);
  bool job_alarm(const std::vector<MemberKey>& present);
  void take_operators_word(std::int64_t wall_ns, std::vector<trace::IncidentRecord>& out);
  void make_way(std::int64_t wall_ns, const std::vector<MemberKey>& present, const Alarms& alarms,
                std::vector<trace::IncidentRecord>& out);
  bool take_evidence(const std::vector<MemberKey>& present, const Alarms& alarms);
  void forget_flags();
  [[nodiscard]] std::int64_t begin_of(std::int64_t wall_ns,
                                      const std::set<MemberKey>& alarmed) const;
  void begin_incident(std::int64_t wall_ns, const std::set<MemberKey>& alarmed);
  void end_incident(std::vector<trace::IncidentRecord>& out);
  void keep_healthy(const std::vector<MemberKey>& present);
  void forget_gone(std::int64_t wall_ns);
  [[nodiscard]] bool can_learn(std::size_t labelled_values) const;
  void refresh();
  void learn_pace(std::span<const double> rows, JobModel& model);
  [[nodiscard]] Cube recent_cube(const std::vector<MemberKey>& present) const;
};

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
  const auto cube = make_cube(learning);
  JobModel::Key key = options.key;
  if (key.command.empty()) {
    key.command = options.job;
    key.world_size = static_cast<std::int32_t>(members.size());
  }
  auto model = cube ? JobModel::fit(*cube, columns, fit, key) : Result<JobModel>(cube.error());
  if (!model) {  // too little, or nothing that holds still: look longer
    learning = Table{};
    members.clear();
    learnt_windows = 0;
    return;
  }
  const Range steady{cube->steps() / 10, cube->steps()};
  JobModel::Parts parts = model->parts();
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

void Detector::Impl::take_offsets(MemberKey key, std::span<const double> all, std::size_t index) {
  const auto own = all.subspan(index * columns.size(), columns.size());
  offsets[key].assign(own.begin(), own.end());
}

void Detector::Impl::start_watching(JobModel model) {
  const JobModel::Parts& parts = model.parts();
  for (std::size_t i = 0; i < parts.peers.ranks.size(); ++i)
    take_offsets(parts.peers.ranks[i], parts.peers.offsets, i);
  pace = columns.size();
  for (const std::string_view name : {"decode_mean", "step_mean"})
    for (std::size_t c = 0; c < columns.size(); ++c)
      if (columns[c].name == name && parts.paces.size() == columns.size() &&
          parts.paces[c].median > 0)
        pace = c;
  if (pace < columns.size()) pace_cut = cut_of(parts.paces[pace]);
  healthy_flags = {parts.measured_points, parts.measured_flags, parts.measured_clear};
  far_flags = 0;
  far_points = parts.far_points;
  scorer.emplace(std::move(model), options.seed);
  members.clear();
  counts_for = 0;
  state = State::kWatching;
}

void Detector::Impl::choose_alarm_counts() {
  const double per_day = kNanosOfDay / static_cast<double>(options.window.count());
  counts_for = members.size();
  counts = choose_counts(healthy_flags, scorer->model().parts().correlation,
                         static_cast<double>(counts_for), per_day, options.alarms_per_day);
}

/// An error that hardware reports needs no statistics, unless it was there while all was well.
bool Detector::Impl::has_event(std::span<const double> row) const {
  const JobModel::Parts& parts = scorer->model().parts();
  for (const Coordinate& coordinate : parts.coordinates) {
    if (columns[coordinate.column].use != Use::kEvent) continue;
    if (row[coordinate.column] > 0 && coordinate.value_of(0, columns[coordinate.column]) <= 0)
      return true;
  }
  return false;
}

/// A job that runs faster than it did is no incident, however odd it is.
bool Detector::Impl::is_for_the_worse(std::span<const double> row) const {
  for (const Coordinate& coordinate : scorer->model().parts().coordinates) {
    const double deviation = coordinate.of(row[coordinate.column], columns[coordinate.column]);
    if (worse[coordinate.column] * deviation > kForTheWorse) return true;
  }
  return false;
}

/// Whether a single feature goes to the worse as far as it never does in health.
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

/// Whether the last windows of a process show another fault than `incident`: something far worse,
/// or the first error that hardware reports.
bool Detector::Impl::is_another(const OpenIncident& incident,
                                const std::vector<MemberKey>& present) const {
  for (const MemberKey key : present) {
    const Member& member = members.at(key);
    const auto& recent = member.recent;
    if (recent.back().is_event && !incident.has_event) return true;
    const std::vector<double>* const worst = incident.worst_of(key);
    const bool is_settled = member.windows > kYoungWindows + kWindowsOfAnother;
    if (worst == nullptr || !is_settled || recent.size() < kWindowsOfAnother) continue;
    std::vector<double> least(worst->size(), 1e300);
    for (auto it = recent.end() - kWindowsOfAnother; it != recent.end(); ++it) {
      const std::vector<double> levels = levels_of(it->row);
      for (std::size_t i = 0; i < least.size(); ++i)
        least[i] = std::isnan(levels[i]) ? 0 : std::min(least[i], levels[i]);
    }
    // What was not seen in this incident before may have been as bad all along.
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
  // What starts is not yet as it will be: libraries load, the first windows are no whole ones.
  const bool is_settled = ++member.windows > kYoungWindows;
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

Cube Detector::Impl::recent_cube(const std::vector<MemberKey>& present) const {
  Cube out;
  out.columns = columns.size();
  for (std::size_t i = 0; i < present.size(); ++i)
    out.ranks.push_back(static_cast<std::int32_t>(i));
  out.values.assign(kShortWindows * present.size() * columns.size(), kNan);
  for (std::size_t step = 0; step < kShortWindows; ++step)
    out.times.push_back(static_cast<double>(step));
  for (std::size_t r = 0; r < present.size(); ++r) {
    const auto& recent = members.at(present[r]).recent;
    for (std::size_t back = 0; back < std::min(kShortWindows, recent.size()); ++back) {
      const auto& row = recent[recent.size() - 1 - back].row;
      const std::size_t step = kShortWindows - 1 - back;
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
  if (peers.empty() || present.size() < 3) return out;
  const Cube cube = recent_cube(present);
  std::vector<double> taken_off;
  for (const MemberKey key : present) {
    const auto found = offsets.find(key);
    if (found == offsets.end()) {
      taken_off.insert(taken_off.end(), columns.size(), 0.0);
    } else {
      taken_off.insert(taken_off.end(), found->second.begin(), found->second.end());
    }
  }
  PeerWindow entries = peer_window(cube, {0, kShortWindows}, peers.scales, taken_off);
  for (std::size_t c = 0; c < columns.size(); ++c)
    for (std::size_t r = 0; r < present.size() && !is_modelled(columns[c].use); ++r)
      entries.entries[r * columns.size() + c] = {};
  const PeerVerdict verdict = judge_peers(entries, present.size(), peers, false);
  for (std::size_t r = 0; r < present.size(); ++r) {
    Member& member = members.at(present[r]);
    const bool stands_out =
        member.recent.size() >= kShortWindows &&
        std::find(verdict.ranks.begin(), verdict.ranks.end(), r) != verdict.ranks.end();
    member.peer_streak = stands_out ? member.peer_streak + 1 : 0;
    if (member.peer_streak < kPeerStreak) continue;
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

/// Back over the flagged windows, with one that fits between two of them: what lies farther apart
/// may be chance, and so may what is hardly odd before the first that is clearly so.
std::int64_t Detector::Impl::begin_of(std::int64_t wall_ns,
                                      const std::set<MemberKey>& alarmed) const {
  std::int64_t first = wall_ns, first_clear = wall_ns;
  for (const MemberKey key : alarmed) {
    const auto& recent = members.at(key).recent;
    std::size_t quiet = 0;
    for (auto it = recent.rbegin(); it != recent.rend() && quiet < kGapInAlarm; ++it) {
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
  if (ended && wall_ns - ended->last_ns <= kIncidentPause.count()) {
    open = std::move(ended);
    open->record().end_ns = 0;
    open->quiet_windows = 0;
  } else {
    const std::int64_t begin = begin_of(wall_ns, alarmed);
    open.emplace(options, begin);
    for (const auto& [key, member] : members) {
      for (const Member::Recent& recent : member.recent) {
        if (recent.wall_ns <= begin || recent.wall_ns >= wall_ns) continue;
        open->look(key, member, recent, scorer->model().parts());
        if (recent.is_flagged && alarmed.count(key) != 0) open->add(key, member, recent, *scorer);
      }
    }
  }
  ended.reset();
  pending.clear();
}

void Detector::Impl::end_incident(std::vector<trace::IncidentRecord>& out) {
  open->record().end_ns = open->last_ns;
  out.push_back(open->record());
  const std::string& id = open->record().id;
  const auto known =
      std::find_if(kept.begin(), kept.end(), [&](const Kept& one) { return one.id == id; });
  if (known == kept.end()) {
    kept.push_back({id, open->record().label, open->rows});
  } else {
    known->rows = open->rows;
  }
  if (kept.size() > kKeptIncidents) kept.pop_front();
  ended = std::move(open);
  open.reset();
  paces.clear();  // the steps of an incident are no measure of what comes after it
}

void Detector::Impl::keep_healthy(const std::vector<MemberKey>& present) {
  Pending moment;
  for (const MemberKey key : present) {
    const Member::Recent& recent = members.at(key).recent.back();
    moment.rows.insert(moment.rows.end(), recent.row.begin(), recent.row.end());
    moment.seen.points += 1;
    moment.seen.flags += recent.is_flagged ? 1 : 0;
    moment.seen.clear += recent.is_clear ? 1 : 0;
    moment.far_flags += recent.is_flagged && recent.score > scorer->model().parts().far_cut ? 1 : 0;
  }
  pending.push_back(std::move(moment));
  if (pending.size() <= kPendingWindows) return;
  const Pending safe = std::move(pending.front());
  pending.pop_front();
  healthy_flags.points += safe.seen.points;
  healthy_flags.flags += safe.seen.flags;
  healthy_flags.clear += safe.seen.clear;
  far_points += safe.seen.points;
  far_flags += safe.far_flags;
  for (std::size_t i = 0; i + columns.size() <= safe.rows.size(); i += columns.size()) {
    const auto from = safe.rows.begin() + static_cast<std::ptrdiff_t>(i);
    healthy.emplace_back(from, from + static_cast<std::ptrdiff_t>(columns.size()));
    if (healthy.size() > kHealthyRowsMax) healthy.pop_front();
  }
  if (++since_refresh >= refresh_after) refresh();
}

/// Processes that ended make room for others.
void Detector::Impl::forget_gone(std::int64_t wall_ns) {
  const std::int64_t limit = kGoneWindows * options.window.count();
  for (auto it = members.begin(); it != members.end();) {
    const bool is_gone = wall_ns - it->second.last_ns > limit;
    if (is_gone) left.push_back(it->first);
    it = is_gone ? members.erase(it) : std::next(it);
  }
}

/// A refresh leaves the job's speed alone, so that it cannot creep; what the operator calls normal
/// is.
void Detector::Impl::learn_pace(std::span<const double> rows, JobModel& model) {
  if (pace == columns.size()) return;
  std::vector<double> values;
  for (std::size_t i = 0; i + columns.size() <= rows.size(); i += columns.size())
    if (const double value = rows[i + pace]; !std::isnan(value)) values.push_back(value);
  if (values.empty() || stats::median(values) <= pace_cut / kPaceSlower) return;
  JobModel::Parts parts = model.parts();
  parts.paces[pace] = {stats::median(values), stats::quantile(values, 0.25),
                       stats::quantile(values, 0.75)};
  const double cut = cut_of(parts.paces[pace]);
  auto changed = JobModel::from_parts(std::move(parts));
  if (!changed) return;
  model = std::move(*changed);
  pace_cut = cut;
}

/// Without the operator's word a refresh can wait until there is more to learn from.
bool Detector::Impl::can_learn(std::size_t labelled_values) const {
  const std::size_t least = labelled_values > 0 ? kWordRowsMin : kRefreshRowsMin;
  return labelled_values + healthy.size() * columns.size() >= least * columns.size();
}

void Detector::Impl::refresh() {
  since_refresh = 0;
  std::vector<double> rows;
  for (const Kept& one : kept)
    if (one.label == "false") rows.insert(rows.end(), one.rows.begin(), one.rows.end());
  if (!can_learn(rows.size())) return;
  for (const auto& row : healthy)
    rows.insert(rows.end(), row.begin(), row.end());
  auto model = scorer->model().refresh(rows, kRefreshShare, options.seed + refreshes);
  if (!model) return;
  for (Kept& one : kept) {
    if (one.label != "false") continue;
    learn_pace(one.rows, *model);
    one.rows.clear();
  }
  ++refreshes;
  refresh_after = std::min(2 * refresh_after, kRefreshLast);
  scorer.emplace(std::move(*model), options.seed);
  choose_alarm_counts();
}

std::vector<trace::IncidentRecord> Detector::Impl::watch(std::int64_t wall_ns,
                                                         std::span<const Window> taken) {
  std::vector<trace::IncidentRecord> out;
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
  take_operators_word(wall_ns, out);
  if (members.size() != counts_for) choose_alarm_counts();
  for (const Window& window : taken)
    if (members.count(key_of(window)) != 0) growth->look(wall_ns, window, out);
  const Alarms alarms{event_alarms(present), peer_alarms(present), job_alarm(present)};
  if (alarms.are_sudden()) make_way(wall_ns, present, alarms, out);
  bool is_restart = false;
  if (!open && (alarms.are_sudden() || alarms.is_job_slow)) {
    is_restart = ended && wall_ns - ended->last_ns <= kIncidentPause.count();
    std::set<MemberKey> alarmed = alarms.events;
    for (const auto& [key, finding] : alarms.peers)
      alarmed.insert(key);
    begin_incident(wall_ns, alarmed);
  }
  if (!open) {
    keep_healthy(present);
    return out;
  }
  const bool is_alive = take_evidence(present, alarms);
  const bool is_new = open->record().id.empty();
  if (open->update(columns, present.size()) || is_new || is_restart) out.push_back(open->record());
  open->quiet_windows = is_alive ? 0 : open->quiet_windows + 1;
  if (open->quiet_windows < kQuietWindows) return out;
  end_incident(out);
  forget_flags();
  return out;
}

/// The last windows of all processes go into the open incident. True if they speak for it.
bool Detector::Impl::take_evidence(const std::vector<MemberKey>& present, const Alarms& alarms) {
  ++open->windows;
  // A job that is slower than it was keeps no sudden incident open: it is one of its own.
  bool is_alive =
      !alarms.peers.empty() || (alarms.is_job_slow && !alarms.are_sudden() && !open->is_sudden());
  for (const MemberKey key : present) {
    const Member& member = members.at(key);
    const Member::Recent& last = member.recent.back();
    if (member.recent.size() >= kWindowsOfAnother)
      open->saw(key, levels_of((member.recent.end() - kWindowsOfAnother)->row));
    open->look(key, member, last, scorer->model().parts());
    open->has_event = open->has_event || last.is_event;
    if (alarms.events.count(key) != 0) open->include(key, member);
    const auto found = alarms.peers.find(key);
    const bool is_peer = found != alarms.peers.end();
    if (is_peer) open->include(key, member, found->second);
    // Where single windows do not stand out, the tests over many speak for the last one.
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

/// Whether what is told now may be the incident that ended a moment ago: one of the processes whose
/// windows alarm is as odd, or a rank stands out of its peers.
bool Detector::Impl::goes_on(const OpenIncident& incident, const Alarms& alarms) const {
  return !alarms.peers.empty() ||
         std::any_of(alarms.events.begin(), alarms.events.end(), [&](const MemberKey key) {
           const Member::Recent& last = members.at(key).recent.back();
           return last.is_flagged && incident.speaks_for_it(last, excess_of(last));
         });
}

/// Ends the incident that is open, or forgets the last one, where what is seen now is another
/// fault.
void Detector::Impl::make_way(std::int64_t wall_ns, const std::vector<MemberKey>& present,
                              const Alarms& alarms, std::vector<trace::IncidentRecord>& out) {
  if (open && !open->is_sudden()) {  // more than a job that has become slower
    end_incident(out);
    ended.reset();
  } else if (open && open->windows >= kWindowsToUnfold && is_another(*open, present)) {
    // Its evidence may hold the first window of the other one, its time does not.
    const auto windows_of_other = static_cast<std::int64_t>(kWindowsOfAnother);
    open->last_ns =
        std::max(open->record().begin_ns,
                 std::min(open->last_ns, wall_ns - windows_of_other * options.window.count()));
    end_incident(out);
    ended.reset();
    for (auto& [key, member] : members) {  // what came before belongs to the other one
      for (std::size_t i = 0; i + kWindowsOfAnother < member.recent.size(); ++i)
        member.recent[i].is_flagged = member.recent[i].is_event = false;
    }
  } else if (!open && ended && (is_another(*ended, present) || !goes_on(*ended, alarms))) {
    ended.reset();
  }
}

/// What is told is not told again.
void Detector::Impl::forget_flags() {
  for (auto& [key, member] : members) {
    for (Member::Recent& recent : member.recent)
      recent.is_flagged = recent.is_event = false;
    member.peer_streak = 0;
  }
}

/// What the operator calls normal while it lasts ends here and is learnt at once, or as soon as
/// there is enough of it: it might last for ever.
void Detector::Impl::take_operators_word(std::int64_t wall_ns,
                                         std::vector<trace::IncidentRecord>& out) {
  growth->take_operators_word(wall_ns, out);
  if (!open || open->record().label != "false" || !can_learn(open->rows.size())) return;
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
  impl->growth.emplace(impl->columns, impl->options);
  if (!model) return Detector(std::move(impl));
  const auto& columns = model->parts().columns;
  const auto is_same = [](const Column& a, const Column& b) {
    return a.name == b.name && a.unit == b.unit && a.scale == b.scale;
  };
  if (!std::equal(columns.begin(), columns.end(), impl->columns.begin(), impl->columns.end(),
                  is_same)) {
    return Error{Code::kUnsupported, "detector: the stored model is of other features",
                 "it was made by another version; let it be learnt anew"};
  }
  impl->start_watching(std::move(*model));
  return Detector(std::move(impl));
}

std::vector<trace::IncidentRecord> Detector::on_windows(std::int64_t wall_ns,
                                                        std::span<const Window> windows) {
  Impl& self = *impl_;
  if (wall_ns <= self.last_ns) {
    self.skipped += windows.size();
    return {};
  }
  std::vector<trace::IncidentRecord> out;
  const bool has_past = self.last_ns != std::numeric_limits<std::int64_t>::min();
  if (has_past && wall_ns - self.last_ns > kGapWindows * self.options.window.count()) {
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

std::vector<trace::IncidentRecord> Detector::finish(std::int64_t wall_ns) {
  Impl& self = *impl_;
  std::vector<trace::IncidentRecord> out;
  if (self.open) self.end_incident(out);
  self.growth->finish(wall_ns, out);
  return out;
}

bool Detector::label(std::string_view incident_id, std::string_view label) {
  Impl& self = *impl_;
  bool is_known = self.growth->label(incident_id, label);
  if (self.open && self.open->record().id == incident_id) {
    self.open->record().label = label;
    is_known = true;
  }
  if (self.ended && self.ended->record().id == incident_id) {  // it may go on
    self.ended->record().label = label;
    is_known = true;
  }
  for (Impl::Kept& one : self.kept) {
    if (one.id != incident_id) continue;
    one.label = label;
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
  if (self.open) out.open = self.open->record();
  out.growing = self.growth->open();
  return out;
}

const JobModel* Detector::model() const {
  return impl_->scorer ? &impl_->scorer->model() : nullptr;
}

}  // namespace kansoku::detect
