// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "common/time.h"

namespace kansoku::softcuda {

/// How often kernels ran and how long, by name, all devices of the process together.
/// Any thread.
class KernelTimes {
 public:
  /// Times are told in milliseconds with so many decimals: a kernel that lasts long on a processor
  /// is short on a GPU.
  explicit KernelTimes(int decimals) : decimals_(decimals) {}
  void add(std::string_view kernel, Nanos elapsed);

  /// A line for the sum and one each for the `rows` kernels that took longest, names as in C++,
  /// without parameters: milliseconds, share, launches. Ties in the order of
  /// names.
  [[nodiscard]] std::string table(std::size_t rows) const;

 private:
  struct Row {
    std::uint64_t launches{0};
    Nanos elapsed{};
  };
  const int decimals_;
  mutable std::mutex mutex_;
  std::map<std::string, Row, std::less<>> rows_;  // guarded by mutex_
};

}  // namespace kansoku::softcuda
