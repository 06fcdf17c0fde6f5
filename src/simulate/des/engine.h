// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/time.h"
#include "simulate/des/heap.h"

#ifdef __SANITIZE_ADDRESS__  // of the compiler's run-time library
extern "C" void __asan_poison_memory_region(const volatile void* begin, std::size_t bytes);
extern "C" void __asan_unpoison_memory_region(const volatile void* begin, std::size_t bytes);
#endif

// A discrete-event engine: processes are coroutines that wait for time, resources and each other.
// If you know SimPy, you know it:
//
//   des::Process customer(des::Environment& env, des::Resource& counter, Nanos service) {
//     const des::Held place = co_await counter.request();   // given back at the end of the scope
//     co_await env.timeout(service);
//   }
//   env.start(customer(env, counter, Nanos{5}));
//   env.run();
//
// Time is integer nanoseconds since the start. Events of the same time happen in the order in which
// they were posted. Differences to SimPy: a process runs at once when it is started, up to its
// first wait; a grant that is free at once never passes through the queue of events; instead of an
// exception an interrupted wait returns Wake::kInterrupted. No part is shared between threads; one
// Environment a thread.

namespace kansoku::simulate::des {

class Environment;
class Wait;

__extension__ using Wide = __int128;  // sums of nanoseconds times units
__extension__ using UnsignedWide = unsigned __int128;

/// Why a wait ended.
enum class Wake : std::uint8_t { kDone, kInterrupted };

/// Names a process, also after it has ended; never reused while fewer than 2^32 processes shared
/// its place.
struct ProcessId {
  std::uint32_t index{UINT32_MAX};
  std::uint32_t generation{0};
  friend bool operator==(ProcessId, ProcessId) = default;
};

/// Memory of coroutine frames: free lists by size, given back to the system at the end.
class FramePool {
 public:
  FramePool() = default;
  FramePool(const FramePool&) = delete;
  FramePool& operator=(const FramePool&) = delete;

  [[nodiscard]] void* allocate(std::size_t bytes) {
    const std::size_t cell = (bytes + sizeof(Header) + kStep - 1) / kStep;
    Header* header = nullptr;
    if (cell < kClasses && free_[cell] != nullptr) {
      header = free_[cell];
      free_[cell] = header->next;
    } else {
      header = carve(cell);
    }
    header->pool = this;
    header->cell = cell;
    mark(header, true);
    return header + 1;
  }
  static void release(void* frame) {
    Header* const header = static_cast<Header*>(frame) - 1;
    header->pool->give_back(header);
  }
  /// Bytes taken from the system so far: grows with the processes alive at once, not with all.
  [[nodiscard]] std::size_t system_bytes() const { return system_bytes_; }

 private:
  struct alignas(16) Header {
    union {
      FramePool* pool;
      Header* next;
    };
    std::size_t cell;
  };
  static constexpr std::size_t kStep = 64, kClasses = 65;  // frames up to 4 KiB from free lists
  static constexpr std::size_t kChunkBytes = std::size_t{256} << 10;

  [[nodiscard]] Header* carve(std::size_t cell);
  void give_back(Header* header) {
    const std::size_t cell = header->cell;
    if (cell >= kClasses) return release_large(header);
    mark(header, false);
    header->next = free_[cell];
    free_[cell] = header;
  }
  void release_large(Header* header);
  /// Tells the address sanitizer whether a frame may be used: free lists hide it otherwise.
  static void mark([[maybe_unused]] Header* header, [[maybe_unused]] bool in_use) {
#ifdef __SANITIZE_ADDRESS__
    const std::size_t bytes = header->cell * kStep - sizeof(Header);
    in_use ? __asan_unpoison_memory_region(header + 1, bytes)
           : __asan_poison_memory_region(header + 1, bytes);
#endif
  }

  std::array<Header*, kClasses> free_{};
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::size_t chunk_left_{0};
  std::size_t system_bytes_{0};
};

/// The return type of a coroutine that is a process. Its first parameter (or the first after the
/// object, for a member function or lambda) must be the Environment&. It runs when it is given to
/// Environment::start; destroying it before that destroys the frame.
class [[nodiscard]] Process {
 public:
  class promise_type;
  using Handle = std::coroutine_handle<promise_type>;

