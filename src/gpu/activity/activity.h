// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "gpu/activity/device_work.h"
#include "gpu/activity/figures.h"
#include "stats/intervals.h"
#include "trace/model.h"

namespace kansoku::gpu::activity {

// In all of these an absent value is unknown: its source is not in the recording. It never means 0.

/// Values of one quantity; the unit stands in the member's name.
struct Spread {
  std::uint64_t count{0};
  double mean{0}, p50{0}, p90{0}, p99{0}, max{0};
};

/// The steps of one process, as whoever calls found them; without them those of the profiler
/// ("ProfilerStep#N") are used.
struct ProcessSteps {
  std::int32_t pid{0};
  std::vector<stats::Interval> steps;  // by begin, disjoint
};

struct Options {
  std::optional<double> peak_tflops;  // of the device, to compare matrix products with
  std::vector<ProcessSteps> steps;
  // Processes that belong together, whose findings are told as one and whose ranks are compared.
  // Other processes that tell a rank are one job, and each one without is a job of its own.
  std::vector<std::vector<std::int32_t>> jobs{};
  bool with_view{false};    // fills WorkReport::view: data of a page
  bool with_tracks{false};  // fills WorkReport::tracks for write_tracks()
};

struct KernelRow {
  std::string name;
  std::string full_name{};  // if the recording has a longer one
  OpClass what{OpClass::kKernel};
  std::uint64_t count{0};
  std::optional<double> total_us;
  std::optional<double> share;  // of the time of all kernels; of those that were timed
  std::optional<Spread> us;
  std::string grid, block;       // "x,y,z" of the most frequent shape; empty: unknown
  std::uint64_t shape_count{0};  // different grids and blocks
  std::optional<std::uint64_t> registers, shared_bytes;
  std::optional<double> occupancy;  // 0..1 of the multiprocessor's threads
  std::string occupancy_by;         // "limits" or "profiler"
  std::uint64_t shared_count{0};    // ran beside other work: their time is not theirs alone
};

struct CopyRow {
  std::string kind;              // HtoD, DtoH, ...; "set" of memsets; "" unknown
  std::optional<bool> pageable;  // of copies from and to the host
  std::uint64_t count{0};
  std::optional<std::uint64_t> bytes;
  std::optional<double> total_us;
  std::optional<double> gb_per_s;  // bytes over the time of the copies that say both; 1e9 bytes
};

struct CollectiveRow {
  std::string name;  // allreduce, allgather, ...
  std::uint64_t count{0};
  std::optional<std::uint64_t> bytes;  // S of nccl-tests: of all ranks for allgather, ...
  std::optional<std::uint64_t> group_size;
  std::optional<Spread> us;
  std::optional<double> bus_gb_per_s;  // at the median time, waiting for peers included: at least
};

struct GemmRow {
  std::uint64_t batch{1}, m{0}, n{0}, k{0};
  std::uint64_t count{0};         // products, nested calls once
  std::uint64_t kernel_count{0};  // that they launched
  std::uint64_t shared_count{0};  // of the products, beside other work: not in `tflops`
  double total_us{0};
  std::optional<double> tflops;      // at the median time
  std::optional<double> peak_share;  // of Options::peak_tflops
};

struct OperatorRow {
  std::string name;
  std::uint64_t call_count{0}, op_count{0};
  double device_us{0};
  std::string top_kernel;  // the one that took longest
};

/// Ranges of one name: the host's time in them, and the work that they launched.
struct RangeRow {
  std::string name;
  std::string domain{};  // of NVTX; "" the default one
  std::uint64_t count{0};
  double host_us{0};  // of ranges that are not inside another of the same name
  // Not known for ranges of the process, which no thread is in.
  std::optional<std::uint64_t> op_count{};  // operations that were launched within
  std::optional<double> device_us{};        // while any of them ran
  std::optional<double> share{};            // of the time that the devices were at work
};

/// Activity of the launching thread while the device had nothing to do.
enum class IdleCause : std::uint8_t {
  kSynchronisation,
  kAllocation,
  kModuleLoad,
  kLock,
  kLoader,
  kLaunching,   // in a launch or copy call
  kStaging,     // in a copy call that took pageable memory along before it returned
  kCollective,  // in a collective of the host
  kOperator,    // in an operator of the framework, on the way to its launches
  kFunction,    // in the program's code: `function` of the row says where
  kProcessor,   // nothing: it could run, and had no processor
  kBlocked,     // asleep, for nobody of its process: a timer, a disk, the network
  kDevice,      // nothing: the next operation had been launched, and waited for the device
  kObserver,    // in Kansoku's library, within a call of the program: nobody else's time
  kUnknown,
};
inline constexpr std::size_t kIdleCauseCount = 15;
[[nodiscard]] std::string_view idle_cause_name(IdleCause cause);
/// The same for people, after "the thread": "waits for the device".
[[nodiscard]] std::string_view idle_cause_text(IdleCause cause);

struct IdleRow {
  IdleCause cause{IdleCause::kUnknown};
  std::string function{};  // most of it was spent there, if samples or slices tell; "" unknown
  double function_us{0};   // in that function
  double us{0};
  double longest_us{0};  // in one gap
  double few_us{0};      // in the kFewGaps longest
  double brief_us{0};    // in gaps no longer than kLaunchGapMaxNs
  double share{0};       // of the judged time
};

/// The longest time in which a device had nothing to do, with the cause of most of it.
struct LongestIdle {
  double us{0};
  bool is_first{false};  // in front of the device's first operation
  IdleCause cause{IdleCause::kUnknown};
  std::string function{};  // as IdleRow::function
};

/// Gaps between operations of one stream, by the wait that ended them.
struct GapRow {
  std::int64_t stream{0};
  double host_wait_us{0};    // the next was launched after the gap began
  double kernel_wait_us{0};  // shorter than kKernelGapNs
  double other_us{0};
};

struct QueueRow {
  std::int64_t stream{0};
  Spread length;  // at the moments when it changes
  double time_mean{0};
};

struct VoidFigures {
  std::uint64_t step_count{0};
  double step_ms{0};                // T_step: between first operations of steps in a row, median
  double v_inter{0};                // of the steps' time: nothing runs between steps
  double v_minority{0};             // of the rest: nothing runs
  std::optional<double> v_unknown;  // at most: time that lost records may have covered
};

struct OverlapFigures {
  double communication_us{0}, compute_us{0}, both_us{0};
  std::optional<double> share;  // of the communication's time; unknown without communication
};

struct LaunchBound {
  std::uint64_t stretch_count{0};
  std::uint64_t op_count{0};
  double us{0};       // of the stretches
  double idle_us{0};  // of the device in them, while the host was launching
  // Part of its busy time in them: from the begin of an operation, which is that of the event
  // before it, until its launch call returned. The device had little of the operation before.
  double early_us{0};
};

struct ExposedCopies {
  double copy_us{0};           // time in which a copy ran
  double exposed_us{0};        // part with no kernel beside
  double could_overlap_us{0};  // part of that: pageable, or waited for, or in a stream with kernels
  double pageable_us{0};       // part of that: pageable, as the recording says or its call shows
  double blocking_us{0};       // part of that: waited for by its call
};

struct DeviceFigures {
  std::int32_t pid{0}, rank{trace::kNoRank};
  std::int64_t ordinal{-1};
  std::uint64_t op_count{0};
  std::optional<double> window_us, busy_us, idle_us, compute_us;
  bool has_steps{false};
  std::optional<double> judged_us;  // of the steps if there are any, else the window: shares are
                                    // of it
  bool is_judged{false};            // it worked for long enough to look for findings
  std::optional<VoidFigures> voids;
  std::optional<OverlapFigures> overlap;
  std::optional<std::vector<IdleRow>> idle;  // longest first; sums to idle_us
  std::optional<LongestIdle> longest_idle;
  std::optional<std::vector<GapRow>> gaps;
  std::optional<std::vector<QueueRow>> queues;
  std::optional<Spread> issue_latency_us;
  std::uint64_t negative_latency_count{0};  // began before their launch: clocks do not agree
  std::optional<std::uint64_t> short_kernel_count;  // shorter than their launch call
  std::optional<LaunchBound> launch_bound;
  std::optional<ExposedCopies> copies;
};

struct MemoryHolder {
  std::string stack;  // innermost first; "" unknown
  std::uint64_t bytes{0}, count{0};
};

struct FailedAllocation {
  std::int64_t time_ns{0};
  std::optional<std::uint64_t> requested_bytes, live_bytes;
  bool is_survived{false};  // the process launched work afterwards
  std::vector<MemoryHolder> holders;
};

struct Leak {
  std::string per;  // "step"; without steps the kernel from whose launch to the next it is counted
  double bytes_per_step{0};
  std::uint64_t step_count{0};
  std::vector<MemoryHolder> growers;  // those that grew most
};

/// The greatest live memory of a piece of time.
struct MemoryPoint {
  double at_ms{0};  // from the first point
  std::uint64_t bytes{0};
};

struct MemoryFigures {
  std::int32_t pid{0}, rank{trace::kNoRank};
  std::string source;  // "counter" or "calls"
  std::uint64_t high_water_bytes{0};
  std::int64_t high_water_ns{0};
  std::uint64_t last_bytes{0};
  std::uint64_t point_count{0};
  std::vector<MemoryPoint> curve;     // some hundred points over the recording
  std::vector<MemoryHolder> holders;  // at the high-water mark, largest first; may be empty
  std::optional<Leak> leak;
  std::vector<FailedAllocation> failures;
};

struct Finding {
  std::string kind;    // slow_kernel, launch_bound, copy_bound, memory_pressure, gpu_starved
  std::string detail;  // the cause within the kind: clocked_lower, synchronisation, leak, ...
  std::vector<std::int32_t> ranks;
  std::vector<std::int32_t> pids;  // sorted
  std::optional<double> share;     // of the step or window; memory has none
  std::string verdict;
  std::vector<std::string> evidence;
};

/// A sentence on a device's time that accuses nobody.
struct DeviceNote {
  std::int32_t pid{0};
  std::string text;
};

/// Operations of a stream, or several that are too short to be drawn apart.
struct TimelineSpan {
  double begin_us{0}, us{0};
  OpClass what{OpClass::kKernel};
  std::string name;  // of the longest
  std::uint64_t count{1};
};

struct TimelineLane {
  std::int64_t stream{0};
  std::vector<TimelineSpan> spans;  // by begin
};

/// Time in which a device had nothing to do, with the cause that most of it is charged to.
struct IdleSpan {
  double begin_us{0}, us{0};
  IdleCause cause{IdleCause::kUnknown};
  std::string function;  // as IdleRow::function
};

/// One step of a device, or a stretch of time where there are no steps. Times from its begin.
struct DeviceTimeline {
  std::int32_t pid{0}, rank{trace::kNoRank};
  std::int64_t ordinal{-1};
  std::optional<std::size_t> step;  // number of the longest one; nothing: the time with most idle
  std::size_t step_count{0};
  double us{0};
  std::vector<TimelineLane> lanes;  // by stream, the busiest kLanesMax
  std::size_t lane_count{0};        // all
  std::vector<IdleSpan> idle;       // by begin; those too short to be drawn are left out
  bool has_idle{false};             // idle time has known causes in this recording
};

struct View {
  std::vector<DeviceTimeline> timelines;  // of the first devices
};

/// Time in which a device had nothing to do, where the recording shows it: between the times that
/// it holds for the operations around, which the figures may have moved.
struct IdleGap {
  stats::Interval time;
  IdleCause cause{IdleCause::kUnknown};  // of most of it
  std::string function;                  // as IdleRow::function
};

/// The gaps of a device from its first operation to its last, by begin. Bounded: the longest.
struct IdleTrack {
  std::int32_t pid{0};
  std::int64_t ordinal{-1};
  std::vector<IdleGap> gaps;
  std::uint64_t left_out_count{0};
  double left_out_us{0};
};

struct DerivedTracks {
  std::vector<IdleTrack> idle;      // of devices whose idle time has known causes
  std::vector<ProcessSteps> steps;  // that the figures use
};

struct WorkReport {
  Recorded recorded;
  std::vector<FigureState> figures;  // which exist, and why not
  std::string steps_by{"none"};      // "caller", "profiler"
  std::uint64_t op_count{0}, call_count{0}, unlinked_count{0}, launch_count{0};
  std::vector<DeviceFigures> devices;
  std::vector<KernelRow> kernels;  // longest first
  std::vector<CopyRow> copies;
  std::vector<CollectiveRow> collectives;
  std::optional<std::vector<GemmRow>> gemms;
  std::optional<std::vector<OperatorRow>> operators;
  std::optional<std::vector<RangeRow>> ranges;
  std::vector<MemoryFigures> memory;
  std::uint64_t module_load_count{0};
  double module_load_ms{0};
  std::vector<Finding> findings;         // costliest first
  std::vector<DeviceNote> device_notes;  // no findings: single stalls, exposed communication
  std::vector<std::string> notes;
  std::vector<trace::Loss> losses;
  View view;             // empty unless it was asked for
  DerivedTracks tracks;  // likewise
};

/// Everything that the recording's device work adds up to. kCorrupt as read_device_work().
/// Deterministic; pure; any thread.
[[nodiscard]] Result<WorkReport> report_of(const trace::Trace& trace, const Options& options);

/// The kernels behind the first `rows_max` together.
struct Others {
  std::uint64_t count{0};
  std::optional<double> total_us, share;
};
[[nodiscard]] Others others_of(const WorkReport& report, std::size_t rows_max);

/// The report as JSON, schema kansoku.cuda_report/1 (docs/formats/cuda-report.md); tables are cut
/// to `rows_max`.
[[nodiscard]] Json to_json(const WorkReport& report, std::size_t rows_max);

/// Data of a page beside the report, schema kansoku.cuda_view/1 (docs/formats/cuda-report.md).
[[nodiscard]] Json view_json(const WorkReport& report);

/// The report as lines for a terminal.
[[nodiscard]] std::string to_text(const WorkReport& report, std::size_t rows_max);

}  // namespace kansoku::gpu::activity
