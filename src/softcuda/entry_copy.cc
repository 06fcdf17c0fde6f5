// SPDX-License-Identifier: Apache-2.0
// Copies and fills.
#include <cstring>

#include "softcuda/internal/copies.h"
#include "softcuda/internal/runtime.h"

namespace kansoku::softcuda {
namespace {

const std::byte* place_of(std::uint64_t address) {
  return reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(address));
}
std::uint64_t address_of(const void* pointer) {
  return reinterpret_cast<std::uint64_t>(pointer);
}

/// True if the address belongs to a device or to memory that kernels see.
bool is_of_device(std::uint64_t address) {
  return runtime()->device_of(address) != nullptr;
}

/// The stream of a copy or a fill, which may be another context's; refused in a capture if the call
/// is not asynchronous.
CUresult find_copy_stream(const std::shared_ptr<Context>& context, const CopyRequest& request,
                          std::shared_ptr<Stream>& stream, bool& is_captured) {
  stream = context->find_stream(request.stream, request.is_per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  {
    const std::scoped_lock lock(stream->context()->order_mutex);
    is_captured = stream->capture != nullptr;
  }
  if (request.is_async || !stream->context()->invalidate_capture(*stream)) return CUDA_SUCCESS;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/// Host memory that is not pinned is copied when the call is made, as the driver does by staging;
/// what goes to such memory has arrived when the call returns.
CUresult submit(const std::shared_ptr<Context>& context, Copy copy, const CopyRequest& request,
                bool is_from_pageable, bool is_to_pageable) {
  std::shared_ptr<Stream> stream;
  bool is_captured = false;
  KANSOKU_CU_TRY(find_copy_stream(context, request, stream, is_captured));
  const bool is_line = copy.height == 1 && copy.depth == 1;
  const bool must_stage = is_from_pageable || (request.reads_now && copy.is_to_device);
  if (must_stage && !is_captured && request.is_async && is_line) {
    copy.staged = std::make_shared<std::vector<std::byte>>(copy.from, copy.from + copy.width);
    copy.from = copy.staged->data();
  }
  // A box of pageable memory is not staged: the call waits instead.
  const bool must_wait = !request.is_async || is_to_pageable || (is_from_pageable && !is_line) ||
                         (request.reads_now && copy.staged == nullptr);
  Context& home = *stream->context();
  Point point;
  KANSOKU_CU_TRY(home.enqueue(stream, std::move(copy), CU_GRAPH_NODE_TYPE_MEMCPY, {}, &point));
  if (is_captured || !must_wait) return CUDA_SUCCESS;
  point.reach();
  return static_cast<CUresult>(home.error.load());
}

}  // namespace

CUresult check_side(std::uint64_t address, std::size_t bytes, Side side) {
  if (address == 0 || address + bytes < address) return CUDA_ERROR_INVALID_VALUE;
  // A device's addresses, and those of pinned memory, must be in use; others are the program's own
  // affair.
  if (!runtime()->may_touch(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (side != Side::kDevice) return CUDA_SUCCESS;
  const bool is_known = runtime()->is_known(address, bytes);
  return is_known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult copy_line(const CopyRequest& request) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (context->find_stream(request.stream, request.is_per_thread) == nullptr)
    return CUDA_ERROR_INVALID_HANDLE;
  if (request.bytes == 0) return CUDA_SUCCESS;
  KANSOKU_CU_TRY(check_side(request.to, request.bytes, request.to_side));
  KANSOKU_CU_TRY(check_side(request.from, request.bytes, request.from_side));
  Copy copy;
  copy.from = place_of(request.from);
  copy.to = const_cast<std::byte*>(place_of(request.to));
  copy.width = request.bytes;
  const bool is_from_device = runtime()->is_known(request.from, request.bytes);
  const bool is_to_device = runtime()->is_known(request.to, request.bytes);
  copy.is_to_device = is_to_device && !is_of_device(request.from);
  copy.is_to_host = !is_of_device(request.to) && is_of_device(request.from);
  copy.shape.WidthInBytes = request.bytes;
  copy.shape.Height = copy.shape.Depth = 1;
  copy.shape.srcMemoryType = is_of_device(request.from) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  copy.shape.dstMemoryType = is_of_device(request.to) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  copy.shape.srcHost = place_of(request.from);
  copy.shape.srcDevice = request.from;
  copy.shape.dstHost = copy.to;
  copy.shape.dstDevice = request.to;
  return submit(context, std::move(copy), request, !is_from_device, !is_to_device);
}

namespace {

CUresult check_contexts(CUcontext to, CUcontext from) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const bool are_known =
      runtime()->contexts.find(to) != nullptr && runtime()->contexts.find(from) != nullptr;
  return are_known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUDA_MEMCPY3D widened(const CUDA_MEMCPY2D& plain) {
  CUDA_MEMCPY3D shape{};
  shape.srcXInBytes = plain.srcXInBytes;
  shape.srcY = plain.srcY;
  shape.srcMemoryType = plain.srcMemoryType;
  shape.srcHost = plain.srcHost;
  shape.srcDevice = plain.srcDevice;
  shape.srcPitch = plain.srcPitch;
  shape.dstXInBytes = plain.dstXInBytes;
  shape.dstY = plain.dstY;
  shape.dstMemoryType = plain.dstMemoryType;
  shape.dstHost = plain.dstHost;
  shape.dstDevice = plain.dstDevice;
  shape.dstPitch = plain.dstPitch;
  shape.WidthInBytes = plain.WidthInBytes;
  shape.Height = plain.Height;
  shape.Depth = 1;
  return shape;
}

/// One end of a copy of boxes; kUnified means: whichever the address says.
struct End {
  CUmemorytype type;
  std::uint64_t host, device;
  std::size_t x, y, z, pitch, height;
};

CUresult place_end(const End& end, const CUDA_MEMCPY3D& shape, std::uint64_t& begin,
                   std::size_t& pitch, std::size_t& slice, bool& is_pageable) {
  if (end.type == CU_MEMORYTYPE_ARRAY) return CUDA_ERROR_NOT_SUPPORTED;
  if (end.type < CU_MEMORYTYPE_HOST || end.type > CU_MEMORYTYPE_UNIFIED)
    return CUDA_ERROR_INVALID_VALUE;
  pitch = end.pitch == 0 ? end.x + shape.WidthInBytes : end.pitch;
  const std::size_t lines = end.height == 0 ? end.y + shape.Height : end.height;
  constexpr std::size_t kExtentMax = std::size_t{1} << 31;
  for (const std::size_t extent :
       {end.x, end.y, end.z, pitch, lines, shape.WidthInBytes, shape.Height, shape.Depth}) {
    if (extent > kExtentMax) return CUDA_ERROR_INVALID_VALUE;
  }
  if (end.x + shape.WidthInBytes > pitch || end.y + shape.Height > lines)
    return CUDA_ERROR_INVALID_VALUE;
  if (lines > (std::size_t{1} << 62) / pitch) return CUDA_ERROR_INVALID_VALUE;
  slice = pitch * lines;
  if (shape.Depth + end.z > (std::size_t{1} << 62) / slice) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t base = end.type == CU_MEMORYTYPE_HOST ? end.host : end.device;
  begin = base + end.z * slice + end.y * pitch + end.x;
  const std::size_t bytes =
      (shape.Depth - 1) * slice + (shape.Height - 1) * pitch + shape.WidthInBytes;
  const Side side = end.type == CU_MEMORYTYPE_HOST     ? Side::kHost
                    : end.type == CU_MEMORYTYPE_DEVICE ? Side::kDevice
                                                       : Side::kEither;
  is_pageable = !runtime()->is_known(begin, bytes);
  return base == 0 ? CUDA_ERROR_INVALID_VALUE : check_side(begin, bytes, side);
}

}  // namespace

CUresult copy_box(const CUDA_MEMCPY3D& shape, CUstream handle, bool is_per_thread, bool is_async) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  CopyRequest request;
  request.stream = handle;
  request.is_per_thread = is_per_thread;
  request.is_async = is_async;
  std::shared_ptr<Stream> stream;
  bool is_captured = false, is_from_pageable = false, is_to_pageable = false;
  KANSOKU_CU_TRY(find_copy_stream(context, request, stream, is_captured));
  if (shape.WidthInBytes == 0 || shape.Height == 0 || shape.Depth == 0) return CUDA_SUCCESS;
  Copy copy;
  KANSOKU_CU_TRY(make_copy(shape, copy, is_from_pageable, is_to_pageable));
  return submit(context, std::move(copy), request, is_from_pageable, is_to_pageable);
}

namespace {

struct FillRequest {
  std::uint64_t to{0};
  std::size_t pitch{0};
  unsigned value{0}, element_bytes{1};
  std::size_t width{0}, height{1};
  CUstream stream{nullptr};
  bool is_per_thread{false}, is_async{false};
};

CUresult fill(const FillRequest& request) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  CopyRequest where;
  where.stream = request.stream;
  where.is_per_thread = request.is_per_thread;
  where.is_async = request.is_async;
  std::shared_ptr<Stream> stream;
  bool is_captured = false;
  KANSOKU_CU_TRY(find_copy_stream(context, where, stream, is_captured));
  if (request.width == 0 || request.height == 0) return CUDA_SUCCESS;
  constexpr std::size_t kExtentMax = std::size_t{1} << 46;
  if (request.width > kExtentMax / request.element_bytes || request.height > kExtentMax ||
      request.pitch > kExtentMax || request.to % request.element_bytes != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const std::size_t line = request.width * request.element_bytes;
  if (request.height > 1 && (request.pitch < line || request.pitch % request.element_bytes != 0 ||
                             request.height > kExtentMax / request.pitch))
    return CUDA_ERROR_INVALID_VALUE;
  const std::size_t bytes = (request.height - 1) * request.pitch + line;
  if (!runtime()->is_known(request.to, bytes)) return CUDA_ERROR_INVALID_VALUE;
  Fill operation;
  operation.shape = {request.to,    request.pitch, request.value, request.element_bytes,
                     request.width, request.height};
  Point point;
  Context& home = *stream->context();
  KANSOKU_CU_TRY(home.enqueue(stream, operation, CU_GRAPH_NODE_TYPE_MEMSET, {}, &point));
  if (request.is_async) return CUDA_SUCCESS;
  point.reach();
  return static_cast<CUresult>(home.error.load());
}

}  // namespace

CUresult make_copy(const CUDA_MEMCPY3D& shape, Copy& copy, bool& is_from_pageable,
                   bool& is_to_pageable) {
  if (shape.WidthInBytes == 0 || shape.Height == 0 || shape.Depth == 0)
    return CUDA_ERROR_INVALID_VALUE;
  copy.shape = shape;
  copy.width = shape.WidthInBytes;
  copy.height = shape.Height;
  copy.depth = shape.Depth;
  std::uint64_t from = 0, to = 0;
  KANSOKU_CU_TRY(
      place_end({shape.srcMemoryType, address_of(shape.srcHost), shape.srcDevice, shape.srcXInBytes,
                 shape.srcY, shape.srcZ, shape.srcPitch, shape.srcHeight},
                shape, from, copy.from_pitch, copy.from_slice, is_from_pageable));
  KANSOKU_CU_TRY(
      place_end({shape.dstMemoryType, address_of(shape.dstHost), shape.dstDevice, shape.dstXInBytes,
                 shape.dstY, shape.dstZ, shape.dstPitch, shape.dstHeight},
                shape, to, copy.to_pitch, copy.to_slice, is_to_pageable));
  copy.from = place_of(from);
  copy.to = const_cast<std::byte*>(place_of(to));
  copy.is_to_device = is_of_device(to) && !is_of_device(from);
  copy.is_to_host = !is_of_device(to) && is_of_device(from);
  return CUDA_SUCCESS;
}

KANSOKU_STREAM_ENTRY(cuMemcpy, _ptds, (CUdeviceptr to, CUdeviceptr from, std::size_t bytes),
                     return copy_line({to, from, bytes, Side::kEither, Side::kEither, nullptr,
                                       is_per_thread, false});)
KANSOKU_STREAM_ENTRY(cuMemcpyAsync, _ptsz,
                     (CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream),
                     return copy_line({to, from, bytes, Side::kEither, Side::kEither, stream,
                                       is_per_thread, true});)
KANSOKU_STREAM_ENTRY(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr to, const void* from, std::size_t bytes),
                     return copy_line({to, address_of(from), bytes, Side::kDevice, Side::kHost,
                                       nullptr, is_per_thread, false});)
KANSOKU_STREAM_ENTRY(cuMemcpyHtoDAsync_v2, _ptsz,
                     (CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream),
                     return copy_line({to, address_of(from), bytes, Side::kDevice, Side::kHost,
                                       stream, is_per_thread, true});)
KANSOKU_STREAM_ENTRY(cuMemcpyDtoH_v2, _ptds, (void* to, CUdeviceptr from, std::size_t bytes),
                     return copy_line({address_of(to), from, bytes, Side::kHost, Side::kDevice,
                                       nullptr, is_per_thread, false});)
KANSOKU_STREAM_ENTRY(cuMemcpyDtoHAsync_v2, _ptsz,
                     (void* to, CUdeviceptr from, std::size_t bytes, CUstream stream),
                     return copy_line({address_of(to), from, bytes, Side::kHost, Side::kDevice,
                                       stream, is_per_thread, true});)
KANSOKU_STREAM_ENTRY(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr to, CUdeviceptr from, std::size_t bytes),
                     return copy_line({to, from, bytes, Side::kDevice, Side::kDevice, nullptr,
                                       is_per_thread, false});)
KANSOKU_STREAM_ENTRY(cuMemcpyDtoDAsync_v2, _ptsz,
                     (CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream),
                     return copy_line({to, from, bytes, Side::kDevice, Side::kDevice, stream,
                                       is_per_thread, true});)
KANSOKU_STREAM_ENTRY(cuMemcpyPeer, _ptds,
                     (CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, std::size_t bytes),
                     KANSOKU_CU_TRY(check_contexts(to_context, from_context));
                     return copy_line({to, from, bytes, Side::kDevice, Side::kDevice, nullptr,
                                       is_per_thread, false});)
KANSOKU_STREAM_ENTRY(cuMemcpyPeerAsync, _ptsz,
                     (CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, std::size_t bytes, CUstream stream),
                     KANSOKU_CU_TRY(check_contexts(to_context, from_context));
                     return copy_line({to, from, bytes, Side::kDevice, Side::kDevice, stream,
                                       is_per_thread, true});)

KANSOKU_STREAM_ENTRY(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D* shape),
                     if (shape == nullptr) return CUDA_ERROR_INVALID_VALUE;
                     return copy_box(widened(*shape), nullptr, is_per_thread, false);)
