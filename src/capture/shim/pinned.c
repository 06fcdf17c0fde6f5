/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that the driver has pinned, by the calls that pinned it since cuInit; and what a copy
 * says of the memory at its host's end. Changes take a lock (they are rare, and dear in the
 * driver), looking up does not. Nothing is claimed that is not certain: beyond the table's limit,
 * and once a pool of host memory exists, memory that is not found may be pinned all the same. */
#include <string.h>

#include "capture/shim/internal/shim.h"

#define PINS_MAX 16384U
#define TRIES 4 /* of a reader, while others change the table */
static struct pin {
  _Atomic uint64_t begin, end;
  uint64_t context; /* it goes with it */
} pins[PINS_MAX];   /* by address, none overlaps another */
static _Atomic uint32_t pin_count;
static _Atomic uint32_t sequence; /* odd: is being changed */
static _Atomic int is_incomplete; /* something is pinned that stands not in the table */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Memory that this thread's call is about to free: kept until the driver has done it. */
static _Thread_local struct { uint64_t begin, end, context; } leaving;

static uint64_t begin_of(uint32_t index) {
  return atomic_load_explicit(&pins[index].begin, memory_order_relaxed);
}

static uint64_t end_of(uint32_t index) {
  return atomic_load_explicit(&pins[index].end, memory_order_relaxed);
}

/* The first that begins behind `address`. Which way it goes nobody can foretell: without branches.
 */
static uint32_t behind(uint64_t address, uint32_t count) {
  uint32_t at = 0;
  while (count > 0) {
    const uint32_t half = count / 2;
    const uint32_t is_before = 0U - (uint32_t)(begin_of(at + half) <= address);
    at += (half + 1) & is_before;
    count = half - ((1 - count % 2) & is_before);
  }
  return at;
}

/* WIRE_CUDA_PINNED: all of it is; WIRE_CUDA_PAGEABLE: nothing of it is; 0: neither is certain. */
static uint64_t look_up(uint64_t begin, uint64_t end) {
  uint32_t count = atomic_load_explicit(&pin_count, memory_order_relaxed);
  if (count > PINS_MAX) count = PINS_MAX;
  const uint32_t next = behind(begin, count);
  if (next > 0 && end_of(next - 1) > begin) {
    uint64_t covered = end_of(next - 1);
    for (uint32_t i = next; i < count && covered < end && begin_of(i) <= covered; ++i)
      covered = end_of(i);
    return covered >= end ? WIRE_CUDA_PINNED : 0;
  }
  if (next < count && begin_of(next) < end) return 0;
  return atomic_load_explicit(&is_incomplete, memory_order_relaxed) ? 0 : WIRE_CUDA_PAGEABLE;
}

static uint64_t pinned(uint64_t begin, uint64_t bytes) {
  if (begin == 0 || bytes == 0 || begin + bytes < begin) return 0;
  for (int i = 0; i < TRIES; ++i) {
    const uint32_t before = atomic_load_explicit(&sequence, memory_order_acquire);
    if ((before & 1) != 0) continue;
    const uint64_t found = look_up(begin, begin + bytes);
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&sequence, memory_order_relaxed) == before) return found;
  }
  return 0;
}

static void change_begins(void) {
  pthread_mutex_lock(&lock);
  atomic_store_explicit(&sequence, atomic_load(&sequence) + 1, memory_order_relaxed);
  atomic_thread_fence(memory_order_release);
}

static void change_ends(void) {
  atomic_store_explicit(&sequence, atomic_load(&sequence) + 1, memory_order_release);
  pthread_mutex_unlock(&lock);
}

static void set(uint32_t index, uint64_t begin, uint64_t end, uint64_t context) {
  atomic_store_explicit(&pins[index].begin, begin, memory_order_relaxed);
  atomic_store_explicit(&pins[index].end, end, memory_order_relaxed);
  pins[index].context = context;
}

/* Between change_begins and change_ends, as all that follow. */
static void move_to(uint32_t index, uint32_t from) {
  set(index, begin_of(from), end_of(from), pins[from].context);
}

