/* SPDX-License-Identifier: Apache-2.0 */
/* The library's one thread: asleep while dormant, else it reads the events of timed operations and
 * the event clock, and keeps the cost within its budget. */
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <x86intrin.h>

#include "capture/shim/internal/shim.h"

#define INTERVAL_MIN_US 5000U
#define INTERVAL_SAMPLED_US 20000U /* a fifth of the thread's time, and room for its few events */
#define INTERVAL_MAX_US 80000U
/* While every operation is timed: what may come meanwhile has to find events. */
#define INTERVAL_EVERY_MAX_US 10000U
#define FEW_OPERATIONS 256U /* at once: fewer may wait for the longer interval */
/* Elapsed times are floats of milliseconds: after 4 s their step is half a microsecond. */
#define BASE_EVERY_NS 2000000000ULL
#define READING_EVERY_NS 250000000ULL
#define READINGS_FIRST 8U
#define READING_FIRST_EVERY_NS 10000000ULL
/* How long a reading of the clock is waited for before others have their turn. */
#define READING_SPIN_NS 30000ULL
#define ADAPT_EVERY_NS 500000000ULL
/* Set on: launches of the software device and of an H200's driver by their prices on record. */
#define EVERY_N_FIRST 128U
#define EVERY_N_MIN 16U
#define EVERY_N_MAX 65536U
#define BUDGET_NS_A_LAUNCH 100U /* of 200; the rest is counting, and the library's thread */
#define BUDGET_SHARE_OF_CORE 0.004
/* Operations that wait for other processes are timed as often as half of that allows: their
 * progress tells the missing process of a job. */
#define MEETINGS_SHARE_OF_CORE 0.002
#define MEETING_FIRST_NS 2000000ULL
#define PENDING_MAX 65536U
#define LONG_RUNNING_NS 500000000ULL

struct pending {
  struct kansoku_op op;
  uint32_t next; /* in its stream, or in the free list; KANSOKU_NONE: last */
};
static struct pending* pending;
static uint32_t free_pending = KANSOKU_NONE, pending_made, pending_count;
static uint32_t first[WIRE_CUDA_STREAMS_MAX], last[WIRE_CUDA_STREAMS_MAX];
static uint64_t adapted_ns, adapted_operations;
static uint32_t interval_us = INTERVAL_MIN_US;

static _Atomic int is_over;    /* the program ends: no call of the driver any more */
static _Atomic int is_hurried; /* it is about to: every 1 ms from now on */

static struct wire_cuda_state* state(void) {
  return &kansoku.shared->state;
}

static void set_phase(uint32_t phase) {
  atomic_store((_Atomic uint32_t*)&state()->poller_phase, phase);
  atomic_store((_Atomic uint64_t*)&state()->poller_ns, kansoku_now());
}

static uint32_t take_pending(void) {
  if (free_pending != KANSOKU_NONE) {
    const uint32_t at = free_pending;
    free_pending = pending[at].next;
    return at;
  }
  return pending_made < PENDING_MAX ? pending_made++ : KANSOKU_NONE;
}

static void drop_first(uint32_t stream) {
  const uint32_t at = first[stream];
  if (pending[at].op.twin != NULL) kansoku_twin_release(pending[at].op.twin);
  first[stream] = pending[at].next;
  if (first[stream] == KANSOKU_NONE) last[stream] = KANSOKU_NONE;
  pending[at].next = free_pending;
  free_pending = at;
  --pending_count;
}

/* The kernel that a graph is at: the first one, in the order of its nodes, that has begun and has
 * not ended. */
static uint32_t kernel_at(const struct kansoku_twin* twin) {
  for (uint32_t i = 0; i < twin->node_count; ++i) {
    const struct kansoku_twin_node* const node = &twin->nodes[i];
    if (kansoku_driver.event_query(twin->events[node->begin]) == CUDA_SUCCESS &&
        kansoku_driver.event_query(twin->events[node->end]) == CUDA_ERROR_NOT_READY)
      return kansoku_hooks[node->record.entry].what == WIRE_CUDA_LAUNCH
                 ? node->record.u.launch.kernel
                 : WIRE_CUDA_NO_KERNEL;
  }
  return WIRE_CUDA_NO_KERNEL;
}

/* State of a stream for the recorder: the oldest operation that is not complete. One that waits for
 * long is asked whether it has begun: then nothing before it, on this or another stream, is to
 * blame. */
