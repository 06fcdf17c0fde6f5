// SPDX-License-Identifier: Apache-2.0
#include "common/parse.h"

#include <array>
#include <cmath>

namespace kansoku {
namespace {

struct Unit {
  std::string_view suffix;
  double factor;
};

// Splits "12.5ms" into number and factor. The number goes through from_chars, so no locale and no
// sign.
template <std::size_t N>
std::optional<double> parse_with_unit(std::string_view text, const std::array<Unit, N>& units) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || !std::isfinite(number) || number < 0) return std::nullopt;
  const std::string_view suffix(stop, static_cast<std::size_t>(end - stop));
  for (const Unit& unit : units) {
    if (unit.suffix == suffix) return number * unit.factor;
  }
  return std::nullopt;
}

constexpr std::array<Unit, 8> kTimeUnits{{{"", 1e9},
                                          {"s", 1e9},
                                          {"ms", 1e6},
                                          {"us", 1e3},
                                          {"ns", 1},
                                          {"m", 60e9},
                                          {"h", 3600e9},
                                          {"d", 86400e9}}};
constexpr std::array<Unit, 14> kSizeUnits{{{"", 1},
                                           {"B", 1},
                                           {"k", 1024.0},
                                           {"K", 1024.0},
                                           {"KB", 1024.0},
                                           {"KiB", 1024.0},
                                           {"m", 1048576.0},
                                           {"M", 1048576.0},
                                           {"MB", 1048576.0},
                                           {"MiB", 1048576.0},
                                           {"g", 1073741824.0},
                                           {"G", 1073741824.0},
                                           {"GB", 1073741824.0},
                                           {"GiB", 1073741824.0}}};
constexpr double kLargest = 9e18;  // below 2^63, so the conversion to a 64-bit integer is defined

}  // namespace

std::optional<Nanos> parse_duration(std::string_view untrusted) {
  const auto ns = parse_with_unit(untrusted, kTimeUnits);
  if (!ns || *ns > kLargest) return std::nullopt;
  return Nanos{static_cast<std::int64_t>(std::round(*ns))};  // 0.29 s is a bit less in binary
}

std::optional<double> parse_double(std::string_view untrusted) {
  double value = 0;
  const char* end = untrusted.data() + untrusted.size();
  const auto [stop, error] = std::from_chars(untrusted.data(), end, value);
  if (error != std::errc{} || stop != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> parse_bytes(std::string_view untrusted) {
  const auto bytes = parse_with_unit(untrusted, kSizeUnits);
  if (!bytes || *bytes > kLargest) return std::nullopt;
  return static_cast<std::uint64_t>(std::round(*bytes));
}

}  // namespace kansoku
