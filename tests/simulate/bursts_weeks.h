// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "simulate/workload/workload.h"

namespace kansoku::simulate {

inline constexpr std::int64_t kDayNs = std::int64_t{86'400} * 1'000'000'000;
inline constexpr std::int64_t kHourNs = kDayNs / 24;

inline constexpr std::int64_t kWeekSeconds = 7 * 86'400;
inline constexpr Nanos kWeekLength{kWeekSeconds * 1'000'000'000};

/// The whole weeks of a recording that the evaluation uses, numbered from 1.
struct Recording {
  std::vector<std::vector<Job>> weeks;  // submission since the week's Monday 00:00
  std::vector<std::string> groups;
  std::vector<Job> all;  // of the whole file, in order of submission
};

/// Reads Philly's CSV ("-": standard input) and keeps `count` weeks from the Monday `from`
/// ("2017-09-25").
[[nodiscard]] Result<Recording> read_weeks(const std::string& path, const std::string& from,
                                           int count);

/// Weeks one after the other, as if they had been recorded so: time 0 is a Monday 00:00.
[[nodiscard]] Workload join_weeks(const Recording& recording, const std::vector<int>& numbers);

/// "1, 3, 5".
[[nodiscard]] std::string list_of(const std::vector<int>& numbers);

}  // namespace kansoku::simulate
