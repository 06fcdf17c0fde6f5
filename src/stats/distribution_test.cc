// SPDX-License-Identifier: Apache-2.0
#include "stats/distribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "common/rng.h"
#include "stats/distribution_data_for_test.h"
#include "stats/fit.h"

namespace kansoku::stats {
namespace {

using testing::HasSubstr;
constexpr double kDistributionInfinity = std::numeric_limits<double>::infinity();

void expect_close(double found, double expected, double relative) {
  EXPECT_LE(std::abs(found - expected), relative * std::abs(expected)) << found << " " << expected;
}

TEST(Distribution, EqualsScipy) {
  for (const ScipyRow& row : scipy_rows()) {
    SCOPED_TRACE(testing::Message() << family_name(row.family) << " x " << row.x);
    const Distribution distribution = made(row.family, row.parameters);
    expect_close(distribution.cdf(row.x), row.cdf, 2e-13);
    expect_close(distribution.log_density(row.x), row.log_density, 1e-13);
    expect_close(distribution.quantile(row.u), row.quantile, 2e-12);
  }
}

TEST(Distribution, QuantileUndoesCdf) {
  for (const ScipyRow& row : scipy_rows()) {
    const Distribution whole = made(row.family, row.parameters);
    const Distribution cut = *whole.capped(whole.quantile(0.9));
    for (const Distribution& distribution : {whole, cut}) {
      // If the support begins above 0, x has no digits left for a small u.
      const bool begins_above = row.family == Family::kPareto || row.family == Family::kUniform;
      for (const double u : {1e-12, 1e-5, 0.02, 0.4, 0.6, 0.97, 0.99999}) {
        if (begins_above && u < 0.01) continue;
        SCOPED_TRACE(testing::Message() << family_name(row.family) << " u " << u);
        const double x = distribution.quantile(u);
        expect_close(distribution.cdf(x), u, 1e-11);
        expect_close(distribution.quantile(distribution.cdf(x)), x, 1e-9);
      }
    }
  }
}

TEST(Distribution, DensityIsTheSlopeOfTheCdf) {
  for (const ScipyRow& row : scipy_rows()) {
    const Distribution whole = made(row.family, row.parameters);
    const Distribution cut = *whole.capped(whole.quantile(0.8));
    for (const Distribution& distribution : {whole, cut}) {
      for (const double u : {0.05, 0.3, 0.5, 0.9}) {
        SCOPED_TRACE(testing::Message() << family_name(row.family) << " u " << u);
        const double x = distribution.quantile(u), h = 1e-5 * x;
        const double slope = (distribution.cdf(x + h) - distribution.cdf(x - h)) / (2 * h);
        expect_close(std::exp(distribution.log_density(x)), slope, 1e-6);
      }
    }
  }
}

TEST(Distribution, FarTailsKeepTheirDigits) {
  // Closed forms where 1 - F and F underflow below an ulp of 1.
  expect_close(made(Family::kWeibull, {2, 1}).cdf(1e-12), 1e-24, 1e-12);
  expect_close(made(Family::kBurrXII, {2, 3, 1}).cdf(1e-12), 3e-24, 1e-12);
  expect_close(made(Family::kExponentiatedWeibull, {3, 2, 1}).cdf(1e-12), 1e-72, 1e-12);
  expect_close(made(Family::kExponentiatedWeibull, {3, 2, 1}).quantile(1e-72), 1e-12, 1e-12);
  expect_close(made(Family::kExponential, {5}).quantile(1e-300), 5e-300, 1e-12);
  expect_close(made(Family::kPareto, {2, 3}).quantile(1 - 0x1.0p-52), 3 * 0x1.0p26, 1e-12);
  // log f = log(c d) + (c - 1) log x - (d + 1) c log x for x far above the scale
  expect_close(made(Family::kBurrXII, {20, 3, 1}).log_density(1e50),
               std::log(60) - 61 * 50 * std::log(10), 1e-12);
  // log(1 - exp(-t)) = log t for a tiny t: log(a c) + (a c - 1) log x
  expect_close(made(Family::kExponentiatedWeibull, {0.5, 8, 1}).log_density(1e-50),
               std::log(4) - 3 * 50 * std::log(10), 1e-12);
  EXPECT_EQ(made(Family::kBurrXII, {0.001, 0.001, 1}).quantile(0.99),
            std::numeric_limits<double>::max());
}

TEST(Distribution, GammaOfAHugeShapeIsNormal) {
  for (const double a : {1.0001e10, 1e14, 1e20}) {
    const Distribution gamma = made(Family::kGamma, {a, 1 / a});
    EXPECT_NEAR((gamma.quantile(0.975) - 1) * std::sqrt(a), 1.959964, 1e-4) << a;
    EXPECT_NEAR(gamma.cdf(1 - 1 / std::sqrt(a)), 0.158655, 1e-3 + 1e-16 * std::sqrt(a)) << a;
  }
  // Both sides of the change of method, one deviation below the mean.
  const double below = 0.9999e10, above = 1.0001e10;
  EXPECT_NEAR(made(Family::kGamma, {below, 1}).cdf(below - std::sqrt(below)),
              made(Family::kGamma, {above, 1}).cdf(above - std::sqrt(above)), 1e-8);
}

TEST(Distribution, OutsideTheSupport) {
  for (const ScipyRow& row : scipy_rows()) {
    const Distribution distribution = made(row.family, row.parameters);
    EXPECT_EQ(distribution.cdf(-1), 0);
    EXPECT_EQ(distribution.cdf(0), 0);
    EXPECT_EQ(distribution.cdf(kDistributionInfinity), 1);
    EXPECT_EQ(distribution.log_density(0), -kDistributionInfinity);
    EXPECT_EQ(distribution.log_density(kDistributionInfinity), -kDistributionInfinity);
  }
  EXPECT_EQ(made(Family::kPareto, {1.4, 25}).log_density(24.9), -kDistributionInfinity);
  EXPECT_EQ(made(Family::kPareto, {1.4, 25}).cdf(24.9), 0);
  EXPECT_EQ(made(Family::kUniform, {2, 11}).log_density(11.1), -kDistributionInfinity);
}

TEST(Distribution, ConstantAndDefault) {
  const Distribution zero;
  EXPECT_EQ(zero.family(), Family::kConstant);
  EXPECT_EQ(zero.draw(0.3), 0);
  EXPECT_EQ(zero.cdf(0), 1);
  EXPECT_EQ(zero.mean(), 0);
  const Distribution three = Distribution::constant(3);
  EXPECT_EQ(three.cdf(std::nextafter(3, 0)), 0);
  EXPECT_EQ(three.cdf(3), 1);
  EXPECT_EQ(three.quantile(0.999), 3);
  EXPECT_EQ(three.mean(), 3);
  EXPECT_TRUE(std::isnan(three.log_density(3)));
  EXPECT_EQ(three.capped(3)->draw(0.5), 3);
  EXPECT_EQ(Distribution::exponential(2).mean(), 2);
}

TEST(Distribution, EmpiricalIsTheSample) {
  const Distribution sample = made(Family::kEmpirical, {5, 1, 2, 2});
  EXPECT_EQ(sample.cdf(0.9), 0);
  EXPECT_EQ(sample.cdf(1), 0.25);
  EXPECT_EQ(sample.cdf(2), 0.75);
  EXPECT_EQ(sample.cdf(5), 1);
  EXPECT_EQ(sample.quantile(0.25), 1);  // the smallest x with cdf >= u
  EXPECT_EQ(sample.quantile(0.2501), 2);
  EXPECT_EQ(sample.quantile(0.75), 2);
  EXPECT_EQ(sample.draw(0.76), 5);
  EXPECT_EQ(sample.mean(), 2.5);
  EXPECT_TRUE(std::isnan(sample.log_density(2)));
  const Distribution cut = *sample.capped(4);
  EXPECT_DOUBLE_EQ(cut.cdf(1), 1.0 / 3);
  EXPECT_EQ(cut.quantile(0.9999), 2);
  EXPECT_DOUBLE_EQ(cut.mean(), 5.0 / 3);
  for (int n = 1; n < 60; ++n) {  // k / n is rounded, the rank must not be
    std::vector<double> values;
    for (int i = 1; i <= n; ++i)
      values.push_back(i);
    const Distribution counted = made(Family::kEmpirical, values);
    for (int i = 1; i < n; ++i) {
      const double share = static_cast<double>(i) / n;
      EXPECT_EQ(counted.quantile(share), i) << n;
      EXPECT_EQ(counted.quantile(std::nextafter(share, 1)), i + 1) << n;
    }
  }
}

TEST(Distribution, ZeroShare) {
  const Distribution third = *Distribution::exponential(2).with_zero_share(1.0 / 3);
  EXPECT_EQ(third.zero_share(), 1.0 / 3);
  EXPECT_EQ(third.cdf(-1e-9), 0);
  EXPECT_DOUBLE_EQ(third.cdf(0), 1.0 / 3);
  EXPECT_DOUBLE_EQ(third.cdf(2), 1.0 / 3 + 2.0 / 3 * (1 - std::exp(-1)));
  EXPECT_EQ(third.quantile(0.3333), 0);
  EXPECT_DOUBLE_EQ(third.quantile(1.0 / 3 + 2.0 / 3 * 0.5), 2 * std::log(2));
  EXPECT_DOUBLE_EQ(third.mean(), 4.0 / 3);
  EXPECT_EQ(third.log_density(2), Distribution::exponential(2).log_density(2));
  EXPECT_EQ(third.with_zero_share(0)->cdf(0), 0);
  const Distribution all = *made(Family::kPareto, {0.5, 1}).with_zero_share(1);
  EXPECT_EQ(all.draw(0.999), 0);
  EXPECT_EQ(all.mean(), 0);
}

TEST(Distribution, CapIsRejectionOfLargerDraws) {
  for (const ScipyRow& row : scipy_rows()) {
    const Distribution whole = *made(row.family, row.parameters).with_zero_share(0.2);
    const double cap = whole.quantile(0.7);
    const Distribution cut = *whole.capped(cap);
    SCOPED_TRACE(family_name(row.family));
    EXPECT_EQ(cut.cap(), cap);
    expect_close(cut.zero_share(), 0.2 / 0.7, 1e-11);
    for (const double u : {0.3, 0.5, 0.69})
      expect_close(cut.cdf(whole.quantile(u)), u / 0.7, 1e-11);
    EXPECT_EQ(cut.cdf(cap), 1);
    EXPECT_LE(cut.quantile(1 - 0x1.0p-53), cap);
    EXPECT_LE(cut.draw(1 - 0x1.0p-53), cap);
    EXPECT_EQ(cut.log_density(cap * 1.0001), -kDistributionInfinity);
    EXPECT_EQ(cut.capped(cap * 2)->cap(), cap);  // already below
    const Distribution twice = *cut.capped(whole.quantile(0.6));
    const Distribution once = *whole.capped(whole.quantile(0.6));
    expect_close(twice.zero_share(), once.zero_share(), 1e-11);
    expect_close(twice.quantile(0.8), once.quantile(0.8), 1e-11);
  }
}

TEST(Distribution, MeansEqualScipy) {
  for (const ScipyMean& row : scipy_means()) {
    SCOPED_TRACE(testing::Message() << family_name(row.family) << " cap " << row.cap);
    expect_close(made(row.family, row.parameters).capped(row.cap)->mean(), row.mean, 1e-11);
  }
  EXPECT_EQ(made(Family::kPareto, {1, 2}).mean(), kDistributionInfinity);
  EXPECT_EQ(made(Family::kBurrXII, {0.81, 1.21, 1500}).mean(),
            kDistributionInfinity);  // c d = 0.98
  // b = 1: b s log(cap / s) / (1 - s / cap)
  expect_close(made(Family::kPareto, {1, 2}).capped(20)->mean(), 2 * std::log(10) / 0.9, 1e-13);
  expect_close(made(Family::kExponential, {3}).capped(1e-9)->mean(), 5e-10, 1e-9);
}

TEST(Distribution, MeanBelowACapInTheFarLeftTail) {
  // F(x) = x^m / const there, so the mean is m / (m + 1) of the cap: 1 - F has no digits left.
  expect_close(made(Family::kBurrXII, {2, 3, 1}).capped(1e-6)->mean(), 2e-6 / 3, 1e-10);
  expect_close(made(Family::kExponentiatedWeibull, {3, 2, 1}).capped(1e-6)->mean(), 6e-6 / 7,
               1e-10);
  expect_close(made(Family::kWeibull, {2, 1}).capped(1e-6)->mean(), 2e-6 / 3, 1e-10);
  expect_close(made(Family::kGamma, {2, 1}).capped(1e-9)->mean(), 2e-9 / 3, 1e-8);
}

TEST(Distribution, QuantileOfAMixtureWhereNewtonBounces) {
  const Distribution mixture =
      made(Family::kLogMixture,
           {0.2, 0.2, 0.2, 0.2, 0.2, 3.6008719351608427, -2.281375697737424, -3.0461491890202756,
            -2.1699894884102884, -1.9661267115254115, 1.5507542966550092, 3.198898482261944,
            0.5055791602211965, 0.1874676457423541, 0.6775101894057025});
  for (int i = 1; i < 1000; ++i)
    expect_close(mixture.cdf(mixture.quantile(i / 1000.0)), i / 1000.0, 1e-12);
  // Far below all components but one wide one, and where the share below is 1e-93.
  const Distribution cut = *made(Family::kLogMixture, {0.5, 0.5, 9, 29.5, 0.23, 1.84}).capped(3e-4);
  for (const double u : {1e-9, 0.01, 0.5, 0.99})
    expect_close(cut.cdf(cut.quantile(u)), u, 1e-10);
}

TEST(Distribution, MeanIsTheIntegralOfTheQuantile) {
  for (const ScipyRow& row : scipy_rows()) {
    const Distribution whole = made(row.family, row.parameters);
    const Distribution cut = *whole.capped(whole.quantile(0.8))->with_zero_share(0.25);
    constexpr int kSteps = 20000;
    double sum = 0;
    for (int i = 0; i < kSteps; ++i)
      sum += cut.quantile((i + 0.5) / kSteps);
    SCOPED_TRACE(family_name(row.family));
    expect_close(cut.mean(), sum / kSteps, 1e-4);
    // The jump of the quantile at the zero share ends inside a step.
  }
}

TEST(Distribution, DrawsFollowTheCdf) {
  constexpr std::size_t kCount = 100'000;
  for (std::size_t i = 0; i < scipy_rows().size(); i += 4) {  // one row a parameter set
    const ScipyRow& row = scipy_rows()[i];
    const Distribution whole = made(row.family, row.parameters);
    const Distribution cut = *whole.with_zero_share(0.1)->capped(whole.quantile(0.85));
    for (const Distribution& distribution : {whole, cut}) {
      RandomStream random(1, family_name(row.family));
      std::vector<double> draws(kCount);
      for (double& draw : draws)
        draw = distribution.draw(random.uniform());
      // 1.95 / sqrt(n): exceeded by one sample in 1,000.
      EXPECT_LT(ks_distance(draws, distribution), 1.95 / std::sqrt(kCount))
          << family_name(row.family) << " cap " << distribution.cap();
    }
  }
}

TEST(Distribution, MixtureOfManyComponentsDrawsEachByItsWeight) {
  std::vector<double> parameters(3 * 200);
  for (std::size_t i = 0; i < 200; ++i) {
    parameters[i] = static_cast<double>(i) / 19900.0;  // 0, 1, 2, ... over their sum
    parameters[200 + i] = static_cast<double>(i);
    parameters[400 + i] = 0.01;
  }
  const Distribution mixture = made(Family::kLogMixture, parameters);
  RandomStream random(3, "components");
  std::vector<double> logs(100'000);
  for (double& log : logs)
    log = std::log(mixture.draw(random.uniform()));
  std::vector<double> counts(200);
  for (const double log : logs)
    ++counts[static_cast<std::size_t>(std::lround(log))];
  EXPECT_EQ(counts[0], 0);
  double chi_square = 0;
  for (std::size_t i = 1; i < 200; ++i) {
    const double expected = 1e5 * parameters[i];
    chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  EXPECT_LT(chi_square, 198 + 4 * std::sqrt(2 * 198));  // mean 198, variance 2 * 198
}

TEST(Distribution, MixtureDrawStaysInsideItsComponentAtEveryEdge) {
  const Distribution mixture = made(Family::kLogMixture, {0.25, 0.75, 0, 5, 0.1, 0.1});
  for (const double u :
       {std::numeric_limits<double>::min(), 0.25 - 0x1.0p-55, 0.25, 0.25 + 1e-16, 1 - 0x1.0p-53}) {
    const double log = std::log(mixture.draw(u));
    EXPECT_TRUE(std::abs(log) < 1 || std::abs(log - 5) < 1) << u;
  }
  // A component above the cap is never drawn, however little is left of the others.
  const Distribution cut = *made(Family::kLogMixture, {1e-6, 1 - 1e-6, 0, 50, 0.1, 0.1}).capped(3);
  EXPECT_NEAR(std::log(cut.draw(0.5)), 0, 1e-9);
  EXPECT_NEAR(cut.mean(), std::exp(0.005), 1e-9);
}

struct Refusal {
  Family family;
  std::vector<double> parameters;
  const char* what;
};

TEST(Distribution, MakeNamesWhatIsOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Refusal> refusals{
      {Family::kConstant, {-1}, "distribution constant: value is -1, not a finite number >= 0"},
      {Family::kUniform, {2, 2}, "distribution uniform: high is 2, not above low"},
      {Family::kUniform, {-2, 2}, "low is -2"},
      {Family::kExponential, {0}, "scale is 0, not a finite number > 0"},
      {Family::kExponential, {}, "0 parameters, not 1"},
      {Family::kLogNormal, {1, nan}, "scale is nan"},
      {Family::kWeibull, {-1, 2}, "weibull: c is -1"},
      {Family::kWeibull, {1, 2, 3}, "3 parameters, not 2"},
      {Family::kExponentiatedWeibull, {1, kDistributionInfinity, 2}, "c is inf"},
      {Family::kPareto, {0, 2}, "b is 0"},
      {Family::kBurrXII, {1, -2, 3}, "d is -2"},
      {Family::kGamma, {-1, 3}, "a is -1"},
      {Family::kEmpirical, {}, "values are empty"},
      {Family::kEmpirical, {1, -1}, "values[1] is -1"},
      {Family::kLogMixture, {}, "0 parameters"},
      {Family::kLogMixture, {1, 2}, "2 parameters"},
      {Family::kLogMixture, {0.5, 0.4, 1, 2, 1, 1}, "the sum of weights is 0.9"},
      {Family::kLogMixture, {1.5, -0.5, 1, 2, 1, 1}, "weights[1] is -0.5"},
      {Family::kLogMixture, {1, nan, 1}, "means[0] is nan"},
      {Family::kLogMixture, {1, 1, 0}, "sigmas[0] is 0"},
  };
  for (const Refusal& refusal : refusals) {
    const auto result = Distribution::make(refusal.family, refusal.parameters);
    ASSERT_FALSE(result.has_value()) << refusal.what;
    EXPECT_EQ(result.error().code, Code::kCorrupt);
    EXPECT_THAT(result.error().what, HasSubstr(refusal.what));
  }
  const Distribution one = Distribution::exponential(1);
  EXPECT_EQ(one.with_zero_share(1.01).error().code, Code::kCorrupt);
  EXPECT_EQ(one.with_zero_share(nan).error().code, Code::kCorrupt);
  EXPECT_EQ(one.capped(-1).error().code, Code::kCorrupt);
  EXPECT_EQ(one.capped(nan).error().code, Code::kCorrupt);
  EXPECT_EQ(one.capped(0).error().code, Code::kCorrupt);
  EXPECT_EQ(made(Family::kPareto, {1, 5}).capped(5).error().code, Code::kCorrupt);
  EXPECT_EQ(Distribution::constant(3).capped(2.9).error().code, Code::kCorrupt);
  EXPECT_EQ(made(Family::kEmpirical, {3, 4}).capped(2).error().code, Code::kCorrupt);
}

TEST(Distribution, NamesRoundTrip) {
  for (std::uint8_t i = 0; i <= static_cast<std::uint8_t>(Family::kLogMixture); ++i) {
    const auto family = static_cast<Family>(i);
    EXPECT_EQ(family_from_name(family_name(family)), family);
  }
  EXPECT_EQ(family_from_name("normal"), std::nullopt);
  EXPECT_THAT(parameter_names(Family::kExponentiatedWeibull),
              testing::ElementsAre("a", "c", "scale"));
  EXPECT_TRUE(parameter_names(Family::kEmpirical).empty());
}

TEST(Normal, EqualsScipy) {
  // scipy.stats.norm 1.10.1
  const std::vector<std::pair<double, double>> quantiles{
      {1e-300, -37.0470962993612},
      {1e-20, -9.262340089798409},
      {1e-09, -5.9978070150076865},
      {0.001, -3.090232306167813},
      {0.074, -1.4466320671589785},
      {0.076, -1.4325027208258116},
      {0.3, -0.5244005127080409},
      {0.499999999, -2.5066283428845328e-09},
      {0.6, 0.2533471031357997},
      {0.924, 1.432502720825812},
      {0.93, 1.475791028179171},
      {0.99999, 4.264890793923841},
      {0.9999999999999999, 8.209536151601387},
  };
  for (const auto& [u, z] : quantiles)
    expect_close(normal_quantile(u), z, 1e-15);
  EXPECT_EQ(normal_quantile(0.5), 0);
  EXPECT_EQ(normal_quantile(0), -kDistributionInfinity);
  EXPECT_EQ(normal_quantile(1), kDistributionInfinity);
  const std::vector<std::pair<double, double>> shares{
      {-37, 5.7255712225239266e-300},
      {-10, 7.61985302416047e-24},
      {-3, 0.0013498980316300933},
      {-0.5, 0.3085375387259869},
      {0, 0.5},
      {0.1, 0.539827837277029},
      {2, 0.9772498680518208},
      {6, 0.9999999990134123},
  };
  for (const auto& [z, share] : shares)
    expect_close(normal_cdf(z), share, 1e-12);  // z^2 ulps of the rounded argument at -37
}

}  // namespace
}  // namespace kansoku::stats
