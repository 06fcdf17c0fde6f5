// SPDX-License-Identifier: Apache-2.0
#include "check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace gpu_check {

namespace {

std::string hexadecimal(std::uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

void Check::fail(const std::string& text) {
  // The first three tell enough; the rest is counted.
  if (++failure_count_ > 3) return;
  failures_ += (failures_.empty() ? "" : "; ") + text;
}

void Check::equal(const std::string& what, long long got, long long want) {
  if (perturbed_) want ^= 1;
  ++compared_;
  if (got != want) fail(what + " is " + std::to_string(got) + ", not " + std::to_string(want));
}

void Check::is_true(const std::string& what, bool condition) {
  ++compared_;
  if (condition == perturbed_) fail("not so: " + what);
}

void Check::one_of(const std::string& what, long long got,
                   std::initializer_list<long long> wanted) {
  ++compared_;
  const bool is_found = std::find(wanted.begin(), wanted.end(), got) != wanted.end();
  if (is_found && !perturbed_) return;
  std::string text = what + " is " + std::to_string(got) + ", not one of";
  for (const long long value : wanted)
    text += " " + std::to_string(value);
  fail(text);
}

void Check::at_most(const std::string& what, double got, double bound) {
  if (perturbed_) bound = -1 - std::fabs(got);
  ++compared_;
  if (!(got <= bound)) {
    fail(what + " is " + number(got) + ", above " + number(bound));
    return;
  }
  note(what + " " + number(got) + " of at most " + number(bound));
}

void Check::near(const std::string& what, double got, double want, double tolerance) {
  if (perturbed_) want += 2 * tolerance + std::fabs(want) + 1;
  ++compared_;
  if (!(std::fabs(got - want) <= tolerance))
    fail(what + " is " + number(got) + ", not " + number(want) + " within " + number(tolerance));
}

void Check::error(const std::string& what, int got, int want, const char* (*name)(int)) {
  if (perturbed_) want = want == 0 ? 999 : 0;
  ++compared_;
  if (got == want) return;
  fail(what + " gives " + name(got) + " (" + std::to_string(got) + "), not " + name(want) + " (" +
       std::to_string(want) + ")");
}

void Check::error(const std::string& what, int got, std::initializer_list<int> wanted,
                  const char* (*name)(int)) {
  for (const int want : wanted)
    if (got == want && !perturbed_) {
      ++compared_;
      return;
    }
  error(what, got, *wanted.begin(), name);
}

void Check::bits_equal(const std::string& what, std::vector<std::uint64_t>& got,
                       std::vector<std::uint64_t>& want) {
  if (perturbed_ && !want.empty()) want.back() ^= 1;
  compared_ += want.size();
  if (got.size() != want.size()) {
    fail(what + " has " + std::to_string(got.size()) + " values, not " +
         std::to_string(want.size()));
    return;
  }
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = want.size(); i-- > 0;) {
    if (got[i] == want[i]) continue;
    ++wrong;
    first = i;
  }
  if (wrong == 0) return;
  fail(what + ": " + std::to_string(wrong) + " of " + std::to_string(want.size()) +
       " differ, first value " + std::to_string(first) + " is " + hexadecimal(got[first]) +
       ", not " + hexadecimal(want[first]));
}

void Check::need(const std::string& what, bool condition) {
  if (condition) return;
  fail(what);
  throw Stop{};
}

void Check::skip(const std::string& reason) {
  skipped_ = reason;
  throw Stop{};
}

void Check::note(const std::string& text) {
  if (notes_.size() < 200) notes_ += (notes_.empty() ? "" : "; ") + text;
}

const char* Check::verdict() const {
  if (failed()) return "failed";
  if (skipped()) return "skipped";
  return compared_ == 0 ? "failed" : "passed";
}

std::string Check::text() const {
  if (failed()) {
    const std::size_t more = failure_count_ > 3 ? failure_count_ - 3 : 0;
    return failures_ + (more > 0 ? "; and " + std::to_string(more) + " more" : "");
  }
  if (skipped()) return skipped_;
  if (compared_ == 0) return "nothing was compared";
  return std::to_string(compared_) + (compared_ == 1 ? " value" : " values") +
         (notes_.empty() ? "" : "; " + notes_);
}

}  // namespace gpu_check
