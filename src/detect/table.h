// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "detect/feature.h"

namespace kansoku::detect {

/// A feature that owns its texts: one of known_features() or a column of somebody else's table.
struct Column {
  std::string name, unit;
  Layer layer{Layer::kHost};
  Scale scale{Scale::kLog};
  Use use{Use::kModelled};
  double floor{0};
};
[[nodiscard]] Column column_of(const Feature& feature);

/// Rows of feature values: input of `kansoku detect`, and of the fit of models.
struct Table {
  std::vector<Column> columns;
  std::vector<double> times;         // of each row: seconds, or the number of the step
  std::vector<std::int32_t> ranks;   // of each row; 0 where there is no such column
  std::vector<double> values;        // rows x columns, in the columns' units; NaN: missing
  std::vector<std::string> dropped;  // columns that hold no numbers
  std::uint64_t bad_cells{0};        // texts and infinities where numbers should be

  [[nodiscard]] std::size_t rows() const { return times.size(); }
  [[nodiscard]] std::span<const double> row(std::size_t index) const {
    return std::span(values).subspan(index * columns.size(), columns.size());
  }
};

struct TableOptions {
  std::vector<std::string> columns{};        // only these as features; empty: all
  std::string rank_column{}, time_column{};  // empty: "rank"; "step", "time", "time_s" or "ts"
  std::string config{};  // only rows whose "config" is this; needed if there are several
  std::string job{};     // the same with "job"
  std::size_t rows_max{4'000'000};
  std::size_t columns_max{128};
};

/// Reads comma-separated rows with a header. Columns of known_features() have the unit and scale of
/// there; others get their unit from the end of their name (_s, _ms, _us, _ns, _bytes, _ratio,
/// _percent, _hz, _c, _w; converted to the base unit), a logarithmic scale unless they go below
/// zero, and a floor of 0.2 % of the largest median among the columns of their unit. An empty cell,
/// a text and an infinity are missing values. kCorrupt names the line of a row that is too long or
/// too short; kNotFound a column that was asked for; kLimit beyond the options' bounds;
/// kUnsupported if rows of several configurations or jobs stand in the table and none was chosen.
[[nodiscard]] Result<Table> read_table(std::string_view untrusted, std::string_view name,
                                       const TableOptions& options = {});

/// A table without gaps in its order: step by step, rank by rank.
struct Cube {
  std::vector<double> times;        // of each step, increasing
  std::vector<std::int32_t> ranks;  // increasing
  std::size_t columns{0};
  std::vector<double> values;  // steps x ranks x columns; NaN: no such row, or missing in it

  [[nodiscard]] std::size_t steps() const { return times.size(); }
  [[nodiscard]] double at(std::size_t step, std::size_t rank, std::size_t column) const {
    return values[(step * ranks.size() + rank) * columns + column];
  }
  [[nodiscard]] std::span<const double> row(std::size_t step, std::size_t rank) const {
    return std::span(values).subspan((step * ranks.size() + rank) * columns, columns);
  }
};
/// If one rank has several rows at one time, the last counts.
[[nodiscard]] Result<Cube> make_cube(const Table& table);

}  // namespace kansoku::detect
