// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/python_stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "common/time.h"

namespace kansoku::capture {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr BootTime kBegin = boot_time(1'000'000'000);

class PythonStacksTest : public ::testing::Test {
 protected:
  PythonStacksTest() {
    process_.facts.pid = 7;
    stacks_.begin_trace(kBegin);
  }
  void inspect(Code code, Nanos after) {
    says_ = code;
    stacks_.inspect(process_, kBegin + after);
  }
  [[nodiscard]] std::uint64_t unreadable() const {
    Losses losses;
    stacks_.add_losses(losses);
    for (const Losses::Total& one : losses.all())
      if (one.stat == &python::python_unreadable_processes) return one.total;
    return 0;
  }

  MemorySink sink_;
  ManualClock clock_;
  std::unique_ptr<trace::Writer> writer_ = std::move(trace::Writer::create(sink_, kBegin)).value();
  Observed process_;
  Code says_{Code::kNotFound};
  int attempts_{0};
  std::vector<std::string> told_;
  PythonStacks stacks_{*writer_, clock_, 100,
                       [this](std::int32_t /*pid*/) -> Result<std::unique_ptr<python::Process>> {
                         ++attempts_;
                         return Error{says_, "said"};
                       },
                       [this](const std::string& line) { told_.push_back(line); }};
};

TEST_F(PythonStacksTest, AnInterpreterThatStartsIsNotTakenForAnUnknownOne) {
  inspect(Code::kNotFound, std::chrono::milliseconds{20});
  inspect(Code::kUnavailable, std::chrono::milliseconds{40});
  EXPECT_EQ(unreadable(), 1U) << "if the trace ended now";
  inspect(Code::kUnavailable, std::chrono::seconds{9});
  EXPECT_EQ(attempts_, 3);
  EXPECT_THAT(told_, IsEmpty());
  inspect(Code::kNotFound, std::chrono::seconds{9});
  EXPECT_EQ(unreadable(), 0U);
  inspect(Code::kUnavailable, std::chrono::seconds{15});
  EXPECT_THAT(told_, IsEmpty()) << "another doubt, which has just begun";
}

TEST_F(PythonStacksTest, ADoubtThatStaysIsToldAndNotTriedAgainUntilTheNextProgram) {
  inspect(Code::kUnavailable, std::chrono::seconds{1});
  inspect(Code::kUnavailable, std::chrono::seconds{11});
  EXPECT_THAT(told_, ElementsAre("said"));
  EXPECT_EQ(unreadable(), 1U);
  inspect(Code::kUnavailable, std::chrono::seconds{12});
  EXPECT_EQ(attempts_, 2);
  stacks_.renew(7);
  inspect(Code::kUnavailable, std::chrono::seconds{13});
  EXPECT_EQ(attempts_, 3);
  EXPECT_EQ(unreadable(), 2U);
  stacks_.forget(7);
  EXPECT_EQ(unreadable(), 1U);
}

TEST_F(PythonStacksTest, AnUnknownReleaseIsRefusedAtOnce) {
  inspect(Code::kUnsupported, std::chrono::seconds{1});
  inspect(Code::kUnsupported, std::chrono::seconds{2});
  EXPECT_EQ(attempts_, 1);
  EXPECT_THAT(told_, ElementsAre("said"));
  EXPECT_EQ(unreadable(), 1U);
}

}  // namespace
}  // namespace kansoku::capture
