// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kansoku::simulate::des {

/// First come, first served, with leaving from the middle: a list through the waits themselves,
/// so that nobody who queues or gives up allocates or searches. `W` befriends it and has the
/// members `previous_` and `next_`. Owns nothing; who is in it does not move.
template <class W>
class Queue {
 public:
  [[nodiscard]] bool empty() const { return first_ == nullptr; }
  /// The wait that came first; there is one.
  [[nodiscard]] W& front() const { return *first_; }
  void push_back(W& wait) {
    wait.previous_ = last_;
    wait.next_ = nullptr;
    (last_ == nullptr ? first_ : last_->next_) = &wait;
    last_ = &wait;
  }
  /// `wait` is in this queue.
  void erase(W& wait) {
    (wait.previous_ == nullptr ? first_ : wait.previous_->next_) = wait.next_;
    (wait.next_ == nullptr ? last_ : wait.next_->previous_) = wait.previous_;
  }

 private:
  W* first_{nullptr};
  W* last_{nullptr};
};

}  // namespace kansoku::simulate::des
