// SPDX-License-Identifier: Apache-2.0
#include "incident/book.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "sys/fd.h"

namespace kansoku::incident {
namespace {

using trace::IncidentEvent;
using trace::IncidentLabel;
using trace::IncidentRecord;

constexpr Nanos kAliveEvery = std::chrono::seconds{10};

struct Transition {
  State next;
  IncidentEvent event;
};
// By state, then by what is seen: it goes on without and with an effect, it is over without and
// with one. An incident that was paged for once is never merely noted again.
using S = State;
using E = IncidentEvent;
constexpr std::array<Transition, 4> kNotToldYet{{{S::kNoted, E::kNoted},
                                                 {S::kOpen, E::kOpened},
                                                 {S::kNotedOver, E::kNoted},
                                                 {S::kOver, E::kClosed}}};
constexpr std::array<Transition, 4> kIsOpen{{{S::kOpen, E::kChanged},
                                             {S::kOpen, E::kChanged},
                                             {S::kOver, E::kClosed},
                                             {S::kOver, E::kClosed}}};
constexpr std::array<Transition, 4> kIsOver{{{S::kOpen, E::kReopened},
                                             {S::kOpen, E::kReopened},
                                             {S::kOver, E::kClosed},
                                             {S::kOver, E::kClosed}}};

const std::array<Transition, 4>& transitions_of(State state) {
  switch (state) {
    case State::kNew:
    case State::kNoted:
    case State::kNotedOver:
      return kNotToldYet;
    case State::kOpen:
    case State::kUnclaimed:
      return kIsOpen;
    case State::kOver:
      break;
  }
  return kIsOver;
}

bool is_over(State state) {
  return state == State::kOver || state == State::kNotedOver;
}

bool is_growth(const IncidentRecord& one) {
  return std::find(one.tests.begin(), one.tests.end(), "growth") != one.tests.end();
}

constexpr std::array<std::string_view, 5> kSources{"detector", "growth", "hardware", "iterations",
                                                   "stuck"};

/// True if an observation of the source may be the rest of the incident.
bool may_be_of(const IncidentRecord& one, Source source) {
  if ((one.kind == trace::IncidentKind::kStuckKernel) != (source == Source::kStuck)) return false;
  return is_growth(one) == (source == Source::kGrowth);
}

/// True if an observation belongs to the first rather than to the second: to one that is open, to
/// the later one.
bool is_rather(const IncidentRecord& one, const IncidentRecord& other) {
  const auto order = [](const IncidentRecord& of) {
    return std::pair(of.end_ns == 0, of.begin_ns);
  };
  return order(other) < order(one);
}

}  // namespace

Result<Book> Book::open(BookOptions options, BootTime now, std::int64_t wall_ns) {
  Book book(std::move(options));
  if (book.options_.folder.empty()) return book;
  TRY(auto log, store::IncidentLog::open(book.options_.folder + "/incidents.jsonl", {}));
  book.log_.emplace(std::move(log));
  book.inherit(now, wall_ns);
  return book;
}

void Book::inherit(BootTime now, std::int64_t wall_ns) {
  struct stat file {};
  alive_ns_ = ::stat(alive_path().c_str(), &file) == 0
                  ? std::min(wall_ns, file.st_mtim.tv_sec * 1'000'000'000 + file.st_mtim.tv_nsec)
                  : wall_ns - kInheritFor.count();
  // After a longer pause nobody knows whether it is the same job, or the same fault.
  const bool is_recent = wall_ns - alive_ns_ <= kInheritFor.count();
  inherits_until_ = is_recent ? now + kInheritFor : now;
  store::IncidentFilter recent;
  recent.since_ns = wall_ns - kInheritFor.count();
  auto page = log_->incidents(recent);
  if (!page) {
    options_.log(page.error().what);
    return;
  }
  for (IncidentRecord& record : page->incidents) {
    Entry entry;
    entry.state = record.end_ns == 0  ? State::kUnclaimed
                  : record.has_effect ? State::kOver
                                      : State::kNotedOver;
    entry.before = Entry::Before{record.begin_ns, record.window_count};
    entry.parts.push_back({std::nullopt, static_cast<const trace::IncidentFacts&>(record)});
    entry.record = std::move(record);
    if (is_over(entry.state)) remember_over(entry.record.id);
    entries_.insert_or_assign(entry.record.id, std::move(entry));
  }
}

/// The latest of the agent before this one that the observation may be the rest of, open ones
/// first, others if they ended as shortly before it as a source lets an episode go on. An error of
/// hardware is over when it is seen.
Book::Entries::iterator Book::find_inherited(const Observation& seen) {
  auto best = entries_.end();
  if (seen.source == Source::kHardware) return best;
  for (auto one = entries_.begin(); one != entries_.end(); ++one) {
    const Entry& entry = one->second;
    const IncidentRecord& record = entry.record;
    if (entry.is_reported() || record.job != seen.job || !may_be_of(record, seen.source)) continue;
    // An end in the future was told while the clock was wrong.
    if (record.end_ns != 0 &&
        std::abs(seen.facts.begin_ns - record.end_ns) > options_.pause.count())
      continue;
    if (best == entries_.end() || is_rather(record, best->second.record)) best = one;
  }
  return best;
}

/// The one that the observation explains, or that explains it. An incident that an operator called
/// false hides no other one.
Book::Entries::iterator Book::find_related(const Observation& seen) {
  auto best = entries_.end();
  for (auto one = entries_.begin(); one != entries_.end(); ++one) {
    const Entry& entry = one->second;
    if (entry.record.job != seen.job || entry.record.label == IncidentLabel::kFalse) continue;
    const bool is_related =
        std::any_of(entry.parts.begin(), entry.parts.end(), [&](const Entry::Part& part) {
          // A source tells its own episodes apart.
          if (part.reporter && part.reporter->source == seen.source) return false;
          return explains(options_.causes, part.facts, seen.facts) ||
                 explains(options_.causes, seen.facts, part.facts);
        });
    if (is_related && (best == entries_.end() || is_rather(entry.record, best->second.record)))
      best = one;
  }
  return best;
}

Book::Entries::iterator Book::claim(const Observation& seen, Notice& notice) {
  if (const auto known = ids_.find({seen.job, seen.source, seen.episode}); known != ids_.end())
    return entries_.find(known->second);
  auto entry = inherits_until_ == BootTime{} ? entries_.end() : find_inherited(seen);
  if (entry != entries_.end()) {
    entry->second.parts.clear();  // the observation takes their place
  } else {
    entry = find_related(seen);
  }
  if (entry == entries_.end()) return begin(seen);
  if (entry->second.record.label != IncidentLabel::kNone) notice.label = entry->second.record.label;
  return entry;
}

Book::Entries::iterator Book::begin(const Observation& seen) {
  Entry entry;
  entry.record.id = trace::incident_id(
      options_.host, seen.job, seen.facts.begin_ns,
      fmt::format("{}.{}.{}", word_of(seen.facts.kind),
                  kSources.at(static_cast<std::size_t>(seen.source)), seen.episode));
  entry.record.host = options_.host;
  entry.record.job = seen.job;
  std::string id = entry.record.id;
  return entries_.insert_or_assign(std::move(id), std::move(entry)).first;
}

bool Book::Entry::is_reported() const {
  return std::any_of(parts.begin(), parts.end(),
                     [](const Part& part) { return part.reporter.has_value(); });
}

/// The observation as a part of the incident: in the place of what was reported under its number,
/// of an earlier episode of its source, or of what the agent before this one had of its kind.
void Book::report_as(Entry& entry, const Observation& seen) {
  auto& parts = entry.parts;
  auto part = std::find_if(parts.begin(), parts.end(), [&](const Entry::Part& one) {
    return one.reporter ? one.reporter->source == seen.source : one.facts.kind == seen.facts.kind;
  });
  if (part == parts.end()) part = parts.insert(parts.end(), Entry::Part{});
  if (part->reporter && part->reporter->episode != seen.episode)
    ids_.erase({seen.job, seen.source, part->reporter->episode});
  part->reporter = Reporter{seen.job, seen.source, seen.episode};
  part->facts = seen.facts;
  ids_.insert_or_assign(Key{seen.job, seen.source, seen.episode}, entry.record.id);
}

/// The part that no other one explains, with what the others add: of several, one that could
/// explain something, since a source may change its mind about the kind of an effect. The incident
/// lasts as long as one of those that are reported.
trace::IncidentFacts Book::facts_of(const Entry& entry) const {
  const auto& parts = entry.parts;
  const auto rank = [&](const Entry::Part& one) {
    const bool is_effect = std::any_of(parts.begin(), parts.end(), [&](const Entry::Part& other) {
      return explains(options_.causes, other.facts.kind, one.facts.kind);
    });
    return is_effect ? 2 : explains(options_.causes, one.facts.kind) ? 0 : 1;
  };
  const auto first = std::min_element(
      parts.begin(), parts.end(),
      [&](const Entry::Part& a, const Entry::Part& b) { return rank(a) < rank(b); });
  trace::IncidentFacts out = first->facts;
  bool is_open = false;
  std::int64_t end_ns = 0;
  for (auto part = parts.begin(); part != parts.end(); ++part) {
    if (part != first) add_effect(out, part->facts);
    if (!part->reporter) continue;
    is_open = is_open || part->facts.end_ns == 0;
    end_ns = std::max(end_ns, part->facts.end_ns);
  }
  out.end_ns = is_open ? 0 : end_ns;
  return out;
}

void Book::move(Entry& entry, Notice& notice) {
  const std::size_t seen =
      (entry.record.end_ns != 0 ? 2U : 0U) + (entry.record.has_effect ? 1U : 0U);
  const State before = entry.state;
  const Transition& transition = transitions_of(before).at(seen);
  entry.state = transition.next;
  notice.event = transition.event;
  const bool was_told =
      before == State::kOpen || before == State::kUnclaimed || before == State::kOver;
  notice.is_first = !was_told && notice.event != IncidentEvent::kNoted;
  if (notice.is_first) ++counts_[entry.record.job].of_kind[entry.record.kind];
  if (is_over(entry.state) && !is_over(before)) remember_over(entry.record.id);
  if (!is_over(entry.state) && is_over(before))
    over_.erase(std::find(over_.begin(), over_.end(), entry.record.id));
  keep(entry);
  notice.incident = entry.record;
}

Notice Book::observe(const Observation& seen) {
  Notice notice;
  Entry& entry = claim(seen, notice)->second;
  const bool had_effect = entry.state != State::kNew && entry.record.has_effect;
  report_as(entry, seen);
  static_cast<trace::IncidentFacts&>(entry.record) = facts_of(entry);
  entry.record.has_effect = entry.record.has_effect || had_effect;
  if (entry.before) {
    entry.record.begin_ns = entry.before->begin_ns;
    entry.record.window_count += entry.before->windows;
  }
  move(entry, notice);
  return notice;
}

/// The oldest of those that are over go, whether or not the disk took them.
void Book::remember_over(const std::string& id) {
  over_.push_back(id);
  if (over_.size() <= kOverMax) return;
  const auto oldest = entries_.find(over_.front());
  if (oldest != entries_.end()) {
    for (const Entry::Part& part : oldest->second.parts)
      if (const auto& of = part.reporter) ids_.erase({of->job, of->source, of->episode});
    entries_.erase(oldest);
  }
  over_.pop_front();
}

// The first failure of a run of failures is logged, all are counted.
void Book::written(const Result<void>& result) {
  if (result) return;
  if (failed_writes_++ % 100 == 0) options_.log(result.error().what);
}

void Book::keep(Entry& entry) {
  if (!log_) return;
  const auto kept = log_->put(entry.record);
  written(kept);
  entry.is_kept = kept || kept.error().code == Code::kUnsupported;  // too long: it will be so later
}

std::vector<Notice> Book::tick(BootTime now) {
  std::vector<Notice> out;
  if (inherits_until_ != BootTime{} && now >= inherits_until_) {
    inherits_until_ = BootTime{};  // from now on nothing is continued
    for (auto& [id, entry] : entries_) {
      if (entry.state != State::kUnclaimed) continue;
      // It ended when the agent before this one did, as far as is known.
      entry.record.end_ns = std::max(entry.record.begin_ns, alive_ns_);
      Notice notice;
      move(entry, notice);
      if (!entry.record.has_effect) notice.event = IncidentEvent::kNoted;
      out.push_back(std::move(notice));
    }
  }
  if (!log_) return out;
  for (auto& [id, entry] : entries_) {
    if (entry.is_kept) continue;
    entry.is_kept = log_->put(entry.record).has_value();
    if (!entry.is_kept) break;  // until one fails again
  }
  if (now >= next_alive_) {
    next_alive_ = now + kAliveEvery;
    written(sys::write_file(alive_path(), ""));
  }
  return out;
}

Result<Book::Labelled> Book::label(std::string_view id, IncidentLabel label) {
  const auto known = entries_.find(id);
  if (log_) {
    TRY_VOID(log_->label(id, label));
  } else if (known == entries_.end()) {
    return Error{Code::kNotFound, fmt::format("label incident {}: unknown", id)};
  }
  Labelled out;
  if (known == entries_.end()) return out;
  Entry& entry = known->second;
  entry.record.label = label;
  out.notice = Notice{entry.record, IncidentEvent::kLabelled, false, std::nullopt};
  for (const Entry::Part& part : entry.parts)
    if (part.reporter) out.reporters.push_back(*part.reporter);
  return out;
}

std::vector<IncidentRecord> Book::open_ones(std::string_view job) const {
  std::vector<IncidentRecord> out;
  for (const auto& [id, entry] : entries_)
    if (entry.state == State::kOpen && (job.empty() || entry.record.job == job))
      out.push_back(entry.record);
  return out;
}

Result<std::vector<IncidentRecord>> Book::incidents(const store::IncidentFilter& filter) const {
  if (log_) {
    TRY(auto page, log_->incidents(filter));
    return std::move(page.incidents);
  }
  std::vector<IncidentRecord> out;
  for (const auto& [id, entry] : entries_)
    if (store::matches(filter, entry.record)) out.push_back(entry.record);
  std::sort(out.begin(), out.end(), [](const IncidentRecord& a, const IncidentRecord& b) {
    return std::tie(a.begin_ns, a.id) < std::tie(b.begin_ns, b.id);
  });
  return out;
}

std::uint64_t Book::opened(std::string_view job, trace::IncidentKind kind) const {
  const auto of_job = counts_.find(job);
  if (of_job == counts_.end()) return 0;
  const auto found = of_job->second.of_kind.find(kind);
  return found == of_job->second.of_kind.end() ? 0 : found->second;
}

std::set<std::string> Book::counted_jobs() const {
  std::set<std::string> out;
  for (const auto& [job, counts] : counts_)
    out.insert(job);
  return out;
}

void Book::count_only(const std::set<std::string>& jobs, BootTime now) {
  for (auto one = counts_.begin(); one != counts_.end();) {
    std::optional<BootTime>& gone_since = one->second.gone_since;
    if (jobs.contains(one->first)) {
      gone_since.reset();
    } else if (!gone_since) {
      gone_since = now;
    }
    const bool is_gone = gone_since && now - *gone_since >= kCountFor;
    one = is_gone ? counts_.erase(one) : std::next(one);
  }
}

Result<store::IncidentLog> open_kept(const std::string& folder) {
  auto log = store::IncidentLog::open(folder + "/incidents.jsonl", {.create = false});
  if (log || log.error().code != Code::kNotFound) return log;
  return Error{Code::kNotFound,
               fmt::format("read incidents in {}: no agent kept any there", folder),
               "--state names the state folder of `kansoku watch`"};
}

Result<void> label_kept(const std::string& folder, std::string_view id, IncidentLabel label) {
  TRY(auto log, open_kept(folder));
  return log.label(id, label);
}

}  // namespace kansoku::incident
