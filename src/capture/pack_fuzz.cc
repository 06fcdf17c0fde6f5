// SPDX-License-Identifier: Apache-2.0
// Any bytes as a probe pack: refused with the file named, or within the limits that the BPF
// programs rely on. Its globs match in bounded time.
#include "capture/pack.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"

namespace {

using namespace kansoku::capture;
using kansoku::Code;

void check_function(const FunctionProbes& probes, std::string_view text) {
  CHECK(!probes.symbols.empty());
  CHECK(probes.captures.size() <= WIRE_ARGS_MAX);
  CHECK(!probes.at_end || probes.captures.empty());
  std::size_t text_count = 0;
  for (const CaptureDef& capture : probes.captures) {
    CHECK((capture.how.source & ~WIRE_SOURCE_OUT) <= WIRE_STACK_POINTER);
    CHECK(capture.how.step_count <= WIRE_STEPS_MAX);
    CHECK(capture.how.size == 1 || capture.how.size == 2 || capture.how.size == 4 ||
          capture.how.size == 8);
    text_count += capture.how.is_text != WIRE_TEXT_NONE ? 1 : 0;
  }
  CHECK(text_count <= 1);
  for (const CaptureVariant& variant : probes.variants)
    CHECK(variant.captures.size() == probes.captures.size());
  for (const std::string& glob : probes.symbols) {
    std::string_view star;
    const bool matches = glob_match(glob, text, &star);
    CHECK(matches == glob_match(glob, text));
    CHECK(star.size() <= text.size());
  }
  static_cast<void>(any_glob_match(probes.library, text));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 16384) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static_cast<void>(parse_capture("x", text));
  const auto pack = parse_pack(text, "fuzz.toml");
  if (!pack) {
    CHECK(pack.error().code == Code::kCorrupt || pack.error().code == Code::kLimit);
    CHECK(pack.error().what.find("fuzz.toml") != std::string::npos);
    return 0;
  }
  CHECK(pack->python_hz <= 1000 && pack->cpu_hz <= 1000);
  for (const FunctionProbes& probes : pack->functions)
    check_function(probes, text.substr(0, 2048));
  const auto chosen = select_packs({*pack}, pack->name);
  CHECK(chosen.has_value() && chosen->size() == 1);
  return 0;
}
