// SPDX-License-Identifier: Apache-2.0
// The process's devices, and what they do.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "common/parse.h"
#include "softcuda/internal/counts.h"
#include "softcuda/internal/faults.h"
#include "softcuda/internal/operation_log.h"
#include "softcuda/internal/runtime.h"

namespace kansoku::softcuda {
namespace {

constexpr std::uint64_t kHostBytesMax = std::uint64_t{64} << 30;  // of pinned memory
constexpr Nanos kTimeLimitDefault = std::chrono::seconds{120};

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<Runtime*> g_parents_runtime{nullptr};  // in children of fork
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<Runtime*> g_runtime{nullptr};

std::uint64_t ns_of(BootTime time) {
  return static_cast<std::uint64_t>(time.time_since_epoch().count());
}

constexpr unsigned kTimesRowsMax = 1000;
constexpr std::uint64_t kBaseStride = std::uint64_t{64} << 30;  // between devices

/// KANSOKU_SOFTGPU_BASE: where the memory of the first device begins; 0: anywhere.
std::uint64_t base_setting() {
  const char* const set = std::getenv("KANSOKU_SOFTGPU_BASE");
  if (set == nullptr) return 0;
  std::string_view text(set);
  if (text.starts_with("0x")) text.remove_prefix(2);
  const auto base = parse_int<std::uint64_t>(text, 16);
  if (base && *base % gpu::exec::Memory::kGranule == 0) return *base;
  log_line(fmt::format("KANSOKU_SOFTGPU_BASE={}: not a hexadecimal multiple of 2 MiB", set));
  return 0;
}

Result<ClockKind> clock_setting() {
  const char* const set = std::getenv("KANSOKU_SOFTGPU_CLOCK");
  return clock_kind_from(set == nullptr ? "wall" : set);
}

/// KANSOKU_SOFTGPU_EVENT_CLOCK: virtual time has no clock of the host to differ from.
Result<ClockSkew> skew_setting(const Result<ClockKind>& clock) {
  const char* const set = std::getenv("KANSOKU_SOFTGPU_EVENT_CLOCK");
  if (set == nullptr || *set == '\0') return ClockSkew{};
  if (clock && *clock == ClockKind::kModel) {
    return Error{Code::kUnsupported,
                 "KANSOKU_SOFTGPU_EVENT_CLOCK is for the wall clock, and "
                 "KANSOKU_SOFTGPU_CLOCK=model is set"};
  }
  return clock_skew_from(set);
}

/// "KANSOKU_SOFTGPU_WORKERS" as a number from `low` to `high`, else `otherwise`.
unsigned number_setting(const char* name, unsigned low, unsigned high, unsigned otherwise) {
  const char* const set = std::getenv(name);
  if (set == nullptr) return otherwise;
  const auto number = parse_int<unsigned>(set);
  if (number && *number >= low && *number <= high) return *number;
  log_line(
      fmt::format("{}={}: not a number from {} to {}; using {}", name, set, low, high, otherwise));
  return otherwise;
}

CUresult code_of(gpu::exec::FaultKind kind) {
  using gpu::exec::FaultKind;
  switch (kind) {
    case FaultKind::kOutOfBounds:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case FaultKind::kMisaligned:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case FaultKind::kTimeout:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    case FaultKind::kAssertion:
      return CUDA_ERROR_ASSERT;
    case FaultKind::kStackOverflow:
      return CUDA_ERROR_HARDWARE_STACK_ERROR;
    default:
      return CUDA_ERROR_LAUNCH_FAILED;
  }
}

/// A fault on demand at an operation that begins: its error, or a wait.
CUresult meet_fault(FaultAt at, std::string_view name, const Context& context, Course& course) {
  const FaultRule* const rule = fault_due(at, name);
  if (rule == nullptr) return CUDA_SUCCESS;
  if (rule->action == FaultAction::kError) return static_cast<CUresult>(rule->error);
  if (course.moment == nullptr || rule->action == FaultAction::kHang) {
    if (course.moment != nullptr) runtime()->timeline->note_wait(*course.moment);
    const Clock& clock = runtime()->clock;
    context.device->busy.begin(ns_of(clock.now()));
    wait_for_fault(*rule, &context.cancel);
    context.device->busy.end(ns_of(clock.now()));
  } else {
    course.extra_ns = static_cast<std::uint64_t>(rule->time.count());
  }
  return context.cancel ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

/// Output of a kernel goes where the program's own output goes.
void print_to_program(gpu::exec::LaunchOptions& options) {
  options.print = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  options.complain = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
  };
}

/// `observed`: null if no program looks at the device's launches.
void set_observe(gpu::exec::LaunchOptions& options, const SeenLaunches* observed) {
  options.observe.hazards = runtime()->checks_hazards;
  if (observed == nullptr) return;
  options.observe.hazards = options.observe.hazards || observed->wants_hazards();
  options.observe.profile = observed->wants_profile();
}

/// The environment asks for hazards in the log, a program for its own record.
void tell_seen(const gpu::exec::Observations& seen, SeenLaunches* observed,
               const KernelLaunch& launch) {
  for (const gpu::exec::Fault& hazard : seen.hazards) {
    if (runtime()->checks_hazards) log_line(hazard.text());
  }
  if (observed != nullptr) observed->add(launch.function->info.name, seen);
}

CUresult run(const std::shared_ptr<Context>& current, const KernelLaunch& launch, Course& course) {
  Runtime& all = *runtime();
  // A graph's kernel runs where its module is, whichever stream the graph was given to.
  const std::shared_ptr<Context> context = launch.function->module->context.lock();
  const auto program = launch.function->module->get();
  if (context == nullptr || context->is_destroyed || program == nullptr) {
    return current->is_destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
  }
  Device& device = *context->device;
  gpu::exec::LaunchOptions options;
  options.grid = launch.grid;
  options.block = launch.block;
  options.dynamic_shared_bytes = launch.shared_bytes;
  options.params = launch.params;
  options.workers = all.workers;
  options.threads = &all.threads;
  options.sm_count = gpu::exec::kSmCount;
  options.time_limit = all.time_limit;
  options.clock = &all.event_clock;
  options.cancel = &context->cancel;
  options.is_cooperative = launch.is_cooperative;
  print_to_program(options);
  std::vector<const gpu::exec::Memory*> others{&*all.host};
  {
    const std::scoped_lock lock(context->settings_mutex);
    for (const Device* const peer : context->peers)
      others.push_back(&peer->memory);
  }
  options.peers = others;
  gpu::exec::LaunchCounts counts;
  options.number = course.next_launch++;
  if (course.moment != nullptr) {
    options.costs = &all.model.costs;
    options.counts = &counts;
    if (launch.function->info.reads_timer) options.begin_ns = course.begin_of(launch);
  }
  gpu::exec::Observations seen;
  const auto observed = device.observing.current();
  set_observe(options, observed.get());
  options.observations = &seen;

  ++device.launches;
  if (device.slot != nullptr) ++device.slot->launches;
  const BootTime begin = all.clock.now();
  KANSOKU_CU_TRY(meet_fault(FaultAt::kKernel, launch.function->info.name, *context, course));
  device.busy.begin(ns_of(all.clock.now()));
  const auto fault = gpu::exec::launch(*program, launch.function->kernel, device.memory, options);
  if (course.moment == nullptr) device.slow_down(all.clock.now() - begin, context->cancel);
  const BootTime end = all.clock.now();
  device.busy.end(ns_of(end));
  Nanos elapsed = end - begin;
  if (course.moment != nullptr) {
    elapsed = course.add(device, launch, counts);
  }
  if (all.kernel_times != nullptr) all.kernel_times->add(launch.function->info.name, elapsed);
  tell_seen(seen, fault ? observed.get() : nullptr, launch);
  if (!fault) {
    log_line(fault.error().what);
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  }
  if (!*fault) {
    if (Counts* const all_counts = process_counts())
      all_counts->add_kernel(launch.function->info.name);
    return CUDA_SUCCESS;
  }
  if (context->cancel) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  log_line((*fault)->text());
  return code_of((*fault)->kind);
}

/// Bytes that the pieces of one side of a copy span.
std::size_t span_of(std::size_t width, std::array<std::size_t, 2> counts,
                    std::array<std::size_t, 2> steps) {
  return (counts[0] - 1) * steps[0] + (counts[1] - 1) * steps[1] + width;
}

/// Memory may have been freed since the call was made; the holds keep it from here on.
struct Holds {
  std::vector<gpu::exec::Memory::Hold> all;
  Holds() {
    for (const auto& device : runtime()->devices)
      all.emplace_back(device->memory);
    all.emplace_back(*runtime()->host);
  }
};

/// Copies race with kernels and with the host for memory if the program lets them: tests/tsan.supp
/// knows the name.
[[gnu::noinline]] void move_guest_memory(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memmove(to, from, bytes);
}

Done kind_of(const Copy& copy) {
  if (copy.is_to_device) return Done::kCopyToDevice;
  if (copy.is_to_host) return Done::kCopyToHost;
  const bool is_of_device =
      runtime()->device_of(reinterpret_cast<std::uint64_t>(copy.from)) != nullptr;
  return is_of_device ? Done::kCopyOnDevice : Done::kCopyOnHost;
}

/// As traces of devices name it.
std::string_view direction_of(const Copy& copy) {
  constexpr std::array<std::string_view, 4> kNames{"HtoD", "DtoH", "DtoD", "HtoH"};
  return kNames[static_cast<std::size_t>(kind_of(copy)) -
                static_cast<std::size_t>(Done::kCopyToDevice)];
}

CUresult run(const std::shared_ptr<Context>& context, const Copy& copy, Course& course) {
  KANSOKU_CU_TRY(meet_fault(FaultAt::kCopy, direction_of(copy), *context, course));
  const Holds holds;
  const auto is_there = [&](const std::byte* place, std::size_t pitch, std::size_t slice) {
    return runtime()->may_touch(reinterpret_cast<std::uint64_t>(place),
                                span_of(copy.width, {copy.height, copy.depth}, {pitch, slice}));
  };
  if (!is_there(copy.to, copy.to_pitch, copy.to_slice) ||
      (copy.staged == nullptr && !is_there(copy.from, copy.from_pitch, copy.from_slice))) {
    log_line("copy: its memory is no longer allocated");
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  Device& device = *context->device;
  const sys::RealClock& clock = runtime()->clock;
  const BootTime begin = clock.now();
  device.busy.begin(ns_of(begin));
  for (std::size_t z = 0; z < copy.depth; ++z) {
    for (std::size_t y = 0; y < copy.height; ++y) {
      move_guest_memory(copy.to + z * copy.to_slice + y * copy.to_pitch,
                        copy.from + z * copy.from_slice + y * copy.from_pitch, copy.width);
    }
  }
  if (course.moment == nullptr) {
    device.slow_down(clock.now() - begin, context->cancel);
  } else {
    course.add(device, copy);
  }
  const BootTime end = clock.now();
  device.busy.end(ns_of(end));
  const std::uint64_t bytes = copy.width * copy.height * copy.depth;
  count(kind_of(copy), bytes);
  if (device.slot != nullptr) {
    device.slot->memory_busy_ns += static_cast<std::uint64_t>((end - begin).count());
    if (copy.is_to_device) device.slot->copied_to_device_bytes += bytes;
    if (copy.is_to_host) device.slot->copied_to_host_bytes += bytes;
  }
  return CUDA_SUCCESS;
}

CUresult run(const std::shared_ptr<Context>& context, const Fill& fill, Course& course) {
  KANSOKU_CU_TRY(meet_fault(FaultAt::kFill, "set", *context, course));
  const CUDA_MEMSET_NODE_PARAMS& shape = fill.shape;
  const Holds holds;
  if (!runtime()->may_touch(shape.dst, span_of(shape.width * shape.elementSize, {shape.height, 1},
                                               {shape.pitch, 0}))) {
    log_line("fill: its memory is no longer allocated");
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  const sys::RealClock& clock = runtime()->clock;
  const BootTime begin = clock.now();
  context->device->busy.begin(ns_of(begin));
  for (std::size_t y = 0; y < shape.height; ++y) {
    auto* const line =
        reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(shape.dst + y * shape.pitch));
    if (shape.elementSize == 1) {
      std::memset(line, static_cast<int>(shape.value & 0xff), shape.width);
      continue;
    }
    for (std::size_t x = 0; x < shape.width; ++x)
      std::memcpy(line + x * shape.elementSize, &shape.value, shape.elementSize);
  }
  if (course.moment == nullptr) {
    context->device->slow_down(clock.now() - begin, context->cancel);
  } else {
    course.add(*context->device, fill);
  }
  context->device->busy.end(ns_of(clock.now()));
  count(Done::kFill, shape.width * shape.elementSize * shape.height);
  return CUDA_SUCCESS;
}

/// Flags: 0 at least, 1 equal, 2 and, 3 nor; numbers compared as the hardware does, cyclically.
bool is_met(const ValueOperation& operation, std::uint64_t value) {
  switch (operation.flags & 3) {
    case 0:
      return operation.is_wide
                 ? static_cast<std::int64_t>(value - operation.value) >= 0
                 : static_cast<std::int32_t>(static_cast<std::uint32_t>(value) -
                                             static_cast<std::uint32_t>(operation.value)) >= 0;
    case 1:
      return value == operation.value;
    case 2:
      return (value & operation.value) != 0;
    default: {
      const std::uint64_t bits = operation.is_wide ? ~std::uint64_t{0} : 0xffffffffU;
      return (~(value | operation.value) & bits) != 0;
    }
  }
}

CUresult run(const std::shared_ptr<Context>& context, const ValueOperation& operation,
             const Course& course) {
  const Holds holds;
  if (!runtime()->may_touch(operation.address, operation.is_wide ? 8 : 4))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  auto* const wide =
      reinterpret_cast<std::uint64_t*>(static_cast<std::uintptr_t>(operation.address));
  auto* const narrow =
      reinterpret_cast<std::uint32_t*>(static_cast<std::uintptr_t>(operation.address));
  if (!operation.is_wait) {
    if (operation.is_wide) {
      __atomic_store_n(wide, operation.value, __ATOMIC_SEQ_CST);
    } else {
      __atomic_store_n(narrow, static_cast<std::uint32_t>(operation.value), __ATOMIC_SEQ_CST);
    }
    count(Done::kValueWrite);
    return CUDA_SUCCESS;
  }
  const auto value = [&]() -> std::uint64_t {
    return operation.is_wide ? __atomic_load_n(wide, __ATOMIC_ACQUIRE)
                             : __atomic_load_n(narrow, __ATOMIC_ACQUIRE);
  };
  if (course.moment != nullptr) runtime()->timeline->note_wait(*course.moment);
  // Nobody tells when memory changes: look again, ever more seldom.
  auto pause = std::chrono::microseconds{1};
  while (!is_met(operation, value())) {
    if (context->cancel) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (context->error.load() != CUDA_SUCCESS) return CUDA_SUCCESS;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds{1000});
  }
  count(Done::kValueWait);
  return CUDA_SUCCESS;
}

CUresult run(const FreeMemory& operation) {
  Runtime& all = *runtime();
  Allocation allocation;
  {
    const std::scoped_lock lock(all.allocations_mutex);
    const auto found = all.allocations.find(operation.pointer);
    if (found == all.allocations.end()) return CUDA_SUCCESS;  // gone with its context
    allocation = std::move(found->second);
    all.allocations.erase(found);
  }
  all.give_back(operation.pointer, allocation);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult execute(const std::shared_ptr<Context>& context, const FreeMemory& free) {
  Course course;
  return execute(context, Operation(free), course);
}

namespace {

CUresult visit(const std::shared_ptr<Context>& context, const Operation& operation,
               Course& course) {
  struct Visitor {
    const std::shared_ptr<Context>& context;
    Course& course;
    CUresult operator()(const Nothing&) const { return CUDA_SUCCESS; }
    CUresult operator()(const KernelLaunch& launch) const { return run(context, launch, course); }
    CUresult operator()(const Copy& copy) const { return run(context, copy, course); }
    CUresult operator()(const Fill& fill) const { return run(context, fill, course); }
    CUresult operator()(const HostCall& call) const {
      is_in_callback() = true;
      if (course.moment != nullptr) course.add_host_call();
      call.function(call.user_data);
      is_in_callback() = false;
      count(Done::kHostFunction);
      return CUDA_SUCCESS;
    }
    CUresult operator()(const StreamCallback& call) const {
      is_in_callback() = true;
      if (course.moment != nullptr) course.add_host_call();
      call.function(call.stream, static_cast<CUresult>(context->error.load()), call.user_data);
      is_in_callback() = false;
      count(Done::kHostFunction);
      return CUDA_SUCCESS;
    }
    CUresult operator()(const EventRecord& record) const {
      if (course.moment == nullptr) {
        record.record->reach(runtime()->clock.now());
      } else {
        course.add(record);
        count(Done::kEvent);
      }
      return CUDA_SUCCESS;
    }
    CUresult operator()(const EventWait& wait) const {
      if (wait.record == nullptr) return CUDA_SUCCESS;
      wait.record->point.wait();
      if (course.moment != nullptr) course.add(wait);
      return CUDA_SUCCESS;
    }
    CUresult operator()(const FreeMemory& free) const { return run(free); }
    CUresult operator()(const ValueOperation& value) const { return run(context, value, course); }
    CUresult operator()(const ChildGraph& child) const {
      const CUresult status = execute(context, *child.graph, course);
      if (status == CUDA_SUCCESS) count(Done::kGraph);
      return status;
    }
  };
  return std::visit(Visitor{context, course}, operation);
}

/// Nothing for what no log has a row for.
std::optional<OperationLog::Which> which_of(const Operation& operation, const Course& course) {
  OperationLog::Which which;
  which.is_node = course.is_node;
  which.stream = course.stream;
  which.number = course.number;
  if (const auto* const launch = std::get_if<KernelLaunch>(&operation)) {
    which.what = Done::kKernel;
    which.name = launch->function->info.name;
  } else if (const auto* const copy = std::get_if<Copy>(&operation)) {
    which.what = kind_of(*copy);
    which.bytes = copy->width * copy->height * copy->depth;
  } else if (const auto* const fill = std::get_if<Fill>(&operation)) {
    which.what = Done::kFill;
    which.bytes = fill->shape.width * fill->shape.elementSize * fill->shape.height;
  } else if (const auto* const value = std::get_if<ValueOperation>(&operation)) {
    which.what = value->is_wait ? Done::kValueWait : Done::kValueWrite;
  } else if (std::holds_alternative<EventRecord>(operation)) {
    which.what = Done::kEvent;
  } else if (std::holds_alternative<ChildGraph>(operation)) {
    which.what = Done::kGraph;
  } else if (std::holds_alternative<HostCall>(operation) ||
             std::holds_alternative<StreamCallback>(operation)) {
    which.what = Done::kHostFunction;
  } else {
    return std::nullopt;
  }
  return which;
}

/// In virtual time the row is filled in once its first and last part have their places.
void note_places(OperationLog& log, std::size_t row, std::size_t first, Course& course) {
  if (course.parts.size() == first) course.add(Part{});  // work without time has a place, too
  for (const std::size_t part : {first, course.parts.size() - 1})
    course.parts[part].placed = [&log, row](const Span& span) { log.placed(row, span); };
}

}  // namespace

CUresult execute(const std::shared_ptr<Context>& context, const Operation& operation,
                 Course& course) {
  OperationLog* const log = process_log();
  const auto which =
      log == nullptr ? std::optional<OperationLog::Which>{} : which_of(operation, course);
  const auto row = which ? log->add(*which) : std::nullopt;
  if (!row) return visit(context, operation, course);
  const Runtime& all = *runtime();
  const std::size_t first = course.parts.size();
  const bool was_node = std::exchange(course.is_node, true);
  BootTime begin = all.clock.now();
  const CUresult status = visit(context, operation, course);
  BootTime end = all.clock.now();
  course.is_node = was_node;
  if (status != CUDA_SUCCESS) return status;
  if (course.moment != nullptr) {
    note_places(*log, *row, first, course);
    return status;
  }
  if (const auto* const event = std::get_if<EventRecord>(&operation))
    begin = end = event->record->host;
  log->ran(*row, {begin, end}, {all.event_clock.at(begin), all.event_clock.at(end)});
  return status;
}

void Busy::begin(std::uint64_t now_ns) {
  const std::scoped_lock lock(mutex_);
  if (count_++ > 0) return;
  since_ns_ = now_ns;
  if (slot_ != nullptr) slot_->busy_since_ns = now_ns;
}

void Busy::end(std::uint64_t now_ns) {
  const std::scoped_lock lock(mutex_);
  if (--count_ > 0 || slot_ == nullptr) return;
  slot_->busy_since_ns = 0;
  slot_->busy_ns += now_ns - since_ns_;
}

Device::Device(int number, int machine_number, gpu::exec::Memory device_memory, Telemetry* shared)
    : ordinal(number),
      machine_ordinal(machine_number),
      memory(std::move(device_memory)),
      telemetry(shared),
      slot(shared == nullptr ? nullptr : take_slot(*shared)),
      busy(slot) {
  default_pool->device = number;
  default_pool->is_default = true;
  if (telemetry != nullptr) {
    telemetry->memory_bytes = memory.capacity_bytes();
    telemetry->sm_count = gpu::exec::kSmCount;
  }
}

std::string Device::name() const {
  const char* const set = std::getenv("KANSOKU_SOFTGPU_NAME");
  return set == nullptr || *set == '\0' ? "Kansoku software device" : set;
}

double Device::speed() const {
  if (telemetry == nullptr) return 1;
  return static_cast<double>(std::clamp(telemetry->speed_permille.load(), 1U, 1000U)) / 1000;
}

void Device::note_memory() {
  if (slot != nullptr) slot->memory_bytes = memory.used_bytes();
}

void Device::slow_down(Nanos spent, const std::atomic<bool>& cancel) const {
  constexpr Nanos kSlice = std::chrono::milliseconds{10};
  double waited = 0;
  const auto total = static_cast<double>(spent.count());
  // The speed may be changed meanwhile.
  while (!cancel) {
    const double left = total * (1 / speed() - 1) - waited;
    if (left < 1) return;
    const double slice = std::min(left, static_cast<double>(kSlice.count()));
    std::this_thread::sleep_for(Nanos{static_cast<std::int64_t>(slice)});
    waited += slice;
  }
}

Physical::~Physical() {
  if (fd >= 0) close(fd);
  if (device != nullptr) {
    device->memory.discharge(bytes);
    device->note_memory();
  }
}

CUresult find_device(CUdevice number, Device*& device) {
  Runtime* const all = runtime();
  if (all == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (number < 0 || static_cast<std::size_t>(number) >= all->devices.size())
    return CUDA_ERROR_INVALID_DEVICE;
  device = all->devices[static_cast<std::size_t>(number)].get();
  return CUDA_SUCCESS;
}

Runtime* runtime() {
  return g_runtime.load(std::memory_order_acquire);
}

namespace {

/// Sets the clock before the devices are: its costs, and the adder of the kernels' times.
void start_clock(Runtime& all, ClockKind clock) {
  all.model = time_model(all.architecture);
  if (number_setting("KANSOKU_SOFTGPU_TIMES", 0, kTimesRowsMax, 0) == 0) return;
  all.kernel_times = std::make_unique<KernelTimes>(clock == ClockKind::kModel ? 3 : 1);
  static_cast<void>(std::atexit([] {
    const unsigned rows = number_setting("KANSOKU_SOFTGPU_TIMES", 0, kTimesRowsMax, 0);
    const Runtime* const now = runtime();
    if (now == nullptr) return;  // in a child of fork
    const ClockKind kind = now->timeline == nullptr ? ClockKind::kWall : ClockKind::kModel;
    log_line(fmt::format("kernels by time ({} clock): {}", clock_name(kind),
                         now->kernel_times->table(rows)));
  }));
}

std::unique_ptr<Timeline> make_timeline(const Runtime& all) {
  Timeline::Options options;
  options.device_count = all.devices.size();
  options.sm_count = static_cast<std::uint32_t>(all.model.sm_count);
  options.on_guess = [] {
    static std::once_flag said;
    std::call_once(said, [] {
      log_line("model clock: work waits for later work; times may differ from run to run");
    });
  };
  return std::make_unique<Timeline>(std::move(options));
}

}  // namespace

CUresult start_runtime() {
  static std::once_flag once;
  static std::atomic<CUresult> refused{CUDA_SUCCESS};
  std::call_once(once, [] {
    const auto clock = clock_setting();
    const auto skew = skew_setting(clock);
    const auto faults = check_fault_setting();
    for (const Error* const wrong :
         {clock ? nullptr : &clock.error(), skew ? nullptr : &skew.error(),
          faults ? nullptr : &faults.error()}) {
      if (wrong == nullptr) continue;  // times of another clock than wanted, say, are no help
      log_line(wrong->what);
      refused = CUDA_ERROR_INVALID_VALUE;
    }
    if (refused.load() != CUDA_SUCCESS) return;
    auto made = std::make_unique<Runtime>();
    made->workers = number_setting("KANSOKU_SOFTGPU_WORKERS", 1, 64,
                                   std::max(1U, std::thread::hardware_concurrency()));
    made->architecture = architecture_setting();
    if (const char* const set = std::getenv("KANSOKU_SOFTGPU_ARCH");
        set != nullptr && set != fmt::format("sm_{}", made->architecture))
      log_line(fmt::format("KANSOKU_SOFTGPU_ARCH={}: not sm_61 or sm_80; using sm_80", set));
    made->time_limit = kTimeLimitDefault;
    if (const char* const set = std::getenv("KANSOKU_SOFTGPU_TIME_LIMIT"); set != nullptr) {
      const auto limit = parse_duration(set);
      if (limit) made->time_limit = *limit;
      if (!limit) log_line(fmt::format("KANSOKU_SOFTGPU_TIME_LIMIT={}: not a duration", set));
    }
    made->event_clock.set(*skew);
    start_clock(*made, *clock);
    made->checks_hazards = number_setting("KANSOKU_SOFTGPU_CHECK", 0, 1, 0) == 1;
    auto host = gpu::exec::Memory::create(kHostBytesMax / 8);
    if (!host) {
      log_line(host.error().what);
      return;
    }
    made->host = std::move(*host);
    const auto visible =
        visible_devices(device_count_setting(), std::getenv("CUDA_VISIBLE_DEVICES"));
    const std::uint64_t first_base = base_setting();
    for (const int number : visible) {
      const std::uint64_t stride = std::max(kBaseStride, 16 * memory_setting());
      const std::uint64_t base = first_base == 0 ? 0 : first_base + stride * made->devices.size();
      auto memory = gpu::exec::Memory::create(memory_setting(), base);
      if (!memory) {
        log_line(memory.error().what);
        break;
      }
      auto telemetry = map_telemetry(number);
      if (!telemetry) log_line(telemetry.error().what);
      made->devices.push_back(std::make_unique<Device>(static_cast<int>(made->devices.size()),
                                                       number, std::move(*memory),
                                                       telemetry ? *telemetry : nullptr));
    }
    if (*clock == ClockKind::kModel) made->timeline = make_timeline(*made);
    g_runtime.store(made.release(), std::memory_order_release);
    // Its threads are not there in a child, and their locks may be held for ever: nothing of it may
    // be used. Every entry point asks for it first.
    pthread_atfork(nullptr, nullptr, [] {
      Runtime* const left = g_runtime.exchange(nullptr, std::memory_order_acq_rel);
      if (left != nullptr) g_parents_runtime.store(left, std::memory_order_relaxed);
    });
  });
  if (g_parents_runtime.load(std::memory_order_relaxed) != nullptr)
    return CUDA_ERROR_NOT_INITIALIZED;
  const Runtime* const all = runtime();
  if (refused.load() != CUDA_SUCCESS) return refused.load();
  if (all == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  return all->devices.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

Device* Runtime::device_of(std::uint64_t address) const {
  for (const auto& device : devices) {
    if (device->memory.is_own(address)) return device.get();
  }
  return nullptr;
}

bool Runtime::is_known(std::uint64_t address, std::size_t bytes) const {
  const Device* const device = device_of(address);
  const gpu::exec::Memory& memory = device == nullptr ? *host : device->memory;
  // A mapped range may be made of several pieces.
  const std::uint64_t end = address + bytes;
  if (end < address) return false;
  std::uint64_t at = address;
  do {
    const auto range = memory.find(at);
    if (range.end == 0) return false;
    at = range.end;
  } while (at < end);
  return true;
}

bool Runtime::may_touch(std::uint64_t address, std::size_t bytes) const {
  const bool is_ours = device_of(address) != nullptr || host->is_own(address);
  return !is_ours || is_known(address, bytes);
}

bool Runtime::find_allocation(CUdeviceptr address, Allocation& allocation) {
  const std::scoped_lock lock(allocations_mutex);
  auto after = allocations.upper_bound(address);
  if (after == allocations.begin()) return false;
  --after;
  if (address - after->first >= after->second.bytes) return false;
  allocation = after->second;
  return true;
}

void Runtime::give_back(CUdeviceptr pointer, const Allocation& allocation) {
  if (allocation.pool != nullptr) {
    const std::scoped_lock lock(allocation.pool->mutex);
    allocation.pool->used -= allocation.bytes;
  }
  if (allocation.is_registered) {
    static_cast<void>(host->remove_foreign(pointer));
  } else if (allocation.device == nullptr) {
    static_cast<void>(host->free(pointer));
  } else {
    static_cast<void>(allocation.device->memory.free(pointer));
    allocation.device->note_memory();
  }
}

void Runtime::free_all_of(const Context& context) {
  std::map<CUdeviceptr, Allocation> its;
  {
    const std::scoped_lock lock(allocations_mutex);
    for (auto each = allocations.begin(); each != allocations.end();) {
      // Pools are the device's: of theirs only the primary context's end frees what is left.
      const bool is_its = each->second.context == context.id &&
                          (each->second.pool == nullptr || context.is_primary);
      if (is_its) its.insert(*each);
      each = is_its ? allocations.erase(each) : std::next(each);
    }
  }
  for (const auto& [pointer, allocation] : its)
    give_back(pointer, allocation);
}

bool Runtime::is_pinned(const void* address, std::size_t bytes) const {
  const auto begin = reinterpret_cast<std::uint64_t>(address);
  const auto range = host->find(begin);
  return range.end != 0 && begin + bytes <= range.end;
}

}  // namespace kansoku::softcuda
