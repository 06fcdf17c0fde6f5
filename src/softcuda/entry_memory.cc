// SPDX-License-Identifier: Apache-2.0
// Allocation: of devices, pinned, managed, from pools; and what a pointer is.
#include <algorithm>
#include <cstring>

#include "softcuda/internal/runtime.h"

namespace kansoku::softcuda {
namespace {

/// Allocates as `allocation` says, on its device or of the host, for the context.
CUresult allocate(const std::shared_ptr<Context>& context, Allocation allocation,
                  CUdeviceptr* pointer) {
  using gpu::exec::Memory;
  if (pointer == nullptr || allocation.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const bool is_of_host = allocation.device == nullptr;
  Memory& memory = is_of_host ? *runtime()->host : allocation.device->memory;
  const auto address =
      memory.allocate(allocation.bytes, is_of_host ? Memory::Kind::kHost : Memory::Kind::kDevice);
  if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
  allocation.context = context->id;
  allocation.context_handle = handle_of(context);
  if (!is_of_host) allocation.device->note_memory();
  *pointer = *address;
  const std::scoped_lock lock(runtime()->allocations_mutex);
  runtime()->allocations[*address] = std::move(allocation);
  return CUDA_SUCCESS;
}

/// The current context, for calls that a capture may forbid.
CUresult enter_unless_capturing(std::shared_ptr<Context>& context) {
  KANSOKU_CU_TRY(enter(context));
  return check_capture_modes();
}

CUresult allocate_on_device(CUdeviceptr* pointer, std::size_t bytes, bool is_managed) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter_unless_capturing(context));
  Allocation allocation;
  allocation.device = context->device;
  allocation.bytes = bytes;
  allocation.is_managed = is_managed;
  return allocate(context, std::move(allocation), pointer);
}

CUresult allocate_pinned(void** pointer, std::size_t bytes, unsigned flags) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter_unless_capturing(context));
  constexpr unsigned kFlagsMask = 7, kMapped = 2;  // portable, device map, write-combined
  if (pointer == nullptr || (flags & ~kFlagsMask) != 0) return CUDA_ERROR_INVALID_VALUE;
  Allocation allocation;
  allocation.bytes = bytes;
  allocation.flags = flags | kMapped;
  CUdeviceptr address = 0;
  KANSOKU_CU_TRY(allocate(context, std::move(allocation), &address));
  *pointer = reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
  return CUDA_SUCCESS;
}

CUresult allocate_from(const std::shared_ptr<Context>& context,
                       const std::shared_ptr<MemoryPool>& pool, std::size_t bytes,
                       CUdeviceptr* pointer) {
  if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) {
    *pointer = 0;
    return CUDA_SUCCESS;
  }
  {
    const std::scoped_lock lock(pool->mutex);
    if (pool->bytes_max != 0 && bytes > pool->bytes_max - std::min(pool->bytes_max, pool->used))
      return CUDA_ERROR_OUT_OF_MEMORY;
    pool->used += bytes;
  }
  Allocation allocation;
  allocation.device = runtime()->devices[static_cast<std::size_t>(pool->device)].get();
  allocation.bytes = bytes;
  allocation.pool = pool;
  const CUresult status = allocate(context, std::move(allocation), pointer);
  const std::scoped_lock lock(pool->mutex);
  if (status != CUDA_SUCCESS) {
    pool->used -= bytes;
  } else {
    pool->used_high = std::max(pool->used_high, pool->used);
  }
  return status;
}

enum class Holder { kDevice, kPinned, kRegistered };

