// SPDX-License-Identifier: Apache-2.0
// Any JSON as a report of device work and its view: refused, or a page, the same every time.
#include "export/cuda_html.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/check.h"
#include "export/page_for_test.h"

namespace {

using kansoku::Code;
using kansoku::Json;

void check(const Json& report, const Json& view) {
  const auto page = kansoku::exporter::cuda_html(report, view);
  if (!page) {
    CHECK(page.error().code == Code::kUnsupported);
    return;
  }
  kansoku::exporter::check_page_for_test(*page);
  const auto again = kansoku::exporter::cuda_html(report, view);
  CHECK(again.has_value() && *again == *page);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 65536) return 0;
  const auto json = Json::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!json) return 0;
  check(*json, *json);
  // One object for both: bytes seldom guess a schema.
  if (!json->is_object()) return 0;
  check(Json(*json).set("schema", "kansoku.cuda_report/1"),
        Json(*json).set("schema", "kansoku.cuda_view/1"));
  return 0;
}
