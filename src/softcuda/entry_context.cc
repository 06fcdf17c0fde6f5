// SPDX-License-Identifier: Apache-2.0
// Devices and contexts.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "common/of_thread.h"
#include "softcuda/internal/runtime.h"

namespace kansoku::softcuda {
namespace {

constexpr std::array kLimits{std::pair{0, std::size_t{1024}}, std::pair{1, std::size_t{1} << 20},
                             std::pair{2, std::size_t{8} << 20}};

namespace exec = gpu::exec;

/// Attributes with an answer other than 0.
constexpr std::pair<CUdevice_attribute, int> kAttributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, int{exec::kThreadsPerBlockMax}},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, int{exec::kBlockExtentMax[0]}},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, int{exec::kBlockExtentMax[1]}},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, int{exec::kBlockExtentMax[2]}},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, int{exec::kGridExtentMax[0]}},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, int{exec::kGridExtentMax[1]}},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, int{exec::kGridExtentMax[2]}},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, int{exec::kSharedBytesDefaultMax}},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 * 1024},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 0x7fffffff},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, static_cast<int>(kNominalClockMhz * 1000)},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, int{exec::kSmCount}},
    {CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, 1},
    {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0},  // the ordinal is added
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, static_cast<int>(kMemoryClockMhz * 1000)},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 128},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 4 << 20},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, int{exec::kThreadsPerSm}},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, int{exec::kSharedBytesPerSm}},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, int{exec::kSharedBytesMax}},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, int{exec::kBlocksPerSm}},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, int{exec::kSharedReservedBytes}},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
};

int value_of(CUdevice_attribute attribute) {
  const int architecture = runtime() == nullptr ? 0 : runtime()->architecture;
  if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) return architecture / 10;
  if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) return architecture % 10;
  const auto* const found = std::find_if(std::begin(kAttributes), std::end(kAttributes),
                                         [&](const auto& row) { return row.first == attribute; });
  return found == std::end(kAttributes) ? 0 : found->second;
}

std::shared_ptr<Context> make_context(Device& device, unsigned flags, bool is_primary,
                                      CUcontext& handle) {
  auto context = std::make_shared<Context>();
  context->device = &device;
  context->id = runtime()->next_id++;
  context->flags = flags;
  context->is_primary = is_primary;
  for (const auto& [limit, value] : kLimits)
    context->limits[limit] = value;
  handle = runtime()->contexts.add<CUcontext>(context);
  return context;
}

/// Ends kernels, waits for streams and forgets what belongs to the context.
void end_context(const std::shared_ptr<Context>& context) {
  Runtime& all = *runtime();
  context->is_destroyed = true;
  context->cancel = true;
  {
    const std::scoped_lock lock(context->order_mutex);
    for (const auto& weak : context->streams) {
      const auto stream = weak.lock();
      if (stream == nullptr) continue;
      if (const auto capture = stream->capture; capture != nullptr) capture->abandon();
    }
  }
  static_cast<void>(context->wait_for_all());
  const auto is_its = [&](const auto& object) { return object.context.lock() == context; };
  all.functions.remove_if([&](const Function& function) { return is_its(*function.module); });
  all.modules.remove_if([&](Module& module) {
    if (!is_its(module)) return false;
    const std::scoped_lock lock(module.program_mutex);
    module.program = nullptr;  // its variables go, even if a graph keeps the module
    return true;
  });
  all.libraries.for_each([&](Library& library) {
    const std::scoped_lock lock(library.mutex);
    library.modules.erase(context->id);
  });
  all.events.remove_if(is_its);
  all.links.remove_if(is_its);
  all.streams.remove_if([&](const Stream& stream) {
    if (stream.context() != context) return false;
    const_cast<Stream&>(stream).close();
    return true;
  });
  const std::scoped_lock lock(context->order_mutex);
  if (context->legacy != nullptr) context->legacy->close();
  context->legacy = nullptr;
  for (const auto& weak : context->streams) {
    if (const auto stream = weak.lock()) stream->close();  // those of threads
  }
  all.free_all_of(*context);
  context->device->note_memory();
}

