/* SPDX-License-Identifier: Apache-2.0 */
/* Chains: launches with programmatic attributes and the one in front of them. An event between two
 * of them would end their overlap, so a chain has one begin and one end.
 *
 * Only the next call shows that a launch is followed by a programmatic one. On streams that have
 * had such launches the end event of a launch therefore waits for the operation behind it. An
 * event that comes late is right only while the stream is still at work; an idle stream's end is
 * not known any more, and counted. So what followed each launch the last times is remembered by the
 * kernels of its chain, and where nothing did, the end is recorded at once, as elsewhere. */
#include <string.h>

#include "capture/shim/internal/shim.h"

#define LAUNCHES_MAX 256U /* of a chain, so that what never ends has times at all */
#define HABITS (1U << 16)
#define ALONE_TIMES 2U /* so often in a row nothing followed: nothing will */

enum chain_state {
  CLOSED = 0,
  OPEN = 1, /* has begun, and its end waits for the next operation */
  BUSY = 2  /* a thread is at it */
};
static struct chain {
  _Atomic uint32_t state;        /* enum chain_state */
  _Atomic uint32_t is_disturbed; /* another thread came while one was at it */
  _Atomic uint32_t turn;         /* grows with each launch that opens or joins */
  _Atomic uint32_t seen;         /* turn that the library's thread saw last */
  /* The last operation may have no event in front of the next one, if that is programmatic. */
  _Atomic uint32_t is_parted; /* an event is behind it, or it overlaps with nothing */
  _Atomic uint32_t is_early;  /* the event was recorded at once */
  _Atomic uint32_t run;       /* launches without an event between them */
  _Atomic uint32_t habit;     /* of the last launch: its place in `habits` */
  _Atomic uint32_t last;      /* kernel */
  struct kansoku_op op;       /* of its holder */
  uint64_t switched_ns;       /* when it began: of this time that the library is switched on */
} chains[WIRE_CUDA_STREAMS_MAX];
/* How often in a row no programmatic launch followed. */
static _Atomic uint8_t habits[HABITS];
static _Atomic uint32_t are_any;

#define GET(word) atomic_load_explicit(&(word), memory_order_relaxed)
#define SET(word, value) atomic_store_explicit(&(word), (value), memory_order_relaxed)

static void lose(__u64* counter, uint32_t count) {
  atomic_fetch_add_explicit((_Atomic uint64_t*)counter, count, memory_order_relaxed);
}
#define LOSE(member, count) lose(&kansoku.shared->state.losses.member, (count))

static uint32_t habit_of(uint32_t before, uint32_t kernel) {
  return (uint32_t)((before * 0x10001ULL + kernel + 1) * 0x9e3779b97f4a7c15ULL >> 48) % HABITS;
}

static void learn(struct chain* chain, int is_followed) {
  _Atomic uint8_t* const habit = &habits[GET(chain->habit)];
  const uint8_t times = GET(*habit);
  if (is_followed && times != 0) SET(*habit, 0);
  if (!is_followed && times < ALONE_TIMES) SET(*habit, (uint8_t)(times + 1));
}

static int may_be_followed(const struct chain* chain) {
  return GET(habits[GET(chain->habit)]) < ALONE_TIMES;
}

static int take(struct chain* chain, uint32_t from) {
  return atomic_compare_exchange_strong(&chain->state, &from, BUSY);
}

static void leave(struct chain* chain, enum chain_state to) {
  if (to == OPEN) atomic_fetch_add(&chain->turn, 1);
  atomic_store(&chain->state, to);
}

/* The chain has no time. */
static void drop(struct chain* chain, __u64* counter) {
  lose(counter, chain->op.launches);
  kansoku_give_pair(&kansoku.contexts[chain->op.context], chain->op.pair);
}

