// SPDX-License-Identifier: Apache-2.0
// Copies and fills.
#include <gmock/gmock.h>

#include <numeric>

#include "softcuda/driver_for_test.h"

namespace kansoku::softcuda {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

class CopyTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    OK(cuStreamCreate(&stream_, kStreamNonBlocking));
    flag_ = pinned();
    gate_ = allocate(4);
  }
  /// Later work of the stream has to wait for open().
  void close(CUstream stream) {
    *flag_ = 0;
    EXPECT_CU(0, launch(kernel("await"), {}, stream, address(flag_), gate_));
  }
  void open() { *flag_ = 1; }

  CUstream stream_{nullptr};
  volatile std::uint32_t* flag_{nullptr};
  CUdeviceptr gate_{0};
};

std::vector<std::uint8_t> pattern(std::size_t bytes) {
  std::vector<std::uint8_t> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    values[i] = static_cast<std::uint8_t>(i * 37 + i / 251);
  return values;
}

using LineCopy = std::function<CUresult(CUdeviceptr to, CUdeviceptr from, std::size_t bytes)>;

TEST_F(CopyTest, BetweenHostAndDevice) {
  COVERS(cuMemcpyHtoD_v2, cuMemcpyDtoH_v2, cuMemcpyDtoD_v2, cuMemcpy);
  const auto sent = pattern(10'000);
  std::vector<std::uint8_t> received(sent.size());
  const CUdeviceptr a = allocate(sent.size()), b = allocate(sent.size());
  OK(cuMemcpyHtoD_v2(a, sent.data(), sent.size()));
  OK(cuMemcpyDtoD_v2(b, a, sent.size()));
  OK(cuMemcpyDtoH_v2(received.data(), b, sent.size()));
  EXPECT_EQ(received, sent);
  // Pieces, and whichever side the addresses say.
  OK(cuMemcpy(b + 100, a + 50, 25));
  OK(cuMemcpy(address(received.data()), b + 100, 25));
  EXPECT_THAT(std::vector(received.begin(), received.begin() + 25),
              ElementsAreArray(sent.begin() + 50, sent.begin() + 75));
  std::vector<std::uint8_t> host(25);
  OK(cuMemcpy(address(host.data()), address(sent.data()), 25));
  EXPECT_THAT(host, ElementsAreArray(sent.begin(), sent.begin() + 25));
}

TEST_F(CopyTest, RefusesWhatIsNotThere) {
  COVERS(cuMemcpyHtoD_v2, cuMemcpyDtoH_v2, cuMemcpyDtoD_v2, cuMemcpy);
  char host[64] = {};
  const CUdeviceptr memory = allocate(64);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(memory, host, 65));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(memory + 60, host, 8));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(memory, nullptr, 8));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(memory, host, SIZE_MAX));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(0, host, 8));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(host, memory + 64, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD_v2(memory, address(host), 8));
  // A device's address where the host's is asked for is fine if something is there.
  OK(cuMemcpyHtoD_v2(memory, reinterpret_cast<void*>(memory + 32), 8));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuMemcpyHtoD_v2(memory, reinterpret_cast<void*>(memory + 32), 40));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuMemcpyDtoH_v2(reinterpret_cast<void*>(memory + 8192), memory, 8));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpy(memory + 4096, address(host), 8));
  OK(cuMemcpyHtoD_v2(memory, host, 0));
  void* const freed = const_cast<std::uint32_t*>(pinned());
  OK(cuMemFreeHost(freed));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(memory, freed, 4));
}

