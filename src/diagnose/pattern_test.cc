// SPDX-License-Identifier: Apache-2.0
#include "diagnose/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/rng.h"

namespace kansoku::diagnose {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

const PatternRow& row_of(const Pattern& pattern, std::uint32_t function) {
  for (const PatternRow& row : pattern.rows) {
    if (row.function == function) return row;
  }
  static const PatternRow kNone;
  return kNone;
}

std::vector<Execution> random_executions(Rng& rng, std::size_t count) {
  std::vector<Execution> out;
  for (std::size_t i = 0; i < count; ++i) {
    const auto begin = static_cast<std::int64_t>(rng.below(120)) - 10;
    out.push_back({.begin_ns = begin,
                   .end_ns = begin + static_cast<std::int64_t>(rng.below(30)),
                   .function = static_cast<std::uint32_t>(i % 7),
                   .activity = static_cast<Activity>(i % 7),  // a function has one activity
                   .use = static_cast<float>(rng.below(5)) / 4});
  }
  return out;
}

/// Owner of the nanosecond that begins at `t`, by the definition: the highest activity, of those
/// the latest begun, of those the latest in the list.
const Execution* owner_at(const std::vector<Execution>& list, std::int64_t t,
                          const Priorities& priorities) {
  for (const Activity activity : priorities) {
    const Execution* owner = nullptr;
    for (const Execution& e : list) {
      const bool is_live = e.activity == activity && e.begin_ns <= t && t < e.end_ns;
      if (is_live && (owner == nullptr || e.begin_ns >= owner->begin_ns)) owner = &e;
    }
    if (owner != nullptr) return owner;
  }
  return nullptr;
}

// Every nanosecond against the definition, and all that follows from it.
TEST(Pattern, EqualsTheDefinitionAtEveryNanosecond) {
  constexpr std::int64_t kEnd = 100;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    const auto list = random_executions(rng, rng.below(25));
    const Priorities& priorities = seed % 2 == 0 ? kGpuPriorities : kCpuPriorities;
    struct Sum {
      double ns{0}, use{0}, squares{0};
      std::map<const Execution*, int> executions;
    };
    std::map<std::uint32_t, Sum> sums;
    double idle_ns = 0;
    for (std::int64_t t = 0; t < kEnd; ++t) {
      const Execution* owner = owner_at(list, t, priorities);
      if (owner == nullptr) {
        ++idle_ns;
        continue;
      }
      Sum& sum = sums[owner->function];
      sum.ns += 1;
      sum.use += owner->use;
      sum.squares += static_cast<double>(owner->use) * owner->use;
      ++sum.executions[owner];
    }
    const Pattern pattern = build_pattern(list, 0, kEnd, priorities);
    ASSERT_EQ(pattern.rows.size(), sums.size()) << "seed " << seed;
    EXPECT_NEAR(pattern.idle, idle_ns / kEnd, 1e-12) << "seed " << seed;
    double whole = pattern.idle;
    for (const PatternRow& row : pattern.rows) {
      const Sum& sum = sums.at(row.function);
      const double mean = sum.use / sum.ns;
      EXPECT_NEAR(row.beta, sum.ns / kEnd, 1e-12) << "seed " << seed;
      EXPECT_NEAR(row.mu, mean, 1e-9) << "seed " << seed;
      EXPECT_NEAR(row.sigma, std::sqrt(std::max(0.0, sum.squares / sum.ns - mean * mean)), 1e-6);
      EXPECT_EQ(row.count, sum.executions.size()) << "seed " << seed << " of " << row.function;
      whole += row.beta;
    }
    EXPECT_NEAR(whole, 1, 1e-12) << "seed " << seed;
    for (std::size_t i = 1; i < pattern.rows.size(); ++i)
      EXPECT_GE(pattern.rows[i - 1].beta, pattern.rows[i].beta);
  }
}