bool are_flags(unsigned flags) {
  const unsigned schedule = flags & 7;  // automatic, spin, yield, or block
  return (flags & ~kContextFlagsMask) == 0 && (schedule & (schedule - 1)) == 0;
}

CUresult set_current(CUcontext handle) {
  Runtime* const all = runtime();
  if (all == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  auto& stack = context_stack();
  if (handle == nullptr) {
    if (!stack.empty()) stack.pop_back();
    return CUDA_SUCCESS;
  }
  auto context = all->contexts.find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (stack.empty()) {
    stack.push_back(std::move(context));
  } else {
    stack.back() = std::move(context);
  }
  return CUDA_SUCCESS;
}

CUresult current_or_given(CUcontext handle, std::shared_ptr<Context>& context) {
  if (handle == nullptr) return enter(context);
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  context = runtime()->contexts.find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return static_cast<CUresult>(context->error.load());
}

CUresult create_context(CUcontext* handle, unsigned flags, CUdevice number) {
  Device* device = nullptr;
  KANSOKU_CU_TRY(find_device(number, device));
  if (handle == nullptr || !are_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  context_stack().push_back(make_context(*device, flags, false, *handle));
  return CUDA_SUCCESS;
}

std::string bus_text(const Device& device) {
  return fmt::format("0000:{:02x}:00.0", device.machine_ordinal + 1);
}

CUresult uuid_of(CUuuid* uuid, CUdevice number) {
  Device* device = nullptr;
  KANSOKU_CU_TRY(find_device(number, device));
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memset(uuid, 0, sizeof *uuid);
  if (device->telemetry != nullptr)
    std::memcpy(uuid->bytes, device->telemetry->uuid.data(), sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

}  // namespace

std::vector<std::shared_ptr<Context>>& context_stack() {
  return OfThread<std::vector<std::shared_ptr<Context>>>::get();
}

CUcontext handle_of(const std::shared_ptr<Context>& context) {
  return reinterpret_cast<CUcontext>(context.get());
}

CUresult enter(std::shared_ptr<Context>& context) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (is_in_callback()) return CUDA_ERROR_NOT_PERMITTED;
  const auto& stack = context_stack();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  context = stack.back();
  if (context->is_destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return static_cast<CUresult>(context->error.load());
}

KANSOKU_ENTRY cuInit(unsigned flags) {
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : start_runtime();
}

KANSOKU_ENTRY cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = kDriverVersion;
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuDeviceGet(CUdevice* device, int ordinal) {
  Device* found = nullptr;
  KANSOKU_CU_TRY(find_device(ordinal, found));
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuDeviceGetCount(int* count) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(runtime()->devices.size());
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuDeviceGetName(char* name, int bytes, CUdevice number) {
  Device* device = nullptr;
  KANSOKU_CU_TRY(find_device(number, device));
  if (name == nullptr || bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
  const std::string text = device->name();
  const std::size_t count = std::min(text.size(), static_cast<std::size_t>(bytes) - 1);
  std::memcpy(name, text.data(), count);
  name[count] = '\0';
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return uuid_of(uuid, device);
}
KANSOKU_ENTRY cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return uuid_of(uuid, device);
}

KANSOKU_ENTRY cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice number) {
  Device* device = nullptr;
  KANSOKU_CU_TRY(find_device(number, device));
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = device->memory.capacity_bytes();
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice number) {
  Device* device = nullptr;
  KANSOKU_CU_TRY(find_device(number, device));
  if (value == nullptr || attribute <= 0 || attribute > CU_DEVICE_ATTRIBUTE_LAST)
    return CUDA_ERROR_INVALID_VALUE;
  *value = value_of(attribute);
  if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) *value += device->machine_ordinal + 1;
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuDeviceComputeCapability(int* major, int* minor, CUdevice number) {
  Device* device = nullptr;
  KANSOKU_CU_TRY(find_device(number, device));
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *major = value_of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  *minor = value_of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuDeviceGetProperties(CUdevprop* properties, CUdevice number) {
  Device* device = nullptr;
  KANSOKU_CU_TRY(find_device(number, device));
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *properties = {
      value_of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
      {value_of(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X), value_of(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
       value_of(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)},
      {value_of(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X), value_of(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
       value_of(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)},
      value_of(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
      value_of(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
      value_of(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
      value_of(CU_DEVICE_ATTRIBUTE_MAX_PITCH),
      value_of(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
      value_of(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
      value_of(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)};
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuDeviceGetPCIBusId(char* text, int bytes, CUdevice number) {
  Device* device = nullptr;
  KANSOKU_CU_TRY(find_device(number, device));
  const std::string id = bus_text(*device);
  if (text == nullptr || bytes <= static_cast<int>(id.size())) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(text, id.c_str(), id.size() + 1);
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (device == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < runtime()->devices.size(); ++i) {
    if (bus_text(*runtime()->devices[i]) != text) continue;
    *device = static_cast<CUdevice>(i);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

KANSOKU_ENTRY cuDeviceCanAccessPeer(int* can, CUdevice a, CUdevice b) {
  Device* device = nullptr;
  KANSOKU_CU_TRY(find_device(a, device));
  KANSOKU_CU_TRY(find_device(b, device));
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *can = a != b ? 1 : 0;
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuDeviceGetP2PAttribute(int* value, int attribute, CUdevice a, CUdevice b) {
  Device* device = nullptr;
  KANSOKU_CU_TRY(find_device(a, device));
  KANSOKU_CU_TRY(find_device(b, device));
  // 1 performance rank, 2 access, 3 native atomics, 4 arrays.
  if (value == nullptr || attribute < 1 || attribute > 4 || a == b) return CUDA_ERROR_INVALID_VALUE;
  *value = attribute == 2 || attribute == 3 ? 1 : 0;
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice number) {
  Device* device = nullptr;
  KANSOKU_CU_TRY(find_device(number, device));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::scoped_lock lock(device->mutex);
  if (device->primary == nullptr)
    device->primary = make_context(*device, device->primary_flags, true, device->primary_handle);
  ++device->primary_count;
  *handle = device->primary_handle;
  return CUDA_SUCCESS;
}

namespace {

CUresult end_primary(CUdevice number, bool is_reset) {
  Device* device = nullptr;
  KANSOKU_CU_TRY(find_device(number, device));
  std::shared_ptr<Context> ended;
  {
    const std::scoped_lock lock(device->mutex);
    if (!is_reset) {
      if (device->primary_count == 0) return CUDA_ERROR_INVALID_CONTEXT;
      if (--device->primary_count > 0) return CUDA_SUCCESS;
    }
    ended = std::move(device->primary);
    device->primary = nullptr;
    device->primary_count = is_reset ? device->primary_count : 0;
    runtime()->contexts.remove(device->primary_handle);
  }
  if (ended != nullptr) end_context(ended);
  return CUDA_SUCCESS;
}

CUresult set_primary_flags(CUdevice number, unsigned flags) {
  Device* device = nullptr;
  KANSOKU_CU_TRY(find_device(number, device));
  if (!are_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  const std::scoped_lock lock(device->mutex);
  device->primary_flags = flags;
  if (device->primary != nullptr) device->primary->flags = flags;
  return CUDA_SUCCESS;
}

}  // namespace

KANSOKU_ENTRY cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return end_primary(device, false);
}
KANSOKU_ENTRY cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return end_primary(device, true);
}
KANSOKU_ENTRY cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  return set_primary_flags(device, flags);
}

KANSOKU_ENTRY cuDevicePrimaryCtxGetState(CUdevice number, unsigned* flags, int* is_active) {
  Device* device = nullptr;
  KANSOKU_CU_TRY(find_device(number, device));
  const std::scoped_lock lock(device->mutex);
  if (flags != nullptr) *flags = device->primary_flags;
  if (is_active != nullptr) *is_active = device->primary != nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  return create_context(context, flags, device);
}
KANSOKU_ENTRY cuCtxCreate_v4(CUcontext* context, const void* params, unsigned flags,
                             CUdevice device) {
  if (params != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return create_context(context, flags, device);
}

KANSOKU_ENTRY cuCtxDestroy_v2(CUcontext handle) {
  Runtime* const all = runtime();
  if (all == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const auto context = all->contexts.find(handle);
  if (context == nullptr || context->is_primary) return CUDA_ERROR_INVALID_CONTEXT;
  all->contexts.remove(handle);
  end_context(context);
  auto& stack = context_stack();
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuCtxPushCurrent_v2(CUcontext handle) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  auto context = runtime()->contexts.find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  context_stack().push_back(std::move(context));
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuCtxPopCurrent_v2(CUcontext* handle) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  auto& stack = context_stack();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle != nullptr) *handle = handle_of(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuCtxSetCurrent(CUcontext context) {
  return set_current(context);
}

KANSOKU_ENTRY cuCtxGetCurrent(CUcontext* handle) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto& stack = context_stack();
  *handle = stack.empty() ? nullptr : handle_of(stack.back());
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuCtxGetDevice(CUdevice* device) {
  std::shared_ptr<Context> context;
  const CUresult status = enter(context);
  if (context == nullptr) return status;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device->ordinal;
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(current_or_given(handle, context));
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device->ordinal;
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuCtxSynchronize() {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  return context->synchronize();
}
KANSOKU_ENTRY cuCtxSynchronize_v2(CUcontext handle) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(current_or_given(handle, context));
  return context->synchronize();
}

KANSOKU_ENTRY cuCtxGetFlags(unsigned* flags) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->flags;
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuCtxSetFlags(unsigned flags) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (!are_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  context->flags = flags;
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuCtxGetId(CUcontext handle, unsigned long long* id) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(current_or_given(handle, context));
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = context->id;
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuCtxGetApiVersion(CUcontext handle, unsigned* version) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(current_or_given(handle, context));
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = 3020;
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuCtxGetLimit(std::size_t* value, CUlimit limit) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  const std::scoped_lock lock(context->settings_mutex);
  const auto found = context->limits.find(limit);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (found == context->limits.end()) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *value = found->second;
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuCtxSetLimit(CUlimit limit, std::size_t value) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  const std::scoped_lock lock(context->settings_mutex);
  const auto found = context->limits.find(limit);
  if (found == context->limits.end()) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  found->second = value;
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuCtxGetCacheConfig(int* config) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::scoped_lock lock(context->settings_mutex);
  *config = context->cache_config;
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuCtxSetCacheConfig(int config) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (config < 0 || config > 3) return CUDA_ERROR_INVALID_VALUE;  // none, shared, L1, equal
  const std::scoped_lock lock(context->settings_mutex);
  context->cache_config = config;
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuCtxGetSharedMemConfig(int* config) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::scoped_lock lock(context->settings_mutex);
  *config = context->shared_config;
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuCtxSetSharedMemConfig(int config) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (config < 0 || config > 2) return CUDA_ERROR_INVALID_VALUE;  // default, 4 bytes, 8 bytes
  const std::scoped_lock lock(context->settings_mutex);
  context->shared_config = config;
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuCtxEnablePeerAccess(CUcontext peer_handle, unsigned flags) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  const auto peer = runtime()->contexts.find(peer_handle);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (peer == nullptr || peer == context) return CUDA_ERROR_INVALID_CONTEXT;
  const std::scoped_lock lock(context->settings_mutex);
  auto& peers = context->peers;
  if (peer->device == context->device) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (std::find(peers.begin(), peers.end(), peer->device) != peers.end())
    return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  peers.push_back(peer->device);
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuCtxDisablePeerAccess(CUcontext peer_handle) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  const auto peer = runtime()->contexts.find(peer_handle);
  if (peer == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const std::scoped_lock lock(context->settings_mutex);
  return std::erase(context->peers, peer->device) != 0 ? CUDA_SUCCESS
                                                       : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

KANSOKU_ENTRY cuProfilerStart() {
  std::shared_ptr<Context> context;
  return enter(context);
}
KANSOKU_ENTRY cuProfilerStop() {
  std::shared_ptr<Context> context;
  return enter(context);
}

}  // namespace kansoku::softcuda