static void show_stream(uint32_t stream) {
  struct wire_cuda_stream* const shown = &kansoku.shared->streams[stream];
  if (first[stream] == KANSOKU_NONE) {
    atomic_store((_Atomic uint64_t*)&shown->waiting_since_ns, 0);
    return;
  }
  const struct kansoku_op* const op = &pending[first[stream]].op;
  const struct wire_cuda_record* const record = &op->record;
  if (shown->oldest != op->number || shown->is_mark != (op->is_mark || op->launches > 1) ||
      shown->waiting_since_ns == 0) {
    shown->correlation = record->correlation;
    shown->tid = record->tid;
    shown->is_begun = 0;
    shown->at_kernel = WIRE_CUDA_NO_KERNEL;
    shown->what = (uint8_t)kansoku_hooks[record->entry].what;
    const int is_set = op->is_mark || op->launches > 1; /* any of them may be the one */
    const int is_kernel = shown->what == WIRE_CUDA_LAUNCH && !is_set;
    shown->oldest = op->number;
    shown->is_mark = (uint16_t)is_set;
    shown->kernel = is_kernel ? record->u.launch.kernel : WIRE_CUDA_NO_KERNEL;
    shown->detail = is_kernel ? 0 : record->u.memory.detail;
    atomic_store((_Atomic uint64_t*)&shown->waiting_since_ns, record->host_begin_ns);
  }
  if (!shown->is_begun && !op->is_mark && kansoku_now() - record->host_begin_ns > LONG_RUNNING_NS) {
    const int is_begun =
        kansoku_driver.event_query(kansoku.contexts[op->context].begin[op->pair]) == CUDA_SUCCESS;
    if (op->launches == 1) shown->is_begun = (uint8_t)is_begun;
    /* The running launch of a chain is not known: its launches are the set. */
    const uint32_t first_of_chain = op->number + 1 - op->launches;
    if (op->launches > 1 && is_begun && (int32_t)(first_of_chain - shown->known_done) > 0)
      kansoku_known_done(stream, first_of_chain);
  }
  if (shown->is_begun && op->twin != NULL) shown->at_kernel = (uint16_t)kernel_at(op->twin);
}

static void take_in(const struct kansoku_op* op) {
  const uint32_t stream = op->record.stream, at = take_pending();
  if (at == KANSOKU_NONE) {
    atomic_fetch_add((_Atomic uint64_t*)&state()->losses.queue_full, op->launches);
    kansoku_give_pair(&kansoku.contexts[op->context], op->pair);
    if (op->twin != NULL) kansoku_twin_release(op->twin);
    return;
  }
  pending[at].op = *op;
  pending[at].next = KANSOKU_NONE;
  if (first[stream] == KANSOKU_NONE)
    first[stream] = at;
  else
    pending[last[stream]].next = at;
  last[stream] = at;
  ++pending_count;
  if (op->is_mark) return;
  ++kansoku.shared->streams[stream].submitted;
  if (kansoku_hooks[op->record.entry].what == WIRE_CUDA_HOST_FUNCTION)
    ++kansoku.shared->streams[stream].host_functions;
}

static uint32_t take_queues(void) {
  uint32_t taken = 0;
  const uint32_t top = atomic_load(&kansoku_threads_top);
  for (unsigned i = 0; i < top; ++i) {
    struct kansoku_thread* const thread = &kansoku.threads[i];
    const uint32_t thread_state = atomic_load(&thread->state);
    if (thread_state == 0) continue;
    uint32_t tail = atomic_load_explicit(&thread->tail, memory_order_relaxed);
    const uint32_t head = atomic_load_explicit(&thread->head, memory_order_acquire);
    for (; tail != head; ++tail, ++taken)
      take_in(&thread->queue[tail % KANSOKU_QUEUE_SLOTS]);
    atomic_store_explicit(&thread->tail, tail, memory_order_release);
    if (thread_state == 2) atomic_store(&thread->state, 0);
  }
  return taken;
}

/* The whole nanosecond next to an elapsed time. Below 16 ms a float of milliseconds has a step of
 * less than 1 ns, so it is the very one that the driver had; to cut would lose up to 1 ns each
 * time, and a device time is a sum of such: of the bases, to the begin, to the end. */
static int64_t ns_of(float ms) {
  const double ns = (double)ms * 1e6;
  return (int64_t)(ns < 0 ? ns - 0.5 : ns + 0.5);
}

/* Device time of an event: from the base that was the newest at the launch, or the oldest that
 * there still is. 0: the driver refused. */
static int device_time(struct kansoku_context* context, uint16_t base, CUevent event,
                       int64_t* device_ns) {
  const uint32_t newest = atomic_load(&context->base);
  float ms = 0;
  if (newest >= KANSOKU_BASES) return 0;
  /* After a long sleep the base at the launch is old, and the newest one nearer. */
  const int is_old = base >= KANSOKU_BASES || context->base_ns[newest] - context->base_ns[base] >
                                                  (int64_t)(2 * BASE_EVERY_NS);
  const uint32_t number = is_old ? newest : base;
  if (kansoku_driver.event_elapsed(&ms, context->bases[number], event) != CUDA_SUCCESS) return 0;
  *device_ns = context->base_ns[number] + ns_of(ms);
  return 1;
}

/* A length is measured as such: from a base that is old its two ends would have coarse steps. The
 * one call also tells whether the operation is complete: CUDA_ERROR_NOT_READY. */
static CUresult device_length(struct kansoku_context* context, uint32_t pair, int64_t* ns) {
  float ms = 0;
  const CUresult result =
      kansoku_driver.event_elapsed(&ms, context->begin[pair], context->end[pair]);
  *ns = ns_of(ms);
  return result;
}

