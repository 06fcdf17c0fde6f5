// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/bytes.h"
#include "common/result.h"
#include "trace/import/internal/plain_data.h"

namespace kansoku::trace::import {

/// The values of a JSON text. kCorrupt says why it is none, kLimit names the limit. Integers beyond
/// int64 are floats.
[[nodiscard]] Result<PlainData> read_plain_json(ByteSpan untrusted, const PlainLimits& limits);

}  // namespace kansoku::trace::import
