// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kansoku::trace::import {

// Numbers for processes and threads that a foreign format does not number: above Linux's greatest.
inline constexpr std::int32_t kFreePid = 1 << 30;
inline constexpr std::int32_t kFreeTid = 1 << 30;

}  // namespace kansoku::trace::import
