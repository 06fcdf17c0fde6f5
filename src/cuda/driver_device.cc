// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver_device.h"

#include <fmt/format.h>

#include <array>
#include <type_traits>

namespace kansoku::cuda {
namespace {

// extra of cuLaunchKernel: pairs of key and value.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): numbers, no addresses
void* const kBufferPointer = reinterpret_cast<void*>(std::uintptr_t{1});
void* const kBufferSize = reinterpret_cast<void*>(std::uintptr_t{2});
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

template <class Handle, class Id>
Handle handle_of(Id id) {
  return reinterpret_cast<Handle>(static_cast<std::uintptr_t>(id.raw));
}
template <class Id, class Handle>
Id id_of(Handle handle) {
  return Id{reinterpret_cast<std::uintptr_t>(handle)};
}

/// Has a context current on this thread, and restores the former one.
class ContextGuard {
 public:
  ContextGuard(const Driver& driver, CUcontext context)
      : driver_(driver), status_(driver.ctx_push(context)) {}
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;
  ~ContextGuard() {
    CUcontext popped = nullptr;
    if (status_ == CUDA_SUCCESS) driver_.ctx_pop(&popped);
  }
  [[nodiscard]] CUresult status() const { return status_; }

 private:
  const Driver& driver_;
  const CUresult status_;
};

/// Gives an error of the driver back from the calling function.
Result<void> checked(std::string_view operation, CUresult code) {
  if (code == CUDA_SUCCESS) return {};
  return driver_error(operation, code);
}

// The context of the device, until the end of the block.
#define KANSOKU_ENTER()                        \
  const ContextGuard guard(driver_, context_); \
  TRY_VOID(checked("set context", guard.status()))

class DriverDevice final : public Device {
 public:
  DriverDevice(const Driver& driver, CUdevice device, CUcontext context, ContextKind kind)
      : driver_(driver), device_(device), context_(context), kind_(kind) {}
  ~DriverDevice() override {
    if (kind_ == ContextKind::kPrimary) {
      driver_.primary_release(device_);
    } else {
      driver_.ctx_destroy(context_);
    }
  }

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
    return info;
  }

  Result<DevicePointer> allocate(std::size_t bytes) override {
    KANSOKU_ENTER();
    CUdeviceptr pointer = 0;
    TRY_VOID(checked("allocate", driver_.mem_alloc(&pointer, bytes)));
    return pointer;
  }
  Result<void> free(DevicePointer pointer) override {
    KANSOKU_ENTER();
    return checked("free", driver_.mem_free(pointer));
  }
  Result<void> copy_to_device(DevicePointer to, ByteSpan from, StreamId stream) override {
    KANSOKU_ENTER();
    return checked("copy to device", driver_.copy_to_device(to, from.data(), from.size(),
                                                            handle_of<CUstream>(stream)));
  }
  Result<void> copy_to_host(std::span<std::byte> to, DevicePointer from, StreamId stream) override {
    KANSOKU_ENTER();
    return checked("copy to host",
                   driver_.copy_to_host(to.data(), from, to.size(), handle_of<CUstream>(stream)));
  }
  Result<void> copy_on_device(DevicePointer to, DevicePointer from, std::size_t bytes,
                              StreamId stream) override {
    KANSOKU_ENTER();
    return checked("copy on device",
                   driver_.copy_on_device(to, from, bytes, handle_of<CUstream>(stream)));
  }
  Result<void> fill(DevicePointer to, std::uint8_t value, std::size_t bytes,
                    StreamId stream) override {
    KANSOKU_ENTER();
    return checked("fill", driver_.fill(to, value, bytes, handle_of<CUstream>(stream)));
  }

