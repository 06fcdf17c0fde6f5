// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"

namespace kansoku {

/// Lines of the values of a TOML text: by path ("clusters.gpu.slots",
/// "pipelines[0].tasks[1].name"), the line, from 1.
using TomlLines = std::map<std::string, std::uint32_t, std::less<>>;

/// A JSON value. Objects keep insertion order, so the same program gives the same text. Numbers
/// that must keep all bits of a 64-bit time go in as strings (`set_ns`). A deep value type: copies
/// copy everything. Not shared between threads.
class Json {
 public:
  static constexpr int kDepthMax = 64;  // deepest nesting `parse` accepts

  Json();  // null
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(Json other) noexcept;
  ~Json();

  // Implicit on purpose: `object.set("ranks", 4)`.
  Json(bool value);           // NOLINT(google-explicit-constructor)
  Json(int value);            // NOLINT(google-explicit-constructor)
  Json(std::int64_t value);   // NOLINT(google-explicit-constructor)
  Json(std::uint64_t value);  // NOLINT(google-explicit-constructor)
  Json(std::uint32_t value);  // NOLINT(google-explicit-constructor)
  Json(double value);  // NOLINT(google-explicit-constructor) — NaN and infinities become null
  Json(const char* value);         // NOLINT(google-explicit-constructor)
  Json(std::string_view value);    // NOLINT(google-explicit-constructor)
  Json(const std::string& value);  // NOLINT(google-explicit-constructor)

  [[nodiscard]] static Json object();
  [[nodiscard]] static Json array();
  /// An array of the values of `elements`, in their order; each is a bool, a number or a text.
  template <class Elements>
  [[nodiscard]] static Json array_of(const Elements& elements) {
    Json out = array();
    for (const auto& element : elements)
      out.push(element);
    return out;
  }

  /// Sets a member (this must be an object or null) and returns *this for chaining.
  Json& set(std::string_view key, Json value);
  /// Appends an element (this must be an array or null) and returns *this for chaining.
  Json& push(Json value);

  [[nodiscard]] bool is_null() const;
  [[nodiscard]] bool is_bool() const;
  [[nodiscard]] bool is_number() const;
  [[nodiscard]] bool is_integer() const;
  [[nodiscard]] bool is_string() const;
  [[nodiscard]] bool is_array() const;
  [[nodiscard]] bool is_object() const;

  /// Values with a fallback for another kind and for integers beyond int64: outside text never
  /// aborts.
  [[nodiscard]] bool as_bool(bool fallback = false) const;
  [[nodiscard]] std::int64_t as_int(std::int64_t fallback = 0) const;
  [[nodiscard]] double as_double(double fallback = 0) const;
  [[nodiscard]] std::string as_string(std::string_view fallback = "") const;

  /// Elements of an array or members of an object; 0 for every other kind.
  [[nodiscard]] std::size_t size() const;
  /// Copy of element `index`, or of member `key`; null if there is none.
  [[nodiscard]] Json at(std::size_t index) const;
  [[nodiscard]] Json at(std::string_view key) const;
  [[nodiscard]] bool contains(std::string_view key) const;
  /// The keys of an object in order; empty for every other kind.
  [[nodiscard]] std::vector<std::string> keys() const;

  /// Text of the value; `indent` < 0 gives one line. Bytes that are not UTF-8 are replaced.
  [[nodiscard]] std::string dump(int indent = -1) const;

  /// Parses untrusted text; kCorrupt names the byte where it broke, kLimit a nesting deeper than
  /// kDepthMax.
  [[nodiscard]] static Result<Json> parse(std::string_view untrusted);
  /// Parses untrusted TOML into the same kind of value (dates become strings, the keys of a table
  /// come sorted); kCorrupt names line and column, kLimit a nesting deeper than kDepthMax or a line
  /// with more dots than that. `lines`, if given, gets the line of each key.
  [[nodiscard]] static Result<Json> parse_toml(std::string_view untrusted,
                                               std::string_view source_name,
                                               TomlLines* lines = nullptr);

 private:
  explicit Json(nlohmann::ordered_json&& value);
  std::unique_ptr<nlohmann::ordered_json> value_;
};

}  // namespace kansoku
