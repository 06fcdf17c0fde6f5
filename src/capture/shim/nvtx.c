/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges and marks of NVTX. A program that was compiled with NVTX's headers opens the library that
 * NVTX_INJECTION64_PATH names at its first range, and calls InitializeInjectionNvtx2(), which puts
 * functions into the program's table. Each library with ranges of its own does so for itself.
 *
 * Levels of pushed ranges are counted whether anything is recorded or not, so that a program gets
 * the same numbers in every mode. Times are taken, texts looked at and records written only while a
 * recorder asks for ranges; a text that was seen once is found again without a lock. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <wchar.h>

#include "capture/shim/internal/shim.h"

/* The interface of NVTX 3 between a program and a tool. Source: the public headers of NVTX 3
 * (nvtxTypes.h, nvToolsExt.h). */
enum { EXPORT_CALLBACKS = 1, EXPORT_VERSION = 3, MODULE_CORE = 1, MODULE_CORE2 = 5 };
enum {
  CORE_MARK_EX = 1,
  CORE_MARK_A,
  CORE_MARK_W,
  CORE_START_EX,
  CORE_START_A,
  CORE_START_W,
  CORE_END,
  CORE_PUSH_EX,
  CORE_PUSH_A,
  CORE_PUSH_W,
  CORE_POP
};
enum {
  CORE2_MARK_EX = 1,
  CORE2_START_EX,
  CORE2_END,
  CORE2_PUSH_EX,
  CORE2_POP,
  CORE2_REGISTER_A = 10,
  CORE2_REGISTER_W,
  CORE2_CREATE_A,
  CORE2_CREATE_W,
  CORE2_DESTROY
};
enum { MESSAGE_ASCII = 1, MESSAGE_UNICODE = 2, MESSAGE_REGISTERED = 3 };
#define NO_TRACKING (-2) /* NVTX_NO_PUSH_POP_TRACKING: what a program gets without a tool */
#define NOT_PUSHED (-1)
#define TOOL_VERSION 3

struct event {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;
  union {
    const char* ascii;
    const wchar_t* unicode;
    const void* registered;
  } message;
};
_Static_assert(sizeof(struct event) == 48, "nvtxEventAttributes_v2");
_Static_assert(offsetof(struct event, message) == 40, "nvtxEventAttributes_v2");
_Static_assert(sizeof(wchar_t) == 4, "a character of NVTX's wide texts");
struct callbacks {
  size_t size;
  int (*table)(uint32_t module, kansoku_function*** table, unsigned* size);
};
_Static_assert(sizeof(struct callbacks) == 16, "NvtxExportTableCallbacks");
struct version {
  size_t size;
  uint32_t version, reserved;
  void (*set_tool)(uint32_t version);
};
_Static_assert(sizeof(struct version) == 24, "NvtxExportTableVersionInfo");
typedef const void* (*get_export)(uint32_t id);

/* Texts, each once. Registered texts and domains have to be there before there is any memory to
 * share, so they stand here, and are copied there when a record needs them. */
struct text {
  uint64_t hash;
  _Atomic uint32_t is_shared;
  char text[WIRE_CUDA_RANGE_NAME_BYTES];
};
#define SLOTS (2 * WIRE_CUDA_RANGE_NAMES_MAX)
static struct text names[WIRE_CUDA_RANGE_NAMES_MAX];
static struct text domains[WIRE_CUDA_RANGE_DOMAINS_MAX]; /* the last one: all further ones */
static _Atomic uint16_t slots[SLOTS];                    /* by hash: index into `names`; 0: free */
static uint32_t name_count = 1, domain_count = 1;        /* under the lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t clients;

/* Open ranges of one thread. */
#define DEPTH_MAX 128U
struct open {
  uint64_t begin_ns;
  uint16_t name, domain, level;
};
struct ranges {
  uint32_t tid;
  uint32_t time; /* kansoku.ranges at which `stack` was begun */
  uint32_t depth;
  uint16_t levels[WIRE_CUDA_RANGE_DOMAINS_MAX]; /* that are open now, recorded or not */
  struct open stack[DEPTH_MAX];
};
static _Thread_local struct ranges* self;
static pthread_key_t thread_key;
static int has_key;

