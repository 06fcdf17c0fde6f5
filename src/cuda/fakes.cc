// SPDX-License-Identifier: Apache-2.0
#include "cuda/fakes.h"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/driver.h"

namespace kansoku::cuda {
namespace {

constexpr std::uint64_t kGap = 0x1000;  // between allocations

}  // namespace

std::size_t RecordingDevice::live_count() const {
  return live_.size() + memory_.size();
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

Result<StreamId> RecordingDevice::create_stream() {
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

bool FailingDevice::fails() {
  ++call_count_;
  return mode_ == Mode::kOnce ? call_count_ == nth_ : call_count_ >= nth_;
}

// Each call, counted and passed on.
#define KANSOKU_PASS(call)                                                 \
  if (fails()) return driver_error("planted failure", CUDA_ERROR_UNKNOWN); \
  return device_.call

Result<DeviceInfo> FailingDevice::info() {
  KANSOKU_PASS(info());
}
Result<DevicePointer> FailingDevice::allocate(std::size_t bytes) {
  KANSOKU_PASS(allocate(bytes));
}
Result<void> FailingDevice::free(DevicePointer pointer) {
  KANSOKU_PASS(free(pointer));
}
Result<void> FailingDevice::copy_to_device(DevicePointer to, ByteSpan from, StreamId stream) {
  KANSOKU_PASS(copy_to_device(to, from, stream));
}
Result<void> FailingDevice::copy_to_host(std::span<std::byte> to, DevicePointer from,
                                         StreamId stream) {
  KANSOKU_PASS(copy_to_host(to, from, stream));
}
Result<void> FailingDevice::copy_on_device(DevicePointer to, DevicePointer from, std::size_t bytes,
                                           StreamId stream) {
  KANSOKU_PASS(copy_on_device(to, from, bytes, stream));
}
Result<void> FailingDevice::fill(DevicePointer to, std::uint8_t value, std::size_t bytes,
                                 StreamId stream) {
  KANSOKU_PASS(fill(to, value, bytes, stream));
}
Result<ModuleId> FailingDevice::load_module(std::string_view image) {
  KANSOKU_PASS(load_module(image));
}
Result<void> FailingDevice::unload_module(ModuleId module) {
  KANSOKU_PASS(unload_module(module));
}
Result<KernelId> FailingDevice::find_kernel(ModuleId module, const std::string& name) {
  KANSOKU_PASS(find_kernel(module, name));
}
Result<Device::Variable> FailingDevice::find_variable(ModuleId module, const std::string& name) {
  KANSOKU_PASS(find_variable(module, name));
}
Result<void> FailingDevice::launch(KernelId kernel, const LaunchShape& shape,
                                   const KernelArguments& arguments, StreamId stream) {
  KANSOKU_PASS(launch(kernel, shape, arguments, stream));
}
Result<StreamId> FailingDevice::create_stream() {
  KANSOKU_PASS(create_stream());
}
Result<void> FailingDevice::destroy_stream(StreamId stream) {
  KANSOKU_PASS(destroy_stream(stream));
}
Result<void> FailingDevice::synchronize(StreamId stream) {
  KANSOKU_PASS(synchronize(stream));
}
Result<void> FailingDevice::synchronize() {
  KANSOKU_PASS(synchronize());
}
Result<EventId> FailingDevice::create_event() {
  KANSOKU_PASS(create_event());
}
Result<void> FailingDevice::destroy_event(EventId event) {
  KANSOKU_PASS(destroy_event(event));
}
Result<void> FailingDevice::record(EventId event, StreamId stream) {
  KANSOKU_PASS(record(event, stream));
}
Result<void> FailingDevice::wait(StreamId stream, EventId event) {
  KANSOKU_PASS(wait(stream, event));
}
Result<double> FailingDevice::elapsed_ms(EventId begin, EventId end) {
  KANSOKU_PASS(elapsed_ms(begin, end));
}
#undef KANSOKU_PASS

}  // namespace kansoku::cuda
