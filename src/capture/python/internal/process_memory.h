// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <vector>

#include "capture/python/sampler.h"

namespace kansoku::capture::python {

/// The memory of a process through process_vm_readv, which neither stops the process nor waits for
/// it. Up to 1,024 ranges (IOV_MAX) go into one system call.
class ProcessMemory final : public RemoteMemory {
 public:
  explicit ProcessMemory(std::int32_t pid) : pid_(pid) {}
  [[nodiscard]] bool read(const std::vector<Range>& ranges) override;
  /// errno of the last read that failed; EFAULT if it was cut short.
  [[nodiscard]] int last_errno() const { return last_errno_; }

 private:
  const std::int32_t pid_;
  int last_errno_{0};
  std::vector<iovec> local_, remote_;
};

}  // namespace kansoku::capture::python
