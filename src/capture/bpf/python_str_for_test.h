// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace kansoku::capture::bpf {

/// A str as CPython lays it out. Up to 3.11 there was a bit `ready` and a pointer more.
class PythonStrForTest {
 public:
  enum class Kind { kAscii, kWide, kNoStr };
  PythonStrForTest(std::string_view text, bool has_ready, Kind kind = Kind::kAscii) {
    if (kind != Kind::kNoStr) type_[21] = std::uint64_t{1} << 28 | 1;  // tp_flags
    put(0, std::uint64_t{1});
    put(8, type_.data());
    put(16, std::uint64_t{text.size()});
    const std::uint32_t interned = text.size() % 2, ready = has_ready ? 0x80 : 0;
    put(32, interned | ready | (kind == Kind::kWide ? 0x28U : 0x64U));
    std::memcpy(bytes_.data() + (has_ready ? 48 : 40), text.data(), text.size());
  }
  PythonStrForTest(const PythonStrForTest&) = delete;
  PythonStrForTest& operator=(const PythonStrForTest&) = delete;
  [[nodiscard]] const void* object() const { return bytes_.data(); }

 private:
  template <class T>
  void put(std::size_t at, T value) {
    std::memcpy(bytes_.data() + at, &value, sizeof(value));
  }
  alignas(8) std::array<char, 160> bytes_{};
  // Written here, so that its page is there: a probe cannot read one that nobody has touched.
  std::array<std::uint64_t, 22> type_{};
};

}  // namespace kansoku::capture::bpf
