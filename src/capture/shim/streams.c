/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and contexts as the library numbers them, and the events of each context. A stream is
 * (context, handle), and for the thread's own default stream (context, thread). */
#include <errno.h>
#include <string.h>

#include "capture/shim/internal/shim.h"

#define BUCKETS (4 * WIRE_CUDA_STREAMS_MAX)
#define GONE 0xfffeU
static struct bucket {
  _Atomic uint64_t key;
  _Atomic uint32_t index; /* GONE: its stream was destroyed */
} buckets[BUCKETS];
static uint64_t keys[WIRE_CUDA_STREAMS_MAX];
static unsigned buckets_used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t kansoku_mark_lock = PTHREAD_MUTEX_INITIALIZER;
#define DEVICES_MAX 64
static _Atomic uintptr_t primaries[DEVICES_MAX]; /* the primary context of each device */

/* The library's thread may hang in the driver; then the program goes on all the same. */
int kansoku_lock_for_a_moment(pthread_mutex_t* mutex) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += 200000000;
  if (until.tv_nsec >= 1000000000) {
    until.tv_nsec -= 1000000000;
    ++until.tv_sec;
  }
  return pthread_mutex_timedlock(mutex, &until) == 0;
}

_Atomic uint32_t kansoku_streams_top;

/* Streams that wait for the legacy stream, and it for them, threads' own default streams that were
 * seen included. Those that go with their context stay counted. */
static _Atomic uint32_t blocking_streams;
static void one_blocking_less(void) {
  uint32_t now = atomic_load(&blocking_streams);
  while (now > 0 && !atomic_compare_exchange_weak(&blocking_streams, &now, now - 1)) {
  }
}

static void count_stream(int is_new) {
  if (kansoku.shared == NULL) return;
  _Atomic uint64_t* const live = (_Atomic uint64_t*)&kansoku.shared->state.streams_live;
  uint64_t now = atomic_load(live);
  while ((is_new || now > 0) &&
         !atomic_compare_exchange_weak(live, &now, is_new ? now + 1 : now - 1)) {
  }
}

void kansoku_stream_made(CUresult result, unsigned flags) {
  if (result == CUDA_SUCCESS) count_stream(1);
  if (result == CUDA_SUCCESS && (flags & CU_STREAM_NON_BLOCKING) == 0)
    atomic_fetch_add(&blocking_streams, 1);
}

/* An event on the legacy stream would then wait for operations of other streams that another thread
 * submits at that moment, and hold up those behind it. Without such streams it is one like others:
 * PyTorch works on it from two threads, and all streams of PyTorch and of NCCL are non-blocking. */
int kansoku_legacy_is_awaited(void) {
  return atomic_load_explicit(&blocking_streams, memory_order_relaxed) != 0;
}

static unsigned bucket_of(uint64_t key) {
  return (unsigned)((key * 0x9e3779b97f4a7c15ULL) >> 50); /* 14 bits */
}

static uint32_t find(uint64_t key) {
  for (unsigned i = 0; i < BUCKETS; ++i) {
    const struct bucket* const at = &buckets[(bucket_of(key) + i) % BUCKETS];
    const uint64_t found = atomic_load_explicit(&at->key, memory_order_acquire);
    if (found == key) {
      const uint32_t index = atomic_load_explicit(&at->index, memory_order_acquire);
      /* The bucket may have got another key in between. */
      return index < WIRE_CUDA_STREAMS_MAX && keys[index] != key ? GONE : index;
    }
    if (found == 0) break;
  }
  return GONE;
}

/* Under the lock: buckets of destroyed streams serve again; others move up. Who looks up meanwhile
 * may miss one, comes here and waits. */
