// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "common/bytes.h"

namespace kansoku::trace::import {

enum class Format : std::uint8_t {
  kUnknown,
  kPerfetto,        // trace/reader.h
  kJson,            // chrome.h, plain or gzip
  kFlightRecorder,  // flight_recorder.h
  kNsight,          // nsight.h
};

/// What a file is, from its first bytes; kUnknown for anything else, an empty file included. Any
/// thread.
[[nodiscard]] Format format_of(ByteSpan untrusted);

}  // namespace kansoku::trace::import
