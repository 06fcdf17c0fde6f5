// SPDX-License-Identifier: Apache-2.0
// Any JSON as a result of the simulator: refused, or a page of bounded size, the same every time.
#include "export/simulation_html.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/check.h"
#include "export/page_for_test.h"

namespace {

using kansoku::Code;
using kansoku::Json;

void check(const Json& json) {
  const auto page = kansoku::exporter::simulation_html(json);
  if (!page) {
    CHECK(page.error().code == Code::kUnsupported);
    return;
  }
  kansoku::exporter::check_page_for_test(*page);
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
       {"kansoku.simulation/1", "kansoku.simulation_sweep/1", "kansoku.workload_fit/2"})
    check(Json(*json).set("schema", schema));
  return 0;
}
