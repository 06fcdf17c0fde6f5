// SPDX-License-Identifier: Apache-2.0
#include "detect/internal/words.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "detect/feature.h"

namespace kansoku::detect::words {
namespace {

constexpr std::size_t kChangesMax = 3;
constexpr double kChangeShareMin = 0.05;  // of the score; the first is shown whatever it has

/// "tcp_retransmits" as people say it: "TCP retransmits".
std::string spoken(std::string_view feature) {
  std::string out(feature);
  std::replace(out.begin(), out.end(), '_', ' ');
  for (const auto& [from, to] : {std::pair{"tcp", "TCP"}, {"gpu", "GPU"}, {"cpu", "CPU"}})
    if (out.rfind(from, 0) == 0) out.replace(0, 3, to);
  return out;
}

}  // namespace

std::string ranks_text(std::span<const std::int32_t> ranks, std::string_view none) {
  if (ranks.empty()) return std::string(none);
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string changes_text(std::span<const trace::Evidence> rows, Names names) {
  std::string out;
  for (std::size_t i = 0; i < std::min(kChangesMax, rows.size()); ++i) {
    const trace::Evidence& one = rows[i];
    if (i > 0 && one.share < kChangeShareMin) break;
    out += fmt::format("{} {} {} -> {}", i == 0 ? ":" : ",",
                       names == Names::kSpoken ? spoken(one.feature) : one.feature,
                       format_value(one.normal, one.unit), format_value(one.seen, one.unit));
  }
  return out;
}

}  // namespace kansoku::detect::words
