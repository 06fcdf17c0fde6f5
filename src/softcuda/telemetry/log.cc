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
  static const char* const where = std::getenv("KANSOKU_SOFTGPU_LOG");
  if (where != nullptr && std::strcmp(where, "off") == 0) return;
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  std::FILE* const file = where == nullptr ? stderr : std::fopen(where, "ae");
  if (file == nullptr) return;
  const std::string line = fmt::format("kansoku softgpu[{}]: {}\n", getpid(), text);
  std::fwrite(line.data(), 1, line.size(), file);
  if (where != nullptr) std::fclose(file);
}

}  // namespace kansoku::softcuda
