// SPDX-License-Identifier: Apache-2.0
#include "softcuda/telemetry/log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

namespace kansoku::softcuda {

void log_line(std::string_view text) {
  static const char* const kWhere = std::getenv("KANSOKU_SOFTGPU_LOG");
  if (kWhere != nullptr && std::strcmp(kWhere, "off") == 0) return;
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  std::FILE* const file = kWhere == nullptr ? stderr : std::fopen(kWhere, "ae");
  if (file == nullptr) return;
  const std::string line = fmt::format("kansoku softgpu[{}]: {}\n", getpid(), text);
  std::fwrite(line.data(), 1, line.size(), file);
  if (kWhere != nullptr) std::fclose(file);
}

}  // namespace kansoku::softcuda
