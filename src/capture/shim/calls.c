/* SPDX-License-Identifier: Apache-2.0 */
/* The way of one call through a hook: counted, and if it is its turn, timed by a pair of events. */
#include <string.h>
#include <x86intrin.h>

#include "capture/shim/internal/shim.h"

/* One timed operation in so many has its own cost measured. */
#define MEASURE_ONE_IN 32U
#define PRICE_MAX_NS 100000.0
/* While calls are sampled, a wait of the host is worth a record from this on. */
#define LONG_WAIT_NS 20000U
#define CORRELATIONS_AT_ONCE 256U
/* Launches of a kernel, captured or not, that tell its launch site. */
#define SITE_LAUNCHES 4U
#define FIRST_LAUNCHES 16U

static _Thread_local struct kansoku_thread* self;
static _Thread_local int is_refused; /* no place for this thread */

void kansoku_forget_self(void) {
  self = NULL;
  is_refused = 1;
}

static void show_waiter(struct kansoku_call* call) {
  call->is_waiter = 1;
  struct wire_cuda_waiter* const waiter = call->thread->waiter;
  waiter->tid = call->thread->tid;
  waiter->entry = call->entry;
  atomic_store_explicit((_Atomic uint64_t*)&waiter->since_ns, call->record.host_begin_ns,
                        memory_order_release);
}

static int enter(struct kansoku_call* call, uint32_t entry, uint32_t what, uint32_t mode) {
  struct kansoku_thread* thread = self;
  if (thread == NULL) {
    if (is_refused || (thread = kansoku_thread_new()) == NULL) {
      is_refused = 1;
      return 0;
    }
    self = thread;
  }
  memset(&call->record, 0, sizeof call->record);
  call->thread = thread;
  call->entry = entry;
  call->mode = mode;
  call->stream = call->pair = KANSOKU_NONE;
  call->is_measured = 0;
  call->is_waiter = 0;
  call->chain = KANSOKU_CHAIN_NONE;
  call->twin = NULL;
  call->bytes = 0;
  call->more = 0;
  call->what = what;
  call->record.entry = (uint8_t)entry;
  call->record.tid = thread->tid;
  if (mode == WIRE_CUDA_EVERY || (what >= WIRE_CUDA_ALLOC && what <= WIRE_CUDA_SYNC) ||
      what == WIRE_CUDA_MODULE)
    call->record.host_begin_ns = kansoku_now();
  if (what == WIRE_CUDA_SYNC) show_waiter(call);
  return 1;
}

void kansoku_blocks(struct kansoku_call* call) {
  if (call->record.host_begin_ns == 0) call->record.host_begin_ns = kansoku_now();
  show_waiter(call);
}

int kansoku_begin(struct kansoku_call* call, uint32_t entry, uint32_t what) {
  const uint32_t mode = atomic_load_explicit(&kansoku.mode, memory_order_acquire);
  if (mode == WIRE_CUDA_DORMANT || *kansoku.canary == 0) return 0;
  return enter(call, entry, what, mode);
}

/* A hook that does its duty while dormant, too, and only then is not counted. */
int kansoku_begin_always(struct kansoku_call* call, uint32_t entry, uint32_t what) {
  if (kansoku_begin(call, entry, what)) return 1;
  call->thread = NULL;
  call->twin = NULL;
  call->stream = call->pair = KANSOKU_NONE;
  return kansoku.canary == NULL || *kansoku.canary != 0;
}

void kansoku_bytes(struct kansoku_call* call, uint64_t bytes, uint64_t detail) {
  call->bytes = bytes;
  if (bytes == 0 && (call->what == WIRE_CUDA_COPY || call->what == WIRE_CUDA_SET)) call->more = -1;
  call->record.u.memory.bytes = bytes;
  call->record.u.memory.detail = detail;
}

void kansoku_detail(struct kansoku_call* call, uint64_t detail) {
  call->record.u.memory.detail = detail;
}

void kansoku_pointer(struct kansoku_call* call, const void* where) {
  if (call->result == CUDA_SUCCESS && where != NULL)
    memcpy(&call->record.u.memory.detail, where, sizeof(uint64_t));
}