/* While any stream is captured, such a question may be forbidden to this thread. */
static int is_at_work(CUstream handle) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  const int is_guarded = atomic_load(&kansoku.captures) != 0;
  if (is_guarded) kansoku_driver.exchange_mode(&mode);
  const int is_working = kansoku_driver.stream_query(handle) == CUDA_ERROR_NOT_READY;
  if (is_guarded) kansoku_driver.exchange_mode(&mode);
  return is_working;
}

/* Records the end of a chain that the caller has taken. 0: it has none. */
static int close_taken(struct chain* chain, uint32_t stream, CUstream handle, int is_late) {
  struct wire_cuda_losses* const losses = &kansoku.shared->state.losses;
  const struct kansoku_op* const op = &chain->op;
  int is_closed = 0;
  SET(chain->is_parted, 0);
  SET(chain->is_early, !is_late);
  const struct kansoku_context* const context = &kansoku.contexts[op->context];
  const int is_legacy = (kansoku.shared->streams[stream].kind & WIRE_CUDA_LEGACY) != 0;
  if (chain->switched_ns != kansoku.shared->state.switched_ns) {
    drop(chain, &losses->programmatic); /* unseen operations may lie between */
  } else if (is_legacy &&
             ((atomic_load(&context->has_many_threads) && kansoku_legacy_is_awaited()) ||
              atomic_load(&kansoku.captures) != 0)) {
    drop(chain, &losses->legacy);
  } else if (is_late && !is_at_work(handle)) {
    SET(chain->is_parted, 1);
    kansoku_known_done(stream, op->number + 1);
    drop(chain, &losses->programmatic);
  } else if (kansoku_driver.event_record(context->end[op->pair], handle) != CUDA_SUCCESS) {
    drop(chain, &losses->event_error);
  } else {
    SET(chain->is_parted, 1);
    SET(chain->run, 0);
    is_closed = !atomic_load(&chain->is_disturbed);
    if (!is_closed) drop(chain, &losses->interleaved);
  }
  return is_closed;
}

static void close_here(struct kansoku_thread* thread, struct chain* chain, uint32_t stream,
                       CUstream handle, int is_late) {
  const int is_closed = close_taken(chain, stream, handle, is_late);
  const struct kansoku_op op = chain->op;
  leave(chain, CLOSED);
  if (is_closed) kansoku_hand_over(thread, &op);
}

/* Before each programmatic launch: from the first one of a stream on, its ends are put off. */
void kansoku_chain_expect(const struct kansoku_call* call) {
  _Atomic uint32_t* const has_chains = &kansoku.streams[call->stream].has_chains;
  if (GET(*has_chains)) return;
  const struct wire_cuda_stream* const stream = &kansoku.shared->streams[call->stream];
  const uint32_t operations = atomic_load((const _Atomic uint32_t*)&stream->operations);
  const uint32_t last =
      kansoku.shared->recent[call->stream].operations[(operations - 1) % WIRE_CUDA_RECENT];
  const int is_behind_launch = operations == 0 || WIRE_CUDA_RECENT_WHAT(last) == WIRE_CUDA_LAUNCH;
  /* If each operation is timed, an event is behind the last one. */
  const int is_early = is_behind_launch && call->mode == WIRE_CUDA_EVERY && operations != 0;
  if (is_early) LOSE(parted, 1);
  SET(chains[call->stream].is_parted, is_early || !is_behind_launch);
  SET(are_any, 1);
  SET(*has_chains, 1);
}

