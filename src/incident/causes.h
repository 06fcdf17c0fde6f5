// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "trace/incident.h"

namespace kansoku::incident {

/// A kind of trouble that shows itself as other kinds, too: then both are one incident, of this
/// kind. `set_on`: where that was seen; "chosen": nowhere.
struct Cause {
  trace::IncidentKind kind;
  std::span<const trace::IncidentKind> explains;
  std::string_view set_on;
};

/// The causes that Kansoku knows.
[[nodiscard]] std::span<const Cause> known_causes();

/// True if a kind explains another one by the table; without `effect`, if it explains any.
[[nodiscard]] bool explains(std::span<const Cause> causes, trace::IncidentKind cause,
                            std::optional<trace::IncidentKind> effect = {});

/// True if one explains the other, both of one job: by the table, and by their times. An effect
/// begins while its cause lasts, but for kEffectBeforeMax and kEffectAfterMax, and is not over
/// before its cause begins.
[[nodiscard]] bool explains(std::span<const Cause> causes, const trace::IncidentFacts& cause,
                            const trace::IncidentFacts& effect);

/// Adds the evidence, the tests and the score of an effect to its cause.
void add_effect(trace::IncidentFacts& cause, const trace::IncidentFacts& effect);

}  // namespace kansoku::incident
