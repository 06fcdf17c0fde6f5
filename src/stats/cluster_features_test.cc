// SPDX-License-Identifier: Apache-2.0
#include "stats/cluster_features.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "stats/mixture_data_for_test.h"

namespace kansoku::stats {
namespace {

ClusterFeatures summary_of(const std::vector<double>& rows, std::size_t d, std::size_t clusters) {
  Result<ClusterFeatures> features = ClusterFeatures::make(static_cast<int>(d), clusters);
  EXPECT_TRUE(features) << features.error().what;
  for (std::size_t i = 0; i + d <= rows.size(); i += d)
    EXPECT_TRUE(features->add(std::span(rows).subspan(i, d)));
  return *std::move(features);
}

std::vector<double> normal_rows(std::size_t count, std::size_t d, std::uint64_t seed) {
  RandomStream random(seed, "cluster features test");
  std::vector<double> rows(count * d);
  for (double& value : rows)
    value = gaussian(random);
  return rows;
}

/// Number, mean and scatter about it of all rows of a summary.
struct Moments {
  double rows{0};
  std::vector<double> mean, scatter;
};

Moments moments_of(const ClusterFeatures& features) {
  const auto d = static_cast<std::size_t>(features.dimensions());
  Moments total{0, std::vector<double>(d), std::vector<double>(d * (d + 1) / 2)};
  for (const ClusterFeatures::Cluster& cluster : features.clusters())
    total.rows += static_cast<double>(cluster.rows);
  for (const ClusterFeatures::Cluster& cluster : features.clusters()) {
    for (std::size_t j = 0; j < d; ++j)
      total.mean[j] += cluster.mean[j] * static_cast<double>(cluster.rows) / total.rows;
  }
  for (const ClusterFeatures::Cluster& cluster : features.clusters()) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < d; ++i) {
      for (std::size_t j = 0; j <= i; ++j, ++at)
        total.scatter[at] += cluster.scatter[at] + static_cast<double>(cluster.rows) *
                                                       (cluster.mean[i] - total.mean[i]) *
                                                       (cluster.mean[j] - total.mean[j]);
    }
  }
  return total;
}

void expect_moments(const Moments& actual, const Moments& expected, double relative) {
  EXPECT_EQ(actual.rows, expected.rows);
  for (std::size_t i = 0; i < expected.mean.size(); ++i)
    EXPECT_NEAR(actual.mean[i], expected.mean[i], relative);
  for (std::size_t i = 0; i < expected.scatter.size(); ++i)
    EXPECT_NEAR(actual.scatter[i], expected.scatter[i], relative * expected.rows);
}

TEST(ClusterFeaturesTest, NoMomentOfTheRowsIsLost) {
  const std::vector<double> rows = normal_rows(700, 5, 1);
  const Moments exact = moments_of(summary_of(rows, 5, 700));
  EXPECT_EQ(exact.rows, 700);
  for (const std::size_t clusters : {1U, 2U, 63U, 64U, 300U}) {
    const ClusterFeatures features = summary_of(rows, 5, clusters);
    EXPECT_EQ(features.size(), clusters);
    EXPECT_EQ(features.rows(), 700U);
    expect_moments(moments_of(features), exact, 1e-12);
  }
}

TEST(ClusterFeaturesTest, ModesAreNotMixed) {
  // Three modes ten deviations apart, one row after the other.
  std::vector<double> rows = three_clusters(3000);
  for (double& value : rows)
    value /= 10;
  ClusterFeatures features = summary_of(rows, 2, 40);
  features.reduce(3);
  std::set<double> centres;
  for (const ClusterFeatures::Cluster& cluster : features.clusters()) {
    EXPECT_EQ(cluster.rows, 1000U);
    centres.insert(std::round(cluster.mean[0]));
    EXPECT_NEAR(cluster.mean[1], cluster.mean[0] * cluster.mean[0], 0.05);
  }
  EXPECT_EQ(centres, (std::set<double>{0, 1, 2}));
}

