// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fleet/summary.h"

namespace kansoku::fleet::internal {

/// `text` as names may be: cut to kSummaryTextMax bytes, printable.
[[nodiscard]] std::string clean_text(std::string_view text);
/// True if the decoder takes `text` as a name.
[[nodiscard]] bool is_clean_text(std::string_view text);

/// Bytes of `part` in a message.
[[nodiscard]] std::size_t part_bytes(const SummaryPart& part);

}  // namespace kansoku::fleet::internal
