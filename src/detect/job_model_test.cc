// SPDX-License-Identifier: Apache-2.0
#include "detect/job_model.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/rng.h"

namespace kansoku::detect {
namespace {

using testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double normal(RandomStream& random) {
  return std::sqrt(-2 * std::log(random.uniform())) *
         std::cos(6.283185307179586 * random.uniform());
}
/// Student's t with five degrees of freedom.
double heavy(RandomStream& random) {
  double sum = 0;
  for (int i = 0; i < 5; ++i) {
    const double one = normal(random);
    sum += one * one;
  }
  return normal(random) / std::sqrt(sum / 5);
}

/// `dimensions` times of heavy tails, two of them correlated, that stand still.
Cube stream(std::size_t steps, std::size_t ranks, std::size_t dimensions, std::uint64_t seed) {
  RandomStream random(seed, "test.stream");
  Cube cube;
  cube.columns = dimensions;
  for (std::size_t r = 0; r < ranks; ++r)
    cube.ranks.push_back(static_cast<std::int32_t>(r));
  for (std::size_t step = 0; step < steps; ++step) {
    cube.times.push_back(static_cast<double>(step));
    for (std::size_t i = 0; i < ranks; ++i) {
      const double shared = heavy(random);
      for (std::size_t c = 0; c < dimensions; ++c) {
        const double own = heavy(random);
        cube.values.push_back(0.1 * std::exp(0.05 * (c < 2 ? shared + 0.2 * own : own)));
      }
    }
  }
  return cube;
}

std::vector<Column> times(std::size_t dimensions) {
  std::vector<Column> out;
  for (std::size_t c = 0; c < dimensions; ++c) {
    Column column;
    column.name = "part" + std::to_string(c) + "_s";
    column.unit = "s";
    column.floor = 1e-4;
    out.push_back(column);
  }
  return out;
}

TEST(JobModel, HeldOutFlaggedShareIsNearTheNominalOne) {
  double flagged = 0, points = 0;
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U}) {
    const Cube learnt = stream(2000, 4, 5, seed), later = stream(2000, 4, 5, seed + 100);
    const auto model = JobModel::fit(learnt, times(5), {.flag_rate = 0.005}, {});
    ASSERT_TRUE(model.has_value()) << model.error().what;
    Scorer scorer(*model);
    for (std::size_t step = 0; step < later.steps(); ++step) {
      for (std::size_t r = 0; r < 4; ++r) {
        flagged += scorer.is_flagged(scorer.score(later.row(step, r))) ? 1 : 0;
        points += 1;
      }
    }
  }
  RecordProperty("flagged_share", std::to_string(flagged / points));
  EXPECT_GE(flagged / points, 0.67 * 0.005);
  EXPECT_LE(flagged / points, 1.5 * 0.005);
}

TEST(JobModel, CountsTheClearlyOddAmongTheFlaggedHeldOutPoints) {
  Cube cube = stream(10000, 1, 3, 1);
  for (std::size_t step = 0; step < 10000; step += 500)
    cube.values[step * 3] *= 4;
  const auto model = JobModel::fit(cube, times(3), {}, {});
  ASSERT_TRUE(model.has_value());
  const auto& parts = model->parts();
  EXPECT_GT(parts.measured_clear, 0);
  EXPECT_LT(parts.measured_clear, parts.measured_flags);
}

