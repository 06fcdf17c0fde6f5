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

/// Whether a kind explains another one by the table; whether it explains any, if there is none.
[[nodiscard]] bool explains(std::span<const Cause> causes, trace::IncidentKind cause,
                            std::optional<trace::IncidentKind> effect = {});

/// Whether one explains the other, both of one job: by the table, and by their times. An effect
/// begins while its cause lasts, but for kEffectBeforeMax and kEffectAfterMax, and is not over
/// before its cause begins.
[[nodiscard]] bool explains(std::span<const Cause> causes, const trace::IncidentFacts& cause,
                            const trace::IncidentFacts& effect);

/// What is said of a cause, with the evidence, the tests and the score of its effects.
void add_effect(trace::IncidentFacts& cause, const trace::IncidentFacts& effect);

}  // namespace kansoku::incident
