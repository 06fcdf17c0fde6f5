// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "capture/python/internal/code_cache.h"
#include "capture/python/internal/snapshot.h"
#include "capture/python/offsets.h"
#include "capture/python/sampler.h"

namespace kansoku::capture::python {

/// Walks interpreters, threads and frames of one process, given its memory. Each sample first
/// fetches, in one call, every place that the last one visited; only places that moved cost more
/// calls.
class StackReader {
 public:
  struct FrameRef {
    std::uint64_t address{0};
    std::uint64_t previous{0};
    std::uint64_t code_address{0};
    std::uint64_t instruction{0};
    const CodeObject* code{nullptr};  // null for a frame of the interpreter's own
    std::uint32_t line{0};
    bool is_shim{false};
  };
  /// A PyThreadState and its stack.
  struct Thread {
    std::uint64_t address{0};
    std::uint64_t thread_id{0};  // pthread_t
    std::uint64_t native_id{0};  // in the target's pid namespace; 0 if unknown
    bool is_main{false};         // told before 3.11 only
    bool holds_gil{false};
    bool torn{false};
    bool truncated{false};
    bool is_retry{false};
    bool awaits_caller{false};     // the next frame must wait for the one just taken
    bool moved{false};             // it ran on while it was read
    std::vector<FrameRef> frames;  // innermost first

    enum class Step { kWalking, kNaming, kDone };
    Step step{Step::kDone};
    bool rechecks{false};  // a call was needed after the one that read the thread itself
    std::uint64_t interpreter{0};
    std::uint64_t cframe{0};  // 3.11, 3.12
    std::uint64_t top{0};     // the first frame, when the walk began
    std::uint64_t after{0};   // the first frame, when the walk had ended
    std::uint64_t cursor{0};  // the frame to read next
    std::uint64_t asked{0};   // the last fetch, to notice a lack of progress
    std::uint64_t cycle_mark{0};
  };

  StackReader(RemoteMemory& memory, const Layout& layout, std::uint64_t runtime,
              Process::Options options);

  /// kNotFound if the runtime cannot be read: the process is gone or runs another program.
  [[nodiscard]] Result<void> sample();
  /// Threads of the last sample, newest first; those with `torn` have no usable stack.
  [[nodiscard]] const std::vector<Thread>& threads() const { return threads_; }
  /// False while the interpreter has not made its first thread state.
  [[nodiscard]] bool is_initialised() const { return initialised_; }
  /// True for an address inside of an interpreter's lock, as the last sample saw it: a thread that
  /// waits there waits for the right to run Python.
  [[nodiscard]] bool is_in_lock(std::uint64_t address) const;
  /// Threads that were in a list but did not look like a thread state, in the last sample.
  [[nodiscard]] std::uint32_t broken_lists() const { return broken_lists_; }
  [[nodiscard]] const Process::Counters& counters() const { return counters_; }

 private:
  struct Interpreter {
    std::uint64_t address{0};
    std::uint64_t gil{0};     // address of the lock, from 3.12
    std::uint64_t holder{0};  // the thread that holds it
  };

  void want_speculatively();
  void want_interpreter(const Interpreter& interpreter);
  void want_thread(const Thread& thread);
  void want_frames(const Thread& thread, Snapshot& snapshot);
  void want_frame_near(std::uint64_t address);

  void read_lists();
  [[nodiscard]] bool list_interpreters();
  [[nodiscard]] bool list_threads(const Interpreter& interpreter);
  void adopt_listed();
  [[nodiscard]] bool start_walk(Thread& thread);

  void read_stacks();
  void walk_all();
  [[nodiscard]] bool walk(Thread& thread);
  [[nodiscard]] bool take_frame(Thread& thread);
  [[nodiscard]] bool parse_frame(const std::byte* bytes, std::uint64_t address,
                                 FrameRef& frame) const;
  [[nodiscard]] bool waits_for_callee(const std::byte* frame) const;
  [[nodiscard]] bool has_cycle(Thread& thread) const;
  void recheck_all();
  [[nodiscard]] std::uint64_t top_field(const Thread& thread) const;
  void keep_unchanged(Thread& thread, const Snapshot& again) const;
  [[nodiscard]] bool is_consistent(Thread& thread);
  void name_all();
  [[nodiscard]] bool name_frames(Thread& thread);
  void retry_torn();
  void fail(Thread& thread) const;
  void count_losses();

  const Layout layout_;
  const std::uint64_t runtime_;
  const Process::Options options_;
  const std::size_t thread_bytes_;
  const std::size_t frame_bytes_;
  Snapshot snapshot_;
  Snapshot loader_;
  CodeCache codes_;
  std::vector<Interpreter> interpreters_;
  std::vector<Thread> threads_, previous_threads_;
  struct Listed {
    std::uint64_t address{0}, interpreter{0}, holder{0};
  };
  std::vector<Listed> listed_;
  std::vector<std::uint64_t> addresses_;  // scratch
  std::uint64_t threads_skipped_{0};
  std::uint64_t holder_{0};  // up to 3.11
  std::uint64_t main_thread_id_{0};
  std::uint32_t broken_lists_{0};
  bool initialised_{false};
  Process::Counters counters_;
};

}  // namespace kansoku::capture::python