  explicit Process(Handle handle) : handle_(handle) {}
  Process(Process&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Process& operator=(Process&&) = delete;
  ~Process() {
    if (handle_) handle_.destroy();
  }

 private:
  friend class Environment;
  Handle handle_;
};

class Process::promise_type {
 public:
  template <class... Args>
  explicit promise_type(Environment& env, Args&&...) : env_(env) {}
  template <class Self, class... Args>
  requires(!std::same_as<std::remove_cvref_t<Self>, Environment>)
      promise_type(Self&&, Environment& env, Args&&...)
      : env_(env) {}
  promise_type(const promise_type&) = delete;
  promise_type& operator=(const promise_type&) = delete;
  ~promise_type();

  // Always inline: else g++ takes the template for no match of the delete and warns in each user.
  template <class... Args>
  [[gnu::always_inline]] static void* operator new(std::size_t bytes, Environment& env, Args&&...);
  template <class Self, class... Args>
  requires(!std::same_as<std::remove_cvref_t<Self>, Environment>)
      [[gnu::always_inline]] static void*
      operator new(std::size_t bytes, Self&&, Environment& env, Args&&...);
  static void operator delete(void* frame) { FramePool::release(frame); }

  [[nodiscard]] Process get_return_object() { return Process(Handle::from_promise(*this)); }
  [[nodiscard]] static std::suspend_always initial_suspend() noexcept { return {}; }
  [[nodiscard]] static std::suspend_never final_suspend() noexcept { return {}; }
  static void return_void() noexcept {}
  [[noreturn]] static void unhandled_exception() noexcept { std::terminate(); }

  [[nodiscard]] ProcessId id() const { return id_; }

 private:
  friend class Environment;
  friend class Wait;
  Environment& env_;
  ProcessId id_{};
  Wait* pending_{nullptr};  // its present wait; null while it runs
  bool interrupting_{false};
  bool interrupt_next_{false};  // preempted while it ran: its next wait ends at once
};

/// Base of everything that a process can `co_await`. Lives in the frame of the process that waits.
class Wait {
 public:
  static constexpr std::uint32_t kNoSlot = UINT32_MAX;

  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

 protected:
  friend class Environment;
  friend class Group;
  explicit Wait(Environment& env) : env_(&env) {}
  virtual ~Wait() = default;

  /// Forgets the wait: not in any queue any more; a grant that was made is given back.
  virtual void cancel() = 0;
  /// A child of this group is done. Only groups have children.
  virtual void child_done(Wait&) {}

  /// False if the wait is over already: it was preempted, and its end is posted.
  [[nodiscard]] bool suspend(Process::promise_type& owner) {
    owner_ = &owner;
    group_ = nullptr;  // of an earlier await in a group that is gone
    owner.pending_ = this;
    if (owner.interrupt_next_) [[unlikely]]
      return interrupted_at_once();
    return true;
  }
  [[nodiscard]] bool interrupted_at_once();
  void fire();
  [[nodiscard]] Process::promise_type& owner() const { return *owner_; }

  Environment* env_;
  Process::promise_type* owner_{nullptr};
  Wait* group_{nullptr};
  std::uint32_t slot_{kNoSlot};
  Wake wake_{Wake::kDone};
};

/// Common part of derived waits. `Self` gives `bool begin_now()`, true if there is nothing to wait
/// for, `void enqueue()`, called after it returned false, and `result()`. A wait that has a name
/// may be awaited again after it ended.
template <class Self>
class Awaitable : public Wait {
 public:
  [[nodiscard]] bool await_ready() {
    wake_ = Wake::kDone;
    return self().begin_now();
  }
  void await_suspend(Process::Handle who) {
    if (suspend(who.promise())) self().enqueue();
  }
  // Not nodiscard: clang would warn of each wait whose Wake nobody needs; a Held is by itself.
  decltype(auto) await_resume() { return self().result(); }

 protected:
  using Wait::Wait;
  ~Awaitable() override = default;

 private:
  Self& self() { return static_cast<Self&>(*this); }
};

/// A span of time; `co_await` gives a Wake. Made by Environment::timeout. One that would end after
/// Nanos::max() never ends by itself.
class Timeout final : public Awaitable<Timeout> {
 public:
  Timeout(Environment& env, Nanos delay) : Awaitable(env), delay_(delay) {}

