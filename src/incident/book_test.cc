// SPDX-License-Identifier: Apache-2.0
#include "incident/book.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace kansoku::incident {
namespace {

using trace::IncidentEvent;
using trace::IncidentKind;
using trace::IncidentLabel;
constexpr std::int64_t kSecond = 1'000'000'000, kNow = 1'700'000'000 * kSecond;

class BookTest : public ::testing::Test {
 protected:
  BookTest() {
    std::string name = ::testing::TempDir() + "kansoku-book-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~BookTest() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] Book open(bool is_kept = true, std::int64_t wall_ns = kNow) {
    BookOptions options;
    options.host = "h";
    options.folder = is_kept ? folder_ : "";
    options.log = [this](const std::string& line) { log_.push_back(line); };
    auto book = Book::open(std::move(options), now_, wall_ns);
    EXPECT_TRUE(book.has_value()) << (book ? "" : book.error().what);
    return std::move(book).value();
  }
  /// As if the agent had been seen last at that time.
  void seen_last_at(std::int64_t wall_ns) const {
    std::ofstream(folder_ + "/alive").close();
    timespec time{wall_ns / kSecond, wall_ns % kSecond};
    const timespec both[2]{time, time};
    ASSERT_EQ(::utimensat(AT_FDCWD, (folder_ + "/alive").c_str(), both, 0), 0);
  }
  static Observation seen(std::uint64_t episode, std::int64_t begin_ns, std::int64_t end_ns = 0) {
    Observation out{"job", Source::kDetector, episode, {}};
    out.facts.begin_ns = begin_ns;
    out.facts.end_ns = end_ns;
    out.facts.kind = IncidentKind::kLatencySpike;
    out.facts.window_count = 1;
    return out;
  }
  static Observation harmless(Observation one) {
    one.facts.has_effect = false;
    return one;
  }
  static Observation growth(std::uint64_t episode, std::int64_t begin_ns) {
    Observation out = seen(episode, begin_ns);
    out.source = Source::kGrowth;
    out.facts.tests = {"growth"};
    return out;
  }

  static Observation stuck(std::uint64_t episode, std::int64_t begin_ns, std::int64_t end_ns = 0) {
    Observation out = seen(episode, begin_ns, end_ns);
    out.source = Source::kStuck;
    out.facts.kind = IncidentKind::kStuckKernel;
    out.facts.tests = {"event"};
    out.facts.ranks = {2};
    out.facts.summary = "kernel wedge does not end";
    return out;
  }
  static Observation slow(std::uint64_t episode, std::int64_t begin_ns, std::int64_t end_ns = 0) {
    Observation out = seen(episode, begin_ns, end_ns);
    out.facts.tests = {"job", "rank"};
    out.facts.ranks = {1};
    out.facts.score = 4;
    out.facts.evidence = {{"step_max", "s", "torch", 0.1, 5, 1}};
    out.facts.summary = "step max 100 ms -> 5 s";
    return out;
  }
  /// It says why, and what showed it.
  static void expect_one_incident_of_a_stuck_kernel(const Notice& notice) {
    EXPECT_EQ(notice.incident.kind, IncidentKind::kStuckKernel);
    EXPECT_EQ(notice.incident.summary, "kernel wedge does not end");
    EXPECT_THAT(notice.incident.ranks, testing::ElementsAre(2));
    EXPECT_THAT(notice.incident.tests, testing::ElementsAre("event", "job", "rank"));
    ASSERT_EQ(notice.incident.evidence.size(), 1U);
    EXPECT_EQ(notice.incident.evidence[0].feature, "step_max");
    EXPECT_EQ(notice.incident.score, 4);
  }

