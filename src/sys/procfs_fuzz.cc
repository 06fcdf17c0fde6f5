// SPDX-License-Identifier: Apache-2.0
// Any bytes as the text of files of /proc and of control groups.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/check.h"
#include "sys/cgroup.h"
#include "sys/pressure.h"
#include "sys/process_counters.h"
#include "sys/procfs.h"
#include "sys/syscalls.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kansoku::sys;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const Mapping& mapping : parse_maps(text)) {
    CHECK(mapping.begin < mapping.end);
    CHECK(mapping.path.size() <= size);
  }
  CHECK(parse_file_system(text, 8, 1).size() <= size);
  const auto stat = parse_stat(text);
  CHECK(!stat || stat->comm.size() < size);
  static_cast<void>(parse_stolen_ticks(text));
  static_cast<void>(parse_pressure(text));
  static_cast<void>(parse_io(text));
  static_cast<void>(parse_cpu_stat(text));
  static_cast<void>(count_cpus(text));
  const auto wait = parse_thread_wait(text);
  CHECK(!wait || wait->number >= 0);
  const auto container = parse_container(text);
  CHECK(!container || container->id.size() == 64);
  CHECK(!container || container->pod_uid.empty() || container->pod_uid.size() == 36);
  return 0;
}
