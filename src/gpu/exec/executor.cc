// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "common/check.h"
#include "gpu/exec/internal/block_runner.h"

namespace kansoku::gpu::exec {
namespace {

constexpr std::uint32_t kThreadsMax = 1024;  // of a block
constexpr std::uint32_t kSharedBytesMax = 227 * 1024;
constexpr std::uint64_t kGridYZMax = 65535;

Fault::Kind kind_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::kOutOfBounds:
      return Fault::Kind::kOutOfBounds;
    case FaultKind::kMisaligned:
      return Fault::Kind::kMisaligned;
    case FaultKind::kDeadlock:
      return Fault::Kind::kDeadlock;
    case FaultKind::kTimeout:
      return Fault::Kind::kTimeout;
    case FaultKind::kBarrierDivergence:
      return Fault::Kind::kBarrierDivergence;
    case FaultKind::kBadWarpMask:
      return Fault::Kind::kBadWarpMask;
    case FaultKind::kStackOverflow:
      return Fault::Kind::kStackOverflow;
    default:
      return Fault::Kind::kTrap;
  }
}

Error impossible(std::string_view kernel, std::string_view why) {
  return Error{kansoku::Code::kLimit, fmt::format("launch {}: {}", kernel, why)};
}

Result<void> check_launch(const KernelInfo& kernel, const LaunchOptions& options) {
  std::uint64_t threads = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    if (options.grid[i] == 0 || options.block[i] == 0)
      return impossible(kernel.name, "an extent of 0 in grid or block");
    threads *= options.block[i];
    if (threads > kThreadsMax)
      return impossible(kernel.name, fmt::format("more than {} threads in a block", kThreadsMax));
  }
  if (options.grid[0] > 0x7fffffff || options.grid[1] > kGridYZMax || options.grid[2] > kGridYZMax)
    return impossible(kernel.name, "a grid this large");
  const auto& required = kernel.bounds.required_threads;
  if (required[0] != 0 && required != options.block)
    return impossible(kernel.name, fmt::format("blocks of ({}, {}, {}) threads required",
                                               required[0], required[1], required[2]));
  const auto& most = kernel.bounds.max_threads;
  if (most[0] != 0 && threads > std::uint64_t{most[0]} * most[1] * most[2])
    return impossible(kernel.name, "more threads than .maxntid allows");
  if (options.params.size() != kernel.params_total_bytes) {
    return impossible(kernel.name, fmt::format("{} bytes of parameters given, {} wanted",
                                               options.params.size(), kernel.params_total_bytes));
  }
  if (kernel.shared_bytes > kSharedBytesMax ||
      options.dynamic_shared_bytes > kSharedBytesMax - kernel.shared_bytes)
    return impossible(kernel.name,
                      fmt::format("more than {} bytes of shared memory", kSharedBytesMax));
  if (kernel.local_bytes > options.local_bytes)
    return impossible(kernel.name, fmt::format("{} bytes of local memory a thread, {} there are",
                                               kernel.local_bytes, options.local_bytes));
  return {};
}

/// The blocks of a launch, handed out to workers; the first fault in the order of blocks stays.
class Launch {
 public:
  Launch(const Program& program, std::size_t kernel, const Memory& memory,
         const LaunchOptions& options)
      : program_(program), kernel_(kernel), options_(options) {
    for (const Memory::Range& range : memory.ranges())
      ranges_.push_back({range.begin, range.end});
    state_.module = &program.compiled();
    state_.ranges = ranges_.data();
    state_.range_count = ranges_.size();
    state_.params = options.params.data();
    state_.param_bytes = options.params.size();
    state_.grid = options.grid;
    state_.block = options.block;
    state_.dynamic_shared_bytes = options.dynamic_shared_bytes;
    state_.total_shared_bytes =
        options.dynamic_shared_bytes == 0
            ? std::max(program.kernels()[kernel].shared_bytes, program.dynamic_shared_offset())
            : program.dynamic_shared_offset() + options.dynamic_shared_bytes;
    state_.sm_count = std::max(options.sm_count, 1U);
    if (options.print) {
      state_.print = [](void* context, const char* text, std::size_t bytes) {
        auto& self = *static_cast<Launch*>(context);
        const std::scoped_lock lock(self.mutex_);
        self.options_.print(std::string_view(text, bytes));
      };
      state_.print_context = this;
    }
    block_count_ = std::uint64_t{options.grid[0]} * options.grid[1] * options.grid[2];
    if (options.time_limit > Nanos{0}) {
      CHECK(options.clock != nullptr);
      deadline_ = options.clock->now() + options.time_limit;
    }
  }

