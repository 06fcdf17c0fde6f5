// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "export/internal/figure.h"
#include "export/internal/metrics.h"

// The pieces of a page that are no charts. Plain text goes in, HTML comes out.
namespace kansoku::exporter {

constexpr std::size_t kTableRowsMax = 200;

struct Column {
  std::string_view metric;  // of an entity, "wait_mean_s"
  std::string_view title;
  bool only_if_any{false};  // left out where it is 0 everywhere
};

/// A row for each entity, a column for each figure that at least one of them has, each with its
/// interval. Says how many rows were left out.
[[nodiscard]] std::string entity_table(std::string_view name, const std::vector<Entity>& entities,
                                       std::span<const Column> columns);

/// "<td>" with a figure and, smaller, its interval.
[[nodiscard]] std::string figure_cell(const Figure& figure);
[[nodiscard]] std::string number_cell(std::string_view untrusted);
[[nodiscard]] std::string text_cell(std::string_view untrusted);
/// The heads of a table's columns; those after the first `text_count` are of numbers.
[[nodiscard]] std::string table_head(const std::vector<std::string>& untrusted,
                                     std::size_t text_count);
[[nodiscard]] std::string table(const std::string& head, const std::string& rows);
[[nodiscard]] std::string left_out(std::size_t count, std::string_view what);

/// The great figures below a headline.
struct Card {
  std::string value, name, note;  // note may be empty
};
[[nodiscard]] std::string cards(const std::vector<Card>& cards);
[[nodiscard]] Card card_of(const Figure& figure, std::string name);

[[nodiscard]] std::string section(std::string_view title, std::string_view hint,
                                  const std::string& content);
[[nodiscard]] std::string empty_note(std::string_view why);
/// Remarks that limit the conclusions; nothing if there are none.
[[nodiscard]] std::string warnings(const std::vector<std::string>& untrusted);
[[nodiscard]] std::string verdict(std::string_view heading, const std::vector<std::string>& leads,
                                  const std::string& content, bool good);

/// Facts of a run as <dl>; rows without a value are left out.
class Facts {
 public:
  void add(std::string_view name, std::string_view untrusted);
  [[nodiscard]] std::string html() const { return rows_.empty() ? "" : "<dl>" + rows_ + "</dl>"; }

 private:
  std::string rows_;
};

}  // namespace kansoku::exporter