  std::string folder_;
  std::vector<std::string> log_;
  BootTime now_{Nanos{1}};
};

TEST_F(BookTest, AnEpisodeIsOneIncidentFromBeginToEndAndCountedOnce) {
  Book book = open(false);
  const Notice first = book.observe(seen(1, 5));
  EXPECT_EQ(first.event, IncidentEvent::kOpened);
  EXPECT_TRUE(first.is_first);
  EXPECT_EQ(first.incident.id.size(), 16U);
  EXPECT_EQ(first.incident.host, "h");
  EXPECT_EQ(first.incident.job, "job");
  const auto next = [&](std::int64_t end_ns) {
    const Notice notice = book.observe(seen(1, 5, end_ns));
    EXPECT_EQ(notice.incident.id, first.incident.id);
    EXPECT_FALSE(notice.is_first);
    return notice.event;
  };
  EXPECT_EQ(next(0), IncidentEvent::kChanged);
  EXPECT_EQ(book.open_ones("job").size(), 1U);
  EXPECT_TRUE(book.open_ones("other").empty());
  EXPECT_EQ(next(9), IncidentEvent::kClosed);
  EXPECT_TRUE(book.open_ones().empty());
  EXPECT_EQ(next(0), IncidentEvent::kReopened);
  EXPECT_EQ(next(0), IncidentEvent::kChanged);
  EXPECT_EQ(next(12), IncidentEvent::kClosed);
  EXPECT_EQ(book.opened("job", IncidentKind::kLatencySpike), 1U);
  const Notice second = book.observe(seen(2, 20));
  EXPECT_EQ(second.event, IncidentEvent::kOpened);
  EXPECT_NE(second.incident.id, first.incident.id);
  EXPECT_EQ(book.opened("job", IncidentKind::kLatencySpike), 2U);
  EXPECT_EQ(book.opened("job", IncidentKind::kUnknown), 0U);
  EXPECT_EQ(book.opened("other", IncidentKind::kLatencySpike), 0U);
}

TEST_F(BookTest, TheSameNumberOfAnotherSourceOrJobIsAnotherIncident) {
  Book book = open(false);
  std::set<std::string> ids{book.observe(seen(1, 5)).incident.id,
                            book.observe(growth(1, 5)).incident.id};
  Observation other = seen(1, 5);
  other.job = "other";
  ids.insert(book.observe(other).incident.id);
  other.source = Source::kHardware;
  ids.insert(book.observe(other).incident.id);
  EXPECT_EQ(ids.size(), 4U);
}

TEST_F(BookTest, WhatIsToldForTheFirstTimeWhenItIsOverIsCountedToo) {
  Book book = open(false);
  const Notice notice = book.observe(seen(1, 1, 9));
  EXPECT_EQ(notice.event, IncidentEvent::kClosed);
  EXPECT_TRUE(notice.is_first);
  EXPECT_EQ(book.opened("job", IncidentKind::kLatencySpike), 1U);
  EXPECT_FALSE(book.observe(seen(1, 1, 9)).is_first);
}

TEST_F(BookTest, WhatCostsNothingIsNotedAndOpensWhenItDoes) {
  Book book = open(false);
  EXPECT_EQ(book.observe(harmless(seen(1, 1))).event, IncidentEvent::kNoted);
  EXPECT_TRUE(book.open_ones().empty());
  EXPECT_EQ(book.opened("job", IncidentKind::kLatencySpike), 0U);
  EXPECT_EQ(book.observe(harmless(seen(1, 1, 4))).event, IncidentEvent::kNoted);
  EXPECT_EQ(book.observe(harmless(seen(1, 1))).event, IncidentEvent::kNoted) << "it is back";
  const Notice notice = book.observe(seen(1, 1));
  EXPECT_EQ(notice.event, IncidentEvent::kOpened);
  EXPECT_TRUE(notice.is_first);
  EXPECT_EQ(book.opened("job", IncidentKind::kLatencySpike), 1U);
  EXPECT_TRUE(book.observe(harmless(seen(1, 1))).incident.has_effect) << "it did cost something";
  EXPECT_EQ(book.observe(harmless(seen(1, 1, 9))).event, IncidentEvent::kClosed);
  const Notice late = book.observe(seen(2, 1, 9));
  EXPECT_TRUE(late.is_first && late.event == IncidentEvent::kClosed);
}

TEST_F(BookTest, CountsOfJobsThatAreOverAreForgotten) {
  Book book = open(false);
  static_cast<void>(book.observe(seen(1, 1, 9)));
  const auto after = [&](const std::set<std::string>& jobs, std::int64_t second) {
    book.count_only(jobs, boot_time(second * kSecond));
    return book.opened("job", IncidentKind::kLatencySpike);
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

TEST_F(BookTest, RemembersNoMoreThanTheLatestThatAreOver) {
  Book book = open(false);
  for (std::uint64_t i = 1; i <= Book::kOverMax + 1; ++i)
    static_cast<void>(book.observe(seen(i, static_cast<std::int64_t>(i), 1000)));
  EXPECT_EQ(book.observe(seen(2, 2)).event, IncidentEvent::kReopened);
  EXPECT_EQ(book.observe(seen(1, 1)).event, IncidentEvent::kOpened);
  EXPECT_EQ(book.incidents({})->size(), Book::kOverMax + 1);
}

TEST_F(BookTest, AnIncidentThatOutlivesTheAgentGoesOnUnderItsId) {
  std::string id;
  {
    Book before = open();
    id = before.observe(seen(7, kNow)).incident.id;
    static_cast<void>(before.tick(now_));
  }
  seen_last_at(kNow);
  Book after = open();
  const Notice notice = after.observe(seen(1, kNow + 5 * kSecond));
  EXPECT_EQ(notice.incident.id, id);
  EXPECT_EQ(notice.event, IncidentEvent::kChanged);
  EXPECT_EQ(notice.incident.begin_ns, kNow);
  EXPECT_EQ(notice.incident.window_count, 2U);
  EXPECT_EQ(after.opened("job", IncidentKind::kLatencySpike), 0U) << "it did not begin here";
  const Notice over = after.observe(seen(1, kNow + 5 * kSecond, kNow + 9 * kSecond));
  EXPECT_EQ(over.incident.id, id);
  const auto kept = after.incidents({});
  ASSERT_TRUE(kept.has_value());
  ASSERT_EQ(kept->size(), 1U);
  EXPECT_EQ(kept->front().end_ns, kNow + 9 * kSecond);
}

TEST_F(BookTest, OfSeveralIncidentsOfAJobEachIsContinuedOrClosed) {
  std::string id;
  {
    Book before = open();
    static_cast<void>(before.observe(growth(1, kNow - 1)));
    id = before.observe(seen(2, kNow - 2)).incident.id;
    static_cast<void>(before.observe(seen(3, kNow - 1, kNow)));
  }
  seen_last_at(kNow);
  Book after = open();
  EXPECT_EQ(after.observe(seen(1, kNow)).incident.id, id) << "the one that is open and no growth";
  EXPECT_TRUE(after.tick(now_).empty());
  const auto notices = after.tick(now_ + Book::kInheritFor);
  ASSERT_EQ(notices.size(), 1U) << "the growth that nobody continued is closed";
  EXPECT_EQ(notices[0].event, IncidentEvent::kClosed);
  EXPECT_THAT(notices[0].incident.tests, testing::ElementsAre("growth"));
  EXPECT_EQ(after.open_ones().size(), 1U);
  EXPECT_TRUE(after.tick(now_ + 2 * Book::kInheritFor).empty());
}

TEST_F(BookTest, WhatIsJustOverGoesOnWhatWasOverForLongOrWillBeDoesNot) {
  const auto continues = [this](std::int64_t end_ns, std::int64_t begin_ns) {
    std::filesystem::remove(folder_ + "/incidents.jsonl");
    std::string id;
    {
      Book before = open();
      id = before.observe(seen(1, end_ns - kSecond, end_ns)).incident.id;
    }
    seen_last_at(kNow);
    Book after = open();
    const Notice notice = after.observe(seen(1, begin_ns));
    EXPECT_EQ(notice.incident.id == id, notice.event == IncidentEvent::kReopened);
    return notice.incident.id == id;
  };
  EXPECT_TRUE(continues(kNow, kNow + 20 * kSecond));
  EXPECT_FALSE(continues(kNow, kNow + 21 * kSecond));
  EXPECT_TRUE(continues(kNow + kSecond, kNow)) << "dated back a bit";
  EXPECT_FALSE(continues(kNow + 900 * kSecond, kNow)) << "its end was told by a wrong clock";
}

TEST_F(BookTest, AfterALongPauseNothingIsContinued) {
  {
    Book before = open();
    static_cast<void>(before.observe(seen(1, kNow - 3600 * kSecond)));
  }
  seen_last_at(kNow - 1800 * kSecond);
  Book after = open();
  const auto notices = after.tick(now_);
  ASSERT_EQ(notices.size(), 1U) << "closed with the first window";
  EXPECT_EQ(notices[0].incident.end_ns, kNow - 1800 * kSecond) << "when the agent was last seen";
  EXPECT_EQ(after.observe(seen(1, kNow)).event, IncidentEvent::kOpened);
}

TEST_F(BookTest, AnErrorOfHardwareContinuesNothing) {
  {
    Book before = open();
    static_cast<void>(before.observe(seen(1, kNow)));
  }
  seen_last_at(kNow);
  Book after = open();
  Observation error = seen(1, kNow, kNow + 1);
  error.source = Source::kHardware;
  EXPECT_TRUE(after.observe(error).is_first);
}

TEST_F(BookTest, WhatWasOnlyNotedBeforeIsNotToldAsClosed) {
  {
    Book before = open();
    static_cast<void>(before.observe(harmless(seen(1, kNow))));
  }
  seen_last_at(kNow);
  Book after = open();
  const auto notices = after.tick(now_ + Book::kInheritFor);
  ASSERT_EQ(notices.size(), 1U);
  EXPECT_EQ(notices[0].event, IncidentEvent::kNoted);
}

TEST_F(BookTest, ALabelStaysWithTheIncidentAndIsOfWhoeverReportsIt) {
  Book book = open();
  const std::string id = book.observe(seen(3, kNow)).incident.id;
  auto done = book.label(id, IncidentLabel::kFalse);
  ASSERT_TRUE(done.has_value()) << done.error().what;
  ASSERT_TRUE(done->notice && done->reporters.size() == 1);
  EXPECT_EQ(done->notice->event, IncidentEvent::kLabelled);
  EXPECT_EQ(done->reporters[0].job, "job");
  EXPECT_EQ(done->reporters[0].episode, 3U);
  EXPECT_EQ(book.observe(seen(3, kNow)).incident.label, IncidentLabel::kFalse);
  EXPECT_EQ(book.incidents({})->front().label, IncidentLabel::kFalse);
  EXPECT_EQ(book.label("none", IncidentLabel::kFalse).error().code, Code::kNotFound);
  Book without_log = open(false);
  EXPECT_EQ(without_log.label(id, IncidentLabel::kFalse).error().code, Code::kNotFound);
}

TEST_F(BookTest, ALabelGivenWhileNobodyReportsTheIncidentIsToldWhenItGoesOn) {
  std::string id;
  {
    Book before = open();
    id = before.observe(seen(1, kNow)).incident.id;
  }
  seen_last_at(kNow);
  Book after = open();
  const auto done = after.label(id, IncidentLabel::kFalse);
  ASSERT_TRUE(done.has_value());
  EXPECT_TRUE(done->reporters.empty());
  const Notice notice = after.observe(seen(1, kNow + kSecond));
  EXPECT_EQ(notice.incident.label, IncidentLabel::kFalse);
  EXPECT_EQ(notice.label, IncidentLabel::kFalse) << "who reports it now has to hear";
  EXPECT_FALSE(after.observe(seen(1, kNow + kSecond)).label.has_value()) << "once";
}

TEST_F(BookTest, WhereNoAgentRunsALabelIsKeptAllTheSame) {
  EXPECT_EQ(label_kept(folder_, "x", IncidentLabel::kTrue).error().code, Code::kNotFound);
  std::string id;
  {
    Book book = open();
    id = book.observe(seen(1, kNow)).incident.id;
  }
  ASSERT_TRUE(label_kept(folder_, id, IncidentLabel::kTrue).has_value());
  EXPECT_EQ(open_kept(folder_)->incidents()->incidents.at(0).label, IncidentLabel::kTrue);
}

TEST_F(BookTest, AStuckKernelTakesOverWhatTheDetectorSawOfItBefore) {
  Book book = open();
  const Notice first = book.observe(slow(1, kNow + kSecond));
  EXPECT_EQ(first.incident.kind, IncidentKind::kLatencySpike);
  const Notice second = book.observe(stuck(1, kNow));
  EXPECT_EQ(second.incident.id, first.incident.id);
  EXPECT_EQ(second.event, IncidentEvent::kChanged) << "nobody is paged twice";
  EXPECT_FALSE(second.is_first);
  EXPECT_EQ(second.incident.begin_ns, kNow);
  expect_one_incident_of_a_stuck_kernel(second);
  expect_one_incident_of_a_stuck_kernel(book.observe(slow(1, kNow + kSecond)));
  EXPECT_EQ(book.open_ones().size(), 1U);
  ASSERT_EQ(book.incidents({})->size(), 1U) << "on disk, too";
  EXPECT_EQ(book.incidents({})->front().kind, IncidentKind::kStuckKernel);
}

TEST_F(BookTest, WhatTheDetectorSeesOfAStuckKernelAfterwardsIsNoOtherIncident) {
  Book book = open();
  const Notice first = book.observe(stuck(1, kNow));
  EXPECT_EQ(first.event, IncidentEvent::kOpened);
  const Notice second = book.observe(slow(1, kNow + 6 * kSecond));
  EXPECT_EQ(second.incident.id, first.incident.id);
  EXPECT_EQ(second.event, IncidentEvent::kChanged);
  expect_one_incident_of_a_stuck_kernel(second);
  EXPECT_EQ(book.incidents({})->size(), 1U);
  EXPECT_EQ(book.opened("job", IncidentKind::kStuckKernel), 1U);
  EXPECT_EQ(book.opened("job", IncidentKind::kLatencySpike), 0U);
}

TEST_F(BookTest, ACauseAndItsEffectEndTogether) {
  for (const bool is_cause_last : {true, false}) {
    Book book = open(false);
    static_cast<void>(book.observe(slow(1, kNow)));
    static_cast<void>(book.observe(stuck(1, kNow)));
    const Observation cause = stuck(1, kNow, kNow + (is_cause_last ? 9 : 8) * kSecond);
    const Observation effect = slow(1, kNow, kNow + (is_cause_last ? 8 : 9) * kSecond);
    const Notice goes_on = book.observe(is_cause_last ? effect : cause);
    EXPECT_EQ(goes_on.event, IncidentEvent::kChanged);
    EXPECT_EQ(goes_on.incident.end_ns, 0);
    const Notice over = book.observe(is_cause_last ? cause : effect);
    EXPECT_EQ(over.event, IncidentEvent::kClosed);
    EXPECT_EQ(over.incident.end_ns, kNow + 9 * kSecond);
    expect_one_incident_of_a_stuck_kernel(over);
    EXPECT_TRUE(book.open_ones().empty());
  }
}

TEST_F(BookTest, AnEffectThatWasOverOrOnlyNotedBecomesTheIncidentOfItsCause) {
  Book book = open(false);
  const Notice over = book.observe(slow(1, kNow, kNow + 2 * kSecond));
  const Notice back = book.observe(stuck(1, kNow));
  EXPECT_EQ(back.incident.id, over.incident.id);
  EXPECT_EQ(back.event, IncidentEvent::kReopened);
  Book other = open(false);
  static_cast<void>(other.observe(harmless(slow(1, kNow))));
  const Notice opened = other.observe(stuck(1, kNow));
  EXPECT_EQ(opened.event, IncidentEvent::kOpened);
  EXPECT_TRUE(opened.is_first) << "now somebody is paged";
}

TEST_F(BookTest, StuckKernelsExplainNothingOfOtherJobsTimesAndKinds) {
  Book book = open(false);
  const std::string id = book.observe(stuck(1, kNow, kNow + 10 * kSecond)).incident.id;
  const auto is_apart = [&](Observation one) { return book.observe(one).incident.id != id; };
  Observation other_job = slow(1, kNow + kSecond);
  other_job.job = "other";
  EXPECT_TRUE(is_apart(other_job)) << "a slow rank of another job";
  EXPECT_TRUE(is_apart(slow(2, kNow - 4 * kSecond))) << "a rank was slow before";
  EXPECT_TRUE(is_apart(slow(3, kNow - 2 * kSecond, kNow - kSecond))) << "over before";
  EXPECT_TRUE(is_apart(slow(4, kNow + 14 * kSecond))) << "slow since long after";
  Observation error = slow(5, kNow + kSecond);
  error.facts.kind = IncidentKind::kHardwareFault;
  EXPECT_TRUE(is_apart(error));
  EXPECT_TRUE(is_apart([&] {
    Observation one = growth(6, kNow + kSecond);
    one.facts.kind = IncidentKind::kMemoryGrowth;
    return one;
  }()));
  EXPECT_FALSE(is_apart(slow(7, kNow + 13 * kSecond))) << "the step that was held up ends";
  EXPECT_TRUE(is_apart(stuck(2, kNow + kSecond))) << "the source tells its episodes apart";
}

TEST_F(BookTest, TwoJobsThatHangAtOnceAreTwoIncidents) {
  Book book = open(false);
  std::set<std::string> ids;
  for (const char* const job : {"job", "other"}) {
    for (Observation one : {slow(1, kNow), stuck(1, kNow)}) {
      one.job = job;
      ids.insert(book.observe(one).incident.id);
    }
  }
  EXPECT_EQ(ids.size(), 2U);
  EXPECT_EQ(book.open_ones("job").size(), 1U);
  EXPECT_EQ(book.open_ones("other").size(), 1U);
}

TEST_F(BookTest, AFalseIncidentHidesNoStuckKernel) {
  Book book = open(false);
  const std::string id = book.observe(slow(1, kNow)).incident.id;
  ASSERT_TRUE(book.label(id, IncidentLabel::kFalse));
  const Notice notice = book.observe(stuck(1, kNow));
  EXPECT_NE(notice.incident.id, id);
  EXPECT_EQ(notice.event, IncidentEvent::kOpened);
}

TEST_F(BookTest, ALabelReachesAllThatReportAnIncident) {
  Book book = open(false);
  const std::string id = book.observe(stuck(4, kNow)).incident.id;
  static_cast<void>(book.observe(slow(3, kNow)));
  const auto done = book.label(id, IncidentLabel::kFalse);
  ASSERT_TRUE(done);
  ASSERT_EQ(done->reporters.size(), 2U);
  EXPECT_EQ(done->reporters[0].source, Source::kStuck);
  EXPECT_EQ(done->reporters[1].source, Source::kDetector);
  EXPECT_EQ(done->reporters[1].episode, 3U);
}

TEST_F(BookTest, ACauseAndItsEffectOutliveTheAgentAsOneIncident) {
  for (const bool is_cause_first : {true, false}) {
    std::filesystem::remove(folder_ + "/incidents.jsonl");
    std::string id;
    {
      Book before = open();
      static_cast<void>(before.observe(slow(1, kNow)));
      id = before.observe(stuck(1, kNow)).incident.id;
    }
    seen_last_at(kNow);
    Book after = open();
    const Observation cause = stuck(1, kNow), effect = slow(1, kNow + 5 * kSecond);
    EXPECT_EQ(after.observe(is_cause_first ? cause : effect).incident.id, id);
    const Notice both = after.observe(is_cause_first ? effect : cause);
    EXPECT_EQ(both.incident.id, id);
    expect_one_incident_of_a_stuck_kernel(both);
    EXPECT_TRUE(after.tick(now_ + Book::kInheritFor).empty());
    EXPECT_EQ(after.open_ones().size(), 1U);
  }
}

TEST_F(BookTest, ManyEpisodesOfOneHangStayOneIncidentAndBounded) {
  Book book = open(false);
  const std::string id = book.observe(stuck(1, kNow)).incident.id;
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    const auto at = kNow + static_cast<std::int64_t>(i) * 30 * kSecond;
    EXPECT_EQ(book.observe(slow(i, at)).incident.id, id);
    EXPECT_EQ(book.observe(slow(i, at, at + kSecond)).incident.id, id);
  }
  const auto done = book.label(id, IncidentLabel::kTrue);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->reporters.size(), 2U);
}

TEST_F(BookTest, ASourceThatChangesItsMindDoesNotChangeTheKindOfTheCause) {
  Book book = open(false);
  static_cast<void>(book.observe(slow(1, kNow)));
  static_cast<void>(book.observe(stuck(1, kNow)));
  Observation one = slow(1, kNow);
  one.facts.kind = IncidentKind::kHardwareFault;
  EXPECT_EQ(book.observe(one).incident.kind, IncidentKind::kStuckKernel);
}

TEST_F(BookTest, TheTableDecidesWhichKindsExplainOthers) {
  static constexpr std::array kLeads{IncidentKind::kMemoryGrowth};
  static constexpr std::array kThen{IncidentKind::kLatencySpike, IncidentKind::kStuckKernel};
  static constexpr std::array kTable{Cause{IncidentKind::kHardwareFault, kLeads, "test"},
                                     Cause{IncidentKind::kMemoryGrowth, kThen, "test"}};
  BookOptions options;
  options.causes = kTable;
  Book book = std::move(Book::open(std::move(options), now_, kNow)).value();
  const std::string id = book.observe(slow(1, kNow)).incident.id;
  EXPECT_NE(book.observe(stuck(1, kNow)).incident.id, id) << "it explains nothing in this table";
  Observation grows = growth(1, kNow);
  grows.facts.kind = IncidentKind::kMemoryGrowth;
  const Notice first = book.observe(grows);
  Observation error = seen(1, kNow, kNow + kSecond);
  error.source = Source::kHardware;
  error.facts.kind = IncidentKind::kHardwareFault;
  const Notice second = book.observe(error);
  EXPECT_EQ(second.incident.id, first.incident.id) << "the cause of a cause";
  EXPECT_EQ(second.incident.kind, IncidentKind::kHardwareFault);
  EXPECT_EQ(second.incident.end_ns, 0) << "its effects go on";
  for (const Cause& cause : known_causes())
    EXPECT_FALSE(cause.set_on.empty() || cause.explains.empty());
}

// As on a disk that is full: the log may not grow.
TEST_F(BookTest, AStateThatTheDiskRefusesIsWrittenLater) {
  Book book = open();
  static_cast<void>(book.observe(seen(1, kNow)));
  static_cast<void>(book.tick(now_));
  const std::string path = folder_ + "/incidents.jsonl";
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{std::filesystem::file_size(path), limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  EXPECT_EQ(book.observe(seen(1, kNow, kNow + kSecond)).event, IncidentEvent::kClosed);
  static_cast<void>(book.tick(now_));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(book.failed_writes(), 1U);
  EXPECT_FALSE(log_.empty());
  EXPECT_EQ(book.incidents({})->front().end_ns, 0);
  static_cast<void>(book.tick(now_));
  EXPECT_EQ(book.incidents({})->front().end_ns, kNow + kSecond);
  const auto size = std::filesystem::file_size(path);
  static_cast<void>(book.tick(now_));
  EXPECT_EQ(std::filesystem::file_size(path), size) << "once";
}

}  // namespace
}  // namespace kansoku::incident
