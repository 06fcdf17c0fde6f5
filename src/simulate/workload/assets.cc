// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "simulate/workload/internal/json_reader.h"
#include "simulate/workload/model.h"

namespace kansoku::simulate {
namespace {

constexpr std::string_view kSchema = "kansoku.asset_model/1";
constexpr int kDimensions = 3;
constexpr std::array<std::string_view, kDimensions> kNames{"rows", "columns", "bytes"};

}  // namespace

Json AssetModel::to_json() const {
  return Json::object().set("schema", kSchema).set("mixture", mixture.to_json());
}

Result<AssetModel> AssetModel::from_json(const Json& untrusted) {
  TRY(const auto reader, internal::ObjectReader::make(untrusted, "", {"schema", "mixture"}));
  TRY(const auto schema, reader.text("schema"));
  if (schema != kSchema)
    return Error{Code::kUnsupported, fmt::format("schema: \"{}\" is not \"{}\"", schema, kSchema)};
  TRY(const auto json, reader.member("mixture"));
  auto mixture = stats::Mixture::from_json(json);
  if (!mixture) return internal::corrupt("mixture", mixture.error().what);
  if (mixture->dimensions != kDimensions)
    return internal::corrupt("mixture.dimensions",
                             fmt::format("{}, not {}", mixture->dimensions, kDimensions));
  return AssetModel{std::move(mixture).value()};
}

Result<AssetModel> fit_assets(const std::vector<double>& rows, int components, std::uint64_t seed) {
  CHECK(rows.size() % kDimensions == 0);
  std::vector<double> logs(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!(rows[i] > 0) || std::isinf(rows[i]))
      return Error{Code::kCorrupt, fmt::format("fit assets: {} of asset {} are not above 0",
                                               kNames[i % kDimensions], i / kDimensions)};
    logs[i] = std::log(rows[i]);
  }
  stats::MixtureOptions options;
  options.components = components;
  options.seed = seed;
  TRY(auto fit, stats::fit_mixture(logs, kDimensions, options));
  return AssetModel{std::move(fit.mixture)};
}

std::vector<Asset> synthesize_assets(const AssetModel& model, std::size_t count,
                                     std::uint64_t seed) {
  const auto density = stats::MixtureDensity::make(model.mixture);
  CHECK(density.has_value());  // fit_assets and from_json let nothing else through
  RandomStream random(seed, "assets");
  std::vector<Asset> assets;
  for (std::size_t i = 0; i < count; ++i) {
    std::array<double, kDimensions> logs{};
    density->draw(random, logs);
    assets.push_back({std::exp(logs[0]), std::exp(logs[1]), std::exp(logs[2])});
  }
  return assets;
}

}  // namespace kansoku::simulate
