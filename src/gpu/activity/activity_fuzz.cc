// SPDX-License-Identifier: Apache-2.0
// Reads a trace from the input, a recording or JSON, and makes report, exported file and copy with
// derived tracks of it: no crash, no hang, the same answer twice and of the copy, and what is
// exported can be read again.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/bytes.h"
#include "common/check.h"
#include "gpu/activity/activity.h"
#include "gpu/activity/derived_tracks.h"
#include "gpu/activity/kineto.h"
#include "trace/import/chrome.h"
#include "trace/reader.h"

namespace {

using namespace kansoku;

constexpr std::uint64_t kEventsMax = 20'000;

bool read(ByteSpan bytes, trace::Trace& trace, bool& is_recording) {
  trace::import::ChromeOptions options;
  options.events_max = kEventsMax;
  if (trace::import::import_chrome(bytes, "rank0.json", options, trace)) return true;
  trace::ReadOptions limits;
  limits.events_max = kEventsMax;
  auto recording = trace::read_trace(bytes, limits);
  if (!recording) return false;
  trace = std::move(*recording);
  is_recording = true;
  return true;
}

/// A copy with derived tracks is a recording with the same report.
void check_copy(const trace::Trace& trace, ByteSpan bytes) {
  gpu::activity::Options options;
  options.with_tracks = true;
  const auto report = gpu::activity::report_of(trace, options);
  CHECK(report.has_value());
  MemorySink sink;
  if (!gpu::activity::write_tracks(trace, *report, bytes, sink)) return;
  const auto copy = trace::read_trace(as_bytes(sink.data()));
  CHECK(copy.has_value());
  const auto again = gpu::activity::report_of(*copy, {});
  CHECK(again.has_value());
  CHECK(gpu::activity::to_json(*again, 10).dump() == gpu::activity::to_json(*report, 10).dump());
}

std::string exported(const trace::Trace& trace) {
  gpu::activity::KinetoOptions options;
  if (const auto ranks = gpu::activity::ranks_of(trace); !ranks.empty())
    options.rank = ranks.front();
  MemorySink sink;
  const auto counts = gpu::activity::write_kineto(trace, options, sink);
  CHECK(counts.has_value());
  return sink.data();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trace::Trace trace;
  const ByteSpan bytes = std::as_bytes(std::span(data, size));
  bool is_recording = false;
  if (!read(bytes, trace, is_recording)) return 0;
  gpu::activity::Options options;
  const auto first = gpu::activity::report_of(trace, options);
  const auto second = gpu::activity::report_of(trace, options);
  CHECK(first.has_value() && second.has_value());
  CHECK(gpu::activity::to_json(*first, 10).dump() == gpu::activity::to_json(*second, 10).dump());
  CHECK(gpu::activity::to_text(*first, 10) == gpu::activity::to_text(*second, 10));
  if (is_recording) check_copy(trace, bytes);
  const std::string text = exported(trace);
  trace::Trace again;
  CHECK(trace::import::import_chrome(as_bytes(text), "rank0.json", {}, again).has_value());
  CHECK(gpu::activity::report_of(again, options).has_value());
  return 0;
}
