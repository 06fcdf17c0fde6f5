// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/bytes.h"
#include "common/result.h"

namespace kansoku::trace::import {

enum class Format : std::uint8_t {
  kUnknown,
  kPerfetto,        // trace/reader.h
  kJson,            // chrome.h, plain or gzip
  kFlightRecorder,  // flight_recorder.h, a pickle or JSON
  kNsight,          // nsight.h
};

/// `text` with a question mark for each byte beyond ASCII: for texts that are not UTF-8.
[[nodiscard]] std::string as_ascii(std::string_view text);

/// Without the mark that some editors put before UTF-8.
[[nodiscard]] ByteSpan without_byte_order_mark(ByteSpan untrusted);
/// Format of a file, from its first bytes; kUnknown for anything else, an empty file included. Any
/// thread.
[[nodiscard]] Format format_of(ByteSpan untrusted);

/// The text of a file: inflated if the bytes begin as gzip does, else as it is. kCorrupt names the
/// offset in the compressed file, kLimit beyond `bytes_max` of text. Any thread.
[[nodiscard]] Result<std::string> inflated(ByteSpan untrusted, std::size_t bytes_max);

}  // namespace kansoku::trace::import
