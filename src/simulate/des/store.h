// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "simulate/des/engine.h"
#include "simulate/des/queue.h"

namespace kansoku::simulate::des {

/// Items that some processes put and others get, first come first served on both sides. `T` is
/// movable. Outlives every wait on it, except that the environment may outlive it.
template <class T>
class Store {
 public:
  class Put;
  class Get;
  explicit Store(Environment& env, std::size_t capacity = std::numeric_limits<std::size_t>::max(),
                 std::string name = {})
      : env_(env), capacity_(capacity), name_(std::move(name)) {
    CHECK(capacity >= 1);
  }
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// `co_await` gives a Wake; waits while the store is full. If it was interrupted or lost in an
  /// any_of, Put::accepted() tells whether the item went in at that very instant.
  [[nodiscard]] Put put(T item) { return Put(*this, std::move(item)); }
  /// `co_await` gives an optional: empty if it was interrupted.
  [[nodiscard]] Get get() { return Get(*this); }

  /// Items on the shelf. Greater than the capacity only if a get was interrupted at the instant in
  /// which it was served: its item comes back to its old place, others having followed.
  [[nodiscard]] std::size_t size() const { return items_.size(); }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  enum class State : std::uint8_t { kNew, kQueued, kPosted, kDone };
  struct Item {
    T value;
    std::uint64_t sequence{0};  // of arrival, for items that come back
  };

  void shelve(T&& value) { items_.push_back({std::move(value), sequence_++}); }
  [[nodiscard]] Item unshelve() {
    Item item = std::move(items_.front());
    items_.pop_front();
    return item;
  }
  void put_back(Item&& item) {
    auto place = items_.begin();
    while (place != items_.end() && place->sequence < item.sequence)
      ++place;
    items_.insert(place, std::move(item));
    settle();
  }
  /// Moves items from putters to the shelf and from there to getters, as far as both allow.
  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      if (!putting_.empty() && items_.size() < capacity_) {
        Put& next = putting_.front();
        putting_.erase(next);
        shelve(std::move(next.item_));
        next.state_ = State::kPosted;
        next.accepted_ = true;
        env_.post(next);
        moved = true;
      }
      if (!getting_.empty() && !items_.empty()) {
        Get& next = getting_.front();
        getting_.erase(next);
        next.item_.emplace(unshelve());
        next.state_ = State::kPosted;
        env_.post(next);
        moved = true;
      }
    }
  }

  Environment& env_;
  std::size_t capacity_;
  std::string name_;
  std::uint64_t sequence_{0};
  std::deque<Item> items_;
  Queue<Put> putting_;
  Queue<Get> getting_;
};

template <class T>
class Store<T>::Put final : public Awaitable<typename Store<T>::Put> {
 public:
  Put(Store& store, T item) : Awaitable<Put>(store.env_), store_(store), item_(std::move(item)) {}
  /// True once the item is in the store; awaiting it again then puts nothing.
  [[nodiscard]] bool accepted() const { return accepted_; }

 private:
  friend class Awaitable<Put>;
  friend class Group;
  friend class Store;
  friend class Queue<Put>;
  [[nodiscard]] bool begin_now() {
    if (accepted_) return true;
    if (!store_.putting_.empty() || store_.items_.size() >= store_.capacity_) return false;
    store_.shelve(std::move(item_));
    accepted_ = true;
    state_ = State::kDone;
    store_.settle();
    return true;
  }
  void enqueue() {
    state_ = State::kQueued;
    store_.putting_.push_back(*this);
    store_.settle();  // another wait of the same group may just have made room
  }
  void cancel() override {
    this->env_->withdraw(*this);
    if (state_ == State::kQueued) store_.putting_.erase(*this);
    state_ = State::kDone;  // items on the shelf already stay there
  }
  [[nodiscard]] Wake result() const { return this->wake_; }

  Store& store_;
  T item_;
  State state_{State::kNew};
  bool accepted_{false};
  Put* previous_{nullptr};
  Put* next_{nullptr};
};

template <class T>
class Store<T>::Get final : public Awaitable<typename Store<T>::Get> {
 public:
  explicit Get(Store& store) : Awaitable<Get>(store.env_), store_(store) {}
  /// The received item, once; for a get that was awaited in a group.
  [[nodiscard]] std::optional<T> take() {
    std::optional<T> value;
    if (item_) value.emplace(std::move(item_->value));
    item_.reset();
    return value;
  }

 private:
  friend class Awaitable<Get>;
  friend class Group;
  friend class Store;
  friend class Queue<Get>;
  [[nodiscard]] bool begin_now() {
    if (item_) return true;  // got in an earlier await and not taken
    if (!store_.getting_.empty() || store_.items_.empty()) return false;
    item_.emplace(store_.unshelve());
    state_ = State::kDone;
    store_.settle();
    return true;
  }
  void enqueue() {
    state_ = State::kQueued;
    store_.getting_.push_back(*this);
    store_.settle();  // another wait of the same group may just have put something
  }
  void cancel() override {
    this->env_->withdraw(*this);
    if (state_ == State::kQueued) store_.getting_.erase(*this);
    if (state_ == State::kPosted && item_) {  // nobody has seen it
      Item item = std::move(*item_);
      item_.reset();
      store_.put_back(std::move(item));
    }
    state_ = State::kDone;
  }
  [[nodiscard]] std::optional<T> result() { return take(); }

  Store& store_;
  std::optional<Item> item_;
  State state_{State::kNew};
  Get* previous_{nullptr};
  Get* next_{nullptr};
};

}  // namespace kansoku::simulate::des
