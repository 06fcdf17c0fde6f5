// SPDX-License-Identifier: Apache-2.0
// Sizes of data sets from any table that has columns for them.
#include <vector>

#include "simulate/import/internal/rows.h"

namespace kansoku::simulate::import {
namespace {

enum AssetColumn : std::size_t { kRows, kColumns, kBytes };
constexpr double kBytesPerCell = 8;

}  // namespace

Result<std::vector<double>> import_assets(std::string_view untrusted, std::string_view file_name,
                                          const AssetColumns& columns,
                                          const ImportOptions& options) {
  const std::string_view header = untrusted.substr(0, untrusted.find('\n'));
  CsvOptions csv_options;
  csv_options.separator = header.find('\t') != std::string_view::npos ? '\t' : ',';
  CsvReader csv(untrusted, file_name, csv_options);
  std::vector<CsvColumn> wanted{{columns.rows, true}, {columns.columns, true}};
  if (!columns.bytes.empty()) wanted.push_back({columns.bytes, true});
  TRY_VOID(csv.read_header(wanted));
  Workload counted;  // of rows left out
  std::vector<double> out;
  TRY_VOID(for_each_row(csv, options, counted, [&] {
    const auto rows = static_cast<double>(read_integer(csv, kRows, 1, kAmountMax));
    const auto width = static_cast<double>(read_integer(csv, kColumns, 1, kAmountMax));
    const double bytes = columns.bytes.empty()
                             ? rows * width * kBytesPerCell
                             : static_cast<double>(read_integer(csv, kBytes, 1, kAmountMax));
    if (!csv.failed()) out.insert(out.end(), {rows, width, bytes});
  }));
  return out;
}

}  // namespace kansoku::simulate::import
