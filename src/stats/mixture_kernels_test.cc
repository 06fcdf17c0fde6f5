// SPDX-License-Identifier: Apache-2.0
#include "stats/internal/mixture/mixture_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/isa.h"

#include "stats/internal/cholesky.h"
#include "stats/internal/mixture/mixture_blocks.h"
#include "stats/internal/mixture/mixture_math.h"
#include "stats/mixture_data_for_test.h"

namespace kansoku::stats::internal {
namespace {

double lane_of(Vector (*function)(const Vector&), double x) {
  double out[kWidth];
  store(out, function(all(x)));
  for (std::size_t i = 1; i < kWidth; ++i)
    EXPECT_EQ(std::bit_cast<std::uint64_t>(out[0]), std::bit_cast<std::uint64_t>(out[i]));
  return out[0];
}

/// Distance in units in the last place of the exact value.
double ulps(double value, long double exact) {
  const double near = static_cast<double>(exact);
  const double ulp =
      std::nextafter(std::abs(near), std::numeric_limits<double>::infinity()) - std::abs(near);
  return static_cast<double>(std::abs(static_cast<long double>(value) - exact)) / ulp;
}

TEST(Cholesky, FactorsAndInverts) {
  // (2 0 0; 1 3 0; -1 2 1) times its transpose
  const std::vector<double> matrix{4, 2, -2, 2, 10, 5, -2, 5, 6};
  std::vector<double> factor(9);
  ASSERT_TRUE(cholesky(matrix, 3, factor));
  EXPECT_EQ(factor, (std::vector<double>{2, 0, 0, 1, 3, 0, -1, 2, 1}));
  std::vector<double> inverse(triangle(3));
  invert_lower(factor, 3, inverse);
  const std::vector<double> expected{0.5, -1.0 / 6, 1.0 / 3, 5.0 / 6, -2.0 / 3, 1};
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(inverse[i], expected[i], 1e-15) << i;
}

TEST(Cholesky, RefusesWhatIsNotPositiveDefinite) {
  constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
  std::vector<double> factor(4);
  EXPECT_FALSE(cholesky(std::vector<double>{1, 1.2, 1.2, 1}, 2, factor));
  EXPECT_FALSE(cholesky(std::vector<double>{1, 1, 1, 1}, 2, factor));
  EXPECT_FALSE(cholesky(std::vector<double>{-1, 0, 0, 1}, 2, factor));
  EXPECT_FALSE(cholesky(std::vector<double>{0, 0, 0, 1}, 2, factor));
  // A last pivot that rounding could have left of a zero, and one that it could not.
  EXPECT_FALSE(cholesky(std::vector<double>{1, 1, 1, 1 + kEpsilon}, 2, factor));
  EXPECT_TRUE(cholesky(std::vector<double>{1, 1, 1, 1 + 4 * kEpsilon}, 2, factor));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(cholesky(std::vector<double>{nan, 0, 0, 1}, 2, factor));
  EXPECT_FALSE(cholesky(std::vector<double>{1, nan, nan, 1}, 2, factor));
  EXPECT_FALSE(cholesky(std::vector<double>{1, 0, 0, infinite}, 2, factor));
}

TEST(MixtureMath, ExpIsWithinItsError) {
  RandomStream random(1, "exp");
  double worst = 0;
  for (int i = 0; i < 400'000; ++i) {
    // Small and large arguments alike.
    const double x = i % 2 == 0 ? -708 * random.uniform() : -random.uniform();
    worst = std::max(worst, ulps(lane_of(exp_negative, x), std::exp(static_cast<long double>(x))));
  }
  EXPECT_LT(worst, 1.1);
  RecordProperty("worst_ulps", std::to_string(worst));
}

TEST(MixtureMath, ExpAtTheEdges) {
  EXPECT_EQ(lane_of(exp_negative, 0), 1);
  EXPECT_EQ(lane_of(exp_negative, -0.0), 1);
  EXPECT_LT(ulps(lane_of(exp_negative, -708), std::exp(-708.0L)), 1.1);
  EXPECT_EQ(lane_of(exp_negative, std::nextafter(-708.0, -1000.0)), 0);
  EXPECT_EQ(lane_of(exp_negative, 2 * kLogFloor), 0);
  EXPECT_EQ(lane_of(exp_negative, -1e-300), 1);
}

TEST(MixtureMath, LogIsWithinItsError) {
  RandomStream random(2, "log");
  double worst = 0;
  for (int i = 0; i < 400'000; ++i) {
    const double x = i % 3 == 0   ? 1 + random.uniform() * 1e-3
                     : i % 3 == 1 ? 1 + 3 * random.uniform()
                                  : std::exp2(10 * random.uniform());
    worst = std::max(worst, ulps(lane_of(log_from_one, x), std::log(static_cast<long double>(x))));
  }
  EXPECT_LT(worst, 2);
  RecordProperty("worst_ulps", std::to_string(worst));
  EXPECT_EQ(lane_of(log_from_one, 1), 0);
  EXPECT_EQ(lane_of(log_from_one, 2), std::log(2.0));
  EXPECT_EQ(lane_of(log_from_one, 1024), std::log(1024.0));
}

/// Bits of everything that the loops give for one block of a mixture with `d` features.
std::vector<std::uint64_t> outputs_of(const MixtureKernels& kernels, std::size_t d,
                                      std::size_t count) {
  constexpr std::size_t kComponents = 3;
  RandomStream random(d, "block");
  const auto filled = [&random](std::size_t size) {
    std::vector<double> values(size);
    std::generate(values.begin(), values.end(), [&] { return gaussian(random); });
    return values;
  };
  const std::vector<double> means = filled(kComponents * d);
  const std::vector<double> factors = filled(kComponents * d * (d + 1) / 2);
  const std::vector<double> constants = filled(kComponents);
  AlignedDoubles x(d * kStride);
  std::generate(x.span().begin(), x.span().end(), [&] { return 3 * gaussian(random); });
  AlignedDoubles scratch(scratch_values(d));
  AlignedDoubles terms(kComponents * kStride);
  AlignedDoubles sums(moment_values(d) * kLanes);
  AlignedDoubles density(kStride);
  for (AlignedDoubles* values : {&terms, &sums, &density})
    std::fill(values->span().begin(), values->span().end(), 0.0);
  kernels.log_terms({kComponents, d, means.data(), factors.data(), constants.data()}, x.data(),
                    count, scratch.data(), terms.data());
  std::vector<std::uint64_t> out;
  const auto keep = [&out](AlignedDoubles& values) {
    for (const double value : values.span())
      out.push_back(std::bit_cast<std::uint64_t>(value));
  };
  keep(terms);
  kernels.log_sums(terms.data(), kComponents, count, density.data());
  keep(density);
  kernels.normalise(terms.data(), kComponents, count, density.data());
  keep(terms);
  keep(density);
  for (int twice = 0; twice < 2; ++twice) {  // sums are added to, not set
    kernels.add_moments(x.data(), d, count, means.data(), terms.data(), scratch.data(),
                        sums.data());
    keep(sums);
  }
  return out;
}

TEST(MixtureKernels, AllInstructionSetsGiveEqualBits) {
  for (const Isa isa : {Isa::kV3, Isa::kV4}) {
    if (isa > best_isa()) GTEST_SKIP() << "this machine lacks it";
    for (std::size_t d = 1; d <= 18; ++d) {
      for (const std::size_t count : {std::size_t{16}, std::size_t{48}, kBlockRows}) {
        const auto narrow = outputs_of(mixture_kernels(Isa::kV2), d, count);
        const auto wide = outputs_of(mixture_kernels(isa), d, count);
        ASSERT_EQ(narrow, wide) << "d " << d << ", count " << count;
      }
    }
  }
}

TEST(MixtureKernels, MomentsAreThoseOfPlainLoops) {
  for (std::size_t d = 1; d <= 13; ++d) {
    RandomStream random(d, "moments");
    AlignedDoubles x(d * kStride);
    AlignedDoubles weights(kStride);
    AlignedDoubles scratch(scratch_values(d));
    AlignedDoubles sums(moment_values(d) * kLanes);
    std::vector<double> shift(d);
    std::generate(shift.begin(), shift.end(), [&] { return gaussian(random); });
    std::generate(x.span().begin(), x.span().end(), [&] { return gaussian(random); });
    std::generate(weights.span().begin(), weights.span().end(), [&] { return random.uniform(); });
    std::fill(sums.span().begin(), sums.span().end(), 0.0);
    constexpr std::size_t kCount = 80;
    mixture_kernels().add_moments(x.data(), d, kCount, shift.data(), weights.data(), scratch.data(),
                                  sums.data());
    std::size_t value = 0;
    const auto expect_sum = [&](auto&& term) {
      double expected = 0;
      double actual = 0;
      for (std::size_t row = 0; row < kCount; ++row)
        expected += weights.data()[row] * term(row);
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        actual += sums.data()[value * kLanes + lane];
      EXPECT_NEAR(actual, expected, 1e-11) << "d " << d << ", value " << value;
      ++value;
    };
    const auto offset = [&](std::size_t i, std::size_t row) {
      return x.data()[i * kStride + row] - shift[i];
    };
    expect_sum([](std::size_t) { return 1.0; });
    for (std::size_t i = 0; i < d; ++i)
      expect_sum([&](std::size_t row) { return offset(i, row); });
    for (std::size_t i = 0; i < d; ++i) {
      for (std::size_t j = 0; j <= i; ++j)
        expect_sum([&](std::size_t row) { return offset(i, row) * offset(j, row); });
    }
    EXPECT_EQ(value, moment_values(d));
  }
}

}  // namespace
}  // namespace kansoku::stats::internal
