// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "common/json.h"
#include "common/numbers.h"

namespace kansoku::exporter {

/// Unit of a number; decides how it is written.
/// kPoints: differences of shares, in points of a per cent.
enum class Unit { kPlain, kSeconds, kShare, kPoints, kHours, kBytes };
[[nodiscard]] Unit unit_from(std::string_view untrusted);

/// The number of `json`; nothing for another kind and beyond +-1e18: no figure of a simulation, and
/// sums and differences of the others stay finite.
[[nodiscard]] std::optional<double> number_in(const Json& json);

/// One figure with its 95 % interval.
struct Figure {
  std::string name;
  Unit unit{Unit::kPlain};
  bool known{false};  // the file held a number
  double mean{0}, low{0}, high{0};
  /// An interval that says something: more than one replication, and they differ.
  [[nodiscard]] bool has_interval() const { return known && high > low; }
};

/// Reads "mean", "low" and "high" of `row`; without the last two there is no interval.
[[nodiscard]] Figure figure_from(const Json& row, std::string name, Unit unit);

/// Three significant digits, thousands separated, a true minus sign: "13,401", "0.0203".
[[nodiscard]] std::string shown(double value);
/// As short as it is exact, for the places of an axis: "0.1", "2,000".
[[nodiscard]] std::string short_number(double value);
/// With its unit in a size fit for people: "5.68 min", "36.4 %", "2.7 TB".
[[nodiscard]] std::string shown(double value, Unit unit);
/// The same with a sign: "+5.68 min".
[[nodiscard]] std::string shown_difference(double value, Unit unit);
/// A time of a device: "12.5 us", "3.4 ms", else as above; below a microsecond in its parts.
[[nodiscard]] std::string shown_short_time(double seconds);

/// With the prefix of its size: "24.3 GFLOP/s".
[[nodiscard]] std::string shown_rate(double value, std::string_view unit);

/// "5.68 min", or an en dash if not known.
[[nodiscard]] std::string shown(const Figure& figure);
/// "4.9 to 6.5 min"; empty without an interval.
[[nodiscard]] std::string interval_of(const Figure& figure);

/// How values about as great as `typical` are written: value * factor, with the suffix.
struct Scale {
  double factor{1};
  std::string_view suffix;  // " min", empty for plain numbers
};
[[nodiscard]] Scale scale_of(Unit unit, double typical);
/// `value` with so many decimals, separators and a true minus sign; never "-0".
[[nodiscard]] std::string with_decimals(double value, int decimals);
/// Decimals that leave three significant digits.
[[nodiscard]] int decimals_for(double value);

}  // namespace kansoku::exporter
