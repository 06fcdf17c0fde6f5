// SPDX-License-Identifier: Apache-2.0
#include "capture/hang/flight_source.h"

#include <memory>
#include <utility>

#include "capture/hang/flight_memory.h"
#include "sys/process_counters.h"
#include "trace/import/recorded_flight.h"

namespace kansoku::capture::hang {
namespace {

using trace::import::RecordedFlight;

constexpr Nanos kPollEvery = std::chrono::seconds{1};

/// Bytes that a process has read from and written to storage; nothing: that may not be known.
std::optional<std::uint64_t> storage_bytes(const sys::Procfs& procfs, std::int32_t pid) {
  const auto sampler = sys::ProcessSampler::open(pid, {.proc_root = procfs.root()});
  if (!sampler) return std::nullopt;
  const auto counters = sampler->sample();
  if (!counters || !counters->read_bytes || !counters->written_bytes) return std::nullopt;
  return *counters->read_bytes + *counters->written_bytes;
}

}  // namespace

void FlightSource::poll(const Processes& processes, BootTime now) {
  next_ = now + kPollEvery;
  for (const auto& [pid, process] : processes) {
    if (process.place.role != Role::kRank) continue;
    const auto [rank, is_new] = ranks_.try_emplace(pid);
    if (is_new) rank->second.storage_bytes = storage_bytes(procfs_, pid);
    rank->second.communicated_at = process.communicated_at;
  }
}

void FlightSource::begin_trace(BootTime now) {
  ranks_.clear();
  next_ = begun_ = now;
}

void FlightSource::end_trace(BootTime now) {
  if (now - begun_ <= kQuiet) return;  // nobody has been quiet for so long
  for (const auto& [pid, rank] : ranks_)
    if (now - rank.communicated_at > kQuiet) write_calls(pid, rank, now);
}

void FlightSource::write_calls(std::int32_t pid, const Rank& rank, BootTime now) {
  using Storage = RecordedFlight::Storage;
  const auto after = storage_bytes(procfs_, pid);
  auto memory = read_flight_memory(procfs_, pid);
  if (!memory) return;
  bad_calls_ += memory->dump.bad_entries;
  const bool is_known = rank.storage_bytes && after;
  const bool moves = is_known && *after != *rank.storage_bytes;
  const RecordedFlight flight{.pid = pid,
                              .read_ns = memory->read_ns,
                              .storage = !is_known ? Storage::kUnknown
                                         : moves   ? Storage::kMoves
                                                   : Storage::kStill,
                              .dump = std::move(memory->dump)};
  write_recorded_flight(writer_, flight, now);
}

void FlightSource::add_losses(Losses& out) const {
  out.add(capture_flight_calls_torn, bad_calls_);
}

SourceMaker flight_source_maker(const sys::Procfs& procfs) {
  return
      [&procfs](trace::Writer& writer) { return std::make_unique<FlightSource>(writer, procfs); };
}

}  // namespace kansoku::capture::hang
