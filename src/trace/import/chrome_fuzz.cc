// SPDX-License-Identifier: Apache-2.0
// Any bytes as a Chrome trace: importing them fails, naming a place, or gives whole tables, the
// same every time and the same when the text comes compressed; and the scanner finds the same
// events however the text is cut into pieces.
#include "trace/import/chrome.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/check.h"
#include "trace/import/files_for_test.h"
#include "trace/import/internal/event_scanner.h"
#include "trace/import/internal/inflate_stream.h"

namespace {

using namespace kansoku;
using namespace kansoku::trace;
using namespace kansoku::trace::import;

constexpr ChromeOptions kOptions{.events_max = 1000,
                                 .strings_bytes_max = 1U << 20,
                                 .tracks_max = 500,
                                 .args_per_event_max = 8,
                                 .arg_text_bytes_max = 1000,
                                 .event_bytes_max = 8000};

std::string imported(ByteSpan bytes) {
  Trace trace;
  const auto file = import_chrome(bytes, "rank3.json", kOptions, trace);
  if (file) {
    CHECK(import_problem_of(trace).empty());
    return fmt::format("rank {} of {}, {} events\n{}", file->rank, file->world_size,
                       file->event_count, text_of(trace));
  }
  const Error& error = file.error();
  CHECK(error.code == Code::kCorrupt || error.code == Code::kLimit ||
        error.code == Code::kNotFound);
  CHECK(error.code == Code::kNotFound || error.what.find("offset") != std::string::npos);
  return error.what;
}

class Collector final : public EventScanner::Sink {
 public:
  Result<bool> on_event(std::string_view text, std::uint64_t offset) override {
    seen += fmt::format("{}:{}\n", offset, text);
    return text.find('~') == std::string_view::npos;
  }
  void on_bad_event(std::uint64_t offset) override { seen += fmt::format("{} bad\n", offset); }
  Result<void> on_member(std::string_view key, std::string_view text,
                         std::uint64_t offset) override {
    seen += fmt::format("{}:{}={}\n", offset, key, text);
    return {};
  }
  std::string seen;
};

/// Pieces of 1, 2, ... `longest` bytes in turn.
std::string scanned(std::string_view text, std::size_t longest) {
  Collector sink;
  EventScanner scanner(sink, {.event_bytes_max = 8000, .member_bytes_max = 1000, .depth_max = 16});
  Result<void> result;
  for (std::size_t length = 1; !text.empty() && result; length = length % longest + 1) {
    const std::size_t taken = longest > text.size() ? text.size() : std::min(length, text.size());
    result = scanner.feed(std::string(text.substr(0, taken)));
    text.remove_prefix(taken);
  }
  if (result) result = scanner.finish();
  // Which of two limits is passed first depends on the pieces; that one is passed does not.
  if (!result && result.error().code == Code::kLimit) return sink.seen + "limit";
  return sink.seen + (result ? "whole" : result.error().what);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 32768) return 0;
  const ByteSpan bytes = std::as_bytes(std::span(data, size));
  const std::string once = imported(bytes);
  CHECK(imported(bytes) == once);
  if (is_gzip(bytes)) return 0;
  const std::string compressed = gzip(as_text(bytes), 1);
  CHECK(imported(as_bytes(compressed)) == once);
  const std::string whole = scanned(as_text(bytes), size + 1);
  CHECK(scanned(as_text(bytes), 1) == whole);
  CHECK(scanned(as_text(bytes), 7) == whole);
  return 0;
}