 private:
  friend class Awaitable<Timeout>;
  friend class Group;
  [[nodiscard]] static bool begin_now() { return false; }
  void enqueue();
  [[nodiscard]] Wake result() const { return wake_; }
  void cancel() override;
  Nanos delay_;
};

/// Until a process has ended; at once if it already has. `co_await` gives a Wake.
class Joined final : public Awaitable<Joined> {
 public:
  Joined(Environment& env, ProcessId id) : Awaitable(env), id_(id) {}

 private:
  friend class Awaitable<Joined>;
  friend class Environment;
  friend class Group;
  [[nodiscard]] bool begin_now() const;
  void enqueue();
  [[nodiscard]] Wake result() const { return wake_; }
  void cancel() override;
  ProcessId id_;
  Joined* next_{nullptr};
};

/// The clock, the queue of events and the processes of one simulation.
class Environment final {
 public:
  static constexpr std::uint64_t kEventsMax = std::uint64_t{1} << 40;
  static constexpr std::uint32_t kPendingMax = std::uint32_t{1} << 24;
  static constexpr int kStartDepthMax = 64;

  Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  /// Destroys the frames of the processes that are left; nothing is granted or interrupted any
  /// more, and no process can be started (CHECKed). Resources and stores may be gone before.
  ~Environment();

  /// Time since the start.
  [[nodiscard]] Nanos now() const { return now_; }
  /// Waits `delay` >= 0; 0 lets everything else that is posted for now go first.
  [[nodiscard]] Timeout timeout(Nanos delay) { return {*this, delay}; }

  /// Runs the process up to its first wait (later, in order of posting, if processes start each
  /// other more than kStartDepthMax deep).
  ProcessId start(Process process);
  [[nodiscard]] bool alive(ProcessId id) const {
    return id.index < processes_.size() && processes_[id.index].generation == id.generation &&
           processes_[id.index].promise != nullptr;
  }
  [[nodiscard]] Joined joined(ProcessId id) { return {*this, id}; }
  /// Ends the wait of a process with Wake::kInterrupted, at the present time in order of posting.
  /// False, and nothing happens, if it has ended, does not wait (it is the caller, or was not
  /// begun) or is being interrupted already.
  bool interrupt(ProcessId id);
  /// As interrupt(), but the first wait of a process that runs now (it has started the caller, say)
  /// will end at once: for who takes something away that the process believes it holds.
  void preempt(ProcessId id);
  /// The process that runs now; a default ProcessId outside of processes.
  [[nodiscard]] ProcessId active() const { return active_; }

  /// Runs until nothing is left to happen, or stop().
  void run() { run_until(Nanos::max()); }
  /// Runs the events before `until`, then sets the clock to it (unless it is Nanos::max(), or
  /// stop() was called: then the clock stays at the last event).
  void run_until(Nanos until);
  /// Makes run() return after the present event. The next run() goes on.
  void stop() { stopping_ = true; }

  /// Events that have happened; a grant at once is none.
  [[nodiscard]] std::uint64_t event_count() const { return events_; }
  [[nodiscard]] std::size_t process_count() const { return process_count_; }
  [[nodiscard]] bool closing() const { return closing_; }
  [[nodiscard]] FramePool& frames() { return frames_; }

  // For waits, resources and stores.
  void post_at(Wait& wait, Nanos at);
  /// Lets the wait end now, after everything else that was posted for now.
  void post(Wait& wait);
  void withdraw(Wait& wait);

 private:
  friend class Wait;
  friend class Joined;
  friend class Process::promise_type;

