// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "common/check.h"

namespace kansoku {

/// Kind of failure of an Error; the command line maps each to an exit status (docs/exit-codes.md).
enum class Code {
  kNotFound,
  kUnavailable,
  kPermission,
  kCorrupt,
  kLimit,
  kTimeout,
  kUnsupported,
  kInternal,
};

/// Name of a code as printed in JSON and logs, e.g. "not_found". Never null; any thread.
[[nodiscard]] const char* code_name(Code code);
/// The code of that name; kUnsupported for a name that nobody knows.
[[nodiscard]] Code code_from_name(std::string_view untrusted);

/// A failure caused by the world outside. `what` names operation, object and cause in lower case
/// without final period; `hint` (may be empty) names the next step for the user.
struct Error {
  Code code{Code::kInternal};
  std::string what;
  std::string hint{};
};

/// Builds the Error of a failed system call from `err` (an errno value): "<operation> <object>:
/// <strerror>".
[[nodiscard]] Error errno_error(int err, std::string_view operation, std::string_view object);

/// A value of type T or an Error. Keeps the names of std::expected so that it can be swapped for it
/// later. Reading the value of a failure is a programming error and aborts.
template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  [[nodiscard]] bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  [[nodiscard]] T& value() & {
    CHECK(has_value());
    return *std::get_if<0>(&state_);
  }
  [[nodiscard]] const T& value() const& {
    CHECK(has_value());
    return *std::get_if<0>(&state_);
  }
  [[nodiscard]] T&& value() && {
    CHECK(has_value());
    return std::move(*std::get_if<0>(&state_));
  }
  [[nodiscard]] const Error& error() const& {
    CHECK(!has_value());
    return *std::get_if<1>(&state_);
  }
  [[nodiscard]] Error&& error() && {
    CHECK(!has_value());
    return std::move(*std::get_if<1>(&state_));
  }

  template <class U>
  [[nodiscard]] T value_or(U&& fallback) const& {
    return has_value() ? value() : static_cast<T>(std::forward<U>(fallback));
  }
  template <class U>
  [[nodiscard]] T value_or(U&& fallback) && {
    return has_value() ? std::move(*this).value() : static_cast<T>(std::forward<U>(fallback));
  }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Error> state_;
};

/// Success without a value, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;

  Result() = default;
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Error error) : error_(std::move(error)), failed_(true) {}

  [[nodiscard]] bool has_value() const { return !failed_; }
  explicit operator bool() const { return has_value(); }
  void value() const { CHECK(has_value()); }
  [[nodiscard]] const Error& error() const& {
    CHECK(failed_);
    return error_;
  }
  [[nodiscard]] Error&& error() && {
    CHECK(failed_);
    return std::move(error_);
  }

 private:
  Error error_{};
  bool failed_{false};
};

}  // namespace kansoku

#define KANSOKU_CONCAT_INNER(a, b) a##b
#define KANSOKU_CONCAT(a, b) KANSOKU_CONCAT_INNER(a, b)
#define KANSOKU_TRY_INNER(tmp, declaration, ...) \
  auto tmp = (__VA_ARGS__);                      \
  if (!tmp) return std::move(tmp).error();       \
  declaration = std::move(tmp).value() /* NOLINT(bugprone-macro-parentheses) */

/// `TRY(const auto size, reader.read());` declares `size` or returns the Error from the enclosing
/// function. Several statements: use it inside braces, one a line.
#define TRY(declaration, ...) \
  KANSOKU_TRY_INNER(KANSOKU_CONCAT(try_result_, __LINE__), declaration, __VA_ARGS__)

/// `TRY_VOID(sink.flush());` returns the Error of a Result<void> from the enclosing function.
#define TRY_VOID(...)                                             \
  do {                                                            \
    if (auto try_void_result = (__VA_ARGS__); !try_void_result) { \
      return std::move(try_void_result).error();                  \
    }                                                             \
  } while (false)
