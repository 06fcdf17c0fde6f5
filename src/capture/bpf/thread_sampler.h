// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/result.h"
#include "common/time.h"

namespace kansoku::capture::bpf {

/// Counts, in the kernel, where threads spend their processor time: a sample each kPeriod of their
/// own clock, by the kernel stack that it interrupts; and takes the address of one page fault of
/// kFaultsPerSample. Costs some microseconds a sample, of these threads alone. Single-threaded.
class ThreadSampler {
 public:
  static constexpr Nanos kPeriod{4'997'000};             // of no timer's rhythm
  static constexpr std::uint64_t kFaultsPerSample = 61;  // of no layout's rhythm
  static constexpr std::size_t kThreadsMax = 1024;

  /// Loads the program. kPermission without the rights for it, kUnavailable in a build without
  /// eBPF.
  [[nodiscard]] static Result<std::unique_ptr<ThreadSampler>> create();
  ~ThreadSampler();
  ThreadSampler(const ThreadSampler&) = delete;
  ThreadSampler& operator=(const ThreadSampler&) = delete;

  /// Samples thread `tid` from now on; nothing new if it is sampled already. kNotFound if it has
  /// ended, kLimit beyond kThreadsMax.
  [[nodiscard]] Result<void> watch(std::int32_t tid);
  /// Ends that; its counts stay.
  void forget(std::int32_t tid);

  struct Count {
    std::int32_t tid{0};
    std::int32_t stack{0};     // for frames(), or WIRE_IN_USER, WIRE_STACK_UNKNOWN
    std::uint64_t samples{0};  // since the thread is watched
  };
  /// All counts so far. Errors of the kernel only.
  [[nodiscard]] Result<std::vector<Count>> read();
  /// Addresses of the kernel's code, innermost first, at most WIRE_KERNEL_FRAMES; empty if unknown.
  [[nodiscard]] std::vector<std::uint64_t> frames(std::int32_t stack) const;
  struct Fault {
    std::int32_t tid{0};
    std::uint64_t address{0};
  };
  /// The sampled page faults since the last call, in their order. Errors of the kernel only.
  [[nodiscard]] Result<std::vector<Fault>> take_faults();
  /// Sampled faults for which there was no room.
  [[nodiscard]] std::uint64_t faults_lost() const;
  /// Samples that found no place to be counted at.
  [[nodiscard]] std::uint64_t lost() const;

 private:
  struct Impl;
  explicit ThreadSampler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kansoku::capture::bpf
