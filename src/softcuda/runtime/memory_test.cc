// SPDX-License-Identifier: Apache-2.0
// Allocation, pointers, copies, fills.
#include <gmock/gmock.h>

#include <cstring>
#include <numeric>

#include "softcuda/runtime/runtime_for_test.h"

namespace kansoku::cudart {
namespace {

using testing::ElementsAre;

class MemoryTest : public RuntimeTest {
 protected:
  static std::size_t used() {
    std::size_t free_bytes = 0, total = 0;
    EXPECT_CUDA(cudaSuccess, cudaMemGetInfo(&free_bytes, &total));
    return total - free_bytes;
  }
  static cudaMemoryType type_of(const void* pointer) {
    cudaPointerAttributes attributes;
    EXPECT_CUDA(cudaSuccess, cudaPointerGetAttributes(&attributes, pointer));
    return attributes.type;
  }
};

TEST_F(MemoryTest, OfADevice) {
  COVERS(cudaMalloc, cudaFree, cudaMemGetInfo, cudaMallocPitch, cudaMalloc3D);
  REFUSES(cudaMalloc, cudaFree, cudaMemGetInfo, cudaMallocPitch, cudaMalloc3D);
  const std::size_t before = used();
  void* pointer = garbage<void*>();
  OK(cudaMalloc(&pointer, 0));
  EXPECT_EQ(pointer, nullptr);
  OK(cudaFree(nullptr));
  OK(cudaMalloc(&pointer, 1 << 20));
  EXPECT_GE(used(), before + (1 << 20));
  OK(cudaFree(pointer));
  EXPECT_EQ(used(), before);
  EXPECT_CUDA(cudaErrorInvalidValue, cudaFree(pointer));
  EXPECT_CUDA(cudaErrorMemoryAllocation, cudaMalloc(&pointer, std::size_t{1} << 40));
  EXPECT_EQ(pointer, nullptr);
  EXPECT_CUDA(cudaErrorInvalidValue, cudaMalloc(nullptr, 16));
  std::size_t pitch = 0;
  OK(cudaMallocPitch(&pointer, &pitch, 100, 7));
  EXPECT_GE(pitch, 100U);
  EXPECT_EQ(pitch % 512, 0U);
  OK(cudaMemset(pointer, 1, pitch * 7));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaMallocPitch(&pointer, nullptr, 100, 7));
  OK(cudaMallocPitch(&pointer, &pitch, 0, 7));
  EXPECT_EQ(pointer, nullptr);
  cudaPitchedPtr box{};
  OK(cudaMalloc3D(&box, {100, 3, 5}));
  EXPECT_EQ(box.xsize, 100U);
  EXPECT_EQ(box.ysize, 3U);
  OK(cudaMemset(box.ptr, 1, box.pitch * 15));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaMalloc3D(nullptr, {1, 1, 1}));
  EXPECT_CUDA(cudaErrorMemoryAllocation, cudaMalloc3D(&box, {1, SIZE_MAX / 2, 4}));
  OK(launch("stop", {}, nullptr));
  static_cast<void>(cudaDeviceSynchronize());
  std::size_t bytes = 0;
  EXPECT_NE(cudaMemGetInfo(&bytes, &bytes), cudaSuccess);
}

