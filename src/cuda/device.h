// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/bytes.h"
#include "common/ids.h"
#include "common/result.h"

namespace kansoku::cuda {

/// A device address.
using DevicePointer = std::uint64_t;
/// Handles of a Device; 0 is none, and the default stream.
using StreamId = Id<struct StreamTag, std::uint64_t>;
using EventId = Id<struct EventTag, std::uint64_t>;
using ModuleId = Id<struct ModuleTag, std::uint64_t>;
using KernelId = Id<struct KernelTag, std::uint64_t>;

struct DeviceInfo {
  std::string name;
  std::uint64_t memory_bytes{0};
  std::uint32_t compute_major{0}, compute_minor{0};
  std::uint32_t multiprocessors{0};
  std::uint32_t clock_khz{0};
  int driver_version{0};  // 1000 * major + 10 * minor
  std::string uuid;       // 32 hexadecimal digits
};

struct LaunchShape {
  std::array<std::uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};
  std::uint32_t shared_bytes{0};  // dynamic
};

/// A kernel's arguments as they lie in its parameter space: each aligned to its size.
class KernelArguments {
 public:
  template <class T>
  KernelArguments& add(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::size_t offset = (bytes_.size() + alignof(T) - 1) / alignof(T) * alignof(T);
    bytes_.resize(offset + sizeof(T));
    std::memcpy(bytes_.data() + offset, &value, sizeof(T));
    return *this;
  }
  [[nodiscard]] ByteSpan bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// A GPU as Kansoku's own code sees it: NVIDIA's or the software device through the driver's
/// interface, or a fake of a test. Work of one stream runs in order, that of several may overlap;
/// the default stream waits for the others and they for it. Copies take place when their turn
/// comes: what a span points to must stay until the stream has been synchronised. Errors of a
/// kernel come back from a later call, as the driver gives them. Any thread, unless an
/// implementation says otherwise.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  [[nodiscard]] virtual Result<DeviceInfo> info() = 0;

  /// kLimit if the memory is used up.
  [[nodiscard]] virtual Result<DevicePointer> allocate(std::size_t bytes) = 0;
  [[nodiscard]] virtual Result<void> free(DevicePointer pointer) = 0;
  [[nodiscard]] virtual Result<void> copy_to_device(DevicePointer to, ByteSpan from,
                                                    StreamId stream) = 0;
  [[nodiscard]] virtual Result<void> copy_to_host(std::span<std::byte> to, DevicePointer from,
                                                  StreamId stream) = 0;
  [[nodiscard]] virtual Result<void> copy_on_device(DevicePointer to, DevicePointer from,
                                                    std::size_t bytes, StreamId stream) = 0;
  [[nodiscard]] virtual Result<void> fill(DevicePointer to, std::uint8_t value, std::size_t bytes,
                                          StreamId stream) = 0;

  /// PTX text or a fatbin.
  [[nodiscard]] virtual Result<ModuleId> load_module(std::string_view image) = 0;
  [[nodiscard]] virtual Result<void> unload_module(ModuleId module) = 0;
  /// kNotFound.
  [[nodiscard]] virtual Result<KernelId> find_kernel(ModuleId module, const std::string& name) = 0;
  struct Variable {
    DevicePointer address{0};
    std::size_t bytes{0};
  };
  [[nodiscard]] virtual Result<Variable> find_variable(ModuleId module,
                                                       const std::string& name) = 0;
  [[nodiscard]] virtual Result<void> launch(KernelId kernel, const LaunchShape& shape,
                                            const KernelArguments& arguments, StreamId stream) = 0;

  [[nodiscard]] virtual Result<StreamId> create_stream() = 0;
  [[nodiscard]] virtual Result<void> destroy_stream(StreamId stream) = 0;
  /// Waits until all work of the stream is done. May block.
  [[nodiscard]] virtual Result<void> synchronize(StreamId stream) = 0;
  /// Waits for all streams. May block.
  [[nodiscard]] virtual Result<void> synchronize() = 0;
  [[nodiscard]] virtual Result<EventId> create_event() = 0;
  [[nodiscard]] virtual Result<void> destroy_event(EventId event) = 0;
  [[nodiscard]] virtual Result<void> record(EventId event, StreamId stream) = 0;
  /// The stream goes on when the event's last record is done.
  [[nodiscard]] virtual Result<void> wait(StreamId stream, EventId event) = 0;
  /// Milliseconds between two records; waits for both. May block.
  [[nodiscard]] virtual Result<double> elapsed_ms(EventId begin, EventId end) = 0;
};

/// Owns one thing of a device and gives it back; the device must outlive it. Move-only.
template <class Handle, Result<void> (Device::*release_one)(Handle)>
class Owned {
 public:
  Owned() = default;
  Owned(Device& device, Handle handle) : device_(&device), handle_(handle) {}
  Owned(Owned&& o) noexcept
      : device_(std::exchange(o.device_, nullptr)), handle_(std::exchange(o.handle_, Handle{})) {}
  Owned& operator=(Owned&& o) noexcept {
    Owned tmp(std::move(o));
    std::swap(device_, tmp.device_);
    std::swap(handle_, tmp.handle_);
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { static_cast<void>(finish()); }

  [[nodiscard]] Handle get() const { return handle_; }
  /// Gives it back now and says whether that failed.
  [[nodiscard]] Result<void> finish() {
    Device* const device = std::exchange(device_, nullptr);
    if (device == nullptr) return {};
    return (device->*release_one)(std::exchange(handle_, Handle{}));
  }

 private:
  Device* device_{nullptr};  // null: owns nothing
  Handle handle_{};
};

using OwnedMemory = Owned<DevicePointer, &Device::free>;
using OwnedModule = Owned<ModuleId, &Device::unload_module>;
using OwnedStream = Owned<StreamId, &Device::destroy_stream>;
using OwnedEvent = Owned<EventId, &Device::destroy_event>;

[[nodiscard]] Result<OwnedMemory> make_memory(Device& device, std::size_t bytes);
[[nodiscard]] Result<OwnedModule> make_module(Device& device, std::string_view image);
[[nodiscard]] Result<OwnedStream> make_stream(Device& device);
[[nodiscard]] Result<OwnedEvent> make_event(Device& device);

/// Copies and waits. May block.
[[nodiscard]] Result<void> upload(Device& device, DevicePointer to, ByteSpan from);
[[nodiscard]] Result<void> download(Device& device, std::span<std::byte> to, DevicePointer from);

}  // namespace kansoku::cuda