/* Ranges of the process. */
#define STARTED_MAX 1024U
static struct started {
  _Atomic uint64_t id; /* 0: free; 1: being filled; else serial number << 12 | place + 2 */
  uint64_t begin_ns;
  uint32_t tid, time;
  uint16_t name, domain;
} started[STARTED_MAX];
static _Atomic uint64_t started_serial;

static void lose(__u64* counter) {
  atomic_fetch_add_explicit((_Atomic uint64_t*)counter, 1, memory_order_relaxed);
}
#define LOSE_RANGE(member) lose(&kansoku.shared->state.losses.member)

/* Which recording wants ranges; 0: none, and in a forked child. */
static uint32_t recording(void) {
  const uint32_t time = atomic_load_explicit(&kansoku.ranges, memory_order_acquire);
  return time != 0 && *kansoku.canary != 0 ? time : 0;
}

void kansoku_follow_ranges(int are_wanted) {
  static uint32_t times; /* one caller at a time: the library's thread, and after it the end */
  if ((atomic_load(&kansoku.ranges) != 0) == (are_wanted != 0)) return;
  if (are_wanted && ++times == 0) times = 1;
  atomic_store_explicit(&kansoku.ranges, are_wanted ? times : 0, memory_order_release);
}

void kansoku_nvtx_shared(void) {
  const char* const tool = getenv("NVTX_INJECTION64_PATH");
  kansoku.shared->state.nvtx_elsewhere =
      (uint64_t)(tool != NULL && *tool != '\0' && !kansoku_is_this_file(tool));
  atomic_store((_Atomic uint64_t*)&kansoku.shared->state.nvtx_clients, atomic_load(&clients));
}

/* Eight bytes at a time; quality beyond few collisions is not needed. */
static uint64_t hash_of(const char* text, size_t length) {
  uint64_t hash = length + 1;
  for (size_t at = 0; at < length; at += 8) {
    uint64_t part = 0;
    memcpy(&part, text + at, length - at < 8 ? length - at : 8);
    hash = (hash ^ part) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  return hash;
}

/* Without half a character at its end. */
static size_t cut(const char* text) {
  size_t length = strnlen(text, WIRE_CUDA_RANGE_NAME_BYTES);
  if (length < WIRE_CUDA_RANGE_NAME_BYTES) return length;
  length = WIRE_CUDA_RANGE_NAME_BYTES - 1;
  for (size_t back = 0; back < 3 && ((unsigned char)text[length] & 0xc0U) == 0x80; ++back)
    --length;
  return length;
}

static int is_text(const struct text* known, const char* text, size_t length) {
  return memcmp(known->text, text, length) == 0 && known->text[length] == '\0';
}

/* The place of the text in `slots`: its own, or a free one. */
static unsigned place_of(uint64_t hash, const char* text, size_t length, uint16_t* index) {
  for (unsigned i = 0;; ++i) {
    const unsigned at = (unsigned)(hash >> 40) + i;
    *index = atomic_load_explicit(&slots[at % SLOTS], memory_order_acquire);
    if (*index == 0 || (names[*index].hash == hash && is_text(&names[*index], text, length)))
      return at % SLOTS;
  }
}

/* 0: there is no room. */
static uint16_t index_of(const char* text, size_t length) {
  uint16_t index = 0;
  const uint64_t hash = hash_of(text, length);
  place_of(hash, text, length, &index);
  if (index != 0) return index;
  pthread_mutex_lock(&lock);
  const unsigned place = place_of(hash, text, length, &index);
  if (index == 0 && name_count < WIRE_CUDA_RANGE_NAMES_MAX) {
    index = (uint16_t)name_count++;
    names[index].hash = hash;
    memcpy(names[index].text, text, length); /* the rest is zero */
    atomic_store_explicit(&slots[place], index, memory_order_release);
  }
  pthread_mutex_unlock(&lock);
  return index;
}

static size_t put_character(char* to, uint32_t c) {
  if (c < 0x80) {
    to[0] = (char)c;
    return 1;
  }
  if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) c = 0xfffd;
  const size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (size_t i = length - 1; i > 0; --i, c >>= 6)
    to[i] = (char)(0x80U | (c & 0x3fU));
  to[0] = (char)((length == 2 ? 0xc0U : length == 3 ? 0xe0U : 0xf0U) | c);
  return length;
}