/// Marks an allocation that begins there as freed, so that nobody frees it twice.
CUresult claim(CUdeviceptr pointer, Holder holder) {
  const std::scoped_lock lock(runtime()->allocations_mutex);
  const auto found = runtime()->allocations.find(pointer);
  if (found == runtime()->allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  Allocation& allocation = found->second;
  const Holder its = allocation.device != nullptr ? Holder::kDevice
                     : allocation.is_registered   ? Holder::kRegistered
                                                  : Holder::kPinned;
  if (its != holder || allocation.is_freed) return CUDA_ERROR_INVALID_VALUE;
  allocation.is_freed = true;
  return CUDA_SUCCESS;
}

/// Stream of cuMemAllocAsync: the stream has to exist; addresses are given at once.
CUresult find_allocation_stream(const std::shared_ptr<Context>& context, CUstream handle,
                                bool is_per_thread, std::shared_ptr<Stream>& stream) {
  stream = context->find_stream(handle, is_per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::scoped_lock lock(stream->context()->order_mutex);
  // Memory of a graph would have to be allocated at each launch.
  return stream->capture != nullptr ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult find_pool(CUmemoryPool handle, std::shared_ptr<MemoryPool>& pool) {
  Runtime* const all = runtime();
  if (all == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  for (const auto& device : all->devices) {
    if (reinterpret_cast<CUmemoryPool>(device->default_pool.get()) == handle) {
      pool = device->default_pool;
      return CUDA_SUCCESS;
    }
  }
  pool = all->pools.find(handle);
  return pool == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

template <class Value>
CUresult answer(void* data, Value value) {
  std::memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

struct Place {
  Device* device{nullptr};  // null: pinned or registered host memory
  gpu::exec::Memory::Range range;
  Allocation allocation;  // bytes is 0 for what is none: variables of modules, mapped memory
};

CUresult find_place(CUdeviceptr pointer, Place& place) {
  place.device = runtime()->device_of(pointer);
  place.range =
      place.device != nullptr ? place.device->memory.find(pointer) : runtime()->host->find(pointer);
  if (place.range.end == 0) return CUDA_ERROR_INVALID_VALUE;
  static_cast<void>(runtime()->find_allocation(pointer, place.allocation));
  return CUDA_SUCCESS;
}

CUresult pointer_attribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer,
                           const std::shared_ptr<Context>& context) {
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Place place;
  KANSOKU_CU_TRY(find_place(pointer, place));
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: {
      CUcontext handle = place.allocation.context_handle;
      if (handle != nullptr) return answer(data, handle);
      handle = handle_of(context);
      if (place.device != nullptr && place.device != context->device) {
        const std::scoped_lock lock(place.device->mutex);
        handle = place.device->primary_handle;
      }
      return answer(data, handle);
    }
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return answer(data, place.device != nullptr ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return answer(data, pointer);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: {
      const bool is_of_host = place.device == nullptr || place.allocation.is_managed;
      if (!is_of_host) return CUDA_ERROR_INVALID_VALUE;
      return answer(data, reinterpret_cast<void*>(static_cast<std::uintptr_t>(pointer)));
    }
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return answer(data, 0);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return answer(data, static_cast<unsigned long long>(place.range.begin));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return answer(data, place.allocation.is_managed ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return answer(data,
                    place.device != nullptr ? place.device->ordinal : context->device->ordinal);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return answer(data, place.range.begin);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return answer(data, static_cast<std::size_t>(place.range.end - place.range.begin));
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return answer(data, 1);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return answer(data, reinterpret_cast<CUmemoryPool>(place.allocation.pool.get()));
  }
  constexpr int kAttributeLast = 21;
  return attribute < 1 || attribute > kAttributeLast ? CUDA_ERROR_INVALID_VALUE
                                                     : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

KANSOKU_ENTRY cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  const gpu::exec::Memory& memory = context->device->memory;
  if (free_bytes != nullptr) *free_bytes = memory.capacity_bytes() - memory.used_bytes();
  if (total_bytes != nullptr) *total_bytes = memory.capacity_bytes();
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuMemAlloc_v2(CUdeviceptr* pointer, std::size_t bytes) {
  return allocate_on_device(pointer, bytes, false);
}

KANSOKU_ENTRY cuMemAllocPitch_v2(CUdeviceptr* pointer, std::size_t* pitch, std::size_t width,
                                 std::size_t height, unsigned element_bytes) {
  const bool is_element = element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
  constexpr std::size_t kPitchAlign = 512, kWidthMax = 0x7fffffff;
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (pitch == nullptr || !is_element || width == 0 || width > kWidthMax || height == 0)
    return CUDA_ERROR_INVALID_VALUE;
  const std::size_t line = (width + kPitchAlign - 1) / kPitchAlign * kPitchAlign;
  if (height > SIZE_MAX / line) return CUDA_ERROR_OUT_OF_MEMORY;
  KANSOKU_CU_TRY(allocate_on_device(pointer, line * height, false));
  *pitch = line;
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuMemFree_v2(CUdeviceptr pointer) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter_unless_capturing(context));
  if (pointer == 0) return CUDA_SUCCESS;
  KANSOKU_CU_TRY(claim(pointer, Holder::kDevice));
  // Nothing that runs may use it any more.
  static_cast<void>(context->wait_for_all());
  KANSOKU_CU_TRY(execute(context, FreeMemory{pointer}));
  return static_cast<CUresult>(context->error.load());
}

KANSOKU_ENTRY cuMemAllocManaged(CUdeviceptr* pointer, std::size_t bytes, unsigned flags) {
  if (flags != 1 && flags != 2) return CUDA_ERROR_INVALID_VALUE;
  return allocate_on_device(pointer, bytes, true);
}

KANSOKU_ENTRY cuMemAllocHost_v2(void** pointer, std::size_t bytes) {
  return allocate_pinned(pointer, bytes, 0);
}
KANSOKU_ENTRY cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned flags) {
  return allocate_pinned(pointer, bytes, flags);
}
KANSOKU_ENTRY cuMemFreeHost(void* pointer) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter_unless_capturing(context));
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  KANSOKU_CU_TRY(claim(address, Holder::kPinned));
  static_cast<void>(context->wait_for_all());
  return execute(context, FreeMemory{address});
}
KANSOKU_ENTRY cuMemHostGetDevicePointer_v2(CUdeviceptr* pointer, void* host, unsigned flags) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (pointer == nullptr || flags != 0 || !runtime()->is_pinned(host, 1))
    return CUDA_ERROR_INVALID_VALUE;
  *pointer = reinterpret_cast<std::uintptr_t>(host);
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuMemHostGetFlags(unsigned* flags, void* host) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  Allocation allocation;
  const auto address = reinterpret_cast<std::uintptr_t>(host);
  if (flags == nullptr || !runtime()->find_allocation(address, allocation) ||
      allocation.device != nullptr || allocation.is_registered)
    return CUDA_ERROR_INVALID_VALUE;
  *flags = allocation.flags;
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuMemHostRegister_v2(void* host, std::size_t bytes, unsigned flags) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter_unless_capturing(context));
  constexpr unsigned kFlagsMask = 15;
  const auto begin = reinterpret_cast<std::uint64_t>(host);
  if (host == nullptr || bytes == 0 || (flags & ~kFlagsMask) != 0 || begin + bytes < begin)
    return CUDA_ERROR_INVALID_VALUE;
  if (runtime()->device_of(begin) != nullptr || runtime()->device_of(begin + bytes - 1) != nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  const bool is_ours = runtime()->host->is_own(begin) || runtime()->host->is_own(begin + bytes - 1);
  if (is_ours || !runtime()->host->add_foreign({begin, begin + bytes}))
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  Allocation allocation;
  allocation.context = context->id;
  allocation.context_handle = handle_of(context);
  allocation.bytes = bytes;
  allocation.is_registered = true;
  const std::scoped_lock lock(runtime()->allocations_mutex);
  runtime()->allocations[begin] = std::move(allocation);
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuMemHostUnregister(void* host) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter_unless_capturing(context));
  const auto begin = reinterpret_cast<std::uint64_t>(host);
  if (claim(begin, Holder::kRegistered) != CUDA_SUCCESS)
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  static_cast<void>(context->wait_for_all());
  return execute(context, FreeMemory{begin});
}

KANSOKU_ENTRY cuMemGetAddressRange_v2(CUdeviceptr* begin, std::size_t* bytes, CUdeviceptr pointer) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  Place place;
  if (find_place(pointer, place) != CUDA_SUCCESS) return CUDA_ERROR_NOT_FOUND;
  if (begin != nullptr) *begin = place.range.begin;
  if (bytes != nullptr) *bytes = place.range.end - place.range.begin;
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuPointerGetAttribute(void* data, CUpointer_attribute attribute,
                                    CUdeviceptr pointer) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  return pointer_attribute(data, attribute, pointer, context);
}
KANSOKU_ENTRY cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data,
                                     CUdeviceptr pointer) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult status = pointer_attribute(data[i], attributes[i], pointer, context);
    // Attributes that are not known of a pointer are 0 here, other than in the function for one
    // attribute.
    if (status == CUDA_ERROR_INVALID_VALUE) {
      const bool is_narrow = attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
                             attributes[i] == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
                             attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED ||
                             attributes[i] == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE ||
                             attributes[i] == CU_POINTER_ATTRIBUTE_MAPPED;
      if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
        static_cast<void>(answer(data[i], -2));
      } else if (is_narrow) {
        static_cast<void>(answer(data[i], 0));
      } else {
        static_cast<void>(answer(data[i], std::uint64_t{0}));
      }
    } else if (status != CUDA_SUCCESS) {
      return status;
    }
  }
  return CUDA_SUCCESS;
}

