// SPDX-License-Identifier: Apache-2.0
#include "capture/python/internal/process_memory.h"

#include <algorithm>
#include <cerrno>
#include <climits>

namespace kansoku::capture::python {

bool ProcessMemory::read(const std::vector<Range>& ranges) {
  for (std::size_t first = 0; first < ranges.size(); first += IOV_MAX) {
    const std::size_t last = std::min<std::size_t>(ranges.size(), first + IOV_MAX);
    local_.clear();
    remote_.clear();
    std::size_t bytes = 0;
    for (std::size_t i = first; i < last; ++i) {
      local_.push_back({ranges[i].into, ranges[i].bytes});
      remote_.push_back({reinterpret_cast<void*>(ranges[i].address), ranges[i].bytes});
      bytes += ranges[i].bytes;
    }
    const ssize_t got =
        ::process_vm_readv(pid_, local_.data(), local_.size(), remote_.data(), remote_.size(), 0);
    if (got == static_cast<ssize_t>(bytes)) continue;
    last_errno_ = got < 0 ? errno : EFAULT;
    return false;
  }
  return true;
}

}  // namespace kansoku::capture::python