TEST_F(MemoryTest, OfTheHost) {
  COVERS(cudaMallocHost, cudaHostAlloc, cudaFreeHost, cudaHostGetDevicePointer, cudaHostGetFlags,
         cudaHostRegister, cudaHostUnregister, cudaPointerGetAttributes);
  REFUSES(cudaMallocHost, cudaHostAlloc, cudaFreeHost, cudaHostGetDevicePointer, cudaHostGetFlags,
          cudaHostRegister, cudaHostUnregister, cudaPointerGetAttributes);
  void *host = nullptr, *device = nullptr;
  unsigned flags = 0;
  OK(cudaHostAlloc(&host, 64, cudaHostAllocPortable | cudaHostAllocMapped));
  OK(cudaHostGetDevicePointer(&device, host, 0));
  OK(cudaHostGetFlags(&flags, host));
  EXPECT_EQ(flags, unsigned{cudaHostAllocPortable | cudaHostAllocMapped});
  OK(launch("store", {}, nullptr, device, 11U));
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(*static_cast<std::uint32_t*>(host), 11U);
  EXPECT_EQ(type_of(host), cudaMemoryTypeHost);
  OK(cudaFreeHost(host));
  OK(cudaFreeHost(nullptr));
  EXPECT_EQ(type_of(host), cudaMemoryTypeUnregistered);
  EXPECT_CUDA(cudaErrorInvalidValue, cudaFreeHost(host));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaHostAlloc(&host, 64, 0x100));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaMallocHost(nullptr, 64));
  alignas(4096) static std::array<std::uint32_t, 2048> mine{};
  OK(cudaHostRegister(mine.data(), sizeof mine, cudaHostRegisterDefault));
  OK(cudaHostGetDevicePointer(&device, mine.data(), 0));
  OK(launch("store", {}, nullptr, device, 12U));
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(mine[0], 12U);
  EXPECT_CUDA(cudaErrorHostMemoryAlreadyRegistered,
              cudaHostRegister(mine.data(), sizeof mine, cudaHostRegisterDefault));
  OK(cudaHostUnregister(mine.data()));
  EXPECT_CUDA(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(mine.data()));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaHostGetDevicePointer(&device, mine.data(), 0));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaHostGetFlags(&flags, mine.data()));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaPointerGetAttributes(nullptr, device));
  cudaPointerAttributes attributes;
  OK(cudaPointerGetAttributes(&attributes, mine.data()));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(attributes.device, cudaInvalidDeviceId);
  EXPECT_EQ(attributes.devicePointer, nullptr);
  const std::uint32_t* const other = allocate();
  OK(cudaPointerGetAttributes(&attributes, other));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.devicePointer, other);
  EXPECT_EQ(attributes.hostPointer, nullptr);
}

TEST_F(MemoryTest, Managed) {
  COVERS(cudaMallocManaged, cudaStreamAttachMemAsync);
  REFUSES(cudaMallocManaged, cudaStreamAttachMemAsync);
  void* memory = nullptr;
  OK(cudaMallocManaged(&memory, 64, cudaMemAttachGlobal));
  *static_cast<volatile std::uint32_t*>(memory) = 4;
  EXPECT_EQ(type_of(memory), cudaMemoryTypeManaged);
  OK(cudaStreamAttachMemAsync(nullptr, memory, 0, cudaMemAttachGlobal));
  OK(launch("next", {}, nullptr, memory, memory));
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(*static_cast<volatile std::uint32_t*>(memory), 5U);
  EXPECT_CUDA(cudaErrorInvalidValue, cudaMallocManaged(&memory, 64, 9));
  EXPECT_NE(cudaStreamAttachMemAsync(nullptr, garbage<void*>(), 0, cudaMemAttachGlobal),
            cudaSuccess);
}

#if CUDART_VERSION < 13000
TEST_F(MemoryTest, AdviceIsChecked) {
  COVERS(cudaMemAdvise, cudaMemPrefetchAsync);
  REFUSES(cudaMemAdvise, cudaMemPrefetchAsync);
  void* memory = nullptr;
  OK(cudaMallocManaged(&memory, 4096, cudaMemAttachGlobal));
  OK(cudaMemAdvise(memory, 4096, cudaMemAdviseSetReadMostly, 0));
  OK(cudaMemAdvise(memory, 4096, cudaMemAdviseSetPreferredLocation, cudaCpuDeviceId));
  OK(cudaMemPrefetchAsync(memory, 4096, 1, nullptr));
  *static_cast<volatile std::uint32_t*>(memory) = 4;  // none moves it
  EXPECT_CUDA(cudaErrorInvalidDevice,
              cudaMemAdvise(memory, 4096, cudaMemAdviseSetPreferredLocation, 7));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaMemAdvise(memory, 4096, unknown<cudaMemoryAdvise>(77), 0));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaMemAdvise(allocate(), 4, cudaMemAdviseSetReadMostly, 0));
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaMemPrefetchAsync(memory, 4096, 7, nullptr));
  EXPECT_CUDA(cudaErrorInvalidValue,
              cudaMemPrefetchAsync(memory, std::size_t{1} << 40, 0, nullptr));
}
#endif

