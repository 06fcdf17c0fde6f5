// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/host_counters.h"

#include <array>
#include <utility>

#include "sys/tcp.h"

namespace kansoku::capture {

using trace::Arg;

namespace {
constexpr Nanos kEvery = std::chrono::seconds{1};
}  // namespace

void HostCounters::sample_sockets(const Observed& process, BootTime now) {
  for (const sys::TcpSocket& socket : sys::tcp_sockets(process.facts.pid, kSocketsMax)) {
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

void HostCounters::sample_quota(const Observed& process, BootTime now) {
  Quota& quota = held_back_[process.facts.pid];
  if (!quota.sampler) {
    auto opened = sys::CgroupCpuSampler::open(process.facts.pid);
    if (!opened) return;
    quota.sampler.emplace(std::move(opened).value());
  }
  const auto seen = quota.sampler->sample();
  if (!seen) {
    quota.sampler.reset();
    return;
  }
  if (!seen->throttled_ns) return;
  if (!quota.track) quota.track = writer_.counter_track(process.track, "cpu throttled", "ns");
  writer_.counter(*quota.track, now, static_cast<double>(*seen->throttled_ns));
}

void HostCounters::begin_trace(BootTime now) {
  is_open_ = true;
  next_ = now;
  for (auto& [pid, quota] : held_back_)
    quota.track.reset();
}

void HostCounters::poll(const Processes& processes, BootTime now) {
  next_ = now + kEvery;
  for (const auto& [pid, process] : processes) {
    if (process.role != "rank") continue;
    sample_quota(process, now);
    sample_sockets(process, now);
  }
}

}  // namespace kansoku::capture
