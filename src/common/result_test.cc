// SPDX-License-Identifier: Apache-2.0
#include "common/result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>

namespace kansoku {
namespace {

using ::testing::HasSubstr;

Error broken() {
  return {Code::kCorrupt, "read box: broken", "mend it"};
}

TEST(Result, HoldsAValue) {
  Result<std::string> result(std::string("hello"));
  ASSERT_TRUE(result);
  EXPECT_TRUE(result.has_value());
  EXPECT_EQ(*result, "hello");
  EXPECT_EQ(result->size(), 5U);
  EXPECT_EQ(result.value_or("other"), "hello");
  result.value() += "!";
  const auto& constant = result;
  EXPECT_EQ(*constant, "hello!");
  EXPECT_EQ(constant->back(), '!');
  EXPECT_EQ(std::move(result).value(), "hello!");
}

TEST(Result, HoldsAnError) {
  const Result<int> result = broken();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kCorrupt);
  EXPECT_EQ(result.error().what, "read box: broken");
  EXPECT_EQ(result.error().hint, "mend it");
  EXPECT_EQ(result.value_or(7), 7);
}

TEST(Result, HoldsAValueThatOnlyMoves) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(3);
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 3);
  Result<std::unique_ptr<int>> failure = broken();
  EXPECT_EQ(*std::move(failure).value_or(std::make_unique<int>(4)), 4);
}

TEST(Result, HoldsAnErrorAsAValueOfItsOwnType) {
  // The value and the error are told apart by place, not by type.
  struct Wrapped {
    Error inner;
  };
  const Result<Wrapped> result = Wrapped{broken()};
  ASSERT_TRUE(result);
  EXPECT_EQ(result->inner.what, "read box: broken");
}

TEST(Result, OfVoidIsSuccessOrAnError) {
  const Result<void> success;
  EXPECT_TRUE(success);
  success.value();
  Result<void> failure = broken();
  EXPECT_FALSE(failure);
  EXPECT_EQ(failure.error().what, "read box: broken");
  EXPECT_EQ(std::move(failure).error().hint, "mend it");
}

TEST(ResultDeathTest, AbortsWhenTheWrongSideIsRead) {
  const Result<int> value = 1;
  const Result<int> failure = broken();
  const Result<void> success;
  const Result<void> void_failure = broken();
  EXPECT_DEATH(static_cast<void>(value.error()), "invariant broken: !has_value\\(\\)");
  EXPECT_DEATH(static_cast<void>(failure.value()), "invariant broken: has_value\\(\\)");
  EXPECT_DEATH(static_cast<void>(*failure), "invariant broken");
  EXPECT_DEATH(static_cast<void>(success.error()), "invariant broken: failed_");
  EXPECT_DEATH(void_failure.value(), "invariant broken");
}

TEST(CheckDeathTest, NamesExpressionAndPlace) {
  const int count = 3;
  CHECK(count == 3);
  EXPECT_DEATH(CHECK(count < 3), "invariant broken: count < 3 at .*result_test.cc:[0-9]+");
}

TEST(Check, EvaluatesItsConditionOnce) {
  int calls = 0;
  CHECK(++calls == 1);
  EXPECT_EQ(calls, 1);
}

Result<int> half(int number) {
  if (number % 2 != 0) return Error{Code::kUnsupported, "halve: odd"};
  return number / 2;
}

Result<void> must_be_small(int number) {
  if (number > 10) return Error{Code::kLimit, "check: too large"};
  return {};
}

Result<int> quarter(int number, int& steps) {
  TRY_VOID(must_be_small(number));
  ++steps;
  TRY(const int first, half(number));
  ++steps;
  TRY(auto second, half(first));
  ++steps;
  return second;
}

TEST(Try, GivesTheValueOrReturnsTheFirstError) {
  struct Case {
    int number;
    int steps;
    std::string what;
  };
  for (const Case& one : {Case{8, 3, ""}, Case{6, 2, "halve: odd"}, Case{5, 1, "halve: odd"},
                          Case{12, 0, "check: too large"}}) {
    int steps = 0;
    const auto result = quarter(one.number, steps);
    EXPECT_EQ(steps, one.steps);
    EXPECT_EQ(result.has_value(), one.what.empty());
    EXPECT_EQ(result ? "" : result.error().what, one.what);
  }
}

TEST(Try, MovesValuesAndAssignsToWhatIsThere) {
  const auto make = [](bool works) -> Result<std::unique_ptr<int>> {
    if (!works) return Error{Code::kInternal, "make: no"};
    return std::make_unique<int>(5);
  };
  const auto use = [&](bool works) -> Result<int> {
    std::unique_ptr<int> kept;
    TRY(kept, make(works));
    return *kept;
  };
  EXPECT_EQ(use(true).value_or(0), 5);
  EXPECT_EQ(use(false).error().what, "make: no");
}

TEST(Code, HasANameForEachThatGivesItBack) {
  constexpr std::array kNames{"not_found", "unavailable", "permission",  "corrupt",
                              "limit",     "timeout",     "unsupported", "internal"};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    EXPECT_STREQ(code_name(static_cast<Code>(i)), kNames.at(i));
    EXPECT_EQ(code_from_name(kNames.at(i)), static_cast<Code>(i));
  }
  EXPECT_STREQ(code_name(Code::kInternal), kNames.back());
  EXPECT_EQ(code_from_name("no_such"), Code::kUnsupported) << "of another version";
}

TEST(ErrnoError, NamesOperationObjectAndCause) {
  const Error error = errno_error(ENOENT, "open", "/no/such");
  EXPECT_EQ(error.what, "open /no/such: No such file or directory");
  EXPECT_EQ(error.code, Code::kNotFound);
  EXPECT_EQ(error.hint, "");
  EXPECT_THAT(errno_error(123456, "open", "x").what, HasSubstr("123456"));
}

TEST(ErrnoError, SortsTheCauses) {
  const auto code = [](int err) { return errno_error(err, "do", "it").code; };
  for (const int err : {ENOENT, ESRCH})
    EXPECT_EQ(code(err), Code::kNotFound) << err;
  for (const int err : {EPERM, EACCES})
    EXPECT_EQ(code(err), Code::kPermission) << err;
  for (const int err : {ENOSPC, EDQUOT, EFBIG, EMFILE, ENFILE, ENOMEM})
    EXPECT_EQ(code(err), Code::kLimit) << err;
  EXPECT_EQ(code(ETIMEDOUT), Code::kTimeout);
  for (const int err : {ENOSYS, EOPNOTSUPP, EINVAL})
    EXPECT_EQ(code(err), Code::kUnsupported) << err;
  for (const int err : {0, EIO, EBUSY, -1})
    EXPECT_EQ(code(err), Code::kUnavailable) << err;
}

}  // namespace
}  // namespace kansoku
