// SPDX-License-Identifier: Apache-2.0
#include "detect/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "common/csv.h"
#include "common/numbers.h"
#include "detect/thresholds.h"
#include "stats/summary.h"

namespace kansoku::detect {
namespace {

constexpr double kSizeMax = 1e30;  // beyond it a number is taken for a mistake
constexpr std::size_t kNotThere = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kSparseMax = 16;

struct Suffix {
  std::string_view end, unit;
  double factor;
};
constexpr std::array kSuffixes{
    Suffix{"_ms", "s", 1e-3},         Suffix{"_us", "s", 1e-6},
    Suffix{"_ns", "s", 1e-9},         Suffix{"_s", "s", 1},
    Suffix{"_sec", "s", 1},           Suffix{"_seconds", "s", 1},
    Suffix{"_bytes", "bytes", 1},     Suffix{"_kb", "bytes", 1e3},
    Suffix{"_mb", "bytes", 1e6},      Suffix{"_gb", "bytes", 1e9},
    Suffix{"_ratio", "ratio", 1},     Suffix{"_share", "ratio", 1},
    Suffix{"_percent", "ratio", .01}, Suffix{"_pct", "ratio", .01},
    Suffix{"_hz", "hertz", 1},        Suffix{"_mhz", "hertz", 1e6},
    Suffix{"_c", "celsius", 1},       Suffix{"_w", "watts", 1},
    Suffix{"_per_s", "1/s", 1},
};
constexpr std::array<std::string_view, 4> kTimeNames{"step", "time", "time_s", "ts"};
constexpr std::array<std::string_view, 3> kKeyNames{"pid", "config", "job"};

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() > end.size() && text.substr(text.size() - end.size()) == end;
}

struct Source {
  std::size_t field{0};
  double factor{1};
  bool is_known{false};
};

/// Columns of a table's parts in its rows.
struct Layout {
  std::size_t time{kNotThere}, rank{kNotThere}, config{kNotThere}, job{kNotThere};
  std::size_t fields{0};
  std::vector<Source> sources;
};

std::pair<Column, Source> describe(std::string_view name, std::size_t field) {
  if (const int known = feature_index(name); known >= 0)
    return {column_of(known_features()[static_cast<std::size_t>(known)]), {field, 1, true}};
  Column column;
  column.name = name;
  Source source{field, 1, false};
  std::size_t longest = 0;
  for (const Suffix& suffix : kSuffixes) {
    if (!ends_with(name, suffix.end) || suffix.end.size() <= longest) continue;
    longest = suffix.end.size();
    column.unit = suffix.unit;
    source.factor = suffix.factor;
  }
  const bool is_linear = column.unit == "ratio" || column.unit == "celsius" ||
                         column.unit == "watts" || column.unit == "hertz";
  column.scale = is_linear ? Scale::kLinear : Scale::kLog;
  return {column, source};
}

Result<std::size_t> find_column(const std::vector<std::string>& header, std::string_view name,
                                std::string_view file) {
  const auto found = std::find(header.begin(), header.end(), name);
  if (found == header.end()) {
    return Error{Code::kNotFound, fmt::format("read table {}: no column \"{}\"", file, name),
                 fmt::format("its columns are {}", fmt::join(header, ", "))};
  }
  return static_cast<std::size_t>(found - header.begin());
}

std::size_t find_any(const std::vector<std::string>& header,
                     std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    const auto found = std::find(header.begin(), header.end(), name);
    if (found != header.end()) return static_cast<std::size_t>(found - header.begin());
  }
  return kNotThere;
}

Result<void> choose_features(const std::vector<std::string>& header, std::string_view name,
                             const TableOptions& options, Layout& layout, Table& table) {
  std::set<std::string, std::less<>> seen;
  const auto take = [&](std::size_t field) {
    auto [column, source] = describe(header[field], field);
    table.columns.push_back(std::move(column));
    layout.sources.push_back(source);
  };
  for (const std::string& wanted : options.columns) {
    TRY(const std::size_t field, find_column(header, wanted, name));
    if (seen.insert(wanted).second) take(field);
  }
  for (std::size_t i = 0; i < header.size() && options.columns.empty(); ++i) {
    const bool is_key =
        i == layout.time || i == layout.rank ||
        std::find(kTimeNames.begin(), kTimeNames.end(), header[i]) != kTimeNames.end() ||
        std::find(kKeyNames.begin(), kKeyNames.end(), header[i]) != kKeyNames.end();
    if (!is_key && !header[i].empty() && seen.insert(header[i]).second) take(i);
  }
  if (table.columns.empty())
    return Error{Code::kCorrupt, fmt::format("read table {}: no column of values", name)};
  if (table.columns.size() > options.columns_max) {
    return Error{Code::kLimit,
                 fmt::format("read table {}: {} columns of values, the limit is {}", name,
                             table.columns.size(), options.columns_max),
                 "choose some with --columns"};
  }
  return {};
}

