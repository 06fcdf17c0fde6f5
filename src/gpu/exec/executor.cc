// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

#include "common/check.h"
#include "gpu/exec/internal/block_runner.h"
#include "gpu/exec/internal/observe/counter.h"
#include "gpu/exec/internal/observe/observer.h"
#include "gpu/exec/limits.h"

namespace kansoku::gpu::exec {
namespace {

/// So long a launch runs on the calling thread alone: waking another one costs 5 to 100 us.
constexpr Nanos kAloneFor = std::chrono::microseconds{20};

Error impossible(std::string_view kernel, std::string_view why) {
  return Error{kansoku::Code::kLimit, fmt::format("launch {}: {}", kernel, why)};
}

Result<void> check_launch(const KernelInfo& kernel, const LaunchOptions& options) {
  if (!kernel.refusal.empty()) return Error{kansoku::Code::kUnsupported, kernel.refusal};
  std::uint64_t threads = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    if (options.grid[i] == 0 || options.block[i] == 0)
      return impossible(kernel.name, "an extent of 0 in grid or block");
    if (options.grid[i] > kGridExtentMax[i]) return impossible(kernel.name, "a grid this large");
    threads *= options.block[i];
    if (threads > kThreadsPerBlockMax)
      return impossible(kernel.name,
                        fmt::format("more than {} threads in a block", kThreadsPerBlockMax));
  }
  const auto& required = kernel.bounds.required_threads;
  if (required[0] != 0 && required != options.block)
    return impossible(kernel.name, fmt::format("blocks of ({}, {}, {}) threads required",
                                               required[0], required[1], required[2]));
  const auto& most = kernel.bounds.max_threads;
  if (most[0] != 0 && threads > std::uint64_t{most[0]} * most[1] * most[2])
    return impossible(kernel.name, "more threads than .maxntid allows");
  if (options.params.size() != kernel.params_total_bytes) {
    return impossible(kernel.name, fmt::format("got {} bytes of parameters, expected {}",
                                               options.params.size(), kernel.params_total_bytes));
  }
  if (kernel.shared_bytes > kSharedBytesMax ||
      options.dynamic_shared_bytes > kSharedBytesMax - kernel.shared_bytes)
    return impossible(kernel.name,
                      fmt::format("more than {} bytes of shared memory", kSharedBytesMax));
  if (kernel.local_bytes > options.local_bytes)
    return impossible(kernel.name,
                      fmt::format("{} bytes of local memory per thread, the limit is {}",
                                  kernel.local_bytes, options.local_bytes));
  if (options.is_cooperative) {
    const std::uint64_t blocks = std::uint64_t{options.grid[0]} * options.grid[1] * options.grid[2];
    const std::uint64_t resident =
        std::uint64_t{std::max(options.sm_count, 1U)} *
        resident_blocks_per_sm(kernel, static_cast<std::uint32_t>(threads),
                               options.dynamic_shared_bytes);
    if (blocks > resident)
      return impossible(kernel.name,
                        fmt::format("{} cooperative blocks, {} can be resident", blocks, resident));
  }
  return {};
}

/// The blocks of a launch, handed out to workers; the first fault in the order of blocks stays.
class Launch {
 public:
  Launch(const Program& program, std::size_t kernel, const Memory& memory,
         const LaunchOptions& options)
      : program_(program), kernel_(kernel), options_(options) {
    add(memory);
    for (const Memory* const peer : options.peers)
      add(*peer);
    state_.module = &program.compiled();
    is_counted_ = options.costs != nullptr || needs_count(program.kernels()[kernel]);
    CHECK(options.costs == nullptr || options.counts != nullptr);
    if (is_counted_) {
      counted_ = program.compiled_counted(options.costs);
      state_.module = counted_.get();
    }
    if (options.observe.any()) {
      CHECK(options.observations != nullptr);
      observed_ = observed_copy(program.compiled_in_order());
      state_.module = observed_.get();
    }
    state_.ranges = ranges_.data();
    state_.memory_count = ranges_.size();
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
    state_.grid_id = options.number;
    state_.clock = options.clock;
    state_.costs = options.costs;
    state_.begin_ns = options.begin_ns;
    state_.print_context = this;
    if (options.print) state_.print = write_to<&LaunchOptions::print>;
    if (options.complain) state_.complain = write_to<&LaunchOptions::complain>;
    if (options.is_cooperative) {
      state_.workspace = reinterpret_cast<std::uintptr_t>(workspace_.data());
      workspace_range_ = {state_.workspace, state_.workspace + sizeof workspace_};
      ranges_.push_back({&workspace_range_, 1});
      state_.ranges = ranges_.data();
      state_.memory_count = ranges_.size();
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
    worker_count_ = workers;
    if (workers == 1) {
      work(0);
    } else {
      run_with_help(workers);
    }
    finish_observations();
    return fault_;
  }

 private:
  /// Writes never get torn.
  template <auto kStream>
  static void write_to(void* context, const char* text, std::size_t bytes) {
    auto& self = *static_cast<Launch*>(context);
    const std::scoped_lock lock(self.mutex_);
    (self.options_.*kStream)(std::string_view(text, bytes));
  }
  /// Adds the memory that kernels may access there, held until the end.
  void add(const Memory& memory) {
    holds_.emplace_back(memory);
    lists_.push_back(memory.ranges());
    ranges_.push_back({lists_.back()->data(), lists_.back()->size()});
  }

  void work(std::uint64_t index) {
    const CompiledFunction& function = state_.module->functions[program_.function_of(kernel_)];
    std::optional<Counter> counter;
    if (is_counted_) counter.emplace(options_.costs, state_.sm_count);
    Counter* const counts = counter ? &*counter : nullptr;
    if (options_.is_cooperative) {
      run_together(function, index, counts);
    } else {
      std::optional<Observer> observer;
      if (options_.observe.any()) observer.emplace(state_, options_.observe);
      run_in_turn(function, index == 0, observer ? &*observer : nullptr, counts);
      if (observer) {
        const std::scoped_lock lock(mutex_);
        observer->add_to(*options_.observations, sets_, hazards_);
      }
    }
    if (options_.costs == nullptr) return;
    const std::scoped_lock lock(mutex_);
    counter->add_to(*options_.counts);
  }

  /// A reader of %clock needs the count, and a reader of %globaltimer if there is no other clock.
  [[nodiscard]] bool needs_count(const KernelInfo& kernel) const {
    return kernel.reads_clock || (kernel.reads_timer && options_.clock == nullptr);
  }

  BlockRunner runner_of(const CompiledFunction& function, Observer* observer, Counter* counter) {
    // Without calls the kernel's own variables and accesses are all that a thread can need.
    std::uint32_t local_bytes = function.local_bytes, sites = function.site_count;
    if (!function.calls.empty()) {
      local_bytes = options_.local_bytes;
      for (const CompiledFunction& other : state_.module->functions)
        sites = std::max(sites, other.site_count);
    }
    return {state_, function, sites, local_bytes, observer, counter, [this] { return is_over(); }};
  }

  void run_with_help(std::uint64_t workers) {
    const auto share = options_.is_cooperative ? Helpers::Share::kOfAll : Helpers::Share::kOfRest;
    const std::function<void(std::uint64_t)> each = [this](std::uint64_t index) { work(index); };
    std::optional<Workers> own;
    Helpers helpers(options_.threads != nullptr ? *options_.threads : own.emplace(), share, each);
    helpers_ = &helpers;
    // Blocks that wait for each other begin together; others wait until help is worth it.
    if (!options_.is_cooperative && options_.clock != nullptr) {
      help_at_ = options_.clock->now() + kAloneFor;
    } else {
      helpers.start(workers);
    }
    work(0);
    helpers.finish();
  }

  /// By the first worker: starts the others once the launch has lasted for a while.
  void ask_for_help() {
    if (help_at_ == BootTime{} || options_.clock->now() < help_at_) return;
    help_at_ = {};
    helpers_->start(worker_count_);
  }

  void run_in_turn(const CompiledFunction& function, bool is_first, Observer* observer,
                   Counter* counter) {
    BlockRunner runner = runner_of(function, observer, counter);
    while (!has_failed_.load(std::memory_order_relaxed)) {
      const std::uint64_t number = next_.fetch_add(1, std::memory_order_relaxed);
      if (number >= block_count_) return;
      runner.begin(number);
      BlockRunner::Step step = BlockRunner::Step::kRunning;
      while (step == BlockRunner::Step::kRunning) {
        step = runner.step();
        if (is_first) ask_for_help();
      }
      if (step == BlockRunner::Step::kFault) {
        take_fault(runner);
        return;
      }
      if (options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed)) return;
    }
  }

