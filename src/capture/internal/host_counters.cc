// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/host_counters.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

namespace kansoku::capture {

using trace::Arg;

namespace {
constexpr Nanos kEvery = std::chrono::seconds{1};
constexpr std::uint32_t kLimitsEvery = 10;  // polls: they hardly ever change
}  // namespace

void HostCounters::write_sockets(const Observed& process, BootTime now) {
  for (const sys::TcpSocket& socket : reader_.sockets(process.facts.pid, kSocketsMax)) {
    const std::array args{Arg::str(writer_.name("local"), socket.local),
                          Arg::str(writer_.name("peer"), socket.peer),
                          Arg::uint(writer_.name("rtt_us"), socket.rtt_us),
                          Arg::uint(writer_.name("min_rtt_us"), socket.min_rtt_us),
                          Arg::uint(writer_.name("retransmits"), socket.retransmits),
                          Arg::uint(writer_.name("sent_bytes"), socket.bytes_sent),
                          Arg::uint(writer_.name("received_bytes"), socket.bytes_received),
                          Arg::uint(writer_.name("rate"), socket.delivery_rate),
                          Arg::uint(writer_.name("busy_us"), socket.busy_us),
                          Arg::uint(writer_.name("limited_us"), socket.limited_us)};
    writer_.instant(process.track, now, writer_.name("tcp"), writer_.category("net"), args);
  }
}

void HostCounters::write_limits(const Observed& process, BootTime now) {
  auto cpu = sys::cpu_limits(process.facts.pid);
  if (!cpu) return;
  Limits limits{.cpu = std::move(*cpu)};
  if (auto room = sys::memory_room(process.facts.pid)) {
    limits.memory_group = std::move(room->group);
    limits.memory_limit = room->limit_bytes;
  }
  std::optional<Limits>& last = limits_[process.facts.pid];
  if (last == limits) return;
  last = std::move(limits);
  const sys::CpuLimits* const known = &last->cpu;
  const auto host_count = std::max(::sysconf(_SC_NPROCESSORS_ONLN), 0L);
  std::vector<Arg> args{
      Arg::str(writer_.name("cpus"), known->cpus),
      Arg::uint(writer_.name("cpu_count"), known->cpu_count),
      Arg::uint(writer_.name("host_count"), static_cast<std::uint64_t>(host_count))};
  if (known->quota_cpus) {
    args.push_back(Arg::str(writer_.name("quota_group"), known->quota_group));
    args.push_back(Arg::uint(writer_.name("quota_milli"),
                             static_cast<std::uint64_t>(std::llround(*known->quota_cpus * 1e3))));
  }
  if (!last->memory_group.empty()) {
    args.push_back(Arg::str(writer_.name("memory_group"), last->memory_group));
    args.push_back(Arg::uint(writer_.name("memory_limit"), last->memory_limit));
  }
  writer_.instant(process.track, now, writer_.name("limits"), writer_.category("host"), args);
}

void HostCounters::write_time(Tracks& tracks, const char* name, const Observed& process,
                              std::uint64_t ns, BootTime now) {
  const auto [track, is_new] = tracks.try_emplace(process.facts.pid);
  if (is_new) track->second = writer_.counter_track(process.track, name, "ns");
  writer_.counter(track->second, now, static_cast<double>(ns));
}

void HostCounters::write_main_thread(const Observed& process, const sys::ProcessCounters& use,
                                     BootTime now) {
  const std::int32_t pid = process.facts.pid;
  const auto [known, is_new] = main_threads_.try_emplace(pid);
  ThreadTracks& tracks = known->second;
  if (is_new) {
    const trace::TrackHandle thread = writer_.thread_track(pid, pid, "");
    tracks = {writer_.counter_track(thread, "minor faults", ""),
              writer_.counter_track(thread, "major faults", ""),
              writer_.counter_track(thread, "user time", "ns"),
              writer_.counter_track(thread, "system time", "ns")};
  }
  writer_.counter(tracks.minor_faults, now, static_cast<double>(use.minor_faults));
  writer_.counter(tracks.major_faults, now, static_cast<double>(use.major_faults));
  writer_.counter(tracks.user_time, now, static_cast<double>(use.user_ns));
  writer_.counter(tracks.system_time, now, static_cast<double>(use.system_ns));
}

void HostCounters::begin_trace(BootTime now) {
  is_open_ = true;
  next_ = now;
  if (page_fault_ns_)
    writer_.metadata("kansoku.page_fault_ns", fmt::format("{:.0f}", *page_fault_ns_), now);
  processor_tracks_.clear();
  throttled_tracks_.clear();
  stolen_tracks_.clear();
  main_threads_.clear();
  limits_.clear();
  polls_ = 0;
}

void HostCounters::poll(const Processes& processes, BootTime now) {
  next_ = now + kEvery;
  const bool is_time_for_limits = polls_++ % kLimitsEvery == 0;
  std::vector<std::int32_t> counted;
  for (const auto& [pid, process] : processes)
    if (is_counted(process)) counted.push_back(pid);
  for (const auto& [pid, reading] : reader_.read(counted, now,
                                                 {.quota = true,
                                                 .main_thread = true,
                                                 .stolen = true,
                                                 .processor_time = true,
                                                 .connections = true})) {
    const Observed& process = processes.at(pid);
    if (is_time_for_limits || !limits_.contains(pid)) write_limits(process, now);
    if (reading.processor_ns)
      write_time(processor_tracks_, "processor time", process, *reading.processor_ns, now);
    if (reading.stolen_ns.value_or(0) > 0)
      write_time(stolen_tracks_, "stolen time", process, *reading.stolen_ns, now);
    if (reading.throttled_ns)
      write_time(throttled_tracks_, "cpu throttled", process, *reading.throttled_ns, now);
    if (reading.main_thread) write_main_thread(process, *reading.main_thread, now);
    write_sockets(process, now);
  }
}

}  // namespace kansoku::capture