Result<Layout> read_layout(const std::vector<std::string>& header, std::string_view name,
                           const TableOptions& options, Table& table) {
  Layout layout;
  layout.fields = header.size();
  layout.time = find_any(header, kTimeNames);
  if (!options.time_column.empty()) {
    TRY(layout.time, find_column(header, options.time_column, name));
  }
  constexpr std::array<std::string_view, 1> kRank{"rank"}, kConfig{"config"}, kJob{"job"};
  layout.rank = find_any(header, kRank);
  if (!options.rank_column.empty()) {
    TRY(layout.rank, find_column(header, options.rank_column, name));
  }
  layout.config = find_any(header, kConfig);
  layout.job = find_any(header, kJob);
  TRY_VOID(choose_features(header, name, options, layout, table));
  return layout;
}

double parse_number(std::string_view text) {
  while (!text.empty() && text.front() == ' ')
    text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ')
    text.remove_suffix(1);
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || stop != text.data() + text.size()) return kNan;
  return std::fabs(value) <= kSizeMax ? value : kNan;
}

/// Which rows count: one configuration, one job.
class RowFilter {
 public:
  RowFilter(std::string_view what, std::size_t field, std::string wanted)
      : what_(what), field_(field), wanted_(std::move(wanted)) {}
  bool takes(const std::vector<std::string_view>& fields) {
    if (field_ == kNotThere) return true;
    if (seen_.size() < 16) seen_.emplace(fields[field_]);
    return wanted_.empty() || fields[field_] == wanted_;
  }
  [[nodiscard]] Result<void> check(std::string_view name) const {
    if (!wanted_.empty() && field_ != kNotThere && seen_.count(wanted_) == 0 && seen_.size() < 16) {
      return Error{Code::kNotFound,
                   fmt::format("read table {}: no row whose {} is \"{}\"", name, what_, wanted_),
                   fmt::format("there are {}", fmt::join(seen_, ", "))};
    }
    if (wanted_.empty() && seen_.size() > 1) {
      return Error{Code::kUnsupported,
                   fmt::format("read table {}: rows of more than one {}", name, what_),
                   fmt::format("choose one with --{}: {}", what_, fmt::join(seen_, ", "))};
    }
    return {};
  }

 private:
  std::string_view what_;
  std::size_t field_;
  std::string wanted_;
  std::set<std::string, std::less<>> seen_;
};

void read_values(const std::vector<std::string_view>& fields, const Layout& layout, Table& table) {
  for (std::size_t i = 0; i < layout.sources.size(); ++i) {
    const std::string_view text = fields[layout.sources[i].field];
    const double value = parse_number(text);
    if (std::isnan(value) && !text.empty() && text != "nan" && text != "NaN") ++table.bad_cells;
    table.values.push_back(value * layout.sources[i].factor);
  }
}

Result<void> read_rows(CsvRows& csv, std::string_view name, const Layout& layout,
                       const TableOptions& options, Table& table) {
  RowFilter configs("config", layout.config, options.config), jobs("job", layout.job, options.job);
  std::map<std::int32_t, double> next_time;  // of each rank, where there is no column of times
  for (;;) {
    TRY(const bool has_more, csv.next());
    if (!has_more) break;
    const auto& fields = csv.fields();
    if (fields.size() != layout.fields) {
      return Error{Code::kCorrupt,
                   fmt::format("read table {}: line {} has {} fields, the header {}", name,
                               csv.line(), fields.size(), layout.fields)};
    }
    if (!configs.takes(fields) || !jobs.takes(fields)) continue;
    if (table.rows() == options.rows_max) {
      return Error{Code::kLimit, fmt::format("read table {}: more rows than the limit of {}", name,
                                             options.rows_max)};
    }
    const double rank = layout.rank == kNotThere ? 0 : parse_number(fields[layout.rank]);
    if (!(rank >= -1 && rank < 1e7 && rank == std::floor(rank))) {
      return Error{
          Code::kCorrupt,
          fmt::format("read table {}: line {}: the rank is no number from -1 (none) to 10^7", name,
                      csv.line())};
    }
    const auto rank_id = static_cast<std::int32_t>(rank);
    const double time =
        layout.time == kNotThere ? next_time[rank_id]++ : parse_number(fields[layout.time]);
    if (std::isnan(time)) {
      return Error{Code::kCorrupt,
                   fmt::format("read table {}: line {}: the time is no number", name, csv.line())};
    }
    table.times.push_back(time);
    table.ranks.push_back(rank_id);
    read_values(fields, layout, table);
  }
  TRY_VOID(configs.check(name));
  TRY_VOID(jobs.check(name));
  if (table.rows() == 0) return Error{Code::kCorrupt, fmt::format("read table {}: no rows", name)};
  return {};
}

