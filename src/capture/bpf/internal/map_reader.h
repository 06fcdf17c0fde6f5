// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bpf/bpf.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"

namespace kansoku::capture::bpf {

/// Reads all entries of a hash map in a few system calls. Owns the room for them. Single-threaded.
template <typename Key, typename Value>
class MapReader {
 public:
  /// Hands each entry to `on_entry(key, value)`; `what` names the map in an error. An entry that
  /// comes meanwhile may be missed, one that goes may be told.
  template <typename OnEntry>
  [[nodiscard]] Result<void> read(int map, const std::string& what, const OnEntry& on_entry) {
    std::uint64_t position = 0;
    for (std::size_t batch = 0; batch < kBatchesMax; ++batch) {
      auto count = static_cast<std::uint32_t>(keys_.size());
      const int failed = bpf_map_lookup_batch(map, batch == 0 ? nullptr : &position, &position,
                                              keys_.data(), values_.data(), &count, nullptr);
      if (failed == -ENOSPC && keys_.size() < kBatch * kBatchesMax) {  // a crowded bucket
        keys_.resize(keys_.size() * 2);
        values_.resize(values_.size() * 2);
        continue;
      }
      if (failed != 0 && failed != -ENOENT) return errno_error(-failed, "read", what);
      for (std::uint32_t i = 0; i < count; ++i)
        on_entry(keys_[i], values_[i]);
      if (failed == -ENOENT) return {};
    }
    return {};
  }

 private:
  static constexpr std::size_t kBatch = 512;
  static constexpr std::size_t kBatchesMax = 256;  // of one look: 131,072 entries
  std::vector<Key> keys_{std::vector<Key>(kBatch)};
  std::vector<Value> values_{std::vector<Value>(kBatch)};
};

}  // namespace kansoku::capture::bpf