int kansoku_chain_begin(struct kansoku_call* call, int is_turn) {
  struct chain* const chain = &chains[call->stream];
  const int is_programmatic = (call->record.flags & WIRE_CUDA_PROGRAMMATIC) != 0;
  call->chain = KANSOKU_CHAIN_PASSES;
  if (take(chain, OPEN)) {
    learn(chain, is_programmatic);
    if (is_programmatic) {
      call->chain = KANSOKU_CHAIN_JOINS;
      return 0;
    }
    close_here(call->thread, chain, call->stream, call->handle, /*is_late=*/1);
  } else if (atomic_load(&chain->state) == BUSY) {
    atomic_store(&chain->is_disturbed, 1);
    if (is_turn) LOSE(interleaved, 1);
    return 0;
  } else if (GET(chain->is_early)) {
    learn(chain, is_programmatic);
    if (is_programmatic) LOSE(parted, 1);
  }
  SET(chain->is_early, 0);
  if (is_programmatic && !GET(chain->is_parted)) {
    if (!is_turn || GET(chain->run) < LAUNCHES_MAX) {
      if (call->mode == WIRE_CUDA_EVERY) LOSE(programmatic, 1);
      return 0;
    }
  }
  if (!is_turn) return 0;
  if (call->what != WIRE_CUDA_LAUNCH) return 1;
  if (!take(chain, CLOSED)) {
    atomic_store(&chain->is_disturbed, 1);
    LOSE(interleaved, 1);
    return 0;
  }
  atomic_store(&chain->is_disturbed, 0);
  call->chain = KANSOKU_CHAIN_OPENS;
  return 1;
}

/* 1: the end event is put off. */
int kansoku_chain_puts_off(struct kansoku_call* call) {
  struct chain* const chain = &chains[call->stream];
  SET(chain->habit, habit_of(GET(chain->last), call->record.u.launch.kernel));
  return may_be_followed(chain);
}

/* One in many does not overlap, so that a stream of nothing else has times at all. */
static void count_parted(const struct chain* chain, const struct kansoku_call* call) {
  if ((call->record.flags & WIRE_CUDA_PROGRAMMATIC) != 0 && !GET(chain->is_parted)) LOSE(parted, 1);
}

void kansoku_chain_open(struct kansoku_call* call, const struct kansoku_op* op) {
  struct chain* const chain = &chains[call->stream];
  count_parted(chain, call);
  chain->op = *op;
  chain->op.launches = 1;
  chain->switched_ns = kansoku.shared->state.switched_ns;
  SET(chain->is_parted, 0);
  SET(chain->run, 1);
  SET(chain->last, op->record.u.launch.kernel);
  leave(chain, OPEN);
}

/* Behind the call of one that joins; `number` is its own. */
void kansoku_chain_joined(struct kansoku_call* call) {
  struct chain* const chain = &chains[call->stream];
  if (call->result != CUDA_SUCCESS) {
    leave(chain, OPEN);
    return;
  }
  chain->op.number = call->number;
  ++chain->op.launches;
  SET(chain->run, GET(chain->run) + 1);
  SET(chain->last, call->record.u.launch.kernel);
  SET(chain->habit, habit_of(GET(chain->habit), call->record.u.launch.kernel));
  if (may_be_followed(chain) && chain->op.launches < LAUNCHES_MAX)
    leave(chain, OPEN);
  else
    close_here(call->thread, chain, call->stream, call->handle, /*is_late=*/0);
}

/* Behind any other call on a stream with chains. */
void kansoku_chain_passed(struct kansoku_call* call, int is_ended) {
  struct chain* const chain = &chains[call->stream];
  const int is_launch = call->what == WIRE_CUDA_LAUNCH;
  if (call->result == CUDA_SUCCESS) {
    if (is_ended) count_parted(chain, call);
    SET(chain->is_parted, is_ended || !is_launch);
    SET(chain->is_early, is_ended && is_launch && call->chain == KANSOKU_CHAIN_OPENS);
    SET(chain->run, is_ended || !is_launch ? 0 : GET(chain->run) + 1);
    if (is_launch) SET(chain->last, call->record.u.launch.kernel);
  }
  if (call->chain == KANSOKU_CHAIN_OPENS) leave(chain, CLOSED);
}

/* `parts`: what follows is not behind the last operation alone. */
static void settle(struct kansoku_thread* thread, uint32_t stream, CUstream handle, int parts) {
  struct chain* const chain = &chains[stream];
  if (take(chain, OPEN)) {
    learn(chain, 0);
    close_here(thread, chain, stream, handle, /*is_late=*/1);
    SET(chain->is_early, 0);
  } else if (atomic_load(&chain->state) == BUSY) {
    atomic_store(&chain->is_disturbed, 1);
  }
  if (!parts) return;
  if (GET(chain->is_early)) learn(chain, 0);
  SET(chain->is_early, 0);
  SET(chain->is_parted, 1);
}

