// SPDX-License-Identifier: Apache-2.0
// Any bytes as a pattern: decoding fails or gives rows that are written again as the same bytes.
// And the bytes as executions: the shares and the idle time sum to 1, and what is written within a
// limit is read back.
#include "diagnose/pattern.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "common/check.h"

namespace {

using namespace kansoku;
using namespace kansoku::diagnose;

constexpr std::size_t kNameBytesMax = 240;

void check_decoding(ByteSpan bytes) {
  const auto named = decode_pattern(bytes);
  if (!named) {
    CHECK(named.error().code == Code::kCorrupt || named.error().code == Code::kUnsupported);
    CHECK(named.error().code == Code::kUnsupported ||
          named.error().what.find("at offset ") != std::string::npos);
    return;
  }
  CHECK(named->names.size() == named->pattern.rows.size());
  const bool is_cut =
      std::any_of(named->names.begin(), named->names.end(),
                  [](const std::string& name) { return name.size() > kNameBytesMax; });
  const std::string again = encode_pattern(named->pattern, named->names, SIZE_MAX);
  CHECK(is_cut || again == as_text(bytes));
}

/// Eight bytes an execution: begin, length, function, use.
std::vector<Execution> executions_of(std::span<const std::uint8_t> data) {
  std::vector<Execution> out;
  for (std::size_t at = 0; at + 8 <= data.size() && out.size() < 2000; at += 8) {
    std::int16_t begin = 0;
    std::uint16_t length = 0;
    std::memcpy(&begin, data.data() + at, 2);
    std::memcpy(&length, data.data() + at + 2, 2);
    const std::uint32_t function = data[at + 4] % 32;
    out.push_back({.begin_ns = begin,
                   .end_ns = std::int64_t{begin} + length % 4096,
                   .function = function,
                   .activity = static_cast<Activity>(function % kActivityCount),
                   .use = static_cast<float>(data[at + 5]) / 255});
  }
  return out;
}

void check_building(std::span<const std::uint8_t> data) {
  const std::vector<Execution> executions = executions_of(data);
  const Pattern pattern = build_pattern(executions, 0, 10'000, kGpuPriorities);
  double whole = pattern.idle;
  std::size_t count = 0;
  for (const PatternRow& row : pattern.rows) {
    CHECK(row.beta > 0 && row.mu >= 0 && row.mu <= 1 && row.sigma >= 0 && row.sigma <= 0.51);
    whole += row.beta;
    count += row.count;
  }
  CHECK(std::abs(whole - 1) < 1e-9);
  CHECK(count <= executions.size());
  const std::vector<std::string> names(32, "a function");
  const std::size_t limit = kPatternBytesMin + (data.empty() ? 0 : data.back() * 4U);
  const std::string bytes = encode_pattern(pattern, names, limit);
  CHECK(bytes.size() <= limit);
  CHECK(decode_pattern(as_bytes(bytes)).has_value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 32768) return 0;
  check_decoding(std::as_bytes(std::span(data, size)));
  check_building(std::span(data, size));
  return 0;
}