static void take_out(uint32_t index) {
  const uint32_t count = atomic_load(&pin_count);
  for (uint32_t i = index; i + 1 < count; ++i)
    move_to(i, i + 1);
  atomic_store(&pin_count, count - 1);
}

static void put(uint64_t begin, uint64_t end, uint64_t context) {
  /* Whatever overlaps was given back without being seen. */
  uint32_t at = behind(begin, atomic_load(&pin_count));
  if (at > 0 && end_of(at - 1) > begin) take_out(--at);
  while (at < atomic_load(&pin_count) && begin_of(at) < end)
    take_out(at);
  const uint32_t count = atomic_load(&pin_count);
  if (count == PINS_MAX) {
    atomic_store(&is_incomplete, 1);
    KANSOKU_LOSE(pins_over_limit);
    return;
  }
  for (uint32_t i = count; i > at; --i)
    move_to(i, i - 1);
  set(at, begin, end, context);
  atomic_store(&pin_count, count + 1);
}

void kansoku_pin(CUresult result, const void* begin, uint64_t bytes) {
  CUcontext context = NULL;
  const uint64_t address = (uintptr_t)begin;
  if (result != CUDA_SUCCESS || kansoku.shared == NULL || address == 0 || bytes == 0 ||
      address + bytes < address)
    return;
  if (kansoku_driver.ctx_get_current != NULL) kansoku_driver.ctx_get_current(&context);
  change_begins();
  put(address, address + bytes, (uintptr_t)context);
  change_ends();
}

void kansoku_pin_at(CUresult result, const void* where, uint64_t bytes) {
  void* begin = NULL;
  if (result != CUDA_SUCCESS || where == NULL) return;
  memcpy(&begin, where, sizeof begin);
  kansoku_pin(result, begin, bytes);
}

/* Before the call: once it returns, another thread may get the address. */
void kansoku_unpin(uint64_t begin) {
  leaving.end = 0;
  if (kansoku.shared == NULL || begin == 0) return;
  /* Most frees are of device memory, which is not here. */
  const uint64_t first = pinned(begin, 1);
  if (first == WIRE_CUDA_PAGEABLE) return;
  change_begins();
  const uint32_t next = behind(begin, atomic_load(&pin_count));
  if (next > 0 && begin_of(next - 1) == begin) {
    leaving.begin = begin;
    leaving.end = end_of(next - 1);
    leaving.context = pins[next - 1].context;
    take_out(next - 1);
  }
  change_ends();
}

void kansoku_unpinned(CUresult result) {
  if (result == CUDA_SUCCESS || leaving.end == 0 || kansoku.shared == NULL) return;
  change_begins();
  put(leaving.begin, leaving.end, leaving.context);
  change_ends();
}

void kansoku_unpin_context(CUcontext context) {
  if (kansoku.shared == NULL || context == NULL) return;
  change_begins();
  uint32_t kept = 0;
  const uint32_t count = atomic_load(&pin_count);
  for (uint32_t i = 0; i < count; ++i) {
    if (pins[i].context == (uintptr_t)context) continue;
    if (kept != i) move_to(kept, i);
    ++kept;
  }
  atomic_store(&pin_count, kept);
  change_ends();
}

/* Its memory has the addresses of what is allocated from it, which nobody follows. */
void kansoku_host_pool(CUresult result, const CUmemLocation* location) {
  if (result == CUDA_SUCCESS && location != NULL && location->type >= CU_MEM_LOCATION_TYPE_HOST)
    atomic_store(&is_incomplete, 1);
}

void kansoku_host(struct kansoku_call* call, const void* begin, uint64_t bytes) {
  call->record.u.memory.detail |= pinned((uintptr_t)begin, bytes);
}

/* One end of a box: from its first byte to its last one. */
static uint64_t box(const void* host, uint64_t first, uint64_t pitch, uint64_t lines,
                    const CUDA_MEMCPY3D* shape) {
  const uint64_t width = shape->WidthInBytes, height = shape->Height, depth = shape->Depth;
  if (width == 0 || height == 0 || depth == 0) return 0;
  const uint64_t last = ((depth - 1) * lines + height - 1) * pitch + width;
  return pinned((uintptr_t)host + first, last);
}

