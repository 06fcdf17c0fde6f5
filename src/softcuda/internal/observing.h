// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "cuda/abi.h"
#include "gpu/exec/observation.h"
#include "softcuda/telemetry/observed.h"

namespace kansoku::softcuda {

/// The record of launches, as it is handed out (telemetry/observed.h).
struct SeenSections {
  std::vector<ObservedSummary> summary;
  std::vector<ObservedHazard> hazards;
  std::vector<ObservedProfile> profile;
  std::vector<ObservedClass> classes;
  std::vector<ObservedLine> lines;
  std::string text;
};

/// The last arguments of kansoku_softgpu_observed.
struct ItemsOut {
  void* items{nullptr};
  std::uint64_t item_bytes{0}, capacity{0};
  std::uint64_t* count{nullptr};
};
[[nodiscard]] cuda::CUresult hand_out(const SeenSections& seen, std::uint32_t section,
                                      const ItemsOut& out);

/// Adds launches up while a program looks. Any thread.
class SeenLaunches {
 public:
  static constexpr std::size_t kLinesMax = std::size_t{1} << 20;
  /// `lines_max`: of all kernels together; those beyond are counted.
  explicit SeenLaunches(std::uint32_t what, std::size_t lines_max = kLinesMax)
      : what_(what), lines_max_(lines_max) {}
  [[nodiscard]] bool wants_hazards() const { return (what_ & kObserveHazards) != 0; }
  [[nodiscard]] bool wants_profile() const { return (what_ & kObserveProfile) != 0; }
  /// A launch that has ended, in a fault or not.
  void add(const std::string& kernel, const gpu::exec::Observations& seen);
  [[nodiscard]] SeenSections sections() const;

 private:
  void add_lines(const std::string& kernel, const gpu::exec::Profile& profile);

  const std::uint32_t what_;
  const std::size_t lines_max_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::uint64_t launches_{0}, hazard_count_{0}, lines_left_out_{0};
  std::size_t line_count_{0};
  std::vector<gpu::exec::Fault> hazards_;
  std::set<std::tuple<std::string, gpu::exec::FaultKind, std::uint32_t, std::uint32_t>> known_;
  ObservedProfile profile_{};
  std::array<gpu::exec::InstructionCount,
             static_cast<std::size_t>(gpu::exec::InstructionClass::kCount)>
      classes_{};
  std::map<std::string, std::map<std::uint32_t, gpu::exec::InstructionCount>> lines_;
};

/// A program looks at the launches of a device, or has looked. Any thread.
class Observing {
 public:
  void begin(std::uint32_t what);
  void end();
  /// A launch that begins now adds itself to this; null, at the price of one load, while nobody
  /// looks.
  [[nodiscard]] std::shared_ptr<SeenLaunches> current() const {
    if (!is_on_.load(std::memory_order_acquire)) return nullptr;
    const std::scoped_lock lock(mutex_);
    return current_;
  }
  /// NOT_READY before the end, NOT_FOUND before the first begin.
  [[nodiscard]] cuda::CUresult seen(std::shared_ptr<const SeenSections>& out) const;

 private:
  std::atomic<bool> is_on_{false};
  mutable std::mutex mutex_;
  std::shared_ptr<SeenLaunches> current_;     // guarded by mutex_; null: nobody looks
  std::shared_ptr<const SeenSections> seen_;  // guarded by mutex_; null: nothing is ready
};

}  // namespace kansoku::softcuda
