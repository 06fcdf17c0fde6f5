// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/parse.h"
#include "store/incident_log.h"
#include "trace/incident.h"

namespace kansoku::store::internal {

inline constexpr std::string_view kWindowsSql =
    "CREATE TABLE windows(wall_ns BIGINT, job VARCHAR, rank INTEGER, pid INTEGER)";
inline constexpr std::string_view kIncidentsSql =
    "CREATE TABLE incidents(id VARCHAR, host VARCHAR, job VARCHAR, begin_ns BIGINT, end_ns BIGINT, "
    "kind VARCHAR, ranks INTEGER[], pids INTEGER[], tests VARCHAR[], score DOUBLE, window_count "
    "UINTEGER, summary VARCHAR, suggestion VARCHAR, label VARCHAR, record VARCHAR)";

/// True for a name that may stand between quotes in SQL: [a-z0-9_], 1 to 64 bytes.
[[nodiscard]] bool is_feature_name(std::string_view name);
/// A job's name as it is kept: printable, of at most 256 bytes. Names that differ beyond that are
/// one.
[[nodiscard]] std::string kept_job(std::string_view job);
/// Any text, made printable, as an SQL literal: DuckDB refuses bytes that are no UTF-8.
[[nodiscard]] std::string sql_any(std::string_view text);
[[nodiscard]] std::string insert_sql(const trace::IncidentRecord& one);
/// The filter as a condition, its count aside.
[[nodiscard]] std::string where_sql(const IncidentFilter& filter);

/// A cell as a number; 0 for NULL and for any other text.
template <class Int>
[[nodiscard]] Int integer(const std::optional<std::string>& cell) {
  return cell ? parse_int<Int>(*cell).value_or(Int{}) : Int{};
}

[[nodiscard]] inline float real(const std::optional<std::string>& cell) {
  float out = 0;
  if (cell) (void)std::from_chars(cell->data(), cell->data() + cell->size(), out);
  return out;
}

}  // namespace kansoku::store::internal
