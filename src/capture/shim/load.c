/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the machine's driver, fills the thunks' slots, and hands out hooks through
 * cuGetProcAddress. */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "capture/shim/internal/shim.h"

kansoku_function kansoku_real[KANSOKU_SLOTS_MAX];
struct kansoku_driver kansoku_driver;
char kansoku_driver_path[WIRE_CUDA_PATH_BYTES];

extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));
void kansoku_load(void) __attribute__((visibility("hidden")));

/* The first call of any thunk: saves all registers that may hold an argument, loads the driver,
 * goes on through the slot, whose number is in r11. */
__asm__(
    ".text\n.globl kansoku_first_call\n.hidden kansoku_first_call\nkansoku_first_call:\n"
    "  push %rdi\n  push %rsi\n  push %rdx\n  push %rcx\n  push %r8\n  push %r9\n  push %r11\n"
    "  sub $128, %rsp\n"
    "  movups %xmm0, (%rsp)\n  movups %xmm1, 16(%rsp)\n  movups %xmm2, 32(%rsp)\n  movups %xmm3, "
    "48(%rsp)\n"
    "  movups %xmm4, 64(%rsp)\n  movups %xmm5, 80(%rsp)\n  movups %xmm6, 96(%rsp)\n  movups %xmm7, "
    "112(%rsp)\n"
    "  call kansoku_load\n"
    "  movups (%rsp), %xmm0\n  movups 16(%rsp), %xmm1\n  movups 32(%rsp), %xmm2\n  movups "
    "48(%rsp), %xmm3\n"
    "  movups 64(%rsp), %xmm4\n  movups 80(%rsp), %xmm5\n  movups 96(%rsp), %xmm6\n  movups "
    "112(%rsp), %xmm7\n"
    "  add $128, %rsp\n"
    "  pop %r11\n  pop %r9\n  pop %r8\n  pop %rcx\n  pop %rdx\n  pop %rsi\n  pop %rdi\n"
    "  lea kansoku_slots(%rip), %r10\n  jmp *(%r10,%r11,8)\n");

/* Without a driver: what a program gets that links against one and finds no device. */
static CUresult absent(void) {
  return CUDA_ERROR_NO_DEVICE;
}
static CUresult absent_text(CUresult code, const char** text) {
  (void)code;
  if (text != NULL) *text = "no CUDA driver was found";
  return CUDA_ERROR_NO_DEVICE;
}
static CUresult absent_function(const char* name, void** function) {
  (void)name;
  if (function != NULL) *function = NULL;
  return CUDA_ERROR_NO_DEVICE;
}
/* A name that this driver does not have. */
static CUresult unknown(void) {
  return CUDA_ERROR_NOT_FOUND;
}