TEST_F(MemoryTest, InTheOrderOfAStream) {
  COVERS(cudaMallocAsync, cudaFreeAsync);
  REFUSES(cudaMallocAsync, cudaFreeAsync);
  const cudaStream_t stream = make_stream();
  OK(launch("nothing", {}, stream));  // the image's variables are memory, too
  const std::size_t before = used();
  void* pointer = nullptr;
  OK(cudaMallocAsync(&pointer, 4096, stream));
  OK(launch("store", {}, stream, pointer, 6U));
  std::uint32_t value = 0;
  OK(cudaMemcpyAsync(&value, pointer, 4, cudaMemcpyDeviceToHost, stream));
  OK(cudaFreeAsync(pointer, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(value, 6U);
  EXPECT_EQ(used(), before);
  EXPECT_CUDA(cudaErrorInvalidValue, cudaFreeAsync(pointer, stream));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle,
              cudaMallocAsync(&pointer, 16, garbage<cudaStream_t>()));
  EXPECT_CUDA(cudaErrorMemoryAllocation, cudaMallocAsync(&pointer, std::size_t{1} << 40, stream));
}

TEST_F(MemoryTest, LinesAreCopiedInEveryDirection) {
  COVERS(cudaMemcpy, cudaMemcpyAsync);
  REFUSES(cudaMemcpy, cudaMemcpyAsync);
  std::uint32_t *const a = allocate(4), *const b = allocate(4);
  const std::array<std::uint32_t, 4> from{1, 2, 3, 4};
  std::array<std::uint32_t, 4> to{};
  const cudaStream_t stream = make_stream();
  for (const bool is_async : {false, true}) {
    const auto copy = [&](void* target, const void* source, cudaMemcpyKind kind) {
      return is_async ? cudaMemcpyAsync(target, source, 16, kind, stream)
                      : cudaMemcpy(target, source, 16, kind);
    };
    to.fill(0);
    OK(cudaMemset(b, 0, 16));
    OK(copy(a, from.data(), cudaMemcpyHostToDevice));
    OK(copy(b, a, cudaMemcpyDeviceToDevice));
    OK(copy(to.data(), b, cudaMemcpyDeviceToHost));
    OK(cudaStreamSynchronize(stream));
    EXPECT_EQ(to, from);
    std::array<std::uint32_t, 4> third{};
    OK(copy(third.data(), to.data(), cudaMemcpyHostToHost));
    OK(copy(a, third.data(), cudaMemcpyDefault));
    OK(cudaStreamSynchronize(stream));
    EXPECT_EQ(third, from);
    EXPECT_CUDA(cudaErrorInvalidMemcpyDirection, copy(a, b, unknown<cudaMemcpyKind>(9)));
    EXPECT_CUDA(cudaErrorInvalidValue, copy(garbage<void*>(), from.data(), cudaMemcpyHostToDevice));
  }
  OK(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDefault));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle,
              cudaMemcpyAsync(a, from.data(), 16, cudaMemcpyHostToDevice, garbage<cudaStream_t>()));
}

TEST_F(MemoryTest, BetweenDevices) {
  COVERS(cudaMemcpyPeer, cudaMemcpyPeerAsync);
  REFUSES(cudaMemcpyPeer, cudaMemcpyPeerAsync);
  std::uint32_t* const mine = allocate(2);
  OK(cudaSetDevice(1));
  std::uint32_t* const theirs = allocate(2);
  OK(launch("store", {}, nullptr, theirs, 21U));
  OK(cudaDeviceSynchronize());
  OK(cudaMemcpyPeer(mine, 0, theirs, 1, 4));
  OK(cudaSetDevice(0));
  EXPECT_EQ(read(mine), 21U);
  OK(launch("store", {}, nullptr, mine, 22U));
  const cudaStream_t stream = make_stream();
  OK(cudaDeviceSynchronize());
  OK(cudaMemcpyPeerAsync(theirs + 1, 1, mine, 0, 4, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(read(theirs, 2)[1], 22U);
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaMemcpyPeer(mine, 0, theirs, 2, 4));
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaMemcpyPeerAsync(mine, 5, theirs, 1, 4, stream));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaMemcpyPeer(mine, 0, garbage<void*>(), 1, 4));
}

