// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "cli/diagnose/analysis.h"
#include "diagnose/diagnose.h"
#include "sys/procfs.h"

namespace kansoku::cli {

/// A look at the calls that ranks made before anybody looked: made when the look begins, asked when
/// it is over. Borrows procfs.
class FlightLook {
 public:
  FlightLook(const sys::Procfs& procfs, std::span<const std::int32_t> pids);
  /// Adds what the Flight Recorders of the ranks hold in memory to each job that stands.
  void join(Analysis& analysis) const;

 private:
  void join_job(diagnose::Diagnosis& job) const;

  const sys::Procfs& procfs_;
  std::map<std::int32_t, std::uint64_t> storage_;  // by process, when the look began
};

}  // namespace kansoku::cli
