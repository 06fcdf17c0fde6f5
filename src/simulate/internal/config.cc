// SPDX-License-Identifier: Apache-2.0
#include "simulate/internal/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/parse.h"
#include "simulate/workload/number.h"
#include "simulate/workload/workload.h"

namespace kansoku::simulate {
namespace {

/// Number of single letters to change, insert or remove between two short words.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j)
    row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

/// `value` with what is at `path` replaced; `missing` is set if a list has no such index.
Json replaced(const Json& value, std::string_view path, const Json& with, bool& missing) {
  const std::size_t dot = path.find_first_of(".[");
  const std::string head(path.substr(0, dot));
  if (!path.empty() && path.front() == '[') {
    const std::size_t close = path.find(']');
    const auto index = parse_int<std::size_t>(path.substr(1, close - 1));
    missing = missing || !value.is_array() || !index || *index >= value.size();
    Json out = Json::array();
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (!index || i != *index) {
        out.push(value.at(i));
        continue;
      }
      std::string_view rest = path.substr(close + 1);
      if (!rest.empty() && rest.front() == '.') rest.remove_prefix(1);
      out.push(rest.empty() ? with : replaced(value.at(i), rest, with, missing));
    }
    return out;
  }
  Json out = value.is_object() ? value : Json::object();
  if (dot == std::string_view::npos) {
    out.set(head, with);
  } else {
    const std::string_view rest = path.substr(path[dot] == '.' ? dot + 1 : dot);
    out.set(head, replaced(value.at(head), rest, with, missing));
  }
  return out;
}

}  // namespace

void Mistakes::add(const std::string& path, std::string_view what) {
  // The line of the key, or of the nearest table around it.
  std::string at = path;
  auto line = lines_.find(at);
  while (line == lines_.end() && !at.empty()) {
    const std::size_t cut = at.find_last_of(".[");
    at = cut == std::string::npos ? "" : at.substr(0, cut);
    line = lines_.find(at);
  }
  const std::string where =
      line == lines_.end() ? file_ : fmt::format("{}:{}", file_, line->second);
  texts_.push_back(fmt::format("{}: {}: {}", where, path, what));
}

Error Mistakes::error() const {
  std::string all;
  for (std::size_t i = 0; i < std::min(texts_.size(), kShown); ++i)
    all += (i == 0 ? "" : "\n  ") + texts_[i];
  if (texts_.size() > kShown) all += fmt::format("\n  and {} more", texts_.size() - kShown);
  return {Code::kCorrupt, all, "the keys of an experiment: docs/formats/experiment.md"};
}

