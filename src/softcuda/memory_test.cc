// SPDX-License-Identifier: Apache-2.0
// Allocation, and what a pointer is.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <thread>

#include "softcuda/driver_for_test.h"

namespace kansoku::softcuda {
namespace {

using ::testing::Each;

class MemoryTest : public DriverTest {
 protected:
  static std::size_t free_bytes() {
    std::size_t bytes = 0;
    EXPECT_CU(0, cuMemGetInfo_v2(&bytes, nullptr));
    return bytes;
  }
  template <class T>
  static T attribute(CUpointer_attribute which, CUdeviceptr pointer) {
    T value{};
    EXPECT_CU(0, cuPointerGetAttribute(&value, which, pointer)) << which;
    return value;
  }
};

TEST_F(MemoryTest, IsAccountedAndFreedOnce) {
  COVERS(cuMemAlloc_v2, cuMemFree_v2, cuMemGetInfo_v2);
  std::size_t free = 0, total = 0;
  OK(cuMemGetInfo_v2(&free, &total));
  EXPECT_EQ(total, kDeviceBytes);
  EXPECT_EQ(free, total);
  const CUdeviceptr first = allocate(1000), second = allocate(2000);
  EXPECT_EQ(first % 256, 0U);
  EXPECT_EQ(free_bytes(), total - 3000);
  OK(cuMemsetD8_v2(first, 1, 1000));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(first, 1, 1001));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(first + 256));
  OK(cuMemFree_v2(first));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(first));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(first, 1, 1));
  OK(cuMemFree_v2(0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(12345));
  OK(cuMemFree_v2(second));
  EXPECT_EQ(free_bytes(), total);
  CUdeviceptr pointer = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&pointer, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(nullptr, 1));
}

TEST_F(MemoryTest, EndsWhenTheDeviceIsFull) {
  COVERS(cuMemAlloc_v2);
  CUdeviceptr pointer = 0;
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&pointer, kDeviceBytes + 1));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&pointer, SIZE_MAX));
  OK(cuMemAlloc_v2(&pointer, kDeviceBytes));
  CUdeviceptr more = 0;
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&more, 1));
  OK(cuMemFree_v2(pointer));
  OK(cuMemAlloc_v2(&more, 1));
}

TEST_F(MemoryTest, FreeWaitsForWhatRuns) {
  COVERS(cuMemFree_v2);
  volatile std::uint32_t* const flag = pinned();
  const CUdeviceptr memory = allocate(4);
  volatile std::uint32_t* const out = pinned();
  OK(launch(kernel("await"), {}, nullptr, address(flag), memory));
  OK(launch(kernel("next"), {}, nullptr, memory, address(out)));
  std::thread release([&] { *flag = 30; });
  OK(cuMemFree_v2(memory));
  release.join();
  EXPECT_EQ(*out, 31U);
}

TEST_F(MemoryTest, Pitch) {
  COVERS(cuMemAllocPitch_v2);
  CUdeviceptr pointer = 0;
  std::size_t pitch = 0;
  OK(cuMemAllocPitch_v2(&pointer, &pitch, 1000, 3, 4));
  EXPECT_EQ(pitch, 1024U);
  OK(cuMemsetD8_v2(pointer, 7, pitch * 3));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(pointer, 7, pitch * 3 + 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch_v2(&pointer, &pitch, 1000, 3, 5));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch_v2(&pointer, &pitch, 0, 3, 4));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch_v2(&pointer, &pitch, 1000, SIZE_MAX / 4, 4));
}

TEST_F(MemoryTest, PinnedMemoryIsSeenByKernels) {
  COVERS(cuMemAllocHost_v2, cuMemHostAlloc, cuMemFreeHost, cuMemHostGetDevicePointer_v2,
         cuMemHostGetFlags);
  void* host = nullptr;
  OK(cuMemHostAlloc(&host, 64, 1));
  unsigned flags = 0;
  OK(cuMemHostGetFlags(&flags, host));
  EXPECT_EQ(flags, 3U);
  OK(cuMemHostGetFlags(&flags, static_cast<char*>(host) + 8));
  CUdeviceptr device = 0;
  OK(cuMemHostGetDevicePointer_v2(&device, host, 0));
  OK(launch(kernel("iota"), {1, 16}, nullptr, device, 16));
  OK(cuCtxSynchronize());
  EXPECT_EQ(static_cast<std::uint32_t*>(host)[15], 15U);
  EXPECT_EQ(free_bytes(), kDeviceBytes - 16 - 64 - 4);  // the module's variables only
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(&host, 64, 8));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(static_cast<char*>(host) + 4));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address(host)));
  OK(cuMemFreeHost(host));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemHostGetFlags(&flags, host));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer_v2(&device, host, 0));
  OK(cuMemAllocHost_v2(&host, 8));
  static_cast<char*>(host)[7] = 1;
  OK(cuMemFreeHost(host));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAllocHost_v2(&host, 0));
}

