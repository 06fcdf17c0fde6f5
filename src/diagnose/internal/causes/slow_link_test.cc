// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/slow_link.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/internal/causes/throttled.h"

namespace kansoku::diagnose {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr std::uint32_t kRanks = 4;
constexpr std::uint64_t kSecondsSampled = 6;

/// Figures of the connection over which rank `from` sends to rank `to` of a ring.
struct Shown {
  std::uint64_t rtt_us{300}, rate{2'500'000'000}, retransmits_a_second{1},
      busy_us_a_second{200'000};
  std::uint64_t rtt_swing_us{0};  // up and down from second to second
};
using ShownBy = std::function<Shown(std::uint32_t from, std::uint32_t to)>;

/// Four ranks in a ring, each sending to the next one and getting acknowledgements from it.
class RingTest : public ::testing::Test {
 protected:
  RingTest() {
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      trace::Track track;
      track.kind = trace::TrackKind::kProcess;
      track.pid = pid_of(r);
      trace_.tracks.push_back(track);
      RankData rank;
      rank.rank = static_cast<std::int32_t>(r);
      rank.pid = pid_of(r);
      job_.ranks.push_back(rank);
    }
    set_transfer_ms(20);
  }
  static std::int32_t pid_of(std::uint32_t rank) { return static_cast<std::int32_t>(100 + rank); }

  void set_transfer_ms(double ms) {
    StepTimes times;
    times.phase_ms[static_cast<std::size_t>(Phase::kTransfer)] = {ms, ms};
    times_.assign(kRanks, times);
  }

  void add(std::uint32_t from, std::uint32_t to, const Shown& shown) {
    for (std::uint64_t second = 0; second < kSecondsSampled; ++second) {
      add_end(from, to, {0, shown, second * sent_a_second_, second * 50'000, second});
      add_end(to, from,
              {1,
               {shown.rtt_us, 9'000'000'000, 0, 0, shown.rtt_swing_us},
               second * 50'000,
               second * 100'000'000,
               second});
    }
  }

  std::optional<Finding> find(const ShownBy& shown_by) {
    for (std::uint32_t r = 0; r < kRanks; ++r)
      add(r, (r + 1) % kRanks, shown_by(r, (r + 1) % kRanks));
    const Collectives collectives;
    const StepTable steps;
    const std::vector<RankPhases> phases;
    return find_slow_link({trace_, job_, collectives, steps, phases, times_, 100, 100}, {});
  }

  trace::Trace trace_;
  std::uint64_t sent_a_second_{100'000'000};

 private:
  struct End {
    int side;  // 0: sends the data
    Shown shown;
    std::uint64_t sent, received, second;
  };
  void add_end(std::uint32_t rank, std::uint32_t peer, const End& end) {
    const std::uint32_t first = end.side == 0 ? rank : peer;
    auto& instants = trace_.instants;
    instants.time_ns.push_back(static_cast<std::int64_t>(end.second) * 1'000'000'000);
    instants.track.push_back({rank});
    instants.name.push_back(trace_.strings.intern("tcp"));
    instants.category.push_back(trace_.strings.intern("net"));
    instants.arg_begin.push_back(static_cast<std::uint32_t>(trace_.args.size()));
    text("local", fmt::format("10.0.0.{}:{}", rank, 4000 + first));
    text("peer", fmt::format("10.0.0.{}:{}", peer, 4000 + first));
    number("rtt_us",
           end.shown.rtt_us + end.second % 3 * end.shown.rtt_swing_us - end.shown.rtt_swing_us);
    number("retransmits", end.second * end.shown.retransmits_a_second);
    number("sent_bytes", end.sent);
    number("received_bytes", end.received);
    number("rate", end.shown.rate);
    number("busy_us", end.second * end.shown.busy_us_a_second);
    instants.arg_count.push_back(
        static_cast<std::uint32_t>(trace_.args.size() - instants.arg_begin.back()));
  }
  void text(std::string_view key, const std::string& value) {
    trace::ArgValue arg;
    arg.kind = trace::ArgValue::Kind::kString;
    arg.key = trace_.strings.intern(key);
    arg.text = trace_.strings.intern(value);
    trace_.args.push_back(arg);
  }
  void number(std::string_view key, std::uint64_t value) {
    trace::ArgValue arg;
    arg.kind = trace::ArgValue::Kind::kUint;
    arg.key = trace_.strings.intern(key);
    arg.u64 = value;
    trace_.args.push_back(arg);
  }

  JobData job_;
  std::vector<StepTimes> times_;
};

bool touches(std::uint32_t rank, std::uint32_t from, std::uint32_t to) {
  return from == rank || to == rank;
}

TEST_F(RingTest, BlamesNobodyWhereLinksAreEqual) {
  EXPECT_FALSE(find([](auto from, auto) { return Shown{.rtt_us = 300 + 100 * from}; }));
}

// Small messages on a busy host: the medians lie apart, the times do not.
TEST_F(RingTest, TimesThatSwingProveNothing) {
  for (const std::uint64_t swing : {0U, 700U}) {
    trace_.instants = {};
    const auto found = find([swing](auto from, auto) {
      return from == 0 ? Shown{.rtt_us = 1800, .rtt_swing_us = swing}
                       : Shown{.rtt_us = 500, .rtt_swing_us = 400};
    });
    EXPECT_EQ(found.has_value(), swing == 0);
  }
}

TEST_F(RingTest, NamesTheRankWhoseLinksAnswerLate) {
  const auto found = find([](auto from, auto to) {
    return touches(1, from, to) ? Shown{.rtt_us = 1700} : Shown{.rtt_us = 400};
  });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, "slow_link");
  EXPECT_THAT(found->ranks, ElementsAre(1));
  EXPECT_THAT(found->evidence, Contains(HasSubstr("round-trip time")));
  EXPECT_NEAR(found->cost_ms_per_step, 20 * (1 - 400.0 / 1700), 1e-9);
}

TEST_F(RingTest, NamesTheRankWhoseLinksDeliverLess) {
  const auto found = find([](auto from, auto to) {
    return Shown{.rate = touches(2, from, to) ? 500'000'000U : 2'400'000'000U};
  });
  ASSERT_TRUE(found);
  EXPECT_THAT(found->ranks, ElementsAre(2));
  EXPECT_THAT(found->evidence, Contains(HasSubstr("at most 500 MB/s, all others at least 2400")));
}

TEST_F(RingTest, ASingleLinkThatDeliversLessIsChance) {
  EXPECT_FALSE(find(
      [](auto from, auto) { return Shown{.rate = from == 2 ? 500'000'000U : 2'400'000'000U}; }));
}

TEST_F(RingTest, NamesThePairWhoseLinkAnswersLate) {
  const auto found =
      find([](auto from, auto) { return Shown{.rtt_us = from == 2 ? 9000U : 400U}; });
  ASSERT_TRUE(found);
  EXPECT_THAT(found->ranks, ElementsAre(2, 3));
}

TEST_F(RingTest, RatesThatNobodyKnowsTellNothing) {
  EXPECT_FALSE(find([](auto, auto) { return Shown{.rate = 0}; }));
  EXPECT_FALSE(
      find([](auto from, auto) { return Shown{.rate = from == 2 ? 0U : 2'400'000'000U}; }));
}

TEST_F(RingTest, RatesOfIdleConnectionsAreOldNews) {
  sent_a_second_ = 60'000;  // too few to measure: the kernel shows the last rate it knows
  EXPECT_FALSE(find([](auto from, auto to) {
    return Shown{.rate = touches(2, from, to) ? 500'000'000U : 2'400'000'000U};
  }));
}

TEST_F(RingTest, RetransmissionsCountOnlyWithSlowerBytes) {
  const auto lossy = [](std::uint64_t busy) {
    return [busy](auto from, auto to) {
      return touches(3, from, to) ? Shown{.retransmits_a_second = 100, .busy_us_a_second = busy}
                                  : Shown{};
    };
  };
  EXPECT_FALSE(find(lossy(200'000)));
  trace_.instants = {};
  const auto found = find(lossy(400'000));
  ASSERT_TRUE(found);
  EXPECT_THAT(found->ranks, ElementsAre(3));
}

TEST_F(RingTest, SlowLinksThatCostNothingAreNoFinding) {
  set_transfer_ms(5);  // of a step of 100
  EXPECT_FALSE(find([](auto from, auto to) {
    return touches(1, from, to) ? Shown{.rtt_us = 17000} : Shown{.rtt_us = 400};
  }));
}

TEST_F(RingTest, ArgumentsOutOfBoundsAreLeftOut) {
  trace_.instants.time_ns.push_back(0);
  trace_.instants.track.push_back({99});
  trace_.instants.name.push_back(trace_.strings.intern("tcp"));
  trace_.instants.category.push_back({});
  trace_.instants.arg_begin.push_back(0xfffffff0);
  trace_.instants.arg_count.push_back(0xffffffff);
  EXPECT_FALSE(find([](auto, auto) { return Shown{}; }));
}

struct Quota {
  std::vector<double> throttled_share;  // by rank
  std::vector<std::int32_t> culprits;
};

class ThrottledTest : public ::testing::TestWithParam<Quota> {};

TEST_P(ThrottledTest, NamesTheRanksThatAQuotaHeldBack) {
  trace::Trace trace;
  JobData job;
  for (std::size_t r = 0; r < GetParam().throttled_share.size(); ++r) {
    RankData rank;
    rank.rank = static_cast<std::int32_t>(r);
    rank.pid = 100 + rank.rank;
    job.ranks.push_back(rank);
    trace::Track process;
    process.kind = trace::TrackKind::kProcess;
    process.pid = rank.pid;
    trace::Track counter;
    counter.kind = trace::TrackKind::kCounter;
    counter.parent = {static_cast<std::uint32_t>(trace.tracks.size())};
    counter.name = trace.strings.intern("cpu throttled");
    trace.tracks.push_back(process);
    trace.tracks.push_back(counter);
    for (int second = 0; second < 5; ++second) {
      trace.counters.time_ns.push_back(second * 1'000'000'000LL);
      trace.counters.track.push_back({static_cast<std::uint32_t>(trace.tracks.size() - 1)});
      trace.counters.value.push_back(1e12 + second * 1e9 * GetParam().throttled_share[r]);
    }
  }
  const Collectives collectives;
  const StepTable steps;
  const std::vector<RankPhases> phases;
  const std::vector<StepTimes> times(job.ranks.size());
  const auto found = find_throttled({trace, job, collectives, steps, phases, times, 50, 50}, {});
  ASSERT_EQ(found.has_value(), !GetParam().culprits.empty());
  if (!found) return;
  EXPECT_EQ(found->kind, "cpu_throttled");
  EXPECT_THAT(found->ranks, ElementsAreArray(GetParam().culprits));
  EXPECT_NEAR(
      found->cost_ms_per_step,
      50 * *std::max_element(GetParam().throttled_share.begin(), GetParam().throttled_share.end()),
      1e-6);
}

INSTANTIATE_TEST_SUITE_P(Quotas, ThrottledTest,
                         ::testing::Values(Quota{{0, 0, 0.3, 0}, {2}}, Quota{{0, 0, 0.04, 0}, {}},
                                           Quota{{0.1, 0.1, 0.3, 0.1}, {0, 1, 2, 3}},
                                           Quota{{0.05, 0.05, 0.3, 0.05}, {2}},
                                           Quota{{0.3, 0.3, 0.3, 0.3}, {0, 1, 2, 3}},
                                           Quota{{0.3, 0.02, 0.3, 0}, {0, 2}}, Quota{{}, {}}));

}  // namespace
}  // namespace kansoku::diagnose
