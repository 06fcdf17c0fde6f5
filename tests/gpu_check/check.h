// SPDX-License-Identifier: Apache-2.0
#pragma once

// Interface of a check of checks.inc: it compares values with CUDA's documentation, and the
// comparisons make its verdict. A check that compares nothing fails. Perturbed, every comparison
// expects something else: so a test shows that each check can fail.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "random.h"

namespace gpu_check {

struct Stop {};  // thrown to end a check: what it needs is missing, or it was skipped

class Check {
 public:
  explicit Check(bool perturbed) : perturbed_(perturbed) {}

  void equal(const std::string& what, long long got, long long want);
  void is_true(const std::string& what, bool condition);
  void one_of(const std::string& what, long long got, std::initializer_list<long long> wanted);
  void at_most(const std::string& what, double got, double bound);
  void near(const std::string& what, double got, double want, double tolerance);
  /// `got` and `want` are numbers of errors, `name` gives the names of both.
  void error(const std::string& what, int got, int want, const char* (*name)(int));
  /// One of these: editions of the runtime differ.
  void error(const std::string& what, int got, std::initializer_list<int> wanted,
             const char* (*name)(int));
  /// Bit by bit, elements of at most 8 bytes; `input` tells of what element i was made.
  template <class T>
  void all_equal(const std::string& what, const std::vector<T>& got, const std::vector<T>& want) {
    static_assert(sizeof(T) <= 8, "elements are compared as numbers of 64 bits");
    std::vector<std::uint64_t> a(got.size()), b(want.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      std::memcpy(&a[i], &got[i], sizeof(T));
    for (std::size_t i = 0; i < want.size(); ++i)
      std::memcpy(&b[i], &want[i], sizeof(T));
    bits_equal(what, a, b);
  }

  /// Ends the check where `condition` does not hold; never perturbed.
  void need(const std::string& what, bool condition);
  [[noreturn]] void skip(const std::string& reason);
  /// Is said beside the verdict.
  void note(const std::string& text);

  bool failed() const { return !failures_.empty(); }
  bool skipped() const { return !skipped_.empty(); }
  bool perturbed() const { return perturbed_; }
  /// "passed", "failed" or "skipped".
  const char* verdict() const;
  /// The reason, or the values.
  std::string text() const;

 private:
  void bits_equal(const std::string& what, std::vector<std::uint64_t>& got,
                  std::vector<std::uint64_t>& want);
  void fail(const std::string& text);

  bool perturbed_;
  std::size_t compared_{0}, failure_count_{0};
  std::string failures_, skipped_, notes_;
};

/// "1.25e-07"
std::string number(double value);

// Every check of the list has a function of this name; the linker misses one that nobody wrote, and
// the compiler one that is not listed (GPU_CHECK_BODY).
#define GPU_CHECK(group, name, where, claim) void check_##group##_##name(Check& c);
#define GPU_SELFTEST(name, claim) void check_selftest_##name(Check& c);
#define GPU_SAMPLE(name, claim)
#include "checks.inc"
#undef GPU_CHECK
#undef GPU_SELFTEST
#undef GPU_SAMPLE

#define GPU_CHECK_BODY(group, name)                                  \
  using listed_##group##_##name = decltype(&check_##group##_##name); \
  void check_##group##_##name(Check& c)

}  // namespace gpu_check
