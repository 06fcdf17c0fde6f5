// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace kansoku::softcuda {

/// A copy of bytes behind which nothing can be read: who reads on ends the process.
class AtTheEnd {
 public:
  explicit AtTheEnd(std::string_view bytes) : pages_((bytes.size() / kPage + 1) * kPage) {
    void* const mapped =
        mmap(nullptr, pages_ + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) std::abort();
    area_ = static_cast<char*>(mapped);
    if (mprotect(area_ + pages_, kPage, PROT_NONE) != 0) std::abort();
    begin_ = area_ + pages_ - bytes.size();
    if (!bytes.empty()) std::memcpy(begin_, bytes.data(), bytes.size());
  }
  AtTheEnd(const AtTheEnd&) = delete;
  AtTheEnd& operator=(const AtTheEnd&) = delete;
  ~AtTheEnd() { munmap(area_, pages_ + kPage); }
  [[nodiscard]] const void* get() const { return begin_; }

 private:
  static constexpr std::size_t kPage = 4096;
  std::size_t pages_;
  char* area_;
  char* begin_;
};

}  // namespace kansoku::softcuda