/* Two buckets an octave: the power of two, and whether it is past its half. */
static unsigned bucket_of(uint64_t ns) {
  if (ns < 1ULL << WIRE_CUDA_BUCKET_FIRST_POWER) return 0;
  const unsigned power = 63U - (unsigned)__builtin_clzll(ns);
  const unsigned at =
      1 + 2 * (power - WIRE_CUDA_BUCKET_FIRST_POWER) + (unsigned)((ns >> (power - 1)) & 1);
  return at < WIRE_CUDA_BUCKETS ? at : WIRE_CUDA_BUCKETS - 1;
}

static void add_duration(struct wire_cuda_durations* to, const struct wire_cuda_record* record,
                         uint32_t size) {
  ++to->count;
  to->total_ns += record->device_ns;
  if (record->device_ns > to->longest_ns) to->longest_ns = record->device_ns;
  if (size > to->largest) to->largest = size;
  ++to->buckets[bucket_of(record->device_ns)];
}

static void count_duration(const struct wire_cuda_record* record) {
  struct wire_cuda* const shared = kansoku.shared;
  const uint32_t what = kansoku_hooks[record->entry].what, size = kansoku_size(record, what);
  const int is_chain = what == WIRE_CUDA_LAUNCH && (record->flags & WIRE_CUDA_PROGRAMMATIC) != 0;
  if (what == WIRE_CUDA_LAUNCH && !is_chain && record->u.launch.kernel < WIRE_CUDA_KERNELS_MAX) {
    add_duration(&shared->kernels[record->u.launch.kernel].durations, record, size);
    return;
  }
  add_duration(&shared->classes[what], record, is_chain ? 0 : size);
  const uint64_t graph = record->u.memory.bytes; /* number + 1 */
  if (what == WIRE_CUDA_GRAPH_LAUNCH && graph != 0)
    add_duration(&shared->graphs[graph - 1].durations, record, size);
}

static int by_begin(const void* a, const void* b, void* of) {
  const struct kansoku_twin* const twin = of;
  const uint32_t left = *(const uint32_t*)a, right = *(const uint32_t*)b;
  const int64_t x = twin->offset_ns[twin->nodes[left].begin],
                y = twin->offset_ns[twin->nodes[right].begin];
  return x < y ? -1 : x > y ? 1 : left < right ? -1 : 1;
}

/* The nodes of a graph whose launch began at `origin` and is complete, in the order of their
 * begins. All count from the graph's begin: so they are exact, and one ends where the next begins.
 */
static void emit_nodes(struct kansoku_context* context, const struct kansoku_op* op,
                       int64_t origin) {
  struct kansoku_twin* const twin = op->twin;
  for (uint32_t i = 0; i < twin->event_count; ++i) {
    float ms = 0;
    if (i != twin->done && kansoku_driver.event_elapsed(&ms, context->begin[op->pair],
                                                        twin->events[i]) != CUDA_SUCCESS) {
      KANSOKU_LOSE(event_error);
      return;
    }
    twin->offset_ns[i] = ns_of(ms);
  }
  qsort_r(twin->order, twin->node_count, sizeof *twin->order, by_begin, twin);
  for (uint32_t i = 0; i < twin->node_count; ++i) {
    const struct kansoku_twin_node* const node = &twin->nodes[twin->order[i]];
    struct wire_cuda_record record = node->record;
    const int64_t begin = twin->offset_ns[node->begin];
    const int64_t length = twin->offset_ns[node->end] - begin;
    record.host_begin_ns = op->record.host_begin_ns;
    record.tid = op->record.tid;
    record.correlation = op->record.correlation;
    record.stream = op->record.stream;
    record.flags = op->record.flags | WIRE_CUDA_NODE;
    record.device_begin_ns = origin + begin;
    record.device_ns = (uint64_t)length;
    if (length < 0)
      KANSOKU_LOSE(negative);
    else
      count_duration(&record);
    kansoku_write(&record);
    ++state()->nodes_timed;
  }
}

/* A chain of several launches has no shape. */
static void set_chain(struct kansoku_op* op) {
  if (op->launches <= 1) {
    op->record.flags &= (uint8_t)~WIRE_CUDA_PROGRAMMATIC;
    return;
  }
  op->record.flags |= WIRE_CUDA_PROGRAMMATIC;
  const uint16_t kernel = op->record.u.launch.kernel;
  memset(&op->record.u, 0, sizeof op->record.u);
  op->record.u.chain.kernel = kernel;
  op->record.u.chain.launches = op->launches;
  ++state()->chains;
  state()->chained += op->launches;
}

static void emit(struct kansoku_context* context, struct kansoku_op* op, int64_t length) {
  int64_t begin = 0;
  set_chain(op);
  if (!device_time(context, op->base, context->begin[op->pair], &begin)) {
    KANSOKU_LOSE(event_error);
  } else {
    op->record.device_begin_ns = begin;
    op->record.device_ns = (uint64_t)length;
    if (length < 0)
      KANSOKU_LOSE(negative);
    else
      count_duration(&op->record);
    kansoku_write(&op->record);
    if (op->twin != NULL) emit_nodes(context, op, begin);
  }
  kansoku_give_pair(context, op->pair);
}

