// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"
#include "common/time.h"
#include "detect/table.h"

namespace kansoku::cli {

struct WindowReplayOptions {
  std::string path;  // a table that `kansoku watch --features` wrote; "-" = standard input
  detect::TableOptions table;
  std::string model;  // a stored model to start with; "" = learn
  std::string save;   // file for the model at the end; "" = none
  Nanos learn_time{std::chrono::minutes{5}}, window{std::chrono::seconds{1}};
  double alarms_per_day{1};
  std::uint64_t seed{1};
  bool json{false};
};

/// Runs the always-on detector over recorded windows and prints the incidents as they would have
/// been told. Returns their number.
[[nodiscard]] Result<std::size_t> replay_windows(const WindowReplayOptions& options);

}  // namespace kansoku::cli
