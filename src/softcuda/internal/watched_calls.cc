// SPDX-License-Identifier: Apache-2.0
// Calls of a process that has faults on demand or counts what it does: the stubs ask here.
#include <fmt/format.h>

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

#include "common/no_destructor.h"
#include "softcuda/internal/counts.h"
#include "softcuda/internal/entry_table.h"
#include "softcuda/internal/faults.h"
#include "softcuda/internal/operation_log.h"
#include "softcuda/internal/runtime.h"
#include "softcuda/telemetry/log.h"

/// Asked by every stub (tools/cuda_stubs.py): 0 unless there is something to do.
extern "C" {
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
__attribute__((visibility("hidden"))) std::atomic<unsigned char> softgpu_calls_watched{0};
}

namespace kansoku::softcuda {
namespace {

constexpr char kCountsVariable[] = "KANSOKU_SOFTGPU_COUNTS";
constexpr char kOperationsVariable[] = "KANSOKU_SOFTGPU_OPERATIONS";
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<Counts*> g_counts{nullptr};
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<OperationLog*> g_log{nullptr};

bool is_set(const char* variable) {
  const char* const set = std::getenv(variable);
  return set != nullptr && *set != '\0';
}

/// A file for each process, as a job may have several.
void write_for_process(const char* variable, const std::string& text) {
  const char* const set = std::getenv(variable);
  if (set == nullptr) return;
  const std::string path = fmt::format("{}.{}", set, getpid());
  std::FILE* const file = std::fopen(path.c_str(), "we");
  const bool is_written =
      file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file == nullptr || std::fclose(file) != 0 || !is_written)
    log_line(fmt::format("{}: cannot be written", path));
}

void write_counts() {
  if (const Counts* const counts = process_counts())
    write_for_process(kCountsVariable, counts->text(kCodeNames));
}

void write_operations() {
  if (const OperationLog* const log = process_log())
    write_for_process(kOperationsVariable, log->text());
}

/// Before the program's first call.
__attribute__((constructor)) void look_at_settings() {
  if (is_set(kFaultVariable)) softgpu_calls_watched = 1;
  if (is_set(kOperationsVariable)) {
    g_log = std::make_unique<OperationLog>().release();  // as long as there are threads
    static_cast<void>(std::atexit(write_operations));
    // Work of the parent's devices is not the child's.
    pthread_atfork(nullptr, nullptr, [] { g_log = nullptr; });
  }
  if (!is_set(kCountsVariable)) return;
  start_counting();
  static_cast<void>(std::atexit(write_counts));
}

std::size_t index_of(std::string_view name) {
  return static_cast<std::size_t>(std::find_if(kCodeNames, kCodeNames + kCodeNameCount,
                                               [&](const char* known) { return name == known; }) -
                                  kCodeNames);
}

struct ProcessFaults {
  Result<void> status;
  std::unique_ptr<Faults> faults;  // null: none, or the setting is wrong
};

ProcessFaults read_setting() {
  if (!is_set(kFaultVariable)) return {};
  auto rules = faults_from(std::getenv(kFaultVariable),
                           [](std::string_view name) { return index_of(name) < kCodeNameCount; });
  if (!rules) return {rules.error(), nullptr};
  return {Result<void>{}, std::make_unique<Faults>(std::move(*rules))};
}

const ProcessFaults& process_faults() {
  static NoDestructor<ProcessFaults> once(read_setting());
  return once.get();
}

}  // namespace

const FaultRule* fault_due(FaultAt at, std::string_view name) {
  if (softgpu_calls_watched == 0 || process_faults().faults == nullptr) return nullptr;
  const auto [rule, number] = process_faults().faults->due(at, name);
  if (rule == nullptr) return nullptr;
  log_line(fmt::format("fault on demand, {} number {}: {}", name, number, rule->text));
  if (rule->action == FaultAction::kCrash) static_cast<void>(std::raise(rule->signal));
  return rule;
}

Result<void> check_fault_setting() {
  return process_faults().status;
}

Counts* process_counts() {
  return g_counts.load(std::memory_order_acquire);
}

OperationLog* process_log() {
  return g_log.load(std::memory_order_acquire);
}

void start_counting() {
  static std::once_flag once;
  std::call_once(once, [] {
    g_counts = std::make_unique<Counts>(kCodeNameCount).release();  // as long as there are threads
    softgpu_calls_watched = 1;
  });
}

/// Called by the stub of an implemented function while calls are watched: the result that the
/// program gets instead of the call, or -1.
extern "C" __attribute__((visibility("hidden"))) int softgpu_call_begins(unsigned index) {
  if (Counts* const counts = process_counts()) counts->add_call(index);
  const FaultRule* const rule = fault_due(FaultAt::kCall, kCodeNames[index]);
  if (rule == nullptr || rule->action == FaultAction::kCrash) return -1;
  if (rule->action == FaultAction::kError) return rule->error;
  wait_for_fault(*rule, nullptr);
  return -1;
}

/// Called behind the function's code.
extern "C" __attribute__((visibility("hidden"))) void softgpu_call_ends(unsigned index,
                                                                        int result) {
  if (Counts* const counts = process_counts()) counts->add_result(index, result);
}

/// Kansoku's own, for tests: how often a function was called since the first question. -1: there is
/// no such function.
extern "C" long kansoku_softgpu_calls(const char* name) {
  start_counting();
  const std::size_t index = index_of(name);
  return index < kCodeNameCount ? static_cast<long>(process_counts()->calls(index)) : -1;
}

}  // namespace kansoku::softcuda
