// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "cuda/driver.h"

namespace kansoku::cuda {

/// A device for tests of code that uses one: memory of this process, kernels that are only noted.
/// Everything happens at once, and every call is written down. One thread.
class RecordingDevice : public Device {
 public:
  /// "copy_to_device 0x1000 64 stream 3", in the order of the calls; handles and addresses count up
  /// from the same numbers each time.
  [[nodiscard]] const std::vector<std::string>& calls() const { return calls_; }
  /// Number of resources that are allocated, loaded or created and not yet given back.
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
  Result<StreamId> create_stream(const StreamOptions& options) override;
  Result<void> destroy_stream(StreamId stream) override;
  Result<void> synchronize(StreamId stream) override;
  Result<void> synchronize() override;
  Result<EventId> create_event() override;
  Result<void> destroy_event(EventId event) override;
  Result<void> record(EventId event, StreamId stream) override;
  Result<void> wait(StreamId stream, EventId event) override;
  Result<double> elapsed_ms(EventId begin, EventId end) override;
  Result<bool> is_done(EventId event) override;
  Result<bool> is_done(StreamId stream) override;
  Result<Priorities> priorities() override;
  Result<MemoryInfo> memory_info() override;
  Result<KernelInfo> kernel_info(KernelId kernel) override;
  Result<std::span<std::byte>> allocate_host(std::size_t bytes) override;
  Result<void> free_host(std::byte* memory) override;
  Result<void> register_host(std::span<std::byte> memory) override;
  Result<void> unregister_host(std::byte* memory) override;
  Result<std::size_t> granularity() override;
  Result<DevicePointer> reserve(std::size_t bytes, DevicePointer at) override;
  Result<void> unreserve(DevicePointer at, std::size_t bytes) override;
  Result<PhysicalId> create_physical(std::size_t bytes) override;
  Result<void> release_physical(PhysicalId physical) override;
  Result<void> map(DevicePointer at, std::size_t bytes, PhysicalId physical) override;
  Result<void> unmap(DevicePointer at, std::size_t bytes) override;
  Result<void> protect(DevicePointer at, std::size_t bytes, Access access) override;

 private:
  Result<std::span<std::byte>> place(DevicePointer pointer, std::size_t bytes);
  std::uint64_t make(std::string_view kind);
  Result<void> drop(std::string_view kind, std::uint64_t handle);

  std::vector<std::string> calls_;
  std::map<DevicePointer, std::vector<std::byte>> memory_;
  std::map<std::uint64_t, std::string> live_;     // handle -> kind
  std::map<std::uint64_t, std::string> kernels_;  // handle -> name
  std::map<std::byte*, std::vector<std::byte>> host_;
  std::set<std::byte*> registered_;
  std::map<DevicePointer, std::size_t> reserved_;
  std::uint64_t next_handle_{0};
  DevicePointer next_address_{0x1000};
};

/// A driver that passes every call on to another one, but lets the `nth` (from 1) fail with
/// CUDA_ERROR_UNKNOWN, or the nth and all after it. Calls after a transient failure work again. One
/// at a time in a process: the driver's functions do not say whose they are.
class FailingDriver {
 public:
  enum class Mode : std::uint8_t { kOnce, kFromThenOn };
  static constexpr std::uint64_t kNever = UINT64_MAX;
  FailingDriver(const Driver& inner, std::uint64_t nth, Mode mode);
  FailingDriver(const FailingDriver&) = delete;
  FailingDriver& operator=(const FailingDriver&) = delete;
  ~FailingDriver();
  /// For open_device; as long as this lives.
  [[nodiscard]] const Driver& driver() const { return driver_; }
  [[nodiscard]] std::uint64_t call_count() const { return call_count_; }
  [[nodiscard]] bool has_failed() const { return call_count_ >= nth_; }

  /// For the functions.
  [[nodiscard]] bool fails();
  [[nodiscard]] const Driver& inner() const { return inner_; }

 private:
  const Driver inner_;
  Driver driver_;
  const std::uint64_t nth_;
  const Mode mode_;
  std::atomic<std::uint64_t> call_count_{0};
};

}  // namespace kansoku::cuda
