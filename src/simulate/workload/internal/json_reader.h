// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"
#include "common/result.h"

namespace kansoku::simulate::internal {

/// kCorrupt "<path>: <problem>".
[[nodiscard]] Error corrupt(std::string_view path, std::string_view problem);

/// The members of one object of an untrusted file; every failure is kCorrupt and names the key as
/// a path ("arrivals.rates[3]").
class ObjectReader {
 public:
  /// Fails if `untrusted` is no object or has a key that is not in `keys`.
  [[nodiscard]] static Result<ObjectReader> make(const Json& untrusted, std::string_view path,
                                                 std::initializer_list<std::string_view> keys);

  [[nodiscard]] bool has(std::string_view key) const;
  /// The member, which must be there.
  [[nodiscard]] Result<Json> member(std::string_view key) const;
  [[nodiscard]] Result<std::string> text(std::string_view key) const;
  /// A finite number in [low, high].
  [[nodiscard]] Result<double> number(std::string_view key, double low, double high) const;
  [[nodiscard]] Result<std::int64_t> integer(std::string_view key, std::int64_t low,
                                             std::int64_t high) const;
  [[nodiscard]] Result<std::vector<double>> numbers(std::string_view key, double low,
                                                    double high) const;
  [[nodiscard]] Result<std::vector<std::int64_t>> integers(std::string_view key, std::int64_t low,
                                                           std::int64_t high) const;
  [[nodiscard]] Result<std::vector<std::string>> texts(std::string_view key) const;

  [[nodiscard]] std::string path_of(std::string_view key) const;

 private:
  ObjectReader(Json object, std::string_view path) : object_(std::move(object)), path_(path) {}
  [[nodiscard]] Result<Json> array(std::string_view key) const;

  Json object_;
  std::string path_;
};

[[nodiscard]] Json json_of(const std::vector<double>& values);
[[nodiscard]] Json json_of(const std::vector<std::string>& values);

/// The most elements that a list of a model may have: as many as 2^32 indices can name in memory
/// that a machine has.
inline constexpr std::size_t kElementsMax = std::size_t{1} << 27;

}  // namespace kansoku::simulate::internal
