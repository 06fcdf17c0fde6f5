// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/diagnose.h"
#include "trace/model.h"

namespace kansoku::diagnose {

/// Fault of one rank of a synthetic job.
struct Fault {
  enum class Kind : std::uint8_t {
    kNone,
    kInputSleep,    // the data set sleeps
    kForwardBusy,   // the model computes
    kBackwardBusy,  // before the first bucket is ready: hidden by the reduction
    kOptimizerBusy,
    kCheckpoint,   // between steps, every `every` steps
    kWorkerSleep,  // in a data-loader worker; the rank waits for it
    kLockWait,     // sleeps between steps until thread pid + 77 of its process wakes it
    kQueueing,     // the processor is taken away; no function changes
    kHang,         // from step `every` on the rank never issues again
  };
  Kind kind{Kind::kNone};
  std::int32_t rank{-1};  // -1: every rank
  double cost_ms{0};
  int every{1};
  int from{0};  // the first step that has it
};

/// A DistributedDataParallel job, simulated: ranks compute for themselves and meet in the gradient
/// buckets of each backward, whose reductions start when the last rank has arrived.
struct SyntheticJob {
  int rank_count{4};
  int step_count{120};
  std::uint64_t seed{1};
  double input_ms{3}, forward_ms{12}, backward_ms{20}, optimizer_ms{4}, other_ms{1};
  double transfer_ms{2};
  int bucket_count{3};
  double jitter{0.05};         // relative, uniform in [-jitter, +jitter], each piece on its own
  double data_jitter{0};       // likewise, of forward and backward of a rank and step together
  int idle_rank{-1};           // has nearly nothing to compute
  double optimizer_jitter{0};  // likewise, of the optimizer
  double queue_mean_ms{0};     // mean processor queueing per piece, exponential
  double sample_hz{25};
  int accumulation{1};            // backward passes per step; only the last one communicates
  int evaluate_every{0};          // 0: never; else input events of an evaluation after that step
  bool has_own_optimizer{false};  // rank 0 calls its optimizer differently
  bool has_closure{false};        // optimizer.step runs forward and backward
  double closure_zero_ms{0};      // zero_grad between those, if positive
  int worker_count{1};            // of each rank's data loader, with kWorkerSleep; all are as busy
  bool trains_beside{false};      // in a thread that is not the process's first
  int collective_steps{-1};       // so many first steps hold collectives; -1: all
  bool has_step_slices{true};
  bool has_seq{true};
  bool has_sched{true};
  bool has_samples{true};
  bool has_finalize{true};
  int cut_first_collectives{0};  // collectives of rank 1 that the recording missed at its start
  std::string wait_call{"futex"}, wait_on{};  // of kLockWait, as samples see it
  std::uint32_t wait_state{1};                // of kLockWait: the kernel's task state
  int noise_slices{0};                        // slices of other categories
  std::vector<std::int32_t> rank_numbers{};   // empty: 0, 1, ...
  bool tells_ranks{true};                     // false: processes without rank and job
  std::vector<Fault> faults{};
};

[[nodiscard]] trace::Trace make_trace(const SyntheticJob& job);

/// Adds the processors and the memory that process `pid` may use, as a recorder does.
void add_limits(trace::Trace& trace, std::int32_t pid, std::string_view cpus,
                std::uint64_t cpu_count, std::uint64_t host_count = 8,
                std::string_view memory_group = "", std::uint64_t memory_limit = 0);

/// A rank's main thread as the kernel counts it, a step.
struct KernelCounters {
  double faults{0}, system_ms{0}, user_ms{30};
  std::map<std::string, double> sampled_ms{};  // by "page faults", "call read"
  double unknown_ms{0};                        // sampled, without a stack
  double from{0};  // part of the recording after which faults and system time begin
  std::map<std::string, double> places{};  // faults by "in the heap"
};
/// Adds them as a recorder writes them, once a second; of the first ranks only, if there are fewer.
void add_kernel_counters(trace::Trace& trace, const std::vector<KernelCounters>& ranks,
                         double step_ms);

/// Adds the page faults of the main threads at each of their samples: `faults` before each sample
/// with a frame `function`, in the process `pid` or in all (0).
void add_faults_at_stacks(trace::Trace& trace, std::int32_t pid, std::string_view function,
                          double faults);

/// The kinds of the findings, in their order.
[[nodiscard]] std::vector<std::string> kinds_of(const Diagnosis& diagnosis);

/// Puts the functions `calls` of `file` below `function` in the samples of `trace`, by turns.
void split_samples(trace::Trace& trace, std::string_view function,
                   std::initializer_list<std::string_view> calls, std::string_view file);

}  // namespace kansoku::diagnose
