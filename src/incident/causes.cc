// SPDX-License-Identifier: Apache-2.0
#include "incident/causes.h"

#include <algorithm>
#include <array>

#include "incident/thresholds.h"

namespace kansoku::incident {
namespace {

using Kind = trace::IncidentKind;

constexpr std::size_t kEvidenceMax = 8;  // as the record has it

// The detector sees that steps stop, where, and which rank is idle; not why. Errors of hardware,
// collections of garbage and memory that grows are no effects of an operation that does not end.
constexpr std::array kOfStuckKernel{Kind::kLatencySpike,
                                    Kind::kSlowForward,
                                    Kind::kSlowBackward,
                                    Kind::kSlowOptimizer,
                                    Kind::kCommunicationInefficiency,
                                    Kind::kResourceContention,
                                    Kind::kInputStarvation,
                                    Kind::kKernelTime,
                                    Kind::kUnknown};

constexpr std::array kCauses{
    Cause{Kind::kStuckKernel, kOfStuckKernel,
          "live hangs on the software device: unknown, resource_contention; the others chosen"},
};

}  // namespace

std::span<const Cause> known_causes() {
  return kCauses;
}

bool explains(std::span<const Cause> causes, Kind cause, std::optional<Kind> effect) {
  return std::any_of(causes.begin(), causes.end(), [&](const Cause& one) {
    return one.kind == cause && (!effect || std::find(one.explains.begin(), one.explains.end(),
                                                      *effect) != one.explains.end());
  });
}

bool explains(std::span<const Cause> causes, const trace::IncidentFacts& cause,
              const trace::IncidentFacts& effect) {
  if (!explains(causes, cause.kind, effect.kind)) return false;
  if (effect.begin_ns < cause.begin_ns - kEffectBeforeMax.count()) return false;
  if (effect.end_ns != 0 && effect.end_ns < cause.begin_ns) return false;
  return cause.end_ns == 0 || effect.begin_ns <= cause.end_ns + kEffectAfterMax.count();
}

void add_effect(trace::IncidentFacts& cause, const trace::IncidentFacts& effect) {
  cause.begin_ns = std::min(cause.begin_ns, effect.begin_ns);
  cause.has_effect = cause.has_effect || effect.has_effect;
  cause.score = std::max(cause.score, effect.score);
  cause.window_count = std::max(cause.window_count, effect.window_count);
  for (const std::string& test : effect.tests)
    if (std::find(cause.tests.begin(), cause.tests.end(), test) == cause.tests.end())
      cause.tests.push_back(test);
  for (const trace::Evidence& one : effect.evidence)
    if (cause.evidence.size() < kEvidenceMax) cause.evidence.push_back(one);
}

}  // namespace kansoku::incident