static void tidy(void) {
  for (unsigned i = 0; i < BUCKETS; ++i)
    atomic_store(&buckets[i].key, 0);
  buckets_used = 0;
  for (uint32_t index = 0; index < WIRE_CUDA_STREAMS_MAX; ++index) {
    if (kansoku.shared->streams[index].state != 1) continue;
    unsigned at = bucket_of(keys[index]);
    while (atomic_load(&buckets[at % BUCKETS].key) != 0)
      ++at;
    atomic_store(&buckets[at % BUCKETS].index, index);
    atomic_store_explicit(&buckets[at % BUCKETS].key, keys[index], memory_order_release);
    ++buckets_used;
  }
}

static void insert(uint64_t key, uint32_t index) {
  if (buckets_used > BUCKETS / 2) tidy();
  for (unsigned i = 0; i < BUCKETS; ++i) {
    struct bucket* const at = &buckets[(bucket_of(key) + i) % BUCKETS];
    const uint64_t found = atomic_load(&at->key);
    if (found != 0 && found != key) continue;
    if (found == 0) ++buckets_used;
    atomic_store(&at->index, index);
    atomic_store_explicit(&at->key, key, memory_order_release);
    return;
  }
}

static int is_current(CUcontext handle) {
  CUcontext current = NULL;
  return kansoku_driver.ctx_get_current(&current) == CUDA_SUCCESS && current == handle;
}

/* The number of a context; a new one gets events at once. KANSOKU_NONE: too many. Under the lock.
 */
static uint32_t context_index(CUcontext handle) {
  uint32_t free_place = KANSOKU_NONE;
  for (uint32_t i = 0; i < WIRE_CUDA_CONTEXTS_MAX; ++i) {
    struct kansoku_context* const context = &kansoku.contexts[i];
    const int state = atomic_load(&context->state);
    if (state != 0 && state != KANSOKU_CONTEXT_GONE && context->handle == handle) return i;
    if (state == 0 && free_place == KANSOKU_NONE) free_place = i;
  }
  if (free_place == KANSOKU_NONE) {
    KANSOKU_LOSE(contexts_over_limit);
    return KANSOKU_NONE;
  }
  struct kansoku_context* const context = &kansoku.contexts[free_place];
  CUdevice device = -1; /* until the library's thread has asked, if another context is current */
  context->handle = handle;
  atomic_store(&context->base, KANSOKU_BASES);
  if (is_current(handle)) kansoku_driver.ctx_get_device(&device);
  kansoku.shared->contexts[free_place].handle = (uintptr_t)handle;
  kansoku.shared->contexts[free_place].device = device;
  kansoku.shared->contexts[free_place].major = 0;
  kansoku.shared->contexts[free_place].default_done_ns = 0;
  kansoku.shared->contexts[free_place].state = 1;
  atomic_store(&context->state, KANSOKU_CONTEXT_NEW);
  return free_place;
}

/* After a stream of it was added: the thread that found it makes its first events, so that not even
 * the operations until the library's thread comes by are lost. Not while a stream is captured: what
 * may be called then depends on the thread. */
static void prepare_context(struct kansoku_context* context) {
  int state = KANSOKU_CONTEXT_NEW;
  const uint32_t count =
      atomic_load(&kansoku.mode) == WIRE_CUDA_EVERY ? KANSOKU_PAIRS_FIRST : KANSOKU_PAIRS_SAMPLED;
  if (!is_current(context->handle)) return;
  if (atomic_compare_exchange_strong(&context->state, &state, KANSOKU_CONTEXT_BUSY)) {
    if (atomic_load(&kansoku.captures) == 0) kansoku_make_pairs(context, count);
    atomic_store(&context->state, KANSOKU_CONTEXT_USED);
    return;
  }
  /* The library's thread came first, and makes them under its lock. */
  if (state != KANSOKU_CONTEXT_USED || atomic_load(&context->pairs_made) != 0 ||
      atomic_load(&kansoku.captures) != 0 || !kansoku_lock_for_a_moment(&context->lock))
    return;
  if (atomic_load(&context->pairs_made) == 0) kansoku_make_pairs(context, count);
  pthread_mutex_unlock(&context->lock);
}

