// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "gpu/exec/observation.h"

namespace kansoku::gpu::exec {

/// Which bytes of global memory a launch reads and writes; one a worker, merged at the end.
class AccessRecorder {
 public:
  void load(std::uint64_t address, std::uint32_t bytes);
  void store(std::uint64_t address, std::uint32_t bytes);
  void merge(const AccessRecorder& other);
  [[nodiscard]] AccessSets sets() const;

 private:
  static constexpr std::uint64_t kPageBytes = 4096;
  struct Page {
    std::bitset<kPageBytes> read, written, read_first;
  };
  Page& page_of(std::uint64_t address);

  std::map<std::uint64_t, std::unique_ptr<Page>> pages_;  // by number
  std::uint64_t last_number_{~std::uint64_t{0}};
  Page* last_{nullptr};
};

}  // namespace kansoku::gpu::exec