TEST(JobModel, TextComesBackAndDamageIsNamed) {
  const auto model = JobModel::fit(stream(300, 4, 3, 1), times(3), {}, {.command = "train.py"});
  ASSERT_TRUE(model.has_value());
  const std::string text = model->to_text();
  const auto back = JobModel::from_text(text);
  ASSERT_TRUE(back.has_value()) << back.error().what;
  EXPECT_EQ(back->to_text(), text);
  EXPECT_EQ(back->parts().key.text(), "train.py | 1 ranks | ");
  std::string damaged = text;
  damaged[text.size() / 2] ^= 1;
  EXPECT_THAT(JobModel::from_text(damaged).error().what, HasSubstr("checksum"));
  EXPECT_EQ(JobModel::from_text("").error().code, Code::kCorrupt);
  for (const char* member : {"columns", "coordinates", "mixture", "threshold", "peers", "paces"}) {
    auto json = *Json::parse(text.substr(0, text.find('\n')));
    json.set(member, "x");
    const std::string line = json.dump();
    const auto read =
        JobModel::from_text(line + "\nfnv1a64:" + fmt::format("{:016x}", hash_of(line)) + "\n");
    ASSERT_FALSE(read.has_value()) << member;
    EXPECT_EQ(read.error().code, Code::kCorrupt) << member;
  }
  auto json = *Json::parse(text.substr(0, text.find('\n')));
  for (const char* member :
       {"measured_clear", "own_margin", "level_margin", "far_margin", "blur", "window_s"})
    json.set(member, Json());
  auto refreshed = json;
  refreshed.set("refreshes", 3);
  const std::string raised = refreshed.dump();
  EXPECT_FALSE(
      JobModel::from_text(raised + "\nfnv1a64:" + fmt::format("{:016x}", hash_of(raised)) + "\n"))
      << "its threshold had only ever gone up";
  const std::string older = json.dump();  // of a program that did not count them
  const auto read =
      JobModel::from_text(older + "\nfnv1a64:" + fmt::format("{:016x}", hash_of(older)) + "\n");
  ASSERT_TRUE(read.has_value()) << read.error().what;
  EXPECT_EQ(read->parts().measured_clear, read->parts().measured_flags);
  EXPECT_NEAR(read->parts().own_margin, model->parts().own_margin, 1e-9);
  json.set("paces", Json::array());
  const std::string line = json.dump();
  EXPECT_FALSE(
      JobModel::from_text(line + "\nfnv1a64:" + fmt::format("{:016x}", hash_of(line)) + "\n"));
}

TEST(JobModel, OneStepIsTooLittleHoweverManyRanksThereAre) {
  const auto one = JobModel::fit(stream(1, 40, 3, 1), times(3), {}, {});
  ASSERT_FALSE(one.has_value());
  EXPECT_EQ(one.error().code, Code::kLimit);
}

TEST(JobModel, ClocksInHertzKeepTheirSize) {
  Cube cube = stream(300, 2, 2, 1);
  RandomStream random(1, "test.clock");
  for (std::size_t i = 0; i < cube.values.size(); i += 2)
    cube.values[i] = 1.41e9 + 1e7 * random.uniform();
  std::vector<Column> columns = times(2);
  columns[0] = {"gpu_sm_clock", "hertz", Layer::kGpu, Scale::kLinear, Use::kModelled, 2e7};
  const auto model = JobModel::fit(cube, columns, {}, {});
  ASSERT_TRUE(model.has_value()) << model.error().what;
  const Coordinate& clock = model->parts().coordinates[0];
  EXPECT_NEAR(clock.center, 1.415e9, 2e6);
  EXPECT_NEAR(clock.of(0.94e9, columns[0]), (0.94e9 - clock.center) / clock.spread, 1e-9);
  Scorer scorer(*model);
  std::vector<double> row(cube.values.begin(), cube.values.begin() + 2);
  const double healthy = scorer.score(row);
  row[0] = 0.94e9;
  EXPECT_GT(scorer.score(row), healthy + 50);
}

TEST(JobModel, OddTablesGiveAModelOrAnErrorNeverNan) {
  Cube cube = stream(60, 2, 4, 3);
  for (std::size_t i = 0; i < cube.values.size(); i += 4) {
    cube.values[i] = 0.25;                    // constant
    cube.values[i + 1] = kNan;                // never there
    cube.values[i + 2] = cube.values[i + 3];  // twice the same
  }
  cube.values[11] = kNan;
  const auto model = JobModel::fit(cube, times(4), {}, {});
  ASSERT_TRUE(model.has_value()) << model.error().what;
  EXPECT_EQ(model->parts().coordinates.size(), 3U);
  Scorer scorer(*model);
  for (std::size_t step = 0; step < cube.steps(); ++step)
    EXPECT_TRUE(std::isfinite(scorer.score(cube.row(step, 0))));
  const std::vector<double> none(4, kNan), far(4, 1e30), negative(4, -1e30);
  EXPECT_TRUE(std::isnan(scorer.score(none)));
  EXPECT_FALSE(scorer.is_flagged(scorer.score(none)));
  EXPECT_TRUE(scorer.is_flagged(scorer.score(far)));
  EXPECT_TRUE(std::isnan(scorer.score(negative)));  // counters that wrapped are missing
  EXPECT_EQ(JobModel::fit(stream(10, 2, 2, 1), times(2), {}, {}).error().code, Code::kLimit);
  const auto wide = JobModel::fit(stream(40, 1, 60, 1), times(60), {}, {});  // n < d
  ASSERT_TRUE(wide.has_value()) << wide.error().what;
}