TEST(ClusterFeaturesTest, ANarrowModeInsideAWideOneStaysPure) {
  // Least squares would share the rows between centres; one Gaussian explains each mode.
  RandomStream random(3, "nested");
  std::vector<double> rows;
  for (int i = 0; i < 2000; ++i) {
    const double width = i % 2 == 0 ? 0.1 : 1;
    for (int j = 0; j < 16; ++j)
      rows.push_back(width * gaussian(random));
  }
  ClusterFeatures features = summary_of(rows, 16, 60);
  double narrow = 0;
  for (const ClusterFeatures::Cluster& cluster : features.clusters()) {
    const double spread = cluster.scatter[0] / static_cast<double>(cluster.rows);
    if (cluster.rows > 20 && spread < 0.02) narrow += static_cast<double>(cluster.rows);
  }
  EXPECT_NEAR(narrow, 1000, 20);
}

TEST(ClusterFeaturesTest, TheSameRowsGiveTheSameBytes) {
  const std::vector<double> rows = normal_rows(900, 16, 2);
  const ClusterFeatures a = summary_of(rows, 16, 100);
  ClusterFeatures b = summary_of(rows, 16, 100);
  EXPECT_EQ(a.encode(), b.encode());
  const ClusterFeatures copy = b;
  ASSERT_TRUE(b.add(std::vector<double>(16, 0.5)));
  EXPECT_NE(a.encode(), b.encode());
  EXPECT_EQ(a.encode(), copy.encode());
}

TEST(ClusterFeaturesTest, SummariesOfManyHostsStayBounded) {
  ClusterFeatures all = *ClusterFeatures::make(4, 50);
  Moments exact;
  std::vector<double> rows;
  for (std::uint64_t host = 0; host < 40; ++host) {
    const std::vector<double> own = normal_rows(100, 4, host);
    rows.insert(rows.end(), own.begin(), own.end());
    ASSERT_TRUE(all.merge(summary_of(own, 4, 20)));
    ASSERT_LE(all.size(), 50U);
  }
  expect_moments(moments_of(all), moments_of(summary_of(rows, 4, 4000)), 1e-12);
  ASSERT_TRUE(all.merge(all));
  EXPECT_EQ(all.rows(), 8000U);
  EXPECT_EQ(all.size(), 50U);
  EXPECT_EQ(all.merge(*ClusterFeatures::make(3, 50)).error().code, Code::kUnsupported);
}

TEST(ClusterFeaturesTest, OddRowsAreNoTrouble) {
  // Equal rows, and rows so far apart that single precision has no number for their cost.
  const std::vector<double> equal(300, 7.25);
  const ClusterFeatures one = summary_of(equal, 3, 5);
  EXPECT_EQ(one.rows(), 100U);
  for (const ClusterFeatures::Cluster& cluster : one.clusters()) {
    EXPECT_EQ(cluster.mean[0], 7.25);
    EXPECT_EQ(cluster.scatter[0], 0);
  }
  std::vector<double> far;
  for (int i = 0; i < 200; ++i)
    far.push_back(i % 2 == 0 ? -1e15 : 1e15);
  const ClusterFeatures two = summary_of(far, 1, 2);
  EXPECT_EQ(two.rows(), 200U);
  EXPECT_EQ(two.size(), 2U);
}

TEST(ClusterFeaturesTest, LimitsAreNamed) {
  EXPECT_EQ(ClusterFeatures::make(0, 5).error().code, Code::kLimit);
  EXPECT_EQ(ClusterFeatures::make(257, 5).error().code, Code::kLimit);
  EXPECT_EQ(ClusterFeatures::make(16, 0).error().code, Code::kLimit);
  EXPECT_EQ(ClusterFeatures::make(16, 30'841).error().code, Code::kLimit);
  EXPECT_TRUE(ClusterFeatures::make(16, 30'840));
  ClusterFeatures features = *ClusterFeatures::make(2, 5);
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(), -1.1e15})
    EXPECT_EQ(features.add(std::vector<double>{1, bad}).error().code, Code::kCorrupt);
  EXPECT_EQ(features.rows(), 0U);
  EXPECT_EQ(features.size(), 0U);
}

// --- bytes

TEST(ClusterFeaturesCodec, KeepsWhatItSays) {
  const ClusterFeatures features = summary_of(normal_rows(900, 16, 2), 16, 100);
  const std::string bytes = features.encode();
  EXPECT_LE(bytes.size(), features.encoded_bytes_max());
  EXPECT_GE(bytes.size(), features.encoded_bytes_max() - 100);
  const Result<ClusterFeatures> back = ClusterFeatures::decode(as_bytes(bytes), 100);
  ASSERT_TRUE(back) << back.error().what;
  const auto before = features.clusters(), after = back->clusters();
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after[i].rows, before[i].rows);
    for (std::size_t j = 0; j < 16; ++j) {
      EXPECT_EQ(after[i].mean[j], static_cast<double>(static_cast<float>(before[i].mean[j])));
      const std::size_t diagonal = j * (j + 1) / 2 + j;
      EXPECT_NEAR(after[i].scatter[diagonal], before[i].scatter[diagonal],
                  0.01 * before[i].scatter[diagonal]);
    }
  }
  expect_moments(moments_of(*back), moments_of(features), 1e-3);
}