/* The events of the operation that is read next come from the cache of another processor. A
 * driver's handle is where its object lies, as far as is known; if not, nothing is lost. */
static void expect(const struct kansoku_context* context, uint32_t at) {
  if (at == KANSOKU_NONE || pending[at].op.pair >= KANSOKU_PAIRS_MAX) return;
  const char* const begin = (const char*)context->begin[pending[at].op.pair];
  const char* const end = (const char*)context->end[pending[at].op.pair];
  __builtin_prefetch(begin);
  __builtin_prefetch(begin + 64);
  __builtin_prefetch(end);
  __builtin_prefetch(end + 64);
}

static void lose_first(uint32_t stream) {
  atomic_fetch_add((_Atomic uint64_t*)&state()->losses.lost_context,
                   pending[first[stream]].op.launches); /* none if it is a mark */
  drop_first(stream);
}

/* All operations of a stream that are complete; the head tells: a stream keeps their order. */
static uint32_t read_stream(struct kansoku_context* context, uint32_t stream) {
  uint32_t done = 0, complete = 0;
  int is_any_complete = 0;
  struct wire_cuda_stream* const shown = &kansoku.shared->streams[stream];
  while (first[stream] != KANSOKU_NONE) {
    struct kansoku_op* const op = &pending[first[stream]].op;
    expect(context, pending[first[stream]].next);
    if (&kansoku.contexts[op->context] != context) { /* of a context that is gone */
      lose_first(stream);
      continue;
    }
    int64_t length = 0;
    const CUresult result = op->is_mark ? kansoku_driver.event_query(context->end[op->pair])
                                        : device_length(context, op->pair, &length);
    if (result == CUDA_ERROR_NOT_READY) break;
    if (result == CUDA_SUCCESS) {
      complete = op->number + 1;
      is_any_complete = 1;
    }
    if (result == CUDA_SUCCESS && !op->is_mark) {
      emit(context, op, length);
    } else {
      if (result != CUDA_SUCCESS) KANSOKU_LOSE(event_error);
      kansoku_give_pair(context, op->pair);
    }
    if (!op->is_mark) {
      shown->done_correlation = op->record.correlation;
      ++shown->completed;
    }
    drop_first(stream);
    ++done;
  }
  if (is_any_complete) kansoku_known_done(stream, complete);
  show_stream(stream);
  return done;
}

static void lose_stream(uint32_t stream) {
  while (first[stream] != KANSOKU_NONE)
    lose_first(stream);
  show_stream(stream);
}

/* A stream to which nothing came for a while although its last operations are not known to be
 * complete gets an event of the library's own behind them: if that does not complete, one of them
 * is stuck, and if it does, none is. */
static struct {
  uint32_t operations, marked;
  uint64_t since_ns;
  uint64_t free_at; /* record from which on the index may be used again; 0: not yet */
} quiet[WIRE_CUDA_STREAMS_MAX];

/* Before the queues are read: what a destroyed stream still has there comes in this time. */
static void begin_draining(void) {
  const uint32_t top = atomic_load(&kansoku_streams_top);
  for (uint32_t stream = 0; stream < top; ++stream)
    if (kansoku.shared->streams[stream].state == 2) kansoku.shared->streams[stream].state = 3;
}

/* An index is used again once all of its operations are read, by this thread and by the recorder,
 * which looks the stream up by its index. */
static void free_stream(uint32_t stream) {
  struct wire_cuda_stream* const shown = &kansoku.shared->streams[stream];
  if (shown->state != 3 || first[stream] != KANSOKU_NONE || !kansoku_chain_is_closed(stream))
    return;
  if (quiet[stream].free_at == 0)
    quiet[stream].free_at = atomic_load((_Atomic uint64_t*)&state()->head) + 1;
  const uint64_t tail = atomic_load((_Atomic uint64_t*)&kansoku.shared->control.tail);
  const int is_watched =
      atomic_load((_Atomic uint64_t*)&kansoku.shared->control.lease_until_ns) > kansoku_now();
  if (is_watched && tail + 1 < quiet[stream].free_at) return;
  memset(&quiet[stream], 0, sizeof quiet[stream]);
  shown->state = 0;
}

/* A thread's own default stream cannot be named from here. */
static int may_mark(uint32_t stream) {
  const struct wire_cuda_stream* const shown = &kansoku.shared->streams[stream];
  if (shown->state != 1 || (shown->kind & WIRE_CUDA_PER_THREAD) != 0) return 0;
  if ((shown->kind & WIRE_CUDA_LEGACY) != 0 && kansoku_legacy_is_awaited()) return 0;
  return atomic_load(&kansoku.captures) == 0;
}