int kansoku_is_this_file(const char* path) {
  Dl_info mine;
  struct stat a, b;
  return stat(path, &a) == 0 && dladdr((void*)(uintptr_t)kansoku_load, &mine) != 0 &&
         stat(mine.dli_fname, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static int is_other_file(const char* path) {
  struct stat about;
  return stat(path, &about) == 0 && S_ISREG(about.st_mode) && !kansoku_is_this_file(path);
}

static int take(const char* path) {
  if (path == NULL || path[0] != '/' || strlen(path) >= sizeof kansoku_driver_path ||
      !is_other_file(path))
    return 0;
  strcpy(kansoku_driver_path, path);
  return 1;
}

static int take_from(const char* folder, size_t length) {
  char path[WIRE_CUDA_PATH_BYTES];
  static const char kName[] = "/libcuda.so.1";
  if (length == 0 || length + sizeof kName > sizeof path) return 0;
  memcpy(path, folder, length);
  memcpy(path + length, kName, sizeof kName);
  return take(path);
}

/* The copy of the library that was made for this machine names the driver as a needed library. */
static int find_in_needed(void) {
  const char* strings = NULL;
  for (const ElfW(Dyn)* d = _DYNAMIC; d->d_tag != DT_NULL; ++d)
    if (d->d_tag == DT_STRTAB) strings = (const char*)d->d_un.d_ptr;
  if (strings == NULL) return 0;
  for (const ElfW(Dyn)* d = _DYNAMIC; d->d_tag != DT_NULL; ++d)
    if (d->d_tag == DT_NEEDED && take(strings + d->d_un.d_val)) return 1;
  return 0;
}

static int find_in_search_path(void) {
  const char* at = getenv("LD_LIBRARY_PATH");
  while (at != NULL && *at != '\0') {
    const size_t length = strcspn(at, ":;");
    if (take_from(at, length)) return 1;
    at += length + (at[length] != '\0');
  }
  return 0;
}

/* The loader's cache, format "glibc-ld.so.cache1.1": key and value are offsets from its begin. */
static int find_in_cache_text(const char* text, size_t size) {
  static const char kMagic[] = "glibc-ld.so.cache1.1";
  struct entry {
    int32_t flags;
    uint32_t key, value, os_version;
    uint64_t hardware;
  } entry;
  uint32_t count = 0;
  const size_t head = 48;
  if (size < head || memcmp(text, kMagic, sizeof kMagic - 1) != 0) return 0;
  memcpy(&count, text + sizeof kMagic - 1, sizeof count);
  for (uint32_t i = 0; i < count && head + (i + 1) * sizeof entry <= size; ++i) {
    memcpy(&entry, text + head + i * sizeof entry, sizeof entry);
    if (entry.key >= size || entry.value >= size) continue;
    if (memchr(text + entry.key, 0, size - entry.key) == NULL ||
        memchr(text + entry.value, 0, size - entry.value) == NULL)
      continue;
    if (strcmp(text + entry.key, "libcuda.so.1") == 0 && take(text + entry.value)) return 1;
  }
  return 0;
}

static int find_in_cache(void) {
  struct stat about;
  int found = 0;
  const int fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  if (fstat(fd, &about) == 0 && about.st_size > 0) {
    const size_t size = (size_t)about.st_size;
    void* const text = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (text != MAP_FAILED) {
      found = find_in_cache_text(text, size);
      munmap(text, size);
    }
  }
  close(fd);
  return found;
}

static int find_driver(void) {
  static const char* const kFolders[] = {"/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu",
                                         "/usr/lib64", "/usr/lib/wsl/lib"};
  if (take(getenv("KANSOKU_CUDA_DRIVER")) || find_in_needed() || find_in_search_path() ||
      find_in_cache())
    return 1;
  for (size_t i = 0; i < sizeof kFolders / sizeof kFolders[0]; ++i)
    if (take_from(kFolders[i], strlen(kFolders[i]))) return 1;
  return 0;
}

/* Function that the driver's resolver hands out, and the one that a program gets instead. */
#define REDIRECTS_MAX 4096U
static struct redirect { void *from, *to; } redirects[REDIRECTS_MAX];

static void redirect(void* from, void* to) {
  const uintptr_t hash = ((uintptr_t)from >> 3) * 0x9e3779b97f4a7c15ULL;
  for (unsigned i = 0; i < REDIRECTS_MAX; ++i) {
    struct redirect* const at = &redirects[((hash >> 40) + i) % REDIRECTS_MAX];
    if (at->from == NULL) at->from = from, at->to = to;
    if (at->from == from) return;
  }
}

/* A function of a driver that is newer than this library may change graphs behind its back. */
static void note_unknown(const char* name) {
  if (name == NULL || strncmp(name, "cuGraph", 7) != 0) return;
  for (unsigned i = 0; i < kansoku_name_count; ++i)
    if (strcmp(kansoku_names[i].base, name) == 0) return;
  kansoku_twins_refuse();
}

/* A program may have the driver's own pointers from the resolver: they become thunks, so that the
 * library sees these calls as well. By identity: only the driver knows which form answers to which
 * name, version and flag. */
void kansoku_redirect(CUresult result, const char* name, void** function) {
  if (result != CUDA_SUCCESS || function == NULL || *function == NULL) return;
  const uintptr_t hash = ((uintptr_t)*function >> 3) * 0x9e3779b97f4a7c15ULL;
  for (unsigned i = 0; i < REDIRECTS_MAX; ++i) {
    const struct redirect* const at = &redirects[((hash >> 40) + i) % REDIRECTS_MAX];
    if (at->from == NULL) break;
    if (at->from != *function) continue;
    *function = at->to;
    return;
  }
  note_unknown(name);
}

/* Two names behind one address cannot be told apart by it: such an address stays the driver's. */
static int is_shared(const void* function, unsigned slot) {
  for (unsigned i = 0; i < kansoku_symbol_count; ++i)
    if (i != slot && (const void*)(uintptr_t)kansoku_real[i] == function) return 1;
  return 0;
}

/* All names, hooked or not: then a program gets one address for a function, whichever way it asks.
 */
static void learn_pointers(void* own) {
  for (unsigned slot = 0; slot < kansoku_symbol_count; ++slot) {
    void* const thunk = dlsym(own, kansoku_symbols[slot]);
    void* const real = (void*)(uintptr_t)kansoku_real[slot];
    if (thunk != NULL && kansoku_real[slot] != (kansoku_function)unknown && !is_shared(real, slot))
      redirect(real, thunk);
  }
}

/* The resolver may answer with other addresses than the symbols': asks it for each form. */
static void learn_resolved(void* driver, void* own) {
  typedef CUresult (*resolver)(const char*, void**, int, cuuint64_t);
  const resolver resolve = (resolver)(uintptr_t)dlsym(driver, "cuGetProcAddress");
  if (resolve == NULL) return;
  for (unsigned i = 0; i < kansoku_name_count; ++i) {
    const struct kansoku_name* const name = &kansoku_names[i];
    void* found = NULL;
    if (resolve(name->base, &found, name->version, name->is_per_thread ? 2 : 1) != CUDA_SUCCESS ||
        found == NULL || is_shared(found, name->slot))
      continue;
    /* A function that the driver resolves without exporting it works through the thunk as well. */
    if (kansoku_real[name->slot] == (kansoku_function)unknown)
      kansoku_real[name->slot] = (kansoku_function)(uintptr_t)found;
    void* const thunk = dlsym(own, kansoku_symbols[name->slot]);
    if (thunk != NULL) redirect(found, thunk);
  }
}

#define NEED(member, symbol) \
  kansoku_driver.member = (__typeof__(kansoku_driver.member))(uintptr_t)dlsym(driver, symbol)
static void find_own_calls(void* driver) {
  NEED(ctx_get_current, "cuCtxGetCurrent");
  NEED(ctx_set_current, "cuCtxSetCurrent");
  NEED(ctx_get_device, "cuCtxGetDevice");
  NEED(stream_get_ctx, "cuStreamGetCtx");
  NEED(stream_is_capturing, "cuStreamIsCapturing");
  NEED(stream_create, "cuStreamCreateWithPriority");
  NEED(stream_get_flags, "cuStreamGetFlags");
  NEED(event_create, "cuEventCreate");
  NEED(event_record, "cuEventRecord");
  NEED(event_query, "cuEventQuery");
  NEED(stream_query, "cuStreamQuery");
  NEED(event_elapsed, "cuEventElapsedTime");
  NEED(exchange_mode, "cuThreadExchangeStreamCaptureMode");
  NEED(kernel_name, "cuKernelGetName");
  NEED(function_name, "cuFuncGetName");
  NEED(function_attribute, "cuFuncGetAttribute");
  NEED(kernel_attribute, "cuKernelGetAttribute");
  NEED(device_attribute, "cuDeviceGetAttribute");
  NEED(version, "cuDriverGetVersion");
  NEED(primary_state, "cuDevicePrimaryCtxGetState");
  NEED(graph_nodes, "cuGraphGetNodes");
  NEED(node_type, "cuGraphNodeGetType");
  NEED(kernel_params, "cuGraphKernelNodeGetParams_v2");
  NEED(child_graph, "cuGraphChildGraphNodeGetGraph");
  NEED(graph_clone, "cuGraphClone");
  NEED(graph_destroy, "cuGraphDestroy");
  NEED(graph_edges, "cuGraphGetEdges");
  NEED(add_edges, "cuGraphAddDependencies");
  NEED(remove_edges, "cuGraphRemoveDependencies");
  NEED(add_event_node, "cuGraphAddEventRecordNode");
  NEED(copy_params, "cuGraphMemcpyNodeGetParams");
  NEED(set_params, "cuGraphMemsetNodeGetParams");
  NEED(instantiate, "cuGraphInstantiateWithFlags");
  NEED(exec_destroy, "cuGraphExecDestroy");
  NEED(event_destroy, "cuEventDestroy_v2");
  NEED(stream_wait_event, "cuStreamWaitEvent");
  const struct kansoku_driver* const d = &kansoku_driver;
  kansoku_driver.can_time =
      d->ctx_get_current != NULL && d->ctx_set_current != NULL && d->ctx_get_device != NULL &&
      d->stream_get_ctx != NULL && d->stream_is_capturing != NULL && d->stream_create != NULL &&
      d->event_create != NULL && d->event_record != NULL && d->event_query != NULL &&
      d->event_elapsed != NULL && d->exchange_mode != NULL && d->stream_query != NULL;
}

static void load_absent(void) {
  for (unsigned i = 0; i < kansoku_symbol_count; ++i) {
    kansoku_function function = (kansoku_function)absent;
    const char* const name = kansoku_symbols[i];
    if (strcmp(name, "cuGetErrorName") == 0 || strcmp(name, "cuGetErrorString") == 0)
      function = (kansoku_function)absent_text;
    if (strncmp(name, "cuGetProcAddress", 16) == 0) function = (kansoku_function)absent_function;
    kansoku_real[i] = function;
    atomic_store(&kansoku_slots[i], function);
  }
}

/* The library may be there for NVTX alone, while the program has the driver from elsewhere: a
 * recorder tells it by the process's mappings. */
static void leave_mark(void) {
  const int fd = memfd_create(WIRE_CUDA_MARK_MEMFD, MFD_CLOEXEC);
  if (fd < 0) return;
  if (ftruncate(fd, WIRE_CUDA_PAGE) == 0)
    (void)!mmap(NULL, WIRE_CUDA_PAGE, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
}

static void load_once(void) {
  Dl_info mine;
  leave_mark();
  void* const driver = find_driver() ? dlopen(kansoku_driver_path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (driver == NULL) {
    kansoku_driver_path[0] = '\0';
    load_absent();
    return;
  }
  kansoku_stacks_load();
  for (unsigned i = 0; i < kansoku_symbol_count; ++i) {
    const kansoku_function found = (kansoku_function)(uintptr_t)dlsym(driver, kansoku_symbols[i]);
    kansoku_real[i] = found != NULL ? found : (kansoku_function)unknown;
  }
  find_own_calls(driver);
  if (dladdr((void*)(uintptr_t)kansoku_load, &mine) != 0) {
    void* const own = dlopen(mine.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (own != NULL) {
      learn_pointers(own);
      learn_resolved(driver, own);
    }
  }
  for (unsigned i = 0; i < kansoku_symbol_count; ++i)
    atomic_store(&kansoku_slots[i], kansoku_real[i]);
  kansoku_set_hooks(0);
}

void kansoku_load(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load_once);
}

/* Launches of graphs are looked at while dormant only where a twin may be on its way. */
static int is_on_while_dormant(const struct kansoku_hook* hook) {
  return hook->is_always && (hook->what != WIRE_CUDA_GRAPH_LAUNCH || kansoku_has_twins());
}

void kansoku_set_hooks(int are_on) {
  for (unsigned i = 0; i < kansoku_hook_count; ++i) {
    const struct kansoku_hook* const hook = &kansoku_hooks[i];
    if (kansoku_real[hook->slot] == (kansoku_function)unknown) continue;
    const int is_on = are_on || is_on_while_dormant(hook);
    atomic_store(&kansoku_slots[hook->slot], is_on ? hook->function : kansoku_real[hook->slot]);
  }
}