std::vector<double> present_values(const Table& table, std::size_t column) {
  std::vector<double> out;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    const double value = table.values[i * table.columns.size() + column];
    if (!std::isnan(value)) out.push_back(value);
  }
  return out;
}

/// Drops columns without numbers, then chooses scales and floors of columns that nobody knows.
void settle_columns(Table& table, const std::vector<Source>& sources) {
  std::vector<std::size_t> kept;
  std::map<std::string, double> largest;  // median by unit
  std::vector<double> medians;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    const std::vector<double> values = present_values(table, c);
    Column& column = table.columns[c];
    if (values.empty()) {
      table.dropped.push_back(column.name);
      continue;
    }
    kept.push_back(c);
    const double middle = std::fabs(stats::median(values));
    medians.push_back(middle);
    largest[column.unit] = std::max(largest[column.unit], middle);
    const auto negative = static_cast<double>(
        std::count_if(values.begin(), values.end(), [](double value) { return value < 0; }));
    if (!sources[c].is_known && negative > kNegativeShareMax * static_cast<double>(values.size()))
      column.scale = Scale::kLinear;
  }
  Table out;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    Column& column = table.columns[kept[i]];
    const bool has_unit = !column.unit.empty();
    const double size = has_unit ? largest[column.unit] : medians[i];
    if (!sources[kept[i]].is_known) column.floor = size > 0 ? kFloorShare * size : 1e-9;
    out.columns.push_back(column);
  }
  for (std::size_t row = 0; row < table.rows(); ++row)
    for (const std::size_t c : kept)
      out.values.push_back(table.values[row * table.columns.size() + c]);
  table.columns = std::move(out.columns);
  table.values = std::move(out.values);
}

}  // namespace

Column column_of(const Feature& feature) {
  return {std::string(feature.name),
          std::string(feature.unit),
          feature.layer,
          feature.scale,
          feature.use,
          feature.floor};
}

Result<Table> read_table(std::string_view untrusted, std::string_view name,
                         const TableOptions& options) {
  CsvRows csv(untrusted);
  TRY(const bool has_header, csv.next());
  if (!has_header) return Error{Code::kCorrupt, fmt::format("read table {}: it is empty", name)};
  const std::vector<std::string> header(csv.fields().begin(), csv.fields().end());
  Table table;
  TRY(const Layout layout, read_layout(header, name, options, table));
  TRY_VOID(read_rows(csv, name, layout, options, table));
  settle_columns(table, layout.sources);
  if (table.columns.empty())
    return Error{Code::kCorrupt, fmt::format("read table {}: no column holds numbers", name)};
  return table;
}

Result<Cube> make_cube(const Table& table) {
  Cube cube;
  cube.columns = table.columns.size();
  cube.times = table.times;
  cube.ranks = table.ranks;
  const auto unique = [](auto& values) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
  };
  unique(cube.times);
  unique(cube.ranks);
  const std::size_t cells = cube.times.size() * cube.ranks.size();
  if (cells > kSparseMax * table.rows()) {
    return Error{Code::kLimit,
                 fmt::format("{} rows of {} ranks at {} times: hardly two at one time",
                             table.rows(), cube.ranks.size(), cube.times.size()),
                 "name a column that counts steps with --time-column"};
  }
  cube.values.assign(cells * cube.columns, kNan);
  for (std::size_t i = 0; i < table.rows(); ++i) {
    const auto step = static_cast<std::size_t>(
        std::lower_bound(cube.times.begin(), cube.times.end(), table.times[i]) -
        cube.times.begin());
    const auto rank = static_cast<std::size_t>(
        std::lower_bound(cube.ranks.begin(), cube.ranks.end(), table.ranks[i]) -
        cube.ranks.begin());
    const auto row = table.row(i);
    std::copy(row.begin(), row.end(),
              cube.values.begin() +
                  static_cast<std::ptrdiff_t>((step * cube.ranks.size() + rank) * cube.columns));
  }
  return cube;
}

}  // namespace kansoku::detect