static void mark_quiet(struct kansoku_context* context, uint32_t place, uint32_t stream,
                       uint64_t now) {
  struct wire_cuda_stream* const shown = &kansoku.shared->streams[stream];
  const uint32_t operations = atomic_load((_Atomic uint32_t*)&shown->operations);
  if (operations != quiet[stream].operations) {
    quiet[stream].operations = operations;
    quiet[stream].since_ns = now;
    return;
  }
  if (operations == shown->known_done || quiet[stream].marked == operations ||
      now - quiet[stream].since_ns < LONG_RUNNING_NS)
    return;
  struct kansoku_op op;
  memset(&op, 0, sizeof op);
  op.pair = kansoku_take_pair(context);
  if (op.pair == KANSOKU_NONE) return;
  /* Meanwhile the program neither destroys the stream nor begins to capture it. */
  pthread_mutex_lock(&kansoku_mark_lock);
  const int is_marked =
      may_mark(stream) && kansoku_chain_is_closed(stream) &&
      kansoku_driver.event_record(context->end[op.pair], (CUstream)(uintptr_t)shown->handle) ==
          CUDA_SUCCESS;
  pthread_mutex_unlock(&kansoku_mark_lock);
  if (!is_marked) {
    kansoku_give_pair(context, op.pair);
    return;
  }
  quiet[stream].marked = operations;
  op.context = (uint16_t)place;
  op.number = operations - 1;
  op.is_mark = 1;
  op.record.stream = (uint16_t)stream;
  op.record.host_begin_ns = quiet[stream].since_ns;
  take_in(&op);
}

/* A chain to which nothing came for an interval ends. Its events may be nowhere else than on its
 * stream, so where this thread may put none, the next call of the program ends it. */
static void end_quiet_chain(uint32_t stream, uint32_t mode) {
  struct kansoku_op op;
  const int is_ending = atomic_load(&is_hurried);
  if (kansoku_chain_is_closed(stream)) return;
  if (mode == WIRE_CUDA_DORMANT || kansoku.shared->streams[stream].state == 3) {
    kansoku_chain_drop(stream);
    return;
  }
  pthread_mutex_lock(&kansoku_mark_lock);
  const int may_end = may_mark(stream);
  const int is_ended = may_end && kansoku_chain_end_quiet(stream, is_ending, &op);
  pthread_mutex_unlock(&kansoku_mark_lock);
  if (!may_end && is_ending) kansoku_chain_drop(stream);
  if (!is_ended) return;
  atomic_fetch_add((_Atomic uint64_t*)&state()->timed, 1);
  take_in(&op);
}

static uint32_t read_streams(uint32_t place, uint32_t mode) {
  struct kansoku_context* const context = &kansoku.contexts[place];
  const uint64_t now = kansoku_now();
  const uint32_t top = atomic_load(&kansoku_streams_top);
  uint32_t done = 0;
  for (uint32_t stream = 0; stream < top; ++stream) {
    struct wire_cuda_stream* const shown = &kansoku.shared->streams[stream];
    if (atomic_load(&context->state) != KANSOKU_CONTEXT_USED) break;
    if (shown->state == 0 || shown->context != place) continue;
    if (atomic_load(&kansoku.streams[stream].has_chains)) end_quiet_chain(stream, mode);
    if (mode != WIRE_CUDA_DORMANT) mark_quiet(context, place, stream, now);
    if (first[stream] != KANSOKU_NONE) done += read_stream(context, stream);
    free_stream(stream);
  }
  return done;
}

/* A reading of the event clock that is complete: between these two of boot time. */
static void finish_reading(struct kansoku_context* context, uint32_t place, uint64_t after) {
  struct wire_cuda_record record;
  float ms = 0;
  int64_t device_ns = 0;
  const uint64_t before = context->probe_before_ns;
  context->probe_before_ns = 0;
  const uint32_t newest = atomic_load(&context->base);
  if (newest < KANSOKU_BASES) {
    if (kansoku_driver.event_elapsed(&ms, context->bases[newest], context->probe) != CUDA_SUCCESS) {
      KANSOKU_LOSE(event_error);
      return;
    }
    device_ns = context->base_ns[newest] + ns_of(ms);
  }
  if (context->probe_is_base) {
    const uint32_t next = context->base_count++ % KANSOKU_BASES;
    const CUevent old = context->bases[next];
    context->bases[next] = context->probe;
    context->base_ns[next] = device_ns;
    context->probe = old;
    context->base_since_ns = after;
    atomic_store_explicit(&context->base, next, memory_order_release);
  }
  memset(&record, 0, sizeof record);
  record.entry = WIRE_CUDA_CLOCK;
  record.correlation = ++context->readings;
  record.stream = (uint16_t)place;
  record.host_begin_ns = before;
  record.device_begin_ns = device_ns;
  record.device_ns = after;
  kansoku_write(&record);
}

static int is_reading_done(struct kansoku_context* context, uint32_t place) {
  const CUresult result = kansoku_driver.event_query(context->probe);
  if (result == CUDA_ERROR_NOT_READY) return 0;
  if (result == CUDA_SUCCESS)
    finish_reading(context, place, kansoku_now());
  else
    context->probe_before_ns = 0;
  return 1;
}

static int make_clock(struct kansoku_context* context) {
  if (context->clock_stream == NULL &&
      kansoku_driver.stream_create(&context->clock_stream, CU_STREAM_NON_BLOCKING, INT_MIN) !=
          CUDA_SUCCESS &&
      kansoku_driver.stream_create(&context->clock_stream, CU_STREAM_NON_BLOCKING, 0) !=
          CUDA_SUCCESS)
    return 0;
  return context->probe != NULL || kansoku_driver.event_create(&context->probe, 0) == CUDA_SUCCESS;
}