KANSOKU_STREAM_ENTRY(cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D* shape),
                     if (shape == nullptr) return CUDA_ERROR_INVALID_VALUE;
                     return copy_box(widened(*shape), nullptr, is_per_thread, false);)
KANSOKU_STREAM_ENTRY(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D* shape, CUstream stream),
                     if (shape == nullptr) return CUDA_ERROR_INVALID_VALUE;
                     return copy_box(widened(*shape), stream, is_per_thread, true);)
KANSOKU_STREAM_ENTRY(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D* shape),
                     if (shape == nullptr) return CUDA_ERROR_INVALID_VALUE;
                     return copy_box(*shape, nullptr, is_per_thread, false);)
KANSOKU_STREAM_ENTRY(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D* shape, CUstream stream),
                     if (shape == nullptr) return CUDA_ERROR_INVALID_VALUE;
                     return copy_box(*shape, stream, is_per_thread, true);)

KANSOKU_STREAM_ENTRY(cuMemsetD8_v2, _ptds, (CUdeviceptr to, unsigned char value, std::size_t count),
                     return fill({to, 0, value, 1, count, 1, nullptr, is_per_thread, false});)
KANSOKU_STREAM_ENTRY(cuMemsetD16_v2, _ptds,
                     (CUdeviceptr to, unsigned short value, std::size_t count),
                     return fill({to, 0, value, 2, count, 1, nullptr, is_per_thread, false});)
