// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/stat.h"
#include "common/time.h"

namespace kansoku::simulate {

STAT(workload_bad_rows, kDataLoss, kImport,
     "malformed rows were skipped (--skip-bad-rows); correct them in the file");

/// One request for resources: a job, a pod, a request to a model, or a task of a graph. Negative
/// = the source does not say.
struct Job {
  Nanos submit{0};         // since Workload::epoch
  Nanos duration{-1};      // of execution on one reference node
  Nanos scheduled{-1};     // since Workload::epoch; when the source started it
  std::uint32_t name{0};   // index in Workload::names; 0 = none
  std::uint32_t group{0};  // index in Workload::groups: virtual cluster, user; 0 = none
  std::uint32_t graph{0};  // 1 + index in Workload::graphs for a task of a graph; 0 = none
  std::uint32_t gpu_type{
      0};  // index in Workload::gpu_types ("V100M16|V100M32": alternatives); 0 = any
  std::int32_t gpus{0};
  std::int32_t gpu_milli{0};  // of each GPU: 1000 = whole
  std::int64_t cpu_milli{-1};
  std::int64_t memory_mib{-1};
  std::int64_t read_bytes{-1}, written_bytes{-1};
  std::int64_t tokens_in{-1}, tokens_out{-1};
  std::int32_t instances{1};
  bool censored{false};  // still running when the source ended: `duration` is a lower bound
};

/// `child` starts when `parent` has ended; indices in Workload::jobs.
struct Edge {
  std::uint32_t parent{0}, child{0};
};

/// One recorded run of a task graph.
struct Graph {
  std::string name;
  double makespan_s{-1};  // as recorded; < 0 unknown
  int machine_cores{-1};  // of the machine that ran it, all its machines together
};

/// A node of a cluster.
struct NodeSpec {
  std::string name;
  std::int64_t cpu_milli{0};
  std::int64_t memory_mib{0};
  std::int32_t gpus{0};
  std::string gpu_model;  // empty: no GPU, or not said
};

/// Workload that an importer makes of a trace, or that a synthesizer writes. Jobs sorted by
/// (submit, order in the source).
struct Workload {
  std::string source;  // format and file, for reports
  /// Place of time 0 in the week: seconds since Monday 00:00, local time of the source; < 0
  /// unknown.
  std::int64_t epoch_in_week_s{-1};
  /// ISO time of time 0 as the source writes it (without zone), e.g. "2017-08-07 10:12:35"; may be
  /// empty.
  std::string epoch;
  std::vector<Job> jobs;
  std::vector<Edge> edges;
  std::vector<Graph> graphs;
  std::vector<std::string> names{""};
  std::vector<std::string> groups{""};
  std::vector<std::string> gpu_types{""};
  std::uint64_t bad_rows{0};               // left out (workload_bad_rows)
  std::vector<std::string> bad_row_notes;  // the first few: "file:line:column: what"
};

/// Finds texts in a table of distinct texts (Workload::names, groups, gpu_types). Serves one table,
/// which only `intern` may change from then on. Not shared between threads.
class InternLookup {
 public:
  /// Knows the texts of `table` already; of equal texts the first counts.
  explicit InternLookup(const std::vector<std::string>& table);

  /// The index of `text` in the table, if it is there.
  [[nodiscard]] std::optional<std::uint32_t> find(const std::vector<std::string>& table,
                                                  std::string_view text) const;

 private:
  friend std::uint32_t intern(std::vector<std::string>& table, std::string_view text,
                              InternLookup& lookup);
  struct Slot {
    std::uint32_t hash{0};
    std::uint32_t index_plus_one{0};  // 0 = free
  };
  void add(const std::vector<std::string>& table, std::uint32_t index);
  void place(const std::vector<std::string>& table, Slot slot);
  bool try_place(Slot slot);
  void grow(const std::vector<std::string>& table);

  std::vector<Slot> slots_;  // a power of two, at most half full
  std::size_t count_{0};
  /// Texts whose slots were all taken, so that texts made to collide cost a logarithm, not a scan.
  /// Slots are never freed: a text with a free slot is not in here.
  std::map<std::string, std::uint32_t, std::less<>> crowded_;
};

/// The index of `text` in `table`, where it is appended if it is missing. At most 2^32 - 2 texts.
[[nodiscard]] std::uint32_t intern(std::vector<std::string>& table, std::string_view text,
                                   InternLookup& lookup);

/// Sorts the jobs by submission, those of one moment in the order they had. Edges are remapped and
/// sorted by (child, parent), duplicates dropped.
void sort_jobs(Workload& workload);

/// The number of each job's session: a run of jobs of one group in which no job comes more than
/// `gap` after the one before it. Numbers count from 0 in the order of the sessions' first jobs.
/// The jobs must be sorted; one result a job.
[[nodiscard]] std::vector<std::uint32_t> sessions(const Workload& workload, Nanos gap);

/// GPUs x their share x seconds x instances; 0 if the duration is unknown.
[[nodiscard]] double gpu_seconds(const Job& job);
/// The sum over all jobs, in their order.
[[nodiscard]] double gpu_seconds(const Workload& workload);

/// The index of a job that waits for itself, through one edge or several; nothing if there is none.
/// Linear in jobs and edges.
[[nodiscard]] std::optional<std::uint32_t> job_on_cycle(const Workload& workload);

/// A point in the time of a workload, from its epoch: a span ("21d", "12h", "90s", "1y", seconds),
/// or a civil time of the source ("2017-09-25", "2017-09-25 08:00:00"). kCorrupt for anything else,
/// kUnsupported for a civil time if the workload does not say its epoch.
[[nodiscard]] Result<Nanos> offset_of(const Workload& workload, std::string_view untrusted);

/// A span of time, at least 0: "90s", "12h", "30d", "2w", "1y" (365 days), or seconds; up to 133
/// years.
[[nodiscard]] std::optional<Nanos> parse_span(std::string_view untrusted);

}  // namespace kansoku::simulate
