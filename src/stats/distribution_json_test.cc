// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "stats/distribution.h"
#include "stats/distribution_data_for_test.h"

namespace kansoku::stats {
namespace {

using testing::HasSubstr;

TEST(DistributionJson, RoundTrip) {
  std::vector<Distribution> all{Distribution::constant(4), made(Family::kEmpirical, {5, 1, 2, 2})};
  for (const ScipyRow& row : scipy_rows())
    all.push_back(made(row.family, row.parameters));
  const std::size_t plain_count = all.size();
  for (std::size_t i = 0; i < plain_count; ++i)
    all.push_back(*all[i].with_zero_share(0.125)->capped(all[i].quantile(0.9)));
  for (const Distribution& distribution : all) {
    const std::string text = distribution.to_json().dump();
    const auto again = Distribution::from_json(*Json::parse(text));
    ASSERT_TRUE(again.has_value()) << text << again.error().what;
    EXPECT_EQ(again->to_json().dump(), text);
    EXPECT_EQ(again->zero_share(), distribution.zero_share());
    EXPECT_EQ(again->cap(), distribution.cap());
    for (const double u : {0.01, 0.2, 0.5, 0.99})
      EXPECT_EQ(again->draw(u), distribution.draw(u)) << text;
  }
  EXPECT_EQ(made(Family::kWeibull, {0.75, 12.5}).to_json().dump(),
            R"({"family":"weibull","c":0.75,"scale":12.5})");
  EXPECT_EQ(
      made(Family::kLogMixture, {0.25, 0.75, 1, 2, 3, 4}).to_json().dump(),
      R"({"family":"log_mixture","weights":[0.25,0.75],"means":[1.0,2.0],"sigmas":[3.0,4.0]})");
}

TEST(DistributionJson, NamesTheKey) {
  const std::vector<std::pair<const char*, const char*>> refusals{
      {R"([1])", "not an object"},
      {R"({"scale": 1})", "family is missing"},
      {R"({"family": 3})", "family is missing or not a text"},
      {R"({"family": "normal"})", "family normal is unknown"},
      {R"({"family": "weibull", "c": 1})", "key scale is missing"},
      {R"({"family": "weibull", "c": "1", "scale": 1})", "c is not a number"},
      {R"({"family": "weibull", "c": null, "scale": 1})", "c is not a number"},
      {R"({"family": "weibull", "c": 1, "scale": 1, "d": 2})", "key d is unknown in weibull"},
      {R"({"family": "weibull", "c": 1, "scale": 0})", "scale is 0"},
      {R"({"family": "exponential", "scale": 1, "values": [1]})", "key values is unknown"},
      {R"({"family": "empirical", "values": 3})", "values is not an array"},
      {R"({"family": "empirical"})", "key values is missing"},
      {R"({"family": "empirical", "values": []})", "values are empty"},
      {R"({"family": "empirical", "values": [1, true]})", "values[1] is not a number"},
      {R"({"family": "log_mixture", "weights": [1], "means": [1, 2], "sigmas": [1]})",
       "means has 2 entries, not 1"},
      {R"({"family": "log_mixture", "weights": [1], "means": [1]})", "key sigmas is missing"},
      {R"({"family": "exponential", "scale": 1, "zero_share": 2})", "zero_share is 2"},
      {R"({"family": "exponential", "scale": 1, "zero_share": []})", "zero_share is not a number"},
      {R"({"family": "exponential", "scale": 1, "cap": "7d"})", "cap is not a number"},
      {R"({"family": "exponential", "scale": 1, "cap": -1})", "cap is -1"},
  };
  for (const auto& [text, what] : refusals) {
    const auto result = Distribution::from_json(*Json::parse(text));
    ASSERT_FALSE(result.has_value()) << text;
    EXPECT_EQ(result.error().code, Code::kCorrupt) << text;
    EXPECT_THAT(result.error().what, HasSubstr(what)) << text;
  }
}

}  // namespace
}  // namespace kansoku::stats