TEST(JobModel, ExplanationNamesTheColumnAndWhatItShouldHaveBeen) {
  const Cube cube = stream(1000, 2, 5, 5);
  const auto model = JobModel::fit(cube, times(5), {}, {});
  ASSERT_TRUE(model.has_value());
  Scorer scorer(*model);
  // The first two go together: one of them alone is odd, though each for itself is usual.
  std::vector<double> row{0.13, 0.1, 0.1, 0.1, 0.1};
  row[0] = 0.13;
  row[1] = 0.13;
  EXPECT_FALSE(scorer.is_flagged(scorer.score(row)));
  row[1] = 0.08;
  EXPECT_TRUE(scorer.is_flagged(scorer.score(row)));
  row = {0.1, 0.1, 0.1, 0.9, 0.1};
  const auto found = scorer.explain(row, 8);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].column, 3U);
  EXPECT_NEAR(found[0].expected, 0.1, 0.02);
  EXPECT_DOUBLE_EQ(found[0].seen, 0.9);
  EXPECT_GT(found[0].share, 0.9);
}

TEST(JobModel, MissingValuesDoNotRaiseTheScore) {
  const Cube cube = stream(1500, 2, 5, 6);
  const auto model = JobModel::fit(cube, times(5), {}, {});
  ASSERT_TRUE(model.has_value());
  Scorer scorer(*model);
  double flags = 0;
  for (std::size_t step = 0; step < cube.steps(); ++step) {
    std::vector<double> row(cube.row(step, 0).begin(), cube.row(step, 0).end());
    row[step % 5] = kNan;
    flags += scorer.is_flagged(scorer.score(row)) ? 1 : 0;
  }
  EXPECT_LT(flags / 1500, 0.015);
}

TEST(JobModel, MergedModelKnowsBothRuns) {
  Cube slow = stream(1000, 2, 3, 8);
  for (double& value : slow.values)
    value *= 2;
  const auto a = JobModel::fit(stream(1000, 2, 3, 7), times(3), {}, {});
  const auto b = JobModel::fit(slow, times(3), {}, {});
  ASSERT_TRUE(a.has_value() && b.has_value());
  const auto both = JobModel::merge(*a, *b);
  ASSERT_TRUE(both.has_value()) << both.error().what;
  EXPECT_LE(both->parts().mixture.components(), 8);
  const std::vector<double> usual(3, 0.1), doubled(3, 0.2), between(3, 0.145);
  Scorer of_a(*a), of_both(*both);
  EXPECT_TRUE(of_a.is_flagged(of_a.score(doubled)));
  EXPECT_FALSE(of_both.is_flagged(of_both.score(doubled)));
  EXPECT_FALSE(of_both.is_flagged(of_both.score(usual)));
  EXPECT_GT(of_both.score(between), of_both.score(usual));
  const auto other = JobModel::fit(stream(300, 2, 2, 7), times(2), {}, {});
  EXPECT_EQ(JobModel::merge(*a, *other).error().code, Code::kUnsupported);
}

