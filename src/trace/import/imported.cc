// SPDX-License-Identifier: Apache-2.0
#include "trace/import/imported.h"

#include <cctype>

#include "common/parse.h"

namespace kansoku::trace::import {

namespace {

constexpr std::string_view kAddress = " at 0x";

}  // namespace

std::string_view plain_name(std::string_view name) {
  for (const std::string_view word : {", seq = ", ", op_id = "}) {
    const std::size_t at = name.find(word);
    const bool is_number = at != std::string_view::npos && at + word.size() < name.size() &&
                           name[at + word.size()] >= '0' && name[at + word.size()] <= '9';
    if (is_number) name = name.substr(0, at);
  }
  // "<built-in method run_backward of torch._C._EngineBase object at 0x7f...>": an object's
  // address.
  const std::size_t at = name.find(kAddress);
  const bool is_address =
      at != std::string_view::npos && at + kAddress.size() < name.size() &&
      std::isxdigit(static_cast<unsigned char>(name[at + kAddress.size()])) != 0;
  return is_address ? name.substr(0, at) : name;
}

std::int32_t rank_of_file_name(std::string_view file_name) {
  const std::size_t slash = file_name.rfind('/');
  if (slash != std::string_view::npos) file_name.remove_prefix(slash + 1);
  for (std::size_t at = file_name.rfind("rank"); at != std::string_view::npos;
       at = at == 0 ? std::string_view::npos : file_name.rfind("rank", at - 1)) {
    std::string_view rest = file_name.substr(at + 4);
    if (!rest.empty() && std::string_view("-_.").find(rest.front()) != std::string_view::npos)
      rest.remove_prefix(1);
    std::size_t digits = 0;
    while (digits < rest.size() && rest[digits] >= '0' && rest[digits] <= '9')
      ++digits;
    if (const auto rank = parse_int<std::int32_t>(rest.substr(0, digits)); rank && digits > 0)
      return *rank;
  }
  return kNoRank;
}

std::optional<WindowName> window_of_file_name(std::string_view file_name) {
  constexpr std::size_t kDigitsMin = 10;
  const std::size_t slash = file_name.rfind('/');
  if (slash != std::string_view::npos) file_name.remove_prefix(slash + 1);
  const std::size_t end = file_name.rfind(".pt.trace.json");
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view front = file_name.substr(0, end);
  const std::size_t dot = front.rfind('.');
  if (dot == std::string_view::npos || dot == 0 || front.size() - dot - 1 < kDigitsMin)
    return std::nullopt;
  const auto time_ms = parse_int<std::int64_t>(front.substr(dot + 1));
  if (!time_ms) return std::nullopt;
  return WindowName{.worker = front.substr(0, dot), .time_ms = *time_ms};
}

}  // namespace kansoku::trace::import
