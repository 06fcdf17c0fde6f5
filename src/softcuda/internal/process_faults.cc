// SPDX-License-Identifier: Apache-2.0
// The faults that the process was started with.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <utility>

#include "softcuda/internal/entry_table.h"
#include "softcuda/internal/faults.h"
#include "softcuda/telemetry/log.h"

/// Asked by every stub (tools/cuda_stubs.py): 0 unless there is a setting.
extern "C" {
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
__attribute__((visibility("hidden"))) unsigned char softgpu_faults_set = 0;
}

namespace kansoku::softcuda {
namespace {

/// Before the program's first call.
__attribute__((constructor)) void look_for_faults() {
  const char* const set = std::getenv(kFaultVariable);
  softgpu_faults_set = set != nullptr && *set != '\0' ? 1 : 0;
}

struct ProcessFaults {
  Result<void> status;
  std::unique_ptr<Faults> faults;  // null: none, or the setting is wrong
};

ProcessFaults read_setting() {
  const char* const set = std::getenv(kFaultVariable);
  if (set == nullptr || *set == '\0') return {};
  auto rules = faults_from(set, [](std::string_view name) {
    return std::any_of(kCodeNames, kCodeNames + kCodeNameCount,
                       [&](const char* known) { return name == known; });
  });
  if (!rules) return {rules.error(), nullptr};
  return {Result<void>{}, std::make_unique<Faults>(std::move(*rules))};
}

/// Never destroyed: threads may call until the very last.
const ProcessFaults& process_faults() {
  static const ProcessFaults& once = *std::make_unique<ProcessFaults>(read_setting()).release();
  return once;
}

}  // namespace

const FaultRule* fault_due(FaultAt at, std::string_view name) {
  if (softgpu_faults_set == 0 || process_faults().faults == nullptr) return nullptr;
  const auto [rule, number] = process_faults().faults->due(at, name);
  if (rule == nullptr) return nullptr;
  log_line(fmt::format("fault on demand, {} number {}: {}", name, number, rule->text));
  if (rule->action == FaultAction::kCrash) static_cast<void>(std::raise(rule->signal));
  return rule;
}

Result<void> check_fault_setting() {
  return process_faults().status;
}

/// Called by the stub of an implemented function while there is a setting: the result that the
/// program gets instead of the call, or -1.
extern "C" __attribute__((visibility("hidden"))) int softgpu_fault_of_call(unsigned index) {
  const FaultRule* const rule = fault_due(FaultAt::kCall, kCodeNames[index]);
  if (rule == nullptr || rule->action == FaultAction::kCrash) return -1;
  if (rule->action == FaultAction::kError) return rule->error;
  wait_for_fault(*rule, nullptr);
  return -1;
}

}  // namespace kansoku::softcuda
