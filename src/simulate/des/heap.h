// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/check.h"

namespace kansoku::simulate::des {

/// An implicit 4-ary heap in one vector, least entry first. `Entry` has operator<, a strict order
/// without equal entries, so that the order of removal does not depend on the heap's shape.
/// `Moved::moved(entry, position)` is told each new place of an entry: with it the owner can erase
/// from the middle. Not shared between threads.
template <class Entry, class Moved>
class Heap4 {
 public:
  explicit Heap4(Moved moved = {}) : moved_(std::move(moved)) {}

  [[nodiscard]] bool empty() const { return size() == 0; }
  [[nodiscard]] std::size_t size() const { return entries_.size() - (hole_ ? 1U : 0U); }
  /// The least entry; there is one.
  [[nodiscard]] const Entry& top() {
    close_hole();
    return entries_.front();
  }

  void push(Entry entry) {
    if (hole_) {
      hole_ = false;
      return sink(0, entry);
    }
    entries_.push_back(entry);
    rise(entries_.size() - 1, entry);
  }
  /// Takes the least entry away. Its place stays open for the next push: an event that posts the
  /// next one, which is the common case, moves entries once instead of twice.
  Entry pop() {
    close_hole();
    hole_ = true;
    return entries_.front();
  }
  /// Removes the entry at a position that Moved was told.
  void erase(std::size_t position) {
    DCHECK(position < entries_.size() && !(hole_ && position == 0));
    const Entry last = entries_.back();
    entries_.pop_back();
    if (position == entries_.size()) return;
    // An open root still shows the taken entry, which is less than all: nothing rises above it.
    if (position > 0 && last < entries_[(position - 1) / 4]) return rise(position, last);
    sink(position, last);
  }

 private:
  [[nodiscard]] static std::size_t less(const Entry& a, const Entry& b) { return a < b ? 1 : 0; }
  void put(std::size_t position, const Entry& entry) {
    entries_[position] = entry;
    moved_.moved(entry, position);
  }
  void close_hole() {
    if (!hole_) return;
    hole_ = false;
    const Entry last = entries_.back();
    entries_.pop_back();
    if (!entries_.empty()) sink(0, last);
  }
  void rise(std::size_t position, const Entry entry) {
    while (position > 0) {
      const std::size_t parent = (position - 1) / 4;
      if (!(entry < entries_[parent])) break;
      put(position, entries_[parent]);
      position = parent;
    }
    put(position, entry);
  }
  void sink(std::size_t position, const Entry entry) {
    Entry* const entries = entries_.data();
    const std::size_t size = entries_.size();
    for (;;) {
      const std::size_t child = 4 * position + 1;
      if (child >= size) break;
      std::size_t least = child;
      if (child + 4 <= size) {  // sums instead of branches: which child is less, nobody can predict
        const std::size_t left = child + less(entries[child + 1], entries[child]);
        const std::size_t right = child + 2 + less(entries[child + 3], entries[child + 2]);
        least = left + (right - left) * less(entries[right], entries[left]);
      } else {
        for (std::size_t other = child + 1; other < size; ++other)
          least = entries[other] < entries[least] ? other : least;
      }
      if (!(entries[least] < entry)) break;
      put(position, entries[least]);
      position = least;
    }
    put(position, entry);
  }

  std::vector<Entry> entries_;
  bool hole_{false};  // entries_[0] was taken and is to be overwritten
  [[no_unique_address]] Moved moved_;
};

}  // namespace kansoku::simulate::des