  /// Ordered by time, then by sequence number; the slot takes the low 24 bits.
  struct Entry {
    std::int64_t at{0};
    std::uint64_t sequence_and_slot{0};
    friend bool operator<(const Entry& a, const Entry& b) { return a.key() < b.key(); }
    /// One comparison of 128 bits, without a branch; `at` is never negative.
    [[nodiscard]] UnsignedWide key() const {
      return (static_cast<UnsignedWide>(static_cast<std::uint64_t>(at)) << 64) | sequence_and_slot;
    }
    [[nodiscard]] std::uint32_t slot() const {
      return static_cast<std::uint32_t>(sequence_and_slot) & (kPendingMax - 1);
    }
  };
  struct Slot {
    Wait* what{nullptr};
    std::uint32_t position{0};  // in the heap; kInRing; or the next free slot
  };
  static constexpr std::uint32_t kInRing = UINT32_MAX;
  struct Positions {
    Environment* env;
    void moved(const Entry& entry, std::size_t position) const {
      env->slots_[entry.slot()].position = static_cast<std::uint32_t>(position);
    }
  };
  class Beginning;  // of a process that could not run at once
  struct Row {
    Row();
    Row(Row&&) noexcept;
    Row& operator=(Row&&) = delete;
    ~Row();
    Process::promise_type* promise{nullptr};
    std::uint32_t generation{0};
    std::uint32_t next_free{UINT32_MAX};
    Joined* joined{nullptr};
    Joined* joined_last{nullptr};
    std::unique_ptr<Beginning> beginning;
  };
  [[nodiscard]] Entry enter(Wait& wait, Nanos at);
  [[nodiscard]] bool take_next(Nanos until, Entry& entry);
  void resume(Process::promise_type& promise) {
    const ProcessId before = std::exchange(active_, promise.id_);
    promise.pending_ = nullptr;
    Process::Handle::from_promise(promise).resume();
    active_ = before;
  }
  void enroll(Process::promise_type& promise);
  void ended(Process::promise_type& promise);
  void grow_ring();

  Nanos now_{0};
  std::uint64_t sequence_{0};
  std::uint64_t events_{0};
  ProcessId active_{};
  bool stopping_{false}, closing_{false};
  int start_depth_{0};
  std::size_t process_count_{0};
  FramePool frames_;
  std::vector<Slot> slots_;
  std::uint32_t free_slot_{Wait::kNoSlot};
  Heap4<Entry, Positions> heap_;
  std::vector<Entry> ring_ = std::vector<Entry>(64);  // posted for now, in order; size a power of 2
  std::size_t ring_head_{0}, ring_count_{0};
  std::vector<Row> processes_;
  std::uint32_t free_process_{UINT32_MAX};
};

// ---- functions that have to be inline for speed ----

template <class... Args>
inline void* Process::promise_type::operator new(std::size_t bytes, Environment& env, Args&&...) {
  return env.frames().allocate(bytes);
}
template <class Self, class... Args>
requires(!std::same_as<std::remove_cvref_t<Self>, Environment>) inline void* Process::promise_type::
operator new(std::size_t bytes, Self&&, Environment& env, Args&&...) {
  return env.frames().allocate(bytes);
}
inline Process::promise_type::~promise_type() {
  if (id_.index != UINT32_MAX) env_.ended(*this);
}

inline void Wait::fire() {
  if (group_ != nullptr) return group_->child_done(*this);
  env_->resume(*owner_);
}

inline Environment::Entry Environment::enter(Wait& wait, Nanos at) {
  std::uint32_t slot = free_slot_;
  if (slot != Wait::kNoSlot) {
    free_slot_ = slots_[slot].position;
  } else {
    slot = static_cast<std::uint32_t>(slots_.size());
    CHECK(slot < kPendingMax);
    slots_.emplace_back();
  }
  slots_[slot].what = &wait;
  wait.slot_ = slot;
  CHECK(sequence_ < kEventsMax);
  return {at.count(), (sequence_++ << 24) | slot};
}

inline void Environment::post_at(Wait& wait, Nanos at) {
  if (at <= now_) return post(wait);
  heap_.push(enter(wait, at));
}

inline void Environment::post(Wait& wait) {
  if (ring_count_ == ring_.size()) grow_ring();
  const Entry entry = enter(wait, now_);
  slots_[entry.slot()].position = kInRing;
  ring_[(ring_head_ + ring_count_++) & (ring_.size() - 1)] = entry;
}

inline void Timeout::enqueue() {
  CHECK(delay_ >= Nanos{0});
  const Nanos now = env_->now();
  env_->post_at(*this, delay_ < Nanos::max() - now ? now + delay_ : Nanos::max());
}
inline void Timeout::cancel() {
  env_->withdraw(*this);
}

}  // namespace kansoku::simulate::des