TEST(JobModel, RefreshFollowsWhatIsHealthyNow) {
  const auto model = JobModel::fit(stream(1000, 2, 3, 9), times(3), {}, {});
  ASSERT_TRUE(model.has_value());
  Cube drifted = stream(500, 2, 3, 10);
  for (double& value : drifted.values)
    value *= 1.15;
  const auto after = model->refresh(drifted.values, {}, 0.5, 1);
  ASSERT_TRUE(after.has_value()) << after.error().what;
  EXPECT_EQ(after->parts().refreshes, 1U);
  EXPECT_EQ(after->parts().paces[0].median, model->parts().paces[0].median);
  const std::vector<double> now(3, 0.115);
  Scorer before(*model), later(*after);
  EXPECT_LT(later.score(now), before.score(now));
  EXPECT_EQ(model->refresh(std::span(drifted.values).first(30), {}, 0.5, 1).error().code,
            Code::kLimit);
}

/// Share of the first rank's rows that a model flags.
double flagged_share(const JobModel& model, const Cube& cube) {
  Scorer scorer(model);
  double flags = 0;
  for (std::size_t step = 0; step < cube.steps(); ++step)
    flags += scorer.is_flagged(scorer.score(cube.row(step, 0))) ? 1 : 0;
  return flags / static_cast<double>(cube.steps());
}

/// A stream whose last column never moves in health.
Cube still(std::size_t steps, std::uint64_t seed) {
  Cube cube = stream(steps, 2, 4, seed);
  for (std::size_t i = 3; i < cube.values.size(); i += 4)
    cube.values[i] = 0;
  return cube;
}

TEST(JobModel, RefreshedForDaysWithTheSameItStaysTheSame) {
  std::vector<Column> columns = times(4);
  columns[3] = {"gc_share", "ratio", Layer::kPython, Scale::kLinear, Use::kModelled, 0.02};
  auto model = JobModel::fit(still(1000, 1), columns, {.blur = 1}, {});
  ASSERT_TRUE(model.has_value()) << model.error().what;
  const Cube later = still(2000, 2);
  const auto above_threshold = [](const JobModel& now, double share) {
    Scorer scorer(now);
    return scorer.score(std::vector<double>{0.1, 0.1, 0.1, share}) - now.parts().threshold;
  };
  EXPECT_LT(above_threshold(*model, 0.04), 0) << "two floors alone are nobody's concern";
  EXPECT_GT(above_threshold(*model, 0.4), 0);
  EXPECT_LT(flagged_share(*model, later), 0.015);
  const double margin = model->parts().threshold - model->parts().level;
  for (std::uint64_t i = 0; i < 60; ++i) {
    auto next = model->refresh(still(750, 100 + i).values, {}, 0.3, i);
    ASSERT_TRUE(next.has_value()) << next.error().what;
    model = std::move(next);
  }
  EXPECT_LT(above_threshold(*model, 0.04), 0);
  EXPECT_GT(above_threshold(*model, 0.4), 0);
  EXPECT_LT(flagged_share(*model, later), 0.015);
  EXPECT_GT(flagged_share(*model, later), 0.0005);
  EXPECT_NEAR(model->parts().threshold - model->parts().level, margin, margin);
  EXPECT_EQ(model->parts().cuts,
            JobModel::fit(still(1000, 1), columns, {.blur = 1}, {})->parts().cuts)
      << "what is far out in one feature does not follow";
}

TEST(JobModel, AFewRowsThatTheOperatorCallsNormalAreSo) {
  const auto model = JobModel::fit(stream(1000, 2, 3, 9), times(3), {}, {});
  ASSERT_TRUE(model.has_value());
  std::vector<double> normal;
  for (int i = 0; i < 10; ++i)
    for (const double value : {0.1, 0.13 + 0.001 * i, 0.1})
      normal.push_back(value);
  const std::vector<double> labelled{0.1, 0.135, 0.1}, other{0.1, 0.1, 0.17};
  Scorer before(*model);
  ASSERT_TRUE(before.is_flagged(before.score(labelled)));
  ASSERT_TRUE(before.is_flagged(before.score(other)));
  auto now = *model;
  for (std::uint64_t i = 0; i < 5; ++i) {
    auto next = now.refresh(stream(750, 2, 3, 20 + i).values, std::span(&normal, 1), 0.3, i);
    ASSERT_TRUE(next.has_value()) << next.error().what;
    now = std::move(*next);
    Scorer after(now);
    EXPECT_FALSE(after.is_flagged(after.score(labelled))) << i;
    EXPECT_TRUE(after.is_flagged(after.score(other))) << i;
    EXPECT_LE(now.parts().mixture.components(), model->parts().mixture.components() + 1);
  }
}

