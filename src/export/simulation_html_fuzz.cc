// SPDX-License-Identifier: Apache-2.0
// Any JSON as a result of the simulator: refused, or a page of bounded size, the same every time.
#include "export/simulation_html.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"

namespace {

using kansoku::Code;
using kansoku::Json;

std::size_t count_of(const std::string& text, std::string_view part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

void check(const Json& json) {
  const auto page = kansoku::exporter::simulation_html(json);
  if (!page) {
    CHECK(page.error().code == Code::kUnsupported);
    return;
  }
  CHECK(count_of(*page, "<script") == 1 && count_of(*page, "</html>") == 1);
  CHECK(page->find("=\"nan") == std::string::npos && page->find("=\"inf") == std::string::npos);
  CHECK(page->find('\0') == std::string::npos);
  CHECK(count_of(*page, "<section") == count_of(*page, "</section>"));
  CHECK(count_of(*page, "<svg") == count_of(*page, "</svg>"));
  const auto again = kansoku::exporter::simulation_html(json);
  CHECK(again.has_value() && *again == *page);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 65536) return 0;
  const auto json = Json::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!json) return 0;
  check(*json);
  // The same fields as each of the kinds: bytes seldom guess a schema.
  if (!json->is_object()) return 0;
  for (const char* schema :
       {"kansoku.simulation/1", "kansoku.simulation_sweep/1", "kansoku.workload_fit/1"})
    check(Json(*json).set("schema", schema));
  return 0;
}
