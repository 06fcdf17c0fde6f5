// SPDX-License-Identifier: Apache-2.0
#include "capture/host_reader.h"

#include <type_traits>
#include <utility>

namespace kansoku::capture {
namespace {

/// A sample; opens the sampler anew for another process of that pid.
template <class Sampler, class Open>
auto sample_of(std::optional<Sampler>& sampler, Open open) {
  for (int attempt = 0;; ++attempt) {
    if (!sampler) {
      if (auto opened = open()) sampler.emplace(std::move(opened).value());
    }
    using Sample = std::optional<std::decay_t<decltype(sampler->sample().value())>>;
    if (!sampler) return Sample();
    auto sample = sampler->sample();
    if (sample) return Sample(std::move(sample).value());
    // Anything else than its end, such as a control group that says nothing, a new one shares.
    if (sample.error().code != Code::kNotFound || attempt == 1) return Sample();
    sampler.reset();
  }
}

}  // namespace

void HostReader::read_process(std::int32_t pid, const Wanted& wanted, Kept& kept,
                              HostReading& out) {
  const auto sample = sample_of(
      kept.sampler, [&] { return sys::ProcessSampler::open(pid, {.reads_storage = false}); });
  if (sample && wanted.processor_time) out.processor_ns = sample->user_ns + sample->system_ns;
  if (!wanted.memory) return;
  if (sample) out.resident_bytes = sample->resident_bytes;
  constexpr std::uint32_t kRoomEvery = 10;  // limits hardly ever change, and are in several files
  if (kept.room_age++ % kRoomEvery == 0) {
    const auto room = sys::memory_room(pid);
    kept.memory_room = room ? std::optional(room->bytes) : std::nullopt;
  }
  out.memory_room = kept.memory_room;
}

void HostReader::read_quota(std::int32_t pid, Kept& kept, HostReading& out) {
  const auto sample = sample_of(kept.quota, [&] { return sys::CgroupCpuSampler::open(pid); });
  if (sample) out.throttled_ns = sample->throttled_ns;
}

std::map<std::int32_t, HostReading> HostReader::read(std::span<const std::int32_t> pids,
                                                     BootTime now, const Wanted& wanted) {
  std::map<std::int32_t, HostReading> out;
  std::map<std::int32_t, Kept> kept;
  const auto stolen_ns =
      wanted.stolen && !pids.empty() ? procfs_.stolen_ns() : std::optional<std::uint64_t>();
  for (const std::int32_t pid : pids) {
    Kept& here = kept[pid] = std::move(kept_[pid]);
    HostReading& reading = out[pid];
    reading.stolen_ns = stolen_ns;
    if (wanted.memory || wanted.processor_time) read_process(pid, wanted, here, reading);
    if (wanted.quota) read_quota(pid, here, reading);
    if (wanted.main_thread)
      reading.main_thread = sample_of(here.main_thread, [&] {
        return sys::ProcessSampler::open(pid, {.reads_storage = false, .main_thread_only = true});
      });
  }
  kept_ = std::move(kept);
  if (!wanted.connections) return out;
  for (const sys::ProcessTcp& seen : tcp_.sample(pids, now))
    out[seen.pid].tcp = seen;
  return out;
}

}  // namespace kansoku::capture
