// SPDX-License-Identifier: Apache-2.0
// Any bytes as an Nsight Systems export: importing them fails with a code that is expected of files
// of others, or gives whole tables, the same ones every time.
#include "trace/import/nsight.h"

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/check.h"
#include "trace/traces_for_test.h"

namespace {

using namespace kansoku;
using namespace kansoku::trace;

// Small enough that no input takes much memory or time.
import::NsightOptions limits(){return {.rows_max = 20'000,
                                       .strings_bytes_max = 1U << 20,
                                       .tracks_max = 1000,
                                       .text_bytes_max = 4096,
                                       .row_bytes_max = 1U << 16};
}  // namespace

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 131072) return 0;
  const ByteSpan bytes = std::as_bytes(std::span(data, size));
  Trace trace;
  const auto imported = import::import_nsight(bytes, "rank-3.sqlite", limits(), trace);
  if (!imported) {
    const Error& error = imported.error();
    CHECK(error.code == Code::kCorrupt || error.code == Code::kLimit ||
          error.code == Code::kUnsupported || error.code == Code::kNotFound);
    CHECK(error.what.starts_with("read "));
    return 0;
  }
  CHECK(problem_of(trace).empty());
  CHECK(imported->rank == 3);
  CHECK(imported->event_count >= trace.slices.size() + trace.instants.size());
  Trace again;
  CHECK(import::import_nsight(bytes, "rank-3.sqlite", limits(), again).has_value());
  CHECK(dump(again) == dump(trace));
  return 0;
}
