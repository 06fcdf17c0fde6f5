// SPDX-License-Identifier: Apache-2.0
#include "common/json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <sstream>

#include "common/internal/toml.h"

namespace kansoku {

using Value = nlohmann::ordered_json;

Json::Json() : value_(std::make_unique<Value>()) {}
Json::Json(const Json& other) : value_(std::make_unique<Value>(*other.value_)) {}
// A moved-from Json must stay usable as null, so a move swaps with a fresh null.
Json::Json(Json&& other) noexcept : Json() {
  std::swap(value_, other.value_);
}
Json& Json::operator=(Json other) noexcept {
  std::swap(value_, other.value_);
  return *this;
}
Json::~Json() = default;
Json::Json(Value&& value) : value_(std::make_unique<Value>(std::move(value))) {}

Json::Json(bool value) : Json(Value(value)) {}
Json::Json(int value) : Json(Value(value)) {}
Json::Json(std::int64_t value) : Json(Value(value)) {}
Json::Json(std::uint64_t value) : Json(Value(value)) {}
Json::Json(std::uint32_t value) : Json(Value(value)) {}
Json::Json(double value) : Json(std::isfinite(value) ? Value(value) : Value()) {}
Json::Json(const char* value) : Json(Value(value)) {}
Json::Json(std::string_view value) : Json(Value(std::string(value))) {}
Json::Json(const std::string& value) : Json(Value(value)) {}

Json Json::object() {
  return Json(Value::object());
}
Json Json::array() {
  return Json(Value::array());
}

Json& Json::set(std::string_view key, Json value) {
  CHECK(value_->is_object() || value_->is_null());
  (*value_)[std::string(key)] = std::move(*value.value_);
  return *this;
}

Json& Json::push(Json value) {
  CHECK(value_->is_array() || value_->is_null());
  value_->push_back(std::move(*value.value_));
  return *this;
}

bool Json::is_null() const {
  return value_->is_null();
}
bool Json::is_bool() const {
  return value_->is_boolean();
}
bool Json::is_number() const {
  return value_->is_number();
}
bool Json::is_integer() const {
  return value_->is_number_integer();
}
bool Json::is_string() const {
  return value_->is_string();
}
bool Json::is_array() const {
  return value_->is_array();
}
bool Json::is_object() const {
  return value_->is_object();
}

bool Json::as_bool(bool fallback) const {
  return is_bool() ? value_->get<bool>() : fallback;
}
std::int64_t Json::as_int(std::int64_t fallback) const {
  if (!is_integer()) return fallback;
  const bool fits = !value_->is_number_unsigned() || value_->get<std::uint64_t>() <= INT64_MAX;
  return fits ? value_->get<std::int64_t>() : fallback;
}
double Json::as_double(double fallback) const {
  return is_number() ? value_->get<double>() : fallback;
}
std::string Json::as_string(std::string_view fallback) const {
  return is_string() ? value_->get<std::string>() : std::string(fallback);
}

std::size_t Json::size() const {
  return is_array() || is_object() ? value_->size() : 0;
}

Json Json::at(std::size_t index) const {
  if (!is_array() || index >= value_->size()) return {};
  return Json(Value((*value_)[index]));
}

Json Json::at(std::string_view key) const {
  if (!is_object()) return {};
  const auto found = value_->find(std::string(key));
  return found == value_->end() ? Json() : Json(Value(*found));
}

bool Json::contains(std::string_view key) const {
  return is_object() && value_->contains(std::string(key));
}

std::vector<std::string> Json::keys() const {
  std::vector<std::string> keys;
  if (!is_object()) return keys;
  for (const auto& item : value_->items())
    keys.push_back(item.key());
  return keys;
}

std::string Json::dump(int indent) const {
  return value_->dump(indent, ' ', false, Value::error_handler_t::replace);
}

Result<Json> Json::parse(std::string_view untrusted) {
  bool too_deep = false;
  const auto on_event = [&too_deep](int depth, Value::parse_event_t event, Value&) {
    using Event = Value::parse_event_t;
    const bool opens = event == Event::object_start || event == Event::array_start;
    if (depth + (opens ? 1 : 0) > kDepthMax) too_deep = true;
    return !too_deep;
  };
  const auto limit = [] {
    return Error{Code::kLimit, fmt::format("parse json: nested deeper than {}", kDepthMax)};
  };
  // nlohmann recurses neither in its parser nor in a discarded value; the callback only bounds the
  // kept value.
  try {
    Value value = Value::parse(untrusted, on_event);
    if (too_deep) return limit();
    return Json(std::move(value));
  } catch (const nlohmann::json::exception& e) {
    if (too_deep) return limit();
    return Error{Code::kCorrupt, fmt::format("parse json: {}", e.what())};
  }
}

namespace {

// toml++ bounds the nesting of values, but recurses into the parts of a dotted key without a limit:
// the line (from 1) with more dots than that, or 0.
std::size_t line_with_too_many_dots(std::string_view text, int dots_max) {
  std::size_t line = 1;
  int dot_count = 0;
  for (const char c : text) {
    if (c == '\n') {
      ++line;
      dot_count = 0;
    }
    if (c == '.' && ++dot_count > dots_max) return line;
  }
  return 0;
}

// `depth`: how many tables and arrays `node` lies in.
Result<Value> from_toml(const toml::node& node, int depth) {
  if ((node.is_table() || node.is_array()) && depth >= Json::kDepthMax) {
    return Error{Code::kLimit, fmt::format("nested deeper than {}", Json::kDepthMax)};
  }
  if (const auto* table = node.as_table()) {
    Value out = Value::object();
    for (const auto& [key, child] : *table) {
      TRY(out[std::string(key.str())], from_toml(child, depth + 1));
    }
    return out;
  }
  if (const auto* array = node.as_array()) {
    Value out = Value::array();
    for (const auto& child : *array) {
      TRY(Value element, from_toml(child, depth + 1));
      out.push_back(std::move(element));
    }
    return out;
  }
  if (const auto* text = node.as_string()) return Value(text->get());
  if (const auto* integer = node.as_integer()) return Value(integer->get());
  if (const auto* real = node.as_floating_point()) return Value(real->get());
  if (const auto* flag = node.as_boolean()) return Value(flag->get());
  std::ostringstream out;
  node.visit([&out](const auto& leaf) {
    if constexpr (toml::is_value<decltype(leaf)>) out << leaf.get();
  });
  return Value(out.str());
}

// The depth was checked when `node` was read.
void note_lines(const toml::node& node, const std::string& path, TomlLines& lines) {
  if (!path.empty()) lines.emplace(path, node.source().begin.line);
  if (const auto* table = node.as_table()) {
    for (const auto& [key, child] : *table) {
      const std::string name(key.str());
      const std::string at = path.empty() ? name : fmt::format("{}.{}", path, name);
      lines.emplace(at, key.source().begin.line);
      note_lines(child, at, lines);
    }
  } else if (const auto* array = node.as_array()) {
    std::size_t index = 0;
    for (const auto& child : *array)
      note_lines(child, fmt::format("{}[{}]", path, index++), lines);
  }
}

}  // namespace

Result<Json> Json::parse_toml(std::string_view untrusted, std::string_view source_name,
                              TomlLines* lines) {
  if (const std::size_t line = line_with_too_many_dots(untrusted, kDepthMax); line != 0) {
    return Error{Code::kLimit, fmt::format("parse {}:{}: more than {} dots in a line", source_name,
                                           line, kDepthMax)};
  }
  try {
    const toml::table table = toml::parse(untrusted, source_name);
    auto value = from_toml(table, 0);
    if (value && lines != nullptr) note_lines(table, "", *lines);
    if (value) return Json(std::move(value).value());
    return Error{value.error().code, fmt::format("parse {}: {}", source_name, value.error().what)};
  } catch (const toml::parse_error& e) {
    return Error{Code::kCorrupt,
                 fmt::format("parse {}:{}:{}: {}", source_name, e.source().begin.line,
                             e.source().begin.column, e.description())};
  } catch (const internal::TomlInvariant& e) {
    return Error{Code::kCorrupt, fmt::format("parse {}: {}", source_name, e.what())};
  }
}

}  // namespace kansoku