void kansoku_host_3d(struct kansoku_call* call, const CUDA_MEMCPY3D* s) {
  if (s == NULL) return;
  const uint64_t from_pitch = s->srcPitch != 0 ? s->srcPitch : s->srcXInBytes + s->WidthInBytes;
  const uint64_t to_pitch = s->dstPitch != 0 ? s->dstPitch : s->dstXInBytes + s->WidthInBytes;
  const uint64_t from_lines = s->srcHeight != 0 ? s->srcHeight : s->srcY + s->Height;
  const uint64_t to_lines = s->dstHeight != 0 ? s->dstHeight : s->dstY + s->Height;
  uint64_t from = WIRE_CUDA_PINNED, to = WIRE_CUDA_PINNED;
  if (s->srcMemoryType != CU_MEMORYTYPE_HOST && s->dstMemoryType != CU_MEMORYTYPE_HOST) return;
  if (s->srcMemoryType == CU_MEMORYTYPE_UNIFIED || s->dstMemoryType == CU_MEMORYTYPE_UNIFIED)
    return;
  if (s->srcMemoryType == CU_MEMORYTYPE_HOST)
    from = box(s->srcHost, (s->srcZ * from_lines + s->srcY) * from_pitch + s->srcXInBytes,
               from_pitch, from_lines, s);
  if (s->dstMemoryType == CU_MEMORYTYPE_HOST)
    to = box(s->dstHost, (s->dstZ * to_lines + s->dstY) * to_pitch + s->dstXInBytes, to_pitch,
             to_lines, s);
  /* With the host at both ends one that is pageable is enough. */
  call->record.u.memory.detail |= from == WIRE_CUDA_PINNED ? to : from;
}

void kansoku_host_2d(struct kansoku_call* call, const CUDA_MEMCPY2D* flat) {
  CUDA_MEMCPY3D shape;
  if (flat == NULL) return;
  memset(&shape, 0, sizeof shape);
  shape.srcXInBytes = flat->srcXInBytes;
  shape.srcY = flat->srcY;
  shape.srcMemoryType = flat->srcMemoryType;
  shape.srcHost = flat->srcHost;
  shape.srcPitch = flat->srcPitch;
  shape.dstXInBytes = flat->dstXInBytes;
  shape.dstY = flat->dstY;
  shape.dstMemoryType = flat->dstMemoryType;
  shape.dstHost = flat->dstHost;
  shape.dstPitch = flat->dstPitch;
  shape.WidthInBytes = flat->WidthInBytes;
  shape.Height = flat->Height;
  shape.Depth = 1;
  kansoku_host_3d(call, &shape);
}

/* Copies of a batch: one call, one pair of events, as many operations as have bytes. */
static void batch(struct kansoku_call* call, uint64_t copies, uint64_t bytes) {
  kansoku_bytes(call, bytes, WIRE_CUDA_UNKNOWN_COPY | copies << WIRE_CUDA_BATCH_SHIFT);
  call->more = (int64_t)copies - 1;
}

void kansoku_batch(struct kansoku_call* call, const size_t* sizes, size_t count) {
  uint64_t copies = 0, bytes = 0;
  for (size_t i = 0; sizes != NULL && i < count; ++i) {
    copies += sizes[i] != 0;
    bytes += sizes[i];
  }
  batch(call, copies, bytes);
}

void kansoku_batch_3d(struct kansoku_call* call, const CUDA_MEMCPY3D_BATCH_OP* boxes,
                      size_t count) {
  uint64_t copies = 0, bytes = 0;
  for (size_t i = 0; boxes != NULL && i < count; ++i) {
    const uint64_t size =
        (uint64_t)boxes[i].extent.width * boxes[i].extent.height * boxes[i].extent.depth;
    copies += size != 0;
    bytes += size;
  }
  batch(call, copies, bytes);
}

/* The interface's structure for two contexts has its extent where that of one has it. */
void kansoku_peer_3d(struct kansoku_call* call, const void* shape) {
  const CUDA_MEMCPY3D* const box_of_peers = shape;
  kansoku_copy_3d(call, box_of_peers);
  if (call->record.u.memory.detail == WIRE_CUDA_DTOD) call->record.u.memory.detail = WIRE_CUDA_PEER;
}