TEST_F(CopyTest, BetweenDevices) {
  COVERS(cuMemcpyPeer, cuMemcpyPeerAsync);
  CUcontext other = nullptr;
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  const auto sent = pattern(500);
  const CUdeviceptr here = allocate(500);
  OK(cuMemcpyHtoD_v2(here, sent.data(), 500));
  OK(cuCtxSetCurrent(other));
  const CUdeviceptr there = allocate(500);
  OK(cuMemcpyPeer(there, other, here, context_, 500));
  EXPECT_EQ(read<std::uint8_t>(there, 500), sent);
  OK(cuMemsetD8_v2(there, 3, 500));
  OK(cuMemcpyPeerAsync(here, context_, there, other, 499, nullptr));
  OK(cuCtxSynchronize());
  EXPECT_THAT(read<std::uint8_t>(here, 499), Each(3));
  EXPECT_EQ(read<std::uint8_t>(here + 499), sent[499]);
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyPeer(there, nullptr, here, context_, 500));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyPeer(there, other, here, context_, 501));
  // A stream of another device's context does it, too.
  OK(cuMemcpyDtoDAsync_v2(there, here, 500, stream_));
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(read<std::uint8_t>(there, 500), read<std::uint8_t>(here, 500));
}

TEST_F(CopyTest, AsynchronousOnesKeepTheOrderOfTheStream) {
  COVERS(cuMemcpyHtoDAsync_v2, cuMemcpyDtoHAsync_v2, cuMemcpyDtoDAsync_v2, cuMemcpyAsync);
  auto* const host = const_cast<std::uint32_t*>(pinned(4));
  const CUdeviceptr memory = allocate(16);
  host[0] = 1;
  close(stream_);
  OK(cuMemcpyHtoDAsync_v2(memory, host, 4, stream_));
  OK(launch(kernel("next"), {}, stream_, memory, memory + 4));
  OK(cuMemcpyDtoDAsync_v2(memory + 8, memory + 4, 4, stream_));
  OK(cuMemcpyDtoHAsync_v2(host + 1, memory + 8, 4, stream_));
  OK(cuMemcpyAsync(address(host + 2), memory + 4, 4, stream_));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(stream_));
  EXPECT_EQ(host[1], 0U);
  host[0] = 20;  // pinned memory is read when its turn comes
  open();
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(host[1], 21U);
  EXPECT_EQ(host[2], 21U);
}

TEST_F(CopyTest, PageableMemoryIsReadAtTheCall) {
  COVERS(cuMemcpyHtoDAsync_v2);
  std::vector<std::uint32_t> host(1, 5);
  const CUdeviceptr memory = allocate(4);
  close(stream_);
  OK(cuMemcpyHtoDAsync_v2(memory, host.data(), 4, stream_));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(stream_));
  host[0] = 6;
  open();
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(read(memory), 5U);
  // Into pageable memory: there when the call returns.
  OK(launch(kernel("store"), {}, stream_, memory, 44U));
  OK(cuMemcpyDtoHAsync_v2(host.data(), memory, 4, stream_));
  EXPECT_EQ(host[0], 44U);
}

/// One side of a box.
struct BoxSide {
  std::size_t x, y, z, pitch, height;
};

/// The definition of cuMemcpy3D, byte by byte.
void copy_scalar(const std::uint8_t* from, const BoxSide& source, std::uint8_t* to,
                 const BoxSide& target, std::size_t width, std::size_t height, std::size_t depth) {
  for (std::size_t z = 0; z < depth; ++z) {
    for (std::size_t y = 0; y < height; ++y) {
      for (std::size_t x = 0; x < width; ++x) {
        to[((target.z + z) * target.height + target.y + y) * target.pitch + target.x + x] =
            from[((source.z + z) * source.height + source.y + y) * source.pitch + source.x + x];
      }
    }
  }
}

CUDA_MEMCPY3D box_of(CUmemorytype from_type, CUdeviceptr from, const BoxSide& source,
                     CUmemorytype to_type, CUdeviceptr to, const BoxSide& target) {
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = from_type;
  box.srcHost = reinterpret_cast<void*>(from);
  box.srcDevice = from;
  box.srcXInBytes = source.x;
  box.srcY = source.y;
  box.srcZ = source.z;
  box.srcPitch = source.pitch;
  box.srcHeight = source.height;
  box.dstMemoryType = to_type;
  box.dstHost = reinterpret_cast<void*>(to);
  box.dstDevice = to;
  box.dstXInBytes = target.x;
  box.dstY = target.y;
  box.dstZ = target.z;
  box.dstPitch = target.pitch;
  box.dstHeight = target.height;
  return box;
}

