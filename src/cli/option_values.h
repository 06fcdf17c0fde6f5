// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.h"
#include "common/time.h"

namespace kansoku::cli {

// Values of options; errors name the option, "--window".

/// "20s", "500ms": a time of at least `least`.
[[nodiscard]] Result<Nanos> read_time(std::string_view option, const std::string& text,
                                      Nanos least = std::chrono::milliseconds{1});
/// "16M": the size of a ring of events, a power of two from 4K to 1G.
[[nodiscard]] Result<std::uint32_t> read_ring_bytes(const std::string& text);

}  // namespace kansoku::cli