  std::optional<Fault> run() {
    const std::uint64_t workers =
        std::clamp<std::uint64_t>(options_.workers, 1, std::min<std::uint64_t>(block_count_, 64));
    std::vector<std::thread> others;
    for (std::uint64_t i = 1; i < workers; ++i)
      others.emplace_back([this] { work(); });
    work();
    for (std::thread& other : others)
      other.join();
    return fault_;
  }

 private:
  void work() {
    const CompiledFunction& function = program_.compiled().functions[program_.function_of(kernel_)];
    // Without calls the kernel's own variables are all that a thread can need.
    const std::uint32_t local_bytes =
        function.calls.empty() ? function.local_bytes : options_.local_bytes;
    BlockRunner runner(state_, function, program_.site_count(), local_bytes,
                       [this] { return is_over(); });
    while (!has_failed_.load(std::memory_order_relaxed)) {
      const std::uint64_t number = next_.fetch_add(1, std::memory_order_relaxed);
      if (number >= block_count_) return;
      if (!runner.run(number)) {
        take_fault(runner);
        return;
      }
    }
  }

  bool is_over() const {
    return has_failed_.load(std::memory_order_relaxed) ||
           (options_.time_limit > Nanos{0} && options_.clock->now() >= deadline_);
  }

  void take_fault(const BlockRunner& runner) {
    const FaultSite& site = runner.fault();
    Fault fault;
    fault.kind = kind_of(site.kind);
    fault.kernel = program_.kernels()[kernel_].name;
    fault.line = site.line;
    fault.block = runner.block().index;
    const std::uint32_t linear = runner.fault_warp() * kLanes + site.lane;
    fault.thread = {linear % state_.block[0], linear / state_.block[0] % state_.block[1],
                    linear / (state_.block[0] * state_.block[1])};
    fault.address = site.address;
    fault.bytes = site.bytes;
    fault.is_store = site.is_store;
    const std::scoped_lock lock(mutex_);
    if (!fault_ || runner.block().number < fault_block_) {
      fault_ = std::move(fault);
      fault_block_ = runner.block().number;
    }
    has_failed_.store(true, std::memory_order_relaxed);
  }

  const Program& program_;
  const std::size_t kernel_;
  const LaunchOptions& options_;
  std::vector<AddressRange> ranges_;
  LaunchState state_;
  std::uint64_t block_count_{0};
  BootTime deadline_{};
  std::atomic<std::uint64_t> next_{0};
  std::atomic<bool> has_failed_{false};
  std::mutex mutex_;
  std::optional<Fault> fault_;  // guarded by mutex_
  std::uint64_t fault_block_{0};
};

}  // namespace

std::string_view fault_name(Fault::Kind kind) {
  switch (kind) {
    case Fault::Kind::kOutOfBounds:
      return "out-of-bounds";
    case Fault::Kind::kMisaligned:
      return "misaligned";
    case Fault::Kind::kTrap:
      return "trap";
    case Fault::Kind::kDeadlock:
      return "deadlock";
    case Fault::Kind::kTimeout:
      return "time-out";
    case Fault::Kind::kBarrierDivergence:
      return "barrier divergence";
    case Fault::Kind::kBadWarpMask:
      return "lanes missing from a warp operation";
    case Fault::Kind::kStackOverflow:
      return "stack overflow";
  }
  return "";
}

std::string Fault::text() const {
  std::string text(fault_name(kind));
  if (kind == Kind::kOutOfBounds || kind == Kind::kMisaligned)
    text += fmt::format(" {} of {} bytes at 0x{:x}", is_store ? "store" : "load", bytes, address);
  return text + fmt::format(": kernel {}, ptx line {}, block ({}, {}, {}), thread ({}, {}, {})",
                            kernel, line, block[0], block[1], block[2], thread[0], thread[1],
                            thread[2]);
}

Result<std::optional<Fault>> launch(const Program& program, std::size_t kernel,
                                    const Memory& memory, const LaunchOptions& options) {
  CHECK(kernel < program.kernels().size());
  TRY_VOID(check_launch(program.kernels()[kernel], options));
  return Launch(program, kernel, memory, options).run();
}

}  // namespace kansoku::gpu::exec
