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
using PhysicalId = Id<struct PhysicalTag, std::uint64_t>;

struct DeviceInfo {
  std::string name;
  std::uint64_t memory_bytes{0};
  std::uint32_t compute_major{0}, compute_minor{0};
  std::uint32_t multiprocessors{0};
  int driver_version{0};  // 1000 * major + 10 * minor
  std::string uuid;       // 32 hexadecimal digits
};

struct MemoryInfo {
  std::uint64_t free_bytes{0}, total_bytes{0};
};

struct StreamOptions {
  bool waits_for_default{true};  // and the default stream for it
  int priority{0};               // lower numbers go first; see Device::priorities
};

/// A kernel as its image has it. `parameters`: where each lies; empty if the driver does not tell.
struct KernelInfo {
  std::uint32_t threads_max{0}, registers{0};
  std::uint64_t shared_bytes{0}, constant_bytes{0}, local_bytes{0};
  std::uint32_t ptx_version{0}, binary_version{0};  // 10 * major + minor
  struct Parameter {
    std::size_t offset{0}, bytes{0};
  };
  std::vector<Parameter> parameters;
};

/// Access that a mapped range allows.
enum class Access : std::uint8_t { kNone, kRead, kReadWrite };

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
  /// Bytes at an offset behind the present ones, as a kernel's layout has it; false if it is taken.
  bool add_bytes(ByteSpan bytes, std::size_t offset) {
    if (offset < bytes_.size()) return false;
    bytes_.resize(offset);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return true;
  }
  [[nodiscard]] ByteSpan bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// A GPU as Kansoku's own code sees it: NVIDIA's or the software device through the driver's
/// interface, or a fake of a test. Work of one stream runs in order, that of several may overlap;
/// the default stream waits for the others and they for it. Copies take place when their turn
/// comes: memory that a span points to must stay until the stream has been synchronised. Errors of
/// a kernel come back from a later call, as the driver gives them. The calling thread's current
/// context stays current. Any thread, unless an implementation says otherwise.
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

  [[nodiscard]] virtual Result<StreamId> create_stream(const StreamOptions& options) = 0;
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
  /// True if the event's last record is done, or if there was none.
  [[nodiscard]] virtual Result<bool> is_done(EventId event) = 0;
  /// Milliseconds between two records; waits for both. May block.
  [[nodiscard]] virtual Result<double> elapsed_ms(EventId begin, EventId end) = 0;
  /// True if all work of the stream is done.
  [[nodiscard]] virtual Result<bool> is_done(StreamId stream) = 0;
  struct Priorities {
    int least{0}, greatest{0};  // greatest <= least
  };
  [[nodiscard]] virtual Result<Priorities> priorities() = 0;

  [[nodiscard]] virtual Result<MemoryInfo> memory_info() = 0;
  [[nodiscard]] virtual Result<KernelInfo> kernel_info(KernelId kernel) = 0;

  /// Host memory that copies and kernels reach directly.
  [[nodiscard]] virtual Result<std::span<std::byte>> allocate_host(std::size_t bytes) = 0;
  [[nodiscard]] virtual Result<void> free_host(std::byte* memory) = 0;
  /// The same for memory that is there already.
  [[nodiscard]] virtual Result<void> register_host(std::span<std::byte> memory) = 0;
  [[nodiscard]] virtual Result<void> unregister_host(std::byte* memory) = 0;

  /// Addresses and the memory behind them by themselves. Sizes and addresses are multiples of it.
  [[nodiscard]] virtual Result<std::size_t> granularity() = 0;
  /// `at`: where it should be, 0: anywhere. A driver may choose another place.
  [[nodiscard]] virtual Result<DevicePointer> reserve(std::size_t bytes, DevicePointer at) = 0;
  [[nodiscard]] virtual Result<void> unreserve(DevicePointer at, std::size_t bytes) = 0;
  [[nodiscard]] virtual Result<PhysicalId> create_physical(std::size_t bytes) = 0;
  /// Mapped memory stays valid until it is unmapped.
  [[nodiscard]] virtual Result<void> release_physical(PhysicalId physical) = 0;
  /// Nobody may use the range before `protect` allows it.
  [[nodiscard]] virtual Result<void> map(DevicePointer at, std::size_t bytes,
                                         PhysicalId physical) = 0;
  [[nodiscard]] virtual Result<void> unmap(DevicePointer at, std::size_t bytes) = 0;
  [[nodiscard]] virtual Result<void> protect(DevicePointer at, std::size_t bytes,
                                             Access access) = 0;
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
using OwnedPhysical = Owned<PhysicalId, &Device::release_physical>;

/// Events that are used again: making one costs a call of the driver. The device must outlive it.
/// One thread.
class EventPool {
 public:
  explicit EventPool(Device& device) : device_(device) {}
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  ~EventPool();
  [[nodiscard]] Result<EventId> take();
  /// One that `take` gave. Its last record may still run: who takes it next records it anew.
  void give_back(EventId event) { free_.push_back(event); }
  /// Made so far, given back or not.
  [[nodiscard]] std::size_t made() const { return made_; }

 private:
  Device& device_;
  std::vector<EventId> free_;
  std::size_t made_{0};
};

[[nodiscard]] Result<OwnedMemory> make_memory(Device& device, std::size_t bytes);
[[nodiscard]] Result<OwnedModule> make_module(Device& device, std::string_view image);
[[nodiscard]] Result<OwnedStream> make_stream(Device& device, const StreamOptions& options = {});
[[nodiscard]] Result<OwnedEvent> make_event(Device& device);

/// Copies and waits. May block.
[[nodiscard]] Result<void> upload(Device& device, DevicePointer to, ByteSpan from);
[[nodiscard]] Result<void> download(Device& device, std::span<std::byte> to, DevicePointer from);

}  // namespace kansoku::cuda
