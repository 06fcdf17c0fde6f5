// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "diagnose/internal/steps/job.h"
#include "trace/model.h"

namespace kansoku::diagnose {

/// Limits of a rank, as the recording tells them.
struct Limits {
  std::string cpus;               // "0-3,8"; empty: not told
  std::uint64_t cpu_count{0};     // number of `cpus`
  std::uint64_t host_count{0};    // processors of its host
  std::string quota_group;        // the control group with the least quota; empty: there is none
  double quota_cpus{0};           // the quota, in processors
  std::string memory_group;       // whose memory limit it reaches first; empty: the host's memory
  std::uint64_t memory_limit{0};  // bytes
  [[nodiscard]] bool is_confined() const { return !cpus.empty() && cpu_count < host_count; }
};

/// By rank number; the last that was told. Ranks of which nothing was told are left out.
[[nodiscard]] std::map<std::int32_t, Limits> read_limits(const trace::Trace& trace,
                                                         const JobData& job);

}  // namespace kansoku::diagnose
