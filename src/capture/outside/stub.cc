// SPDX-License-Identifier: Apache-2.0
#include "capture/outside/stub.h"

#include <cctype>

#include "common/parse.h"

namespace kansoku::capture::outside {

std::string kernel_of_stub(std::string_view symbol) {
  constexpr std::string_view kMark = "__device_stub__";
  const auto at = symbol.find(kMark);
  if (at == std::string_view::npos) return std::string(symbol);
  if (at == 0) return std::string(symbol.substr(kMark.size()));
  // A mangled name tells the length of each of its words.
  std::size_t digits = at;
  while (digits > 0 && std::isdigit(static_cast<unsigned char>(symbol[digits - 1])) != 0)
    --digits;
  const auto length = parse_int<std::size_t>(symbol.substr(digits, at - digits));
  if (!length || *length <= kMark.size()) return {};
  return std::string(symbol.substr(0, digits)) + std::to_string(*length - kMark.size()) +
         std::string(symbol.substr(at + kMark.size()));
}

}  // namespace kansoku::capture::outside