TEST_F(MemoryTest, Rectangles) {
  COVERS(cudaMemcpy2D, cudaMemcpy2DAsync, cudaMemset2D, cudaMemset2DAsync);
  REFUSES(cudaMemcpy2D, cudaMemcpy2DAsync, cudaMemset2D, cudaMemset2DAsync);
  std::array<std::uint32_t, 12> from{};
  std::iota(from.begin(), from.end(), 0U);
  const cudaStream_t stream = make_stream();
  for (const bool is_async : {false, true}) {
    std::uint32_t* const to = allocate(8);
    const auto copy = [&](std::size_t width, cudaMemcpyKind kind) {
      return is_async ? cudaMemcpy2DAsync(to, 16, &from[1], 24, width, 2, kind, stream)
                      : cudaMemcpy2D(to, 16, &from[1], 24, width, 2, kind);
    };
    const auto fill = [&](std::size_t pitch, std::size_t width) {
      return is_async ? cudaMemset2DAsync(to + 2, pitch, 0xff, width, 2, stream)
                      : cudaMemset2D(to + 2, pitch, 0xff, width, 2);
    };
    OK(copy(8, cudaMemcpyHostToDevice));
    OK(cudaStreamSynchronize(stream));
    EXPECT_THAT(read(to, 8), ElementsAre(1, 2, 0, 0, 7, 8, 0, 0));
    OK(fill(16, 4));
    OK(cudaStreamSynchronize(stream));
    EXPECT_THAT(read(to, 8), ElementsAre(1, 2, 0xffffffff, 0, 7, 8, 0xffffffff, 0));
    EXPECT_CUDA(cudaErrorInvalidPitchValue, copy(17, cudaMemcpyHostToDevice));
    EXPECT_CUDA(cudaErrorInvalidMemcpyDirection, copy(8, unknown<cudaMemcpyKind>(-1)));
    EXPECT_CUDA(cudaErrorInvalidValue, fill(4, 16));
    OK(copy(0, cudaMemcpyHostToDevice));
  }
}

TEST_F(MemoryTest, Boxes) {
  COVERS(cudaMemcpy3D, cudaMemcpy3DAsync);
  REFUSES(cudaMemcpy3D, cudaMemcpy3DAsync);
  std::array<std::uint32_t, 24> from{};  // 2 x 3 lines of 4
  std::iota(from.begin(), from.end(), 0U);
  const cudaStream_t stream = make_stream();
  for (const bool is_async : {false, true}) {
    std::uint32_t* const to = allocate(8);
    cudaMemcpy3DParms box{};
    const auto copy = [&] {
      return is_async ? cudaMemcpy3DAsync(&box, stream) : cudaMemcpy3D(&box);
    };
    box.srcPtr = {from.data(), 16, 16, 3};
    box.srcPos = {4, 1, 0};
    box.dstPtr = {to, 8, 8, 2};
    box.extent = {8, 2, 2};
    box.kind = cudaMemcpyHostToDevice;
    OK(copy());
    OK(cudaStreamSynchronize(stream));
    EXPECT_THAT(read(to, 8), ElementsAre(5, 6, 9, 10, 17, 18, 21, 22));
    box.kind = unknown<cudaMemcpyKind>(8);
    EXPECT_CUDA(cudaErrorInvalidMemcpyDirection, copy());
    box.kind = cudaMemcpyHostToDevice;
    box.srcArray = garbage<cudaArray*>();
    EXPECT_CUDA(cudaErrorNotSupported, copy());
    box.srcArray = nullptr;
    box.extent.width = 16;
    EXPECT_CUDA(cudaErrorInvalidPitchValue, copy());
  }
  EXPECT_CUDA(cudaErrorInvalidValue, cudaMemcpy3D(nullptr));
}