std::string Config::path(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void Config::wrong(std::string_view key, std::string_view what) {
  known(key);
  mistakes_.add(path(key), what);
}

Json Config::raw(std::string_view key) {
  known(key);
  return table_.at(key);
}

std::string Config::text(std::string_view key, std::string_view fallback) {
  const Json value = raw(key);
  if (value.is_null()) return std::string(fallback);
  if (!value.is_string()) wrong(key, "must be text in quotes");
  return value.as_string(fallback);
}

std::string Config::required_text(std::string_view key) {
  if (!has(key)) wrong(key, "is missing");
  return text(key, "");
}

bool Config::flag(std::string_view key, bool fallback) {
  const Json value = raw(key);
  if (!value.is_null() && !value.is_bool()) wrong(key, "must be true or false");
  return value.as_bool(fallback);
}

double Config::number(std::string_view key, double fallback, Range range) {
  const Json value = raw(key);
  if (value.is_null()) return fallback;
  const double number = value.as_double(NAN);
  if (!value.is_number() || !std::isfinite(number)) {
    wrong(key, "must be a number");
    return fallback;
  }
  if (number < range.least || number > range.most) {
    wrong(key, std::isinf(range.most)
                   ? fmt::format("must be at least {}", range.least)
                   : fmt::format("must be from {} to {}", range.least, range.most));
    return fallback;
  }
  return number;
}

double Config::required_number(std::string_view key, Range range) {
  if (!has(key)) wrong(key, "is missing");
  return number(key, std::max(range.least, 0.0), range);
}

std::int64_t Config::integer(std::string_view key, std::int64_t fallback, std::int64_t least,
                             std::int64_t most) {
  const Json value = raw(key);
  if (value.is_null()) return fallback;
  const std::int64_t number = value.as_int(INT64_MIN);
  if (!value.is_integer() || number < least || number > most) {
    wrong(key, fmt::format("must be a whole number from {} to {}", least, most));
    return fallback;
  }
  return number;
}

std::optional<double> Config::duration_of(const Json& value) {
  if (value.is_number()) {
    const double seconds = value.as_double(NAN);
    // The sum of two stays in 64 bits of nanoseconds.
    if (seconds >= 0 && seconds <= static_cast<double>(kTimeNsMax) / 1e9) return seconds;
    return std::nullopt;
  }
  const auto span = parse_span(value.as_string());
  if (!span) return std::nullopt;
  return static_cast<double>(span->count()) / 1e9;
}

double Config::duration_s(std::string_view key, double fallback) {
  const Json value = raw(key);
  if (value.is_null()) return fallback;
  const auto seconds = duration_of(value);
  if (!seconds)
    wrong(key, "must be a duration: seconds, or text such as \"90s\", \"12h\", \"7d\", \"1y\"");
  return seconds.value_or(fallback);
}

double Config::required_duration_s(std::string_view key) {
  if (!has(key)) wrong(key, "is missing");
  return duration_s(key, 0);
}

double Config::bytes(std::string_view key, double fallback) {
  const Json value = raw(key);
  if (value.is_null()) return fallback;
  if (value.is_number() && value.as_double() >= 0) return value.as_double();
  const auto bytes = parse_bytes(value.as_string());
  if (!bytes) wrong(key, "must be bytes: a number, or text such as \"200M\", \"64G\"");
  return bytes ? static_cast<double>(*bytes) : fallback;
}

stats::Distribution Config::distribution(std::string_view key, double fallback) {
  const Json value = raw(key);
  if (value.is_null()) return stats::Distribution::constant(fallback);
  if (value.is_object()) {
    auto made = stats::Distribution::from_json(value);
    if (made) return std::move(made).value();
    wrong(key, made.error().what);
    return stats::Distribution::constant(fallback);
  }
  if (const auto seconds = duration_of(value)) return stats::Distribution::constant(*seconds);
  wrong(key, "must be a number >= 0, a duration, or a table {family = \"...\", ...}");
  return stats::Distribution::constant(fallback);
}

stats::Distribution Config::byte_distribution(std::string_view key) {
  if (raw(key).is_object()) return distribution(key, 0);
  return stats::Distribution::constant(bytes(key, 0));
}

std::size_t Config::choice(std::string_view key, std::span<const std::string_view> choices,
                           std::size_t fallback) {
  const std::string value = text(key, choices[fallback]);
  const auto found = std::find(choices.begin(), choices.end(), value);
  if (found != choices.end()) return static_cast<std::size_t>(found - choices.begin());
  wrong(key, fmt::format("\"{}\" is not one of {}", value, fmt::join(choices, ", ")));
  return fallback;
}

std::vector<std::string> Config::texts(std::string_view key) {
  std::vector<std::string> out;
  const Json value = raw(key);
  if (value.is_null()) return out;
  if (!value.is_array()) wrong(key, "must be a list of texts");
  for (std::size_t i = 0; value.is_array() && i < value.size(); ++i) {
    if (!value.at(i).is_string()) wrong(key, "must be a list of texts");
    out.push_back(value.at(i).as_string());
  }
  return out;
}

std::vector<double> Config::numbers(std::string_view key) {
  std::vector<double> out;
  const Json value = raw(key);
  if (value.is_null()) return out;
  if (!value.is_array()) wrong(key, "must be a list of numbers");
  for (std::size_t i = 0; value.is_array() && i < value.size(); ++i) {
    if (!value.at(i).is_number()) wrong(key, "must be a list of numbers");
    out.push_back(value.at(i).as_double());
  }
  return out;
}

Config Config::table(std::string_view key) {
  const Json value = raw(key);
  if (!value.is_null() && !value.is_object()) wrong(key, "must be a table");
  return {value.is_object() ? value : Json::object(), path(key), mistakes_};
}

std::vector<Config> Config::tables(std::string_view key) {
  const Json value = raw(key);
  std::vector<Config> out;
  if (value.is_null()) return out;
  if (!value.is_array()) wrong(key, "must be a list of tables");
  for (std::size_t i = 0; value.is_array() && i < value.size(); ++i) {
    if (value.at(i).is_object())
      out.emplace_back(value.at(i), fmt::format("{}[{}]", path(key), i), mistakes_);
    else
      wrong(key, "must be a list of tables");
  }
  return out;
}

std::vector<std::pair<std::string, Config>> Config::named_tables(std::string_view key) {
  const Json value = raw(key);
  std::vector<std::pair<std::string, Config>> out;
  if (value.is_null()) return out;
  if (!value.is_object()) {
    wrong(key, fmt::format("must be tables, [{}.NAME]", key));
    return out;
  }
  for (const std::string& name : value.keys()) {
    if (!value.at(name).is_object()) {
      wrong(key, fmt::format("must be tables, [{}.NAME]", key));
      continue;
    }
    out.emplace_back(name, Config(value.at(name), path(key) + "." + name, mistakes_));
  }
  return out;
}

void Config::finish() {
  for (const std::string& key : table_.keys()) {
    if (known_.contains(key)) continue;
    std::string nearest;
    std::size_t least = 3;
    for (const std::string& candidate : known_) {
      const std::size_t far = distance(key, candidate);
      if (far < least) {
        least = far;
        nearest = candidate;
      }
    }
    mistakes_.add(path(key), nearest.empty()
                                 ? "is not a key of this table"
                                 : "is not a key of this table; meant `" + nearest + "`?");
  }
}

Result<Json> with_overrides(Json document,
                            const std::vector<std::pair<std::string, std::string>>& overrides) {
  for (const auto& [path, text] : overrides) {
    // The value is TOML; what is no TOML value is taken as text.
    auto value = Json::parse_toml("value = " + text, "--set " + path);
    Json with = value ? value->at("value") : Json(text);
    if (path.empty() || path.size() > 512 || std::count(path.begin(), path.end(), '.') > 32)
      return Error{Code::kCorrupt, "override \"" + path + "\": no such key"};
    bool missing = false;
    Json changed = replaced(document, path, with, missing);
    if (missing)
      return Error{Code::kCorrupt, "override \"" + path + "\": there is no such element",
                   "an index of a list counts from 0 and must exist"};
    document = std::move(changed);
  }
  return document;
}

}  // namespace kansoku::simulate
