// SPDX-License-Identifier: Apache-2.0
// The same requests over each transport: in process, NATS, a local socket.
#include "fleet/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <thread>

#include "fleet/in_process_bus.h"
#include "fleet/nats_bus.h"
#include "fleet/nats_server_for_test.h"
#include "sys/clock.h"
#include "sys/unix_socket.h"
#include "sys/wait_for_test.h"

namespace kansoku::fleet {
namespace {

constexpr Nanos kRequestWhile = sys::kPatienceForTest;  // longer than anything takes
constexpr std::string_view kSubject = "kansoku.agent.h";

/// A request as somebody adds it: one type.
struct DoubleRequest {
  static constexpr std::string_view kName = "double";
  std::int64_t number{0};
  [[nodiscard]] Json to_json() const { return Json::object().set("number", number); }
  [[nodiscard]] static Result<DoubleRequest> from_json(const Json& untrusted) {
    if (!untrusted.at("number").is_integer())
      return Error{Code::kUnsupported, "double: number is no integer"};
    return DoubleRequest{untrusted.at("number").as_int()};
  }
  struct Reply {
    std::int64_t number{0};
    [[nodiscard]] Json to_json() const { return Json::object().set("number", number); }
    [[nodiscard]] static Result<Reply> from_json(const Json& untrusted) {
      return Reply{untrusted.at("number").as_int()};
    }
  };
};

class Requests : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    table_.on<DoubleRequest>([](const DoubleRequest& asked) -> Result<DoubleRequest::Reply> {
      if (asked.number < 0) return Error{Code::kLimit, "too small", "ask for more"};
      return DoubleRequest::Reply{2 * asked.number};
    });
    const std::string kind = GetParam();
    if (kind == "socket") return serve_socket();
    if (kind == "nats" && !(server_ = NatsServerForTest::start()))
      GTEST_SKIP() << "nats-server not found (apt-get install nats-server)";
    serve_bus();
  }
  void TearDown() override {
    stops_ = true;
    if (thread_.joinable()) thread_.join();
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  void serve_socket() {
    std::string name = "/tmp/kansoku-request-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    auto socket = sys::UnixServer::listen(folder_ + "/control.sock", {.time_max = kRequestWhile});
    ASSERT_TRUE(socket.has_value()) << socket.error().what;
    thread_ = std::thread([this, server = std::make_shared<sys::UnixServer>(*std::move(socket))] {
      while (!stops_)
        server->serve(clock_.now(), [this](std::string_view line) { return table_.answer(line); });
    });
    transport_ = local_socket(folder_, kRequestWhile);
  }
  std::unique_ptr<Bus> connect() {
    if (!server_) return hub_.connect(clock_);
    NatsOptions options;
    options.url = server_->url();
    options.connect_timeout = kRequestWhile;
    return connect_nats(options, clock_).value();
  }
  void serve_bus() {
    bus_ = connect();
    client_ = connect();
    ASSERT_TRUE(serve(*bus_, kSubject, table_).has_value());
    ASSERT_TRUE(bus_->flush(kRequestWhile).has_value());
    thread_ = std::thread([this] {
      while (!stops_)
        bus_->poll(std::chrono::milliseconds{5});
    });
    transport_ = over_bus(*client_, std::string(kSubject), kRequestWhile);
  }

  sys::RealClock clock_;
  InProcessHub hub_;
  std::unique_ptr<NatsServerForTest> server_;
  std::unique_ptr<Bus> bus_, client_;
  RequestTable table_;
  std::string folder_;
  Transport transport_;
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

TEST_P(Requests, AreAnsweredWithTheirReplyOrTheError) {
  const auto four = ask(transport_, DoubleRequest{2});
  ASSERT_TRUE(four.has_value()) << four.error().what;
  EXPECT_EQ(four->number, 4);
  const auto none = ask(transport_, DoubleRequest{-1});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, Code::kLimit);
  EXPECT_EQ(none.error().what, "too small");
  EXPECT_EQ(none.error().hint, "ask for more");
  const auto unknown = ask(transport_, StatusRequest{});
  ASSERT_FALSE(unknown.has_value());
  EXPECT_THAT(unknown.error().what, testing::HasSubstr("status"));
  EXPECT_EQ(unknown.error().hint, "double");
}

INSTANTIATE_TEST_SUITE_P(Transports, Requests, testing::Values("in_process", "nats", "socket"),
                         [](const auto& one) { return std::string(one.param); });

TEST(Request, WhereNobodyListensItIsSaid) {
  const auto none = ask(local_socket("/nowhere"), StatusRequest{});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, Code::kNotFound);
  EXPECT_THAT(none.error().hint, testing::HasSubstr("kansoku watch"));
  InProcessHub hub;
  const sys::RealClock clock;
  const auto bus = hub.connect(clock);
  EXPECT_EQ(ask(over_bus(*bus, "no.one", kRequestWhile), StatusRequest{}).error().code,
            Code::kUnavailable);
}

TEST(Request, EachIsReadAsItWasWritten) {
  IncidentsRequest asked;
  asked.since_ns = 12;
  asked.job = "j";
  asked.kind = trace::IncidentKind::kMemoryGrowth;
  asked.only_open = true;
  asked.count = 7;
  const auto read = IncidentsRequest::from_json(asked.to_json());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->to_json().dump(), asked.to_json().dump());
  const LabelRequest label{"id", trace::IncidentLabel::kFalse};
  EXPECT_EQ(LabelRequest::from_json(label.to_json())->to_json().dump(), label.to_json().dump());
}

TEST(Request, WhatMakesNoSenseIsRefusedByName) {
  const auto refused = [](const char* text) {
    const Json json = *Json::parse(text);
    const auto label = LabelRequest::from_json(json);
    return label ? "" : label.error().what;
  };
  EXPECT_THAT(refused(R"({"id": "x", "label": "maybe"})"), testing::HasSubstr("maybe"));
  EXPECT_THAT(refused(R"({"id": "x", "label": ""})"), testing::HasSubstr("label"));
  const auto kind = IncidentsRequest::from_json(*Json::parse(R"({"kind": "k"})"));
  ASSERT_FALSE(kind.has_value());
  EXPECT_THAT(kind.error().hint, testing::HasSubstr("memory_growth"));
  EXPECT_EQ(IncidentsRequest::from_json(*Json::parse(R"({"count": 1e9})"))->count, 100U);
  EXPECT_EQ(IncidentsRequest::from_json(*Json::parse(R"({"count": 99999})"))->count,
            IncidentsRequest::kCountMax);
}

TEST(Request, AnyBytesAreAnswered) {
  RequestTable table;
  for (const char* line : {"", "[", "[]", "null", R"({"do": 7})", R"({"do": "x"})", "\xff"}) {
    const auto answer = Json::parse(table.answer(line));
    ASSERT_TRUE(answer.has_value()) << line;
    EXPECT_FALSE(answer->at("ok").as_bool());
  }
  EXPECT_FALSE(reply_members("nothing").has_value());
  EXPECT_EQ(reply_members(R"({"ok": false})").error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace kansoku::fleet
