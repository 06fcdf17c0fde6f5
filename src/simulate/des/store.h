// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "simulate/des/engine.h"

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

  /// `co_await` gives a Wake; waits while the store is full. An interrupted put keeps nothing.
  [[nodiscard]] Put put(T item) { return Put(*this, std::move(item)); }
  /// `co_await` gives an optional: empty if it was interrupted.
  [[nodiscard]] Get get() { return Get(*this); }

  [[nodiscard]] std::size_t size() const { return items_.size(); }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  /// Moves items from putters to the shelf and from there to getters, as far as both allow.
  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      if (!putting_.empty() && items_.size() < capacity_) {
        Put& next = *putting_.front();
        putting_.pop_front();
        items_.push_back(std::move(next.item_));
        next.state_ = State::kPosted;
        env_.post(next);
        moved = true;
      }
      if (!getting_.empty() && !items_.empty()) {
        Get& next = *getting_.front();
        getting_.pop_front();
        next.item_.emplace(std::move(items_.front()));
        items_.pop_front();
        next.state_ = State::kPosted;
        env_.post(next);
        moved = true;
      }
    }
  }
  enum class State : std::uint8_t { kNew, kQueued, kPosted, kDone };

  Environment& env_;
  std::size_t capacity_;
  std::string name_;
  std::deque<T> items_;
  std::deque<Put*> putting_;
  std::deque<Get*> getting_;
};

template <class T>
class Store<T>::Put final : public Awaitable<typename Store<T>::Put> {
 public:
  Put(Store& store, T item) : Awaitable<Put>(store.env_), store_(store), item_(std::move(item)) {}

 private:
  friend class Awaitable<Put>;
  friend class Group;
  friend class Store;
  [[nodiscard]] bool begin_now() {
    if (!store_.putting_.empty() || store_.items_.size() >= store_.capacity_) return false;
    store_.items_.push_back(std::move(item_));
    state_ = State::kDone;
    store_.settle();
    return true;
  }
  void enqueue() {
    state_ = State::kQueued;
    store_.putting_.push_back(this);
  }
  void cancel() override {
    this->env_->withdraw(*this);
    if (state_ == State::kQueued) std::erase(store_.putting_, this);
    state_ = State::kDone;  // what lies on the shelf already stays there
  }
  [[nodiscard]] Wake result() const { return this->wake_; }

  Store& store_;
  T item_;
  State state_{State::kNew};
};

template <class T>
class Store<T>::Get final : public Awaitable<typename Store<T>::Get> {
 public:
  explicit Get(Store& store) : Awaitable<Get>(store.env_), store_(store) {}
  /// What was got, once; for a get that was awaited in a group.
  [[nodiscard]] std::optional<T> take() { return std::exchange(item_, std::nullopt); }

 private:
  friend class Awaitable<Get>;
  friend class Group;
  friend class Store;
  [[nodiscard]] bool begin_now() {
    if (!store_.getting_.empty() || store_.items_.empty()) return false;
    item_.emplace(std::move(store_.items_.front()));
    store_.items_.pop_front();
    state_ = State::kDone;
    store_.settle();
    return true;
  }
  void enqueue() {
    state_ = State::kQueued;
    store_.getting_.push_back(this);
  }
  void cancel() override {
    this->env_->withdraw(*this);
    if (state_ == State::kQueued) std::erase(store_.getting_, this);
    if (state_ == State::kPosted && item_) {  // back to the front: nobody has seen it
      store_.items_.push_front(std::move(*item_));
      item_.reset();
      store_.settle();
    }
    state_ = State::kDone;
  }
  [[nodiscard]] std::optional<T> result() { return take(); }

  Store& store_;
  std::optional<T> item_;
  State state_{State::kNew};
};

}  // namespace kansoku::simulate::des