// A kernel of 40 ns under an operator of 100 ns: 40 to the kernel, 60 to the operator; without a
// device the order of collectives and operators is the other way round.
TEST(Pattern, TheHighestActivityOwnsTheInstant) {
  const std::array list{Execution{0, 100, 1, Activity::kCpuOp, 0},
                        Execution{30, 70, 2, Activity::kGpuCompute, 0}};
  const Pattern p = build_pattern(list, 0, 100, kGpuPriorities);
  EXPECT_DOUBLE_EQ(row_of(p, 1).beta, 0.6);
  EXPECT_DOUBLE_EQ(row_of(p, 2).beta, 0.4);
  EXPECT_DOUBLE_EQ(p.idle, 0);
  EXPECT_EQ(row_of(p, 1).count, 1U);  // one execution, though in two pieces
  const std::array both{Execution{0, 100, 1, Activity::kCpuOp, 0},
                        Execution{30, 70, 2, Activity::kCollective, 0}};
  EXPECT_DOUBLE_EQ(row_of(build_pattern(both, 0, 100, kGpuPriorities), 2).beta, 0.4);
  EXPECT_DOUBLE_EQ(row_of(build_pattern(both, 0, 100, kCpuPriorities), 2).beta, 0);
}

// a calls b calls c: each owns what its callees leave, whatever the order of the list.
TEST(Pattern, TheInnermostOwnsTheInstant) {
  const Execution a{0, 100, 1, Activity::kPython, 0}, b{10, 60, 2, Activity::kPython, 0},
      c{20, 30, 3, Activity::kPython, 0};
  for (const auto& list : {std::array{a, b, c}, std::array{c, b, a}, std::array{b, a, c}}) {
    const Pattern p = build_pattern(list, 0, 100, kGpuPriorities);
    EXPECT_DOUBLE_EQ(row_of(p, 1).beta, 0.5);
    EXPECT_DOUBLE_EQ(row_of(p, 2).beta, 0.4);
    EXPECT_DOUBLE_EQ(row_of(p, 3).beta, 0.1);
  }
}

TEST(Pattern, TheWindowCuts) {
  const std::array list{Execution{-50, 20, 1, Activity::kPython, 1},
                        Execution{90, 500, 2, Activity::kPython, 1},
                        Execution{200, 300, 3, Activity::kPython, 1},
                        Execution{50, 50, 4, Activity::kGpuCompute, 1}};  // no time at all
  const Pattern p = build_pattern(list, 0, 100, kGpuPriorities);
  EXPECT_EQ(p.rows.size(), 2U);
  EXPECT_DOUBLE_EQ(row_of(p, 1).beta, 0.2);
  EXPECT_DOUBLE_EQ(row_of(p, 2).beta, 0.1);
  EXPECT_DOUBLE_EQ(p.idle, 0.7);
  EXPECT_THAT(build_pattern(list, 100, 100, kGpuPriorities).rows, IsEmpty());
  EXPECT_THAT(build_pattern(list, 100, 0, kGpuPriorities).rows, IsEmpty());
}

// Used fully for 30 ns and not at all for 10: mean 3/4, deviation sqrt(3/4 * 1/4).
TEST(Pattern, UseIsWeightedByTime) {
  const std::array list{Execution{0, 30, 1, Activity::kCopy, 1},
                        Execution{50, 60, 1, Activity::kCopy, 0}};
  const PatternRow row = row_of(build_pattern(list, 0, 100, kGpuPriorities), 1);
  EXPECT_DOUBLE_EQ(row.mu, 0.75);
  EXPECT_DOUBLE_EQ(row.sigma, std::sqrt(0.75 * 0.25));
  EXPECT_EQ(row.count, 2U);
}

TEST(Pattern, OwnersAreToldInOrderWithoutGaps) {
  Rng rng(3);
  const auto list = random_executions(rng, 20);
  std::int64_t last_ns = 0, owned_ns = 0;
  const Pattern p =
      build_pattern(list, 0, 100, kGpuPriorities,
                    [&](const Execution& owner, std::int64_t begin, std::int64_t end) {
                      EXPECT_LE(last_ns, begin);
                      EXPECT_LT(begin, end);
                      EXPECT_LE(owner.begin_ns, begin);
                      EXPECT_LE(end, owner.end_ns);
                      owned_ns += end - begin;
                      last_ns = end;
                    });
  EXPECT_NEAR(static_cast<double>(owned_ns) / 100, 1 - p.idle, 1e-12);
}

