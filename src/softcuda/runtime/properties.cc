// SPDX-License-Identifier: Apache-2.0
// Properties of a device: one table for both layouts of the structure.
#include <algorithm>
#include <cstring>

#include "softcuda/runtime/internal/state.h"

using namespace kansoku::cudart;  // NOLINT(google-build-using-namespace)

namespace {

/// Members with the number of the driver's attribute; sizes are wider than attributes.
struct Number {
  int cudaDeviceProp::*member;
  int attribute;
};
struct Size {
  std::size_t cudaDeviceProp::*member;
  int attribute;
};
using P = cudaDeviceProp;
constexpr Number kNumbers[] = {
    {&P::regsPerBlock, cudaDevAttrMaxRegistersPerBlock},
    {&P::warpSize, cudaDevAttrWarpSize},
    {&P::maxThreadsPerBlock, cudaDevAttrMaxThreadsPerBlock},
    {&P::major, cudaDevAttrComputeCapabilityMajor},
    {&P::minor, cudaDevAttrComputeCapabilityMinor},
    {&P::multiProcessorCount, cudaDevAttrMultiProcessorCount},
    {&P::integrated, cudaDevAttrIntegrated},
    {&P::canMapHostMemory, cudaDevAttrCanMapHostMemory},
    {&P::concurrentKernels, cudaDevAttrConcurrentKernels},
    {&P::ECCEnabled, cudaDevAttrEccEnabled},
    {&P::pciBusID, cudaDevAttrPciBusId},
    {&P::pciDeviceID, cudaDevAttrPciDeviceId},
    {&P::pciDomainID, cudaDevAttrPciDomainId},
    {&P::tccDriver, cudaDevAttrTccDriver},
    {&P::asyncEngineCount, cudaDevAttrAsyncEngineCount},
    {&P::unifiedAddressing, cudaDevAttrUnifiedAddressing},
    {&P::memoryBusWidth, cudaDevAttrGlobalMemoryBusWidth},
    {&P::l2CacheSize, cudaDevAttrL2CacheSize},
    {&P::maxThreadsPerMultiProcessor, cudaDevAttrMaxThreadsPerMultiProcessor},
    {&P::streamPrioritiesSupported, cudaDevAttrStreamPrioritiesSupported},
    {&P::globalL1CacheSupported, cudaDevAttrGlobalL1CacheSupported},
    {&P::localL1CacheSupported, cudaDevAttrLocalL1CacheSupported},
    {&P::regsPerMultiprocessor, cudaDevAttrMaxRegistersPerMultiprocessor},
    {&P::managedMemory, cudaDevAttrManagedMemory},
    {&P::isMultiGpuBoard, cudaDevAttrIsMultiGpuBoard},
    {&P::multiGpuBoardGroupID, cudaDevAttrMultiGpuBoardGroupID},
    {&P::hostNativeAtomicSupported, cudaDevAttrHostNativeAtomicSupported},
    {&P::pageableMemoryAccess, cudaDevAttrPageableMemoryAccess},
    {&P::concurrentManagedAccess, cudaDevAttrConcurrentManagedAccess},
    {&P::computePreemptionSupported, cudaDevAttrComputePreemptionSupported},
    {&P::canUseHostPointerForRegisteredMem, cudaDevAttrCanUseHostPointerForRegisteredMem},
    {&P::cooperativeLaunch, cudaDevAttrCooperativeLaunch},
    {&P::pageableMemoryAccessUsesHostPageTables, cudaDevAttrPageableMemoryAccessUsesHostPageTables},
    {&P::directManagedMemAccessFromHost, cudaDevAttrDirectManagedMemAccessFromHost},
    {&P::maxBlocksPerMultiProcessor, cudaDevAttrMaxBlocksPerMultiprocessor},
    {&P::hostRegisterSupported, cudaDevAttrHostRegisterSupported},
    {&P::memoryPoolsSupported, cudaDevAttrMemoryPoolsSupported},
    {&P::clusterLaunch, cudaDevAttrClusterLaunch},
#if CUDART_VERSION < 13000
    {&P::clockRate, cudaDevAttrClockRate},
    {&P::deviceOverlap, cudaDevAttrGpuOverlap},
    {&P::kernelExecTimeoutEnabled, cudaDevAttrKernelExecTimeout},
    {&P::computeMode, cudaDevAttrComputeMode},
    {&P::memoryClockRate, cudaDevAttrMemoryClockRate},
    {&P::singleToDoublePrecisionPerfRatio, cudaDevAttrSingleToDoublePrecisionPerfRatio},
#endif
};
constexpr Size kSizes[] = {
    {&P::sharedMemPerBlock, cudaDevAttrMaxSharedMemoryPerBlock},
    {&P::memPitch, cudaDevAttrMaxPitch},
    {&P::totalConstMem, cudaDevAttrTotalConstantMemory},
    {&P::textureAlignment, cudaDevAttrTextureAlignment},
    {&P::sharedMemPerMultiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor},
    {&P::sharedMemPerBlockOptin, cudaDevAttrMaxSharedMemoryPerBlockOptin},
    {&P::reservedSharedMemPerBlock, cudaDevAttrReservedSharedMemoryPerBlock},
};

int attribute(int which, CUdevice device) {
  int value = 0;
  driver().cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(which), device);
  return value;
}

cudaError_t properties_of(int device, cudaDeviceProp& properties) {
  CUdevice number = 0;
  if (driver().cuDeviceGet(&number, device) != CUDA_SUCCESS) return cudaErrorInvalidDevice;
  properties = {};
  driver().cuDeviceGetName(properties.name, sizeof properties.name, number);
  driver().cuDeviceGetUuid_v2(&properties.uuid, number);
  driver().cuDeviceTotalMem_v2(&properties.totalGlobalMem, number);
  for (const Number& row : kNumbers)
    properties.*row.member = attribute(row.attribute, number);
  for (const Size& row : kSizes)
    properties.*row.member = static_cast<std::size_t>(attribute(row.attribute, number));
  for (int i = 0; i < 3; ++i) {
    properties.maxThreadsDim[i] = attribute(cudaDevAttrMaxBlockDimX + i, number);
    properties.maxGridSize[i] = attribute(cudaDevAttrMaxGridDimX + i, number);
  }
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (properties == nullptr) return noted(cudaErrorInvalidValue);
  KANSOKU_CUDART_TRY(start());
  return noted(properties_of(device, *properties));
}

/// The first of those that have most of what is wanted.
cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp* wanted) {
  if (device == nullptr || wanted == nullptr) return noted(cudaErrorInvalidValue);
  KANSOKU_CUDART_TRY(start());
  int count = 0, best = -1;
  driver().cuDeviceGetCount(&count);
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp its;
    if (properties_of(i, its) != cudaSuccess) continue;
    const bool is_able =
        its.major > wanted->major || (its.major == wanted->major && its.minor >= wanted->minor);
    const int points = (is_able ? 1 : 0) + (its.totalGlobalMem >= wanted->totalGlobalMem ? 1 : 0) +
                       (its.multiProcessorCount >= wanted->multiProcessorCount ? 1 : 0) +
                       (its.sharedMemPerBlock >= wanted->sharedMemPerBlock ? 1 : 0);
    if (points <= best) continue;
    best = points;
    *device = i;
  }
  return cudaSuccess;
}

}  // extern "C"