TEST_F(MemoryTest, RegisteredMemoryIsSeenByKernelsUntilUnregistered) {
  COVERS(cuMemHostRegister_v2, cuMemHostUnregister);
  std::vector<std::uint32_t> host(1024);
  OK(cuMemHostRegister_v2(host.data(), 4096, 0));
  EXPECT_CU(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
            cuMemHostRegister_v2(host.data() + 100, 4, 0));
  CUdeviceptr device = 0;
  OK(cuMemHostGetDevicePointer_v2(&device, host.data(), 0));
  unsigned flags = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemHostGetFlags(&flags, host.data()));
  OK(launch(kernel("iota"), {4, 256}, nullptr, device, 1024));
  OK(cuCtxSynchronize());
  EXPECT_EQ(host[1023], 1023U);
  EXPECT_CU(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(host.data() + 1));
  OK(cuMemHostUnregister(host.data()));
  EXPECT_CU(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(host.data()));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer_v2(&device, host.data(), 0));
  OK(launch(kernel("iota"), {4, 256}, nullptr, device, 1024));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TEST_F(MemoryTest, OnlyMemoryOfTheHostIsRegistered) {
  COVERS(cuMemHostRegister_v2);
  const auto pointer = [](CUdeviceptr at) { return reinterpret_cast<void*>(at); };
  const CUdeviceptr device = allocate(4096);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(pointer(device), 4096, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(nullptr, 4096, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(pointer(4096), 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(pointer(4096), SIZE_MAX, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(pointer(4096), 1, 64));
  const CUdeviceptr mine = address(pinned());
  EXPECT_CU(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
            cuMemHostRegister_v2(pointer(mine + (1 << 20)), 4096, 0));
}

TEST_F(MemoryTest, Managed) {
  COVERS(cuMemAllocManaged, cuMemAdvise, cuMemPrefetchAsync, cuStreamAttachMemAsync);
  CUdeviceptr managed = 0;
  OK(cuMemAllocManaged(&managed, 64, 1));
  auto* const host = reinterpret_cast<volatile std::uint32_t*>(managed);
  host[0] = 5;
  OK(launch(kernel("next"), {}, nullptr, managed, managed + 4));
  OK(cuCtxSynchronize());
  EXPECT_EQ(host[1], 6U);
  EXPECT_EQ(attribute<int>(CU_POINTER_ATTRIBUTE_IS_MANAGED, managed + 4), 1);
  EXPECT_EQ(attribute<void*>(CU_POINTER_ATTRIBUTE_HOST_POINTER, managed + 4),
            reinterpret_cast<void*>(managed + 4));
  OK(cuMemAdvise(managed, 64, 1, 99));  // "read mostly" looks at no device
  OK(cuMemAdvise(managed, 64, 3, -1));
  OK(cuMemPrefetchAsync(managed, 64, 0, nullptr));
  OK(cuStreamAttachMemAsync(nullptr, managed, 0, 1));
  OK(cuCtxSynchronize());
  EXPECT_EQ(host[1], 6U);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(managed, 65, 1, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(managed, 64, 77, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, cuMemAdvise(managed, 64, 3, 99));
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, cuMemPrefetchAsync(managed, 64, 99, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(managed, 0, 0, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamAttachMemAsync(nullptr, managed, 0, 3));
  const CUdeviceptr plain = allocate(64);
  EXPECT_EQ(attribute<int>(CU_POINTER_ATTRIBUTE_IS_MANAGED, plain), 0);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(plain, 64, 1, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(plain, 64, 0, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamAttachMemAsync(nullptr, plain, 0, 1));
  OK(cuMemFree_v2(managed));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(managed, 64, 1, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&managed, 64, 0));
}

TEST_F(MemoryTest, AddressRange) {
  COVERS(cuMemGetAddressRange_v2);
  const CUdeviceptr memory = allocate(3000);
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;
  OK(cuMemGetAddressRange_v2(&begin, &bytes, memory + 2999));
  EXPECT_EQ(begin, memory);
  EXPECT_EQ(bytes, 3000U);
  OK(cuMemGetAddressRange_v2(nullptr, nullptr, memory));
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&begin, &bytes, memory + 3000));
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&begin, &bytes, 64));
}

TEST_F(MemoryTest, AttributesOfPointers) {
  COVERS(cuPointerGetAttribute);
  const CUdeviceptr memory = allocate(3000), host = address(pinned());
  EXPECT_EQ(attribute<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, memory), context_);
  EXPECT_EQ(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory), CU_MEMORYTYPE_DEVICE);
  EXPECT_EQ(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host), CU_MEMORYTYPE_HOST);
  EXPECT_EQ(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, memory + 1), memory + 1);
  EXPECT_EQ(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_HOST_POINTER, host + 1), host + 1);
  EXPECT_EQ(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory + 9), memory);
  EXPECT_EQ(attribute<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory + 9), 3000U);
  EXPECT_EQ(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory), 0);
  EXPECT_EQ(attribute<int>(CU_POINTER_ATTRIBUTE_MAPPED, memory), 1);
  EXPECT_EQ(attribute<int>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory), 0);
  EXPECT_EQ(attribute<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory), nullptr);
  EXPECT_NE(attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, memory),
            attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, host));
  void* value = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_HOST_POINTER, memory));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_CONTEXT, 64));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuPointerGetAttribute(&value, static_cast<CUpointer_attribute>(99), memory));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuPointerGetAttribute(nullptr, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
  // Allocated in one context, asked about in another.
  CUcontext own = nullptr;
  OK(cuCtxCreate_v2(&own, 0, 1));
  EXPECT_EQ(attribute<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, memory), context_);
  EXPECT_EQ(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory), 0);
  const CUdeviceptr theirs = allocate(16);
  EXPECT_EQ(attribute<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, theirs), own);
  EXPECT_EQ(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, theirs), 1);
  OK(cuCtxDestroy_v2(own));
}

