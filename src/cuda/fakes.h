// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cuda/device.h"

namespace kansoku::cuda {

/// A device for tests of code that uses one: memory of this process, kernels that are only noted.
/// Everything happens at once, and every call is written down. One thread.
class RecordingDevice final : public Device {
 public:
  /// "copy_to_device 0x1000 64 stream 3", in the order of the calls; handles and addresses count up
  /// from the same numbers each time.
  [[nodiscard]] const std::vector<std::string>& calls() const { return calls_; }
  /// What is allocated, loaded or created and not yet given back.
  [[nodiscard]] std::size_t live_count() const;

  Result<DeviceInfo> info() override;
  Result<DevicePointer> allocate(std::size_t bytes) override;
  Result<void> free(DevicePointer pointer) override;
  Result<void> copy_to_device(DevicePointer to, ByteSpan from, StreamId stream) override;
  Result<void> copy_to_host(std::span<std::byte> to, DevicePointer from, StreamId stream) override;
  Result<void> copy_on_device(DevicePointer to, DevicePointer from, std::size_t bytes,
                              StreamId stream) override;
  Result<void> fill(DevicePointer to, std::uint8_t value, std::size_t bytes,
                    StreamId stream) override;
  Result<ModuleId> load_module(std::string_view image) override;
  Result<void> unload_module(ModuleId module) override;
  Result<KernelId> find_kernel(ModuleId module, const std::string& name) override;
  Result<Variable> find_variable(ModuleId module, const std::string& name) override;
  Result<void> launch(KernelId kernel, const LaunchShape& shape, const KernelArguments& arguments,
                      StreamId stream) override;
  Result<StreamId> create_stream() override;
  Result<void> destroy_stream(StreamId stream) override;
  Result<void> synchronize(StreamId stream) override;
  Result<void> synchronize() override;
  Result<EventId> create_event() override;
  Result<void> destroy_event(EventId event) override;
  Result<void> record(EventId event, StreamId stream) override;
  Result<void> wait(StreamId stream, EventId event) override;
  Result<double> elapsed_ms(EventId begin, EventId end) override;

 private:
  Result<std::span<std::byte>> place(DevicePointer pointer, std::size_t bytes);
  std::uint64_t make(std::string_view kind);
  Result<void> drop(std::string_view kind, std::uint64_t handle);

  std::vector<std::string> calls_;
  std::map<DevicePointer, std::vector<std::byte>> memory_;
  std::map<std::uint64_t, std::string> live_;     // handle -> kind
  std::map<std::uint64_t, std::string> kernels_;  // handle -> name
  std::uint64_t next_handle_{0};
  DevicePointer next_address_{0x1000};
};

/// Passes every call on to another device, but lets the `nth` (from 1) fail, or the nth and all
/// after it. What comes after a transient failure works again.
class FailingDevice final : public Device {
 public:
  enum class Mode : std::uint8_t { kOnce, kFromThenOn };
  FailingDevice(Device& device, std::uint64_t nth, Mode mode)
      : device_(device), nth_(nth), mode_(mode) {}
  [[nodiscard]] std::uint64_t call_count() const { return call_count_; }
  [[nodiscard]] bool has_failed() const { return call_count_ >= nth_; }

  Result<DeviceInfo> info() override;
  Result<DevicePointer> allocate(std::size_t bytes) override;
  Result<void> free(DevicePointer pointer) override;
  Result<void> copy_to_device(DevicePointer to, ByteSpan from, StreamId stream) override;
  Result<void> copy_to_host(std::span<std::byte> to, DevicePointer from, StreamId stream) override;
  Result<void> copy_on_device(DevicePointer to, DevicePointer from, std::size_t bytes,
                              StreamId stream) override;
  Result<void> fill(DevicePointer to, std::uint8_t value, std::size_t bytes,
                    StreamId stream) override;
  Result<ModuleId> load_module(std::string_view image) override;
  Result<void> unload_module(ModuleId module) override;
  Result<KernelId> find_kernel(ModuleId module, const std::string& name) override;
  Result<Variable> find_variable(ModuleId module, const std::string& name) override;
  Result<void> launch(KernelId kernel, const LaunchShape& shape, const KernelArguments& arguments,
                      StreamId stream) override;
  Result<StreamId> create_stream() override;
  Result<void> destroy_stream(StreamId stream) override;
  Result<void> synchronize(StreamId stream) override;
  Result<void> synchronize() override;
  Result<EventId> create_event() override;
  Result<void> destroy_event(EventId event) override;
  Result<void> record(EventId event, StreamId stream) override;
  Result<void> wait(StreamId stream, EventId event) override;
  Result<double> elapsed_ms(EventId begin, EventId end) override;

 private:
  [[nodiscard]] bool fails();
  Device& device_;
  const std::uint64_t nth_;
  const Mode mode_;
  std::uint64_t call_count_{0};
};

}  // namespace kansoku::cuda
