// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/watch_client.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

namespace kansoku::cli {

std::string wall_text(std::int64_t wall_ns) {
  const std::time_t seconds = wall_ns / 1'000'000'000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", parts);
}

}  // namespace kansoku::cli
