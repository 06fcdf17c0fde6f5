// SPDX-License-Identifier: Apache-2.0
// Copies: of lines, rectangles and boxes, to and from variables, between devices.
#include "softcuda/runtime/internal/state.h"

using namespace kansoku::cudart;  // NOLINT(google-build-using-namespace)

namespace {

/// Time of a copy: at once, or in the order of a stream.
struct When {
  bool is_async{false};
  cudaStream_t stream{nullptr};
};
constexpr When kNow{};

bool is_kind(cudaMemcpyKind kind) {
  return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault;
}
CUmemorytype source_of(cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault) return CU_MEMORYTYPE_UNIFIED;
  const bool is_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice;
  return is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}
CUmemorytype target_of(cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault) return CU_MEMORYTYPE_UNIFIED;
  const bool is_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost;
  return is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

CUresult copy_now(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const Driver& mine = driver();
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return mine.cuMemcpyHtoD_v2(as(to), from, bytes);
    case cudaMemcpyDeviceToHost:
      return mine.cuMemcpyDtoH_v2(to, as(from), bytes);
    case cudaMemcpyDeviceToDevice:
      return mine.cuMemcpyDtoD_v2(as(to), as(from), bytes);
    default:
      return mine.cuMemcpy(as(to), as(from), bytes);
  }
}
CUresult copy_later(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                    cudaStream_t stream) {
  const Driver& mine = driver();
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return mine.cuMemcpyHtoDAsync_v2(as(to), from, bytes, stream);
    case cudaMemcpyDeviceToHost:
      return mine.cuMemcpyDtoHAsync_v2(to, as(from), bytes, stream);
    case cudaMemcpyDeviceToDevice:
      return mine.cuMemcpyDtoDAsync_v2(as(to), as(from), bytes, stream);
    default:
      return mine.cuMemcpyAsync(as(to), as(from), bytes, stream);
  }
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, When when) {
  KANSOKU_CUDART_TRY(enter());
  if (!is_kind(kind)) return noted(cudaErrorInvalidMemcpyDirection);
  if (bytes == 0) return cudaSuccess;
  return noted(when.is_async ? copy_later(to, from, bytes, kind, when.stream)
                             : copy_now(to, from, bytes, kind));
}

struct Lines {
  const void* at{nullptr};
  std::size_t pitch{0};
};
struct Rectangle {
  std::size_t width{0}, height{0};
};
cudaError_t copy_rectangle(Lines to, Lines from, Rectangle size, cudaMemcpyKind kind, When when) {
  KANSOKU_CUDART_TRY(enter());
  if (!is_kind(kind)) return noted(cudaErrorInvalidMemcpyDirection);
  if (size.width > to.pitch || size.width > from.pitch) return noted(cudaErrorInvalidPitchValue);
  if (size.width == 0 || size.height == 0) return cudaSuccess;
  CUDA_MEMCPY2D shape{};
  shape.srcMemoryType = source_of(kind);
  shape.srcHost = from.at;
  shape.srcDevice = as(from.at);
  shape.srcPitch = from.pitch;
  shape.dstMemoryType = target_of(kind);
  shape.dstHost = const_cast<void*>(to.at);
  shape.dstDevice = as(to.at);
  shape.dstPitch = to.pitch;
  shape.WidthInBytes = size.width;
  shape.Height = size.height;
  return noted(when.is_async ? driver().cuMemcpy2DAsync_v2(&shape, when.stream)
                             : driver().cuMemcpy2D_v2(&shape));
}