TEST_F(CopyTest, BoxesAgreeWithTheScalarReference) {
  COVERS(cuMemcpy3D_v2, cuMemcpy3DAsync_v2);
  constexpr std::size_t kBytes = 8192;
  const BoxSide source{3, 2, 1, 40, 9}, target{7, 1, 2, 33, 6};
  const auto sent = pattern(kBytes);
  for (const bool is_async : {false, true}) {
    for (const CUmemorytype from_type :
         {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED}) {
      for (const CUmemorytype to_type :
           {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED}) {
        std::vector<std::uint8_t> host_from = sent, host_to(kBytes, 0xee), expected = host_to;
        copy_scalar(sent.data(), source, expected.data(), target, 17, 4, 3);
        const CUdeviceptr from = allocate(kBytes), to = allocate(kBytes);
        OK(cuMemcpyHtoD_v2(from, sent.data(), kBytes));
        OK(cuMemsetD8_v2(to, 0xee, kBytes));
        const bool is_from_host = from_type == CU_MEMORYTYPE_HOST,
                   is_to_host = to_type == CU_MEMORYTYPE_HOST;
        CUDA_MEMCPY3D box =
            box_of(from_type, is_from_host ? address(host_from.data()) : from, source, to_type,
                   is_to_host ? address(host_to.data()) : to, target);
        box.WidthInBytes = 17;
        box.Height = 4;
        box.Depth = 3;
        if (is_async) {
          OK(cuMemcpy3DAsync_v2(&box, stream_));
          OK(cuStreamSynchronize(stream_));
        } else {
          OK(cuMemcpy3D_v2(&box));
        }
        if (!is_to_host) host_to = read<std::uint8_t>(to, kBytes);
        EXPECT_EQ(host_to, expected) << from_type << " to " << to_type;
        OK(cuMemFree_v2(from));
        OK(cuMemFree_v2(to));
      }
    }
  }
}

TEST_F(CopyTest, RectanglesAgreeWithTheScalarReference) {
  COVERS(cuMemcpy2D_v2, cuMemcpy2DUnaligned_v2, cuMemcpy2DAsync_v2);
  const auto sent = pattern(4096);
  const BoxSide source{5, 3, 0, 64, 0}, target{1, 4, 0, 48, 0};
  CUDA_MEMCPY2D shape{};
  shape.srcMemoryType = CU_MEMORYTYPE_HOST;
  shape.srcHost = sent.data();
  shape.srcXInBytes = source.x;
  shape.srcY = source.y;
  shape.srcPitch = source.pitch;
  shape.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  shape.dstXInBytes = target.x;
  shape.dstY = target.y;
  shape.dstPitch = target.pitch;
  shape.WidthInBytes = 20;
  shape.Height = 10;
  std::vector<std::uint8_t> expected(1024, 0);
  copy_scalar(sent.data(), source, expected.data(), target, 20, 10, 1);
  const auto check = [&](const std::function<CUresult()>& copy) {
    shape.dstDevice = allocate(1024);
    OK(cuMemsetD8_v2(shape.dstDevice, 0, 1024));
    OK(copy());
    EXPECT_EQ(read<std::uint8_t>(shape.dstDevice, 1024), expected);
  };
  check([&] { return cuMemcpy2D_v2(&shape); });
  check([&] { return cuMemcpy2DUnaligned_v2(&shape); });
  check([&] {
    const CUresult status = cuMemcpy2DAsync_v2(&shape, stream_);
    return status == CUDA_SUCCESS ? cuStreamSynchronize(stream_) : status;
  });
  shape.dstPitch = 20;  // x + width is 21
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&shape));
  shape.dstPitch = 200;  // beyond the end
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&shape));
  shape.dstPitch = 48;
  shape.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, cuMemcpy2D_v2(&shape));
  shape.dstMemoryType = static_cast<CUmemorytype>(0);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&shape));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(nullptr));
  shape.Height = 0;
  OK(cuMemcpy2D_v2(&shape));
}

