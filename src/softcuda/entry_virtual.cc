// SPDX-License-Identifier: Apache-2.0
// Addresses and memory apart: reserve, create, map, set access.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "softcuda/internal/runtime.h"

namespace kansoku::softcuda {
namespace {

// Seals of the memory's size: an importer must not find it gone.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr std::size_t kGranule = gpu::exec::Memory::kGranule;
constexpr std::size_t kAlignMax = std::size_t{1} << 40;

CUresult check_properties(const CUmemAllocationProp* prop, Device*& device) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (prop == nullptr || prop->type != 1 || prop->location.type != 1)
    return CUDA_ERROR_INVALID_VALUE;
  const int id = prop->location.id;
  if (id < 0 || static_cast<std::size_t>(id) >= runtime()->devices.size())
    return CUDA_ERROR_INVALID_DEVICE;
  if ((prop->requestedHandleTypes & ~1) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  device = runtime()->devices[static_cast<std::size_t>(id)].get();
  return CUDA_SUCCESS;
}

std::shared_ptr<Physical> find_physical(CUmemGenericAllocationHandle handle) {
  return runtime()->physical.find(reinterpret_cast<Physical*>(static_cast<std::uintptr_t>(handle)));
}

/// Another handle of it, which has to be released as well.
CUmemGenericAllocationHandle add_physical(std::shared_ptr<Physical> physical) {
  const std::scoped_lock lock(runtime()->mapped_mutex);
  ++physical->handles;
  return reinterpret_cast<std::uintptr_t>(runtime()->physical.add<Physical*>(std::move(physical)));
}

/// The mapping that holds the address, or the end; mapped_mutex is held.
auto mapping_of(CUdeviceptr pointer) {
  auto& mapped = runtime()->mapped;
  auto after = mapped.upper_bound(pointer);
  if (after == mapped.begin()) return mapped.end();
  --after;
  return pointer < after->first + after->second.first ? after : mapped.end();
}

}  // namespace

KANSOKU_ENTRY cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp* prop,
                                            int option) {
  Device* device = nullptr;
  KANSOKU_CU_TRY(check_properties(prop, device));
  if (bytes == nullptr || option < 0 || option > 1) return CUDA_ERROR_INVALID_VALUE;
  *bytes = kGranule;
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuMemAddressReserve(CUdeviceptr* pointer, std::size_t bytes, std::size_t align,
                                  CUdeviceptr hint, unsigned long long flags) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (pointer == nullptr || bytes == 0 || bytes % kGranule != 0 || flags != 0 ||
      align > kAlignMax || (align & (align - 1)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const auto address = context->device->memory.reserve(bytes, std::max(align, kGranule), hint);
  if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = *address;
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuMemAddressFree(CUdeviceptr pointer, std::size_t bytes) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  Device* const device = runtime()->device_of(pointer);
  const bool is_free =
      device != nullptr && device->memory.release({pointer, pointer + bytes}).has_value();
  return is_free ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

KANSOKU_ENTRY cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                          const CUmemAllocationProp* prop, unsigned long long flags) {
  Device* device = nullptr;
  KANSOKU_CU_TRY(check_properties(prop, device));
  if (handle == nullptr || bytes == 0 || bytes % kGranule != 0 || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (!device->memory.charge(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  auto physical = std::make_shared<Physical>();
  physical->device = device;  // from here on the charge is the object's
  physical->bytes = bytes;
  physical->prop = *prop;
  physical->fd = memfd_create("kansoku-softgpu", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (physical->fd < 0 || ftruncate(physical->fd, static_cast<off_t>(bytes)) != 0 ||
      fcntl(physical->fd, F_ADD_SEALS, kSeals) != 0)
    return CUDA_ERROR_OPERATING_SYSTEM;
  device->note_memory();
  *handle = add_physical(std::move(physical));
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  // Mappings keep it.
  const auto physical = find_physical(handle);
  if (physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::scoped_lock lock(runtime()->mapped_mutex);
  if (--physical->handles == 0) runtime()->physical.remove(physical.get());
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuMemMap(CUdeviceptr pointer, std::size_t bytes, std::size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long flags) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  const auto physical = find_physical(handle);
  Device* const device = runtime()->device_of(pointer);
  if (physical == nullptr || device == nullptr || flags != 0 || offset != 0 ||
      bytes != physical->bytes)
    return CUDA_ERROR_INVALID_VALUE;
  const auto mapped = device->memory.map({pointer, pointer + bytes}, physical->fd, offset);
  if (!mapped)
    return mapped.error().code == Code::kLimit ? CUDA_ERROR_ALREADY_MAPPED
                                               : CUDA_ERROR_INVALID_VALUE;
  const std::scoped_lock lock(runtime()->mapped_mutex);
  runtime()->mapped[pointer] = {bytes, physical};
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuMemUnmap(CUdeviceptr pointer, std::size_t bytes) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  Device* const device = runtime()->device_of(pointer);
  static_cast<void>(context->wait_for_all());
  if (device == nullptr || !device->memory.unmap({pointer, pointer + bytes}))
    return CUDA_ERROR_INVALID_VALUE;
  const std::scoped_lock lock(runtime()->mapped_mutex);
  auto& mapped = runtime()->mapped;
  mapped.erase(mapped.lower_bound(pointer), mapped.lower_bound(pointer + bytes));
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuMemSetAccess(CUdeviceptr pointer, std::size_t bytes, const CUmemAccessDesc* access,
                             std::size_t count) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  Device* const device = runtime()->device_of(pointer);
  if (device == nullptr || access == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_known = access[i].flags == 0 || access[i].flags == 1 || access[i].flags == 3;
    if (access[i].location.type != 1 || !is_known) return CUDA_ERROR_INVALID_VALUE;
    // Access of other devices is asked for by cuCtxEnablePeerAccess.
    if (access[i].location.id != device->ordinal) continue;
    if (!device->memory.set_accessible({pointer, pointer + bytes}, access[i].flags != 0))
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                             CUdeviceptr pointer) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  Device* const device = runtime()->device_of(pointer);
  if (flags == nullptr || location == nullptr || device == nullptr || location->type != 1)
    return CUDA_ERROR_INVALID_VALUE;
  {
    const std::scoped_lock lock(runtime()->mapped_mutex);
    if (mapping_of(pointer) == runtime()->mapped.end()) return CUDA_ERROR_INVALID_VALUE;
  }
  const bool is_accessible =
      location->id == device->ordinal && device->memory.find(pointer).end != 0;
  *flags = is_accessible ? 3 : 0;
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                     CUmemGenericAllocationHandle handle) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const auto physical = find_physical(handle);
  if (prop == nullptr || physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *prop = physical->prop;
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto pointer = reinterpret_cast<std::uint64_t>(address);
  std::shared_ptr<Physical> physical;
  {
    const std::scoped_lock lock(runtime()->mapped_mutex);
    const auto found = mapping_of(pointer);
    if (found == runtime()->mapped.end()) return CUDA_ERROR_INVALID_VALUE;
    physical = found->second.second;
  }
  *handle = add_physical(std::move(physical));
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle, int type,
                                           unsigned long long flags) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const auto physical = find_physical(handle);
  if (out == nullptr || physical == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != 1) return CUDA_ERROR_NOT_SUPPORTED;
  if ((physical->prop.requestedHandleTypes & 1) == 0) return CUDA_ERROR_INVALID_VALUE;
  const int copy = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(out) = copy;
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* os_handle,
                                             int type) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != 1) return CUDA_ERROR_NOT_SUPPORTED;
  const int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle));
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return CUDA_ERROR_INVALID_VALUE;  // not exported
  const off_t bytes = lseek(fd, 0, SEEK_END);
  if (bytes <= 0 || static_cast<std::size_t>(bytes) % kGranule != 0)
    return CUDA_ERROR_INVALID_VALUE;
  auto physical = std::make_shared<Physical>();
  physical->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (physical->fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  // The exporter's memory: nothing is charged here.
  physical->bytes = static_cast<std::size_t>(bytes);
  physical->prop.type = 1;
  physical->prop.requestedHandleTypes = 1;
  physical->prop.location = {1, context->device->ordinal};
  *handle = add_physical(std::move(physical));
  return CUDA_SUCCESS;
}

}  // namespace kansoku::softcuda
