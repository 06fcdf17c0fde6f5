// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/pattern.h"
#include "trace/model.h"

namespace kansoku::diagnose {

/// Activity of a slice of a profiler's trace; nothing for frames around others (annotations, whole
/// steps). Categories as PyTorch's profilers of 1.8 and later write them, in either case. Kernels
/// that are collectives: trace/collective_kernels.h.
[[nodiscard]] std::optional<Activity> activity_of(std::string_view category, std::string_view name);

/// A collective as one rank took part in it.
struct ProfiledCollective {
  std::int64_t begin_ns{0}, end_ns{0};
  std::uint32_t name{0};  // equal on all ranks: index into ProfileJob::names
};

/// A long slice of the host, whatever it is.
struct HostCall {
  std::int64_t begin_ns{0}, end_ns{0};
  std::uint32_t name{0};  // index into ProfileJob::names
};

struct ProfiledRank {
  std::int32_t rank{0};
  std::vector<std::int32_t> pids;                            // of its processes, ascending
  std::vector<Execution> executions;                         // by begin
  std::vector<ProfiledCollective> collectives;               // by begin
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;  // ProfilerStep#N, by begin
  std::int64_t begin_ns{0}, end_ns{0};  // of the steps if there are two, else of all executions
  bool is_of_steps{false};              // that is so
  std::int64_t seen_begin_ns{0}, seen_end_ns{0};  // of all slices
  std::vector<HostCall> long_calls;               // by begin, outer ones first
  bool has_gpu{false};
  double unreadable_share{0};  // as trace::Process has it
};

struct ProfileJob {
  std::vector<ProfiledRank> ranks;  // by rank
  std::vector<std::string> names;   // of functions
  std::vector<std::string> notes;
};

/// Sorts the slices of all files by rank. A trace whose files name no rank is rank 0. `pid`: of
/// that process alone.
[[nodiscard]] ProfileJob read_profile_job(const trace::Trace& trace,
                                          std::optional<std::int32_t> pid = std::nullopt);

/// Processes without a rank that each worked a device, by pid: programs of their own, if several.
[[nodiscard]] std::vector<std::int32_t> programs_of(const trace::Trace& trace);

}  // namespace kansoku::diagnose
