// SPDX-License-Identifier: Apache-2.0
#include "store/internal/history_sql.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/text.h"
#include "store/database.h"

namespace kansoku::store::internal {
namespace {

using trace::IncidentRecord;

constexpr std::size_t kJobBytesMax = 256;

std::string sql_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "NULL";
}

template <class Values, class Text>
std::string sql_list(const Values& values, std::string_view type, const Text& text) {
  std::string out;
  for (const auto& value : values)
    out += (out.empty() ? "" : ", ") + text(value);
  return fmt::format("[{}]::{}[]", out, type);
}

std::string sql_integers(const std::vector<std::int32_t>& values) {
  return sql_list(values, "INTEGER", [](std::int32_t value) { return std::to_string(value); });
}

}  // namespace

bool is_feature_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

std::string kept_job(std::string_view job) {
  return printable(job.substr(0, kJobBytesMax));
}

std::string sql_any(std::string_view text) {
  return sql_text(printable(text));
}

std::string insert_sql(const IncidentRecord& one) {
  return fmt::format(
      "INSERT INTO incidents VALUES ({}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})",
      sql_any(one.id), sql_any(one.host), sql_any(one.job), one.begin_ns, one.end_ns,
      sql_any(word_of(one.kind)), sql_integers(one.ranks), sql_integers(one.pids),
      sql_list(one.tests, "VARCHAR", [](const std::string& test) { return sql_any(test); }),
      sql_number(one.score), one.window_count, sql_any(one.summary), sql_any(one.suggestion),
      sql_any(word_of(one.label)), sql_any(one.to_json().dump()));
}

std::string where_sql(const IncidentFilter& filter) {
  std::string out = fmt::format("begin_ns < {} AND (end_ns = 0 OR end_ns >= {})", filter.until_ns,
                                filter.since_ns);
  if (filter.only_open) out += " AND end_ns = 0";
  if (!filter.job.empty()) out += " AND job = " + sql_any(filter.job);
  if (filter.kind) out += " AND kind = " + sql_any(word_of(*filter.kind));
  return out;
}

}  // namespace kansoku::store::internal
