// SPDX-License-Identifier: Apache-2.0
// Any bytes as a maps file and as a stat line.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/check.h"
#include "sys/procfs.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kansoku::sys;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const Mapping& mapping : parse_maps(text)) {
    CHECK(mapping.begin < mapping.end);
    CHECK(mapping.path.size() <= size);
  }
  const auto stat = parse_stat(text);
  CHECK(!stat || stat->comm.size() < size);
  return 0;
}
