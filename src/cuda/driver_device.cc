// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver_device.h"

#include <fmt/format.h>

namespace kansoku::cuda {
namespace {

// extra of cuLaunchKernel: pairs of key and value.
void* const kBufferPointer = reinterpret_cast<void*>(std::uintptr_t{1});
void* const kBufferSize = reinterpret_cast<void*>(std::uintptr_t{2});

template <class Handle, class Id>
Handle handle_of(Id id) {
  return reinterpret_cast<Handle>(static_cast<std::uintptr_t>(id.raw));
}
template <class Id, class Handle>
Id id_of(Handle handle) {
  return Id{reinterpret_cast<std::uintptr_t>(handle)};
}

/// Gives an error of the driver back from the calling function.
Result<void> checked(std::string_view operation, CUresult code) {
  if (code == CUDA_SUCCESS) return {};
  return driver_error(operation, code);
}

class DriverDevice final : public Device {
 public:
  DriverDevice(const Driver& driver, CUdevice device, CUcontext context)
      : driver_(driver), device_(device), context_(context) {}
  ~DriverDevice() override { driver_.primary_release(device_); }

  Result<DeviceInfo> info() override {
    DeviceInfo info;
    char name[256] = {};
    std::size_t bytes = 0;
    CUuuid uuid{};
    TRY_VOID(checked("device name", driver_.device_name(name, sizeof name, device_)));
    TRY_VOID(checked("device memory", driver_.device_total_mem(&bytes, device_)));
    TRY_VOID(checked("driver version", driver_.driver_version(&info.driver_version)));
    TRY_VOID(checked("device uuid", driver_.device_uuid(&uuid, device_)));
    info.name = name;
    info.memory_bytes = bytes;
    for (const char byte : uuid.bytes)
      info.uuid += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    TRY(info.compute_major, attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
    TRY(info.compute_minor, attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
    TRY(info.multiprocessors, attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    TRY(info.clock_khz, attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE));
    return info;
  }

  Result<DevicePointer> allocate(std::size_t bytes) override {
    TRY_VOID(enter());
    CUdeviceptr pointer = 0;
    TRY_VOID(checked("allocate", driver_.mem_alloc(&pointer, bytes)));
    return pointer;
  }
  Result<void> free(DevicePointer pointer) override {
    TRY_VOID(enter());
    return checked("free", driver_.mem_free(pointer));
  }
  Result<void> copy_to_device(DevicePointer to, ByteSpan from, StreamId stream) override {
    TRY_VOID(enter());
    return checked("copy to device", driver_.copy_to_device(to, from.data(), from.size(),
                                                            handle_of<CUstream>(stream)));
  }
  Result<void> copy_to_host(std::span<std::byte> to, DevicePointer from, StreamId stream) override {
    TRY_VOID(enter());
    return checked("copy to host",
                   driver_.copy_to_host(to.data(), from, to.size(), handle_of<CUstream>(stream)));
  }
  Result<void> copy_on_device(DevicePointer to, DevicePointer from, std::size_t bytes,
                              StreamId stream) override {
    TRY_VOID(enter());
    return checked("copy on device",
                   driver_.copy_on_device(to, from, bytes, handle_of<CUstream>(stream)));
  }
  Result<void> fill(DevicePointer to, std::uint8_t value, std::size_t bytes,
                    StreamId stream) override {
    TRY_VOID(enter());
    return checked("fill", driver_.fill(to, value, bytes, handle_of<CUstream>(stream)));
  }

  Result<ModuleId> load_module(std::string_view image) override {
    TRY_VOID(enter());
    const std::string ended(image);  // PTX text ends with a zero
    CUmodule module = nullptr;
    TRY_VOID(checked("load module", driver_.module_load(&module, ended.c_str())));
    return id_of<ModuleId>(module);
  }
  Result<void> unload_module(ModuleId module) override {
    TRY_VOID(enter());
    return checked("unload module", driver_.module_unload(handle_of<CUmodule>(module)));
  }
  Result<KernelId> find_kernel(ModuleId module, const std::string& name) override {
    TRY_VOID(enter());
    CUfunction function = nullptr;
    TRY_VOID(
        checked(fmt::format("find kernel {}", name),
                driver_.module_function(&function, handle_of<CUmodule>(module), name.c_str())));
    return id_of<KernelId>(function);
  }
  Result<Variable> find_variable(ModuleId module, const std::string& name) override {
    TRY_VOID(enter());
    Variable variable;
    TRY_VOID(checked(fmt::format("find variable {}", name),
                     driver_.module_global(&variable.address, &variable.bytes,
                                           handle_of<CUmodule>(module), name.c_str())));
    return variable;
  }
  Result<void> launch(KernelId kernel, const LaunchShape& shape, const KernelArguments& arguments,
                      StreamId stream) override {
    TRY_VOID(enter());
    std::size_t bytes = arguments.bytes().size();
    void* const buffer = const_cast<std::byte*>(arguments.bytes().data());
    void* extra[] = {kBufferPointer, buffer, kBufferSize, &bytes, nullptr};
    return checked(
        "launch kernel",
        driver_.launch_kernel(handle_of<CUfunction>(kernel), shape.grid[0], shape.grid[1],
                              shape.grid[2], shape.block[0], shape.block[1], shape.block[2],
                              shape.shared_bytes, handle_of<CUstream>(stream), nullptr,
                              bytes == 0 ? nullptr : extra));  // an empty buffer has no address
  }

  Result<StreamId> create_stream() override {
    TRY_VOID(enter());
    CUstream stream = nullptr;
    TRY_VOID(checked("create stream", driver_.stream_create(&stream, 0)));
    return id_of<StreamId>(stream);
  }
  Result<void> destroy_stream(StreamId stream) override {
    TRY_VOID(enter());
    return checked("destroy stream", driver_.stream_destroy(handle_of<CUstream>(stream)));
  }
  Result<void> synchronize(StreamId stream) override {
    TRY_VOID(enter());
    return checked("synchronize stream", driver_.stream_synchronize(handle_of<CUstream>(stream)));
  }
  Result<void> synchronize() override {
    TRY_VOID(enter());
    return checked("synchronize device", driver_.ctx_synchronize());
  }
  Result<EventId> create_event() override {
    TRY_VOID(enter());
    CUevent event = nullptr;
    TRY_VOID(checked("create event", driver_.event_create(&event, 0)));
    return id_of<EventId>(event);
  }
  Result<void> destroy_event(EventId event) override {
    TRY_VOID(enter());
    return checked("destroy event", driver_.event_destroy(handle_of<CUevent>(event)));
  }
  Result<void> record(EventId event, StreamId stream) override {
    TRY_VOID(enter());
    return checked("record event",
                   driver_.event_record(handle_of<CUevent>(event), handle_of<CUstream>(stream)));
  }
  Result<void> wait(StreamId stream, EventId event) override {
    TRY_VOID(enter());
    return checked("wait for event", driver_.stream_wait_event(handle_of<CUstream>(stream),
                                                               handle_of<CUevent>(event), 0));
  }
  Result<double> elapsed_ms(EventId begin, EventId end) override {
    TRY_VOID(enter());
    TRY_VOID(checked("wait for event", driver_.event_synchronize(handle_of<CUevent>(begin))));
    TRY_VOID(checked("wait for event", driver_.event_synchronize(handle_of<CUevent>(end))));
    float ms = 0;
    TRY_VOID(checked("time between events", driver_.event_elapsed(&ms, handle_of<CUevent>(begin),
                                                                  handle_of<CUevent>(end))));
    return static_cast<double>(ms);
  }

 private:
  Result<void> enter() { return checked("set context", driver_.ctx_set_current(context_)); }
  Result<std::uint32_t> attribute(CUdevice_attribute which) {
    int value = 0;
    TRY_VOID(checked("device attribute", driver_.device_attribute(&value, which, device_)));
    return static_cast<std::uint32_t>(value);
  }

  const Driver driver_;
  const CUdevice device_;
  const CUcontext context_;
};

}  // namespace

Result<int> count_devices(const Driver& driver) {
  TRY_VOID(checked(fmt::format("start {}", driver.path), driver.init(0)));
  int count = 0;
  TRY_VOID(checked("count devices", driver.device_count(&count)));
  return count;
}

Result<std::unique_ptr<Device>> open_device(const Driver& driver, int ordinal) {
  TRY_VOID(checked(fmt::format("start {}", driver.path), driver.init(0)));
  CUdevice device = 0;
  TRY_VOID(checked(fmt::format("open device {}", ordinal), driver.device_get(&device, ordinal)));
  CUcontext context = nullptr;
  TRY_VOID(
      checked(fmt::format("open device {}", ordinal), driver.primary_retain(&context, device)));
  return std::unique_ptr<Device>(std::make_unique<DriverDevice>(driver, device, context));
}

}  // namespace kansoku::cuda
