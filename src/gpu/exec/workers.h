// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace kansoku::gpu::exec {

struct WorkersCall;

/// Threads that execute the blocks of launches, kept from one launch to the next: making a thread
/// costs more than most small kernels. They block all signals and wait without using the processor.
/// There are as many as were ever needed at once, since a cooperative launch may wait for blocks of
/// each of its threads. Any thread.
class Workers {
 public:
  Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  /// Ends the threads; no Helpers may be left.
  ~Workers();

 private:
  friend class Helpers;
  struct State;
  std::unique_ptr<State> state_;
};

/// The threads that help the calling one with its work, started once they are worth it: to wake one
/// costs as much as a small kernel. Used by one thread. `work` must outlive it and must not throw.
class Helpers {
 public:
  enum class Share : std::uint8_t {
    kOfAll,   // each index has work of its own
    kOfRest,  // the indices share work: once the caller finds none left, no other has to begin
  };

  Helpers(Workers& workers, Share share, const std::function<void(std::uint64_t)>& work);
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;
  ~Helpers();

  /// Calls work(1) to work(count - 1) on threads. Once.
  void start(std::uint64_t count);
  /// Returns when all that began have returned.
  void finish();

 private:
  Workers::State& state_;
  const Share share_;
  std::unique_ptr<WorkersCall> call_;
};

}  // namespace kansoku::gpu::exec
