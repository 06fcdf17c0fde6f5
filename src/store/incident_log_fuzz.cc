// SPDX-License-Identifier: Apache-2.0
// Any text as an incident log: every incident found is told again and read the same, each id once.
#include "store/incident_log.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using kansoku::store::IncidentLog;
  if (size > 65536) return 0;
  const auto page = IncidentLog::parse({reinterpret_cast<const char*>(data), size});
  std::string text;
  for (const auto& incident : page.incidents)
    text += incident.to_json().dump() + "\n";
  const auto again = IncidentLog::parse(text);
  CHECK(again.bad_lines == 0 && again.incidents.size() == page.incidents.size());
  for (std::size_t i = 0; i < page.incidents.size(); ++i)
    CHECK(again.incidents[i].to_json().dump() == page.incidents[i].to_json().dump());
  return 0;
}