static uint64_t key_of(const struct kansoku_thread* thread, CUstream handle, int is_per_thread,
                       uint32_t* kind, CUcontext* context) {
  const uintptr_t value = (uintptr_t)handle;
  *context = NULL;
  *kind = 0;
  if (value > 2) return value;
  kansoku_driver.ctx_get_current(context);
  if (*context == NULL) return 0;
  if (value == 2 || (value == 0 && is_per_thread)) {
    *kind = WIRE_CUDA_PER_THREAD;
    return ((uintptr_t)*context << 16) ^ ((uint64_t)thread->tid << 1) ^ 1;
  }
  *kind = WIRE_CUDA_LEGACY;
  return ((uintptr_t)*context << 16) ^ (1ULL << 63);
}

static uint32_t add_stream(uint64_t key, CUstream handle, uint32_t kind, CUcontext context,
                           uint32_t tid) {
  struct wire_cuda* const shared = kansoku.shared;
  for (uint32_t index = 0; index < WIRE_CUDA_STREAMS_MAX; ++index) {
    struct wire_cuda_stream* const stream = &shared->streams[index];
    if (stream->state != 0) continue;
    const uint32_t place = context_index(context);
    if (place == KANSOKU_NONE) return GONE;
    const uint32_t generation = stream->generation + 1;
    memset(stream, 0, sizeof *stream);
    stream->handle = kind == WIRE_CUDA_PER_THREAD ? tid : (uintptr_t)handle;
    stream->generation = generation;
    stream->at_kernel = WIRE_CUDA_NO_KERNEL;
    stream->context = (uint16_t)place;
    stream->kind = (uint8_t)kind;
    atomic_store(&kansoku.streams[index].has_chains, 0);
    kansoku_chain_forget(index);
    atomic_store(&kansoku.streams[index].sequence, 0);
    if (kind == WIRE_CUDA_PER_THREAD) atomic_fetch_add(&blocking_streams, 1);
    keys[index] = key;
    stream->state = 1;
    if (index >= atomic_load(&kansoku_streams_top)) atomic_store(&kansoku_streams_top, index + 1);
    insert(key, index);
    return index;
  }
  KANSOKU_LOSE(streams_over_limit);
  return GONE;
}

uint32_t kansoku_stream_index(struct kansoku_thread* thread, CUstream handle, int is_per_thread) {
  uint32_t kind = 0;
  CUcontext context = NULL;
  const uint64_t key = key_of(thread, handle, is_per_thread, &kind, &context);
  if (key == 0) return KANSOKU_NONE;
  if (thread->last_handle == key && thread->last_stream < WIRE_CUDA_STREAMS_MAX &&
      kansoku.shared->streams[thread->last_stream].generation == thread->last_generation &&
      kansoku.shared->streams[thread->last_stream].state == 1)
    return thread->last_stream;
  uint32_t index = find(key);
  if (index == GONE) {
    if (context == NULL && kansoku_driver.stream_get_ctx(handle, &context) != CUDA_SUCCESS)
      return KANSOKU_NONE;
    pthread_mutex_lock(&lock);
    index = find(key);
    if (index == GONE) index = add_stream(key, handle, kind, context, thread->tid);
    pthread_mutex_unlock(&lock);
    if (index == GONE) return KANSOKU_NONE;
    prepare_context(&kansoku.contexts[kansoku.shared->streams[index].context]);
  }
  thread->last_handle = key;
  thread->last_stream = index;
  thread->last_generation = kansoku.shared->streams[index].generation;
  return index;
}