/* Direction of a copy, by the kinds of memory at its ends; unified: only the driver knows. */
static uint64_t copy_kind(CUmemorytype from, CUmemorytype to) {
  const int from_host = from == CU_MEMORYTYPE_HOST, to_host = to == CU_MEMORYTYPE_HOST;
  if (from == CU_MEMORYTYPE_UNIFIED || to == CU_MEMORYTYPE_UNIFIED) return WIRE_CUDA_UNKNOWN_COPY;
  if (from_host) return to_host ? WIRE_CUDA_HTOH : WIRE_CUDA_HTOD;
  return to_host ? WIRE_CUDA_DTOH : WIRE_CUDA_DTOD;
}

void kansoku_copy_2d(struct kansoku_call* call, const CUDA_MEMCPY2D* shape) {
  if (shape == NULL) return;
  kansoku_bytes(call, (uint64_t)shape->WidthInBytes * shape->Height,
                copy_kind(shape->srcMemoryType, shape->dstMemoryType));
}

void kansoku_copy_3d(struct kansoku_call* call, const CUDA_MEMCPY3D* shape) {
  if (shape == NULL) return;
  kansoku_bytes(call, (uint64_t)shape->WidthInBytes * shape->Height * shape->Depth,
                copy_kind(shape->srcMemoryType, shape->dstMemoryType));
}

void kansoku_kernel(struct kansoku_call* call, CUfunction function, unsigned grid_x,
                    unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                    unsigned block_z, unsigned shared_bytes) {
  struct wire_cuda_record* const record = &call->record;
  const unsigned kib = (shared_bytes + 1023) / 1024;
  record->u.launch.grid_x = grid_x;
  record->u.launch.grid_y = (uint16_t)grid_y;
  record->u.launch.grid_z = (uint16_t)grid_z;
  record->u.launch.block_x = (uint16_t)block_x;
  record->u.launch.block_y = (uint16_t)block_y;
  record->u.launch.block_z = (uint8_t)block_z;
  record->u.launch.shared_kib = (uint8_t)(kib < 255 ? kib : 255);
  record->u.launch.kernel = (uint16_t)kansoku_kernel_index((uintptr_t)function);
  call->function = (uintptr_t)function;
}

void kansoku_config(struct kansoku_call* call, const CUlaunchConfig* config, CUfunction function) {
  if (config == NULL) return;
  kansoku_kernel(call, function, config->gridDimX, config->gridDimY, config->gridDimZ,
                 config->blockDimX, config->blockDimY, config->blockDimZ, config->sharedMemBytes);
  for (unsigned i = 0; config->attrs != NULL && i < config->numAttrs; ++i) {
    const CUlaunchAttribute* const attribute = &config->attrs[i];
    if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
        (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
         attribute->value.programmaticStreamSerializationAllowed != 0))
      call->record.flags |= WIRE_CUDA_PROGRAMMATIC;
  }
}

/* Counted before the capture begins: from then on the library's thread puts no event on any stream
 * of the program. */
void kansoku_before_capture(void) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 1;
  const int is_locked = pthread_mutex_timedlock(&kansoku_mark_lock, &until) == 0;
  atomic_fetch_add(&kansoku.captures, 1);
  if (is_locked) pthread_mutex_unlock(&kansoku_mark_lock);
}

void kansoku_capturing(int change) {
  atomic_fetch_add(&kansoku.captures, change);
}

/* A capture that was invalidated ends with an error, and ends all the same; a stream that did not
 * capture leaves the count as it is. */
void kansoku_capture_ended(CUresult result) {
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
      result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED) {
    int32_t now = atomic_load(&kansoku.captures);
    while (now > 0 && !atomic_compare_exchange_weak(&kansoku.captures, &now, now - 1)) {
    }
  }
}

