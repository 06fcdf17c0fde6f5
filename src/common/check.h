// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace kansoku::internal {

/// Prints the broken invariant to standard error and aborts. Never returns.
[[noreturn]] void check_failed(std::string_view expression, std::string_view file, int line);

}  // namespace kansoku::internal

/// States an invariant of our own code; stays on in release builds. No input from outside may reach
/// a failing CHECK.
#define CHECK(condition)                                                 \
  do {                                                                   \
    if (!(condition)) [[unlikely]] {                                     \
      ::kansoku::internal::check_failed(#condition, __FILE__, __LINE__); \
    }                                                                    \
  } while (false)

/// CHECK for places where its cost shows: compiled out when NDEBUG is defined.
#ifdef NDEBUG
#define DCHECK(condition) static_cast<void>(sizeof(condition))
#else
#define DCHECK(condition) CHECK(condition)
#endif