TEST_F(MemoryTest, SeveralAttributesAtOnce) {
  COVERS(cuPointerGetAttributes);
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                      CU_POINTER_ATTRIBUTE_HOST_POINTER};
  unsigned type = 9;
  int ordinal = 9;
  void* host = &type;
  void* data[] = {&type, &ordinal, &host};
  OK(cuPointerGetAttributes(3, attributes, data, allocate(16)));
  EXPECT_EQ(type, 2U);
  EXPECT_EQ(ordinal, 0);
  EXPECT_EQ(host, nullptr);
  // A pointer nobody knows is no error here.
  OK(cuPointerGetAttributes(3, attributes, data, address(&type)));
  EXPECT_EQ(type, 0U);
  EXPECT_EQ(ordinal, -2);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttributes(3, nullptr, data, 0));
  data[1] = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttributes(3, attributes, data, 0));
}

TEST_F(MemoryTest, AsynchronousInTheOrderOfTheStream) {
  COVERS(cuMemAllocAsync, cuMemFreeAsync);
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, kStreamNonBlocking));
  volatile std::uint32_t* const flag = pinned();
  volatile std::uint32_t* const out = pinned();
  CUdeviceptr memory = 0;
  OK(cuMemAllocAsync(&memory, 4096, stream));
  OK(launch(kernel("await"), {}, stream, address(flag), memory));
  OK(launch(kernel("next"), {}, stream, memory, address(out)));
  OK(cuMemFreeAsync(memory, stream));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(memory, stream));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(memory));
  // The free has its turn behind the kernels.
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  *flag = 8;
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(*out, 9U);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(memory, 0, 1));
  CUdeviceptr none = 1;
  OK(cuMemAllocAsync(&none, 0, stream));
  EXPECT_EQ(none, 0U);
  OK(cuMemFreeAsync(0, stream));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&memory, kDeviceBytes * 2, stream));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuMemAllocAsync(&memory, 64, garbage<CUstream>()));
  // Memory of cuMemAlloc may be freed in order as well, and the other way round.
  memory = allocate(64);
  OK(cuMemFreeAsync(memory, stream));
  OK(cuMemAllocAsync(&memory, 64, stream));
  OK(cuMemFree_v2(memory));
  OK(cuStreamSynchronize(stream));
}

TEST_F(MemoryTest, FreeingWhatIsUsedIsAFaultAtMost) {
  COVERS(cuMemFreeAsync);
  CUstream busy = nullptr, other = nullptr;
  OK(cuStreamCreate(&busy, kStreamNonBlocking));
  OK(cuStreamCreate(&other, kStreamNonBlocking));
  volatile std::uint32_t* const flag = pinned();
  const CUdeviceptr memory = allocate(4);
  // A kernel that runs, and a copy and a fill behind it, keep using what another stream frees.
  OK(launch(kernel("await"), {}, busy, address(flag), memory));
  std::uint32_t* const target = const_cast<std::uint32_t*>(pinned());
  OK(cuMemcpyDtoHAsync_v2(target, memory, 4, busy));
  OK(cuMemFreeAsync(memory, other));
  OK(cuStreamSynchronize(other));
  *flag = 1;
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(busy));
}

