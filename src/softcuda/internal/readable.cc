// SPDX-License-Identifier: Apache-2.0
#include "softcuda/internal/readable.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>

namespace kansoku::softcuda {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kPagesAtOnce = 512;

/// Bytes from `at` to the end of its page.
std::size_t left_in_page(const char* at) {
  return kPageBytes - reinterpret_cast<std::uintptr_t>(at) % kPageBytes;
}

}  // namespace

// One byte of every page tells: the kernel copies it, and stops at the first that is not there.
std::size_t readable_bytes(const void* begin, std::size_t bytes) {
  std::array<iovec, kPagesAtOnce> pages{};
  std::array<char, kPagesAtOnce> copies{};
  const auto* const first = static_cast<const char*>(begin);
  std::size_t done = 0;
  while (done < bytes) {
    std::size_t count = 0;
    for (std::size_t at = done; count < kPagesAtOnce && at < bytes; ++count) {
      pages[count] = {const_cast<char*>(first + at), 1};
      at += left_in_page(first + at);
    }
    const iovec into{copies.data(), count};
    const ssize_t got = process_vm_readv(getpid(), &into, 1, pages.data(), count, 0);
    if (got < 0 && errno != EFAULT) return bytes;
    const auto read = static_cast<std::size_t>(std::max<ssize_t>(got, 0));
    for (std::size_t i = 0; i < read; ++i)
      done += left_in_page(first + done);
    if (read < count) break;
  }
  return std::min(done, bytes);
}

}  // namespace kansoku::softcuda
