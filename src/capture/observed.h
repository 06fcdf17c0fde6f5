// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "capture/job.h"
#include "common/time.h"
#include "trace/model.h"
#include "trace/writer.h"

namespace kansoku::capture {

/// Role of a process in its job.
enum class Role : std::uint8_t {
  kNone,      // a program of its own
  kLauncher,  // starts ranks, or has the environment of the one that it starts
  kRank,
  kWorker,  // works for another process: a data loader, a tool
};
/// "", "launcher", "rank", "worker".
[[nodiscard]] std::string_view role_name(Role role);

/// Place of a process in a job, derived from its data and calls and those of the processes around
/// it.
struct Place {
  Role role{Role::kNone};
  std::string job{};        // equal for all members, and of no other ranks of this host
  bool is_local_job{true};  // the name means nothing on other hosts
  std::int32_t rank{trace::kNoRank}, local_rank{trace::kNoRank}, world_size{trace::kNoRank};
  std::int32_t owner{0};  // whom it works for: itself but for workers; 0: who has ended
  friend bool operator==(const Place&, const Place&) = default;
};

/// A process in one of its process groups, as a call on the group told it.
struct GroupSeat {
  std::int32_t pid{0};
  std::uint64_t group{0};  // address of the group in that process
  std::int32_t rank{trace::kNoRank}, size{0};
  friend bool operator==(const GroupSeat&, const GroupSeat&) = default;
};

/// Greater groups are none: what was read as their size is something else.
inline constexpr std::uint64_t kGroupSizeMax = std::uint64_t{1} << 20;

/// One observed process.
struct Observed {
  JobProcess facts;
  Place place;
  bool has_stacks{false};  // Python's, which are read
  BootTime seen_at{};
  BootTime communicated_at{};  // when a call of communication was last heard of; 0: none was
  BootTime next_scan{};        // when to look at its mappings again
  trace::TrackHandle track{};  // in the trace of a recorder
};

/// True for a rank, and for a program of its own that runs Python, which may be a training without
/// ranks: their own counters are of interest.
[[nodiscard]] bool is_counted(const Observed& process);

using Processes = std::map<std::int32_t, Observed>;  // by pid

}  // namespace kansoku::capture