  /// Every block of this worker's share begins, and they take turns.
  void run_together(const CompiledFunction& function, std::uint64_t worker, Counter* counter) {
    const bool is_observed = options_.observe.any();
    std::vector<std::unique_ptr<BlockRunner>> runners;
    // State of shared memory is known for one block only.
    std::vector<std::unique_ptr<Observer>> observers;
    for (std::uint64_t i = worker; i < block_count_; i += worker_count_) {
      if (is_observed) observers.push_back(std::make_unique<Observer>(state_, options_.observe));
      runners.push_back(std::make_unique<BlockRunner>(
          runner_of(function, is_observed ? observers.back().get() : nullptr, counter)));
      runners.back()->begin(i);
    }
    while (!runners.empty() && !has_failed_.load(std::memory_order_relaxed)) {
      for (auto& runner : runners) {
        const BlockRunner::Step step = runner->step();
        if (step == BlockRunner::Step::kFault) {
          take_fault(*runner);
          break;
        }
        if (step == BlockRunner::Step::kDone) runner.reset();
      }
      std::erase(runners, nullptr);
    }
    const std::scoped_lock lock(mutex_);
    for (const auto& observer : observers)
      observer->add_to(*options_.observations, sets_, hazards_);
  }

  /// In the order of blocks, whichever worker saw them.
  void finish_observations() {
    if (!options_.observe.any()) return;
    std::stable_sort(hazards_.begin(), hazards_.end(),
                     [](const Hazard& a, const Hazard& b) { return a.block < b.block; });
    std::set<std::tuple<FaultKind, std::uint32_t, std::uint32_t>> known;
    for (const Hazard& hazard : hazards_) {
      if (!known.emplace(hazard.kind, hazard.access.line, hazard.other.line).second) continue;
      if (options_.observations->hazards.size() == Observations::kHazardsMax) break;
      options_.observations->hazards.push_back(fault_of(hazard));
    }
    if (options_.observe.access_sets) options_.observations->sets = sets_.sets();
  }

