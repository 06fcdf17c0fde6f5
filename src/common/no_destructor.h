// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <utility>

namespace kansoku {

/// A `T` that is never destroyed, for a static variable of a function: threads and the destructors
/// of other static objects may call until the very end of their process. Access from several
/// threads is as safe as that of `T`.
template <class T>
class NoDestructor {
 public:
  template <class... Args>
  explicit NoDestructor(Args&&... args)
      : value_(std::construct_at(reinterpret_cast<T*>(room_.data()), std::forward<Args>(args)...)) {
  }
  NoDestructor(const NoDestructor&) = delete;
  NoDestructor& operator=(const NoDestructor&) = delete;

  [[nodiscard]] T& get() { return *value_; }

 private:
  alignas(T) std::array<std::byte, sizeof(T)> room_;
  T* value_;
};

}  // namespace kansoku
