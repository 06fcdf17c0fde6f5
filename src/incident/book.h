// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "common/result.h"
#include "common/time.h"
#include "incident/causes.h"
#include "incident/thresholds.h"
#include "store/incident_log.h"
#include "trace/incident.h"

namespace kansoku::incident {

/// Source of a report.
enum class Source : std::uint8_t {
  kDetector,    // one episode of a job at a time
  kGrowth,      // steady growth, beside others
  kHardware,    // an error that ended the process that it happened to
  kIterations,  // the length of iterations, as `kansoku profile --watch` follows it
  kStuck,       // an operation on a GPU that does not end
};

enum class State : std::uint8_t { kNew, kNoted, kOpen, kUnclaimed, kNotedOver, kOver };

/// Report of a source on something wrong, as it is now.
struct Observation {
  std::string job;
  Source source{Source::kDetector};
  std::uint64_t episode{0};  // of this source and job: the same number is the same thing
  trace::IncidentFacts facts;
};

/// A change of an incident that outputs announce.
struct Notice {
  trace::IncidentRecord incident;
  trace::IncidentEvent event{trace::IncidentEvent::kOpened};
  /// Nobody was paged before: whoever pages when one opens has to hear of one that is over already.
  bool is_first{false};
  /// The label that the operator gave under the agent before this one; the source does not know it
  /// yet.
  std::optional<trace::IncidentLabel> label;
};

/// The source that a label concerns.
struct Reporter {
  std::string job;
  Source source{Source::kDetector};
  std::uint64_t episode{0};
};

struct BookOptions {
  std::string host;
  std::string folder;  // of the log, and of the agent's last sign of life; "": none
  /// So soon after its end an incident of the agent before this one goes on. As the sources have
  /// it.
  Nanos pause{std::chrono::seconds{20}};
  std::function<void(const std::string&)> log;
  /// Which kinds explain which: of one job and one time they are one incident, under the id of the
  /// one that was reported first and of the kind that explains the other.
  std::span<const Cause> causes{known_causes()};
};

/// The incidents of one host: the open ones, the announced ones, and their ids; the one place that
/// gives ids, changes labels and writes the log. Bounded. One thread.
class Book {
 public:
  static constexpr std::size_t kOverMax = 256;  // remembered of those that are over
  static constexpr Nanos kInheritFor = incident::kInheritFor;
  static constexpr Nanos kCountFor = std::chrono::minutes{5};

  /// Opens the log and takes over the incidents that the agent before this one left open.
  /// kPermission, kNotFound: the log cannot be opened.
  [[nodiscard]] static Result<Book> open(BookOptions options, BootTime now, std::int64_t wall_ns);

  [[nodiscard]] Notice observe(const Observation& seen);
  /// To be called each window. Ends incidents that nobody continued, repeats failed writes, says
  /// that there is an agent.
  [[nodiscard]] std::vector<Notice> tick(BootTime now);

  /// Sets the operator's label, here and in the log. Empty: nobody reports it any more, the label
  /// is kept. kNotFound: there is no such incident.
  struct Labelled {
    std::optional<Notice> notice;
    std::vector<Reporter> reporters;
  };
  [[nodiscard]] Result<Labelled> label(std::string_view id, trace::IncidentLabel label);

  /// Those that are open, of one job or of all, by id; noted ones are not among them.
  [[nodiscard]] std::vector<trace::IncidentRecord> open_ones(std::string_view job = {}) const;
  /// Those that are on disk, latest first; without a folder, those that are remembered.
  [[nodiscard]] Result<std::vector<trace::IncidentRecord>> incidents(
      const store::IncidentFilter& filter) const;

  /// How many a job had of a kind; one that is opened anew is not counted anew.
  [[nodiscard]] std::uint64_t opened(std::string_view job, trace::IncidentKind kind) const;
  /// Jobs that are counted for.
  [[nodiscard]] std::set<std::string> counted_jobs() const;
  /// Counts of jobs that were not among `jobs` for kCountFor are forgotten: a scrape a minute sees
  /// the counts of one that is over.
  void count_only(const std::set<std::string>& jobs, BootTime now);

  [[nodiscard]] std::uint64_t failed_writes() const { return failed_writes_; }

 private:
  using Key = std::tuple<std::string, Source, std::uint64_t>;  // job, source, episode
  struct Entry {
    trace::IncidentRecord record;
    State state{State::kNew};
    struct Part {
      std::optional<Reporter> reporter;  // none: as the agent before this one had it
      trace::IncidentFacts facts;
    };
    std::vector<Part> parts;  // more than one: a cause and its effects; bounded by sources
    [[nodiscard]] bool is_reported() const;
    struct Before {
      std::int64_t begin_ns{0};
      std::uint32_t windows{0};
    };
    std::optional<Before> before;  // as the agent before this one had it
    bool is_kept{true};            // on disk as it is
  };
  using Entries = std::map<std::string, Entry, std::less<>>;  // by id

  explicit Book(BookOptions options) : options_(std::move(options)) {}
  void inherit(BootTime now, std::int64_t wall_ns);
  [[nodiscard]] Entries::iterator find_inherited(const Observation& seen);
  [[nodiscard]] Entries::iterator claim(const Observation& seen, Notice& notice);
  [[nodiscard]] Entries::iterator find_related(const Observation& seen);
  [[nodiscard]] Entries::iterator begin(const Observation& seen);
  void report_as(Entry& entry, const Observation& seen);
  [[nodiscard]] trace::IncidentFacts facts_of(const Entry& entry) const;
  /// Moves an entry on after an observation, or after its end; `told` gets the news.
  void move(Entry& entry, Notice& notice);
  void remember_over(const std::string& id);
  void keep(Entry& entry);
  void written(const Result<void>& result);
  [[nodiscard]] std::string alive_path() const { return options_.folder + "/alive"; }

  BookOptions options_;
  std::optional<store::IncidentLog> log_;
  Entries entries_;
  std::map<Key, std::string> ids_;  // of entries that a source of this agent reports
  std::deque<std::string> over_;    // ids, the latest last
  struct Counts {
    std::map<trace::IncidentKind, std::uint64_t> of_kind;
    std::optional<BootTime> gone_since;
  };
  std::map<std::string, Counts, std::less<>> counts_;  // by job
  BootTime inherits_until_{}, next_alive_{};
  std::int64_t alive_ns_{0};  // when the agent before this one was last seen
  std::uint64_t failed_writes_{0};
};

/// Sets a label where no agent runs. kNotFound: no agent kept any there, or not this one.
[[nodiscard]] Result<void> label_kept(const std::string& folder, std::string_view id,
                                      trace::IncidentLabel label);
/// The log of a folder in which no agent runs. kNotFound: there is none.
[[nodiscard]] Result<store::IncidentLog> open_kept(const std::string& folder);

}  // namespace kansoku::incident