static size_t narrow(const wchar_t* wide, char* to) {
  size_t length = 0;
  for (; *wide != 0; ++wide) {
    char one[4];
    const size_t more = put_character(one, (uint32_t)*wide);
    if (length + more >= WIRE_CUDA_RANGE_NAME_BYTES) break;
    memcpy(to + length, one, more);
    length += more;
  }
  return length;
}

static uint16_t index_of_wide(const wchar_t* wide) {
  char text[WIRE_CUDA_RANGE_NAME_BYTES];
  return index_of(text, narrow(wide, text));
}

static void share(struct text* text, char* to) {
  if (atomic_load_explicit(&text->is_shared, memory_order_acquire)) return;
  memcpy(to, text->text, sizeof text->text); /* two threads write the same */
  atomic_store_explicit(&text->is_shared, 1, memory_order_release);
}

/* As a record has it: the recorder can read it. */
static uint16_t shared_name(uint16_t index) {
  if (index == 0)
    LOSE_RANGE(ranges_unnamed);
  else
    share(&names[index], kansoku.shared->range_names[index]);
  return index;
}
static uint16_t name_of(const char* text) {
  return text == NULL ? 0 : shared_name(index_of(text, cut(text)));
}
static uint16_t name_of_wide(const wchar_t* text) {
  return text == NULL ? 0 : shared_name(index_of_wide(text));
}

/* A handle of ours, by its address; of anybody else's: 0. */
static uint16_t place_in(const void* handle, const struct text* table, size_t count) {
  const uintptr_t offset = (uintptr_t)handle - (uintptr_t)table;
  return offset % sizeof *table == 0 && offset / sizeof *table < count
             ? (uint16_t)(offset / sizeof *table)
             : 0;
}

static uint16_t name_of_event(const struct event* event) {
  if (event == NULL || event->size < sizeof *event) return 0;
  if (event->message_type == MESSAGE_ASCII) return name_of(event->message.ascii);
  if (event->message_type == MESSAGE_UNICODE) return name_of_wide(event->message.unicode);
  if (event->message_type != MESSAGE_REGISTERED) return 0;
  const uint16_t index = place_in(event->message.registered, names, WIRE_CUDA_RANGE_NAMES_MAX);
  return shared_name(index);
}

/* The last domain stands for all that have no place, and for handles of another tool. */
static uint16_t domain_of(const void* handle) {
  if (handle == NULL) return 0;
  const uint16_t index = place_in(handle, domains, WIRE_CUDA_RANGE_DOMAINS_MAX);
  return index == 0 ? WIRE_CUDA_RANGE_DOMAINS_MAX - 1 : index;
}

static void write_range(uint64_t begin_ns, uint64_t lasted_ns, uint32_t tid, uint16_t name,
                        uint16_t domain, uint32_t kind) {
  struct wire_cuda_record record;
  memset(&record, 0, sizeof record);
  record.entry = WIRE_CUDA_RANGE;
  record.host_begin_ns = begin_ns;
  record.device_ns = lasted_ns;
  record.host_ns = lasted_ns > UINT32_MAX ? UINT32_MAX : (uint32_t)lasted_ns;
  record.tid = tid;
  record.u.range.name = name;
  record.u.range.domain = domain;
  record.u.range.kind = kind;
  if (domain == WIRE_CUDA_RANGE_DOMAINS_MAX - 1)
    LOSE_RANGE(ranges_unnamed);
  else if (domain != 0)
    share(&domains[domain], kansoku.shared->range_domains[domain]);
  kansoku_write(&record);
}

static void thread_ends(void* ended) {
  self = NULL;
  munmap(ended, sizeof(struct ranges));
}