TEST(ClusterFeaturesCodec, SizesAreAsDocumented) {
  const std::vector<double> rows = normal_rows(1000, 16, 2);
  EXPECT_EQ(summary_of({}, 16, 5).encode().size(), 8U);
  EXPECT_EQ(summary_of(std::vector<double>(16, 1.0), 16, 5).encode().size(), 8U + 65);
  EXPECT_EQ(summary_of(rows, 16, 1).encode().size(), 8U + 2 + 64 + 2 + 272);
  ClusterFeatures features = summary_of(rows, 16, 1000);
  EXPECT_EQ(features.encode().size(), 8U + 65'000);
  std::size_t before = features.size();
  for (const std::size_t budget : {40'000U, 10'000U, 1'000U, 1U}) {
    features.reduce_to_bytes(budget);
    EXPECT_LT(features.size(), before);
    EXPECT_TRUE(features.encode().size() <= budget || features.size() == 1);
    before = features.size();
  }
  EXPECT_EQ(features.rows(), 1000U);
}

TEST(ClusterFeaturesCodec, EqualRowsTakeNoCovariance) {
  const ClusterFeatures features = summary_of(std::vector<double>(300, 7.25), 3, 1);
  const std::string bytes = features.encode();
  EXPECT_EQ(bytes.size(), 8U + 1 + 12 + 1);
  const Result<ClusterFeatures> back = ClusterFeatures::decode(as_bytes(bytes), 1);
  ASSERT_TRUE(back) << back.error().what;
  EXPECT_EQ(back->rows(), 100U);
  EXPECT_EQ(back->encode(), bytes);
}

TEST(ClusterFeaturesCodec, EveryCutIsRefused) {
  const std::string bytes = summary_of(normal_rows(30, 3, 2), 3, 8).encode();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const auto cut = ClusterFeatures::decode(as_bytes(bytes).first(length), 100);
    ASSERT_FALSE(cut) << length;
    EXPECT_EQ(cut.error().code, Code::kCorrupt);
  }
  EXPECT_EQ(ClusterFeatures::decode(as_bytes(bytes + "x"), 100).error().code, Code::kCorrupt);
  EXPECT_EQ(ClusterFeatures::decode(as_bytes(bytes), 7).error().code, Code::kLimit);
  EXPECT_TRUE(ClusterFeatures::decode(as_bytes(bytes), 8));
}

TEST(ClusterFeaturesCodec, ForeignBytesAreRefused) {
  const std::string bytes = summary_of({1, 2, 3}, 3, 1).encode();
  const auto changed = [&](std::size_t at, std::string_view with) {
    std::string other = bytes;
    other.replace(at, with.size(), with);
    const auto result = ClusterFeatures::decode(as_bytes(other), 100);
    EXPECT_FALSE(result);
    return result ? Code::kInternal : result.error().code;
  };
  using namespace std::string_view_literals;
  EXPECT_EQ(changed(0, "\x02"sv), Code::kUnsupported);
  EXPECT_EQ(changed(1, "\x01"sv), Code::kCorrupt);
  EXPECT_EQ(changed(2, "\x00\x00"sv), Code::kCorrupt);
  EXPECT_EQ(changed(2, "\x01\x01"sv), Code::kCorrupt);          // 257 dimensions
  EXPECT_EQ(changed(4, "\xff\xff\xff\xff"sv), Code::kCorrupt);  // more than there are bytes for
  EXPECT_EQ(changed(8, "\x00"sv), Code::kCorrupt);              // no rows
  EXPECT_EQ(changed(9, "\x00\x00\xc0\x7f"sv), Code::kCorrupt);  // not a number
  EXPECT_EQ(changed(9, "\x00\x00\x80\x7f"sv), Code::kCorrupt);  // infinity
}

}  // namespace
}  // namespace kansoku::stats