TEST_F(CopyTest, BoxesBeyondAllBounds) {
  COVERS(cuMemcpy3D_v2);
  char host[64] = {};
  const CUdeviceptr memory = allocate(64);
  CUDA_MEMCPY3D box = box_of(CU_MEMORYTYPE_HOST, address(host), {0, 0, 0, 8, 2},
                             CU_MEMORYTYPE_DEVICE, memory, {0, 0, 0, 8, 2});
  box.WidthInBytes = 8;
  box.Height = 2;
  box.Depth = 4;
  OK(cuMemcpy3D_v2(&box));
  for (std::size_t CUDA_MEMCPY3D::*const member :
       {&CUDA_MEMCPY3D::dstXInBytes, &CUDA_MEMCPY3D::dstY, &CUDA_MEMCPY3D::dstZ,
        &CUDA_MEMCPY3D::WidthInBytes, &CUDA_MEMCPY3D::Height, &CUDA_MEMCPY3D::Depth}) {
    for (const std::size_t value : {std::size_t{1} << 30, SIZE_MAX, SIZE_MAX / 2, SIZE_MAX - 7}) {
      CUDA_MEMCPY3D wild = box;
      wild.*member = value;
      EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D_v2(&wild)) << value;
    }
  }
}

TEST_F(CopyTest, FillsOfEveryWidth) {
  COVERS(cuMemsetD8_v2, cuMemsetD16_v2, cuMemsetD32_v2, cuMemsetD8Async, cuMemsetD16Async,
         cuMemsetD32Async);
  const CUdeviceptr memory = allocate(64);
  OK(cuMemsetD8_v2(memory, 0xff, 64));
  OK(cuMemsetD8_v2(memory + 1, 0x11, 2));
  OK(cuMemsetD16_v2(memory + 4, 0x2233, 2));
  OK(cuMemsetD32_v2(memory + 8, 0x44556677, 2));
  EXPECT_THAT(read(memory, 5),
              ElementsAre(0xff1111ff, 0x22332233, 0x44556677, 0x44556677, 0xffffffff));
  close(stream_);
  OK(cuMemsetD8Async(memory, 1, 4, stream_));
  OK(cuMemsetD16Async(memory + 4, 2, 2, stream_));
  OK(cuMemsetD32Async(memory + 8, 3, 1, stream_));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(stream_));
  open();
  OK(cuStreamSynchronize(stream_));
  EXPECT_THAT(read(memory, 4), ElementsAre(0x01010101, 0x00020002, 3, 0x44556677));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(memory + 2, 0, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD16_v2(memory + 1, 0, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(memory, 0, 17));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(memory, 0, SIZE_MAX / 2));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(0, 0, 1));
  OK(cuMemsetD8_v2(memory, 0, 0));
}