/* The first `count` operations of the stream are complete. Any thread. */
void kansoku_known_done(uint32_t stream, uint32_t count) {
  struct wire_cuda_stream* const shown = &kansoku.shared->streams[stream];
  _Atomic uint32_t* const known = (_Atomic uint32_t*)&shown->known_done;
  uint32_t before = atomic_load(known);
  while ((int32_t)(count - before) > 0 && !atomic_compare_exchange_weak(known, &before, count)) {
  }
  const uint64_t now = kansoku_now();
  atomic_store_explicit((_Atomic uint64_t*)&shown->done_ns, now, memory_order_relaxed);
  if ((shown->kind & WIRE_CUDA_LEGACY) != 0)
    atomic_store_explicit(
        (_Atomic uint64_t*)&kansoku.shared->contexts[shown->context].default_done_ns, now,
        memory_order_relaxed);
}

/* Before it is destroyed: its flags are still there. */
static void forget_blocking(CUstream handle) {
  unsigned flags = CU_STREAM_NON_BLOCKING;
  if ((uintptr_t)handle <= 2 || kansoku_driver.stream_get_flags == NULL ||
      kansoku_driver.stream_get_flags(handle, &flags) != CUDA_SUCCESS ||
      (flags & CU_STREAM_NON_BLOCKING) != 0)
    return;
  one_blocking_less();
}

void kansoku_stream_gone(CUstream handle) {
  forget_blocking(handle);
  if (kansoku.shared == NULL || (uintptr_t)handle <= 2) return;
  count_stream(0);
  kansoku_twins_stream_gone(handle);
  const int is_locked = kansoku_lock_for_a_moment(&kansoku_mark_lock);
  pthread_mutex_lock(&lock);
  const uint32_t index = find((uintptr_t)handle);
  if (index < WIRE_CUDA_STREAMS_MAX) {
    insert((uintptr_t)handle, GONE);
    kansoku.shared->streams[index].state = 2;
  }
  pthread_mutex_unlock(&lock);
  if (is_locked) pthread_mutex_unlock(&kansoku_mark_lock);
}

/* The default streams of a thread that ends. */
void kansoku_thread_streams_gone(uint32_t tid) {
  pthread_mutex_lock(&lock);
  const uint32_t top = atomic_load(&kansoku_streams_top);
  for (uint32_t index = 0; index < top; ++index) {
    struct wire_cuda_stream* const stream = &kansoku.shared->streams[index];
    if (stream->state != 1 || stream->kind != WIRE_CUDA_PER_THREAD || stream->handle != tid)
      continue;
    insert(keys[index], GONE);
    stream->state = 2;
    one_blocking_less();
  }
  pthread_mutex_unlock(&lock);
}

/* From here on the library's thread leaves the context alone. */
static void set_state(uint32_t place, int state) {
  struct kansoku_context* const context = &kansoku.contexts[place];
  const int is_locked = kansoku_lock_for_a_moment(&context->lock);
  atomic_store(&context->state, state);
  if (is_locked) pthread_mutex_unlock(&context->lock);
}

/* Returns when the library's thread is not in the driver for this context. */
void kansoku_wait_for_poller(uint32_t place) {
  struct kansoku_context* const context = &kansoku.contexts[place];
  if (kansoku_lock_for_a_moment(&context->lock)) pthread_mutex_unlock(&context->lock);
}

static void forget_context(uint32_t place) {
  set_state(place, KANSOKU_CONTEXT_GONE);
  kansoku_twins_of_context_gone(kansoku.contexts[place].handle);
  kansoku.shared->contexts[place].state = 2;
  pthread_mutex_lock(&lock);
  for (uint32_t index = 0; index < WIRE_CUDA_STREAMS_MAX; ++index) {
    struct wire_cuda_stream* const stream = &kansoku.shared->streams[index];
    if (stream->state != 1 || stream->context != place) continue;
    insert(keys[index], GONE);
    stream->state = 2;
  }
  pthread_mutex_unlock(&lock);
}

static int is_used(uint32_t place) {
  const int state = atomic_load(&kansoku.contexts[place].state);
  return state != 0 && state != KANSOKU_CONTEXT_GONE;
}

