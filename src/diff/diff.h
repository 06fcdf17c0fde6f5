// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "trace/model.h"

namespace kansoku::diff {

/// Kind of a compared item.
enum class Kind : std::uint8_t {
  kKernel,
  kCopy,        // copies and sets of device memory
  kGraph,       // a launch of a graph, timed as a whole
  kStreamWait,  // host functions and waits in a stream: no device-busy time
  kCollective,
  kOperator,
  kHostCall,
  kRange,     // annotations of the program
  kFunction,  // Python, from stack samples or a profiler's slices
};
inline constexpr std::size_t kKindCount = 9;
[[nodiscard]] std::string_view kind_name(Kind kind);  // "kernel", "copy", "host call", ...

/// Which clock a row's milliseconds are part of: those of a step on the device, of the main
/// thread's calls, of its stack samples. Each lane adds up to the step by itself.
enum class Lane : std::uint8_t { kDevice, kHost, kSamples };
inline constexpr std::size_t kLaneCount = 3;
[[nodiscard]] std::string_view lane_name(Lane lane);  // "device", "main thread", "samples"

struct Options {
  std::string step_name;         // each slice of this name begins a step; empty: steps are searched
  std::uint64_t seed{1};         // of the bootstrap
  std::uint32_t resamples{400};  // of steps, for a standard error
};

/// One recording, borrowed for the call.
struct Input {
  std::string label;
  const trace::Trace* trace{nullptr};
};

/// A quantity before and after. `ratio` and its 95 % interval are after / before, where both exist;
/// `p` is corrected for all comparisons.
struct Change {
  double before{0}, after{0};
  std::optional<double> ratio, low, high;
  double p{1};
  bool is_tested{false};
  bool is_significant{false};
};

/// How two names were found to be the same thing.
enum class Match : std::uint8_t {
  kSame,      // one name, or spellings of one
  kNumbers,   // a compiler numbered them anew
  kTemplate,  // other template arguments, tiles or types
  kPlace,     // another name at the same place of the step
  kNone,      // only on one side
};
[[nodiscard]] std::string_view match_name(Match match);

/// One kernel, operator, function, ... All figures are means a step and rank.
struct Row {
  Kind kind{Kind::kKernel};
  Lane lane{Lane::kDevice};
  std::string before_shown;             // as `shown`, of a name that changed
  std::string shown;                    // for people
  std::string before_name, after_name;  // in full; "" where it does not exist
  std::string caller;                   // of a sampled function: who calls it most
  Match match{Match::kSame};
  Change calls;  // a step
  Change call;   // ms a call, at the shapes of before; of sampled functions: ms a step
  Change size;   // blocks of a kernel's grid, bytes of a copy or collective, or elements, a call
  std::string size_unit;                       // "blocks", "bytes", "elements"; "" if unknown
  double before_ms{0}, after_ms{0};            // a step
  double lane_before_ms{0}, lane_after_ms{0};  // its part of the lane: shared instants count once
  std::string before_shape, after_shape;       // the most frequent
  std::optional<std::int32_t> rank;            // differs on this rank alone
  bool is_significant{false};
  bool is_by_batch{false};  // its grid is scaled as the batch: told once for all
  bool is_per_work{false};  // no shape is on both sides: `call` compares times per unit of work
  std::string what;         // "slower", "fewer calls", "new", ...; empty: no change
};

/// One lane's milliseconds of a step, and how far the significant rows explain their change.
struct LaneSum {
  bool is_known{false};
  double before_ms{0}, after_ms{0};    // of a step; covered by rows
  double explained_ms{0};              // by significant rows
  double others_ms{0};                 // by rows whose change is not significant
  std::optional<double> uncovered_ms;  // the step's change outside of all rows: idle, other code
};

/// Change that all rows of a lane share: the machine, or more work in every call.
struct Common {
  Lane lane{Lane::kDevice};
  std::optional<std::int32_t> rank;  // differs from the change that all ranks share
  std::size_t rows{0};
  Change factor;  // before is 1
};

/// Same kernels, grids scaled.
struct Batch {
  double factor{1};
  std::size_t scaled{0};     // kernels (or operators) with that factor
  std::size_t otherwise{0};  // whose size changed by another factor
  std::size_t unchanged{0};
  std::string unit;                    // "grids" or "elements"
  std::optional<double> bytes_factor;  // of copies
};

struct Side {
  std::vector<std::string> labels;
  std::size_t steps{0}, ranks{0}, stalls{0};
  std::string found_by;
  double stall_ms{0};  // a step, in steps of stalls: the mean's excess over the other steps
};

struct Comparison {
  Side before, after;
  Change step;   // milliseconds; tested without `queue`
  Change queue;  // part of the step, waiting for a processor: others' load; not tested
  bool has_queue{false};
  std::array<LaneSum, kLaneCount> lanes;
  bool device_clock_apart{false};  // device times are no part of the step's
  bool device_clock_exact{false};  // equal work takes equal time
  std::optional<Batch> batch;
  std::vector<Common> commons;  // significant ones
  std::vector<Row> rows;        // all; significant ones first, by their share of the change
  std::size_t comparisons{0};   // tests that share the error rate
  std::size_t untested{0};      // rows with too few calls or samples
  std::vector<std::string> notes;
  std::vector<std::string> missing;  // why nothing is said
  /// Something changed. A change that a whole lane shares counts only if it cannot be a busy
  /// machine: on an exact clock, or on the host without the time that the scheduler took away.
  [[nodiscard]] bool has_findings() const;
};

/// Compares recordings `before` a change with those `after` it, at least one a side, each with
/// steps. Without steps on a side the result says so in `missing`. kCorrupt: columns of a trace
/// differ in length. Deterministic for `options.seed`; any thread. Method: docs/diff.md; the prior
/// of the variation between runs is a row a kind of thresholds.inc. Source: moderated t after Smyth
/// 2004 (recalled: unverified); Holm 1979 (recalled: unverified).
[[nodiscard]] Result<Comparison> compare(std::span<const Input> before,
                                         std::span<const Input> after, const Options& options);

/// Schema kansoku.diff/1, docs/formats/diff.md.
[[nodiscard]] Json to_json(const Comparison& comparison);
/// For a terminal.
[[nodiscard]] std::string to_text(const Comparison& comparison);

}  // namespace kansoku::diff
