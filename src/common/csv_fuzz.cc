// SPDX-License-Identifier: Apache-2.0
// Any bytes as comma-separated rows: refused with a line, or fields within the limits, the same
// each time, that come back when they are written with quotes.
#include "common/csv.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/check.h"

namespace {

using kansoku::CsvRows;

std::string quoted(const std::vector<std::string_view>& fields) {
  std::string out;
  for (const std::string_view field : fields) {
    out += out.empty() ? "\"" : ",\"";
    for (const char c : field) {
      if (c == '"') out += c;
      out += c;
    }
    out += '"';
  }
  return out + "\n";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 65536) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  CsvRows rows(text, ',', {.fields_max = 100, .field_bytes_max = 1000});
  std::uint64_t line = 0;
  for (;;) {
    const auto more = rows.next();
    if (!more) {
      CHECK(more.error().what.find("line ") == 0);
      return 0;
    }
    if (!*more) return 0;
    CHECK(rows.line() > line && !rows.fields().empty() && rows.fields().size() <= 100);
    line = rows.line();
    const std::vector<std::string> fields(rows.fields().begin(), rows.fields().end());
    const std::string again = quoted(rows.fields());
    CsvRows back(again);
    const auto read = back.next();
    CHECK(read.has_value() && *read && back.fields().size() == fields.size());
    for (std::size_t i = 0; i < fields.size(); ++i)
      CHECK(back.fields()[i] == fields[i]);
  }
}