/* Before the host or another stream depends on this one. */
void kansoku_settle(struct kansoku_call* call, CUstream handle, int is_per_thread, int parts) {
  if (call->thread == NULL || !GET(are_any) || kansoku_is_captured(handle, is_per_thread)) return;
  const uint32_t stream = kansoku_stream_index(call->thread, handle, is_per_thread);
  if (stream == KANSOKU_NONE || !kansoku.streams[stream].has_chains) return;
  settle(call->thread, stream, handle == NULL && is_per_thread ? (CUstream)2 : handle, parts);
}

/* Before the host waits for all of the current context. */
void kansoku_settle_context(struct kansoku_call* call) {
  CUcontext current = NULL;
  if (call->thread == NULL || !GET(are_any) || atomic_load(&kansoku.captures) != 0) return;
  kansoku_driver.ctx_get_current(&current);
  /* No other thread destroys a stream meanwhile. */
  if (!kansoku_lock_for_a_moment(&kansoku_mark_lock)) return;
  const uint32_t top = atomic_load(&kansoku_streams_top);
  for (uint32_t index = 0; index < top; ++index) {
    const struct wire_cuda_stream* const stream = &kansoku.shared->streams[index];
    const int is_per_thread = (stream->kind & WIRE_CUDA_PER_THREAD) != 0;
    if (stream->state != 1 || !kansoku.streams[index].has_chains ||
        kansoku.contexts[stream->context].handle != current ||
        (is_per_thread && stream->handle != call->thread->tid))
      continue;
    settle(call->thread, index, is_per_thread ? (CUstream)2 : (CUstream)(uintptr_t)stream->handle,
           1);
  }
  pthread_mutex_unlock(&kansoku_mark_lock);
}

int kansoku_chain_is_closed(uint32_t stream) {
  return atomic_load(&chains[stream].state) == CLOSED;
}

int kansoku_chains_are_closed(void) {
  const uint32_t top = atomic_load(&kansoku_streams_top);
  for (uint32_t stream = 0; stream < top; ++stream)
    if (!kansoku_chain_is_closed(stream)) return 0;
  return 1;
}

void kansoku_chain_forget(uint32_t stream) {
  struct chain* const chain = &chains[stream];
  SET(chain->is_parted, 0);
  SET(chain->is_early, 0);
  SET(chain->run, 0);
}

/* The library's thread; nothing more comes to the chain. */
void kansoku_chain_drop(uint32_t stream) {
  struct chain* const chain = &chains[stream];
  if (!take(chain, OPEN)) return;
  const int is_gone = kansoku.shared->streams[stream].state != 1;
  struct wire_cuda_losses* const losses = &kansoku.shared->state.losses;
  drop(chain, is_gone ? &losses->lost_context : &losses->programmatic);
  leave(chain, CLOSED);
}

/* The library's thread, under kansoku_mark_lock: ends a chain to which nothing came since it looked
 * last. 1: it is `op`. */
int kansoku_chain_end_quiet(uint32_t stream, int is_hurried, struct kansoku_op* op) {
  struct chain* const chain = &chains[stream];
  const uint32_t turn = atomic_load(&chain->turn);
  if (GET(chain->seen) != turn && !is_hurried) {
    SET(chain->seen, turn);
    return 0;
  }
  if (!take(chain, OPEN)) return 0;
  learn(chain, 0);
  const CUstream handle = (CUstream)(uintptr_t)kansoku.shared->streams[stream].handle;
  const int is_closed = close_taken(chain, stream, handle, /*is_late=*/1);
  SET(chain->is_early, 0);
  *op = chain->op;
  leave(chain, CLOSED);
  return is_closed;
}
