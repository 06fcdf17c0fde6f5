// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kansoku::simulate {

/// Greatest time that a workload takes, so that the sum of two stays in 64 bits of nanoseconds:
/// 133 years.
inline constexpr std::int64_t kTimeNsMax = 4'200'000'000 * 1'000'000'000;

/// The whole text as a decimal number times 10^digits (0..9), rounded half away from zero: "66.05"
/// with 3 digits is 66050. A sign, a fraction and an exponent are allowed, blanks are not. Nothing
/// if malformed or beyond 64 bits.
[[nodiscard]] std::optional<std::int64_t> parse_decimal(std::string_view untrusted, int digits);

/// value / 10^digits as text that parse_decimal reads back, without needless zeros.
void append_decimal(std::string& out, std::int64_t value, int digits);

/// A civil time "2017-10-09 07:01:55", with 'T' for the blank, up to nine decimals, and "Z" or
/// "+00:00" at the end if need be, as nanoseconds since 1970-01-01 00:00:00 of the same zone,
/// whichever that is. Years 1970 to 2099. Nothing if malformed. Knows no time zones.
[[nodiscard]] std::optional<std::int64_t> parse_civil_ns(std::string_view untrusted);

/// The inverse: as many decimals as needed. `ns` within the years above.
[[nodiscard]] std::string civil_text(std::int64_t ns);
/// Last nanosecond of 2099.
inline constexpr std::int64_t kCivilNsMax = 4'102'444'800 * 1'000'000'000 - 1;

/// Seconds since Monday 00:00 at the civil time `ns`, fractions dropped.
[[nodiscard]] std::int64_t second_of_week(std::int64_t ns);

}  // namespace kansoku::simulate
