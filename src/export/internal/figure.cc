// SPDX-License-Identifier: Apache-2.0
#include "export/internal/figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

namespace kansoku::exporter {
namespace {

constexpr double kGreatest = 1e18;

constexpr std::string_view kMinus = "\u2212";

Scale seconds_scale(double typical) {
  struct Row {
    double below;
    Scale scale;
  };
  // A unit is left where its number would pass two of the next one.
  constexpr std::array<Row, 4> kRows{{{0.1, {1e3, " ms"}},
                                      {120, {1, " s"}},
                                      {7200, {1.0 / 60, " min"}},
                                      {172'800, {1.0 / 3600, " h"}}}};
  if (typical == 0) return {1, " s"};
  for (const Row& row : kRows)
    if (typical < row.below) return row.scale;
  return {1.0 / 86400, " d"};
}

Scale bytes_scale(double typical) {
  constexpr std::array<std::string_view, 6> kNames{" B", " kB", " MB", " GB", " TB", " PB"};
  double factor = 1;
  std::size_t i = 0;
  for (; i + 1 < kNames.size() && typical * factor >= 1000; ++i)
    factor /= 1000;
  return {factor, kNames[i]};
}

}  // namespace

Unit unit_from(std::string_view untrusted) {
  if (untrusted == "s") return Unit::kSeconds;
  if (untrusted == "share") return Unit::kShare;
  if (untrusted == "h") return Unit::kHours;
  if (untrusted == "bytes") return Unit::kBytes;
  return Unit::kPlain;
}

std::optional<double> number_in(const Json& json) {
  if (!json.is_number()) return std::nullopt;
  const double value = json.as_double();
  if (!(std::fabs(value) <= kGreatest)) return std::nullopt;
  return value;
}

Figure figure_from(const Json& row, std::string name, Unit unit) {
  Figure out;
  out.name = std::move(name);
  out.unit = unit;
  const auto mean = number_in(row.at("mean"));
  if (!mean) return out;
  out.known = true;
  out.mean = out.low = out.high = *mean;
  const auto low = number_in(row.at("low")), high = number_in(row.at("high"));
  if (low && high && *low <= *mean && *mean <= *high) {
    out.low = *low;
    out.high = *high;
  }
  return out;
}

int decimals_for(double value) {
  const double size = std::fabs(value);
  if (size == 0 || size >= 100) return 0;
  return std::min(2 - static_cast<int>(std::floor(std::log10(size))), 12);
}

std::string with_decimals(double value, int decimals) {
  const double size = std::fabs(value);
  std::string digits = size >= 1e12 ? fmt::format("{:.3g}", size)
                                    : fmt::format("{:.{}f}", size, std::clamp(decimals, 0, 12));
  const std::size_t point = digits.find_first_of(".e");
  if (digits.find('e') == std::string::npos) {
    const std::size_t whole = point == std::string::npos ? digits.size() : point;
    for (std::size_t at = whole; at > 3; at -= 3)
      digits.insert(at - 3, ",");
  }
  const bool is_zero = digits.find_first_not_of("0.,") == std::string::npos;
  return value < 0 && !is_zero ? std::string(kMinus) + digits : digits;
}

std::string shown(double value) {
  const bool is_whole = value == std::floor(value);
  return with_decimals(value, is_whole ? 0 : decimals_for(value));
}

std::string short_number(double value) {
  constexpr int kDecimalsMax = 6;
  for (int decimals = 0; decimals < kDecimalsMax; ++decimals) {
    const double scaled = value * std::pow(10, decimals);
    if (std::fabs(scaled - std::round(scaled)) <= 1e-9 * std::fabs(scaled))
      return with_decimals(value, decimals);
  }
  return shown(value);
}

Scale scale_of(Unit unit, double typical) {
  switch (unit) {
    case Unit::kSeconds:
      return seconds_scale(std::fabs(typical));
    case Unit::kShare:
      return {100, " %"};
    case Unit::kPoints:
      return {100, " points"};
    case Unit::kHours:
      return {1, " h"};
    case Unit::kBytes:
      return bytes_scale(std::fabs(typical));
    default:
      return {};
  }
}

std::string shown(double value, Unit unit) {
  const Scale scale = scale_of(unit, value);
  return shown(value * scale.factor) + std::string(scale.suffix);
}

std::string shown_short_time(double seconds) {
  const double size = std::fabs(seconds);
  if (size == 0) return "0";
  if (size < 1e-3) return shown(seconds * 1e6) + " \u00b5s";
  return shown(seconds, Unit::kSeconds);
}

std::string shown_difference(double value, Unit unit) {
  if (value == 0) return "0";
  return (value > 0 ? "+" : "") + shown(value, unit);
}

std::string shown_rate(double value, std::string_view unit) {
  constexpr std::array<std::string_view, 6> kPrefixes{"", "k", "M", "G", "T", "P"};
  std::size_t i = 0;
  for (; i + 1 < kPrefixes.size() && std::fabs(value) >= 999.5; ++i)
    value /= 1000;
  return shown(value) + " " + std::string(kPrefixes[i]) + std::string(unit);
}

std::string shown(const Figure& figure) {
  return figure.known ? shown(figure.mean, figure.unit) : "\u2013";
}

std::string interval_of(const Figure& figure) {
  if (!figure.has_interval()) return {};
  const Scale scale = scale_of(figure.unit, figure.mean);
  const double half = (figure.high - figure.low) / 2 * scale.factor;
  // Two digits of the interval's width, and never coarser than the mean is written.
  const int decimals = std::max(decimals_for(figure.mean * scale.factor), decimals_for(half) - 1);
  return with_decimals(figure.low * scale.factor, decimals) + " to " +
         with_decimals(figure.high * scale.factor, decimals) + std::string(scale.suffix);
}

}  // namespace kansoku::exporter
