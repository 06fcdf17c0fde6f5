// SPDX-License-Identifier: Apache-2.0
#include "gpu/activity/planted_for_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/rng.h"

namespace kansoku::gpu::activity {
namespace {

/// One rank: a host that issues work, and a device that does it in order.
class Loop {
 public:
  Loop(const Plan& plan, std::int32_t rank, Recording& out)
      : plan_(plan),
        rank_(rank),
        pid_(100 + rank),
        out_(out),
        rng_(plan.seed * 100 + static_cast<std::uint64_t>(rank) + 1) {}
  std::vector<Recording::Span> run();

 private:
  void step(int index);
  void begin_of_step();
  void kernels_of_step();
  void launch(std::string name, double us, double call_us, const char* dims = nullptr);
  void copy();
  void wait();
  void allocate();
  void fail();
  void memory(int index);
  double noisy(double us) {
    return us * (0.99 + 0.02 * static_cast<double>(rng_.below(1001)) / 1000);
  }

  const Plan& plan_;
  std::int32_t rank_, pid_;
  Recording& out_;
  Rng rng_;
  double host_us_{1000}, device_us_{0}, copy_until_us_{0};
  double live_bytes_{64 << 20}, pool_{0};
  bool is_dead_{false};
};

void Loop::launch(std::string name, double us, double call_us, const char* dims) {
  const double begin_us = std::max(device_us_, host_us_ + plan_.begin_us);
  if (dims != nullptr)
    out_.host(pid_, pid_, "cpu_op", "aten::mm", {host_us_, host_us_ + call_us},
              {{"Input Dims", dims}});
  out_.kernel(pid_, 7, name, {host_us_, host_us_ + call_us}, {begin_us, begin_us + us},
              {{"grid", "16,1,1"}, {"block", "128,1,1"}});
  host_us_ += call_us;
  device_us_ = begin_us + us;
}

void Loop::copy() {
  constexpr std::int64_t kCorrelationOfCopies = 1'000'000;
  const std::uint64_t correlation =
      static_cast<std::uint64_t>(kCorrelationOfCopies) + static_cast<std::uint64_t>(host_us_);
  const Recording::Args args{{"correlation", static_cast<std::int64_t>(correlation)}};
  const Recording::Args of_op{
      {"bytes", 1 << 20}, {"kind", "HtoD"}, {"pageable", plan_.copies_beside ? 0 : 1}};
  if (plan_.copies_beside) {
    const double begin_us = std::max(copy_until_us_, host_us_ + plan_.begin_us);
    out_.call(pid_, "cudaMemcpyAsync", {host_us_, host_us_ + 5}, args);
    out_.op(pid_, 9, "gpu_memcpy", "Memcpy HtoD", {begin_us, begin_us + plan_.copy_us}, correlation,
            of_op);
    copy_until_us_ = begin_us + plan_.copy_us;
    host_us_ += 5;
  } else {
    const double begin_us = std::max(device_us_, host_us_ + plan_.begin_us);
    device_us_ = begin_us + noisy(plan_.copy_us);
    out_.call(pid_, "cudaMemcpy", {host_us_, device_us_ + 2}, args);
    out_.op(pid_, 7, "gpu_memcpy", "Memcpy HtoD", {begin_us, device_us_}, correlation, of_op);
    host_us_ = device_us_ + 2;
  }
}

void Loop::wait() {
  const double end_us = std::max(device_us_, host_us_) + 2;
  out_.call(pid_, "cudaStreamSynchronize", {host_us_, end_us});
  host_us_ = end_us;
}

/// A buffer that lives for a moment. Its release waits for the device, as cudaFree does.
void Loop::allocate() {
  const double half_us = plan_.allocation_us / 2;
  out_.call(pid_, "cudaMalloc", {host_us_, host_us_ + half_us}, {{"bytes", 4096}});
  host_us_ += half_us;
  const double end_us = std::max(device_us_, host_us_) + half_us;
  out_.call(pid_, "cudaFree", {host_us_, end_us}, {{"bytes", 4096}});
  host_us_ = end_us;
}

void Loop::fail() {
  out_.host(pid_, pid_, "python_function", "model.py(40): grow", {host_us_, host_us_ + 30});
  out_.call(pid_, "cudaMalloc", {host_us_ + 5, host_us_ + 20},
            {{"bytes", std::int64_t{1} << 34}, {"ret", 2}});
  host_us_ += 30;
  is_dead_ = !plan_.survives;
}

void Loop::begin_of_step() {
  const auto in_host = [&](const char* category, const char* name, double us) {
    out_.host(pid_, pid_, category, name, {host_us_, host_us_ + us});
    host_us_ += us;
  };
  if (plan_.loader_us > 0 && !plan_.loads_beside) {
    in_host("step", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
            noisy(plan_.loader_us));
  }
  if (plan_.lock_us > 0 && !plan_.locks_elsewhere)
    in_host("os_runtime", "pthread_mutex_lock", noisy(plan_.lock_us));
  if (plan_.lock_us > 0 && plan_.locks_elsewhere) {
    out_.host(pid_, pid_ + 1000, "os_runtime", "pthread_mutex_lock",
              {host_us_, host_us_ + plan_.lock_us});
  }
  if (plan_.copy_us > 0 && !plan_.copies_beside) copy();
}

void Loop::kernels_of_step() {
  const bool is_slow_rank = rank_ == plan_.slow_rank || rank_ == plan_.other_slow_rank;
  const bool has_own = is_slow_rank && plan_.slow_tiny_launch_us > 0;
  for (int i = 0; i < plan_.tiny_kernels; ++i)
    launch("tiny", plan_.tiny_us, has_own ? plan_.slow_tiny_launch_us : plan_.tiny_launch_us);
  for (int i = 0; i < plan_.kernels + (is_slow_rank ? plan_.more_kernels : 0); ++i) {
    const bool is_slow = is_slow_rank && (plan_.slow_kernel < 0 || i % 4 == plan_.slow_kernel);
    const bool is_larger = plan_.two_sizes && i % 8 == 0;
    const char* const dims = !plan_.does_more               ? nullptr
                             : is_slow_rank && (i % 4 != 3) ? "[[96, 64], [64, 64]]"
                                                            : "[[64, 64], [64, 64]]";
    launch(fmt::format("kernel_{}", i % 4),
           noisy(plan_.kernel_us) * (is_slow ? plan_.slow_ratio : 1) * (is_larger ? 3 : 1),
           plan_.launch_us, dims);
    if (plan_.copy_us > 0 && plan_.copies_beside && i == plan_.kernels / 4) copy();
    const auto is_turn = [&](int count) {
      return count > 0 && (i + 1) % std::max(1, plan_.kernels / count) == 0 &&
             i + 1 < plan_.kernels;
    };
    if (!plan_.syncs_at_end && is_turn(plan_.syncs)) {
      wait();
      host_us_ += plan_.after_sync_us;
    }
    if (is_turn(plan_.allocations)) allocate();
  }
}

void Loop::memory(int index) {
  live_bytes_ += plan_.leak_bytes;
  if (plan_.pool_bytes > 0 && index % 4 == 0 && pool_ < 256 * plan_.pool_bytes) {
    const double more = pool_ == 0 ? plan_.pool_bytes : pool_;
    pool_ += more;
    live_bytes_ += more;
  }
  if (plan_.leak_bytes > 0 || plan_.pool_bytes > 0 || plan_.fails_in_step >= 0)
    out_.memory(pid_, host_us_, live_bytes_);
}

void Loop::step(int index) {
  memory(index);
  if (index == plan_.steps / 2) host_us_ += plan_.stall_us;
  begin_of_step();
  kernels_of_step();
  if (index == plan_.fails_in_step) fail();
  if (is_dead_) return;
  if (plan_.loader_us > 0 && plan_.loads_beside) {
    // The data of the next step, while the device still works.
    out_.host(pid_, pid_, "step", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
              {host_us_, host_us_ + plan_.loader_us});
    host_us_ += plan_.loader_us;
  }
  wait();
  for (int i = 0; plan_.syncs_at_end && i < plan_.syncs; ++i)
    wait();
}

std::vector<Recording::Span> Loop::run() {
  out_.process(pid_, plan_.ranks > 1 ? rank_ : trace::kNoRank, plan_.ranks);
  for (int i = 0; i < plan_.allocations_before; ++i)
    allocate();
  std::vector<Recording::Span> steps;
  for (int i = 0; i < plan_.steps && !is_dead_; ++i) {
    const double begin_us = host_us_;
    step(i);
    steps.push_back({begin_us, host_us_});
  }
  return steps;
}

}  // namespace

std::vector<ProcessSteps> write_planted(const Plan& plan, Recording& out) {
  std::vector<ProcessSteps> all;
  out.meta("kansoku.cuda.mode", "every");
  for (std::int32_t rank = 0; rank < plan.ranks; ++rank) {
    if (plan.names_devices)
      out.meta(fmt::format("kansoku.cuda.device_name.{}", rank), fmt::format("GPU model {}", rank));
    ProcessSteps steps{.pid = 100 + rank, .steps = {}};
    for (const Recording::Span& span : Loop(plan, rank, out).run()) {
      if (plan.marks_steps) {
        out.host(steps.pid, steps.pid, "user_annotation",
                 fmt::format("ProfilerStep#{}", steps.steps.size()), span);
      }
      steps.steps.push_back({ns_for_test(span.begin_us), ns_for_test(span.end_us)});
    }
    all.push_back(std::move(steps));
  }
  return all;
}

WorkReport planted(const Plan& plan) {
  Options options;
  const trace::Trace trace =
      recording_of([&](Recording& out) { options.steps = write_planted(plan, out); });
  auto report = report_of(trace, options);
  CHECK(report.has_value());
  return std::move(*report);
}

}  // namespace kansoku::gpu::activity
