// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <tuple>
#include <utility>

#include "simulate/des/engine.h"

namespace kansoku::simulate::des {

/// How groups reach into their children.
class Group {
 public:
  template <class W>
  [[nodiscard]] static bool begin_now(W& wait) {
    wait.wake_ = Wake::kDone;  // it may have been interrupted in an earlier await
    return wait.begin_now();
  }
  template <class W>
  static void enqueue(W& wait, Wait& group, Process::promise_type& owner) {
    wait.group_ = &group;
    wait.owner_ = &owner;
    wait.enqueue();
  }
  static void cancel(Wait& wait) { wait.cancel(); }
};

/// End of an any_of: the index of the first wait that was done, in the order of the arguments; with
/// Wake::kInterrupted the index says nothing.
struct First {
  Wake wake{Wake::kDone};
  std::size_t index{0};
};

/// Waits until one of several waits is done; the others are cancelled (a request leaves its queue).
/// The waits outlive the group: name them, then `co_await any_of(env, request, patience)`, then
/// `request.take()` the grant.
template <class... Waits>
class AnyOf final : public Awaitable<AnyOf<Waits...>> {
 public:
  explicit AnyOf(Environment& env, Waits&... waits)
      : Awaitable<AnyOf>(env), waits_(waits...), bases_{&waits...} {}

 private:
  friend class Awaitable<AnyOf>;
  friend class Group;

  [[nodiscard]] bool begin_now() { return begin(std::index_sequence_for<Waits...>{}); }
  template <std::size_t... I>
  [[nodiscard]] bool begin(std::index_sequence<I...>) {
    return ((Group::begin_now(std::get<I>(waits_)) && (first_ = I, true)) || ...);
  }
  void enqueue() {
    std::apply([this](Waits&... wait) { (Group::enqueue(wait, *this, this->owner()), ...); },
               waits_);
  }
  void child_done(Wait& child) override {
    for (std::size_t i = 0; i < bases_.size(); ++i) {
      if (bases_[i] == &child)
        first_ = i;
      else
        Group::cancel(*bases_[i]);
    }
    this->fire();
  }
  void cancel() override {
    for (Wait* const wait : bases_)
      Group::cancel(*wait);
    this->env_->withdraw(*this);
  }
  [[nodiscard]] First result() const { return {this->wake_, first_}; }

  std::tuple<Waits&...> waits_;
  std::array<Wait*, sizeof...(Waits)> bases_;
  std::size_t first_{0};
};

/// Waits until all of several waits are done; `co_await` gives a Wake. If it is interrupted, those
/// that are not done are cancelled and the others keep their grants.
template <class... Waits>
class AllOf final : public Awaitable<AllOf<Waits...>> {
 public:
  explicit AllOf(Environment& env, Waits&... waits)
      : Awaitable<AllOf>(env), waits_(waits...), bases_{&waits...} {}

 private:
  friend class Awaitable<AllOf>;
  friend class Group;

  [[nodiscard]] bool begin_now() { return begin(std::index_sequence_for<Waits...>{}); }
  template <std::size_t... I>
  [[nodiscard]] bool begin(std::index_sequence<I...>) {
    ((done_[I] = Group::begin_now(std::get<I>(waits_))), ...);
    left_ = ((done_[I] ? std::size_t{0} : std::size_t{1}) + ...);
    return left_ == 0;
  }
  void enqueue() { enqueue(std::index_sequence_for<Waits...>{}); }
  template <std::size_t... I>
  void enqueue(std::index_sequence<I...>) {
    ((done_[I] ? void() : Group::enqueue(std::get<I>(waits_), *this, this->owner())), ...);
  }
  void child_done(Wait& child) override {
    for (std::size_t i = 0; i < bases_.size(); ++i)
      if (bases_[i] == &child) done_[i] = true;
    if (--left_ == 0) this->fire();
  }
  void cancel() override {
    for (std::size_t i = 0; i < bases_.size(); ++i)
      if (!done_[i]) Group::cancel(*bases_[i]);
    this->env_->withdraw(*this);
  }
  [[nodiscard]] Wake result() const { return this->wake_; }

  std::tuple<Waits&...> waits_;
  std::array<Wait*, sizeof...(Waits)> bases_;
  std::array<bool, sizeof...(Waits)> done_{};
  std::size_t left_{0};
};

template <class... Waits>
[[nodiscard]] AnyOf<Waits...> any_of(Environment& env, Waits&... waits) {
  return AnyOf<Waits...>(env, waits...);
}
template <class... Waits>
[[nodiscard]] AllOf<Waits...> all_of(Environment& env, Waits&... waits) {
  return AllOf<Waits...>(env, waits...);
}

}  // namespace kansoku::simulate::des
