// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/bytes.h"
#include "common/result.h"
#include "trace/import/internal/plain_data.h"

namespace kansoku::trace::import {

/// Runs the opcodes of a Python pickle that build plain data (bytes and tuples too, as texts and
/// lists). kUnsupported names the first other one (those that import, call or build objects) with
/// its offset, kCorrupt the broken part, kLimit the limit. Executes nothing. Source: the opcode
/// table of CPython's pickletools.
[[nodiscard]] Result<PlainData> read_pickle(ByteSpan untrusted, const PlainLimits& limits);

}  // namespace kansoku::trace::import