int kansoku_is_captured(CUstream handle, int is_per_thread) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (atomic_load_explicit(&kansoku.captures, memory_order_relaxed) == 0) return 0;
  if (handle == NULL && is_per_thread) handle = (CUstream)2;
  return kansoku_driver.stream_is_capturing(handle, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Spread at random around the mean, so that no period of the program hides from it. */
static uint32_t next_gap(struct kansoku_thread* thread) {
  const uint32_t n = atomic_load_explicit(&kansoku.every_n, memory_order_relaxed);
  thread->random ^= thread->random << 13;
  thread->random ^= thread->random >> 7;
  thread->random ^= thread->random << 17;
  return n <= 1 ? 1 : 1 + (uint32_t)((thread->random >> 32) * (2ULL * n - 1) >> 32);
}

/* Each kernel, each graph and each class of the others soon has a past to be compared with, however
 * rare it is. */
static int is_new(const struct kansoku_call* call) {
  static _Atomic uint8_t kernels[WIRE_CUDA_KERNELS_MAX], graphs[WIRE_CUDA_GRAPHS_MAX],
      classes[WIRE_CUDA_CLASSES];
  _Atomic uint8_t* tries = &classes[call->what];
  if (call->what == WIRE_CUDA_LAUNCH) {
    if (call->record.u.launch.kernel >= WIRE_CUDA_KERNELS_MAX) return 0;
    tries = &kernels[call->record.u.launch.kernel];
  } else if (call->what == WIRE_CUDA_GRAPH_LAUNCH && call->record.u.memory.bytes != 0) {
    tries = &graphs[call->record.u.memory.bytes - 1];
  }
  return atomic_load_explicit(tries, memory_order_relaxed) < FIRST_LAUNCHES &&
         atomic_fetch_add_explicit(tries, 1, memory_order_relaxed) < FIRST_LAUNCHES;
}

/* An operation that waits for other processes gets events of its own: they tell if the process has
 * come so far, or is stuck before. Stand-ins of NCCL put host functions into streams. */
static int is_meeting(struct kansoku_call* call) {
  if (call->what != WIRE_CUDA_HOST_FUNCTION &&
      (call->what != WIRE_CUDA_LAUNCH || !kansoku_is_collective(call->record.u.launch.kernel)))
    return 0;
  const uint64_t now = kansoku_now();
  if (now - call->thread->met_ns < atomic_load_explicit(&kansoku.meeting_ns, memory_order_relaxed))
    return 0;
  call->thread->met_ns = now;
  return 1;
}

static int is_its_turn(struct kansoku_call* call) {
  if (call->mode == WIRE_CUDA_EVERY || is_new(call) || is_meeting(call)) return 1;
  /* A gap that was drawn while fewer were timed. */
  if (call->thread->until_timed > 2 * atomic_load_explicit(&kansoku.every_n, memory_order_relaxed))
    call->thread->until_timed = next_gap(call->thread);
  if (--call->thread->until_timed != 0) return 0;
  call->thread->until_timed = next_gap(call->thread);
  return 1;
}

/* True as long as one thread works in the context. */
static int is_alone(struct kansoku_context* context, uint32_t tid) {
  uint32_t first = atomic_load_explicit(&context->first_tid, memory_order_relaxed);
  if (first == 0 &&
      atomic_compare_exchange_strong_explicit(&context->first_tid, &first, tid,
                                              memory_order_relaxed, memory_order_relaxed))
    first = tid;
  if (first != tid) atomic_store_explicit(&context->has_many_threads, 1, memory_order_relaxed);
  return atomic_load_explicit(&context->has_many_threads, memory_order_relaxed) == 0;
}

/* True if events may go around this operation; what forbids them is counted. */
static int may_time(struct kansoku_call* call, struct kansoku_context* context) {
  const struct wire_cuda_stream* const stream = &kansoku.shared->streams[call->stream];
  if ((stream->kind & WIRE_CUDA_LEGACY) != 0 && !call->is_alone && kansoku_legacy_is_awaited()) {
    KANSOKU_LOSE(legacy);
    return 0;
  }
  if (atomic_load_explicit(&context->base, memory_order_acquire) == KANSOKU_BASES &&
      atomic_load(&context->state) != KANSOKU_CONTEXT_USED) {
    KANSOKU_LOSE(no_event);
    return 0;
  }
  return 1;
}

static void mark(struct kansoku_call* call, uint64_t* sum) {
  if (!call->is_measured) return;
  const uint64_t now = __rdtsc();
  *sum += now - call->mark;
  call->mark = now;
}

static void record_event(struct kansoku_call* call, CUevent event) {
  mark(call, &call->own_ticks);
  if (kansoku_driver.event_record(event, call->handle) != CUDA_SUCCESS) {
    KANSOKU_LOSE(event_error);
    kansoku_give_pair(&kansoku.contexts[call->context], call->pair);
    call->pair = KANSOKU_NONE;
  }
  mark(call, &call->event_ticks);
}

static void begin_timed(struct kansoku_call* call, struct kansoku_context* context) {
  call->is_measured = (call->thread->random & (MEASURE_ONE_IN - 1)) == 0;
  call->thread->random ^= call->thread->random << 13;
  call->thread->random ^= call->thread->random >> 7;
  call->thread->random ^= call->thread->random << 17;
  call->own_ticks = call->event_ticks = 0;
  if (call->is_measured) call->mark = __rdtsc();
  if (call->record.host_begin_ns == 0) call->record.host_begin_ns = kansoku_now();
  call->pair = kansoku_take_pair(context);
  if (call->pair == KANSOKU_NONE) {
    KANSOKU_LOSE(no_event);
    return;
  }
  call->base = (uint16_t)atomic_load_explicit(&context->base, memory_order_acquire);
  record_event(call, context->begin[call->pair]);
}

static __attribute__((noinline)) void begin_with_chains(struct kansoku_call* call,
                                                        struct kansoku_context* context) {
  if (kansoku_chain_begin(call, is_its_turn(call)) && may_time(call, context))
    begin_timed(call, context);
}

void kansoku_stream_begin(struct kansoku_call* call, CUstream handle, int is_per_thread) {
  if (call->thread == NULL) return; /* dormant */
  if (call->more < 0) return;       /* without bytes nothing runs */
  /* A copy from or to memory that is not pinned makes the host wait, whatever its name says. */
  if (call->what == WIRE_CUDA_COPY && call->record.host_begin_ns != 0) show_waiter(call);
  if (!kansoku_driver.can_time) return;
  if (kansoku_is_captured(handle, is_per_thread)) {
    call->record.flags |= WIRE_CUDA_CAPTURED;
    return;
  }
  const uint32_t index = kansoku_stream_index(call->thread, handle, is_per_thread);
  if (index == KANSOKU_NONE) return;
  struct kansoku_stream_state* const state = &kansoku.streams[index];
  call->stream = index;
  call->context = kansoku.shared->streams[index].context;
  call->handle = handle == NULL && is_per_thread ? (CUstream)2 : handle;
  call->record.stream = (uint16_t)index;
  call->record.flags |= kansoku.shared->streams[index].kind;
  struct kansoku_context* const context = &kansoku.contexts[call->context];
  call->is_alone = is_alone(context, call->thread->tid);
  if ((call->record.flags & WIRE_CUDA_PROGRAMMATIC) != 0) kansoku_chain_expect(call);
  /* Before the first event and after the last one: what another thread does in between shows. */
  if (!call->is_alone)
    call->sequence = atomic_fetch_add_explicit(&state->sequence, 1, memory_order_acq_rel) + 1;
  if (__builtin_expect(atomic_load_explicit(&state->has_chains, memory_order_relaxed) != 0, 0)) {
    begin_with_chains(call, context);
    return;
  }
  if (is_its_turn(call) && may_time(call, context)) begin_timed(call, context);
}

static uint32_t power_of(uint64_t value) {
  return value == 0 ? 0 : 63U - (uint32_t)__builtin_clzll(value);
}

uint32_t kansoku_size(const struct wire_cuda_record* record, uint32_t what) {
  if (what == WIRE_CUDA_COPY || what == WIRE_CUDA_SET) return power_of(record->u.memory.bytes);
  if (what != WIRE_CUDA_LAUNCH) return 0;
  /* The parts' powers: their product may not fit, and needs no more precision. */
  return power_of((uint64_t)record->u.launch.grid_x * record->u.launch.block_x) +
         power_of((uint64_t)record->u.launch.grid_y * record->u.launch.block_y *
                  record->u.launch.grid_z) +
         power_of(record->u.launch.block_z);
}

static uint32_t index_of(const struct wire_cuda_record* record, uint32_t what) {
  if (what == WIRE_CUDA_LAUNCH) return record->u.launch.kernel;
  return what == WIRE_CUDA_GRAPH_LAUNCH && record->u.memory.bytes != 0
             ? (uint32_t)record->u.memory.bytes - 1
             : WIRE_CUDA_NO_KERNEL;
}

/* The operation's place among all of its stream. */
static void number(struct kansoku_call* call, uint32_t what) {
  struct wire_cuda_stream* const stream = &kansoku.shared->streams[call->stream];
  _Atomic uint32_t* const count = (_Atomic uint32_t*)&stream->operations;
  call->number = atomic_load_explicit(count, memory_order_relaxed);
  if (!call->is_alone) call->number = atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
  kansoku.shared->recent[call->stream].operations[call->number % WIRE_CUDA_RECENT] =
      kansoku_size(&call->record, what) << 20 | what << 16 | index_of(&call->record, what);
  if (call->is_alone) atomic_store_explicit(count, call->number + 1, memory_order_release);
}

/* A wait of a stream for an event: no operation that is timed, but it may hold up those behind. */
void kansoku_note(struct kansoku_call* call, CUstream handle, int is_per_thread) {
  if (!kansoku_driver.can_time || kansoku_is_captured(handle, is_per_thread)) return;
  call->stream = kansoku_stream_index(call->thread, handle, is_per_thread);
  if (call->stream == KANSOKU_NONE) return;
  call->context = kansoku.shared->streams[call->stream].context;
  call->is_alone = is_alone(&kansoku.contexts[call->context], call->thread->tid);
  number(call, WIRE_CUDA_EVENT);
}

void kansoku_wait_stream(struct kansoku_call* call, CUstream handle, int is_per_thread) {
  if (!kansoku_driver.can_time || kansoku_is_captured(handle, is_per_thread)) return;
  call->stream = kansoku_stream_index(call->thread, handle, is_per_thread);
  if (call->stream == KANSOKU_NONE) return;
  kansoku_settle(call, handle, is_per_thread, call->what == WIRE_CUDA_SYNC);
  call->number = atomic_load_explicit(
      (_Atomic uint32_t*)&kansoku.shared->streams[call->stream].operations, memory_order_relaxed);
}

void kansoku_wait_ended(struct kansoku_call* call) {
  if (call->result == CUDA_SUCCESS && call->stream != KANSOKU_NONE)
    kansoku_known_done(call->stream, call->number);
}

/* Operations of other threads that came meanwhile are unknown: only a thread that is alone in
 * its context knows what it waited for. */
void kansoku_context_waited(struct kansoku_call* call) {
  CUcontext current = NULL;
  if (call->result != CUDA_SUCCESS) return;
  if (call->thread != NULL)
    atomic_store((_Atomic uint64_t*)&kansoku.shared->state.whole_done_ns,
                 call->record.host_begin_ns);
  if (!kansoku_driver.can_time) return;
  kansoku_driver.ctx_get_current(&current);
  const uint32_t top = atomic_load_explicit(&kansoku_streams_top, memory_order_relaxed);
  for (uint32_t index = 0; index < top; ++index) {
    const struct wire_cuda_stream* const stream = &kansoku.shared->streams[index];
    if (stream->state != 1) continue;
    struct kansoku_context* const context = &kansoku.contexts[stream->context];
    if (context->handle == current && is_alone(context, call->thread->tid))
      kansoku_known_done(index, stream->operations);
  }
}

/* The next place of the thread's queue; null: it is full. */
static struct kansoku_op* free_slot(struct kansoku_thread* thread) {
  const uint32_t head = atomic_load_explicit(&thread->head, memory_order_relaxed);
  return head - atomic_load_explicit(&thread->tail, memory_order_acquire) >= KANSOKU_QUEUE_SLOTS
             ? NULL
             : &thread->queue[head % KANSOKU_QUEUE_SLOTS];
}

static void publish(struct kansoku_thread* thread) {
  atomic_store_explicit(&thread->head,
                        atomic_load_explicit(&thread->head, memory_order_relaxed) + 1,
                        memory_order_release);
  atomic_fetch_add_explicit((_Atomic uint64_t*)&kansoku.shared->state.timed, 1,
                            memory_order_relaxed);
}

static void lose_op(const struct kansoku_op* op) {
  atomic_fetch_add_explicit((_Atomic uint64_t*)&kansoku.shared->state.losses.queue_full,
                            op->launches, memory_order_relaxed);
  kansoku_give_pair(&kansoku.contexts[op->context], op->pair);
  if (op->twin != NULL) kansoku_twin_release(op->twin);
}

void kansoku_hand_over(struct kansoku_thread* thread, const struct kansoku_op* op) {
  struct kansoku_op* const slot = free_slot(thread);
  if (slot == NULL) {
    lose_op(op);
    return;
  }
  *slot = *op;
  publish(thread);
}

static void describe(const struct kansoku_call* call, struct kansoku_op* op) {
  op->record = call->record;
  op->record.flags |= WIRE_CUDA_TIMED;
  op->pair = call->pair;
  op->context = call->context;
  op->base = call->base;
  op->number = call->number;
  op->is_mark = 0;
  op->launches = 1;
  op->twin = call->twin;
}

static void hand_over(struct kansoku_call* call) {
  struct kansoku_op* const slot = free_slot(call->thread);
  if (slot != NULL) {
    describe(call, slot);
    publish(call->thread);
    return;
  }
  struct kansoku_op op;
  describe(call, &op);
  lose_op(&op);
}

static void open_chain(struct kansoku_call* call) {
  struct kansoku_op op;
  describe(call, &op);
  kansoku_chain_open(call, &op);
}

static void set_host_time(struct kansoku_call* call) {
  if (call->record.host_begin_ns == 0) return;
  const uint64_t took = kansoku_now() - call->record.host_begin_ns;
  call->record.host_ns = took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
}

/* Unique in the process, one after the other in a thread. */
static uint32_t next_correlation(struct kansoku_thread* thread) {
  if (thread->correlations_left == 0) {
    thread->correlation =
        atomic_fetch_add_explicit(&kansoku.correlation, CORRELATIONS_AT_ONCE, memory_order_relaxed);
    thread->correlations_left = CORRELATIONS_AT_ONCE;
  }
  --thread->correlations_left;
  return ++thread->correlation;
}

/* True if another thread used the stream between the events. As long as a context has one thread,
 * nobody could; the operation during which the second one came is as good as disturbed. */
static int is_disturbed(const struct kansoku_call* call, struct kansoku_stream_state* state) {
  if (call->is_alone)
    return atomic_load_explicit(&kansoku.contexts[call->context].has_many_threads,
                                memory_order_acquire);
  return atomic_fetch_add_explicit(&state->sequence, 1, memory_order_acq_rel) != call->sequence;
}

/* Two of a kind: streams without chains, nearly all, pay for none. */
static inline __attribute__((always_inline)) void end_operation(struct kansoku_call* call,
                                                                struct kansoku_stream_state* state,
                                                                const int has_chains) {
  if (call->is_measured) call->mark = __rdtsc();
  const int is_timed = call->pair != KANSOKU_NONE && call->result == CUDA_SUCCESS;
  const int is_put_off =
      has_chains && is_timed && call->chain == KANSOKU_CHAIN_OPENS && kansoku_chain_puts_off(call);
  if (is_put_off) call->event_ticks *= 2; /* the end will cost as much, in another call */
  if (call->pair != KANSOKU_NONE) {
    set_host_time(call);
    if (is_timed && !is_put_off)
      record_event(call, kansoku.contexts[call->context].end[call->pair]);
  }
  const int was_disturbed = is_disturbed(call, state);
  if (call->result == CUDA_SUCCESS) number(call, call->what);
  if (has_chains && call->chain == KANSOKU_CHAIN_JOINS) {
    kansoku_chain_joined(call);
    return;
  }
  const int is_whole = call->pair != KANSOKU_NONE && call->result == CUDA_SUCCESS && !was_disturbed;
  if (is_whole && is_put_off)
    open_chain(call);
  else if (has_chains)
    kansoku_chain_passed(call, is_timed && !is_put_off && call->pair != KANSOKU_NONE);
  if (is_whole) {
    if (call->what == WIRE_CUDA_LAUNCH)
      kansoku_learn_attributes(call->record.u.launch.kernel, call->function,
                               kansoku.shared->contexts[call->context].device);
    if (!is_put_off) hand_over(call);
    return;
  }
  if (call->twin != NULL) kansoku_twin_release(call->twin); /* nobody reads its events */
  if (call->pair == KANSOKU_NONE) return;
  if (call->result == CUDA_SUCCESS) KANSOKU_LOSE(interleaved);
  kansoku_give_pair(&kansoku.contexts[call->context], call->pair);
  call->pair = KANSOKU_NONE;
}

static __attribute__((noinline)) void end_with_chains(struct kansoku_call* call,
                                                      struct kansoku_stream_state* state) {
  end_operation(call, state, 1);
}

void kansoku_stream_end(struct kansoku_call* call) {
  if (call->thread == NULL) return;
  const int is_recorded = call->pair != KANSOKU_NONE || call->mode == WIRE_CUDA_EVERY;
  if (call->result == CUDA_SUCCESS && is_recorded)
    call->record.correlation = next_correlation(call->thread);
  if (call->stream == KANSOKU_NONE) return;
  struct kansoku_stream_state* const state = &kansoku.streams[call->stream];
  if (__builtin_expect(call->chain != KANSOKU_CHAIN_NONE, 0))
    end_with_chains(call, state);
  else
    end_operation(call, state, 0);
}

#define ADD(member, value) \
  atomic_fetch_add_explicit((_Atomic uint64_t*)&(member), (value), memory_order_relaxed)

/* A counter that only this thread adds to needs no locked instruction. */
static void add(const struct kansoku_thread* thread, __u64* counter, uint64_t value) {
  _Atomic uint64_t* const word = (_Atomic uint64_t*)counter;
  if (thread->is_exclusive)
    atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + value,
                          memory_order_relaxed);
  else
    atomic_fetch_add_explicit(word, value, memory_order_relaxed);
}