TEST_F(MemoryTest, Fills) {
  COVERS(cudaMemset, cudaMemsetAsync);
  REFUSES(cudaMemset, cudaMemsetAsync);
  std::uint32_t* const to = allocate(2);
  const cudaStream_t stream = make_stream();
  OK(cudaMemset(to, 0x101, 4));
  OK(cudaMemsetAsync(to + 1, 2, 4, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT_THAT(read(to, 2), ElementsAre(0x01010101, 0x02020202));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaMemset(garbage<void*>(), 0, 4));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaMemsetAsync(to, 0, std::size_t{1} << 40, stream));
}

TEST_F(MemoryTest, Variables) {
  COVERS(cudaMemcpyToSymbol, cudaMemcpyFromSymbol, cudaMemcpyToSymbolAsync,
         cudaMemcpyFromSymbolAsync, cudaGetSymbolAddress, cudaGetSymbolSize, __cudaRegisterVar);
  REFUSES(cudaMemcpyToSymbol, cudaMemcpyFromSymbol, cudaMemcpyToSymbolAsync,
          cudaMemcpyFromSymbolAsync, cudaGetSymbolAddress, cudaGetSymbolSize, __cudaRegisterVar);
  std::uint32_t* const out = allocate(4);
  const std::array<std::uint32_t, 2> values{100, 200};
  std::uint32_t counter = 40, seen = 0;
  OK(cudaMemcpyToSymbol(&g_counter, &counter, 4, 0, cudaMemcpyHostToDevice));
  OK(cudaMemcpyToSymbolAsync(g_table, values.data(), 8, 4, cudaMemcpyHostToDevice, nullptr));
  OK(launch("variables", {1, 4}, nullptr, out));
  EXPECT_THAT(read(out, 4), ElementsAre(51, 141, 241, 81));
  OK(cudaMemcpyFromSymbol(&seen, &g_counter, 4, 0, cudaMemcpyDeviceToHost));
  EXPECT_EQ(seen, 41U);
  OK(cudaMemcpyFromSymbolAsync(&seen, g_table, 4, 8, cudaMemcpyDeviceToHost, nullptr));
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(seen, 200U);
  void* pointer = nullptr;
  std::size_t bytes = 0;
  OK(cudaGetSymbolAddress(&pointer, &g_counter));
  EXPECT_EQ(read(pointer), 41U);
  OK(cudaGetSymbolSize(&bytes, g_table));
  EXPECT_EQ(bytes, 16U);
  EXPECT_CUDA(cudaErrorInvalidSymbol, cudaGetSymbolAddress(&pointer, &seen));
  EXPECT_CUDA(cudaErrorInvalidSymbol, cudaGetSymbolSize(&bytes, &seen));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGetSymbolSize(nullptr, g_table));
  EXPECT_CUDA(cudaErrorInvalidValue,
              cudaMemcpyToSymbol(g_table, values.data(), 8, 12, cudaMemcpyHostToDevice));
  EXPECT_CUDA(
      cudaErrorInvalidMemcpyDirection,
      cudaMemcpyToSymbolAsync(g_table, values.data(), 8, 0, cudaMemcpyDeviceToHost, nullptr));
  EXPECT_CUDA(cudaErrorInvalidValue,
              cudaMemcpyFromSymbol(&seen, g_table, 4, 16, cudaMemcpyDeviceToHost));
  EXPECT_CUDA(cudaErrorInvalidMemcpyDirection,
              cudaMemcpyFromSymbolAsync(&seen, g_table, 4, 0, cudaMemcpyHostToDevice, nullptr));
  // Registered for no image: none.
  __cudaRegisterVar(garbage<void**>(), reinterpret_cast<char*>(&seen), nullptr, "counter", 0, 4, 0,
                    0);
  EXPECT_CUDA(cudaErrorInvalidSymbol, cudaGetSymbolAddress(&pointer, &seen));
}

}  // namespace
}  // namespace kansoku::cudart
