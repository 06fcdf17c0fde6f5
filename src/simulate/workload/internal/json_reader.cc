// SPDX-License-Identifier: Apache-2.0
#include "simulate/workload/internal/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kansoku::simulate::internal {

Error corrupt(std::string_view path, std::string_view problem) {
  return Error{Code::kCorrupt, fmt::format("{}: {}", path, problem)};
}

Result<ObjectReader> ObjectReader::make(const Json& untrusted, std::string_view path,
                                        std::initializer_list<std::string_view> keys) {
  if (!untrusted.is_object()) return corrupt(path, "not an object");
  const ObjectReader reader(untrusted, path);
  for (const std::string& key : untrusted.keys())
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      return corrupt(reader.path_of(key), "unknown key");
  return reader;
}

std::string ObjectReader::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

bool ObjectReader::has(std::string_view key) const {
  return object_.contains(key);
}

Result<Json> ObjectReader::member(std::string_view key) const {
  if (!object_.contains(key)) return corrupt(path_of(key), "missing");
  return object_.at(key);
}

Result<Json> ObjectReader::array(std::string_view key) const {
  TRY(auto value, member(key));
  if (!value.is_array()) return corrupt(path_of(key), "not an array");
  if (value.size() > kElementsMax)
    return Error{Code::kLimit,
                 fmt::format("{}: more than {} elements", path_of(key), kElementsMax)};
  return value;
}

Result<std::string> ObjectReader::text(std::string_view key) const {
  TRY(const auto value, member(key));
  if (!value.is_string()) return corrupt(path_of(key), "not a string");
  return value.as_string();
}

namespace {

Result<double> number_of(const Json& value, double low, double high, const std::string& path) {
  const double number = value.as_double(std::nan(""));
  if (!value.is_number() || !(number >= low && number <= high))
    return corrupt(path, fmt::format("not a number from {} to {}", low, high));
  return number;
}

Result<std::int64_t> integer_of(const Json& value, std::int64_t low, std::int64_t high,
                                const std::string& path) {
  // The two fallbacks differ: an integer beyond 64 bits gives both.
  const bool fits = value.is_integer() && value.as_int(0) == value.as_int(1);
  if (!fits || value.as_int() < low || value.as_int() > high)
    return corrupt(path, fmt::format("not a whole number from {} to {}", low, high));
  return value.as_int();
}

}  // namespace

Result<double> ObjectReader::number(std::string_view key, double low, double high) const {
  TRY(const auto value, member(key));
  return number_of(value, low, high, path_of(key));
}

Result<std::int64_t> ObjectReader::integer(std::string_view key, std::int64_t low,
                                           std::int64_t high) const {
  TRY(const auto value, member(key));
  return integer_of(value, low, high, path_of(key));
}

Result<std::vector<double>> ObjectReader::numbers(std::string_view key, double low,
                                                  double high) const {
  TRY(const auto values, array(key));
  std::vector<double> out(values.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    TRY(out[i], number_of(values.at(i), low, high, fmt::format("{}[{}]", path_of(key), i)));
  }
  return out;
}

Result<std::vector<std::int64_t>> ObjectReader::integers(std::string_view key, std::int64_t low,
                                                         std::int64_t high) const {
  TRY(const auto values, array(key));
  std::vector<std::int64_t> out(values.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    TRY(out[i], integer_of(values.at(i), low, high, fmt::format("{}[{}]", path_of(key), i)));
  }
  return out;
}

Result<std::vector<std::string>> ObjectReader::texts(std::string_view key) const {
  TRY(const auto values, array(key));
  std::vector<std::string> out;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Json value = values.at(i);
    if (!value.is_string()) return corrupt(fmt::format("{}[{}]", path_of(key), i), "not a string");
    out.push_back(value.as_string());
  }
  return out;
}

Json json_of(const std::vector<double>& values) {
  Json out = Json::array();
  for (const double value : values)
    out.push(value);
  return out;
}

Json json_of(const std::vector<std::string>& values) {
  Json out = Json::array();
  for (const std::string& value : values)
    out.push(value);
  return out;
}

}  // namespace kansoku::simulate::internal