  [[nodiscard]] std::array<std::uint32_t, 3> thread_at(std::uint32_t warp,
                                                       std::uint32_t lane) const {
    const std::uint32_t linear = warp * kLanes + lane;
    return {linear % state_.block[0], linear / state_.block[0] % state_.block[1],
            linear / (state_.block[0] * state_.block[1])};
  }

  [[nodiscard]] Fault fault_of(const Hazard& hazard) const {
    Fault fault;
    fault.kind = hazard.kind;
    fault.launch = options_.number;
    fault.kernel = program_.kernels()[kernel_].name;
    fault.line = hazard.access.line;
    fault.block = {static_cast<std::uint32_t>(hazard.block % state_.grid[0]),
                   static_cast<std::uint32_t>(hazard.block / state_.grid[0] % state_.grid[1]),
                   static_cast<std::uint32_t>(hazard.block / state_.grid[0] / state_.grid[1])};
    fault.thread = thread_at(hazard.access.warp, hazard.access.lane);
    fault.address = hazard.access.offset;
    fault.bytes = hazard.access.bytes;
    fault.is_store = hazard.access.is_store;
    fault.other_line = hazard.other.line;
    fault.other_thread = thread_at(hazard.other.warp, hazard.other.lane);
    fault.is_other_store = hazard.other.is_store;
    return fault;
  }

  bool is_over() const {
    return has_failed_.load(std::memory_order_relaxed) ||
           (options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed)) ||
           (options_.time_limit > Nanos{0} && options_.clock->now() >= deadline_);
  }

  void take_fault(const BlockRunner& runner) {
    const FaultSite& site = runner.fault();
    // Broken off because of another block's fault, which is the one to tell.
    if (site.kind == FaultKind::kTimeout && has_failed_.load()) return;
    Fault fault;
    fault.kind = site.kind;
    fault.launch = options_.number;
    fault.kernel = program_.kernels()[kernel_].name;
    fault.line = site.line;
    fault.block = runner.block().index;
    fault.thread = thread_at(runner.fault_warp(), site.lane);
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
  std::vector<Memory::Hold> holds_;  // keep the memory in ranges_
  std::vector<Memory::Ranges> lists_;
  std::vector<LaunchState::Ranges> ranges_;               // of lists_
  alignas(64) std::array<std::uint64_t, 8> workspace_{};  // of a cooperative launch
  AddressRange workspace_range_;
  LaunchState state_;
  std::unique_ptr<CompiledModule> observed_;  // null: nobody looks
  bool is_counted_{false};
  std::shared_ptr<const CompiledModule> counted_;  // null: nobody counts
  std::uint64_t block_count_{0}, worker_count_{1};
  BootTime deadline_{};
  Helpers* helpers_{nullptr};
  BootTime help_at_{};  // zero: they have been started
  std::atomic<std::uint64_t> next_{0};
  std::atomic<bool> has_failed_{false};
  std::mutex mutex_;
  std::optional<Fault> fault_;  // guarded by mutex_
  std::uint64_t fault_block_{0};
  AccessRecorder sets_;          // guarded by mutex_
  std::vector<Hazard> hazards_;  // guarded by mutex_
};

}  // namespace

std::uint32_t resident_blocks_per_sm(const KernelInfo& kernel, std::uint32_t threads_per_block,
                                     std::uint32_t dynamic_shared_bytes) {
  if (threads_per_block == 0 || threads_per_block > kThreadsPerBlockMax) return 0;
  const std::uint64_t shared = std::uint64_t{kernel.shared_bytes} + dynamic_shared_bytes;
  if (shared > kSharedBytesMax) return 0;
  const std::uint32_t threads = (threads_per_block + kLanes - 1) / kLanes * kLanes;
  std::uint64_t most = std::min(kBlocksPerSm, kThreadsPerSm / threads);
  // The system keeps 1 KiB of shared memory for each block.
  if (shared > 0)
    most = std::min<std::uint64_t>(most, kSharedBytesPerSm / (shared + kSharedReservedBytes));
  return static_cast<std::uint32_t>(most);
}

Result<std::optional<Fault>> launch(const Program& program, std::size_t kernel,
                                    const Memory& memory, const LaunchOptions& options) {
  CHECK(kernel < program.kernels().size());
  TRY_VOID(check_launch(program.kernels()[kernel], options));
  return Launch(program, kernel, memory, options).run();
}

}  // namespace kansoku::gpu::exec