// Memory ordered by streams.

KANSOKU_STREAM_ENTRY(
    cuMemAllocAsync, _ptsz, (CUdeviceptr * pointer, std::size_t bytes, CUstream handle),
    std::shared_ptr<Context> context;
    KANSOKU_CU_TRY(enter(context)); std::shared_ptr<Stream> stream;
    KANSOKU_CU_TRY(find_allocation_stream(context, handle, is_per_thread, stream));
    Device& device = *stream->context()->device; std::shared_ptr<MemoryPool> pool; {
      const std::scoped_lock lock(device.mutex);
      pool = device.pool;
    } return allocate_from(context, pool, bytes, pointer);)

KANSOKU_STREAM_ENTRY(cuMemAllocFromPoolAsync, _ptsz,
                     (CUdeviceptr * pointer, std::size_t bytes, CUmemoryPool pool_handle,
                      CUstream handle),
                     std::shared_ptr<Context> context;
                     KANSOKU_CU_TRY(enter(context)); std::shared_ptr<Stream> stream;
                     KANSOKU_CU_TRY(find_allocation_stream(context, handle, is_per_thread, stream));
                     std::shared_ptr<MemoryPool> pool; KANSOKU_CU_TRY(find_pool(pool_handle, pool));
                     return allocate_from(context, pool, bytes, pointer);)