KANSOKU_STREAM_ENTRY(cuMemsetD32_v2, _ptds, (CUdeviceptr to, unsigned value, std::size_t count),
                     return fill({to, 0, value, 4, count, 1, nullptr, is_per_thread, false});)
KANSOKU_STREAM_ENTRY(
    cuMemsetD2D8_v2, _ptds,
    (CUdeviceptr to, std::size_t pitch, unsigned char value, std::size_t width, std::size_t height),
    return fill({to, pitch, value, 1, width, height, nullptr, is_per_thread, false});)
KANSOKU_STREAM_ENTRY(cuMemsetD2D16_v2, _ptds,
                     (CUdeviceptr to, std::size_t pitch, unsigned short value, std::size_t width,
                      std::size_t height),
                     return fill({to, pitch, value, 2, width, height, nullptr, is_per_thread,
                                  false});)
KANSOKU_STREAM_ENTRY(
    cuMemsetD2D32_v2, _ptds,
    (CUdeviceptr to, std::size_t pitch, unsigned value, std::size_t width, std::size_t height),
    return fill({to, pitch, value, 4, width, height, nullptr, is_per_thread, false});)
KANSOKU_STREAM_ENTRY(cuMemsetD8Async, _ptsz,
                     (CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream),
                     return fill({to, 0, value, 1, count, 1, stream, is_per_thread, true});)
