// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"
#include "common/stat.h"
#include "common/time.h"
#include "fleet/cluster_rows.h"
#include "fleet/summary.h"
#include "stats/sketch.h"

namespace kansoku::fleet {

STAT(fleet_summary_dropped, kDataLoss, kCapture,
     "parts of a host's summary did not fit its budget; raise the bytes per second");

/// Limit of a host's sending.
struct SummaryBudget {
  std::uint32_t bytes_per_second{2048};
};

struct SummaryOptions {
  std::string host, boot_id;
  std::int64_t epoch_ns{0};  // wall clock now; tells one run of the writer from the next
  Nanos period{std::chrono::seconds{60}};
  Nanos urgent_delay{std::chrono::seconds{5}};  // from one message to the next with new incidents
  SummaryBudget budget{};
  std::vector<std::string> features{};  // names of the values of a window, most telling first
  std::vector<ClusterAxis> axes{};      // of the features; empty: no cluster features are sent
};

/// Gathers one host's reports to the fleet and writes them as messages that keep to a budget: on
/// average, and in any single message, no more than `bytes_per_second` times the time since the
/// message before, one period's worth at most.
///
/// Parts that do not fit are left out, counted, and said in the message. Kept first to last: jobs
/// and ranks; counters; new incidents; each job's sketch of each feature (the first feature of all
/// jobs before the second); incidents said before; cluster features; the sketches of single ranks
/// in place of their job's. A part that does not fit gives way to smaller ones behind it.
///
/// Messages get lost on the way, so an incident is said three times; readers know it by its id.
/// Memory: one sketch for each job, rank and feature that had a value in the period, and 32
/// clusters of 16 dimensions a job. Deterministic.
/// Not shared between threads. The budget and its order are ours.
class SummaryWriter {
 public:
  struct JobId {
    std::uint32_t raw{kNoIndex};
  };
  static constexpr int kIncidentRepeats = 3;
  static constexpr std::size_t kIncidentsMax = 64;  // kept for the next message
  static constexpr std::size_t kSketchesMax = 65'536;
  static constexpr std::uint32_t kBytesPerSecondMin = 16;

  /// kLimit: too many features, names that are too long, axes that are not one a feature, a period
  /// below a second, or a budget below kBytesPerSecondMin. `now`: when the first period begins; the
  /// wall clock is the epoch's.
  [[nodiscard]] static Result<SummaryWriter> create(SummaryOptions options, BootTime now);

  /// Makes `job` known, or takes its new name, size and ranks if its key is known. The ranks need
  /// not be sorted. kLimit: more than kSummaryJobsMax jobs, or kSummaryRanksMax ranks in all.
  [[nodiscard]] Result<JobId> set_job(SummaryJob job);
  /// The job is over. Its last period goes out with the next message.
  void remove_job(JobId job);

  /// The values of one window of one rank (-1: it has none), one a feature; NaN: not seen. Values
  /// below 0 count as 0. For an unknown job, or with another number of values, counted and dropped.
  void add_window(JobId job, std::int32_t rank, std::span<const double> values);
  /// An incident that began, changed or ended, as JSON (trace::IncidentRecord::to_json); the latest
  /// form of an id is the one that is sent. `job`: JobId{} if it belongs to none.
  void add_incident(JobId job, std::string_view id, std::string_view json);
  /// Adds to a named counter of this period, such as lost records. At most kSummaryCountersMax
  /// names.
  void add_counter(std::string_view name, std::uint64_t increment);

  /// True if a message should go out now: a period is over, or something urgent waits, and the
  /// budget allows it.
  [[nodiscard]] bool is_due(BootTime now) const;
  /// The message of the period that ends now; begins the next. Never above the budget, so empty if
  /// not even the host's name fits: nothing is lost then, the period goes on.
  [[nodiscard]] std::string take(BootTime now, std::int64_t wall_ns);

  /// Bytes that a message may have now.
  [[nodiscard]] std::size_t allowance(BootTime now) const;
  /// Data left out so far, in all messages.
  [[nodiscard]] const SummaryDropped& dropped() const { return dropped_total_; }
  /// Since the epoch began: with the writer, or when the wall clock was set.
  [[nodiscard]] std::uint64_t message_count() const { return sequence_; }
  /// Memory of the sketches.
  [[nodiscard]] std::size_t memory_bytes() const;

 private:
  using RankSketches = std::map<std::int32_t, std::vector<stats::LogSketch>>;
  struct Job {
    SummaryJob info;
    bool is_over{false};
    RankSketches ranks;  // one sketch a feature
    ClusterRows rows;
  };
  struct Incident {
    JobId job;
    std::string id, json;
    int times_said{0};
  };
  struct Packing;

  SummaryWriter(SummaryOptions options, BootTime now);
  [[nodiscard]] const Job* find(JobId job) const;
  [[nodiscard]] bool has_news() const;
  void pack_jobs(Packing& packing) const;
  void pack_counters(Packing& packing) const;
  void pack_incidents(Packing& packing, bool are_new) const;
  void pack_sketches(Packing& packing) const;
  void pack_cluster_features(Packing& packing) const;
  void split_by_rank(Packing& packing) const;
  void end_period(const Packing& packing);

  SummaryOptions options_;
  BootTime begin_;
  std::int64_t begin_wall_ns_;
  double saved_bytes_{0};  // of the budget, at begin_
  std::uint64_t sequence_{0};
  std::uint32_t next_job_{0};
  std::map<std::uint32_t, Job> jobs_;  // by id
  std::size_t rank_count_{0}, sketch_count_{0};
  std::deque<Incident> incidents_;  // oldest first
  std::map<std::string, std::uint64_t, std::less<>> counters_;
  SummaryDropped dropped_, dropped_total_;
};

}  // namespace kansoku::fleet