KANSOKU_STREAM_ENTRY(
    cuMemFreeAsync, _ptsz, (CUdeviceptr pointer, CUstream handle), std::shared_ptr<Context> context;
    KANSOKU_CU_TRY(enter(context)); std::shared_ptr<Stream> stream;
    KANSOKU_CU_TRY(find_allocation_stream(context, handle, is_per_thread, stream));
    if (pointer == 0) return CUDA_SUCCESS; KANSOKU_CU_TRY(claim(pointer, Holder::kDevice));
    return stream->context()->enqueue(stream, FreeMemory{pointer}, CU_GRAPH_NODE_TYPE_MEM_FREE);)

KANSOKU_ENTRY cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice number) {
  Device* device = nullptr;
  KANSOKU_CU_TRY(find_device(number, device));
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pool = reinterpret_cast<CUmemoryPool>(device->default_pool.get());
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice number) {
  Device* device = nullptr;
  KANSOKU_CU_TRY(find_device(number, device));
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::scoped_lock lock(device->mutex);
  *pool = reinterpret_cast<CUmemoryPool>(device->pool.get());
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuDeviceSetMemPool(CUdevice number, CUmemoryPool handle) {
  Device* device = nullptr;
  KANSOKU_CU_TRY(find_device(number, device));
  std::shared_ptr<MemoryPool> pool;
  KANSOKU_CU_TRY(find_pool(handle, pool));
  if (pool->device != number) return CUDA_ERROR_INVALID_VALUE;
  const std::scoped_lock lock(device->mutex);
  device->pool = std::move(pool);
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuMemPoolCreate(CUmemoryPool* handle, const CUmemPoolProps* properties) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr || properties == nullptr || properties->allocType != 1)
    return CUDA_ERROR_INVALID_VALUE;
  if (properties->handleTypes != 0 || properties->location.type != 1)
    return CUDA_ERROR_NOT_SUPPORTED;
  Device* device = nullptr;
  KANSOKU_CU_TRY(find_device(properties->location.id, device));
  auto pool = std::make_shared<MemoryPool>();
  pool->device = properties->location.id;
  pool->bytes_max = properties->maxSize;
  *handle = runtime()->pools.add<CUmemoryPool>(std::move(pool));
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuMemPoolDestroy(CUmemoryPool handle) {
  std::shared_ptr<MemoryPool> pool;
  KANSOKU_CU_TRY(find_pool(handle, pool));
  if (pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  Device& device = *runtime()->devices[static_cast<std::size_t>(pool->device)];
  {
    const std::scoped_lock lock(device.mutex);
    if (device.pool == pool) device.pool = device.default_pool;
  }
  // Memory that is still allocated keeps the pool.
  runtime()->pools.remove(handle);
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuMemPoolTrimTo(CUmemoryPool handle, std::size_t) {
  // Freed memory is given back at once: there is nothing to trim.
  std::shared_ptr<MemoryPool> pool;
  return find_pool(handle, pool);
}
KANSOKU_ENTRY cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                    void* value) {
  std::shared_ptr<MemoryPool> pool;
  KANSOKU_CU_TRY(find_pool(handle, pool));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::scoped_lock lock(pool->mutex);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return answer(value, pool->reuse[attribute]);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return answer(value, pool->release_threshold);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return answer(value, pool->used);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return answer(value, pool->used_high);
  }
  return CUDA_ERROR_INVALID_VALUE;
}
KANSOKU_ENTRY cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                    void* value) {
  std::shared_ptr<MemoryPool> pool;
  KANSOKU_CU_TRY(find_pool(handle, pool));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::scoped_lock lock(pool->mutex);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      std::memcpy(&pool->reuse[attribute], value, sizeof(int));
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      std::memcpy(&pool->release_threshold, value, sizeof(std::uint64_t));
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: {
      std::uint64_t number = 1;
      std::memcpy(&number, value, sizeof number);
      if (number != 0) return CUDA_ERROR_INVALID_VALUE;  // it can only be reset
      pool->used_high = pool->used;
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}
KANSOKU_ENTRY cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* access,
                                 std::size_t count) {
  std::shared_ptr<MemoryPool> pool;
  KANSOKU_CU_TRY(find_pool(handle, pool));
  if (access == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    Device* device = nullptr;
    if (access[i].location.type != 1) return CUDA_ERROR_INVALID_VALUE;
    KANSOKU_CU_TRY(find_device(access[i].location.id, device));
    if (device->ordinal == pool->device && access[i].flags != 3) return CUDA_ERROR_INVALID_VALUE;
    if (device->ordinal != pool->device) return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuMemPoolGetAccess(int* flags, CUmemoryPool handle, CUmemLocation* location) {
  std::shared_ptr<MemoryPool> pool;
  KANSOKU_CU_TRY(find_pool(handle, pool));
  if (flags == nullptr || location == nullptr || location->type != 1)
    return CUDA_ERROR_INVALID_VALUE;
  *flags = location->id == pool->device ? 3 : 0;
  return CUDA_SUCCESS;
}

// Managed memory lies where it is: advice is taken, and changes nothing.

namespace {

CUresult check_managed(CUdeviceptr pointer, std::size_t bytes, CUdevice number) {
  constexpr CUdevice kCpu = -1;
  Device* device = nullptr;
  if (number != kCpu) KANSOKU_CU_TRY(find_device(number, device));
  Allocation allocation;
  const bool is_managed = runtime()->find_allocation(pointer, allocation) && allocation.is_managed;
  return is_managed && bytes != 0 && runtime()->is_known(pointer, bytes) ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

KANSOKU_ENTRY cuMemAdvise(CUdeviceptr pointer, std::size_t bytes, int advice, CUdevice device) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  constexpr int kAdviceFirst = 1, kAdviceLast = 6;
  if (advice < kAdviceFirst || advice > kAdviceLast) return CUDA_ERROR_INVALID_VALUE;
  const bool has_device = advice > 2;  // "read mostly" concerns none
  return check_managed(pointer, bytes, has_device ? device : -1);
}
KANSOKU_STREAM_ENTRY(cuMemPrefetchAsync, _ptsz,
                     (CUdeviceptr pointer, std::size_t bytes, CUdevice device, CUstream handle),
                     std::shared_ptr<Context> context;
                     KANSOKU_CU_TRY(enter(context));
                     const auto stream = context->find_stream(handle, is_per_thread);
                     if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
                     return check_managed(pointer, bytes, device);)

}  // namespace kansoku::softcuda