  Result<ModuleId> load_module(std::string_view image) override {
    KANSOKU_ENTER();
    const std::string ended(image);  // PTX text ends with a zero
    CUmodule module = nullptr;
    TRY_VOID(checked("load module", driver_.module_load(&module, ended.c_str())));
    return id_of<ModuleId>(module);
  }
  Result<void> unload_module(ModuleId module) override {
    KANSOKU_ENTER();
    return checked("unload module", driver_.module_unload(handle_of<CUmodule>(module)));
  }
  Result<KernelId> find_kernel(ModuleId module, const std::string& name) override {
    KANSOKU_ENTER();
    CUfunction function = nullptr;
    TRY_VOID(
        checked(fmt::format("find kernel {}", name),
                driver_.module_function(&function, handle_of<CUmodule>(module), name.c_str())));
    return id_of<KernelId>(function);
  }
  Result<Variable> find_variable(ModuleId module, const std::string& name) override {
    KANSOKU_ENTER();
    Variable variable;
    TRY_VOID(checked(fmt::format("find variable {}", name),
                     driver_.module_global(&variable.address, &variable.bytes,
                                           handle_of<CUmodule>(module), name.c_str())));
    return variable;
  }
  Result<void> launch(KernelId kernel, const LaunchShape& shape, const KernelArguments& arguments,
                      StreamId stream) override {
    KANSOKU_ENTER();
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

  Result<StreamId> create_stream(const StreamOptions& options) override {
    KANSOKU_ENTER();
    CUstream stream = nullptr;
    const unsigned flags = options.waits_for_default ? 0 : kStreamNonBlocking;
    TRY_VOID(checked("create stream", driver_.stream_create(&stream, flags, options.priority)));
    return id_of<StreamId>(stream);
  }
  Result<void> destroy_stream(StreamId stream) override {
    KANSOKU_ENTER();
    return checked("destroy stream", driver_.stream_destroy(handle_of<CUstream>(stream)));
  }
  Result<void> synchronize(StreamId stream) override {
    KANSOKU_ENTER();
    return checked("synchronize stream", driver_.stream_synchronize(handle_of<CUstream>(stream)));
  }
  Result<void> synchronize() override {
    KANSOKU_ENTER();
    return checked("synchronize device", driver_.ctx_synchronize());
  }
  Result<EventId> create_event() override {
    KANSOKU_ENTER();
    CUevent event = nullptr;
    TRY_VOID(checked("create event", driver_.event_create(&event, 0)));
    return id_of<EventId>(event);
  }
  Result<void> destroy_event(EventId event) override {
    KANSOKU_ENTER();
    return checked("destroy event", driver_.event_destroy(handle_of<CUevent>(event)));
  }
  Result<void> record(EventId event, StreamId stream) override {
    KANSOKU_ENTER();
    return checked("record event",
                   driver_.event_record(handle_of<CUevent>(event), handle_of<CUstream>(stream)));
  }
  Result<void> wait(StreamId stream, EventId event) override {
    KANSOKU_ENTER();
    return checked("wait for event", driver_.stream_wait_event(handle_of<CUstream>(stream),
                                                               handle_of<CUevent>(event), 0));
  }
  Result<double> elapsed_ms(EventId begin, EventId end) override {
    KANSOKU_ENTER();
    TRY_VOID(checked("wait for event", driver_.event_synchronize(handle_of<CUevent>(begin))));
    TRY_VOID(checked("wait for event", driver_.event_synchronize(handle_of<CUevent>(end))));
    float ms = 0;
    TRY_VOID(checked("time between events", driver_.event_elapsed(&ms, handle_of<CUevent>(begin),
                                                                  handle_of<CUevent>(end))));
    return static_cast<double>(ms);
  }
  Result<bool> is_done(EventId event) override {
    KANSOKU_ENTER();
    return done("ask event", driver_.event_query(handle_of<CUevent>(event)));
  }
  Result<bool> is_done(StreamId stream) override {
    KANSOKU_ENTER();
    return done("ask stream", driver_.stream_query(handle_of<CUstream>(stream)));
  }
  Result<Priorities> priorities() override {
    KANSOKU_ENTER();
    Priorities range;
    TRY_VOID(checked("stream priorities", driver_.ctx_priorities(&range.least, &range.greatest)));
    return range;
  }

  Result<MemoryInfo> memory_info() override {
    KANSOKU_ENTER();
    std::size_t free_bytes = 0, total_bytes = 0;
    TRY_VOID(checked("memory information", driver_.mem_info(&free_bytes, &total_bytes)));
    return MemoryInfo{free_bytes, total_bytes};
  }
  Result<KernelInfo> kernel_info(KernelId kernel) override {
    KANSOKU_ENTER();
    const auto function = handle_of<CUfunction>(kernel);
    KernelInfo info;
    const auto ask = [&](CUfunction_attribute which, auto& into) -> Result<void> {
      int value = 0;
      TRY_VOID(checked("kernel attribute", driver_.function_attribute(&value, which, function)));
      into = static_cast<std::remove_reference_t<decltype(into)>>(value);
      return {};
    };
    TRY_VOID(ask(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, info.threads_max));
    TRY_VOID(ask(CU_FUNC_ATTRIBUTE_NUM_REGS, info.registers));
    TRY_VOID(ask(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, info.shared_bytes));
    TRY_VOID(ask(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, info.constant_bytes));
    TRY_VOID(ask(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, info.local_bytes));
    TRY_VOID(ask(CU_FUNC_ATTRIBUTE_PTX_VERSION, info.ptx_version));
    TRY_VOID(ask(CU_FUNC_ATTRIBUTE_BINARY_VERSION, info.binary_version));
    if (driver_.function_parameter == nullptr) return info;
    for (std::size_t i = 0; i < kParametersMax; ++i) {
      KernelInfo::Parameter parameter;
      const CUresult status =
          driver_.function_parameter(function, i, &parameter.offset, &parameter.bytes);
      if (status == CUDA_ERROR_INVALID_VALUE) break;  // behind the last
      TRY_VOID(checked("kernel parameter", status));
      info.parameters.push_back(parameter);
    }
    return info;
  }

  Result<std::span<std::byte>> allocate_host(std::size_t bytes) override {
    KANSOKU_ENTER();
    void* memory = nullptr;
    TRY_VOID(checked("allocate host memory", driver_.host_alloc(&memory, bytes, 0)));
    return std::span(static_cast<std::byte*>(memory), bytes);
  }
  Result<void> free_host(std::byte* memory) override {
    KANSOKU_ENTER();
    return checked("free host memory", driver_.host_free(memory));
  }
  Result<void> register_host(std::span<std::byte> memory) override {
    KANSOKU_ENTER();
    return checked("register host memory", driver_.host_register(memory.data(), memory.size(), 0));
  }
  Result<void> unregister_host(std::byte* memory) override {
    KANSOKU_ENTER();
    return checked("unregister host memory", driver_.host_unregister(memory));
  }

  Result<std::size_t> granularity() override {
    KANSOKU_ENTER();
    const CUmemAllocationProp prop = own_memory();
    std::size_t bytes = 0;
    TRY_VOID(checked("granularity", driver_.granularity(&bytes, &prop, 0)));
    return bytes;
  }
  Result<DevicePointer> reserve(std::size_t bytes, DevicePointer at) override {
    KANSOKU_ENTER();
    CUdeviceptr pointer = 0;
    TRY_VOID(checked("reserve addresses", driver_.reserve(&pointer, bytes, 0, at, 0)));
    return pointer;
  }
  Result<void> unreserve(DevicePointer at, std::size_t bytes) override {
    KANSOKU_ENTER();
    return checked("give addresses back", driver_.unreserve(at, bytes));
  }
  Result<PhysicalId> create_physical(std::size_t bytes) override {
    KANSOKU_ENTER();
    const CUmemAllocationProp prop = own_memory();
    CUmemGenericAllocationHandle handle{};
    TRY_VOID(checked("create memory", driver_.physical_create(&handle, bytes, &prop, 0)));
    return PhysicalId{handle};
  }
  Result<void> release_physical(PhysicalId physical) override {
    KANSOKU_ENTER();
    return checked("release memory", driver_.physical_release(physical.raw));
  }
  Result<void> map(DevicePointer at, std::size_t bytes, PhysicalId physical) override {
    KANSOKU_ENTER();
    return checked("map memory", driver_.map(at, bytes, 0, physical.raw, 0));
  }
  Result<void> unmap(DevicePointer at, std::size_t bytes) override {
    KANSOKU_ENTER();
    return checked("unmap memory", driver_.unmap(at, bytes));
  }
  Result<void> protect(DevicePointer at, std::size_t bytes, Access access) override {
    KANSOKU_ENTER();
    constexpr std::array kFlags{0, 1, 3};  // by Access
    const CUmemAccessDesc wanted{{kDeviceMemory, device_},
                                 kFlags[static_cast<std::size_t>(access)]};
    return checked("protect memory", driver_.set_access(at, bytes, &wanted, 1));
  }

 private:
  static constexpr int kDeviceMemory = 1, kPinned = 1;  // of CUmemLocation and its allocation
  static constexpr std::size_t kParametersMax = 4096;   // as many bytes as parameters may have

  static Result<bool> done(std::string_view operation, CUresult status) {
    if (status == CUDA_ERROR_NOT_READY) return false;
    TRY_VOID(checked(operation, status));
    return true;
  }
  [[nodiscard]] CUmemAllocationProp own_memory() const {
    CUmemAllocationProp prop{};
    prop.type = kPinned;
    prop.location = {kDeviceMemory, device_};
    return prop;
  }
  Result<std::uint32_t> attribute(CUdevice_attribute which) {
    int value = 0;
    TRY_VOID(checked("device attribute", driver_.device_attribute(&value, which, device_)));
    return static_cast<std::uint32_t>(value);
  }

  const Driver driver_;
  const CUdevice device_;
  const CUcontext context_;
  const ContextKind kind_;
};
#undef KANSOKU_ENTER

}  // namespace

Result<int> count_devices(const Driver& driver) {
  TRY_VOID(checked(fmt::format("start {}", driver.path), driver.init(0)));
  int count = 0;
  TRY_VOID(checked("count devices", driver.device_count(&count)));
  return count;
}

Result<std::unique_ptr<Device>> open_device(const Driver& driver, int ordinal, ContextKind kind) {
  TRY_VOID(checked(fmt::format("start {}", driver.path), driver.init(0)));
  CUdevice device = 0;
  TRY_VOID(checked(fmt::format("open device {}", ordinal), driver.device_get(&device, ordinal)));
  CUcontext context = nullptr;
  const std::string operation = fmt::format("open device {}", ordinal);
  if (kind == ContextKind::kPrimary) {
    TRY_VOID(checked(operation, driver.primary_retain(&context, device)));
  } else {
    CUcontext made_current = nullptr;
    TRY_VOID(checked(operation, driver.ctx_create(&context, 0, device)));
    const CUresult status = driver.ctx_pop(&made_current);  // the former context is current again
    if (status != CUDA_SUCCESS) driver.ctx_destroy(context);
    TRY_VOID(checked(operation, status));
  }
  return std::unique_ptr<Device>(std::make_unique<DriverDevice>(driver, device, context, kind));
}

}  // namespace kansoku::cuda
