// SPDX-License-Identifier: Apache-2.0
// Addresses and memory apart.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "common/parse.h"
#include "softcuda/driver_for_test.h"

namespace kansoku::softcuda {
namespace {

constexpr std::size_t kGranule = std::size_t{2} << 20;

CUmemAllocationProp properties(CUdevice device = 0, int handle_types = 0) {
  CUmemAllocationProp prop{};
  prop.type = 1;
  prop.requestedHandleTypes = handle_types;
  prop.location = {1, device};
  return prop;
}

class VirtualTest : public DriverTest {
 protected:
  /// Mappings and created memory are no context's: they have to be given back.
  void TearDown() override {
    OK(cuDevicePrimaryCtxReset_v2(0));
    OK(cuDevicePrimaryCtxRetain(&context_, 0));
    OK(cuCtxSetCurrent(context_));
    for (const auto& [pointer, bytes] : reserved_) {
      static_cast<void>(cuMemUnmap(pointer, bytes));
      for (std::size_t i = 0; i < bytes; i += kGranule)
        static_cast<void>(cuMemUnmap(pointer + i, kGranule));
      static_cast<void>(cuMemAddressFree(pointer, bytes));
    }
    for (const auto handle : created_)
      static_cast<void>(cuMemRelease(handle));
    EXPECT_EQ(free_bytes(), kDeviceBytes);
    DriverTest::TearDown();
  }
  CUdeviceptr reserve(std::size_t bytes) {
    CUdeviceptr pointer = 0;
    EXPECT_CU(0, cuMemAddressReserve(&pointer, bytes, 0, 0, 0));
    reserved_.emplace_back(pointer, bytes);
    return pointer;
  }
  CUmemGenericAllocationHandle create(std::size_t bytes, int handle_types = 0) {
    const CUmemAllocationProp prop = properties(0, handle_types);
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_CU(0, cuMemCreate(&handle, bytes, &prop, 0));
    created_.push_back(handle);
    return handle;
  }
  static CUresult set_access(CUdeviceptr pointer, std::size_t bytes, int flags = 3) {
    const CUmemAccessDesc access{{1, 0}, flags};
    return cuMemSetAccess(pointer, bytes, &access, 1);
  }
  static std::size_t free_bytes() {
    std::size_t bytes = 0;
    EXPECT_CU(0, cuMemGetInfo_v2(&bytes, nullptr));
    return bytes;
  }

 private:
  std::vector<std::pair<CUdeviceptr, std::size_t>> reserved_;
  std::vector<CUmemGenericAllocationHandle> created_;
};

TEST_F(VirtualTest, FromReservationToRelease) {
  COVERS(cuMemGetAllocationGranularity, cuMemAddressReserve, cuMemCreate, cuMemMap, cuMemSetAccess,
         cuMemUnmap, cuMemRelease, cuMemAddressFree);
  const CUmemAllocationProp prop = properties();
  std::size_t granule = 0;
  OK(cuMemGetAllocationGranularity(&granule, &prop, 0));
  EXPECT_EQ(granule, kGranule);
  OK(cuMemGetAllocationGranularity(&granule, &prop, 1));
  const CUdeviceptr at = reserve(2 * kGranule);
  EXPECT_EQ(at % kGranule, 0U);
  EXPECT_EQ(free_bytes(), kDeviceBytes);  // addresses are free
  const auto handle = create(2 * kGranule);
  EXPECT_EQ(free_bytes(), kDeviceBytes - 2 * kGranule);
  OK(cuMemMap(at, 2 * kGranule, 0, handle, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(at, 1, 1));  // not accessible yet
  OK(set_access(at, 2 * kGranule));
  OK(launch(kernel("iota"), {2, 1024}, nullptr, at + kGranule - 4096, 2048));
  EXPECT_EQ(read(at + kGranule + 4092), 2047U);
  // Mapped, it cannot be freed; released, the mapping keeps it.
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(at, 2 * kGranule));
  OK(cuMemRelease(handle));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
  EXPECT_EQ(read(at + kGranule + 4092), 2047U);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at, kGranule));
  OK(cuMemUnmap(at, 2 * kGranule));
  EXPECT_EQ(free_bytes() + 4 + 64 + 16, kDeviceBytes);  // the module's variables
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(at, 1, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(at, kGranule));
  OK(cuMemAddressFree(at, 2 * kGranule));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(at, 2 * kGranule));
}

