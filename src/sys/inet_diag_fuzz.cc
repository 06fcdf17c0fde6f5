// SPDX-License-Identifier: Apache-2.0
// Any bytes as an answer of the kernel's socket diagnosis.
#include <cstddef>
#include <cstdint>

#include "common/check.h"
#include "sys/internal/inet_diag.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kansoku;
  constexpr std::size_t kMax = 8;
  std::vector<sys::DiagSocket> out;
  static_cast<void>(sys::parse_diag({reinterpret_cast<const std::byte*>(data), size}, kMax, out));
  CHECK(out.size() <= kMax);
  return 0;
}
