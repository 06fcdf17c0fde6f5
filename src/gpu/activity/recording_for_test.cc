// SPDX-License-Identifier: Apache-2.0
#include "gpu/activity/recording_for_test.h"

#include <fmt/format.h>

#include <cmath>

#include "common/bytes.h"
#include "common/check.h"
#include "trace/reader.h"
#include "trace/traces_for_test.h"

namespace kansoku::gpu::activity {

std::int64_t ns_for_test(double us) {
  return trace::kBaseForTest.time_since_epoch().count() +
         static_cast<std::int64_t>(std::llround(us * 1e3));
}

namespace {

BootTime at_us(double us) {
  return boot_time(ns_for_test(us));
}

}  // namespace

void Recording::process(std::int32_t pid, std::int32_t rank, std::int32_t world_size) {
  trace::ProcessInfo info;
  info.pid = pid;
  info.name = "train";
  info.job = rank == trace::kNoRank ? "" : "job";
  info.role = rank == trace::kNoRank ? "" : "rank";
  info.rank = rank;
  info.world_size = world_size;
  processes_[pid] = writer_.process_track(info);
}

void Recording::slice(trace::TrackHandle track, std::string_view category, std::string_view name,
                      Span span, const Args& args, std::uint64_t flow) {
  std::vector<trace::Arg> list;
  for (const auto& [key, value] : args) {
    const trace::NameId id = writer_.name(key);
    if (const auto* number = std::get_if<std::int64_t>(&value)) {
      list.push_back(*number < 0 ? trace::Arg::sint(id, *number)
                                 : trace::Arg::uint(id, static_cast<std::uint64_t>(*number)));
    } else {
      list.push_back(trace::Arg::str(id, std::get<std::string>(value)));
    }
  }
  writer_.slice_begin(track, at_us(span.begin_us), writer_.name(name), writer_.category(category),
                      list, flow);
  if (span.end_us >= 0) writer_.slice_end(track, at_us(span.end_us));
}

void Recording::host(std::int32_t pid, std::int32_t tid, std::string_view category,
                     std::string_view name, Span span, const Args& args, std::uint64_t flow) {
  if (!processes_.contains(pid)) process(pid, trace::kNoRank, trace::kNoRank);
  slice(writer_.thread_track(pid, tid, tid == pid ? "main" : "helper"), category, name, span, args,
        flow);
}

void Recording::op(std::int32_t pid, std::int64_t stream, std::string_view category,
                   std::string_view name, Span span, std::uint64_t correlation, Args args,
                   std::uint64_t flow) {
  if (!processes_.contains(pid)) process(pid, trace::kNoRank, trace::kNoRank);
  const auto [known, is_new] = streams_.try_emplace({pid, stream});
  if (is_new)
    known->second = writer_.custom_track(processes_[pid],
                                         fmt::format("GPU 0 stream {}{}", stream, clock_name_));
  const trace::TrackHandle track = known->second;
  if (correlation != 0) args.emplace_back("correlation", static_cast<std::int64_t>(correlation));
  args.emplace_back("stream", stream);
  args.emplace_back("device", std::int64_t{0});
  slice(track, category, name, span, args, flow);
}

void Recording::kernel(std::int32_t pid, std::int64_t stream, std::string_view name, Span launch,
                       Span device, Args args) {
  const std::uint64_t correlation = next_correlation_++;
  call(pid, "cudaLaunchKernel", launch,
       {{"correlation", static_cast<std::int64_t>(correlation)}, {"stream", stream}});
  op(pid, stream, "kernel", name, device, correlation, std::move(args));
}

void Recording::memory(std::int32_t pid, double at, double bytes) {
  if (!processes_.contains(pid)) process(pid, trace::kNoRank, trace::kNoRank);
  writer_.counter(writer_.counter_track(processes_[pid], "device memory, live", "bytes"), at_us(at),
                  bytes);
}

void Recording::meta(std::string_view key, std::string_view value) {
  writer_.metadata(key, value, at_us(0));
}

trace::Trace recording_of(const std::function<void(Recording&)>& fill) {
  const std::string bytes = trace::bytes_of([&](trace::Writer& writer) {
    Recording recording(writer);
    fill(recording);
  });
  auto trace = trace::read_trace(as_bytes(bytes));
  CHECK(trace.has_value());
  return std::move(*trace);
}

WorkReport report_for_test(const std::function<void(Recording&)>& fill,
                           const std::vector<Recording::Span>& steps) {
  const trace::Trace trace = recording_of(fill);
  Options options;
  if (!steps.empty()) {
    options.steps.push_back({.pid = 100, .steps = {}});
    for (const Recording::Span& step : steps)
      options.steps[0].steps.push_back({ns_for_test(step.begin_us), ns_for_test(step.end_us)});
  }
  auto report = report_of(trace, options);
  CHECK(report.has_value());
  return std::move(*report);
}

}  // namespace kansoku::gpu::activity
