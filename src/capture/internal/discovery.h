// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "common/time.h"
#include "sys/procfs.h"

namespace kansoku::capture {

/// Looks at young processes until they turn out to be AI processes: soon and often at first, then
/// less, and only if their address space has grown since. So thousands of short-lived processes
/// cost one table entry each. Single-threaded.
class Discovery {
 public:
  static constexpr std::size_t kLooksPerPoll = 24;       // mappings read in one poll
  static constexpr std::size_t kGlancesPerPoll = 2'048;  // sizes of address spaces

  Discovery(const sys::Procfs& procfs, std::size_t candidates_max)
      : procfs_(procfs), candidates_max_(candidates_max) {}

  /// A process to look at: it was just started, or was never seen.
  void add(std::int32_t pid, BootTime now);
  void remove(std::int32_t pid) { candidates_.erase(pid); }
  [[nodiscard]] bool contains(std::int32_t pid) const { return candidates_.contains(pid); }

  /// Looks at those that are due; hands over those that map an AI library, with their mappings, and
  /// forgets them.
  using OnFound = std::function<void(std::int32_t, const std::vector<sys::Mapping>&)>;
  void poll(BootTime now, const OnFound& on_found);

  [[nodiscard]] std::size_t size() const { return candidates_.size(); }
  [[nodiscard]] std::uint64_t over_limit() const { return over_limit_; }

 private:
  struct Candidate {
    BootTime seen_at{}, next_look{};
    std::uint64_t pages{0};  // of its address space at the last look
  };
  /// True: keep it. `looks` counts the mappings read.
  bool inspect(std::int32_t pid, Candidate& candidate, BootTime now, const OnFound& on_found,
               std::size_t& looks);

  const sys::Procfs& procfs_;
  std::size_t candidates_max_;
  std::map<std::int32_t, Candidate> candidates_;
  std::multimap<BootTime, std::int32_t> due_;  // next_look of candidates, some of them gone
  std::uint64_t over_limit_{0};
};

/// Pages of a process's address space, from /proc/PID/statm; 0 if it is gone.
[[nodiscard]] std::uint64_t address_space_pages(const sys::Procfs& procfs, std::int32_t pid);

}  // namespace kansoku::capture