/* The event is recorded on a stream of its own, so it waits for nothing. A narrow bracket needs a
 * moment of waiting for it; after that others have their turn, and the bracket is wide. */
static void read_clock(struct kansoku_context* context, uint32_t place) {
  const uint64_t now = kansoku_now();
  if (context->probe_before_ns != 0 && !is_reading_done(context, place)) return;
  const int is_base =
      atomic_load(&context->base) >= KANSOKU_BASES || now - context->base_since_ns >= BASE_EVERY_NS;
  /* The first ones come one after the other: they tell whether this clock keeps pace with time. */
  const uint64_t pause =
      context->readings < READINGS_FIRST ? READING_FIRST_EVERY_NS : READING_EVERY_NS;
  if (!is_base && now - context->asked_ns < pause) return;
  if (!make_clock(context)) {
    KANSOKU_LOSE(event_error);
    return;
  }
  context->asked_ns = now;
  context->probe_is_base = is_base;
  context->probe_before_ns = kansoku_now();
  if (kansoku_driver.event_record(context->probe, context->clock_stream) != CUDA_SUCCESS) {
    KANSOKU_LOSE(event_error);
    context->probe_before_ns = 0;
    return;
  }
  while (!is_reading_done(context, place))
    if (kansoku_now() - context->probe_before_ns > READING_SPIN_NS) return;
}

/* Twice as many pairs as long as they run short. */
static void refill(struct kansoku_context* context, uint32_t mode) {
  const uint32_t made = atomic_load(&context->pairs_made);
  const uint32_t unused = atomic_load(&context->pairs_free);
  const uint32_t least = mode == WIRE_CUDA_EVERY ? KANSOKU_PAIRS_EVERY : KANSOKU_PAIRS_SAMPLED;
  if (made < least || unused < made / 2)
    kansoku_make_pairs(context, made < least ? least - made : made);
}

static void free_context(uint32_t place) {
  struct kansoku_context* const context = &kansoku.contexts[place];
  take_queues();
  for (uint32_t stream = 0; stream < atomic_load(&kansoku_streams_top); ++stream) {
    const struct wire_cuda_stream* const shown = &kansoku.shared->streams[stream];
    if (shown->state == 0 || shown->context != place) continue;
    kansoku_chain_drop(stream);
    lose_stream(stream);
    free_stream(stream);
  }
  /* Its events went with it. */
  atomic_store(&context->free_pairs, 0);
  atomic_store(&context->pairs_made, 0);
  atomic_store(&context->pairs_free, 0);
  atomic_store(&context->first_tid, 0);
  atomic_store(&context->has_many_threads, 0);
  atomic_store(&context->base, KANSOKU_BASES);
  memset(context->bases, 0, sizeof context->bases);
  context->base_count = 0;
  context->readings = 0;
  context->clock_stream = NULL;
  context->probe = NULL;
  context->probe_before_ns = 0;
  context->handle = NULL;
  kansoku.shared->contexts[place].state = 0;
  atomic_store(&context->state, KANSOKU_CONTEXT_FREE);
}

static uint32_t device_attribute(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  if (kansoku_driver.device_attribute == NULL ||
      kansoku_driver.device_attribute(&value, which, device) != CUDA_SUCCESS)
    return 0;
  return value > 0 ? (uint32_t)value : 0;
}

static void describe_device(struct wire_cuda_context* shown) {
  if (shown->device < 0) kansoku_driver.ctx_get_device(&shown->device);
  if (shown->device < 0 || shown->major != 0) return;
  const CUdevice device = shown->device;
  shown->threads = device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  shown->blocks = device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  shown->registers = device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  shown->shared_bytes =
      device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  const uint32_t major = device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  atomic_store((_Atomic uint32_t*)&shown->major, major != 0 ? major : 1);
}

/* A default stream that was used before the library awoke may still be at work, and nobody says
 * that it was used. The question submits nothing; during a capture it would end the capture. */
static void ask_default_stream(struct wire_cuda_context* shown) {
  const uint64_t awake_ns = state()->awake_ns;
  if (awake_ns == 0 || !kansoku_driver.can_time ||
      atomic_load((_Atomic uint64_t*)&shown->default_done_ns) >= awake_ns)
    return;
  pthread_mutex_lock(&kansoku_mark_lock);
  const int is_idle = atomic_load(&kansoku.captures) == 0 &&
                      kansoku_driver.stream_query(CU_STREAM_LEGACY) == CUDA_SUCCESS;
  pthread_mutex_unlock(&kansoku_mark_lock);
  if (is_idle) atomic_store((_Atomic uint64_t*)&shown->default_done_ns, kansoku_now());
}

