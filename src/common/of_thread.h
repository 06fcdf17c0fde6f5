// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <memory>

namespace kansoku {

/// One `T` for each thread, made when it is first asked for. It ends with its thread, but the main
/// thread's never does: static destructors of a program may still call a library that has one,
/// which a `thread_local` object would not survive. `Tag` tells values of one type apart.
template <class T, class Tag = T>
class OfThread {
 public:
  [[nodiscard]] static T& get() { return mine_ != nullptr ? *mine_ : make(); }

 private:
  static T& make() {
    mine_ = std::make_unique<T>().release();
    pthread_setspecific(key(), mine_);
    return *mine_;
  }
  static pthread_key_t key() {
    static const pthread_key_t kKey = [] {
      pthread_key_t made{};
      pthread_key_create(&made, [](void* value) {
        const std::unique_ptr<T> owner(static_cast<T*>(value));
        mine_ = nullptr;  // its end calls may make another one
      });
      return made;
    }();
    return kKey;
  }

  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static inline thread_local T* mine_ = nullptr;
};

}  // namespace kansoku
