// SPDX-License-Identifier: Apache-2.0
#include "simulate/trace_out.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <optional>
#include <queue>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "simulate/records.h"
#include "simulate/summary.h"
#include "trace/writer.h"

namespace kansoku::simulate {
namespace {

constexpr std::uint32_t kNoLane = UINT32_MAX;

/// One slice to be: a wait or an execution of a record.
struct Piece {
  Nanos begin{0}, end{0};
  std::uint64_t record{0};
  std::uint32_t lane{kNoLane};
  bool is_wait{false};
  friend bool operator<(const Piece& a, const Piece& b) {
    return std::tie(a.begin, a.record) < std::tie(b.begin, b.record);  // a wait lasts, so no ties
  }
};

/// The `limit` earliest pieces of all records, in order; `left_out` counts the others.
std::vector<Piece> earliest_pieces(const Records& records, std::uint64_t limit,
                                   std::uint64_t& left_out) {
  std::vector<Piece> kept;
  const auto cut = [&] {
    if (kept.size() <= limit) return;
    const auto last = kept.begin() + static_cast<std::ptrdiff_t>(limit);
    std::nth_element(kept.begin(), last, kept.end());
    left_out += kept.size() - limit;
    kept.resize(limit);
  };
  for (std::uint64_t i = 0; i < records.size(); ++i) {
    const TaskRecord& record = records[i];
    if (record.started > record.queued)
      kept.push_back({record.queued, record.started, i, kNoLane, true});
    kept.push_back({record.started, record.ended, i, kNoLane, false});
    if (kept.size() / 2 >= limit) cut();  // room for as many again: a constant cost each
  }
  cut();
  std::sort(kept.begin(), kept.end());
  return kept;
}

/// Lanes of one kind in one cluster. Asked in order of begins.
class Lanes {
 public:
  explicit Lanes(std::uint32_t limit) : limit_(limit) {}

  /// The lowest lane that is free at `begin`, taken until `end`; kNoLane if all are taken.
  std::uint32_t take(Nanos begin, Nanos end) {
    while (!busy_.empty() && busy_.top().first <= begin) {
      free_.push(busy_.top().second);
      busy_.pop();
    }
    std::uint32_t lane = kNoLane;
    if (!free_.empty()) {
      lane = free_.top();
      free_.pop();
    } else if (count_ < limit_) {
      lane = count_++;
    } else {
      return kNoLane;
    }
    busy_.emplace(end, lane);
    return lane;
  }
  [[nodiscard]] std::uint32_t count() const { return count_; }

 private:
  template <class T>
  using Least = std::priority_queue<T, std::vector<T>, std::greater<>>;
  std::uint32_t limit_, count_{0};
  Least<std::uint32_t> free_;
  Least<std::pair<Nanos, std::uint32_t>> busy_;
};

class TraceOut {
 public:
  TraceOut(const Experiment& experiment, const Replication& replication,
           const TraceOutOptions& options, trace::Writer& writer)
      : experiment_(experiment), replication_(replication), options_(options), writer_(writer) {}

  Result<TraceOutCounts> write() {
    declare_processes();
    if (replication_.records != nullptr) {
      pieces_ = earliest_pieces(*replication_.records, options_.slices_max, counts_.over_limit);
      assign_lanes();
      write_slices();
    }
    for (const Series& series : replication_.series)
      write_counter(series);
    write_notes();
    TRY_VOID(writer_.flush());
    return counts_;
  }

 private:
  /// A cluster's process and its lanes: [0] of executions, [1] of waits.
  struct ClusterTracks {
    trace::TrackHandle process;
    std::array<std::vector<trace::TrackHandle>, 2> lanes;
  };

  static trace::TrackHandle process(trace::Writer& writer, std::int32_t pid,
                                    const std::string& name) {
    trace::ProcessInfo info;
    info.pid = pid;
    info.name = name;
    return writer.process_track(info);
  }

  void declare_processes() {
    for (const ClusterSpec& cluster : experiment_.clusters)
      clusters_.push_back({process(writer_, static_cast<std::int32_t>(clusters_.size()) + 1,
                                   "cluster " + cluster.name),
                           {}});
  }

  [[nodiscard]] std::uint32_t cluster_of(const Piece& piece) const {
    const TaskRecord& record = (*replication_.records)[piece.record];
    return experiment_.pipelines[record.pipeline].tasks[record.task].cluster;
  }

  void assign_lanes() {
    std::vector<std::array<Lanes, 2>> lanes(
        clusters_.size(), {Lanes(options_.lanes_max), Lanes(options_.queue_lanes_max)});
    for (Piece& piece : pieces_) {
      piece.lane = lanes[cluster_of(piece)][piece.is_wait ? 1 : 0].take(piece.begin, piece.end);
      if (piece.lane == kNoLane) ++(piece.is_wait ? counts_.no_queue_lane : counts_.no_lane);
    }
    for (std::size_t c = 0; c < clusters_.size(); ++c)
      for (const std::size_t kind : {std::size_t{0}, std::size_t{1}}) {
        const std::uint32_t count = lanes[c][kind].count();
        // Numbers of one width: the UI sorts tracks by name.
        const std::size_t width = std::to_string(count).size();
        for (std::uint32_t i = 1; i <= count; ++i)
          clusters_[c].lanes[kind].push_back(writer_.custom_track(
              clusters_[c].process,
              fmt::format("{} {:0{}}", kind == 0 ? "lane" : "queue", i, width)));
      }
  }