// Against every run of pieces.
TEST(CriticalUse, IsTheShortestRunThatHoldsTheShare) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    const std::size_t count = 1 + rng.below(12);
    std::vector<double> levels, lengths;
    double whole = 0;
    for (std::size_t i = 0; i < count; ++i) {
      levels.push_back(static_cast<double>(rng.below(4)));
      lengths.push_back(static_cast<double>(1 + rng.below(5)));
      whole += levels[i] * lengths[i];
    }
    const double share = static_cast<double>(1 + rng.below(16)) / 16;
    double shortest = std::numeric_limits<double>::infinity();
    for (std::size_t from = 0; from < count; ++from) {
      double held = 0, length = 0;
      for (std::size_t to = from; to < count; ++to) {
        held += levels[to] * lengths[to];
        length += lengths[to];
        if (held >= share * whole) shortest = std::min(shortest, length);
      }
    }
    const CriticalUse use = critical_use(levels, lengths, share);
    if (whole == 0) {
      EXPECT_EQ(use.length, 0);
      continue;
    }
    EXPECT_DOUBLE_EQ(use.length, shortest) << "seed " << seed;
    EXPECT_GE(use.mean * use.length, share * whole - 1e-9) << "seed " << seed;
    EXPECT_GE(use.deviation, 0);
  }
}

// 10 s of waiting at 0, then 4 s at 0.5 and 4 s at 1, then 10 s at 0: the waiting is left out.
TEST(CriticalUse, LeavesTheWaitingOut) {
  const CriticalUse use =
      critical_use(std::array{0.0, 0.5, 1.0, 0.0}, std::array{10.0, 4.0, 4.0, 10.0}, 1);
  EXPECT_DOUBLE_EQ(use.length, 8);
  EXPECT_DOUBLE_EQ(use.mean, 0.75);
  EXPECT_DOUBLE_EQ(use.deviation, 0.25);
  EXPECT_EQ(critical_use({}, {}, 0.8).length, 0);
  EXPECT_EQ(critical_use(std::array{0.0}, std::array{5.0}, 0.8).length, 0);
}

/// Rows with shares that floats hold exactly.
std::pair<Pattern, std::vector<std::string>> sample(std::size_t rows) {
  Pattern pattern{.rank = 7, .window_ns = 123456789012345, .rows = {}, .idle = 0.25};
  std::vector<std::string> names;
  for (std::size_t i = 0; i < rows; ++i) {
    pattern.rows.push_back({.function = static_cast<std::uint32_t>(rows - 1 - i),
                            .activity = static_cast<Activity>(i % kActivityCount),
                            .count = static_cast<std::uint32_t>(i + 1),
                            .beta = 1.0 / static_cast<double>(std::size_t{2} << i),
                            .mu = 0.5,
                            .sigma = 0.125});
  }
  for (std::size_t i = 0; i < rows; ++i)
    names.push_back(std::string(i, 'n') + "\xc3\xa9");
  return {pattern, names};
}

TEST(PatternFormat, ComesBackWhole) {
  const auto [pattern, names] = sample(12);
  const std::string bytes = encode_pattern(pattern, names, 1 << 20);
  const auto back = decode_pattern(as_bytes(bytes));
  ASSERT_TRUE(back.has_value()) << back.error().what;
  EXPECT_EQ(back->pattern.rank, 7);
  EXPECT_EQ(back->pattern.window_ns, pattern.window_ns);
  EXPECT_EQ(back->pattern.idle, 0.25);
  ASSERT_EQ(back->pattern.rows.size(), 12U);
  for (std::size_t i = 0; i < 12; ++i) {
    const PatternRow &there = pattern.rows[i], &here = back->pattern.rows[i];
    EXPECT_EQ(back->names[here.function], names[there.function]);
    EXPECT_EQ(here.activity, there.activity);
    EXPECT_EQ(here.count, there.count);
    EXPECT_EQ(here.beta, there.beta);
    EXPECT_EQ(here.mu, there.mu);
    EXPECT_EQ(here.sigma, there.sigma);
  }
  EXPECT_EQ(encode_pattern(back->pattern, back->names, 1 << 20), bytes);
}