TEST(JobModel, WhatTheOperatorCallsNormalMayBeFarOut) {
  const auto model = JobModel::fit(stream(1000, 2, 3, 9), times(3), {}, {});
  ASSERT_TRUE(model.has_value());
  std::vector<double> normal;
  for (int i = 0; i < 60; ++i)
    for (const double value : {3.0, 2.9 + 0.01 * i, 0.1})  // some 60 spreads
      normal.push_back(value);
  const auto after = model->refresh(stream(750, 2, 3, 20).values, std::span(&normal, 1), 0.3, 1);
  ASSERT_TRUE(after.has_value()) << after.error().what;
  Scorer scorer(*after);
  EXPECT_FALSE(scorer.is_flagged(scorer.score(std::vector<double>{3.0, 3.2, 0.1})));
  EXPECT_TRUE(scorer.is_flagged(scorer.score(std::vector<double>{0.3, 0.3, 0.1}))) << "in between";
}

TEST(JobModel, APhaseThatWasNotSeenSinceIsKnownAllTheSame) {
  // Nine tenths of the time it works, then it rests and hardly moves.
  const auto phases = [](bool works, bool rests, std::uint64_t seed) {
    Cube out = stream(1000, 2, 3, seed);
    for (std::size_t step = 0; step < out.steps(); ++step) {
      const bool is_rest = rests && (!works || step % 100 >= 90);
      for (std::size_t i = step * 6; is_rest && i < step * 6 + 6; ++i)
        out.values[i] = 0.02 * std::pow(out.values[i] / 0.1, 0.1);
    }
    return out;
  };
  auto model = JobModel::fit(phases(true, true, 1), times(3), {}, {});
  ASSERT_TRUE(model.has_value());
  const Cube working = phases(true, false, 2);
  EXPECT_LT(flagged_share(*model, working), 0.02);
  for (std::uint64_t i = 0; i < 14; ++i) {  // a night and more
    model = model->refresh(phases(false, true, 30 + i).values, {}, 0.3, i);
    ASSERT_TRUE(model.has_value()) << model.error().what;
    EXPECT_LT(flagged_share(*model, working), 0.03) << i;
    Scorer scorer(*model);
    EXPECT_TRUE(scorer.is_flagged(scorer.score(std::vector<double>{0.05, 0.05, 0.05})));
  }
}

// In many dimensions a mode that is learnt anew of ever fewer points falls together.
TEST(JobModel, AModeThatIsNotSeenKeepsItsShape) {
  constexpr std::size_t kColumns = 30;
  const auto phases = [](double share_of_other, std::uint64_t seed) {
    Cube out = stream(600, 2, kColumns, seed);
    for (std::size_t step = 0; step < out.steps(); ++step) {
      const bool is_other = static_cast<double>(step % 10) < 10 * share_of_other;
      for (std::size_t i = step * 2 * kColumns; is_other && i < (step + 1) * 2 * kColumns; ++i)
        out.values[i] = 0.15 * std::pow(out.values[i] / 0.1, 2);  // wider, too
    }
    return out;
  };
  auto model = JobModel::fit(phases(0.3, 1), times(kColumns), {.spread_min = 0.1, .blur = 1}, {});
  ASSERT_TRUE(model.has_value()) << model.error().what;
  const double far = model->parts().far_cut - model->parts().threshold;
  for (std::uint64_t i = 0; i < 12; ++i) {
    model = model->refresh(phases(0, 50 + i).values, {}, 0.3, i);
    ASSERT_TRUE(model.has_value()) << model.error().what;
  }
  const Cube back = phases(1, 99);
  Scorer scorer(*model);
  EXPECT_LT(flagged_share(*model, back), 0.05);
  EXPECT_NEAR(model->parts().far_cut - model->parts().threshold, far, far);
  EXPECT_TRUE(scorer.is_flagged(scorer.score(std::vector<double>(kColumns, 0.5))));
}

