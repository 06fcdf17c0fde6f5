/* SPDX-License-Identifier: Apache-2.0 */
/* The memory shared with a recorder, the threads that write into it, and its ring. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capture/shim/internal/shim.h"

#define FIRST_LEASE_NS 5000000000ULL
#define END_WAIT_NS 400000000ULL
#define END_WAIT_ALONE_NS 150000000ULL /* the recorder may not have seen the process yet */

struct kansoku_process kansoku;

static pthread_key_t thread_key;

/* Sealed, so that a recorder that has mapped it is never cut off from its pages. */
static struct wire_cuda* map_shared(void) {
  const int fd = memfd_create(WIRE_CUDA_MEMFD, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  void* memory = MAP_FAILED;
  if (fd < 0) return NULL;
  if (ftruncate(fd, sizeof(struct wire_cuda)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
    memory = mmap(NULL, sizeof(struct wire_cuda), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return memory == MAP_FAILED ? NULL : memory;
}

/* A page that is zero in every forked child, whichever way it was forked. */
static volatile const uint32_t* make_canary(void) {
  uint32_t* const page =
      mmap(NULL, WIRE_CUDA_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return NULL;
  if (madvise(page, WIRE_CUDA_PAGE, MADV_WIPEONFORK) != 0) {
    munmap(page, WIRE_CUDA_PAGE);
    return NULL;
  }
  *page = 1;
  return page;
}

static void thread_ends(void* ended) {
  struct kansoku_thread* const thread = ended;
  kansoku_forget_self();
  atomic_store((_Atomic uint64_t*)&thread->waiter->since_ns, 0);
  if (kansoku.canary != NULL && *kansoku.canary != 0) kansoku_thread_streams_gone(thread->tid);
  atomic_store(&thread->state, 2);
}

static void fill_head(struct wire_cuda* shared) {
  int version = 0;
  shared->head.version = WIRE_CUDA_VERSION;
  shared->head.bytes_low = (uint32_t)sizeof *shared;
  shared->head.pid = getpid();
  if (kansoku_driver.version != NULL) kansoku_driver.version(&version);
  shared->head.driver_version = version;
  shared->head.started_ns = kansoku_now();
  strcpy(shared->head.driver_path, kansoku_driver_path);
  for (unsigned i = 0; i < kansoku_hook_count && i < WIRE_CUDA_ENTRIES_MAX; ++i) {
    shared->entries[i].name = kansoku_text(kansoku_hooks[i].symbol);
    shared->entries[i].what = kansoku_hooks[i].what;
  }
  shared->head.entry_count = kansoku_hook_count;
  atomic_store((_Atomic uint64_t*)&shared->head.magic, WIRE_CUDA_MAGIC);
}

/* The recorder that started the program: it lives, and will come however short the program is. */
static int has_recorder(void) {
  const char* const text = getenv("KANSOKU_CUDA_RECORDER");
  const long pid = text == NULL ? 0 : strtol(text, NULL, 10); /* allowed: C; 0 if it is none */
  return pid > 0 && pid <= INT32_MAX && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

/* At the program's end what a recorder has not read yet would be gone with the process. Only while
 * one records, and for a moment at most. */
static void at_end(void) {
  const struct timespec pause = {0, 2000000};
  struct wire_cuda* const shared = kansoku.shared;
  if (*kansoku.canary == 0) return;
  if (atomic_load(&kansoku.mode) == WIRE_CUDA_DORMANT) {
    kansoku_stop();
    return;
  }
  uint64_t begin = kansoku_now();
  int was_held = 0;
  const int is_awaited = has_recorder();
  kansoku_hurry();
  for (;;) {
    const uint64_t now = kansoku_now();
    const int is_read =
        kansoku_is_drained() && atomic_load((_Atomic uint64_t*)&shared->control.tail) ==
                                    atomic_load((_Atomic uint64_t*)&shared->state.head);
    const int is_held = atomic_load((_Atomic uint64_t*)&shared->control.owner) != 0;
    if (is_held && !was_held) begin = now;
    was_held |= is_held;
    const uint64_t limit = is_held ? END_WAIT_NS : is_awaited ? FIRST_LEASE_NS : END_WAIT_ALONE_NS;
    if ((is_read && (is_held || !is_awaited)) || now - begin > limit ||
        now > atomic_load((_Atomic uint64_t*)&shared->control.lease_until_ns))
      break;
    nanosleep(&pause, NULL);
  }
  kansoku_stop();
}

/* A recorder that starts the program wants all of it: "every", "sampled" or a number N for one
 * operation in N, from the first call on. It has to come for it within the lease. */
static void set_first_mode(struct wire_cuda* shared) {
  const char* const wanted = getenv("KANSOKU_CUDA");
  if (wanted == NULL || *wanted == '\0') return;
  const int is_every = strcmp(wanted, "every") == 0;
  if (!is_every && strcmp(wanted, "sampled") != 0) {
    char* end = NULL;
    const unsigned long n = strtoul(wanted, &end, 10); /* allowed: C; the end is checked */
    if (*end != '\0' || n == 0 || n > UINT32_MAX) return;
    shared->control.every_n = (uint32_t)n;
  }
  shared->control.mode = is_every ? WIRE_CUDA_EVERY : WIRE_CUDA_SAMPLED;
  shared->control.ranges = 1;
  shared->control.lease_until_ns = kansoku_now() + FIRST_LEASE_NS;
}

static void start(void) {
  struct kansoku_context* const contexts =
      mmap(NULL, sizeof(struct kansoku_context) * WIRE_CUDA_CONTEXTS_MAX, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  volatile const uint32_t* const canary = make_canary();
  struct wire_cuda* const shared = map_shared();
  if (contexts == MAP_FAILED || canary == NULL || shared == NULL ||
      pthread_key_create(&thread_key, thread_ends) != 0)
    return;
  for (unsigned i = 0; i < WIRE_CUDA_CONTEXTS_MAX; ++i)
    pthread_mutex_init(&contexts[i].lock, NULL);
  kansoku.contexts = contexts;
  kansoku.canary = canary;
  shared->names_used = 1; /* offset 0: no name */
  kansoku.shared = shared;
  set_first_mode(shared);
  const char* const keeps_graphs = getenv("KANSOKU_CUDA_GRAPHS");
  kansoku.keeps_graphs = keeps_graphs != NULL && strcmp(keeps_graphs, "1") == 0;
  fill_head(shared);
  kansoku_nvtx_shared();
  kansoku_start_poller();
  atexit(at_end);
}

void kansoku_started(CUresult result) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (result == CUDA_SUCCESS) pthread_once(&once, start);
}

_Atomic uint32_t kansoku_threads_top;

/* A place for this thread; one of a thread that ended serves again once its queue is read. */
struct kansoku_thread* kansoku_thread_new(void) {
  for (unsigned i = 0; i < KANSOKU_THREADS_MAX; ++i) {
    struct kansoku_thread* const thread = &kansoku.threads[i];
    uint32_t is_free = 0;
    if (!atomic_compare_exchange_strong(&thread->state, &is_free, 1)) continue;
    if (thread->queue == NULL) {
      void* const queue = mmap(NULL, sizeof(struct kansoku_op) * KANSOKU_QUEUE_SLOTS,
                               PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (queue == MAP_FAILED) {
        atomic_store(&thread->state, 0);
        break;
      }
      thread->queue = queue;
    }
    thread->is_exclusive = i < WIRE_CUDA_SHARDS - 1;
    thread->shard = &kansoku.shared->shards[i < WIRE_CUDA_SHARDS ? i : WIRE_CUDA_SHARDS - 1];
    thread->tid = (uint32_t)syscall(SYS_gettid);
    thread->waiter = &kansoku.shared->waiters[i];
    thread->random = 0x9e3779b97f4a7c15ULL * (i + 1);
    thread->until_timed = 1;
    thread->last_stream = KANSOKU_NONE;
    uint32_t top = atomic_load(&kansoku_threads_top);
    while (top < i + 1 && !atomic_compare_exchange_weak(&kansoku_threads_top, &top, i + 1)) {
    }
    pthread_setspecific(thread_key, thread);
    return thread;
  }
  KANSOKU_LOSE(threads_over_limit);
  return NULL;
}

void kansoku_write(struct wire_cuda_record* record) {
  struct wire_cuda* const shared = kansoku.shared;
  _Atomic uint64_t* const head = (_Atomic uint64_t*)&shared->state.head;
  uint64_t at = atomic_load_explicit(head, memory_order_relaxed);
  do {
    const uint64_t tail =
        atomic_load_explicit((_Atomic uint64_t*)&shared->control.tail, memory_order_acquire);
    if (at - tail >= WIRE_CUDA_RING_SLOTS) { /* also of a tail that makes no sense */
      KANSOKU_LOSE(ring_full);
      return;
    }
  } while (!atomic_compare_exchange_weak_explicit(head, &at, at + 1, memory_order_relaxed,
                                                  memory_order_relaxed));
  struct wire_cuda_record* const slot = &shared->ring[at % WIRE_CUDA_RING_SLOTS];
  memcpy((char*)slot + 8, (const char*)record + 8, sizeof *slot - 8);
  atomic_store_explicit((_Atomic uint64_t*)&slot->turn, at + 1, memory_order_release);
}
