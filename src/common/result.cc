// SPDX-License-Identifier: Apache-2.0
#include "common/result.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace kansoku {

namespace {

constexpr std::array kCodeNames{"not_found", "unavailable", "permission",  "corrupt",
                                "limit",     "timeout",     "unsupported", "internal"};

Code code_of_errno(int err) {
  switch (err) {
    case ENOENT:
    case ESRCH:
      return Code::kNotFound;
    case EPERM:
    case EACCES:
      return Code::kPermission;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return Code::kLimit;
    case ETIMEDOUT:
      return Code::kTimeout;
    case ENOSYS:
    case EOPNOTSUPP:
    case EINVAL:
      return Code::kUnsupported;
    default:
      return Code::kUnavailable;
  }
}

}  // namespace

const char* code_name(Code code) {
  return kCodeNames.at(static_cast<std::size_t>(code));
}

Code code_from_name(std::string_view untrusted) {
  const auto found = std::find(kCodeNames.begin(), kCodeNames.end(), untrusted);
  if (found == kCodeNames.end()) return Code::kUnsupported;
  return static_cast<Code>(found - kCodeNames.begin());
}

Error errno_error(int err, std::string_view operation, std::string_view object) {
  std::array<char, 128> buffer{};
  const char* text = strerror_r(err, buffer.data(), buffer.size());
  return Error{code_of_errno(err), fmt::format("{} {}: {}", operation, object, text)};
}

namespace internal {

void check_failed(std::string_view expression, std::string_view file, int line) {
  fmt::print(stderr, "kansoku: invariant broken: {} at {}:{}\n", expression, file, line);
  std::abort();
}

}  // namespace internal
}  // namespace kansoku
