// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace kansoku::softcuda {

// Counts of a process's real calls and of its devices' real work, to check a recording against:
// $KANSOKU_SOFTGPU_COUNTS, or a test that asks kansoku_softgpu_calls.

/// Kind of work of a device: a row each in the file.
enum class Done : std::uint8_t {
  kKernel,
  kCopyToDevice,
  kCopyToHost,
  kCopyOnDevice,
  kCopyOnHost,
  kFill,
  kHostFunction,
  kEvent,
  kValueWait,
  kValueWrite,
  kGraph,
  kCount
};
[[nodiscard]] std::string_view done_name(Done what);

/// Any thread.
class Counts {
 public:
  /// `functions`: how many the driver implements.
  explicit Counts(std::size_t functions);
  void add_call(std::size_t function) { ++calls_[function].calls; }
  void add_result(std::size_t function, int result) {
    if (result == 0) ++calls_[function].successes;
  }
  [[nodiscard]] std::uint64_t calls(std::size_t function) const { return calls_[function].calls; }
  /// Counts work that ended without an error.
  void add(Done what, std::uint64_t bytes);
  void add_kernel(std::string_view name);
  /// One line each, words divided by blanks: "call NAME CALLS SUCCESSES", "did WHAT COUNT BYTES",
  /// "kernel NAME COUNT"; only those that happened, in the order of the functions and of the names.
  [[nodiscard]] std::string text(const char* const* names) const;

 private:
  struct Calls {
    std::atomic<std::uint64_t> calls{0}, successes{0};
  };
  struct Sum {
    std::atomic<std::uint64_t> count{0}, bytes{0};
  };
  const std::size_t functions_;
  const std::unique_ptr<Calls[]> calls_;
  std::array<Sum, static_cast<std::size_t>(Done::kCount)> done_{};
  mutable std::mutex mutex_;
  std::map<std::string, std::uint64_t, std::less<>> kernels_;  // guarded by mutex_
};

/// Null unless the process counts. Its end writes the file, if one is set.
[[nodiscard]] Counts* process_counts();
void start_counting();

inline void count(Done what, std::uint64_t bytes = 0) {
  if (Counts* const counts = process_counts()) counts->add(what, bytes);
}

}  // namespace kansoku::softcuda
