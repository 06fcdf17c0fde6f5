// SPDX-License-Identifier: Apache-2.0
#include "trace/import/imported.h"

#include "common/parse.h"

namespace kansoku::trace::import {

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

}  // namespace kansoku::trace::import