/* Ranges of this thread; made once in its life, by a call of the kernel. */
static __attribute__((noinline)) struct ranges* make_self(void) {
  if (!has_key) return NULL;
  void* const memory =
      mmap(NULL, sizeof(struct ranges), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  self = memory;
  self->tid = (uint32_t)syscall(SYS_gettid);
  pthread_setspecific(thread_key, memory);
  return self;
}
static struct ranges* this_thread(void) {
  return self != NULL ? self : make_self();
}

/* Ranges pushed while an earlier recording was on may have been popped since, unseen. */
static void begin_anew(struct ranges* of, uint32_t time) {
  if (of->time == time) return;
  of->time = time;
  of->depth = 0;
}

static __attribute__((noinline)) void record_push(struct ranges* of, uint32_t time, uint16_t name,
                                                  uint16_t domain, uint16_t level) {
  begin_anew(of, time);
  if (of->depth == DEPTH_MAX) {
    LOSE_RANGE(ranges_open);
    return;
  }
  of->stack[of->depth++] = (struct open){kansoku_now(), name, domain, level};
}

static __attribute__((noinline)) void record_pop(struct ranges* of, uint32_t time, uint16_t domain,
                                                 uint16_t level) {
  const uint64_t now = kansoku_now();
  begin_anew(of, time);
  uint32_t at = of->depth;
  while (at > 0 && of->stack[at - 1].domain != domain)
    --at;
  /* One above it that was not recorded leaves the one below where it is. */
  if (at == 0 || of->stack[at - 1].level != level) {
    LOSE_RANGE(ranges_unbegun);
    return;
  }
  const struct open open = of->stack[at - 1];
  memmove(&of->stack[at - 1], &of->stack[at], (of->depth - at) * sizeof of->stack[0]);
  --of->depth;
  write_range(open.begin_ns, now - open.begin_ns, of->tid, open.name, domain, WIRE_CUDA_PUSHED);
}

/* Its level, the first one 0. */
static int level_up(struct ranges* of, uint16_t domain) {
  const uint16_t level = of->levels[domain];
  if (level != UINT16_MAX) of->levels[domain] = (uint16_t)(level + 1);
  return level;
}

#define PUSH(domain_, name_)                                            \
  do {                                                                  \
    struct ranges* const of = this_thread();                            \
    if (of == NULL) return NO_TRACKING;                                 \
    const uint16_t in = (domain_);                                      \
    const int level = level_up(of, in);                                 \
    const uint32_t time = recording();                                  \
    if (time != 0) record_push(of, time, (name_), in, (uint16_t)level); \
    return level;                                                       \
  } while (0)

static int push_a(const char* message) {
  PUSH(0, name_of(message));
}
static int push_w(const wchar_t* message) {
  PUSH(0, name_of_wide(message));
}
static int push_ex(const struct event* event) {
  PUSH(0, name_of_event(event));
}
static int domain_push_ex(const void* domain, const struct event* event) {
  PUSH(domain_of(domain), name_of_event(event));
}

static int pop_from(uint16_t domain) {
  struct ranges* const of = this_thread();
  if (of == NULL) return NO_TRACKING;
  const uint32_t time = recording();
  if (of->levels[domain] == 0) {
    if (time != 0) LOSE_RANGE(ranges_unbegun);
    return NOT_PUSHED;
  }
  const uint16_t level = --of->levels[domain];
  if (time != 0) record_pop(of, time, domain, level);
  return level;
}
static int pop(void) {
  return pop_from(0);
}
static int domain_pop(const void* domain) {
  return pop_from(domain_of(domain));
}

/* 0, as without a tool, while nothing is recorded, and where there is no room. */
static uint64_t start_range(uint32_t time, uint16_t name, uint16_t domain) {
  const struct ranges* const of = this_thread();
  const uint64_t serial = atomic_fetch_add_explicit(&started_serial, 1, memory_order_relaxed) + 1;
  for (unsigned i = 0; i < STARTED_MAX && of != NULL; ++i) {
    const unsigned at = (unsigned)(serial + i) % STARTED_MAX;
    uint64_t is_free = 0;
    if (!atomic_compare_exchange_strong_explicit(&started[at].id, &is_free, 1, memory_order_acquire,
                                                 memory_order_relaxed))
      continue;
    const uint64_t id = serial << 12 | (at + 2);
    started[at].tid = of->tid;
    started[at].time = time;
    started[at].name = name;
    started[at].domain = domain;
    started[at].begin_ns = kansoku_now();
    atomic_store_explicit(&started[at].id, id, memory_order_release);
    return id;
  }
  LOSE_RANGE(ranges_open);
  return 0;
}

static uint64_t start_a(const char* message) {
  const uint32_t time = recording();
  return time == 0 ? 0 : start_range(time, name_of(message), 0);
}
static uint64_t start_w(const wchar_t* message) {
  const uint32_t time = recording();
  return time == 0 ? 0 : start_range(time, name_of_wide(message), 0);
}
static uint64_t start_ex(const struct event* event) {
  const uint32_t time = recording();
  return time == 0 ? 0 : start_range(time, name_of_event(event), 0);
}
static uint64_t domain_start_ex(const void* domain, const struct event* event) {
  const uint32_t time = recording();
  return time == 0 ? 0 : start_range(time, name_of_event(event), domain_of(domain));
}

/* The id says all: it frees the place in every mode. */
static void end_range(uint64_t id) {
  const uint32_t time = recording();
  const uint64_t place = (id & 0xfff) - 2;
  if (id >> 12 != 0 && place < STARTED_MAX &&
      atomic_load_explicit(&started[place].id, memory_order_acquire) == id) {
    const struct started* const of = &started[place];
    const uint64_t begin_ns = of->begin_ns;
    const uint32_t tid = of->tid, began = of->time;
    const uint16_t name = of->name, domain = of->domain;
    if (atomic_compare_exchange_strong(&started[place].id, &id, 0) && time == began) {
      write_range(begin_ns, kansoku_now() - begin_ns, tid, name, domain, WIRE_CUDA_STARTED);
      return;
    }
  }
  if (time != 0) LOSE_RANGE(ranges_unbegun);
}
static void domain_end(const void* domain, uint64_t id) {
  (void)domain;
  end_range(id);
}

static void write_mark(uint16_t name, uint16_t domain) {
  const struct ranges* const of = this_thread();
  if (of != NULL) write_range(kansoku_now(), 0, of->tid, name, domain, WIRE_CUDA_MARK);
}
static void mark_a(const char* message) {
  if (recording() != 0) write_mark(name_of(message), 0);
}
static void mark_w(const wchar_t* message) {
  if (recording() != 0) write_mark(name_of_wide(message), 0);
}
static void mark_ex(const struct event* event) {
  if (recording() != 0) write_mark(name_of_event(event), 0);
}
static void domain_mark_ex(const void* domain, const struct event* event) {
  if (recording() != 0) write_mark(name_of_event(event), domain_of(domain));
}

/* Not once per range: it may take the lock. Without room, as without a tool. */
static const void* handle_of(uint16_t index) {
  return index == 0 ? NULL : &names[index];
}
static const void* register_a(const void* domain, const char* text) {
  (void)domain;
  return text == NULL ? NULL : handle_of(index_of(text, cut(text)));
}
static const void* register_w(const void* domain, const wchar_t* text) {
  (void)domain;
  return text == NULL ? NULL : handle_of(index_of_wide(text));
}

/* Two domains of one name are one: a library that makes its own again and again uses up nothing. */
static const void* create_domain(const char* text, size_t length) {
  uint32_t index = 1;
  pthread_mutex_lock(&lock);
  while (index < domain_count && !is_text(&domains[index], text, length))
    ++index;
  if (index == domain_count && index < WIRE_CUDA_RANGE_DOMAINS_MAX - 1) {
    memcpy(domains[index].text, text, length);
    ++domain_count;
  }
  pthread_mutex_unlock(&lock);
  return &domains[index < WIRE_CUDA_RANGE_DOMAINS_MAX ? index : WIRE_CUDA_RANGE_DOMAINS_MAX - 1];
}
static const void* create_a(const char* text) {
  return text == NULL ? NULL : create_domain(text, cut(text));
}
static const void* create_w(const wchar_t* wide) {
  char text[WIRE_CUDA_RANGE_NAME_BYTES];
  return wide == NULL ? NULL : create_domain(text, narrow(wide, text));
}
static void destroy(const void* domain) {
  (void)domain;
}

struct callback {
  unsigned id;
  kansoku_function function;
};
#define CALLBACK(id, name) \
  { (id), (kansoku_function)(name) }
static const struct callback core[] = {
    CALLBACK(CORE_MARK_EX, mark_ex), CALLBACK(CORE_MARK_A, mark_a),
    CALLBACK(CORE_MARK_W, mark_w),   CALLBACK(CORE_START_EX, start_ex),
    CALLBACK(CORE_START_A, start_a), CALLBACK(CORE_START_W, start_w),
    CALLBACK(CORE_END, end_range),   CALLBACK(CORE_PUSH_EX, push_ex),
    CALLBACK(CORE_PUSH_A, push_a),   CALLBACK(CORE_PUSH_W, push_w),
    CALLBACK(CORE_POP, pop)};
static const struct callback core2[] = {
    CALLBACK(CORE2_MARK_EX, domain_mark_ex), CALLBACK(CORE2_START_EX, domain_start_ex),
    CALLBACK(CORE2_END, domain_end),         CALLBACK(CORE2_PUSH_EX, domain_push_ex),
    CALLBACK(CORE2_POP, domain_pop),         CALLBACK(CORE2_REGISTER_A, register_a),
    CALLBACK(CORE2_REGISTER_W, register_w),  CALLBACK(CORE2_CREATE_A, create_a),
    CALLBACK(CORE2_CREATE_W, create_w),      CALLBACK(CORE2_DESTROY, destroy)};

/* A table of a client has `size` places that it may look at; place 0 and all that it lacks stay. */
static int fill(const struct callbacks* of, uint32_t module, const struct callback* with,
                size_t count) {
  kansoku_function** table = NULL;
  unsigned size = 0;
  if (!of->table(module, &table, &size) || table == NULL) return 0;
  for (size_t i = 0; i < count; ++i)
    if (with[i].id <= size && table[with[i].id] != NULL) *table[with[i].id] = with[i].function;
  return 1;
}

static void make_key(void) {
  has_key = pthread_key_create(&thread_key, thread_ends) == 0;
}

/* Another copy of this library that came first, as the driver: it has the memory and the thread, so
 * it gets the ranges as well. */
typedef int (*initializer)(get_export exports);
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(get_export exports);

static initializer first_copy(void) {
  void* const first = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  const initializer initialize =
      first == NULL ? NULL : (initializer)(uintptr_t)dlsym(first, "InitializeInjectionNvtx2");
  if (first != NULL) dlclose(first);
  return initialize == InitializeInjectionNvtx2 ? NULL : initialize;
}

/* 1: the program's table is filled; 0: it goes on as without a tool. */
int InitializeInjectionNvtx2(get_export exports) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  const initializer first = kansoku.shared == NULL ? first_copy() : NULL;
  if (first != NULL) return first(exports);
  const struct callbacks* const of = exports == NULL ? NULL : exports(EXPORT_CALLBACKS);
  if (of == NULL || of->size < sizeof *of || of->table == NULL) return 0;
  pthread_once(&once, make_key);
  if (!fill(of, MODULE_CORE, core, sizeof core / sizeof core[0])) return 0;
  fill(of, MODULE_CORE2, core2, sizeof core2 / sizeof core2[0]);
  const struct version* const version = exports(EXPORT_VERSION);
  if (version != NULL && version->size >= sizeof *version && version->set_tool != NULL)
    version->set_tool(TOOL_VERSION);
  atomic_fetch_add(&clients, 1);
  if (kansoku.shared != NULL) kansoku_nvtx_shared();
  return 1;
}