TEST_F(CopyTest, FillsOfRectangles) {
  COVERS(cuMemsetD2D8_v2, cuMemsetD2D16_v2, cuMemsetD2D32_v2, cuMemsetD2D8Async, cuMemsetD2D16Async,
         cuMemsetD2D32Async);
  const CUdeviceptr memory = allocate(64);
  const auto fill = [&](const std::function<CUresult()>& call) {
    EXPECT_CU(0, cuMemsetD8_v2(memory, 0, 64));
    EXPECT_CU(0, call());
    EXPECT_CU(0, cuCtxSynchronize());
    return read<std::uint16_t>(memory, 16);
  };
  const auto bytes = fill([&] { return cuMemsetD2D8_v2(memory + 2, 16, 9, 3, 2); });
  EXPECT_THAT(bytes, ElementsAre(0, 0x0909, 9, 0, 0, 0, 0, 0, 0, 0x0909, 9, 0, 0, 0, 0, 0));
  EXPECT_EQ(fill([&] { return cuMemsetD2D8Async(memory + 2, 16, 9, 3, 2, stream_); }), bytes);
  const auto shorts = fill([&] { return cuMemsetD2D16_v2(memory + 2, 16, 0x0102, 2, 2); });
  EXPECT_THAT(shorts,
              ElementsAre(0, 0x0102, 0x0102, 0, 0, 0, 0, 0, 0, 0x0102, 0x0102, 0, 0, 0, 0, 0));
  EXPECT_EQ(fill([&] { return cuMemsetD2D16Async(memory + 2, 16, 0x0102, 2, 2, stream_); }),
            shorts);
  const auto words = fill([&] { return cuMemsetD2D32_v2(memory + 4, 16, 0x00050004, 1, 2); });
  EXPECT_THAT(words, ElementsAre(0, 0, 4, 5, 0, 0, 0, 0, 0, 0, 4, 5, 0, 0, 0, 0));
  EXPECT_EQ(fill([&] { return cuMemsetD2D32Async(memory + 4, 16, 0x00050004, 1, 2, stream_); }),
            words);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8_v2(memory, 2, 0, 3, 2));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D32_v2(memory, 18, 0, 1, 2));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8_v2(memory, 32, 0, 33, 2));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8_v2(memory, SIZE_MAX, 0, 1, 2));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuMemsetD8Async(memory, 0, 1, garbage<CUstream>()));
}

constexpr auto kInOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
constexpr auto kInTheCall = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;

/// Copies of a batch, with attributes for all of them.
struct Lines {
  std::vector<CUdeviceptr> to, from;
  std::vector<std::size_t> bytes;
  CUmemcpyAttributes attributes{kInOrder, {}, {}, 0};
  std::size_t begin{0};

  void add(CUdeviceptr to_address, CUdeviceptr from_address, std::size_t size) {
    to.push_back(to_address);
    from.push_back(from_address);
    bytes.push_back(size);
  }
  CUresult copy(CUstream stream) {
    return cuMemcpyBatchAsync_v2(to.data(), from.data(), bytes.data(), to.size(), &attributes,
                                 &begin, 1, stream);
  }
};

TEST_F(CopyTest, BatchesGoToTheStreamAsAWhole) {
  COVERS(cuMemcpyBatchAsync, cuMemcpyBatchAsync_v2);
  auto sent = pattern(300);
  std::vector<std::uint8_t> received(100);
  const CUdeviceptr a = allocate(300), b = allocate(300);
  Lines lines;
  lines.add(a, address(sent.data()), 100);
  lines.add(a + 100, address(sent.data()) + 100, 200);
  lines.add(b, a, 0);  // nothing to do
  close(stream_);
  OK(lines.copy(stream_));
  std::fill(sent.begin(), sent.end(), std::uint8_t{0});  // pageable memory has been read
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(stream_));
  open();
  Lines back;
  back.add(b, a, 300);
  OK(back.copy(stream_));
  std::size_t failed = 0, begins[] = {0, 1};
  CUmemcpyAttributes attributes[] = {{kInOrder, {}, {}, 0}, {kInTheCall, {}, {}, 1}};
  CUdeviceptr to[] = {address(received.data()), address(received.data()) + 50};
  CUdeviceptr from[] = {b + 200, b + 250};
  std::size_t bytes[] = {50, 50};
  OK(cuMemcpyBatchAsync(to, from, bytes, 2, attributes, begins, 2, &failed, stream_));
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(failed, SIZE_MAX);
  const auto whole = pattern(300);
  EXPECT_THAT(received, ElementsAreArray(whole.begin() + 200, whole.end()));
}