// At every limit: never more bytes, never a share lost, and the rows that fit are the greatest.
TEST(PatternFormat, KeepsEveryLimitInBytes) {
  const auto [pattern, names] = sample(12);
  const std::size_t all = encode_pattern(pattern, names, 1 << 20).size();
  double whole = 0;
  std::uint32_t count = 0;
  for (const PatternRow& row : pattern.rows) {
    whole += row.beta;
    count += row.count;
  }
  for (std::size_t limit = kPatternBytesMin; limit <= all + 1; ++limit) {
    const std::string bytes = encode_pattern(pattern, names, limit);
    ASSERT_LE(bytes.size(), limit);
    const auto back = decode_pattern(as_bytes(bytes));
    ASSERT_TRUE(back.has_value()) << limit;
    double sum = 0;
    std::uint32_t sum_count = 0;
    for (const PatternRow& row : back->pattern.rows) {
      sum += row.beta;
      sum_count += row.count;
    }
    EXPECT_NEAR(sum, whole, 1e-6) << limit;
    EXPECT_EQ(sum_count, count) << limit;
    EXPECT_EQ(back->names.back() == "(others)", limit < all) << limit;
    for (std::size_t i = 0; i + 1 < back->names.size(); ++i)
      EXPECT_EQ(back->names[i], names[pattern.rows[i].function]) << limit;
  }
  EXPECT_EQ(encode_pattern({}, {}, kPatternBytesMin).size(), 26U);  // the header alone
}

TEST(PatternFormat, LongNamesAreCut) {
  for (const std::size_t size : {239U, 240U, 241U, 5000U}) {
    const Pattern pattern{.rank = 0, .window_ns = 1, .rows = {PatternRow{}}, .idle = 0};
    const std::vector<std::string> names{std::string(size, 'n')};
    const std::string bytes = encode_pattern(pattern, names, 1 << 20);
    EXPECT_EQ(decode_pattern(as_bytes(bytes))->names[0].size(), std::min<std::size_t>(size, 240));
  }
}

TEST(PatternFormat, HostileBytesAreRefused) {
  const auto [pattern, names] = sample(3);
  const std::string bytes = encode_pattern(pattern, names, 1 << 20);
  const auto bent = [&](std::size_t at, std::string_view with) {
    std::string out = bytes;
    out.replace(at, with.size(), with);
    const auto back = decode_pattern(as_bytes(out));
    EXPECT_FALSE(back.has_value()) << at;
    return back.has_value() ? Error{} : back.error();
  };
  using namespace std::string_view_literals;
  EXPECT_THAT(bent(0, "X").what, HasSubstr("offset 0: not a pattern"));
  EXPECT_EQ(bent(4, "\x02").code, Code::kUnsupported);
  EXPECT_THAT(bent(18, "\xff\xff\xff\x7f").what, HasSubstr("offset 18: impossible idle"));
  EXPECT_THAT(bent(22, "\xff\xff\xff\xff").what, HasSubstr("4294967295 rows in"));
  EXPECT_THAT(bent(22, "\x02").what, HasSubstr("more bytes than rows"));
  EXPECT_THAT(bent(30, "\x08").what, HasSubstr("impossible row"));                // activity
  EXPECT_THAT(bent(31, "\x00\x00\xc0\x7f"sv).what, HasSubstr("impossible row"));  // beta: NaN
  EXPECT_THAT(bent(31, "\x00\x00\x80\xbf"sv).what, HasSubstr("impossible row"));  // beta: -1
  EXPECT_THAT(bent(35, "\x00\x00\x80\x7f"sv).what, HasSubstr("impossible row"));  // mu: infinite
  EXPECT_THAT(bent(39, "\x00\x00\x80\xbf"sv).what, HasSubstr("impossible row"));  // sigma: -1
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto cut = decode_pattern(as_bytes(std::string_view(bytes).substr(0, size)));
    ASSERT_FALSE(cut.has_value()) << size;
    EXPECT_EQ(cut.error().code, Code::kCorrupt) << size;
  }
  EXPECT_FALSE(decode_pattern(as_bytes(bytes + "x")).has_value());
}

}  // namespace
}  // namespace kansoku::diagnose
