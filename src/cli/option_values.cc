// SPDX-License-Identifier: Apache-2.0
#include "cli/option_values.h"

#include <fmt/format.h>

#include <bit>

#include "common/parse.h"

namespace kansoku::cli {

Result<Nanos> read_time(std::string_view option, const std::string& text, Nanos least) {
  const auto time = parse_duration(text);
  if (time && *time >= least) return *time;
  return Error{Code::kUnsupported,
               fmt::format("read {} {}: not a time of at least {} ms", option, text,
                           least.count() / 1'000'000),
               "e.g. 20s, 500ms, 2m"};
}

Result<std::uint32_t> read_ring_bytes(const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (bytes && *bytes >= 4096 && *bytes <= (1U << 30) && std::has_single_bit(*bytes))
    return static_cast<std::uint32_t>(*bytes);
  return Error{Code::kUnsupported,
               fmt::format("read --ring-bytes {}: not a power of two from 4K to 1G", text)};
}

}  // namespace kansoku::cli
