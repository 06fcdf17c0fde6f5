// SPDX-License-Identifier: Apache-2.0
// Any JSON as a report of models in inference and its view: refused, or a page, the same every
// time.
#include "export/llm_html.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/check.h"
#include "export/page_for_test.h"

namespace {

using kansoku::Code;
using kansoku::Json;

void check(const Json& report, const Json& view) {
  const auto page = kansoku::exporter::llm_html(report, view);
  if (!page) {
    CHECK(page.error().code == Code::kUnsupported);
    return;
  }
  kansoku::exporter::check_page_for_test(*page);
  const auto again = kansoku::exporter::llm_html(report, view);
  CHECK(again.has_value() && *again == *page);
}

Json with_schema(const Json& json, std::string_view schema, int version) {
  Json out = json.is_object() ? json : Json::object();
  return out.set("schema", schema).set("version", version);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 65536) return 0;
  const auto json = Json::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!json) return 0;
  check(*json, *json);
  // Bytes seldom guess a schema.
  check(with_schema(*json, "kansoku.llm.report", 2), with_schema(*json, "kansoku.llm.view", 1));
  check(with_schema(json->at("report"), "kansoku.llm.report", 2),
        with_schema(json->at("view"), "kansoku.llm.view", 1));
  return 0;
}
