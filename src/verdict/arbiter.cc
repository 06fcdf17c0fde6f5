// SPDX-License-Identifier: Apache-2.0
#include "verdict/arbiter.h"

#include <array>
#include <tuple>

namespace kansoku::verdict {
namespace {

/// Ranks that an effect may be of, beside its cause's.
enum class Scope : std::uint8_t {
  kSame,    // the same
  kWithin,  // some of the cause's
  kPart,    // some of the cause's, which are not all of the job
  kOthers,  // none of the cause's, which has some
};

/// The same time seen from two sides: that of the side which knows why is told.
struct Explanation {
  // No detail: any. "slow_*": all kinds that begin so; "*": all kinds of the host.
  std::string_view cause, cause_detail;
  std::string_view effect, effect_detail;  // likewise
  Scope scope;
};

constexpr std::array kExplanations{
    // The host only waits for its device.
    Explanation{"slow_kernel", "", "slow_*", "", Scope::kSame},
    Explanation{"slow_kernel", "", "asymmetry", "", Scope::kSame},
    Explanation{"slow_kernel", "", "blocked", "", Scope::kSame},
    Explanation{"slow_kernel", "", "uneven_work", "", Scope::kSame},
    Explanation{"slow_kernel", "", "uneven_time", "", Scope::kSame},
    Explanation{"copy_bound", "", "slow_*", "", Scope::kSame},
    Explanation{"copy_bound", "", "asymmetry", "", Scope::kSame},
    Explanation{"copy_bound", "", "blocked", "", Scope::kSame},
    // The device only waits for its host, which says where it spends the time.
    Explanation{"slow_*", "", "gpu_starved", "", Scope::kSame},
    Explanation{"asymmetry", "", "gpu_starved", "", Scope::kSame},
    Explanation{"uneven_work", "", "gpu_starved", "", Scope::kSame},
    Explanation{"slowed", "", "gpu_starved", "", Scope::kSame},
    Explanation{"cpu_contention", "", "gpu_starved", "", Scope::kSame},
    Explanation{"cpu_throttled", "", "gpu_starved", "", Scope::kSame},
    Explanation{"interpreter_lock", "", "gpu_starved", "", Scope::kSame},
    Explanation{"blocked", "", "gpu_starved", "", Scope::kSame},
    Explanation{"common_input", "", "gpu_starved", "loader", Scope::kSame},
    Explanation{"slow_*", "", "launch_bound", "", Scope::kSame},
    Explanation{"asymmetry", "", "launch_bound", "", Scope::kSame},
    Explanation{"cpu_contention", "", "launch_bound", "", Scope::kSame},
    Explanation{"cpu_throttled", "", "launch_bound", "", Scope::kSame},
    Explanation{"interpreter_lock", "", "launch_bound", "", Scope::kSame},
    // A process that gets less of a processor becomes slower.
    Explanation{"cpu_contention", "", "slowed", "", Scope::kSame},
    Explanation{"cpu_throttled", "", "slowed", "", Scope::kSame},
    Explanation{"stolen", "", "slowed", "", Scope::kSame},
    // Ranks wait for others in collectives, so their devices do.
    Explanation{"*", "", "gpu_starved", "collective", Scope::kOthers},
    // A process that got no memory ends, and its peers wait.
    Explanation{"memory_pressure", "out_of_memory", "hang", "", Scope::kSame},
    Explanation{"memory_pressure", "out_of_memory", "stopped", "", Scope::kSame},
    // Slow work of ranks that are held back is a consequence; but not that one of them, where all
    // are, is slower than the others.
    Explanation{"cpu_throttled", "", "cpu_contention", "", Scope::kWithin},
    Explanation{"cpu_throttled", "", "*", "", Scope::kPart},
};

constexpr std::array<std::string_view, 2> kStandsStill{"hang", "stopped"};
constexpr std::string_view kWithoutMemory = "memory_pressure";

bool is_of_kind(const Claim& claim, std::string_view pattern, std::string_view detail) {
  if (!detail.empty() && claim.detail != detail) return false;
  if (!pattern.ends_with('*')) return claim.kind == pattern;
  // Findings of a device have a detail.
  return claim.detail.empty() && claim.kind.starts_with(pattern.substr(0, pattern.size() - 1));
}

bool is_in_scope(const Claim& cause, const Claim& effect, Scope scope, std::size_t member_count) {
  const auto is_of_cause = [&](std::int32_t rank) {
    return std::find(cause.ranks.begin(), cause.ranks.end(), rank) != cause.ranks.end();
  };
  switch (scope) {
    case Scope::kSame:
      return std::equal(cause.ranks.begin(), cause.ranks.end(), effect.ranks.begin(),
                        effect.ranks.end());
    case Scope::kWithin:
    case Scope::kPart:
      return (scope == Scope::kWithin || cause.ranks.size() < member_count) &&
             std::all_of(effect.ranks.begin(), effect.ranks.end(), is_of_cause);
    case Scope::kOthers:
      return !cause.ranks.empty() &&
             std::none_of(effect.ranks.begin(), effect.ranks.end(), is_of_cause);
  }
  return false;
}

int urgency(const Claim& claim) {
  if (std::find(kStandsStill.begin(), kStandsStill.end(), claim.kind) != kStandsStill.end())
    return 0;
  return claim.kind == kWithoutMemory ? 1 : 2;
}

}  // namespace

std::string_view basis_name(Basis basis) {
  return basis == Basis::kTest ? "test" : "observation";
}

bool comes_before(const Claim& a, const Claim& b) {
  const auto order = [](const Claim& claim) {
    return std::tuple(urgency(claim), -claim.cost, -claim.share);
  };
  return order(a) < order(b);
}

bool is_same_place(const Claim& a, const Claim& b) {
  return a.kind == b.kind && !a.function.empty() && a.function == b.function && a.file == b.file;
}

bool explains(const Claim& cause, const Claim& effect, std::size_t member_count) {
  return std::any_of(kExplanations.begin(), kExplanations.end(), [&](const Explanation& row) {
    return is_of_kind(cause, row.cause, row.cause_detail) &&
           is_of_kind(effect, row.effect, row.effect_detail) &&
           is_in_scope(cause, effect, row.scope, member_count);
  });
}

}  // namespace kansoku::verdict