/* Notes the launch sites of a kernel's first launches. */
static void learn_site(const struct kansoku_call* call, struct wire_cuda_kernel* kernel) {
  const uint16_t site = (uint16_t)kansoku_stack_here(call->mode);
  for (uint32_t i = 0; site != 0 && i < WIRE_CUDA_SITES; ++i) {
    uint16_t known = 0;
    if (atomic_compare_exchange_strong((_Atomic uint16_t*)&kernel->sites[i], &known, site) ||
        known == site)
      return;
  }
}

static void count(struct kansoku_call* call) {
  const struct kansoku_thread* const thread = call->thread;
  struct wire_cuda_tally* const tally = &thread->shard->entries[call->entry];
  add(thread, &tally->calls, 1);
  if (call->result != CUDA_SUCCESS) {
    add(thread, &tally->failed, 1);
    return;
  }
  const int is_captured_call = (call->record.flags & WIRE_CUDA_CAPTURED) != 0;
  if (is_captured_call) add(thread, &tally->captured, 1);
  if (call->bytes != 0 && !is_captured_call) add(thread, &tally->bytes, call->bytes);
  if (call->more != 0 && !is_captured_call) add(thread, &tally->more, (uint64_t)call->more);
  if (call->what == WIRE_CUDA_LAUNCH && call->record.u.launch.kernel < WIRE_CUDA_KERNELS_MAX) {
    struct wire_cuda_kernel* const kernel = &kansoku.shared->kernels[call->record.u.launch.kernel];
    const uint64_t before = is_captured_call ? ADD(kernel->captured, 1) : ADD(kernel->launches, 1);
    if (before < SITE_LAUNCHES) learn_site(call, kernel);
  }
}

