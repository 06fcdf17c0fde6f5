// SPDX-License-Identifier: Apache-2.0
// Streams, events, callbacks, operations on values in memory.
#include <algorithm>

#include "softcuda/internal/runtime.h"

namespace kansoku::softcuda {
namespace {

constexpr int kGreatestPriority = -5;
constexpr unsigned kEventFlagsMask = 7;

CUresult make_stream(CUstream* handle, unsigned flags, int priority) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (handle == nullptr || (flags & ~kStreamNonBlocking) != 0) return CUDA_ERROR_INVALID_VALUE;
  auto stream =
      context->make_stream(flags != 0 ? Stream::Kind::kNonBlocking : Stream::Kind::kBlocking,
                           std::clamp(priority, kGreatestPriority, 0));
  *handle = runtime()->streams.add<CUstream>(std::move(stream));
  return CUDA_SUCCESS;
}

/// The stream behind a handle, in the current context.
CUresult find(CUstream handle, bool is_per_thread, std::shared_ptr<Context>& context,
              std::shared_ptr<Stream>& stream) {
  KANSOKU_CU_TRY(enter(context));
  stream = context->find_stream(handle, is_per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->context() != context) {
    context = stream->context();
    return static_cast<CUresult>(context->error.load());
  }
  return CUDA_SUCCESS;
}

bool is_capturing(const std::shared_ptr<Stream>& stream) {
  const std::scoped_lock lock(stream->context()->order_mutex);
  return stream->capture != nullptr;
}

constexpr unsigned kExternal = 1;  // in a capture: a node of the graph instead of a dependency

/// In a capture an event marks nodes that others may wait for; it is no node itself.
CUresult record_captured(const std::shared_ptr<Event>& event, CUevent handle,
                         const std::shared_ptr<Stream>& stream, unsigned flags, bool& is_captured) {
  const auto& context = stream->context();
  if ((flags & kExternal) != 0) {
    is_captured = is_capturing(stream);
    if (!is_captured) return CUDA_SUCCESS;
    return context->enqueue(stream, EventRecord{nullptr, event, handle},
                            CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  }
  const std::scoped_lock lock(context->order_mutex);
  is_captured = stream->capture != nullptr;
  if (!is_captured) return CUDA_SUCCESS;
  if (stream->capture->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const std::scoped_lock mine(event->mutex);
  event->capture = stream->capture;
  event->captured_nodes = stream->capture_after;
  event->record = nullptr;
  return CUDA_SUCCESS;
}

CUresult record(CUevent handle, CUstream stream_handle, unsigned flags, bool is_per_thread) {
  if ((flags & ~kExternal) != 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
  KANSOKU_CU_TRY(find(stream_handle, is_per_thread, context, stream));
  const auto event = runtime()->events.find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->context.owner_before(context) || context.owner_before(event->context))
    return CUDA_ERROR_INVALID_HANDLE;
  bool is_captured = false;
  KANSOKU_CU_TRY(record_captured(event, handle, stream, flags, is_captured));
  if (is_captured) return CUDA_SUCCESS;
  auto made = std::make_shared<Record>();
  Point point;
  KANSOKU_CU_TRY(context->enqueue(stream, EventRecord{made, event, handle},
                                  CU_GRAPH_NODE_TYPE_EVENT_RECORD, {}, &point));
  made->point = point;
  const std::scoped_lock lock(event->mutex);
  event->record = std::move(made);
  event->capture = nullptr;
  return CUDA_SUCCESS;
}

/// Waits for an event that was recorded in a capture: the stream joins it.
CUresult join(const std::shared_ptr<Stream>& stream, const Event& event) {
  if (event.capture->is_over) return CUDA_ERROR_CAPTURED_EVENT;
  if (event.capture->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->capture != nullptr && stream->capture != event.capture) {
    stream->capture->is_invalid = true;
    event.capture->is_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (stream->kind() == Stream::Kind::kLegacy) {
    event.capture->is_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (stream->capture == nullptr) {
    stream->capture = event.capture;
    stream->capture->streams.push_back(stream);
    stream->capture_after.clear();
  }
  for (GraphNode* const node : event.captured_nodes) {
    auto& after = stream->capture_after;
    if (std::find(after.begin(), after.end(), node) == after.end()) after.push_back(node);
  }
  return CUDA_SUCCESS;
}

CUresult wait(CUstream stream_handle, CUevent handle, unsigned flags, bool is_per_thread) {
  if ((flags & ~kExternal) != 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
  KANSOKU_CU_TRY(find(stream_handle, is_per_thread, context, stream));
  const auto event = runtime()->events.find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if ((flags & kExternal) != 0 && is_capturing(stream))
    return context->enqueue(stream, EventWait{nullptr, event, handle},
                            CU_GRAPH_NODE_TYPE_WAIT_EVENT);
  std::shared_ptr<Record> record;
  {
    const std::scoped_lock lock(context->order_mutex);
    const std::scoped_lock mine(event->mutex);
    record = event->record;
    if (event->capture != nullptr) return join(stream, *event);
    if (stream->capture != nullptr) {
      // The graph would depend on work outside of it.
      stream->capture->is_invalid = true;
      return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
  }
  if (record == nullptr) return CUDA_SUCCESS;  // never recorded: nothing to wait for
  return context->enqueue(stream, Nothing{}, CU_GRAPH_NODE_TYPE_EMPTY, {record->point});
}

CUresult elapsed(float* ms, CUevent begin, CUevent end) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  const auto first = runtime()->events.find(begin), second = runtime()->events.find(end);
  if (first == nullptr || second == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (ms == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (((first->flags | second->flags) & kEventDisableTiming) != 0) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Record> a, b;
  {
    const std::scoped_lock lock(first->mutex);
    if (first->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
    a = first->record;
  }
  {
    const std::scoped_lock lock(second->mutex);
    if (second->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
    b = second->record;
  }
  if (a == nullptr || b == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!a->point.has_passed() || !b->point.has_passed()) return CUDA_ERROR_NOT_READY;
  for (const Record* const record : {a.get(), b.get()}) {
    if (record->point.moment != nullptr)
      static_cast<void>(runtime()->timeline->end_of(record->point.moment));
  }
  const auto ns = static_cast<std::int64_t>(b->time_ns.load() - a->time_ns.load());
  *ms = static_cast<float>(static_cast<double>(ns) * 1e-6);
  return CUDA_SUCCESS;
}

CUresult value_operation(CUstream handle, bool is_per_thread, const ValueOperation& operation) {
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
  KANSOKU_CU_TRY(find(handle, is_per_thread, context, stream));
  const std::size_t bytes = operation.is_wide ? 8 : 4;
  // A wait compares (0 to 3), and may flush; a write may do without a barrier.
  constexpr unsigned kFlush = 1U << 30;
  const bool are_flags =
      operation.is_wait ? (operation.flags & ~(3U | kFlush)) == 0 : operation.flags <= 1;
  if (!are_flags) return CUDA_ERROR_INVALID_VALUE;
  if (operation.address % bytes != 0 || !runtime()->is_known(operation.address, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  if (is_capturing(stream)) return CUDA_ERROR_NOT_SUPPORTED;
  return context->enqueue(stream, operation, CU_GRAPH_NODE_TYPE_EMPTY);
}

}  // namespace

KANSOKU_ENTRY cuStreamCreate(CUstream* stream, unsigned flags) {
  return make_stream(stream, flags, 0);
}
KANSOKU_ENTRY cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return make_stream(stream, flags, priority);
}

KANSOKU_ENTRY cuStreamDestroy_v2(CUstream handle) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const auto stream = runtime()->streams.remove(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  {
    const std::scoped_lock lock(stream->context()->order_mutex);
    if (const auto capture = stream->capture; capture != nullptr) {
      capture->is_invalid = true;
      // Nobody could end it any more.
      if (capture->origin == stream.get()) capture->abandon();
    }
  }
  stream->close();  // its work goes on to the end
  return CUDA_SUCCESS;
}

KANSOKU_STREAM_ENTRY(
    cuStreamSynchronize, _ptsz, (CUstream handle), std::shared_ptr<Context> context;
    std::shared_ptr<Stream> stream; KANSOKU_CU_TRY(find(handle, is_per_thread, context, stream));
    if (stream->context()->invalidate_capture(
            *stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    Point point; if (stream->kind() == Stream::Kind::kLegacy) {
      // Behind what the other streams have been given, too.
      KANSOKU_CU_TRY(context->enqueue(stream, Nothing{}, CU_GRAPH_NODE_TYPE_EMPTY, {}, &point));
    } else { point = stream->last(); } point.reach();
    return static_cast<CUresult>(context->error.load());)

KANSOKU_STREAM_ENTRY(cuStreamQuery, _ptsz, (CUstream handle), std::shared_ptr<Context> context;
                     std::shared_ptr<Stream> stream;
                     KANSOKU_CU_TRY(find(handle, is_per_thread, context, stream));
                     if (stream->context()->invalidate_capture(
                             *stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
                     KANSOKU_CU_TRY(check_capture_modes()); const Point last = stream->last();
                     if (!last.has_passed()) return CUDA_ERROR_NOT_READY; last.reach();
                     return static_cast<CUresult>(context->error.load());)

KANSOKU_STREAM_ENTRY(cuStreamGetFlags, _ptsz, (CUstream handle, unsigned* flags),
                     std::shared_ptr<Context> context;
                     std::shared_ptr<Stream> stream;
                     KANSOKU_CU_TRY(find(handle, is_per_thread, context, stream));
                     if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
                     *flags = stream->kind() == Stream::Kind::kNonBlocking ? kStreamNonBlocking : 0;
                     return CUDA_SUCCESS;)
KANSOKU_STREAM_ENTRY(cuStreamGetPriority, _ptsz, (CUstream handle, int* priority),
                     std::shared_ptr<Context> context;
                     std::shared_ptr<Stream> stream;
                     KANSOKU_CU_TRY(find(handle, is_per_thread, context, stream));
                     if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
                     *priority = stream->priority(); return CUDA_SUCCESS;)
KANSOKU_STREAM_ENTRY(cuStreamGetId, _ptsz, (CUstream handle, unsigned long long* id),
                     std::shared_ptr<Context> context;
                     std::shared_ptr<Stream> stream;
                     KANSOKU_CU_TRY(find(handle, is_per_thread, context, stream));
                     if (id == nullptr) return CUDA_ERROR_INVALID_VALUE; *id = stream->id();
                     return CUDA_SUCCESS;)
KANSOKU_STREAM_ENTRY(cuStreamGetCtx, _ptsz, (CUstream handle, CUcontext* out),
                     std::shared_ptr<Context> context;
                     std::shared_ptr<Stream> stream;
                     KANSOKU_CU_TRY(find(handle, is_per_thread, context, stream));
                     if (out == nullptr) return CUDA_ERROR_INVALID_VALUE; *out = handle_of(context);
                     return CUDA_SUCCESS;)
KANSOKU_STREAM_ENTRY(cuStreamGetDevice, _ptsz, (CUstream handle, CUdevice* device),
                     std::shared_ptr<Context> context;
                     std::shared_ptr<Stream> stream;
                     KANSOKU_CU_TRY(find(handle, is_per_thread, context, stream));
                     if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
                     *device = context->device->ordinal; return CUDA_SUCCESS;)

KANSOKU_STREAM_ENTRY(cuStreamWaitEvent, _ptsz, (CUstream stream, CUevent event, unsigned flags),
                     return wait(stream, event, flags, is_per_thread);)

KANSOKU_ENTRY cuEventCreate(CUevent* handle, unsigned flags) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (handle == nullptr || (flags & ~kEventFlagsMask) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & 4) != 0) return CUDA_ERROR_NOT_SUPPORTED;  // between processes
  auto event = std::make_shared<Event>();
  event->context = context;
  event->flags = flags;
  *handle = runtime()->events.add<CUevent>(std::move(event));
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuEventDestroy_v2(CUevent handle) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return runtime()->events.remove(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
KANSOKU_STREAM_ENTRY(cuEventRecord, _ptsz, (CUevent event, CUstream stream),
                     return record(event, stream, 0, is_per_thread);)
KANSOKU_STREAM_ENTRY(cuEventRecordWithFlags, _ptsz,
                     (CUevent event, CUstream stream, unsigned flags),
                     return record(event, stream, flags, is_per_thread);)
KANSOKU_ENTRY cuEventQuery(CUevent handle) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  const auto event = runtime()->events.find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  KANSOKU_CU_TRY(check_capture_modes());
  std::shared_ptr<Record> last;
  {
    const std::scoped_lock lock(event->mutex);
    if (event->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
    last = event->record;
  }
  if (last == nullptr) return CUDA_SUCCESS;
  if (!last->point.has_passed()) return CUDA_ERROR_NOT_READY;
  last->point.reach();
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuEventSynchronize(CUevent handle) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  const auto event = runtime()->events.find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Record> last;
  {
    const std::scoped_lock lock(event->mutex);
    if (event->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
    last = event->record;
  }
  if (last != nullptr) last->point.reach();
  return static_cast<CUresult>(context->error.load());
}
KANSOKU_ENTRY cuEventElapsedTime(float* ms, CUevent begin, CUevent end) {
  return elapsed(ms, begin, end);
}
KANSOKU_ENTRY cuEventElapsedTime_v2(float* ms, CUevent begin, CUevent end) {
  return elapsed(ms, begin, end);
}

KANSOKU_STREAM_ENTRY(cuLaunchHostFunc, _ptsz, (CUstream handle, CUhostFn function, void* user_data),
                     std::shared_ptr<Context> context;
                     std::shared_ptr<Stream> stream;
                     KANSOKU_CU_TRY(find(handle, is_per_thread, context, stream));
                     if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
                     return context->enqueue(stream, HostCall{function, user_data},
                                             CU_GRAPH_NODE_TYPE_HOST);)
KANSOKU_STREAM_ENTRY(cuStreamAddCallback, _ptsz,
                     (CUstream handle, CUstreamCallback function, void* user_data, unsigned flags),
                     std::shared_ptr<Context> context;
                     std::shared_ptr<Stream> stream;
                     KANSOKU_CU_TRY(find(handle, is_per_thread, context, stream));
                     if (function == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
                     if (is_capturing(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
                     return context->enqueue(stream, StreamCallback{function, handle, user_data},
                                             CU_GRAPH_NODE_TYPE_HOST);)

KANSOKU_STREAM_ENTRY(cuStreamAttachMemAsync, _ptsz,
                     (CUstream handle, CUdeviceptr pointer, std::size_t, unsigned flags),
                     std::shared_ptr<Context> context;
                     std::shared_ptr<Stream> stream;
                     KANSOKU_CU_TRY(find(handle, is_per_thread, context, stream));
                     const bool is_flag = flags == 1 || flags == 2 || flags == 4;
                     Allocation allocation;
                     const bool is_managed = runtime()->find_allocation(pointer, allocation) &&
                                             allocation.is_managed;
                     return is_flag && is_managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;)

KANSOKU_STREAM_ENTRY(cuStreamWaitValue32_v2, _ptsz,
                     (CUstream stream, CUdeviceptr address, std::uint32_t value, unsigned flags),
                     return value_operation(stream, is_per_thread,
                                            {true, false, address, value, flags});)
KANSOKU_STREAM_ENTRY(cuStreamWaitValue64_v2, _ptsz,
                     (CUstream stream, CUdeviceptr address, std::uint64_t value, unsigned flags),
                     return value_operation(stream, is_per_thread,
                                            {true, true, address, value, flags});)
KANSOKU_STREAM_ENTRY(cuStreamWriteValue32_v2, _ptsz,
                     (CUstream stream, CUdeviceptr address, std::uint32_t value, unsigned flags),
                     return value_operation(stream, is_per_thread,
                                            {false, false, address, value, flags});)
KANSOKU_STREAM_ENTRY(cuStreamWriteValue64_v2, _ptsz,
                     (CUstream stream, CUdeviceptr address, std::uint64_t value, unsigned flags),
                     return value_operation(stream, is_per_thread,
                                            {false, true, address, value, flags});)

}  // namespace kansoku::softcuda
