// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace kansoku::verdict {

/// Ground that a finding stands on.
enum class Basis : std::uint8_t {
  kTest,         // a statistical one, of which the confidence is
  kObservation,  // a state or a sum that was seen: its confidence is unknown, and written as none
};
/// "test", "observation": in JSON.
[[nodiscard]] std::string_view basis_name(Basis basis);
/// In place of a confidence that there is none of.
inline constexpr std::string_view kObserved = "observed";

/// One finding of an explainer, as the arbiter looks at it. Borrows from the finding.
struct Claim {
  std::string_view kind{};
  std::string_view detail{};              // of a device: the cause within the kind; else empty
  std::span<const std::int32_t> ranks{};  // in one order; none: of nobody
  std::string_view function{}, file{};    // no function: not located
  double cost{0};                         // in the unit of all claims that are compared
  double share{0};                        // of the step or of the time
};

/// True if `a` is told before `b`: one that stands still first, then one without memory, then by
/// cost and share.
[[nodiscard]] bool comes_before(const Claim& a, const Claim& b);

/// True if both say the same of different ranks: one kind in one place that is known.
[[nodiscard]] bool is_same_place(const Claim& a, const Claim& b);

/// True if by the table of kinds `cause` explains `effect`, and by their ranks. `member_count`:
/// ranks of the job.
[[nodiscard]] bool explains(const Claim& cause, const Claim& effect, std::size_t member_count);

/// Sorts findings of any type that has `Claim claim_of(const Finding&)` in its namespace. Stable.
template <typename Finding>
void put_in_order(std::vector<Finding>& findings) {
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    return comes_before(claim_of(a), claim_of(b));
  });
}

}  // namespace kansoku::verdict