/* Calls that are records of their own; a timed operation becomes one when it is complete. */
static int is_worth_a_record(const struct kansoku_call* call) {
  const uint32_t what = call->what;
  if (call->record.host_begin_ns == 0 || call->pair != KANSOKU_NONE) return 0;
  if (what == WIRE_CUDA_SYNC)
    return call->mode == WIRE_CUDA_EVERY || call->record.host_ns >= LONG_WAIT_NS;
  if (what == WIRE_CUDA_ALLOC || what == WIRE_CUDA_FREE || what == WIRE_CUDA_MODULE) return 1;
  return call->mode == WIRE_CUDA_EVERY && what <= WIRE_CUDA_VALUE;
}

void kansoku_end(struct kansoku_call* call) {
  if (call->thread == NULL) return;
  if (call->is_waiter)
    atomic_store_explicit((_Atomic uint64_t*)&call->thread->waiter->since_ns, 0,
                          memory_order_relaxed);
  count(call);
  if (call->pair == KANSOKU_NONE && call->record.host_begin_ns != 0) {
    set_host_time(call);
    if (is_worth_a_record(call)) {
      if (call->result != CUDA_SUCCESS) {
        call->record.flags |= WIRE_CUDA_FAILED;
        call->record.device_ns = (uint64_t)call->result;
      }
      if (call->what == WIRE_CUDA_ALLOC)
        call->record.device_begin_ns = kansoku_stack_here(call->mode);
      kansoku_write(&call->record);
    }
  }
  if (call->is_measured && call->pair != KANSOKU_NONE) {
    mark(call, &call->own_ticks);
    /* One that was taken off its processor would price all the others. */
    if ((double)(call->own_ticks + call->event_ticks) * kansoku.ns_a_tick > PRICE_MAX_NS) return;
    struct wire_cuda_state* const state = &kansoku.shared->state;
    ADD(state->own_ns, (uint64_t)((double)call->own_ticks * kansoku.ns_a_tick));
    ADD(state->event_ns, (uint64_t)((double)call->event_ticks * kansoku.ns_a_tick));
    ADD(state->sampled, 1);
  }
}
