// SPDX-License-Identifier: Apache-2.0
// Limits and units that both directions of WfFormat share.
#pragma once

#include <cstdint>
#include <string_view>

namespace kansoku::simulate::import::wfformat {

inline constexpr std::int64_t kBytesPerMib = 1 << 20;
inline constexpr std::int64_t kCoresMax = 1'000'000'000;
inline constexpr double kMakespanMaxS = 4.2e9;
inline constexpr std::string_view kNoName = "workflow";  // of a graph

}  // namespace kansoku::simulate::import::wfformat
