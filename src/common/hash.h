// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace kansoku {

/// FNV-1a, 64 bits, of texts one after the other: the same on every machine and in every run. Not
/// for tables that others may fill on purpose. Source: Fowler, Noll and Vo's published constants.
class Fnv {
 public:
  Fnv& add(std::string_view bytes) {
    for (const char byte : bytes)
      value_ = (value_ ^ static_cast<unsigned char>(byte)) * 0x100000001b3ULL;
    return *this;
  }
  /// A zero byte behind it keeps "ab" + "c" apart from "a" + "bc".
  Fnv& end() { return add(std::string_view("\0", 1)); }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_{0xcbf29ce484222325ULL};
};

}  // namespace kansoku
