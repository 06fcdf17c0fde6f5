// SPDX-License-Identifier: Apache-2.0
#include "gpu/activity/derived_tracks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/parse.h"
#include "common/time.h"
#include "trace/append.h"
#include "trace/reader.h"
#include "trace/writer.h"

namespace kansoku::gpu::activity {
namespace {

using stats::Interval;

// Every category begins with "kansoku.": no observation of the job.
constexpr std::string_view kIdleCategory = "kansoku.idle", kStepCategory = "kansoku.step",
                           kCostCategory = trace::kOwnCost;
constexpr std::string_view kMark = "kansoku.tracks";  // and the begin of the keys of each track
constexpr std::string_view kCostTrack = "Kansoku's own cost";
constexpr std::size_t kStepsMax = 200'000;  // of one process; a bound of size
constexpr std::size_t kCostArgsMax = 12;    // that an event has room for

/// A value of "own_ns=12 cpu_s=0.5 name=x".
trace::Arg arg_of(trace::NameId key, std::string_view text) {
  if (const auto whole = parse_int<std::uint64_t>(text)) return trace::Arg::uint(key, *whole);
  const auto real = parse_double(text);
  if (!real) return trace::Arg::str(key, text);
  return {key, trace::Arg::Kind::kDouble, std::bit_cast<std::uint64_t>(*real), {}};
}

class TrackWriter {
 public:
  TrackWriter(const trace::Trace& trace, const trace::AppendPoint& point, trace::Writer& writer)
      : trace_(trace), point_(point), writer_(writer) {}

  TracksWritten write(const DerivedTracks& tracks);

 private:
  void idle(const IdleTrack& track);
  void steps(const ProcessSteps& of);
  void costs();
  void cost(std::optional<std::int32_t> pid, std::string_view name, std::string_view values);
  trace::TrackHandle below(std::int32_t pid, std::string_view name);
  void slice(trace::TrackHandle track, Interval time, trace::NameId name,
             trace::CategoryId category, std::span<const trace::Arg> args);
  void meta(const std::string& key, const std::string& value) {
    writer_.metadata(key, value, boot_time(trace_.end_ns));
  }

