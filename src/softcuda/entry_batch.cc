// SPDX-License-Identifier: Apache-2.0
// Batches of copies.
#include <cstdint>
#include <span>
#include <vector>

#include "softcuda/internal/copies.h"
#include "softcuda/internal/runtime.h"

namespace kansoku::softcuda {
namespace {

/// A batch goes to a stream of its own choice; nobody can capture it.
CUresult check_batch_stream(CUstream handle, bool is_per_thread) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  const auto stream = context->find_stream(handle, is_per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->kind() == Stream::Kind::kLegacy) return CUDA_ERROR_INVALID_VALUE;
  const bool is_captured = stream->context()->invalidate_capture(*stream);
  return is_captured ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

bool is_order(CUmemcpySrcAccessOrder order) {
  return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

struct Batch {
  std::span<const CUdeviceptr> to, from;
  std::span<const std::size_t> bytes;
  std::span<const CUmemcpyAttributes> attributes;
  std::span<const std::size_t> begins;  // of the copies that each of `attributes` is for
  CUstream stream{nullptr};
  bool is_per_thread{false};
};

template <class Value>
std::span<const Value> given(const Value* values, std::size_t count) {
  return values == nullptr ? std::span<const Value>() : std::span(values, count);
}

CUresult check_attributes(const Batch& batch) {
  constexpr unsigned kFlagsMask = 1;  // prefers to overlap with kernels
  const bool is_whole = !batch.to.empty() && !batch.from.empty() && !batch.bytes.empty() &&
                        !batch.attributes.empty() && !batch.begins.empty();
  if (!is_whole || batch.begins.front() != 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < batch.attributes.size(); ++i) {
    if (i > 0 && batch.begins[i] <= batch.begins[i - 1]) return CUDA_ERROR_INVALID_VALUE;
    if (batch.begins[i] >= batch.to.size()) return CUDA_ERROR_INVALID_VALUE;
    if (!is_order(batch.attributes[i].srcAccessOrder) ||
        (batch.attributes[i].flags & ~kFlagsMask) != 0)
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

/// All copies are checked before the first begins. `failed`: which of them is wrong, if one is.
CUresult copy_batch(const Batch& batch, std::size_t* failed) {
  if (failed != nullptr) *failed = SIZE_MAX;
  KANSOKU_CU_TRY(check_batch_stream(batch.stream, batch.is_per_thread));
  KANSOKU_CU_TRY(check_attributes(batch));
  for (std::size_t i = 0; i < batch.to.size(); ++i) {
    if (batch.bytes[i] == 0) continue;
    const CUresult to = check_side(batch.to[i], batch.bytes[i], Side::kEither);
    const CUresult from = check_side(batch.from[i], batch.bytes[i], Side::kEither);
    if (to == CUDA_SUCCESS && from == CUDA_SUCCESS) continue;
    if (failed != nullptr) *failed = i;
    return to != CUDA_SUCCESS ? to : from;
  }
  std::size_t kind = 0;
  for (std::size_t i = 0; i < batch.to.size(); ++i) {
    if (kind + 1 < batch.begins.size() && batch.begins[kind + 1] == i) ++kind;
    const bool reads_now =
        batch.attributes[kind].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    KANSOKU_CU_TRY(copy_line({batch.to[i], batch.from[i], batch.bytes[i], Side::kEither,
                              Side::kEither, batch.stream, batch.is_per_thread, true, reads_now}));
  }
  return CUDA_SUCCESS;
}

void set_end(const CUmemcpy3DOperand& operand, CUmemorytype& type, CUdeviceptr& device,
             std::size_t& pitch, std::size_t& height) {
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    type = CU_MEMORYTYPE_ARRAY;
    return;
  }
  type = CU_MEMORYTYPE_UNIFIED;
  device = operand.op.ptr.ptr;
  pitch = operand.op.ptr.rowLength;
  height = operand.op.ptr.layerHeight;
}

/// Elements of memory that is no array have one byte.
CUresult shape_of(const CUDA_MEMCPY3D_BATCH_OP& one, CUDA_MEMCPY3D& shape) {
  const auto is_operand = [](const CUmemcpy3DOperand& operand) {
    return operand.type == CU_MEMCPY_OPERAND_TYPE_POINTER ||
           operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY;
  };
  if (!is_operand(one.src) || !is_operand(one.dst) || !is_order(one.srcAccessOrder) ||
      one.flags > 1)
    return CUDA_ERROR_INVALID_VALUE;
  set_end(one.src, shape.srcMemoryType, shape.srcDevice, shape.srcPitch, shape.srcHeight);
  set_end(one.dst, shape.dstMemoryType, shape.dstDevice, shape.dstPitch, shape.dstHeight);
  shape.WidthInBytes = one.extent.width;
  shape.Height = one.extent.height;
  shape.Depth = one.extent.depth;
  Copy copy;
  bool is_from_pageable = false, is_to_pageable = false;
  return make_copy(shape, copy, is_from_pageable, is_to_pageable);
}

struct BoxBatch {
  std::span<const CUDA_MEMCPY3D_BATCH_OP> copies;
  unsigned long long flags{0};
  CUstream stream{nullptr};
  bool is_per_thread{false};
};

CUresult copy_boxes(const BoxBatch& batch, std::size_t* failed) {
  if (failed != nullptr) *failed = SIZE_MAX;
  KANSOKU_CU_TRY(check_batch_stream(batch.stream, batch.is_per_thread));
  if (batch.copies.empty() || batch.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUDA_MEMCPY3D> shapes(batch.copies.size());
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const CUresult status = shape_of(batch.copies[i], shapes[i]);
    if (status == CUDA_SUCCESS) continue;
    if (failed != nullptr) *failed = i;
    return status;
  }
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    // Asynchronous ones read their source later: one that is read in the call is waited for.
    const bool reads_now =
        batch.copies[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    KANSOKU_CU_TRY(copy_box(shapes[i], batch.stream, batch.is_per_thread, !reads_now));
  }
  return CUDA_SUCCESS;
}

}  // namespace

KANSOKU_STREAM_ENTRY(cuMemcpyBatchAsync, _ptsz,
                     (CUdeviceptr * to, CUdeviceptr* from, std::size_t* bytes, std::size_t count,
                      CUmemcpyAttributes* attributes, std::size_t* begins,
                      std::size_t attribute_count, std::size_t* failed, CUstream stream),
                     return copy_batch({given(to, count), given(from, count), given(bytes, count),
                                        given(attributes, attribute_count),
                                        given(begins, attribute_count), stream, is_per_thread},
                                       failed);)
KANSOKU_STREAM_ENTRY(cuMemcpyBatchAsync_v2, _ptsz,
                     (CUdeviceptr * to, CUdeviceptr* from, std::size_t* bytes, std::size_t count,
                      CUmemcpyAttributes* attributes, std::size_t* begins,
                      std::size_t attribute_count, CUstream stream),
                     return copy_batch({given(to, count), given(from, count), given(bytes, count),
                                        given(attributes, attribute_count),
                                        given(begins, attribute_count), stream, is_per_thread},
                                       nullptr);)
KANSOKU_STREAM_ENTRY(cuMemcpy3DBatchAsync, _ptsz,
                     (std::size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, std::size_t* failed,
                      unsigned long long flags, CUstream stream),
                     return copy_boxes({given(copies, count), flags, stream, is_per_thread},
                                       failed);)
KANSOKU_STREAM_ENTRY(cuMemcpy3DBatchAsync_v2, _ptsz,
                     (std::size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, unsigned long long flags,
                      CUstream stream),
                     return copy_boxes({given(copies, count), flags, stream, is_per_thread},
                                       nullptr);)

}  // namespace kansoku::softcuda
