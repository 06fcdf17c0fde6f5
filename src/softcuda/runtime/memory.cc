// SPDX-License-Identifier: Apache-2.0
// Allocation, and what a pointer is.
#include "softcuda/runtime/internal/state.h"

using namespace kansoku::cudart;  // NOLINT(google-build-using-namespace)

namespace {

constexpr unsigned kElementBytes = 16;  // any element of a pitched line is aligned to it

/// Nothing for no bytes, as documented, not an error.
cudaError_t allocate_lines(std::size_t width, std::size_t height, void*& pointer,
                           std::size_t& pitch) {
  pointer = nullptr;
  pitch = 0;
  if (width == 0 || height == 0) return cudaSuccess;
  CUdeviceptr address = 0;
  const CUresult status =
      driver().cuMemAllocPitch_v2(&address, &pitch, width, height, kElementBytes);
  pointer = pointer_of(address);
  return static_cast<cudaError_t>(status);
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  KANSOKU_CUDART_TRY(enter());
  if (pointer == nullptr) return noted(cudaErrorInvalidValue);
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  return noted(driver().cuMemAlloc_v2(as(pointer), bytes));
}
cudaError_t cudaMallocPitch(void** pointer, std::size_t* pitch, std::size_t width,
                            std::size_t height) {
  KANSOKU_CUDART_TRY(enter());
  if (pointer == nullptr || pitch == nullptr) return noted(cudaErrorInvalidValue);
  return noted(allocate_lines(width, height, *pointer, *pitch));
}
cudaError_t cudaMalloc3D(cudaPitchedPtr* pitched, cudaExtent extent) {
  KANSOKU_CUDART_TRY(enter());
  if (pitched == nullptr) return noted(cudaErrorInvalidValue);
  if (extent.depth != 0 && extent.height > SIZE_MAX / extent.depth)
    return noted(cudaErrorMemoryAllocation);
  *pitched = {nullptr, 0, extent.width, extent.height};
  return noted(
      allocate_lines(extent.width, extent.height * extent.depth, pitched->ptr, pitched->pitch));
}
cudaError_t cudaFreeHost(void* pointer) {
  KANSOKU_CUDART_TRY(enter());
  return pointer == nullptr ? cudaSuccess : noted(driver().cuMemFreeHost(pointer));
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  KANSOKU_CUDART_TRY(enter());
  if (attributes == nullptr) return noted(cudaErrorInvalidValue);
  *attributes = {};
  attributes->device = cudaInvalidDeviceId;
  const CUdeviceptr address = as(pointer);
  CUmemorytype type{};
  if (driver().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) !=
      CUDA_SUCCESS) {
    attributes->hostPointer = const_cast<void*>(pointer);  // memory that the driver does not know
    return cudaSuccess;
  }
  int is_managed = 0;
  driver().cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
  driver().cuPointerGetAttribute(&attributes->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
  attributes->devicePointer = const_cast<void*>(pointer);
  attributes->type = is_managed != 0                ? cudaMemoryTypeManaged
                     : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                                                    : cudaMemoryTypeHost;
  if (attributes->type != cudaMemoryTypeDevice)
    attributes->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

cudaError_t cudaGetSymbolAddress(void** pointer, const void* symbol) {
  Place place;
  KANSOKU_CUDART_TRY(enter_variable(symbol, place));
  if (pointer == nullptr) return noted(cudaErrorInvalidValue);
  *pointer = pointer_of(place.address);
  return cudaSuccess;
}
cudaError_t cudaGetSymbolSize(std::size_t* bytes, const void* symbol) {
  Place place;
  KANSOKU_CUDART_TRY(enter_variable(symbol, place));
  if (bytes == nullptr) return noted(cudaErrorInvalidValue);
  *bytes = place.bytes;
  return cudaSuccess;
}

}  // extern "C"