static uint32_t visit_context(uint32_t place, uint32_t mode) {
  struct kansoku_context* const context = &kansoku.contexts[place];
  uint32_t done = 0;
  /* The contexts themselves are large and lie far apart. */
  if (kansoku.shared->contexts[place].state == 0) return 0;
  int context_state = atomic_load(&context->state);
  if (context_state == KANSOKU_CONTEXT_GONE) free_context(place);
  if (context_state == KANSOKU_CONTEXT_NEW)
    atomic_compare_exchange_strong(&context->state, &context_state, KANSOKU_CONTEXT_USED);
  if (context_state != KANSOKU_CONTEXT_USED && context_state != KANSOKU_CONTEXT_NEW) return 0;
  pthread_mutex_lock(&context->lock);
  if (atomic_load(&context->state) == KANSOKU_CONTEXT_USED && !atomic_load(&is_over)) {
    set_phase(2);
    if (kansoku_driver.ctx_set_current(context->handle) == CUDA_SUCCESS) {
      describe_device(&kansoku.shared->contexts[place]);
      if (mode != WIRE_CUDA_DORMANT || pending_count > 0) read_clock(context, place);
      if (mode != WIRE_CUDA_DORMANT) refill(context, mode);
      if (mode != WIRE_CUDA_DORMANT) ask_default_stream(&kansoku.shared->contexts[place]);
      /* Without a base there is nothing that times could count from. */
      if (atomic_load(&context->base) < KANSOKU_BASES) done = read_streams(place, mode);
      kansoku_driver.ctx_set_current(NULL);
    }
    set_phase(1);
  }
  pthread_mutex_unlock(&context->lock);
  return done;
}

static uint64_t operations(void) {
  uint64_t sum = 0;
  for (unsigned shard = 0; shard < WIRE_CUDA_SHARDS; ++shard)
    for (unsigned i = 0; i < kansoku_hook_count; ++i)
      if (kansoku_hooks[i].what <= WIRE_CUDA_VALUE)
        sum += kansoku.shared->shards[shard].entries[i].calls;
  return sum;
}

/* One operation in so many that a timed one costs no more, on average over all, than the budget. */
static void adapt(uint64_t now) {
  struct wire_cuda_control* const control = &kansoku.shared->control;
  const uint32_t wanted = atomic_load((_Atomic uint32_t*)&control->every_n);
  if (wanted != 0 || now - adapted_ns < ADAPT_EVERY_NS) {
    if (wanted != 0) atomic_store(&kansoku.every_n, wanted);
    return;
  }
  const uint64_t all = operations();
  const double rate = (double)(all - adapted_operations) * 1e9 / (double)(now - adapted_ns);
  adapted_ns = now;
  adapted_operations = all;
  if (state()->sampled == 0) return;
  const double price = (double)(state()->own_ns + state()->event_ns) / (double)state()->sampled;
  atomic_store(&kansoku.meeting_ns, (uint64_t)(price / MEETINGS_SHARE_OF_CORE));
  const uint32_t asked = atomic_load((_Atomic uint32_t*)&control->budget_ns_a_launch);
  const double budget = asked != 0 ? asked : BUDGET_NS_A_LAUNCH;
  double n = price / budget;
  if (rate * price / n > BUDGET_SHARE_OF_CORE * 1e9)
    n = rate * price / (BUDGET_SHARE_OF_CORE * 1e9);
  n = n < EVERY_N_MIN ? EVERY_N_MIN : n > EVERY_N_MAX ? EVERY_N_MAX : n;
  atomic_store(&kansoku.every_n, (uint32_t)n);
  state()->every_n = (uint32_t)n;
}

/* The mode that a recorder with a living lease asks for. */
static uint32_t wanted_mode(uint64_t now) {
  struct wire_cuda_control* const control = &kansoku.shared->control;
  const uint32_t mode = atomic_load((_Atomic uint32_t*)&control->mode);
  if (atomic_load((_Atomic uint64_t*)&control->lease_until_ns) <= now || mode > WIRE_CUDA_EVERY)
    return WIRE_CUDA_DORMANT;
  return mode;
}

static int is_polling; /* the process may have made calls */

static void switch_to(uint32_t mode, uint64_t now) {
  const uint32_t ranges = atomic_load((_Atomic uint32_t*)&kansoku.shared->control.ranges);
  kansoku_follow_ranges(mode != WIRE_CUDA_DORMANT && ranges == 1);
  if (mode == atomic_load(&kansoku.mode)) return;
  if (mode != WIRE_CUDA_DORMANT) {
    if (atomic_load(&kansoku.mode) == WIRE_CUDA_DORMANT)
      atomic_store((_Atomic uint64_t*)&state()->awake_ns, is_polling ? now : 0);
    adapted_ns = now;
    adapted_operations = operations();
    const uint32_t n = atomic_load((_Atomic uint32_t*)&kansoku.shared->control.every_n);
    atomic_store(&kansoku.every_n, n != 0 ? n : EVERY_N_FIRST);
    atomic_store(&kansoku.meeting_ns, MEETING_FIRST_NS);
    kansoku_set_hooks(1);
    interval_us = INTERVAL_MIN_US;
    for (uint32_t place = 0; place < WIRE_CUDA_CONTEXTS_MAX; ++place)
      visit_context(place, mode); /* its events are there before the first operation */
  }
  atomic_store_explicit(&kansoku.mode, mode, memory_order_release);
  if (mode == WIRE_CUDA_DORMANT) kansoku_set_hooks(0);
  state()->every_n = atomic_load(&kansoku.every_n);
  state()->switched_ns = now;
  atomic_store((_Atomic uint32_t*)&state()->mode, mode);
}

