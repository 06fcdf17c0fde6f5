// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kansoku::gpu::exec {

/// Addresses [begin, end) of a software device.
struct AddressRange {
  std::uint64_t begin{0}, end{0};
  friend bool operator==(const AddressRange&, const AddressRange&) = default;
};

}  // namespace kansoku::gpu::exec
