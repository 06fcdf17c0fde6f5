// SPDX-License-Identifier: Apache-2.0
#include "simulate/schedule/policy.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace kansoku::simulate::schedule {
namespace {

/// 10 units; some are held by what runs, with expected ends.
class FakeView final : public View {
 public:
  [[nodiscard]] Nanos now() const override { return now_; }
  [[nodiscard]] bool fits(const Waiting& waiting) override { return waiting.units <= units_free(); }
  [[nodiscard]] std::int64_t units_free() const override {
    std::int64_t free = 10;
    for (const auto& [end, units] : running)
      free -= units;
    return free;
  }
  [[nodiscard]] double usage(std::uint32_t group) const override {
    const auto found = used.find(group);
    return found == used.end() ? 0 : found->second;
  }
  void visit_ends(EndVisitor& visitor) const override {
    for (const auto& [end, units] : running)
      if (!visitor.ends(end, units)) return;
  }

  std::multimap<Nanos, std::int64_t> running;
  std::map<std::uint32_t, double> used;

 private:
  Nanos now_{0};
};

/// Tickets in the order in which they start while everything fits that does.
std::string order(const std::string& policy, const std::vector<Waiting>& waiting, FakeView& view) {
  auto made = make_policy(policy).value();
  for (const Waiting& one : waiting)
    made->add(one);
  std::string text;
  while (const auto next = made->pick(view)) {
    text += std::to_string(next->ticket);
    made->remove(*next);
    view.running.emplace(view.now() + next->estimate, next->units);
  }
  EXPECT_EQ(made->empty(), text.size() == waiting.size());
  return text;
}

TEST(Schedule, FifoLetsNobodyPassTheGang) {
  FakeView view;
  view.running.emplace(Nanos{100}, 6);
  // 4 are free: 1 takes 2; 2 wants 4 and finds 2; 3 would fit but waits behind it.
  EXPECT_EQ(
      order("fifo", {{.ticket = 1, .units = 2}, {.ticket = 2, .units = 4}, {.ticket = 3}}, view),
      "1");
}

TEST(Schedule, PriorityGoesBySmallerNumberThenArrival) {
  FakeView view;
  EXPECT_EQ(order("priority",
                  {{.ticket = 1, .priority = 5},
                   {.ticket = 2, .priority = 1},
                   {.ticket = 3, .priority = 5},
                   {.ticket = 4, .priority = -1}},
                  view),
            "4213");
}

TEST(Schedule, ShortestGoesByEstimateThenArrival) {
  FakeView view;
  EXPECT_EQ(order("shortest",
                  {{.ticket = 1, .estimate = Nanos{9}},
                   {.ticket = 2, .estimate = Nanos{3}},
                   {.ticket = 3, .estimate = Nanos{3}}},
                  view),
            "231");
}

TEST(Schedule, FairShareServesTheGroupThatUsedLeast) {
  FakeView view;
  view.used = {{1, 50.0}, {2, 10.0}};
  view.running.emplace(Nanos{100}, 8);
  // Group 2 has used least, but its first request wants 3 of 2 free units and is passed over.
  EXPECT_EQ(order("fair_share",
                  {{.ticket = 1, .group = 1},
                   {.ticket = 2, .units = 3, .group = 2},
                   {.ticket = 3, .group = 1}},
                  view),
            "13");
  FakeView idle;
  idle.used = {{1, 50.0}, {2, 10.0}};
  EXPECT_EQ(order("fair_share", {{.ticket = 1, .group = 1}, {.ticket = 2, .group = 2}}, idle),
            "21");
}

TEST(Schedule, BackfillStartsWhatDoesNotDelayTheFirst) {
  FakeView view;
  view.running.emplace(Nanos{100}, 4);
  view.running.emplace(Nanos{200}, 4);
  // 2 free. The first wants 5: at 100 there will be 6 free, so its reservation is at 100 with 1 to
  // spare. 2 ends at 150 and needs 2: would delay it. 3 ends at 90: starts. 4 runs long, but needs
  // no more than the spare unit: starts.
  EXPECT_EQ(order("backfill",
                  {{.ticket = 1, .estimate = Nanos{10}, .units = 5},
                   {.ticket = 2, .estimate = Nanos{150}, .units = 2},
                   {.ticket = 3, .estimate = Nanos{90}, .units = 1},
                   {.ticket = 4, .estimate = Nanos{900}, .units = 1}},
                  view),
            "34");
}

TEST(Schedule, ImprovementGoesByGainThenStaleness) {
  FakeView view;
  EXPECT_EQ(order("improvement",
                  {{.ticket = 1, .potential = 0.1, .trained = Nanos{5}},
                   {.ticket = 2, .potential = 0.3, .trained = Nanos{9}},
                   {.ticket = 3, .potential = 0.1, .trained = Nanos{2}},
                   {.ticket = 4}},
                  view),
            "2314");
}

TEST(Schedule, NamesWhatThereIs) {
  const auto made = make_policy("lifo");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().what, "scheduler \"lifo\": unknown");
  EXPECT_EQ(made.error().hint,
            "there are fifo, priority, shortest, fair_share, backfill, improvement");
}

TEST(Schedule, RemovesFromTheMiddle) {
  FakeView view;
  for (const std::string_view name : policy_names()) {
    auto made = make_policy(name).value();
    const Waiting first{.ticket = 1}, second{.ticket = 2}, third{.ticket = 3};
    made->add(first);
    made->add(second);
    made->add(third);
    made->remove(second);
    made->remove(second);
    EXPECT_EQ(made->head(view)->ticket, 1U) << name;
    made->remove(first);
    EXPECT_EQ(made->head(view)->ticket, 3U) << name;
    made->remove(third);
    EXPECT_TRUE(made->empty()) << name;
    EXPECT_FALSE(made->pick(view)) << name;
  }
}

}  // namespace
}  // namespace kansoku::simulate::schedule