/// There are no arrays on the software device: a box lies in lines of bytes on both sides.
cudaError_t copy_box(const cudaMemcpy3DParms* box, When when) {
  KANSOKU_CUDART_TRY(enter());
  if (box == nullptr) return noted(cudaErrorInvalidValue);
  if (box->srcArray != nullptr || box->dstArray != nullptr) return noted(cudaErrorNotSupported);
  if (!is_kind(box->kind)) return noted(cudaErrorInvalidMemcpyDirection);
  const auto& [width, height, depth] = box->extent;
  if (width == 0 || height == 0 || depth == 0) return cudaSuccess;
  if (width > box->srcPtr.pitch || width > box->dstPtr.pitch)
    return noted(cudaErrorInvalidPitchValue);
  CUDA_MEMCPY3D shape{};
  shape.srcXInBytes = box->srcPos.x;
  shape.srcY = box->srcPos.y;
  shape.srcZ = box->srcPos.z;
  shape.srcMemoryType = source_of(box->kind);
  shape.srcHost = box->srcPtr.ptr;
  shape.srcDevice = as(box->srcPtr.ptr);
  shape.srcPitch = box->srcPtr.pitch;
  shape.srcHeight = box->srcPtr.ysize;
  shape.dstXInBytes = box->dstPos.x;
  shape.dstY = box->dstPos.y;
  shape.dstZ = box->dstPos.z;
  shape.dstMemoryType = target_of(box->kind);
  shape.dstHost = box->dstPtr.ptr;
  shape.dstDevice = as(box->dstPtr.ptr);
  shape.dstPitch = box->dstPtr.pitch;
  shape.dstHeight = box->dstPtr.ysize;
  shape.WidthInBytes = width;
  shape.Height = height;
  shape.Depth = depth;
  return noted(when.is_async ? driver().cuMemcpy3DAsync_v2(&shape, when.stream)
                             : driver().cuMemcpy3D_v2(&shape));
}

struct OfDevice {
  const void* at{nullptr};
  int device{0};
};
cudaError_t copy_between(OfDevice to, OfDevice from, std::size_t bytes, When when) {
  KANSOKU_CUDART_TRY(enter());
  CUcontext there = nullptr, here = nullptr;
  KANSOKU_CUDART_TRY(primary_of(to.device, there));
  KANSOKU_CUDART_TRY(primary_of(from.device, here));
  if (bytes == 0) return cudaSuccess;
  return noted(when.is_async ? driver().cuMemcpyPeerAsync(as(to.at), there, as(from.at), here,
                                                          bytes, when.stream)
                             : driver().cuMemcpyPeer(as(to.at), there, as(from.at), here, bytes));
}

/// The bytes of a variable that a copy concerns.
struct Part {
  const void* symbol{nullptr};
  std::size_t bytes{0}, offset{0};
};
cudaError_t place_of(const Part& part, void*& at) {
  Place place;
  KANSOKU_CUDART_TRY(enter_variable(part.symbol, place));
  if (part.offset > place.bytes || part.bytes > place.bytes - part.offset)
    return noted(cudaErrorInvalidValue);
  at = pointer_of(place.address + part.offset);
  return cudaSuccess;
}
cudaError_t copy_to(const Part& part, const void* from, cudaMemcpyKind kind, When when) {
  void* at = nullptr;
  if (const cudaError_t error = place_of(part, at); error != cudaSuccess) return error;
  if (kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost)
    return noted(cudaErrorInvalidMemcpyDirection);
  return copy(at, from, part.bytes, kind, when);
}
cudaError_t copy_from(void* to, const Part& part, cudaMemcpyKind kind, When when) {
  void* at = nullptr;
  if (const cudaError_t error = place_of(part, at); error != cudaSuccess) return error;
  if (kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice)
    return noted(cudaErrorInvalidMemcpyDirection);
  return copy(to, at, part.bytes, kind, when);
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return copy(to, from, bytes, kind, kNow);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return copy(to, from, bytes, kind, {true, stream});
}
cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device,
                           std::size_t bytes) {
  return copy_between({to, to_device}, {from, from_device}, bytes, kNow);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                std::size_t bytes, cudaStream_t stream) {
  return copy_between({to, to_device}, {from, from_device}, bytes, {true, stream});
}
cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                         std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  return copy_rectangle({to, to_pitch}, {from, from_pitch}, {width, height}, kind, kNow);
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_rectangle({to, to_pitch}, {from, from_pitch}, {width, height}, kind, {true, stream});
}
cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* parameters) {
  return copy_box(parameters, kNow);
}
cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* parameters, cudaStream_t stream) {
  return copy_box(parameters, {true, stream});
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes,
                               std::size_t offset, cudaMemcpyKind kind) {
  return copy_to({symbol, bytes, offset}, from, kind, kNow);
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, std::size_t bytes,
                                 std::size_t offset, cudaMemcpyKind kind) {
  return copy_from(to, {symbol, bytes, offset}, kind, kNow);
}
cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, std::size_t bytes,
                                    std::size_t offset, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_to({symbol, bytes, offset}, from, kind, {true, stream});
}
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, std::size_t bytes,
                                      std::size_t offset, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  return copy_from(to, {symbol, bytes, offset}, kind, {true, stream});
}

}  // extern "C"
