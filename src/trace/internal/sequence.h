// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "trace/model.h"

namespace kansoku::trace {

/// Interning ids of one table to values: dense for the small ids that writers use, a hash map for
/// the rest. The dense part never has more than 4 slots an entry plus 64, so that a hostile id
/// costs no memory.
template <class T>
class IidMap {
 public:
  void set(std::uint64_t iid, T value) {
    if (iid >= dense_.size() && iid < 64 + 4 * entry_count_)
      dense_.resize(static_cast<std::size_t>(iid) + 1);
    if (iid >= dense_.size()) {
      if (sparse_.insert_or_assign(iid, value).second) ++entry_count_;
      return;
    }
    auto& slot = dense_[static_cast<std::size_t>(iid)];
    if (!slot) ++entry_count_;
    slot = value;  // hides an entry of this id in the hash map
  }
  [[nodiscard]] const T* find(std::uint64_t iid) const {
    if (iid < dense_.size()) {
      const auto& slot = dense_[static_cast<std::size_t>(iid)];
      if (slot) return &*slot;
    }
    const auto found = sparse_.find(iid);
    return found == sparse_.end() ? nullptr : &found->second;
  }
  void clear() {
    dense_.clear();
    sparse_.clear();
    entry_count_ = 0;
  }
  [[nodiscard]] std::size_t dense_slots_for_test() const { return dense_.size(); }

 private:
  std::uint64_t entry_count_{0};
  std::vector<std::optional<T>> dense_;
  std::unordered_map<std::uint64_t, T> sparse_;
};

/// A call stack as interned: pseudo frames already taken off.
struct InternedStack {
  StackId stack{};
  SampleState state{SampleState::kRunning};
  bool holds_gil{false};
};

/// How a clock maps to CLOCK_BOOTTIME.
struct ClockMap {
  std::int64_t at_boot_ns{0};  // boot time ...
  std::uint64_t at_time{0};    // ... when the clock showed this
  std::uint64_t unit_ns{1};
  bool is_incremental{false};
  std::uint64_t last{0};  // incremental clocks: the value after the last packet
};

/// State that the packets of one sequence build up for each other.
struct Sequence {
  IidMap<StringId> event_names, categories, annotation_names, functions, paths;
  IidMap<FrameId> frames;
  IidMap<InternedStack> stacks;
  std::map<std::uint64_t, ClockMap> clocks;  // 64 .. 127 only
  std::uint64_t default_clock{6};
  std::optional<std::uint64_t> default_track;
  void clear_incremental_state() {
    for (IidMap<StringId>* table :
         {&event_names, &categories, &annotation_names, &functions, &paths})
      table->clear();
    frames.clear();
    stacks.clear();
    default_clock = 6;
    default_track.reset();
  }
};

}  // namespace kansoku::trace