TEST_F(VirtualTest, AccessBeforeItIsAllowedFaults) {
  COVERS(cuMemMap);
  const CUdeviceptr at = reserve(kGranule);
  OK(cuMemMap(at, kGranule, 0, create(kGranule), 0));
  OK(launch(kernel("store"), {}, nullptr, at, 1U));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TEST_F(VirtualTest, AccessCanBeWithdrawn) {
  COVERS(cuMemSetAccess, cuMemGetAccess);
  const CUdeviceptr at = reserve(kGranule);
  OK(cuMemMap(at, kGranule, 0, create(kGranule), 0));
  unsigned long long flags = 9;
  const CUmemLocation here{1, 0}, there{1, 1};
  OK(cuMemGetAccess(&flags, &here, at));
  EXPECT_EQ(flags, 0U);
  OK(set_access(at, kGranule));
  OK(cuMemGetAccess(&flags, &here, at + 100));
  EXPECT_EQ(flags, 3U);
  OK(cuMemGetAccess(&flags, &there, at));
  EXPECT_EQ(flags, 0U);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemGetAccess(&flags, &here, at + kGranule));
  OK(cuMemsetD32_v2(at, 5, 1));
  OK(set_access(at, kGranule, 0));
  OK(launch(kernel("store"), {}, nullptr, at, 1U));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TEST_F(VirtualTest, TheSameMemoryAtTwoAddresses) {
  COVERS(cuMemMap, cuMemRetainAllocationHandle, cuMemRelease);
  const CUdeviceptr at = reserve(2 * kGranule);
  const auto handle = create(kGranule);
  OK(cuMemMap(at, kGranule, 0, handle, 0));
  OK(cuMemMap(at + kGranule, kGranule, 0, handle, 0));
  OK(set_access(at, 2 * kGranule));
  OK(launch(kernel("iota"), {1, 32}, nullptr, at, 32));
  EXPECT_EQ(read(at + kGranule + 31 * 4), 31U);
  // Retained: as many releases as handles.
  CUmemGenericAllocationHandle again = 0;
  OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(at + 100)));
  EXPECT_EQ(again, handle);
  OK(cuMemRelease(again));
  OK(cuMemUnmap(at, 2 * kGranule));
  OK(cuMemMap(at, kGranule, 0, handle, 0));
  OK(set_access(at, kGranule));
  EXPECT_EQ(read(at + 31 * 4), 31U);  // its content stayed
  OK(cuMemRelease(handle));
  OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(at)));
  OK(cuMemRelease(again));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemRelease(again));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(at + kGranule)));
}

TEST_F(VirtualTest, PiecesAreOneRangeToCopiesAndKernels) {
  COVERS(cuMemMap);
  const CUdeviceptr at = reserve(3 * kGranule);
  for (std::size_t i = 0; i < 3; ++i)
    OK(cuMemMap(at + i * kGranule, kGranule, 0, create(kGranule), 0));
  OK(set_access(at, 3 * kGranule));
  OK(cuMemsetD8_v2(at, 4, 3 * kGranule));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(at, 4, 3 * kGranule + 1));
  OK(launch(kernel("iota"), {1, 64}, nullptr, at + kGranule - 128, 64));
  EXPECT_EQ(read(at + kGranule + 124), 63U);
  OK(cuMemUnmap(at + kGranule, kGranule));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(at, 4, 2 * kGranule));
  OK(cuMemsetD8_v2(at, 4, kGranule));
}

TEST_F(VirtualTest, AddressesDoNotDependOnTheMemory) {
  COVERS(cuMemAddressReserve, cuMemAddressFree, cuMemMap);
  const std::size_t large = std::size_t{256} << 30;
  const CUdeviceptr half = reserve(large / 8), whole = reserve(large);
  EXPECT_TRUE(half + large / 8 <= whole || whole + large <= half) << "apart";
  const CUdeviceptr last = whole + large - kGranule;
  const CUmemGenericAllocationHandle handle = create(kGranule);
  OK(cuMemMap(last, kGranule, 0, handle, 0));
  OK(set_access(last, kGranule));
  OK(cuMemsetD8_v2(last, 7, kGranule));
  OK(cuMemUnmap(last, kGranule));
  OK(cuMemAddressFree(whole, large));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(whole, large));
  OK(cuMemAddressFree(half, large / 8));
  OK(cuMemRelease(handle));
}

TEST_F(VirtualTest, HintsAndAlignmentAreHonoured) {
  COVERS(cuMemAddressReserve, cuMemAddressFree);
  const CUdeviceptr first = reserve(4 * kGranule);
  OK(cuMemAddressFree(first, 4 * kGranule));
  CUdeviceptr again = 0, other = 0, aligned = 0;
  OK(cuMemAddressReserve(&again, 4 * kGranule, 0, first, 0));
  EXPECT_EQ(again, first);
  OK(cuMemAddressReserve(&other, 4 * kGranule, 0, first, 0));
  EXPECT_NE(other, first) << "taken: anywhere";
  const std::size_t align = std::size_t{1} << 30;
  OK(cuMemAddressReserve(&aligned, kGranule, align, 0, 0));
  EXPECT_EQ(aligned % align, 0U);
  OK(cuMemAddressFree(aligned, kGranule));
  OK(cuMemAddressFree(other, 4 * kGranule));
  OK(cuMemAddressFree(again, 4 * kGranule));
}

