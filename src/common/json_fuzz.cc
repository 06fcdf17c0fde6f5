// SPDX-License-Identifier: Apache-2.0
// Any bytes as JSON and as TOML: refused, or a value whose text parses to the same value again.
#include "common/json.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"

namespace {

using kansoku::Code;
using kansoku::Json;

void check(const kansoku::Result<Json>& json) {
  if (!json) {
    CHECK(json.error().code == Code::kCorrupt || json.error().code == Code::kLimit);
    CHECK(json.error().what.find("parse ") == 0);
    return;
  }
  const std::string text = json->dump();
  const auto again = Json::parse(text);
  CHECK(again.has_value() && again->dump() == text);
  CHECK(json->keys().size() == (json->is_object() ? json->size() : 0));
  static_cast<void>(json->at("a").at(std::size_t{0}).as_int());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 65536) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(Json::parse(text));
  check(Json::parse_toml(text, "fuzz.toml"));
  return 0;
}
