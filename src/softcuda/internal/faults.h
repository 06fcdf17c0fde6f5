// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/time.h"

namespace kansoku::softcuda {

// Faults on demand, for tests of programs that watch a device: $KANSOKU_SOFTGPU_FAULT.

inline constexpr char kFaultVariable[] = "KANSOKU_SOFTGPU_FAULT";

enum class FaultAt : std::uint8_t { kCall, kKernel, kCopy, kFill };
enum class FaultAction : std::uint8_t { kError, kHang, kSlow, kCrash };

struct FaultRule {
  FaultAt at{FaultAt::kCall};
  std::string name;        // function; pattern of kernels; direction of copies, or empty: all
  std::uint64_t first{1};  // the how manieth, from 1
  bool goes_on{false};     // later ones, too
  FaultAction action{FaultAction::kError};
  int error{0};        // kError
  Nanos time{0};       // kSlow
  std::string until;   // kHang: goes on when this file is there; empty: never
  int signal{0};       // kCrash
  std::string text{};  // as it was set
};

/// Rules of a setting, divided by semicolons: WHERE:WHEN:WHAT. `is_function` knows the names of
/// functions. kCorrupt names the rule and its mistake.
[[nodiscard]] Result<std::vector<FaultRule>> faults_from(
    std::string_view setting, const std::function<bool(std::string_view)>& is_function);

/// Rules, with counts of the events that they wait for. Any thread.
class Faults {
 public:
  explicit Faults(std::vector<FaultRule> rules);
  struct Due {
    const FaultRule* rule{nullptr};  // null: none
    std::uint64_t number{0};
  };
  /// Counts; the first rule whose turn it is. `name` as in the rule; of a kernel: its own.
  [[nodiscard]] Due due(FaultAt at, std::string_view name);

 private:
  struct Counted {
    FaultRule rule;
    std::atomic<std::uint64_t> seen{0};
  };
  std::deque<Counted> rules_;
};

/// Waits, unless `cancel` (may be null) becomes true: so long, or until the file is there.
void wait_for_fault(const FaultRule& rule, const std::atomic<bool>* cancel);

/// The process's own rule whose turn it is: said in the log, and a crash is done. Null: none.
[[nodiscard]] const FaultRule* fault_due(FaultAt at, std::string_view name);
/// Error in the process's setting of faults, if any.
[[nodiscard]] Result<void> check_fault_setting();

}  // namespace kansoku::softcuda
