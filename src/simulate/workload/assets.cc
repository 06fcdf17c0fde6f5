// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "simulate/workload/internal/json_reader.h"
#include "simulate/workload/model.h"
#include "stats/fit.h"
#include "stats/summary.h"

namespace kansoku::simulate {
namespace {

constexpr std::string_view kAssetSchema = "kansoku.asset_model/1";
constexpr int kDimensions = 3;
constexpr std::array<std::string_view, kDimensions> kNames{"rows", "columns", "bytes"};

}  // namespace

Json AssetModel::to_json() const {
  return Json::object().set("schema", kAssetSchema).set("mixture", mixture.to_json());
}

Result<AssetModel> AssetModel::from_json(const Json& untrusted) {
  TRY(const auto reader, internal::ObjectReader::make(untrusted, "", {"schema", "mixture"}));
  TRY(const auto schema, reader.text("schema"));
  if (schema != kAssetSchema)
    return Error{Code::kUnsupported,
                 fmt::format("schema: \"{}\" is not \"{}\"", schema, kAssetSchema)};
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

namespace {

double log_correlation(std::span<const double> a, std::span<const double> b) {
  double mean_a = 0, mean_b = 0, ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    mean_a += std::log(a[i]) / static_cast<double>(a.size());
    mean_b += std::log(b[i]) / static_cast<double>(a.size());
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = std::log(a[i]) - mean_a, y = std::log(b[i]) - mean_b;
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

}  // namespace

Json asset_report(const AssetModel& model, const std::vector<double>& rows, std::uint64_t seed) {
  constexpr std::size_t kDraws = 20'000;
  std::array<std::vector<double>, kDimensions> source, drawn;
  for (std::size_t i = 0; i < rows.size(); ++i)
    source[i % kDimensions].push_back(rows[i]);
  for (const Asset& asset : synthesize_assets(model, kDraws, seed)) {
    drawn[0].push_back(asset.rows);
    drawn[1].push_back(asset.columns);
    drawn[2].push_back(asset.bytes);
  }
  Json margins = Json::array();
  for (std::size_t d = 0; d < kDimensions; ++d)
    margins.push(Json::object()
                     .set("name", kNames[d])
                     .set("ks", stats::ks_distance(source[d], drawn[d]))
                     .set("median", Json::object()
                                        .set("source", stats::median(source[d]))
                                        .set("model", stats::median(drawn[d]))));
  Json pairs = Json::array();
  for (std::size_t a = 0; a < kDimensions; ++a)
    for (std::size_t b = a + 1; b < kDimensions; ++b)
      pairs.push(Json::object()
                     .set("pair", std::string(kNames[a]) + ", " + std::string(kNames[b]))
                     .set("source", log_correlation(source[a], source[b]))
                     .set("model", log_correlation(drawn[a], drawn[b])));
  return Json::object()
      .set("schema", "kansoku.asset_fit/1")
      .set("assets", std::uint64_t{source[0].size()})
      .set("components", model.mixture.components())
      .set("margins", std::move(margins))
      .set("log_correlations", std::move(pairs));
}

}  // namespace kansoku::simulate
