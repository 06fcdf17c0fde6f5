// SPDX-License-Identifier: Apache-2.0
#include "simulate/workload/number.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace kansoku::simulate {
namespace {

constexpr std::array<std::int64_t, 10> kPowers{
    1, 10, 100, 1000, 10'000, 100'000, 1'000'000, 10'000'000, 100'000'000, 1'000'000'000};
constexpr std::int64_t kSecondNs = 1'000'000'000;
constexpr std::int64_t kDaySeconds = 86'400;
constexpr std::size_t kIntegerDigitsMax = 19;  // these fit 64 bits without a sign
constexpr std::array<int, 12> kDaysBefore{0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
constexpr std::array<int, 12> kDaysOf{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
constexpr int kFirstYear = 1970, kLastYear = 2099;  // every fourth year in between is a leap year

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Numbers with an exponent, such as Python writes for small ones.
std::optional<std::int64_t> parse_scientific(std::string_view text, int digits) {
  double value = 0;
  const std::size_t first = !text.empty() && text.front() == '-' ? 1 : 0;
  if (first == text.size() || !is_digit(text[first])) return std::nullopt;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  value *= static_cast<double>(kPowers[static_cast<std::size_t>(digits)]);
  if (!(std::abs(value) < 9.2e18)) return std::nullopt;
  return std::llround(value);
}

struct Fraction {
  std::int64_t scaled{0};  // times 10^digits
  bool round_up{false};
  bool well_formed{false};
};

Fraction parse_fraction(std::string_view text, int digits) {
  Fraction out;
  if (text.empty()) return out;
  int seen = 0;
  for (const char c : text) {
    if (!is_digit(c)) return out;
    if (seen < digits) out.scaled = out.scaled * 10 + (c - '0');
    if (seen == digits) out.round_up = c >= '5';
    ++seen;
  }
  if (seen < digits) out.scaled *= kPowers[static_cast<std::size_t>(digits - seen)];
  out.well_formed = true;
  return out;
}

/// Digits with or without a fraction; nothing for all else.
std::optional<std::int64_t> parse_digits(std::string_view text, int digits) {
  const bool negative = !text.empty() && text.front() == '-';
  if (negative) text.remove_prefix(1);
  std::size_t whole_digits = 0;
  std::uint64_t whole = 0;
  while (whole_digits < text.size() && is_digit(text[whole_digits])) {
    if (whole_digits == kIntegerDigitsMax) return std::nullopt;
    whole = whole * 10 + static_cast<std::uint64_t>(text[whole_digits++] - '0');
  }
  if (whole_digits == 0) return std::nullopt;
  const std::int64_t power = kPowers[static_cast<std::size_t>(digits)];
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  if (whole > static_cast<std::uint64_t>((kMax - power) / power)) return std::nullopt;
  std::int64_t value = static_cast<std::int64_t>(whole) * power;
  if (whole_digits < text.size()) {
    if (text[whole_digits] != '.') return std::nullopt;
    const Fraction fraction = parse_fraction(text.substr(whole_digits + 1), digits);
    if (!fraction.well_formed) return std::nullopt;
    value += fraction.scaled + (fraction.round_up ? 1 : 0);
  }
  return negative ? -value : value;
}

bool is_leap(int year) {
  return year % 4 == 0;
}

int days_of(int year, int month) {
  return kDaysOf[static_cast<std::size_t>(month - 1)] + (month == 2 && is_leap(year) ? 1 : 0);
}

/// Days since 1970-01-01.
std::int64_t days_at(int year, int month, int day) {
  const int leap_days = (year - 1969) / 4 + (month > 2 && is_leap(year) ? 1 : 0);
  return std::int64_t{365} * (year - kFirstYear) + leap_days +
         kDaysBefore[static_cast<std::size_t>(month - 1)] + day - 1;
}

/// The digits [from, from + count) as a number, or -1.
int digits_at(std::string_view text, std::size_t from, std::size_t count) {
  int value = 0;
  for (std::size_t i = from; i < from + count; ++i) {
    if (!is_digit(text[i])) return -1;
    value = value * 10 + (text[i] - '0');
  }
  return value;
}

}  // namespace

std::optional<std::int64_t> parse_decimal(std::string_view untrusted, int digits) {
  const auto value = parse_digits(untrusted, digits);
  if (value || untrusted.find_first_of("eE") == untrusted.npos) return value;
  return parse_scientific(untrusted, digits);
}

void append_decimal(std::string& out, std::int64_t value, int digits) {
  if (value < 0) out += '-';
  const std::uint64_t magnitude =
      value < 0 ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value);
  const auto power = static_cast<std::uint64_t>(kPowers[static_cast<std::size_t>(digits)]);
  const fmt::format_int whole(magnitude / power);
  out.append(whole.data(), whole.size());
  std::uint64_t fraction = magnitude % power;
  if (fraction == 0) return;
  std::array<char, 10> text{};
  for (int i = digits; i > 0; --i) {
    text[static_cast<std::size_t>(i)] = static_cast<char>('0' + fraction % 10);
    fraction /= 10;
  }
  text[0] = '.';
  auto length = static_cast<std::size_t>(digits) + 1;
  while (text[length - 1] == '0')
    --length;
  out.append(text.data(), length);
}

std::optional<std::int64_t> parse_civil_ns(std::string_view untrusted) {
  constexpr std::string_view kForm = "dddd-dd-dd dd:dd:dd";
  if (untrusted.size() < kForm.size()) return std::nullopt;
  const bool punctuated = untrusted[4] == '-' && untrusted[7] == '-' &&
                          (untrusted[10] == ' ' || untrusted[10] == 'T') && untrusted[13] == ':' &&
                          untrusted[16] == ':';
  const int year = digits_at(untrusted, 0, 4), month = digits_at(untrusted, 5, 2);
  const int day = digits_at(untrusted, 8, 2), hour = digits_at(untrusted, 11, 2);
  const int minute = digits_at(untrusted, 14, 2), second = digits_at(untrusted, 17, 2);
  if (!punctuated || year < kFirstYear || year > kLastYear || month < 1 || month > 12)
    return std::nullopt;
  if (day < 1 || day > days_of(year, month) || hour < 0 || hour > 23 || minute < 0 || minute > 59 ||
      second < 0 || second > 59) {
    return std::nullopt;
  }
  std::int64_t ns = (days_at(year, month, day) * kDaySeconds + std::int64_t{hour} * 3600 +
                     std::int64_t{minute} * 60 + second) *
                    kSecondNs;
  std::string_view rest = untrusted.substr(kForm.size());
  for (const std::string_view utc : {std::string_view("Z"), std::string_view("+00:00")}) {
    if (rest.size() >= utc.size() && rest.substr(rest.size() - utc.size()) == utc) {
      rest.remove_suffix(utc.size());
      break;
    }
  }
  if (rest.empty()) return ns;
  if (rest.front() != '.' || rest.size() > 10) return std::nullopt;
  const Fraction fraction = parse_fraction(rest.substr(1), 9);
  if (!fraction.well_formed) return std::nullopt;
  return ns + fraction.scaled;
}

std::string civil_text(std::int64_t ns) {
  const std::int64_t days = ns / kSecondNs / kDaySeconds;
  const std::int64_t second = ns / kSecondNs % kDaySeconds;
  int year = kFirstYear + static_cast<int>(days / 366);  // too early by a year at most
  while (year < kLastYear && days_at(year + 1, 1, 1) <= days)
    ++year;
  int month = 1;
  while (month < 12 && days_at(year, month + 1, 1) <= days)
    ++month;
  const std::int64_t day = days - days_at(year, month, 1) + 1;
  std::string out = fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}", year, month, day,
                                second / 3600, second / 60 % 60, second % 60);
  std::string fraction;
  append_decimal(fraction, ns % kSecondNs, 9);
  return out + fraction.substr(1);
}

std::int64_t second_of_week(std::int64_t ns) {
  const std::int64_t seconds = ns / kSecondNs;
  return (seconds + 3 * kDaySeconds) % (7 * kDaySeconds);  // 1970-01-01 was a Thursday
}

}  // namespace kansoku::simulate
