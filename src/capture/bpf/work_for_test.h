// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstddef>

#include "common/check.h"
#include "common/time.h"
#include "sys/clock.h"

namespace kansoku::capture::bpf {

/// Does `work` over and over for so long on this thread's own clock.
template <typename Work>
void spend(Nanos time, const Work& work) {
  const Nanos end = sys::thread_cpu_time() + time;
  while (sys::thread_cpu_time() < end)
    work();
}

/// Maps memory, touches each page of it, gives it back in small pieces: a thousand page faults and
/// a hundred calls. One call would take so little beside the faults that clock samples may miss it.
inline void touch_memory() {
  constexpr std::size_t kBytes = 4U << 20, kPageBytes = 4096, kPieceBytes = 8 * kPageBytes;
  void* const memory =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  ::madvise(memory, kBytes, MADV_NOHUGEPAGE);
  for (std::size_t at = 0; at < kBytes; at += kPageBytes)
    static_cast<volatile char*>(memory)[at] = 1;
  for (std::size_t at = 0; at < kBytes; at += kPieceBytes)
    ::munmap(static_cast<char*>(memory) + at, kPieceBytes);
}

}  // namespace kansoku::capture::bpf
