// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "stats/distribution.h"

namespace kansoku::stats {
namespace {

constexpr std::array<std::string_view, 3> kMixtureKeys{"weights", "means", "sigmas"};
constexpr std::array<std::string_view, 1> kEmpiricalKeys{"values"};

/// Keys that hold arrays, in the order of the parameters; empty for families of numbers.
std::span<const std::string_view> array_keys(Family family) {
  if (family == Family::kLogMixture) return kMixtureKeys;
  if (family == Family::kEmpirical) return kEmpiricalKeys;
  return {};
}

Error bad_distribution(std::string what) {
  return Error{Code::kCorrupt, "read distribution: " + std::move(what)};
}

Result<double> number_at(const Json& untrusted, std::string_view key) {
  if (!untrusted.contains(key)) return bad_distribution(fmt::format("key {} is missing", key));
  const Json value = untrusted.at(key);
  if (!value.is_number()) return bad_distribution(fmt::format("{} is not a number", key));
  return value.as_double();
}

Result<void> append_array(const Json& untrusted, std::string_view key, std::size_t count_max,
                          std::vector<double>& parameters) {
  if (!untrusted.contains(key)) return bad_distribution(fmt::format("key {} is missing", key));
  const Json array = untrusted.at(key);
  if (!array.is_array()) return bad_distribution(fmt::format("{} is not an array", key));
  if (array.size() > count_max)
    return bad_distribution(
        fmt::format("{} has {} entries, at most {}", key, array.size(), count_max));
  for (std::size_t i = 0; i < array.size(); ++i) {
    const Json value = array.at(i);
    if (!value.is_number()) return bad_distribution(fmt::format("{}[{}] is not a number", key, i));
    parameters.push_back(value.as_double());
  }
  return {};
}

Result<Family> family_of(const Json& untrusted) {
  if (!untrusted.is_object()) return bad_distribution("not an object");
  if (!untrusted.at("family").is_string())
    return bad_distribution("family is missing or not a text");
  const std::string name = untrusted.at("family").as_string();
  const auto family = family_from_name(name);
  if (!family) return bad_distribution(fmt::format("family {} is unknown", name));
  return *family;
}

Result<void> refuse_unknown_keys(const Json& untrusted, Family family) {
  const auto named = parameter_names(family);
  const auto arrays = array_keys(family);
  for (const std::string& key : untrusted.keys()) {
    const bool known = key == "family" || key == "zero_share" || key == "cap" ||
                       std::find(named.begin(), named.end(), key) != named.end() ||
                       std::find(arrays.begin(), arrays.end(), key) != arrays.end();
    if (!known)
      return bad_distribution(fmt::format("key {} is unknown in {}", key, family_name(family)));
  }
  return {};
}

}  // namespace

Json Distribution::to_json() const {
  Json json = Json::object();
  json.set("family", family_name(family_));
  const auto named = parameter_names(family_);
  for (std::size_t i = 0; i < named.size(); ++i)
    json.set(named[i], parameters_[i]);
  const auto arrays = array_keys(family_);
  for (std::size_t key = 0; key < arrays.size(); ++key) {
    const std::size_t count = parameters_.size() / arrays.size();
    json.set(arrays[key], Json::array_of(std::span(parameters_).subspan(key * count, count)));
  }
  if (zero_share_ > 0) json.set("zero_share", zero_share_);
  if (cap_ < std::numeric_limits<double>::infinity()) json.set("cap", cap_);
  return json;
}

Result<Distribution> Distribution::from_json(const Json& untrusted) {
  TRY(const Family family, family_of(untrusted));
  TRY_VOID(refuse_unknown_keys(untrusted, family));
  std::vector<double> parameters;
  for (const std::string_view key : parameter_names(family)) {
    TRY(const double value, number_at(untrusted, key));
    parameters.push_back(value);
  }
  std::size_t count = 0;
  for (const std::string_view key : array_keys(family)) {
    const std::size_t before = parameters.size();
    TRY_VOID(append_array(untrusted, key, kParametersMax, parameters));
    if (before == 0) count = parameters.size();
    if (parameters.size() - before != count)
      return bad_distribution(
          fmt::format("{} has {} entries, not {}", key, parameters.size() - before, count));
  }
  TRY(Distribution made, make(family, std::move(parameters)));
  if (untrusted.contains("cap")) {
    TRY(const double cap, number_at(untrusted, "cap"));
    TRY(made, made.capped(cap));
  }
  if (!untrusted.contains("zero_share")) return made;
  TRY(const double share, number_at(untrusted, "zero_share"));
  return made.with_zero_share(share);
}

}  // namespace kansoku::stats
