// SPDX-License-Identifier: Apache-2.0
#include "cuda/fakes.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/check.h"
#include "cuda/driver.h"

namespace kansoku::cuda {
namespace {

constexpr std::uint64_t kGap = 0x1000;  // between allocations
constexpr std::uint64_t kMemoryBytes = std::uint64_t{1} << 30;

}  // namespace

std::size_t RecordingDevice::live_count() const {
  return live_.size() + memory_.size() + host_.size() + registered_.size() + reserved_.size();
}

Result<std::span<std::byte>> RecordingDevice::place(DevicePointer pointer, std::size_t bytes) {
  auto after = memory_.upper_bound(pointer);
  if (after != memory_.begin()) {
    auto& [begin, block] = *std::prev(after);
    const std::uint64_t offset = pointer - begin;
    if (offset <= block.size() && bytes <= block.size() - offset)
      return std::span(block).subspan(offset, bytes);
  }
  return driver_error("access", CUDA_ERROR_INVALID_VALUE);
}

std::uint64_t RecordingDevice::make(std::string_view kind) {
  live_.emplace(++next_handle_, kind);
  return next_handle_;
}

Result<void> RecordingDevice::drop(std::string_view kind, std::uint64_t handle) {
  const auto found = live_.find(handle);
  if (found == live_.end() || found->second != kind)
    return driver_error(fmt::format("give back a {}", kind), CUDA_ERROR_INVALID_HANDLE);
  live_.erase(found);
  return {};
}

Result<DeviceInfo> RecordingDevice::info() {
  calls_.emplace_back("info");
  DeviceInfo info;
  info.name = "recording fake";
  return info;
}

Result<DevicePointer> RecordingDevice::allocate(std::size_t bytes) {
  calls_.push_back(fmt::format("allocate {}", bytes));
  if (bytes == 0) return driver_error("allocate", CUDA_ERROR_INVALID_VALUE);
  const DevicePointer address = next_address_;
  next_address_ += (bytes + kGap - 1) / kGap * kGap + kGap;
  memory_[address].resize(bytes);
  return address;
}

Result<void> RecordingDevice::free(DevicePointer pointer) {
  calls_.push_back(fmt::format("free 0x{:x}", pointer));
  if (memory_.erase(pointer) == 0) return driver_error("free", CUDA_ERROR_INVALID_VALUE);
  return {};
}

Result<void> RecordingDevice::copy_to_device(DevicePointer to, ByteSpan from, StreamId stream) {
  calls_.push_back(fmt::format("copy_to_device 0x{:x} {} stream {}", to, from.size(), stream.raw));
  TRY(const auto target, place(to, from.size()));
  std::copy(from.begin(), from.end(), target.begin());
  return {};
}

Result<void> RecordingDevice::copy_to_host(std::span<std::byte> to, DevicePointer from,
                                           StreamId stream) {
  calls_.push_back(fmt::format("copy_to_host 0x{:x} {} stream {}", from, to.size(), stream.raw));
  TRY(const auto source, place(from, to.size()));
  std::copy(source.begin(), source.end(), to.begin());
  return {};
}

Result<void> RecordingDevice::copy_on_device(DevicePointer to, DevicePointer from,
                                             std::size_t bytes, StreamId stream) {
  calls_.push_back(
      fmt::format("copy_on_device 0x{:x} 0x{:x} {} stream {}", to, from, bytes, stream.raw));
  TRY(const auto target, place(to, bytes));
  TRY(const auto source, place(from, bytes));
  std::memmove(target.data(), source.data(), bytes);
  return {};
}

Result<void> RecordingDevice::fill(DevicePointer to, std::uint8_t value, std::size_t bytes,
                                   StreamId stream) {
  calls_.push_back(fmt::format("fill 0x{:x} {} {} stream {}", to, value, bytes, stream.raw));
  TRY(const auto target, place(to, bytes));
  std::fill(target.begin(), target.end(), std::byte{value});
  return {};
}

Result<ModuleId> RecordingDevice::load_module(std::string_view image) {
  calls_.push_back(fmt::format("load_module {}", image.size()));
  return ModuleId{make("module")};
}

Result<void> RecordingDevice::unload_module(ModuleId module) {
  calls_.push_back(fmt::format("unload_module {}", module.raw));
  return drop("module", module.raw);
}

Result<KernelId> RecordingDevice::find_kernel(ModuleId module, const std::string& name) {
  calls_.push_back(fmt::format("find_kernel {} {}", module.raw, name));
  if (live_.count(module.raw) == 0) return driver_error("find kernel", CUDA_ERROR_INVALID_HANDLE);
  kernels_.emplace(++next_handle_, name);
  return KernelId{next_handle_};
}

Result<Device::Variable> RecordingDevice::find_variable(ModuleId module, const std::string& name) {
  calls_.push_back(fmt::format("find_variable {} {}", module.raw, name));
  return driver_error(fmt::format("find variable {}", name), CUDA_ERROR_NOT_FOUND);
}

Result<void> RecordingDevice::launch(KernelId kernel, const LaunchShape& shape,
                                     const KernelArguments& arguments, StreamId stream) {
  const auto found = kernels_.find(kernel.raw);
  calls_.push_back(fmt::format("launch {} {} {} {} stream {}",
                               found == kernels_.end() ? "?" : found->second,
                               fmt::join(shape.grid, "x"), fmt::join(shape.block, "x"),
                               arguments.bytes().size(), stream.raw));
  if (found == kernels_.end()) return driver_error("launch kernel", CUDA_ERROR_INVALID_HANDLE);
  return {};
}

Result<StreamId> RecordingDevice::create_stream(const StreamOptions&) {
  calls_.emplace_back("create_stream");
  return StreamId{make("stream")};
}

Result<void> RecordingDevice::destroy_stream(StreamId stream) {
  calls_.push_back(fmt::format("destroy_stream {}", stream.raw));
  return drop("stream", stream.raw);
}

Result<void> RecordingDevice::synchronize(StreamId stream) {
  calls_.push_back(fmt::format("synchronize stream {}", stream.raw));
  return {};
}

Result<void> RecordingDevice::synchronize() {
  calls_.emplace_back("synchronize");
  return {};
}

Result<EventId> RecordingDevice::create_event() {
  calls_.emplace_back("create_event");
  return EventId{make("event")};
}

Result<void> RecordingDevice::destroy_event(EventId event) {
  calls_.push_back(fmt::format("destroy_event {}", event.raw));
  return drop("event", event.raw);
}

Result<void> RecordingDevice::record(EventId event, StreamId stream) {
  calls_.push_back(fmt::format("record {} stream {}", event.raw, stream.raw));
  return {};
}

Result<void> RecordingDevice::wait(StreamId stream, EventId event) {
  calls_.push_back(fmt::format("wait {} stream {}", event.raw, stream.raw));
  return {};
}

Result<double> RecordingDevice::elapsed_ms(EventId begin, EventId end) {
  calls_.push_back(fmt::format("elapsed_ms {} {}", begin.raw, end.raw));
  return 0.0;
}

Result<bool> RecordingDevice::is_done(EventId event) {
  calls_.push_back(fmt::format("is_done event {}", event.raw));
  return true;
}
Result<bool> RecordingDevice::is_done(StreamId stream) {
  calls_.push_back(fmt::format("is_done stream {}", stream.raw));
  return true;
}
Result<Device::Priorities> RecordingDevice::priorities() {
  calls_.emplace_back("priorities");
  return Priorities{};
}
Result<MemoryInfo> RecordingDevice::memory_info() {
  calls_.emplace_back("memory_info");
  MemoryInfo info{kMemoryBytes, kMemoryBytes};
  for (const auto& [address, block] : memory_)
    info.free_bytes -= block.size();
  return info;
}
Result<KernelInfo> RecordingDevice::kernel_info(KernelId kernel) {
  calls_.push_back(fmt::format("kernel_info {}", kernel.raw));
  if (kernels_.count(kernel.raw) == 0)
    return driver_error("kernel attribute", CUDA_ERROR_INVALID_HANDLE);
  return KernelInfo{};
}

Result<std::span<std::byte>> RecordingDevice::allocate_host(std::size_t bytes) {
  calls_.push_back(fmt::format("allocate_host {}", bytes));
  if (bytes == 0) return driver_error("allocate host memory", CUDA_ERROR_INVALID_VALUE);
  std::vector<std::byte> memory(bytes);
  const std::span<std::byte> given(memory);
  host_.emplace(given.data(), std::move(memory));
  return given;
}
Result<void> RecordingDevice::free_host(std::byte* memory) {
  calls_.emplace_back("free_host");
  if (host_.erase(memory) == 0) return driver_error("free host memory", CUDA_ERROR_INVALID_VALUE);
  return {};
}
Result<void> RecordingDevice::register_host(std::span<std::byte> memory) {
  calls_.push_back(fmt::format("register_host {}", memory.size()));
  if (!registered_.insert(memory.data()).second)
    return driver_error("register host memory", CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  return {};
}
Result<void> RecordingDevice::unregister_host(std::byte* memory) {
  calls_.emplace_back("unregister_host");
  if (registered_.erase(memory) == 0)
    return driver_error("unregister host memory", CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  return {};
}

Result<std::size_t> RecordingDevice::granularity() {
  calls_.emplace_back("granularity");
  return kGap;
}
Result<DevicePointer> RecordingDevice::reserve(std::size_t bytes, DevicePointer at) {
  calls_.push_back(fmt::format("reserve {} at 0x{:x}", bytes, at));
  if (bytes == 0 || bytes % kGap != 0)
    return driver_error("reserve addresses", CUDA_ERROR_INVALID_VALUE);
  const DevicePointer address = next_address_;
  next_address_ += bytes + kGap;
  reserved_.emplace(address, bytes);
  return address;
}
Result<void> RecordingDevice::unreserve(DevicePointer at, std::size_t bytes) {
  calls_.push_back(fmt::format("unreserve 0x{:x} {}", at, bytes));
  const auto found = reserved_.find(at);
  if (found == reserved_.end() || found->second != bytes || memory_.count(at) != 0)
    return driver_error("give addresses back", CUDA_ERROR_INVALID_VALUE);
  reserved_.erase(found);
  return {};
}
Result<PhysicalId> RecordingDevice::create_physical(std::size_t bytes) {
  calls_.push_back(fmt::format("create_physical {}", bytes));
  if (bytes == 0 || bytes % kGap != 0)
    return driver_error("create memory", CUDA_ERROR_INVALID_VALUE);
  return PhysicalId{make("physical")};
}
Result<void> RecordingDevice::release_physical(PhysicalId physical) {
  calls_.push_back(fmt::format("release_physical {}", physical.raw));
  return drop("physical", physical.raw);
}
Result<void> RecordingDevice::map(DevicePointer at, std::size_t bytes, PhysicalId physical) {
  calls_.push_back(fmt::format("map 0x{:x} {} {}", at, bytes, physical.raw));
  const auto found = reserved_.find(at);
  if (found == reserved_.end() || bytes > found->second || live_.count(physical.raw) == 0 ||
      memory_.count(at) != 0)
    return driver_error("map memory", CUDA_ERROR_INVALID_VALUE);
  memory_[at].resize(bytes);
  return {};
}
Result<void> RecordingDevice::unmap(DevicePointer at, std::size_t bytes) {
  calls_.push_back(fmt::format("unmap 0x{:x} {}", at, bytes));
  const auto found = memory_.find(at);
  if (reserved_.count(at) == 0 || found == memory_.end() || found->second.size() != bytes)
    return driver_error("unmap memory", CUDA_ERROR_INVALID_VALUE);
  memory_.erase(found);
  return {};
}
Result<void> RecordingDevice::protect(DevicePointer at, std::size_t bytes, Access access) {
  calls_.push_back(fmt::format("protect 0x{:x} {} {}", at, bytes, static_cast<int>(access)));
  TRY_VOID(place(at, bytes));
  return {};
}

namespace {

/// The one that there is; null: none.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<FailingDriver*> g_failing{nullptr};

/// Replacement of a function of the driver: fails when its turn has come, else passes the call on.
template <auto>
struct Failing;
template <class... Args, CUresult (*Driver::*member)(Args...)>
struct Failing<member> {
  static CUresult call(Args... args) {
    FailingDriver& one = *g_failing.load();
    return one.fails() ? CUDA_ERROR_UNKNOWN : (one.inner().*member)(args...);
  }
};

}  // namespace

FailingDriver::FailingDriver(const Driver& inner, std::uint64_t nth, Mode mode)
    : inner_(inner), driver_(inner), nth_(nth), mode_(mode) {
  CHECK(g_failing.exchange(this) == nullptr);
#define KANSOKU_DRIVER_FUNCTION(member, symbol, is_optional, types) \
  if (inner_.member != nullptr) driver_.member = &Failing<&Driver::member>::call;
#include "cuda/interface/functions.inc"
#undef KANSOKU_DRIVER_FUNCTION
}

FailingDriver::~FailingDriver() {
  g_failing = nullptr;
}

bool FailingDriver::fails() {
  const std::uint64_t number = ++call_count_;
  return mode_ == Mode::kOnce ? number == nth_ : number >= nth_;
}

}  // namespace kansoku::cuda