TEST(JobModel, AFeatureThatIsSeldomThereIsNotLearntOfTheFewTimes) {
  Cube learnt = stream(1000, 2, 4, 5);
  auto model = JobModel::fit(learnt, times(4), {}, {});
  ASSERT_TRUE(model.has_value());
  std::vector<double> slow{0.1, 0.1, 0.1, 0.16};
  Scorer before(*model);
  const double score = before.score(slow) - model->parts().level;
  for (std::uint64_t i = 0; i < 5; ++i) {
    Cube cached = stream(400, 2, 4, 60 + i);
    for (std::size_t row = 0; row < 800; ++row)
      cached.values[row * 4 + 3] = row == 0 ? 0.2 : kNan;
    model = model->refresh(cached.values, {}, 0.3, i);
    ASSERT_TRUE(model.has_value());
  }
  Scorer after(*model);
  EXPECT_NEAR(after.score(slow) - model->parts().level, score, 0.4 * score);
}

TEST(JobModel, WhatTheOperatorCallsNormalStaysSoIfTheJobStaysThere) {
  auto model = JobModel::fit(stream(1000, 2, 3, 9), times(3), {}, {});
  ASSERT_TRUE(model.has_value());
  const auto there = [](std::uint64_t seed) {  // another batch size, some 20 spreads off
    Cube out = stream(500, 2, 3, seed);
    for (double& value : out.values)
      value *= 3;
    return out.values;
  };
  std::vector<double> labelled = there(77);
  labelled.resize(std::size_t{3} * 80);
  model = model->refresh(stream(500, 2, 3, 10).values, std::span(&labelled, 1), 0.3, 1);
  ASSERT_TRUE(model.has_value()) << model.error().what;
  const std::vector<double> usual{0.3, 0.3, 0.3}, between{0.17, 0.17, 0.17};
  for (std::uint64_t i = 0; i < 25; ++i) {  // nobody remembers the label
    model = model->refresh(there(100 + i), {}, 0.3, i);
    ASSERT_TRUE(model.has_value()) << model.error().what;
    Scorer scorer(*model);
    EXPECT_FALSE(scorer.is_flagged(scorer.score(usual))) << i;
    EXPECT_TRUE(scorer.is_flagged(scorer.score(between))) << i;
  }
}

TEST(JobModel, NumbersThatWouldSwitchATestOffAreRefused) {
  const auto model = JobModel::fit(stream(400, 4, 2, 3), times(2), {}, {});
  ASSERT_TRUE(model.has_value());
  ASSERT_FALSE(model->parts().peers.empty());
  const auto refused = [&](auto change) {
    JobModel::Parts parts = model->parts();
    change(parts);
    const auto read = JobModel::from_parts(std::move(parts));
    return !read && read.error().code == Code::kCorrupt;
  };
  EXPECT_FALSE(refused([](JobModel::Parts&) {}));
  EXPECT_TRUE(refused([](JobModel::Parts& parts) { parts.peers.persistent[1] = 0; }));
  EXPECT_TRUE(refused([](JobModel::Parts& parts) { parts.cuts[0] = 0; }));
  EXPECT_TRUE(refused([](JobModel::Parts& parts) { parts.flag_rate = 0; }));
  EXPECT_TRUE(refused([](JobModel::Parts& parts) { parts.measured_points = -1; }));
  EXPECT_TRUE(refused([](JobModel::Parts& parts) { parts.rows = -1; }));
  EXPECT_TRUE(refused([](JobModel::Parts& parts) { parts.blur = kNan; }));
  EXPECT_TRUE(refused([](JobModel::Parts& parts) { parts.paces[0].high = 0; }));
}

TEST(JobModel, SameInputAndSeedSameBytes) {
  const Cube cube = stream(400, 4, 4, 11);
  EXPECT_EQ(JobModel::fit(cube, times(4), {}, {})->to_text(),
            JobModel::fit(cube, times(4), {}, {})->to_text());
}

}  // namespace
}  // namespace kansoku::detect