  /// Names of slices, [pipeline][task].
  std::vector<std::vector<trace::NameId>> slice_names() {
    std::vector<std::vector<trace::NameId>> names;
    for (const PipelineSpec& pipeline : experiment_.pipelines) {
      names.emplace_back();
      for (const TaskSpec& task : pipeline.tasks)
        names.back().push_back(writer_.name(pipeline.name + "." + task.name));
    }
    return names;
  }

  void write_slices() {
    const auto names = slice_names();
    const trace::NameId run = writer_.name("run"), pipeline = writer_.name("pipeline"),
                        task = writer_.name("task"), wait = writer_.name("wait_s"),
                        restarts = writer_.name("restarts"), units = writer_.name("units"),
                        end = writer_.name("end");
    const std::array<trace::CategoryId, 2> categories{writer_.category("execution"),
                                                      writer_.category("wait")};
    for (const Piece& piece : pieces_) {
      if (piece.lane == kNoLane) continue;
      const TaskRecord& record = (*replication_.records)[piece.record];
      const PipelineSpec& of = experiment_.pipelines[record.pipeline];
      const double wait_s = static_cast<double>((record.started - record.queued).count()) / 1e9;
      const std::array<trace::Arg, 7> args{
          trace::Arg::uint(run, record.run),
          trace::Arg::str(pipeline, of.name),
          trace::Arg::str(task, of.tasks[record.task].name),
          trace::Arg{wait, trace::Arg::Kind::kDouble, std::bit_cast<std::uint64_t>(wait_s), {}},
          trace::Arg::uint(restarts, record.restarts),
          trace::Arg::uint(units, record.units),
          trace::Arg::str(end, task_end_name(record.end))};
      const std::size_t kind = piece.is_wait ? 1 : 0;
      const trace::TrackHandle track = clusters_[cluster_of(piece)].lanes[kind][piece.lane];
      writer_.slice_begin(track, BootTime{piece.begin}, names[record.pipeline][record.task],
                          categories[kind], args, std::uint64_t{record.run} + 1);
      writer_.slice_end(track, BootTime{piece.end});
      ++(piece.is_wait ? counts_.waits : counts_.executions);
    }
  }

  /// "cluster.NAME.queue" goes under that cluster's process, all else under one of its own.
  trace::TrackHandle counter_parent(const std::string& name, std::string& label) {
    for (std::size_t c = 0; c < clusters_.size(); ++c) {
      const std::string prefix = "cluster." + experiment_.clusters[c].name + ".";
      if (!name.starts_with(prefix)) continue;
      label = name.substr(prefix.size());
      return clusters_[c].process;
    }
    label = name;
    return process(writer_, static_cast<std::int32_t>(clusters_.size()) + 1, "models");
  }

  void write_counter(const Series& series) {
    std::string label;
    const trace::TrackHandle parent = counter_parent(series.name, label);
    const trace::TrackHandle track = writer_.counter_track(parent, label, unit_of(series.name));
    for (std::size_t i = 0; i < series.values.size(); ++i) {
      if (!std::isfinite(series.values[i])) continue;
      const double at_ns = static_cast<double>(i) * replication_.series_step_s * 1e9;
      writer_.counter(track, boot_time(std::llround(at_ns)), series.values[i]);
    }
  }

  void write_notes() {
    constexpr BootTime kBegin{};
    writer_.metadata("kansoku.simulation", experiment_.name, kBegin);
    writer_.metadata("kansoku.simulation.source", experiment_.source, kBegin);
    writer_.metadata("kansoku.simulation.seed", std::to_string(experiment_.seed), kBegin);
    writer_.metadata("kansoku.simulation.replication", std::to_string(replication_.index), kBegin);
    const std::uint64_t dropped =
        replication_.records == nullptr ? 0 : replication_.records->dropped();
    for (const auto& [stat, total] : {std::pair(&simulation_slices_over_limit, counts_.over_limit),
                                      std::pair(&simulation_no_lane, counts_.no_lane),
                                      std::pair(&simulation_no_queue_lane, counts_.no_queue_lane),
                                      std::pair(&simulation_records_dropped, dropped)})
      if (total > 0) writer_.loss(*stat, total, kBegin);
  }

  const Experiment& experiment_;
  const Replication& replication_;
  const TraceOutOptions& options_;
  trace::Writer& writer_;
  std::vector<ClusterTracks> clusters_;
  std::vector<Piece> pieces_;
  TraceOutCounts counts_;
};

}  // namespace

Result<TraceOutCounts> write_trace(const Experiment& experiment, const Replication& replication,
                                   ByteSink& sink, const TraceOutOptions& options) {
  TRY(const auto writer, trace::Writer::create(sink, BootTime{}));
  return TraceOut(experiment, replication, options, *writer).write();
}

}  // namespace kansoku::simulate
