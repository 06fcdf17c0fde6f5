// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <protozero/pbf_reader.hpp>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "common/result.h"
#include "trace/internal/sequence.h"
#include "trace/model.h"
#include "trace/reader.h"

namespace kansoku::trace {

/// Builds a Trace from packets. Methods may throw protozero's exceptions on damaged bytes;
/// read_trace() catches them. Limits come back as Result.
class PacketDecoder {
 public:
  PacketDecoder(Trace& trace, const ReadOptions& options) : trace_(trace), options_(options) {}

  /// One TracePacket that is not compressed.
  [[nodiscard]] Result<void> packet(protozero::data_view bytes);
  /// Turns losses and metadata instants into their tables and sets the bounds of the trace.
  void finish();

  void count(const StatDef& stat, std::uint64_t by = 1);

 private:
  struct PacketHead;
  struct EventFields;

  void read_head(protozero::data_view bytes, PacketHead& head) const;
  [[nodiscard]] Result<void> body(protozero::data_view bytes, const PacketHead& head,
                                  Sequence& sequence);
  [[nodiscard]] std::int64_t boot_time_of(const PacketHead& head, Sequence& sequence,
                                          bool has_event);
  void clock_snapshot(protozero::data_view bytes, Sequence& sequence);
  void packet_defaults(protozero::data_view bytes, Sequence& sequence);
  [[nodiscard]] Result<void> interned_data(protozero::data_view bytes, Sequence& sequence);
  [[nodiscard]] Result<void> interned_text(protozero::data_view bytes, IidMap<StringId>& table);
  [[nodiscard]] Result<void> interned_frame(protozero::data_view bytes, Sequence& sequence);
  [[nodiscard]] Result<void> interned_stack(protozero::data_view bytes, Sequence& sequence);
  [[nodiscard]] Result<void> track_descriptor(protozero::data_view bytes);
  [[nodiscard]] Result<void> process_descriptor(protozero::data_view bytes, Track& track);
  [[nodiscard]] Result<void> process_label(std::string_view label, Process& process);
  [[nodiscard]] Result<void> thread_descriptor(protozero::data_view bytes, Track& track);
  [[nodiscard]] Result<void> track_event(protozero::data_view bytes, std::int64_t time_ns,
                                         Sequence& sequence);
  [[nodiscard]] Result<void> annotation(protozero::data_view bytes, Sequence& sequence);
  [[nodiscard]] Result<void> perf_sample(protozero::data_view bytes, std::int64_t time_ns,
                                         Sequence& sequence);
  [[nodiscard]] Result<void> ftrace_bundle(protozero::data_view bytes);
  [[nodiscard]] Result<void> ftrace_event(protozero::data_view bytes, std::uint32_t cpu);
  void begin_slice(const EventFields& fields, std::int64_t time_ns);
  void end_slice(const EventFields& fields, std::int64_t time_ns);
  void instant(const EventFields& fields, std::int64_t time_ns);
  [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> keep_args();
  [[nodiscard]] TrackId track_of(std::uint64_t uuid);
  [[nodiscard]] Result<StringId> intern(protozero::data_view text);
  [[nodiscard]] Result<void> count_event(std::uint64_t by = 1);
  void recorded_facts(std::size_t instant, StringId loss, StringId metadata);

  Trace& trace_;
  const ReadOptions& options_;
  std::map<std::uint32_t, Sequence> sequences_;
  std::map<std::uint64_t, ClockMap> global_clocks_;
  IidMap<TrackId> tracks_;                                       // by uuid
  std::vector<std::vector<std::uint32_t>> open_;                 // by track: indices of open slices
  std::unordered_map<std::int32_t, std::size_t> process_index_;  // by pid
  std::vector<ArgValue> scratch_args_;                           // of the event in hand
  std::vector<FrameId> scratch_frames_;
  std::uint64_t event_count_{0};
  std::uint64_t string_bytes_{0};
};

}  // namespace kansoku::trace
