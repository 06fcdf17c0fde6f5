// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "stats/distribution.h"

namespace kansoku::simulate {

/// The mistakes of one experiment file, each "FILE:LINE: KEY: what".
class Mistakes {
 public:
  Mistakes(std::string file, const TomlLines& lines) : file_(std::move(file)), lines_(lines) {}
  void add(const std::string& path, std::string_view what);
  [[nodiscard]] bool empty() const { return texts_.empty(); }
  [[nodiscard]] Error error() const;

 private:
  static constexpr std::size_t kShown = 20;
  std::string file_;
  const TomlLines& lines_;
  std::vector<std::string> texts_;
};

/// Least and most of a number.
struct Range {
  double least{-std::numeric_limits<double>::infinity()};
  double most{std::numeric_limits<double>::infinity()};
};

/// One table of an experiment file, read key by key: wrong kinds and ranges are mistakes, and so is
/// every key that nobody asked for (`finish`). After a mistake a fallback is returned, so that all
/// are found at once.
class Config {
 public:
  Config(Json table, std::string path, Mistakes& mistakes)
      : table_(std::move(table)), path_(std::move(path)), mistakes_(mistakes) {}

  static constexpr Range kNotNegative{0, std::numeric_limits<double>::infinity()};
  static constexpr Range kShare{0, 1};

  [[nodiscard]] bool has(std::string_view key) const { return table_.contains(key); }
  [[nodiscard]] std::string path(std::string_view key) const;
  void wrong(std::string_view key, std::string_view what);
  /// The raw value; marks the key as known.
  [[nodiscard]] Json raw(std::string_view key);

  [[nodiscard]] std::string text(std::string_view key, std::string_view fallback);
  [[nodiscard]] std::string required_text(std::string_view key);
  [[nodiscard]] bool flag(std::string_view key, bool fallback);
  [[nodiscard]] double number(std::string_view key, double fallback, Range range = {});
  [[nodiscard]] double required_number(std::string_view key, Range range = {});
  [[nodiscard]] std::int64_t integer(std::string_view key, std::int64_t fallback,
                                     std::int64_t least, std::int64_t most);
  /// Seconds: a number, or text as "90s", "12h", "7d", "1y" (365 days).
  [[nodiscard]] double duration_s(std::string_view key, double fallback);
  [[nodiscard]] double required_duration_s(std::string_view key);
  /// Bytes: a number, or text as "200M", "64G" (powers of 1024).
  [[nodiscard]] double bytes(std::string_view key, double fallback);
  /// A number (constant), or a table as Distribution::from_json takes; durations as text too.
  [[nodiscard]] stats::Distribution distribution(std::string_view key, double fallback);
  /// The same of bytes: a number, text as "4G", or a table; 0 if absent.
  [[nodiscard]] stats::Distribution byte_distribution(std::string_view key);
  /// The place of the text among the choices; `fallback` if the key is absent.
  [[nodiscard]] std::size_t choice(std::string_view key, std::span<const std::string_view> choices,
                                   std::size_t fallback);
  [[nodiscard]] std::vector<std::string> texts(std::string_view key);
  [[nodiscard]] std::vector<double> numbers(std::string_view key);
  /// A table inside this one; empty if absent.
  [[nodiscard]] Config table(std::string_view key);
  /// Tables of an array of tables, or, for a table of tables, its members with their names.
  [[nodiscard]] std::vector<Config> tables(std::string_view key);
  [[nodiscard]] std::vector<std::pair<std::string, Config>> named_tables(std::string_view key);
  /// Tells every key that was not asked for, with the nearest known one.
  void finish();
  [[nodiscard]] const Json& json() const { return table_; }

 private:
  [[nodiscard]] static std::optional<double> duration_of(const Json& value);
  void known(std::string_view key) { known_.insert(std::string(key)); }

  Json table_;
  std::string path_;
  Mistakes& mistakes_;
  std::set<std::string, std::less<>> known_;
};

/// The document with each override in its place. kCorrupt names the override.
[[nodiscard]] Result<Json> with_overrides(
    Json document, const std::vector<std::pair<std::string, std::string>>& overrides);

}  // namespace kansoku::simulate