TEST_F(VirtualTest, WrongArguments) {
  COVERS(cuMemAddressReserve, cuMemCreate, cuMemMap, cuMemSetAccess);
  CUdeviceptr pointer = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&pointer, kGranule + 1, 0, 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&pointer, 0, 0, 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&pointer, kGranule, 3, 0, 0));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve(&pointer, std::size_t{1} << 47, 0, 0, 0));
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp prop = properties();
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 4096, &prop, 0));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, kDeviceBytes + kGranule, &prop, 0));
  prop = properties(7);
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, cuMemCreate(&handle, kGranule, &prop, 0));
  prop = properties(0, 8);
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, kGranule, &prop, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, kGranule, nullptr, 0));
  handle = create(kGranule);
  const CUdeviceptr at = reserve(2 * kGranule);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, kGranule, 0, handle + 16, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, 2 * kGranule, 0, handle, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, kGranule, kGranule, handle, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + 2 * kGranule, kGranule, 0, handle, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemMap(allocate(kGranule), kGranule, 0, handle, 0));
  OK(cuMemMap(at, kGranule, 0, handle, 0));
  EXPECT_CU(CUDA_ERROR_ALREADY_MAPPED, cuMemMap(at, kGranule, 0, handle, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, set_access(at, 2 * kGranule));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, set_access(at, kGranule, 2));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(at, kGranule, nullptr, 1));
  // Not what cuMemFree is for.
  OK(set_access(at, kGranule));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(at));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(at, nullptr));
  OK(cuCtxSynchronize());
}

TEST_F(VirtualTest, UnmappingWaitsForKernels) {
  COVERS(cuMemUnmap);
  const CUdeviceptr at = reserve(kGranule);
  OK(cuMemMap(at, kGranule, 0, create(kGranule), 0));
  OK(set_access(at, kGranule));
  volatile std::uint32_t* const flag = pinned();
  volatile std::uint32_t* const out = pinned();
  OK(launch(kernel("await"), {}, nullptr, address(flag), at));
  OK(launch(kernel("next"), {}, nullptr, at, address(out)));
  std::thread release([&] { *flag = 2; });
  OK(cuMemUnmap(at, kGranule));
  release.join();
  EXPECT_EQ(*out, 3U);
}

TEST_F(VirtualTest, PropertiesOfAHandle) {
  COVERS(cuMemGetAllocationPropertiesFromHandle);
  const auto handle = create(kGranule, 1);
  CUmemAllocationProp prop{};
  OK(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
  EXPECT_EQ(prop.type, 1);
  EXPECT_EQ(prop.requestedHandleTypes, 1);
  EXPECT_EQ(prop.location.id, 0);
  OK(cuMemRelease(handle));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationPropertiesFromHandle(&prop, handle));
}

/// Imports the descriptor that is named in the environment, reads a word of it, writes one.
int import_memory() {
  const int fd = parse_int<int>(std::getenv("KANSOKU_TEST_FD")).value_or(-1);
  CUcontext context = nullptr;
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr at = 0;
  const CUmemAccessDesc access{{1, 0}, 3};
  const bool is_mapped =
      cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
      cuCtxSetCurrent(context) == CUDA_SUCCESS &&
      cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(std::intptr_t{fd}), 1) ==
          CUDA_SUCCESS &&
      cuMemAddressReserve(&at, kGranule, 0, 0, 0) == CUDA_SUCCESS &&
      cuMemMap(at, kGranule, 0, handle, 0) == CUDA_SUCCESS &&
      cuMemSetAccess(at, kGranule, &access, 1) == CUDA_SUCCESS;
  if (!is_mapped) return 1;
  std::uint32_t seen = 0, written = 4321;
  if (cuMemcpyDtoH_v2(&seen, at, 4) != CUDA_SUCCESS) return 2;
  if (cuMemcpyHtoD_v2(at + 4, &written, 4) != CUDA_SUCCESS) return 3;
  return seen == 1234 ? 0 : 4;
}
const Child kImport("import_memory", import_memory);

TEST_F(VirtualTest, AnotherProcessImportsIt) {
  COVERS(cuMemExportToShareableHandle, cuMemImportFromShareableHandle);
  const auto handle = create(kGranule, 1);
  const CUdeviceptr at = reserve(kGranule);
  OK(cuMemMap(at, kGranule, 0, handle, 0));
  OK(set_access(at, kGranule));
  OK(cuMemsetD32_v2(at, 1234, 1));
  int fd = -1;
  OK(cuMemExportToShareableHandle(&fd, handle, 1, 0));
  EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  const int inherited = dup(fd);
  EXPECT_EQ(run_child("import_memory", {"KANSOKU_TEST_FD=" + std::to_string(inherited)}).exit_code,
            0);
  EXPECT_EQ(read(at + 4), 4321U);
  ::close(fd);
  ::close(inherited);
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, cuMemExportToShareableHandle(&fd, handle, 2, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle(&fd, create(kGranule), 1, 0));
}

TEST_F(VirtualTest, WhatNobodyExportedIsNotImported) {
  COVERS(cuMemImportFromShareableHandle);
  CUmemGenericAllocationHandle handle = 0;
  const auto import = [&](int fd) {
    return cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(std::intptr_t{fd}), 1);
  };
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, import(-1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, import(9999));
  // A file of the right size that could shrink under the device.
  const int fd = memfd_create("test", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, kGranule), 0);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, import(fd));
  ::close(fd);
}

}  // namespace
}  // namespace kansoku::softcuda