  const trace::Trace& trace_;
  const trace::AppendPoint& point_;
  trace::Writer& writer_;
  std::map<std::optional<std::int32_t>, trace::TrackHandle> cost_tracks_;
  TracksWritten out_;
};

/// A track of a process, or at the top, with its number, where the recording has none of it.
trace::TrackHandle TrackWriter::below(std::int32_t pid, std::string_view name) {
  const auto process = point_.processes.find(pid);
  if (process != point_.processes.end()) return writer_.custom_track(process->second, name);
  return writer_.custom_track({}, fmt::format("{} (process {})", name, pid));
}

/// Never outside the recording: its bounds are those of what was observed.
void TrackWriter::slice(trace::TrackHandle track, Interval time, trace::NameId name,
                        trace::CategoryId category, std::span<const trace::Arg> args) {
  const auto at = [&](std::int64_t ns) {
    return boot_time(std::clamp(ns, trace_.begin_ns, trace_.end_ns));
  };
  writer_.slice_begin(track, at(time.begin_ns), name, category, args);
  writer_.slice_end(track, at(time.end_ns));
}

void TrackWriter::idle(const IdleTrack& track) {
  const std::string device = track.ordinal < 0 ? "GPU" : fmt::format("GPU {}", track.ordinal);
  const trace::TrackHandle handle = below(track.pid, device + " idle");
  const trace::CategoryId category = writer_.category(kIdleCategory);
  const trace::NameId function = writer_.name("function");
  for (const IdleGap& gap : track.gaps) {
    const std::array args{trace::Arg::str(function, gap.function)};
    const std::size_t arg_count = gap.function.empty() ? 0 : 1;
    slice(handle, gap.time, writer_.name(idle_cause_text(gap.cause)), category,
          std::span(args).first(arg_count));
  }
  meta(fmt::format("{}.{}.idle.{}", kMark, track.pid, track.ordinal),
       fmt::format("gaps={} left_out={} left_out_us={:.0f}", track.gaps.size(),
                   track.left_out_count, track.left_out_us));
  ++out_.idle_track_count;
  out_.gap_count += track.gaps.size();
  out_.left_out_count += track.left_out_count;
  out_.left_out_us += track.left_out_us;
}

void TrackWriter::steps(const ProcessSteps& of) {
  if (of.steps.empty()) return;
  const trace::TrackHandle handle = below(of.pid, "steps");
  const trace::CategoryId category = writer_.category(kStepCategory);
  const std::size_t count = std::min(of.steps.size(), kStepsMax);
  for (std::size_t i = 0; i < count; ++i)
    slice(handle, of.steps[i], writer_.name(fmt::format("step {}", i + 1)), category, {});
  meta(fmt::format("{}.{}.steps", kMark, of.pid),
       fmt::format("steps={} left_out={}", count, of.steps.size() - count));
  out_.step_count += count;
}

/// Totals that the recording has of a source or of a process: nothing says how they grew, so they
/// stand at its end.
void TrackWriter::cost(std::optional<std::int32_t> pid, std::string_view name,
                       std::string_view values) {
  std::vector<trace::Arg> args;
  for (std::string_view rest = values; !rest.empty() && args.size() < kCostArgsMax;) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    const std::size_t sign = word.find('=');
    if (sign == std::string_view::npos || sign == 0) continue;
    args.push_back(arg_of(writer_.name(word.substr(0, sign)), word.substr(sign + 1)));
  }
  const auto [known, is_new] = cost_tracks_.try_emplace(pid);
  if (is_new) known->second = pid ? below(*pid, kCostTrack) : writer_.custom_track({}, kCostTrack);
  writer_.instant(known->second, boot_time(trace_.end_ns), writer_.name(name),
                  writer_.category(kCostCategory), args);
  ++out_.cost_count;
}

void TrackWriter::costs() {
  constexpr std::string_view kSource = "kansoku.source.", kCuda = "kansoku.cuda.", kCost = "cost";
  for (const auto& [key, value] : trace_.metadata) {
    std::string_view rest = key;
    if (rest.starts_with(kSource)) {
      cost(std::nullopt, fmt::format("source {}", rest.substr(kSource.size())), value);
      continue;
    }
    if (!rest.starts_with(kCuda)) continue;
    rest.remove_prefix(kCuda.size());
    const std::size_t dot = rest.find('.');
    const auto pid = parse_int<std::int32_t>(rest.substr(0, dot));
    if (!pid || dot == std::string_view::npos) continue;
    rest.remove_prefix(dot + 1);
    // "cost", or "program2.cost" of the program that the process became.
    if (rest != kCost && !(rest.ends_with(".cost") && rest.starts_with("program"))) continue;
    const std::string_view program = rest.substr(0, rest.size() - kCost.size());
    cost(*pid,
         program.empty()
             ? std::string("timing of device work")
             : fmt::format("timing of device work, {}", program.substr(0, program.size() - 1)),
         value);
  }
}

TracksWritten TrackWriter::write(const DerivedTracks& tracks) {
  for (const ProcessSteps& of : tracks.steps)
    steps(of);
  for (const IdleTrack& track : tracks.idle)
    idle(track);
  costs();
  meta(std::string(kMark), fmt::format("idle={} steps={} cost={}", out_.idle_track_count,
                                       out_.step_count, out_.cost_count));
  return out_;
}

}  // namespace

Result<TracksWritten> write_tracks(const trace::Trace& trace, const WorkReport& report,
                                   ByteSpan recording, ByteSink& sink) {
  if (trace.metadata.contains(std::string(kMark)))
    return Error{Code::kUnsupported, "derive tracks: the recording has derived tracks already",
                 "give the recording that it is a copy of"};
  TRY(const trace::AppendPoint point, trace::append_point(recording));
  TRY_VOID(sink.append(recording.first(point.whole_bytes)));
  TRY(const auto writer,
      trace::Writer::create(sink, boot_time(std::max<std::int64_t>(trace.begin_ns, 0)),
                            point.options));
  // The copy is whole, what it copies is not.
  if (point.is_torn) writer->loss(trace::trace_truncated_tail, 1, boot_time(trace.end_ns));
  const TracksWritten written = TrackWriter(trace, point, *writer).write(report.tracks);
  TRY_VOID(writer->flush());
  return written;
}

}  // namespace kansoku::gpu::activity