static void doze(uint32_t seen, uint32_t micros) {
  const struct timespec time = {micros / 1000000, (long)(micros % 1000000) * 1000};
  syscall(SYS_futex, &kansoku.shared->control.wake, FUTEX_WAIT, seen, micros != 0 ? &time : NULL,
          NULL, 0);
}

static void tick(uint32_t mode) {
  struct timespec used;
  const uint32_t longest = mode == WIRE_CUDA_EVERY ? INTERVAL_EVERY_MAX_US : INTERVAL_MAX_US;
  begin_draining();
  const uint32_t taken = take_queues();
  uint32_t done = 0;
  for (uint32_t place = 0; place < WIRE_CUDA_CONTEXTS_MAX; ++place)
    done += visit_context(place, mode);
  /* Times of operations that were handed over meanwhile are read with the next. */
  const uint32_t least = mode == WIRE_CUDA_SAMPLED                           ? INTERVAL_SAMPLED_US
                         : mode == WIRE_CUDA_EVERY && taken < FEW_OPERATIONS ? INTERVAL_EVERY_MAX_US
                                                                             : INTERVAL_MIN_US;
  interval_us = taken + done > 0 || interval_us < least ? least : interval_us * 2;
  if (interval_us > longest) interval_us = longest;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  state()->poller_cpu_ns = (uint64_t)used.tv_sec * 1000000000ULL + (uint64_t)used.tv_nsec;
  state()->interval_us = interval_us;
  state()->captures = (uint64_t)atomic_load(&kansoku.captures);
  ++state()->ticks;
}

static _Atomic uint32_t drained_ticks; /* since it is hurried, with nothing left to read */

void kansoku_hurry(void) {
  atomic_store(&is_hurried, 1);
  atomic_fetch_add((_Atomic uint32_t*)&kansoku.shared->control.wake, 1);
  syscall(SYS_futex, &kansoku.shared->control.wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void kansoku_stop(void) {
  atomic_store(&kansoku.mode, WIRE_CUDA_DORMANT);
  kansoku_follow_ranges(0);
  kansoku_set_hooks(0);
  atomic_store(&is_over, 1);
  for (uint32_t place = 0; place < WIRE_CUDA_CONTEXTS_MAX; ++place)
    kansoku_wait_for_poller(place);
}

int kansoku_is_drained(void) {
  return atomic_load(&drained_ticks) > 0;
}

/* The time stamp counter's rate, over a millisecond: it only prices the library's own code. */
static void measure_ticks(void) {
  const struct timespec pause = {0, 1000000};
  const uint64_t begin_ns = kansoku_now(), begin = __rdtsc();
  nanosleep(&pause, NULL);
  const uint64_t ticks = __rdtsc() - begin, ns = kansoku_now() - begin_ns;
  kansoku.ns_a_tick = ticks > 0 ? (double)ns / (double)ticks : 0;
}

static void* poll(void* unused) {
  CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
  uint32_t seen = 0;
  (void)unused;
  pthread_setname_np(pthread_self(), "kansoku-cuda");
  measure_ticks();
  is_polling = 1;
  if (kansoku_driver.can_time) kansoku_driver.exchange_mode(&relaxed);
  for (;;) {
    seen = atomic_load((_Atomic uint32_t*)&kansoku.shared->control.wake);
    const uint64_t now = kansoku_now();
    const uint32_t mode = wanted_mode(now);
    const int is_ending = atomic_load(&is_hurried); /* before the queues are read once more */
    set_phase(1);
    if (!atomic_load(&is_over)) switch_to(mode, now);
    if (mode == WIRE_CUDA_SAMPLED) adapt(now);
    tick(mode);
    const int is_idle = mode == WIRE_CUDA_DORMANT && pending_count == 0;
    if (is_ending && pending_count == 0 && kansoku_chains_are_closed())
      atomic_fetch_add(&drained_ticks, 1);
    set_phase(0);
    doze(seen, atomic_load(&is_over) ? 0 : is_ending ? 2000 : is_idle ? 0 : interval_us);
  }
  return NULL;
}

void kansoku_start_poller(void) {
  pthread_attr_t attributes;
  pthread_t thread;
  sigset_t all, before;
  pending = mmap(NULL, sizeof(struct pending) * PENDING_MAX, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pending == MAP_FAILED) return;
  for (uint32_t i = 0; i < WIRE_CUDA_STREAMS_MAX; ++i)
    first[i] = last[i] = KANSOKU_NONE;
  /* From the first call on, if somebody waits for it. */
  switch_to(wanted_mode(kansoku_now()), kansoku_now()); /* no context yet: nothing is called */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, 512L * 1024);
  if (pthread_create(&thread, &attributes, poll, NULL) != 0) kansoku_stop();
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}
