// SPDX-License-Identifier: Apache-2.0
#include "agent/internal/incident_book.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace kansoku::agent {
namespace {

using exporter::IncidentEvent;
constexpr std::int64_t kSecond = 1'000'000'000;

trace::IncidentRecord incident(const std::string& id, std::int64_t begin_ns,
                               std::int64_t end_ns = 0) {
  trace::IncidentRecord out;
  out.id = id;
  out.job = "job";
  out.kind = "latency_spike";
  out.begin_ns = begin_ns;
  out.end_ns = end_ns;
  return out;
}

TEST(IncidentBook, TellsWhatBecomesOfAnIncidentAndCountsItOnce) {
  IncidentBook book;
  const auto first = book.note(incident("a", 1));
  EXPECT_EQ(first.event, IncidentEvent::kOpened);
  EXPECT_TRUE(first.is_first);
  EXPECT_EQ(book.note(incident("a", 1)).event, IncidentEvent::kChanged);
  EXPECT_EQ(book.open().size(), 1U);
  EXPECT_EQ(book.note(incident("a", 1, 9)).event, IncidentEvent::kClosed);
  EXPECT_TRUE(book.open().empty());
  EXPECT_EQ(book.note(incident("a", 1)).event, IncidentEvent::kReopened);
  EXPECT_EQ(book.note(incident("a", 1)).event, IncidentEvent::kChanged);
  EXPECT_EQ(book.note(incident("a", 1, 12)).event, IncidentEvent::kClosed);
  EXPECT_EQ(book.note(incident("b", 20)).event, IncidentEvent::kOpened);
  EXPECT_EQ(book.opened("job", "latency_spike"), 2U);
  EXPECT_EQ(book.opened("job", "unknown"), 0U);
  EXPECT_EQ(book.opened("other", "latency_spike"), 0U);
}

TEST(IncidentBook, WhatIsToldForTheFirstTimeWhenItIsOverIsCountedToo) {
  IncidentBook book;
  const auto told = book.note(incident("a", 1, 9));
  EXPECT_EQ(told.event, IncidentEvent::kClosed);
  EXPECT_TRUE(told.is_first);
  EXPECT_EQ(book.opened("job", "latency_spike"), 1U);
  EXPECT_FALSE(book.note(incident("a", 1, 9)).is_first);
}

TEST(IncidentBook, CountsOfJobsThatAreOverAreForgotten) {
  IncidentBook book;
  book.note(incident("a", 1, 9));
  const auto after = [&](const std::set<std::string>& jobs, std::int64_t second) {
    book.count_only(jobs, boot_time(second * kSecond));
    return book.opened("job", "latency_spike");
  };
  EXPECT_EQ(after({"job", "other"}, 1000), 1U);
  EXPECT_EQ(after({"other"}, 1001), 1U);
  EXPECT_EQ(after({"other"}, 1300), 1U) << "a scrape a minute is to see it";
  EXPECT_EQ(after({"job"}, 1301), 1U) << "back again";
  EXPECT_EQ(after({}, 1400), 1U);
  EXPECT_EQ(book.counted_jobs(), std::set<std::string>{"job"});
  EXPECT_EQ(after({}, 1700), 0U);
  EXPECT_TRUE(book.counted_jobs().empty());
}

TEST(IncidentBook, WhatTheAgentBeforeToldIsGoneOnWithUnderItsId) {
  IncidentBook book;
  book.inherit({incident("open", 1), incident("over", 1, 5 * kSecond)});
  const auto first = book.note(incident("x", 8 * kSecond));
  EXPECT_EQ(first.incident.id, "open");
  EXPECT_EQ(first.event, IncidentEvent::kChanged);
  const auto second = book.note(incident("y", 9 * kSecond));
  EXPECT_EQ(second.incident.id, "over");
  EXPECT_EQ(second.event, IncidentEvent::kReopened);
  EXPECT_EQ(book.detector_id("over"), "y");
  EXPECT_EQ(book.opened("job", "latency_spike"), 0U) << "nothing began under this agent";
  EXPECT_EQ(book.note(incident("z", 9 * kSecond)).incident.id, "z");
}

TEST(IncidentBook, OnlyWhatIsOpenAndNobodyContinuedIsUnclaimed) {
  IncidentBook book;
  book.inherit({incident("a", 1), incident("b", 2), incident("c", 1, 3)});
  EXPECT_EQ(book.note(incident("x", 4)).incident.id, "b");
  const auto left = book.take_unclaimed();
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].id, "a");
  EXPECT_FALSE(book.has_inherited());
  EXPECT_EQ(book.note(incident("y", 5)).incident.id, "y");
}

TEST(IncidentBook, RemembersNoMoreThanTheLatestThatAreOver) {
  IncidentBook book;
  for (int i = 0; i < 300; ++i) {
    book.note(incident(std::to_string(i), i));
    book.note(incident(std::to_string(i), i, i + 1));
  }
  EXPECT_EQ(book.note(incident("299", 299)).event, IncidentEvent::kReopened);
  EXPECT_EQ(book.note(incident("0", 0)).event, IncidentEvent::kOpened);
}

TEST(IncidentBook, WhatEndedInTheFutureByAWrongClockIsNotGoneOnWith) {
  IncidentBook book;
  book.inherit({incident("future", 900 * kSecond, 1000 * kSecond)});
  EXPECT_EQ(book.note(incident("x", 8 * kSecond)).incident.id, "x");
  book.inherit({incident("just over", 1 * kSecond, 9 * kSecond)});
  EXPECT_EQ(book.note(incident("y", 8 * kSecond)).incident.id, "just over") << "dated back a bit";
}

TEST(IncidentBook, ALabelGivenBeforeTheIncidentGoesOnIsKnownWhenItDoes) {
  IncidentBook book;
  book.inherit({incident("open", 1)});
  book.label("open", "false");
  EXPECT_EQ(book.label_before("x"), "");
  EXPECT_EQ(book.note(incident("x", 8 * kSecond)).incident.label, "false");
  EXPECT_EQ(book.label_before("x"), "false");
}

}  // namespace
}  // namespace kansoku::agent
