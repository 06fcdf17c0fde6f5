// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

#include "capture/source.h"
#include "sys/procfs.h"
#include "trace/writer.h"

namespace kansoku::capture::hang {

/// Keeps the calls that ranks made before anybody looked, from their Flight Recorders' memory
/// (trace/import/recorded_flight.h): when a recording ends, of the ranks that were heard in no call
/// for kQuiet. Of a rank that communicates nothing is read. Borrows the writer and procfs.
class FlightSource final : public Source {
 public:
  static constexpr Nanos kQuiet = std::chrono::seconds{3};

  FlightSource(trace::Writer& writer, const sys::Procfs& procfs)
      : writer_(writer), procfs_(procfs) {}

  [[nodiscard]] std::string_view name() const override { return "flight_calls"; }
  void forget(std::int32_t pid) override { ranks_.erase(pid); }
  [[nodiscard]] BootTime due() const override { return next_; }
  void poll(const Processes& processes, BootTime now) override;
  void begin_trace(BootTime now) override;
  void end_trace(BootTime now) override;
  void set_enabled(bool /*enabled*/) override {}
  void add_losses(Losses& out) const override;

 private:
  struct Rank {
    BootTime communicated_at{};
    std::optional<std::uint64_t> storage_bytes;  // when it was first seen in this recording
  };
  void write_calls(std::int32_t pid, const Rank& rank, BootTime now);

  trace::Writer& writer_;
  const sys::Procfs& procfs_;
  BootTime next_{}, begun_{};
  std::map<std::int32_t, Rank> ranks_;  // by process
  std::uint64_t bad_calls_{0};
};

/// Borrows procfs.
[[nodiscard]] SourceMaker flight_source_maker(const sys::Procfs& procfs);

STAT(capture_flight_calls_torn, kNotice, kCapture,
     "calls in a Flight Recorder's memory that changed while they were read; they were left out");

}  // namespace kansoku::capture::hang