TEST_F(MemoryTest, DefaultPools) {
  COVERS(cuDeviceGetDefaultMemPool, cuDeviceGetMemPool, cuDeviceSetMemPool, cuMemPoolCreate,
         cuMemPoolDestroy);
  CUmemoryPool first = nullptr, current = nullptr, own = nullptr, other = nullptr;
  OK(cuDeviceGetDefaultMemPool(&first, 0));
  OK(cuDeviceGetMemPool(&current, 0));
  EXPECT_EQ(first, current);
  OK(cuDeviceGetDefaultMemPool(&other, 1));
  EXPECT_NE(first, other);
  CUmemPoolProps properties{};
  properties.allocType = 1;
  properties.location = {1, 0};
  OK(cuMemPoolCreate(&own, &properties));
  OK(cuDeviceSetMemPool(0, own));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuDeviceSetMemPool(0, other));
  OK(cuDeviceGetMemPool(&current, 0));
  EXPECT_EQ(current, own);
  CUdeviceptr memory = 0;
  OK(cuMemAllocAsync(&memory, 128, nullptr));
  EXPECT_EQ(attribute<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory + 3), own);
  std::uint64_t used = 0;
  OK(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  EXPECT_EQ(used, 128U);
  // Destroyed: the default one is current again, what is allocated stays until it is freed.
  OK(cuMemPoolDestroy(own));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuMemPoolDestroy(own));
  OK(cuDeviceGetMemPool(&current, 0));
  EXPECT_EQ(current, first);
  OK(cuMemsetD8_v2(memory, 1, 128));
  OK(cuMemFreeAsync(memory, nullptr));
  OK(cuCtxSynchronize());
  EXPECT_EQ(free_bytes(), kDeviceBytes);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(first));
  properties.location = {1, 5};
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, cuMemPoolCreate(&own, &properties));
  properties.allocType = 7;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemPoolCreate(&own, &properties));
}

TEST_F(MemoryTest, AttributesOfPools) {
  COVERS(cuMemPoolGetAttribute, cuMemPoolSetAttribute, cuMemPoolTrimTo, cuMemPoolSetAccess,
         cuMemPoolGetAccess, cuMemAllocFromPoolAsync);
  CUmemoryPool pool = nullptr;
  CUmemPoolProps properties{};
  properties.allocType = 1;
  properties.location = {1, 1};
  properties.maxSize = 1000;
  OK(cuMemPoolCreate(&pool, &properties));
  CUdeviceptr a = 0, b = 0;
  OK(cuMemAllocFromPoolAsync(&a, 600, pool, nullptr));
  EXPECT_EQ(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, a), 1);
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&b, 401, pool, nullptr));
  OK(cuMemAllocFromPoolAsync(&b, 400, pool, nullptr));
  OK(cuMemFreeAsync(b, nullptr));
  OK(cuCtxSynchronize());
  const auto number = [&](CUmemPool_attribute which) {
    std::uint64_t value = 77;
    EXPECT_CU(0, cuMemPoolGetAttribute(pool, which, &value));
    return value;
  };
  EXPECT_EQ(number(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 600U);
  EXPECT_EQ(number(CU_MEMPOOL_ATTR_USED_MEM_HIGH), 1000U);
  EXPECT_GE(number(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 600U);
  std::uint64_t value = 0;
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value));
  EXPECT_EQ(number(CU_MEMPOOL_ATTR_USED_MEM_HIGH), 600U);
  value = 5;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
  EXPECT_EQ(number(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 5U);
  int reuse = 0;
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reuse));
  reuse = 9;
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reuse));
  EXPECT_EQ(reuse, 0);
  OK(cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(number(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 600U);
  int flags = 0;
  CUmemLocation here{1, 1}, there{1, 0};
  OK(cuMemPoolGetAccess(&flags, pool, &here));
  EXPECT_EQ(flags, 3);
  OK(cuMemPoolGetAccess(&flags, pool, &there));
  EXPECT_EQ(flags, 0);
  const CUmemAccessDesc own{{1, 1}, 3}, less{{1, 1}, 0};
  OK(cuMemPoolSetAccess(pool, &own, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAccess(pool, &less, 1));
  OK(cuMemFree_v2(a));
  OK(cuMemPoolDestroy(pool));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuMemPoolTrimTo(pool, 0));
}

TEST_F(MemoryTest, OfADestroyedContextIsGone) {
  COVERS(cuMemAlloc_v2, cuMemAllocHost_v2, cuMemHostRegister_v2);
  CUcontext own = nullptr;
  OK(cuCtxCreate_v2(&own, 0, 0));
  const CUdeviceptr memory = allocate(1 << 20);
  void* const host = const_cast<std::uint32_t*>(pinned());
  std::vector<char> registered(4096);
  OK(cuMemHostRegister_v2(registered.data(), registered.size(), 0));
  OK(cuCtxDestroy_v2(own));
  EXPECT_EQ(free_bytes(), kDeviceBytes);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(memory));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
  EXPECT_CU(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(registered.data()));
}

}  // namespace
}  // namespace kansoku::softcuda