void kansoku_context_gone(CUcontext handle) {
  if (kansoku.shared == NULL || handle == NULL) return;
  for (uint32_t i = 0; i < WIRE_CUDA_CONTEXTS_MAX; ++i)
    if (is_used(i) && kansoku.contexts[i].handle == handle) forget_context(i);
}

/* The primary context may go with the call that follows, or stay because others hold it. */
void kansoku_primary_made(CUdevice device, CUcontext handle) {
  if (device < 0 || device >= DEVICES_MAX) return;
  const uintptr_t before = atomic_exchange(&primaries[device], (uintptr_t)handle);
  if (before == 0 && kansoku.shared != NULL)
    atomic_fetch_add((_Atomic uint64_t*)&kansoku.shared->state.devices_used, 1);
}

static int is_primary(uint32_t place, CUdevice device) {
  return is_used(place) && device >= 0 && device < DEVICES_MAX &&
         (uintptr_t)kansoku.contexts[place].handle == atomic_load(&primaries[device]);
}

void kansoku_primary_pause(CUdevice device) {
  if (kansoku.shared == NULL) return;
  for (uint32_t i = 0; i < WIRE_CUDA_CONTEXTS_MAX; ++i)
    if (is_primary(i, device)) set_state(i, KANSOKU_CONTEXT_BUSY);
}

/* After a reset, a context that somebody still holds is another one. */
void kansoku_primary_resume(CUdevice device, int is_reset) {
  unsigned flags = 0;
  int is_active = 0;
  if (kansoku.shared == NULL) return;
  if (is_reset || kansoku_driver.primary_state == NULL ||
      kansoku_driver.primary_state(device, &flags, &is_active) != CUDA_SUCCESS)
    is_active = 0;
  if (!is_active && device >= 0 && device < DEVICES_MAX)
    kansoku_unpin_context((CUcontext)atomic_load(&primaries[device]));
  for (uint32_t i = 0; i < WIRE_CUDA_CONTEXTS_MAX; ++i) {
    if (!is_primary(i, device)) continue;
    if (is_active)
      set_state(i, KANSOKU_CONTEXT_USED);
    else
      forget_context(i);
  }
}

uint32_t kansoku_take_pair(struct kansoku_context* context) {
  uint64_t top = atomic_load(&context->free_pairs);
  for (;;) {
    const uint32_t pair = (uint32_t)top;
    if (pair == 0) return KANSOKU_NONE; /* pairs count from 1 here */
    const uint64_t next = ((top >> 32) + 1) << 32 | context->next[pair - 1];
    if (atomic_compare_exchange_weak(&context->free_pairs, &top, next)) {
      atomic_fetch_sub_explicit(&context->pairs_free, 1, memory_order_relaxed);
      return pair - 1;
    }
  }
}

void kansoku_give_pair(struct kansoku_context* context, uint32_t pair) {
  uint64_t top = atomic_load(&context->free_pairs), now;
  do {
    context->next[pair] = (uint32_t)top;
    now = ((top >> 32) + 1) << 32 | (pair + 1);
  } while (!atomic_compare_exchange_weak(&context->free_pairs, &top, now));
  atomic_fetch_add_explicit(&context->pairs_free, 1, memory_order_relaxed);
}

/* With the context current; only who prepares it, and then the library's thread. */
uint32_t kansoku_make_pairs(struct kansoku_context* context, uint32_t count) {
  uint32_t made = 0;
  for (; made < count; ++made) {
    const uint32_t pair = atomic_load(&context->pairs_made);
    if (pair >= KANSOKU_PAIRS_MAX) break;
    if (kansoku_driver.event_create(&context->begin[pair], 0) != CUDA_SUCCESS ||
        kansoku_driver.event_create(&context->end[pair], 0) != CUDA_SUCCESS)
      break;
    atomic_store(&context->pairs_made, pair + 1);
    kansoku_give_pair(context, pair);
  }
  return made;
}
