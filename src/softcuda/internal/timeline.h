// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "common/time.h"

namespace kansoku::softcuda {

/// Engine of a device, which works by itself; each does one thing at a time, in the order in which
/// the program asked for it. Kernels share the multiprocessors.
enum class Engine : std::uint8_t {
  kNone,  // waits for nobody
  kCompute,
  kCopyIn,
  kCopyOut,
  kCopyWithin,
  kCopyPeer,
  kCount
};

/// An operation of a stream, in virtual time.
struct Moment;

/// When a part could begin, took its engine, and ended.
struct Span {
  std::uint64_t ready{0}, begin{0}, end{0};
};

/// Work of one operation, or of one node of a graph.
struct Part {
  Engine engine{Engine::kNone};
  std::uint32_t sm_count{0};  // kCompute: how many of them
  std::uint64_t lead_ns{0};   // before the engine is taken
  std::uint64_t ns{0};
  std::vector<std::uint32_t> after;  // earlier parts of the operation; it begins with it if empty
  std::shared_ptr<Moment> outside;   // null, or another operation that it waits for
  std::shared_ptr<std::atomic<std::uint64_t>> stamp;  // null, or receives its end
  std::function<void(const Span&)> placed;  // empty, or told when it is known; locks are held
};

/// Virtual time of the process: when each operation begins and ends, if it lasts as long as its
/// parts say, and what time the host has. Operations take the engines of their device in the order
/// of submission, whichever ran first in truth: the times depend on the program alone. So they are
/// known only when everything that was submitted before has run. Any thread.
///
/// Work submitted before may itself wait for the asker (a kernel for a flag that the host sets
/// later). So the asker waits, in truth, no longer than the patience, and a tenth of it if one of
/// them waits for a value in memory. Then those that have not run are left out and take their turn
/// when they have: a guess, as these times depend on the faster one.
class Timeline {
 public:
  static constexpr Nanos kPatience = std::chrono::seconds{10};
  struct Options {
    std::size_t device_count{1};
    std::uint32_t sm_count{1};
    Nanos patience{kPatience};
    std::function<void()> on_guess;  // with every lock held; may be empty
  };
  explicit Timeline(Options options);

  /// It begins when all of `after` (null ones are none) have ended, and not before the host's time.
  [[nodiscard]] std::shared_ptr<Moment> submit(std::size_t device,
                                               std::vector<std::shared_ptr<Moment>> after);
  /// It waits for a value in memory.
  void note_wait(Moment& moment);
  /// It has run. Once for every operation, in whichever order.
  void finish(const std::shared_ptr<Moment>& moment, std::vector<Part> parts);
  /// When it ends; waits until that is known. For one that has run.
  [[nodiscard]] std::uint64_t end_of(const std::shared_ptr<Moment>& moment);
  /// The host waited for it: its time is not earlier than its end.
  void reach(const std::shared_ptr<Moment>& moment);
  /// When `next` of a running operation takes its engine, behind its parts so far.
  [[nodiscard]] std::uint64_t begin_of(const std::shared_ptr<Moment>& moment,
                                       const std::vector<Part>& so_far, const Part& next);
  [[nodiscard]] std::uint64_t host_ns() const;

 private:
  /// Until when the engines of a device are taken.
  struct Engines {
    std::vector<std::uint64_t> sms;  // ascending
    std::array<std::uint64_t, static_cast<std::size_t>(Engine::kCount)> free{};
  };
  struct OfDevice {
    Engines engines;
    std::deque<std::shared_ptr<Moment>> pending;  // in the order of submission
    std::vector<std::shared_ptr<Moment>> late;    // left out, have run since
  };
  static Span place(Engines& engines, const Part& part, std::uint64_t ready);
  static std::vector<Span> place_all(Engines& engines, const std::vector<Part>& parts,
                                     std::uint64_t begin);
  [[nodiscard]] static bool is_known(const Moment& moment);
  [[nodiscard]] static std::uint64_t begin_of(const Moment& moment);
  void settle(Moment& moment);
  void settle_in_order();
  /// Until `is_done`, or patience is over: then leaves out all work before the moment.
  void wait(std::unique_lock<std::mutex>& lock, const Moment& moment,
            const std::function<bool()>& is_done);

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable settled_;
  std::vector<OfDevice> devices_;  // guarded by mutex_
  std::uint64_t submitted_{0};     // guarded by mutex_
  std::uint64_t host_ns_{0};       // guarded by mutex_
};

}  // namespace kansoku::softcuda
