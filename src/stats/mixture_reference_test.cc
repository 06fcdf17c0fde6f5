// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "stats/mixture.h"

namespace kansoku::stats {
namespace {

std::vector<double> numbers(const Json& array) {
  std::vector<double> values;
  for (std::size_t i = 0; i < array.size(); ++i)
    values.push_back(array.at(i).as_double());
  return values;
}

Json reference() {
  std::ifstream file(KANSOKU_SOURCE_DIR "/tests/data/stats/mixture_reference.json");
  std::ostringstream text;
  text << file.rdbuf();
  Result<Json> json = Json::parse(text.str());
  EXPECT_TRUE(json) << json.error().what;
  return json ? *json : Json();
}

/// Differences in standard deviations: the features of one set are 1e-6 and 1e6 large.
void expect_parameters(const Mixture& mixture, const Json& expected) {
  const auto d = static_cast<std::size_t>(mixture.dimensions);
  const std::vector<double> weights = numbers(expected.at("weights"));
  const std::vector<double> means = numbers(expected.at("means"));
  const std::vector<double> covariances = numbers(expected.at("covariances"));
  ASSERT_EQ(weights.size(), mixture.weights.size());
  ASSERT_EQ(means.size(), mixture.means.size());
  ASSERT_EQ(covariances.size(), mixture.covariances.size());
  for (std::size_t k = 0; k < weights.size(); ++k) {
    EXPECT_NEAR(mixture.weights[k], weights[k], 1e-7) << k;
    const double* matrix = covariances.data() + k * d * d;
    for (std::size_t i = 0; i < d; ++i) {
      const double sigma = std::sqrt(matrix[i * d + i]);
      EXPECT_NEAR(mixture.means[k * d + i], means[k * d + i], 1e-6 * sigma) << k << ' ' << i;
      for (std::size_t j = 0; j < d; ++j) {
        const double scale = sigma * std::sqrt(matrix[j * d + j]);
        EXPECT_NEAR(mixture.covariances[(k * d + i) * d + j], matrix[i * d + j], 1e-6 * scale)
            << k << ' ' << i << ' ' << j;
      }
    }
  }
}

TEST(MixtureReference, EqualsScikitLearn) {
  const Json sets = reference().at("sets");
  ASSERT_EQ(sets.size(), 5U);
  for (std::size_t s = 0; s < sets.size(); ++s) {
    const Json set = sets.at(s);
    SCOPED_TRACE(set.at("name").as_string());
    const std::vector<double> rows = numbers(set.at("rows"));
    const Result<Mixture> start = Mixture::from_json(set.at("start"));
    ASSERT_TRUE(start) << start.error().what;
    const Json fits = set.at("fits");
    ASSERT_EQ(fits.size(), 4U);
    MixtureFit last;
    for (std::size_t i = 0; i < fits.size(); ++i) {
      MixtureOptions options;
      options.iterations_max = static_cast<int>(fits.at(i).at("iterations").as_int());
      options.ridge = set.at("ridge").as_double();
      const Result<MixtureFit> refined = refine_mixture(rows, *start, options);
      ASSERT_TRUE(refined) << refined.error().what;
      const double expected = fits.at(i).at("log_likelihood").as_double();
      EXPECT_NEAR(refined->log_likelihood, expected, 1e-8 * std::abs(expected)) << i;
      EXPECT_EQ(refined->iterations, options.iterations_max);
      last = *refined;
    }
    EXPECT_NEAR(last.bic, set.at("bic").as_double(), 1e-8 * std::abs(last.bic));
    expect_parameters(last.mixture, set);
  }
}

}  // namespace
}  // namespace kansoku::stats