TEST_F(CopyTest, WhatABatchReadsInTheCallMayChangeAfterIt) {
  COVERS(cuMemcpyBatchAsync_v2);
  auto* const host = const_cast<std::uint32_t*>(pinned(4));
  host[0] = 7;
  const CUdeviceptr memory = allocate(4);
  Lines lines;
  lines.attributes.srcAccessOrder = kInTheCall;
  lines.add(memory, address(host), 4);
  close(stream_);
  OK(lines.copy(stream_));
  host[0] = 8;
  open();
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(read<std::uint32_t>(memory), 7);
}

TEST_F(CopyTest, BatchesAreCheckedBeforeAnythingIsCopied) {
  COVERS(cuMemcpyBatchAsync, cuMemcpyBatchAsync_v2);
  const auto sent = pattern(64);
  const CUdeviceptr memory = allocate(64);
  OK(cuMemsetD8_v2(memory, 9, 64));
  Lines lines;
  lines.add(memory, address(sent.data()), 64);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, lines.copy(nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Lines{}.copy(stream_));
  lines.begin = 1;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, lines.copy(stream_));
  lines.begin = 0;
  lines.attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, lines.copy(stream_));
  lines.attributes.srcAccessOrder = kInOrder;
  lines.attributes.flags = 2;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, lines.copy(stream_));
  lines.attributes.flags = 0;
  lines.add(memory + 60, address(sent.data()), 8);
  std::size_t failed = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuMemcpyBatchAsync(lines.to.data(), lines.from.data(), lines.bytes.data(), 2,
                               &lines.attributes, &lines.begin, 1, &failed, stream_));
  EXPECT_EQ(failed, 1);
  OK(cuStreamSynchronize(stream_));
  EXPECT_THAT(read<std::uint8_t>(memory, 64), Each(9));
  OK(cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, lines.copy(stream_));
  CUgraph graph = nullptr;
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream_, &graph));
}

CUmemcpy3DOperand operand(CUdeviceptr place, std::size_t row, std::size_t rows) {
  CUmemcpy3DOperand out{};
  out.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  out.op.ptr = {place, row, rows, {}};
  return out;
}

TEST_F(CopyTest, BatchesOfBoxes) {
  COVERS(cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_v2);
  const auto sent = pattern(4 * 3 * 2);
  const CUdeviceptr memory = allocate(1024);
  OK(cuMemsetD8_v2(memory, 0, 1024));
  // Lines of 4 bytes in lines of 8, 3 in layers of 5, 2 layers; then one line of them.
  CUDA_MEMCPY3D_BATCH_OP boxes[] = {
      {operand(address(sent.data()), 0, 0), operand(memory, 8, 5), {4, 3, 2}, kInOrder, 0},
      {operand(memory, 8, 5), operand(memory + 512, 0, 0), {4, 1, 1}, kInTheCall, 0}};
  std::size_t failed = 0;
  OK(cuMemcpy3DBatchAsync(1, boxes, &failed, 0, stream_));
  EXPECT_EQ(failed, SIZE_MAX);
  OK(cuMemcpy3DBatchAsync_v2(1, boxes + 1, 0, stream_));
  OK(cuStreamSynchronize(stream_));
  const auto got = read<std::uint8_t>(memory, 80);
  for (std::size_t z = 0; z < 2; ++z)
    for (std::size_t y = 0; y < 3; ++y)
      for (std::size_t x = 0; x < 4; ++x)
        EXPECT_EQ(got[z * 40 + y * 8 + x], sent[z * 12 + y * 4 + x]);
  EXPECT_THAT(read<std::uint8_t>(memory + 512, 4),
              ElementsAreArray(sent.begin(), sent.begin() + 4));
  boxes[1].extent.depth = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(2, boxes, &failed, 0, stream_));
  EXPECT_EQ(failed, 1);
  boxes[1].src.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  boxes[1].extent.depth = 1;
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, cuMemcpy3DBatchAsync_v2(2, boxes, 0, stream_));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync_v2(1, boxes, 1, stream_));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync_v2(1, boxes, 0, nullptr));
}

}  // namespace
}  // namespace kansoku::softcuda
