// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "capture/internal/roster.h"
#include "common/time.h"
#include "sys/cgroup.h"
#include "trace/writer.h"

namespace kansoku::capture {

/// What the kernel counts for each rank anyway, read now and then: time held back by a processor
/// quota (counter "cpu throttled", ns), and the state of its TCP connections (instants "tcp" of
/// category "net": local, peer, rtt_us, min_rtt_us, retransmits, bytes, rate). Ranks only;
/// single-threaded.
class HostCounters {
 public:
  static constexpr std::size_t kSocketsMax = 64;  // of one rank, each time
  explicit HostCounters(trace::Writer& writer) : writer_(writer) {}

  void sample(const std::map<std::int32_t, Observed>& processes, BootTime now);
  /// After the writer was restarted.
  void clear() { held_back_.clear(); }

 private:
  void sample_sockets(const Observed& process, BootTime now);
  void sample_quota(const Observed& process, BootTime now);
  trace::Writer& writer_;
  struct Quota {
    std::optional<sys::CgroupCpuSampler> sampler;
    std::optional<trace::TrackHandle> track;
  };
  std::map<std::int32_t, Quota> held_back_;  // by pid
};

}  // namespace kansoku::capture
