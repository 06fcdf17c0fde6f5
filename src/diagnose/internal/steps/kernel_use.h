// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "diagnose/internal/steps/job.h"
#include "diagnose/internal/steps/steps.h"
#include "trace/model.h"

namespace kansoku::diagnose {

/// A rank's main thread by the kernel's own counters: means a step.
struct KernelUse {
  double user_ms{0}, system_ms{0};    // of processor time
  double faults{0};                   // minor page faults
  std::vector<double> fault_parts{};  // of each step, over the mean step's
  // By sample of the main thread: faults between it and its neighbours, half of each; empty: not
  // known.
  std::vector<double> sample_faults{};
  std::map<std::string, double, std::less<>> fault_places{};  // by "in the heap": sampled faults
  double fault_system_ms{0};                                  // of system_ms, what goes with faults
  double fault_user_ms{0};  // of user_ms, what goes with faults (caches that they leave cold)
  // By samples of the thread's clock; 0 where they were not taken of all ranks.
  bool is_sampled{false};
  double page_fault_ms{0}, reclaim_ms{0}, interrupt_ms{0};
  double probe_ms{0};                                    // of observers, Kansoku among them
  double memory_call_ms{0};                              // brk, mmap and their kind
  std::map<std::string, double, std::less<>> call_ms{};  // other system calls
  [[nodiscard]] double fault_ms() const { return fault_system_ms + fault_user_ms; }
  /// On top of the thread, whatever it does: no function of the program takes it.
  [[nodiscard]] double outside_ms() const { return reclaim_ms + interrupt_ms + probe_ms; }
  [[nodiscard]] double calls_ms() const;
};

struct KernelUses {
  std::vector<KernelUse> ranks;  // by rank index; empty if it is not known of all of them
  double fault_us{0};            // system time of a page fault of the job; 0: not known
  double fault_user_us{0};       // user time that goes with one
  bool knows_user{false};        // fault_user_us: ranks of different numbers of faults tell it
  [[nodiscard]] double fault_ms(std::size_t rank) const {
    return rank < ranks.size() ? ranks[rank].fault_ms() : 0;
  }
};

/// From counters of the main threads while the steps ran. Samples of the thread's clock in faults
/// and in calls that take memory and give it back say how much system time goes with faults;
/// without samples a fault has the price that the recorder measured on its machine, and where that
/// explains most of a rank's system time, all of it goes with the faults. The user time of a fault
/// is the lower quartile of the slopes of user time over faults between ranks whose numbers of
/// faults differ by half of the greatest difference or more, at least 0 and at most
/// kFaultUserRatioMax.
[[nodiscard]] KernelUses read_kernel_use(const trace::Trace& trace, const JobData& job,
                                         const StepTable& steps, double mean_step_ms);

}  // namespace kansoku::diagnose
