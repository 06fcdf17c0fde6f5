// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "detect/iteration_detector.h"

namespace kansoku::detect {

struct IncidentOptions {
  IterationOptions iteration{};
  std::int64_t refractory_ns{60'000'000'000};  // after an incident, before the next
};

/// Something to look into, told once however many ranks see it.
struct Incident {
  enum class Kind : std::uint8_t { kSlow, kBlocked };
  Kind kind{Kind::kSlow};
  std::int32_t member{0};  // whose detector fired first: a process
  std::int64_t time_ns{0};
  double ratio{0};  // slow: mean over recent shortest; blocked: silence over mean iteration
};

/// "slow", "blocked".
[[nodiscard]] std::string_view incident_name(Incident::Kind kind);

/// One detector for each member of a job; in synchronous training all slow down together, so the
/// first trigger is the incident and the others' in the refractory time are part of it. A blocked
/// job ends a slow incident's pause: standing still is worse. One that stands still in another
/// pause is told when that is over. Members come with their first event and leave by forget().
/// Bounded: at most `kMembersMax`. Not shared between threads.
class IncidentWatch {
 public:
  static constexpr std::size_t kMembersMax = 4096;
  explicit IncidentWatch(const IncidentOptions& options) : options_(options) {}

  [[nodiscard]] std::optional<Incident> on_event(std::int32_t member, std::uint32_t token,
                                                 std::int64_t time_ns);
  [[nodiscard]] std::optional<Incident> on_time(std::int64_t now_ns);
  /// A window was taken and looked into: the present length of iterations is the new normal.
  void settle(std::int64_t now_ns);
  void forget(std::int32_t member) { detectors_.erase(member); }

  [[nodiscard]] const std::map<std::int32_t, IterationDetector>& detectors() const {
    return detectors_;
  }

 private:
  std::optional<Incident> report(Incident incident);

  IncidentOptions options_;
  std::map<std::int32_t, IterationDetector> detectors_;
  std::optional<Incident> last_;
  std::int64_t quiet_until_ns_{0};
  std::int64_t last_blocked_ns_{std::numeric_limits<std::int64_t>::min()};  // the last one told
};

}  // namespace kansoku::detect
