// SPDX-License-Identifier: Apache-2.0
// The contract of a bus: the same cases on both.
#include "fleet/bus.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "fleet/in_process_bus.h"
#include "fleet/nats_bus.h"
#include "fleet/nats_server_for_test.h"
#include "sys/clock.h"
#include "sys/wait_for_test.h"

namespace kansoku::fleet {
namespace {

constexpr Nanos kWhile = sys::kPatienceForTest;  // longer than anything takes
constexpr Nanos kTurn = std::chrono::milliseconds{50};

class BusTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!uses_nats()) return;
    server_ = NatsServerForTest::start();
    if (!server_) GTEST_SKIP() << "nats-server not found (apt-get install nats-server)";
  }
  [[nodiscard]] static bool uses_nats() { return std::string(GetParam()) == "nats"; }
  std::unique_ptr<Bus> connect(const BusLimits& limits = {}) {
    if (!uses_nats()) return hub_.connect(clock_, limits);
    NatsOptions options;
    options.url = server_->url();
    options.connect_timeout = kWhile;
    options.limits = limits;
    return connect_nats(options, clock_).value();
  }
  /// Runs handlers of `buses` until `is_done`; false after kWhile.
  template <class Done>
  bool poll_until(std::vector<Bus*> buses, Done is_done) {
    for (const BootTime until = clock_.now() + kWhile; clock_.now() < until;) {
      if (is_done()) return true;
      for (Bus* bus : buses)
        bus->poll(buses.size() == 1 ? kTurn : Nanos{1'000'000});
    }
    return is_done();
  }

  sys::RealClock clock_;
  InProcessHub hub_;
  std::unique_ptr<NatsServerForTest> server_;
};

TEST_P(BusTest, DeliversInOrderToAllWhoseSubjectFits) {
  const auto listener = connect(), talker = connect();
  std::vector<std::string> all, one;
  const auto note = [](std::vector<std::string>& list) {
    return [&list](const BusMessage& message) {
      list.push_back(message.subject + "=" + message.bytes);
    };
  };
  ASSERT_TRUE(listener->subscribe("a.>", note(all)).has_value());
  ASSERT_TRUE(listener->subscribe("a.*.x", note(one)).has_value());
  ASSERT_TRUE(listener->flush(kWhile).has_value());
  const std::string zeros("\0\n\xff", 3);
  for (const char* subject : {"a.b", "b.c", "a.b.x", "a.b.y", "a.b.c.x", "a"})
    ASSERT_TRUE(talker->publish(subject, zeros).has_value());
  for (int i = 0; i < 1000; ++i)
    ASSERT_TRUE(talker->publish("a.n", std::to_string(i)).has_value());
  ASSERT_TRUE(poll_until({listener.get()}, [&] { return all.size() >= 1004 && !one.empty(); }));
  EXPECT_EQ(one, (std::vector<std::string>{"a.b.x=" + zeros}));
  EXPECT_EQ(all[0], "a.b=" + zeros);
  EXPECT_EQ(all[3], "a.b.c.x=" + zeros);
  for (int i = 0; i < 1000; ++i)
    ASSERT_EQ(all[static_cast<std::size_t>(i) + 4], "a.n=" + std::to_string(i));
  EXPECT_EQ(listener->status().dropped_incoming, 0U);
}

TEST_P(BusTest, AnswersRequests) {
  const auto server = connect(), client = connect();
  ASSERT_TRUE(server
                  ->subscribe("add.one",
                              [&](const BusMessage& message) {
                                EXPECT_TRUE(
                                    server->respond(message, message.bytes + "1").has_value());
                                EXPECT_TRUE(server->respond(message, "twice").has_value());
                              })
                  .has_value());
  ASSERT_TRUE(server->flush(kWhile).has_value());
  std::vector<std::string> answers;
  for (const char* question : {"a", "b"}) {
    ASSERT_TRUE(client
                    ->request("add.one", question, kWhile,
                              [&](Result<std::string> answer) {
                                answers.push_back(answer.value_or("failed"));
                              })
                    .has_value());
  }
  ASSERT_TRUE(poll_until({server.get(), client.get()}, [&] { return answers.size() == 2; }));
  EXPECT_EQ(answers, (std::vector<std::string>{"a1", "b1"}));
}

TEST_P(BusTest, SaysThatNobodyListens) {
  const auto client = connect();
  std::vector<Code> codes;
  ASSERT_TRUE(
      client
          ->request("no.one", "?", kWhile,
                    [&](Result<std::string> answer) { codes.push_back(answer.error().code); })
          .has_value());
  ASSERT_TRUE(poll_until({client.get()}, [&] { return !codes.empty(); }));
  EXPECT_EQ(codes, (std::vector<Code>{Code::kUnavailable}));
}

