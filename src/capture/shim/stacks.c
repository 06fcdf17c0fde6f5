/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks of allocations: call stacks of threads of the process itself, walked by the unwinder that
 * its exceptions use, each kept once. Never on the way of a launch. */
#include <dlfcn.h>
#include <string.h>
#include <unwind.h>

#include "capture/shim/internal/shim.h"

/* Processor time, of the time since the library was switched on; what was saved may be spent at
 * once. */
#define SHARE_EVERY 0.02
#define SHARE_SAMPLED 0.004
#define SAVED_EVERY_NS 50e6
#define SAVED_SAMPLED_NS 10e6
#define PROBES_MAX 16U

static __typeof__(&_Unwind_Backtrace) walk_frames;
static __typeof__(&_Unwind_GetIP) address_of;
static _Atomic uint64_t spent_ns, spent_since_ns;

/* By the linker: where this library begins, and where its code ends. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));

/* At load: later, a lock of the loader could be another thread's. No dependency: a program without
 * the unwinder has no stacks. */
void kansoku_stacks_load(void) {
  void* const unwinder = dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL);
  if (unwinder == NULL) return;
  address_of = (__typeof__(address_of))(uintptr_t)dlsym(unwinder, "_Unwind_GetIP");
  if (address_of != NULL)
    walk_frames = (__typeof__(walk_frames))(uintptr_t)dlsym(unwinder, "_Unwind_Backtrace");
}

struct walk {
  uint64_t addresses[WIRE_CUDA_STACK_FRAMES];
  uint32_t count;
};

static _Unwind_Reason_Code take_frame(struct _Unwind_Context* context, void* walk_of) {
  struct walk* const walk = walk_of;
  const uint64_t address = address_of(context);
  if (address == 0) return _URC_END_OF_STACK;
  if (address >= (uintptr_t)__ehdr_start && address < (uintptr_t)etext) return _URC_NO_REASON;
  walk->addresses[walk->count++] = address;
  return walk->count < WIRE_CUDA_STACK_FRAMES ? _URC_NO_REASON : _URC_END_OF_STACK;
}

/* Two stacks of one hash count as one: 64 bits. Never 0. */
static uint64_t hash_of(const struct walk* walk) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (uint32_t i = 0; i < walk->count; ++i) {
    hash = (hash ^ walk->addresses[i]) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  return hash == 0 ? 1 : hash;
}

static uint32_t keep(const struct walk* walk) {
  const uint64_t hash = hash_of(walk);
  for (uint32_t i = 0; i < PROBES_MAX; ++i) {
    const uint32_t index = (uint32_t)((hash + i) % WIRE_CUDA_STACKS_MAX);
    struct wire_cuda_stack* const stack = &kansoku.shared->stacks[index];
    uint64_t known = 0;
    if (!atomic_compare_exchange_strong((_Atomic uint64_t*)&stack->hash, &known, hash)) {
      if (known == hash) return index + 1;
      continue;
    }
    memcpy(stack->addresses, walk->addresses, sizeof stack->addresses);
    atomic_store_explicit((_Atomic uint32_t*)&stack->count, walk->count, memory_order_release);
    return index + 1;
  }
  KANSOKU_LOSE(stacks_over_limit);
  return 0;
}

static int may_spend(uint32_t mode, uint64_t now) {
  const uint64_t since = atomic_load_explicit((_Atomic uint64_t*)&kansoku.shared->state.switched_ns,
                                              memory_order_relaxed);
  if (atomic_exchange_explicit(&spent_since_ns, since, memory_order_relaxed) != since)
    atomic_store_explicit(&spent_ns, 0, memory_order_relaxed);
  const double share = mode == WIRE_CUDA_EVERY ? SHARE_EVERY : SHARE_SAMPLED;
  const double saved = mode == WIRE_CUDA_EVERY ? SAVED_EVERY_NS : SAVED_SAMPLED_NS;
  const double spent = (double)atomic_load_explicit(&spent_ns, memory_order_relaxed);
  return spent <= saved + share * (double)(now > since ? now - since : 0);
}

/* Processor time of this thread: one that is taken off its processor in the middle has not spent
 * that. */
static uint64_t processor_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

uint32_t kansoku_stack_here(uint32_t mode) {
  if (walk_frames == NULL) return 0;
  if (!may_spend(mode, kansoku_now())) {
    KANSOKU_LOSE(stacks_skipped);
    return 0;
  }
  const uint64_t begin = processor_ns();
  struct walk walk;
  memset(&walk, 0, sizeof walk);
  walk_frames(take_frame, &walk);
  /* A single one is where somebody's return probe hides the caller: it tells nothing. */
  const uint32_t kept = walk.count < 2 ? 0 : keep(&walk);
  atomic_fetch_add_explicit(&spent_ns, processor_ns() - begin, memory_order_relaxed);
  return kept;
}