KANSOKU_STREAM_ENTRY(cuMemsetD16Async, _ptsz,
                     (CUdeviceptr to, unsigned short value, std::size_t count, CUstream stream),
                     return fill({to, 0, value, 2, count, 1, stream, is_per_thread, true});)
KANSOKU_STREAM_ENTRY(cuMemsetD32Async, _ptsz,
                     (CUdeviceptr to, unsigned value, std::size_t count, CUstream stream),
                     return fill({to, 0, value, 4, count, 1, stream, is_per_thread, true});)
KANSOKU_STREAM_ENTRY(cuMemsetD2D8Async, _ptsz,
                     (CUdeviceptr to, std::size_t pitch, unsigned char value, std::size_t width,
                      std::size_t height, CUstream stream),
                     return fill({to, pitch, value, 1, width, height, stream, is_per_thread,
                                  true});)
KANSOKU_STREAM_ENTRY(cuMemsetD2D16Async, _ptsz,
                     (CUdeviceptr to, std::size_t pitch, unsigned short value, std::size_t width,
                      std::size_t height, CUstream stream),
                     return fill({to, pitch, value, 2, width, height, stream, is_per_thread,
                                  true});)
KANSOKU_STREAM_ENTRY(cuMemsetD2D32Async, _ptsz,
                     (CUdeviceptr to, std::size_t pitch, unsigned value, std::size_t width,
                      std::size_t height, CUstream stream),
                     return fill({to, pitch, value, 4, width, height, stream, is_per_thread,
                                  true});)

}  // namespace kansoku::softcuda