TEST_P(BusTest, RequestsRunOutOfTime) {
  const auto deaf = connect(), client = connect();
  ASSERT_TRUE(deaf->subscribe("deaf", [](const BusMessage&) {}).has_value());
  ASSERT_TRUE(deaf->flush(kWhile).has_value());
  std::vector<Code> codes;
  const Nanos deadline = std::chrono::milliseconds{30};
  const auto keep = [&](Result<std::string> answer) { codes.push_back(answer.error().code); };
  ASSERT_TRUE(client->request("deaf", "?", deadline, keep).has_value());
  ASSERT_TRUE(poll_until({client.get()}, [&] { return !codes.empty(); }));
  EXPECT_EQ(codes, (std::vector<Code>{Code::kTimeout}));
}

TEST_P(BusTest, ForgetsSubscriptionsAlsoFromWithinAHandler) {
  const auto bus = connect();
  int once = 0, always = 0;
  Bus::SubscriptionId id = 0;
  id = bus->subscribe("t",
                      [&](const BusMessage&) {
                        ++once;
                        bus->unsubscribe(id);
                      })
           .value();
  ASSERT_TRUE(bus->subscribe("t", [&](const BusMessage&) { ++always; }).has_value());
  ASSERT_TRUE(bus->flush(kWhile).has_value());
  for (int i = 0; i < 5; ++i)
    ASSERT_TRUE(bus->publish("t", "").has_value());
  ASSERT_TRUE(poll_until({bus.get()}, [&] { return always == 5 && once > 0; }));
  EXPECT_EQ(once, 1);
}

TEST_P(BusTest, BoundsItsInboxAndCounts) {
  BusLimits limits;
  limits.incoming_messages = 10;
  const auto listener = connect(limits), talker = connect();
  int count = 0;
  ASSERT_TRUE(listener->subscribe("t", [&](const BusMessage&) { ++count; }).has_value());
  ASSERT_TRUE(listener->flush(kWhile).has_value());
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(talker->publish("t", "x").has_value());
  ASSERT_TRUE(talker->flush(kWhile).has_value());
  const auto status = [&] { return listener->status(); };
  ASSERT_TRUE(poll_until({talker.get()},
                         [&] { return status().received + status().dropped_incoming == 100; }));
  EXPECT_EQ(status().dropped_incoming, 90U);
  listener->poll(Nanos{});
  EXPECT_EQ(count, 10);
}

TEST_P(BusTest, RefusesWhatIsNoSubjectAndTooMuch) {
  const auto bus = connect();
  for (const char* subject : {"", ".", "a.", ".a", "a..b", "a b", "a.*", ">", "a\r\nPUB b 1"})
    EXPECT_EQ(bus->publish(subject, "").error().code, Code::kUnsupported) << subject;
  for (const char* pattern : {"", "a.", ">.a", "a.b*", "a b"})
    EXPECT_FALSE(bus->subscribe(pattern, [](const BusMessage&) {}).has_value()) << pattern;
  EXPECT_TRUE(bus->publish("a", std::string(Bus::kPayloadBytesMax, 'x')).has_value());
  EXPECT_EQ(bus->publish("a", std::string(Bus::kPayloadBytesMax + 1, 'x')).error().code,
            Code::kLimit);
  EXPECT_TRUE(bus->flush(kWhile).has_value());
  EXPECT_EQ(bus->status().dropped_outgoing, 0U);
}

INSTANTIATE_TEST_SUITE_P(Both, BusTest, testing::Values("in_process", "nats"),
                         [](const auto& one) { return std::string(one.param); });

TEST(Subjects, WordsForHostsAndJobs) {
  EXPECT_EQ(subject_word("node-1.rack 2"), "node-1_rack_2");
  EXPECT_EQ(subject_word(""), "_");
  EXPECT_EQ(subject_word(">"), "_");
  EXPECT_TRUE(is_subject("kansoku.summary." + subject_word(std::string(1000, '\n'))));
  EXPECT_TRUE(subject_fits("a.>", "a.b.c"));
  EXPECT_FALSE(subject_fits("a.>", "a"));
  EXPECT_FALSE(subject_fits("a.b", "a.b.c"));
  EXPECT_FALSE(subject_fits("a.b.c", "a.b"));
}

}  // namespace
}  // namespace kansoku::fleet
