/* SPDX-License-Identifier: Apache-2.0 */
/* A program that does what it was told, and writes down when: each launch, wait, allocation, load
 * and pause with its begin and end on the boot clock, "PHASE WHAT BEGIN END" a line. It knows
 * nothing of who watches it.
 *
 *   planned plan FILE ROUNDS       launches under every cause of an idle device, in turns
 *   planned ticks FILE SECONDS     launches now and then
 *   planned count FILE COUNT       COUNT launches
 *   planned exec FILE COUNT        COUNT launches and more, and becomes "count FILE COUNT"
 * meanwhile
 *
 * PLANNED_DRIVER: the driver's path [libcuda.so.1]. Kernels "hold" and "tick" do nothing; the
 * software device makes them slow (KANSOKU_SOFTGPU_FAULT). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"

#define LINES_MAX 1000000

static const char kernels[] =
    ".version 7.0\n.target sm_61\n.address_size 64\n"
    ".visible .entry hold()\n{\n\tret;\n}\n"
    ".visible .entry tick()\n{\n\tret;\n}\n"
    ".visible .entry long_one()\n{\n\tret;\n}\n";

static struct line {
  const char *phase, *what;
  int64_t begin_ns, end_ns;
} * lines;
static size_t line_count;
static const char* phase = "start";

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void note(const char* what, int64_t begin_ns) {
  if (line_count == LINES_MAX) exit(4);
  lines[line_count++] = (struct line){phase, what, begin_ns, now_ns()};
}

static void write_lines(const char* path) {
  FILE* const file = fopen(path, "we");
  if (file == NULL) exit(5);
  fprintf(file, "%s process %d 0\n", phase, getpid());
  for (size_t i = 0; i < line_count; ++i)
    fprintf(file, "%s %s %lld %lld\n", lines[i].phase, lines[i].what, (long long)lines[i].begin_ns,
            (long long)lines[i].end_ns);
  if (fclose(file) != 0) exit(5);
}

static struct {
  CUresult (*init)(unsigned);
  CUresult (*retain)(CUcontext*, CUdevice);
  CUresult (*set_current)(CUcontext);
  CUresult (*load)(CUmodule*, const void*);
  CUresult (*unload)(CUmodule);
  CUresult (*function)(CUfunction*, CUmodule, const char*);
  CUresult (*stream)(CUstream*, unsigned);
  CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     unsigned, CUstream, void**, void**);
  CUresult (*wait)(CUstream);
  CUresult (*alloc)(CUdeviceptr*, size_t);
  CUresult (*free)(CUdeviceptr);
} driver;
static CUcontext context;
static CUstream stream;
static CUfunction hold, tick, long_one;

#define CALL(what, call)                                              \
  do {                                                                \
    const int64_t begin_ns_ = now_ns();                               \
    const CUresult result_ = (call);                                  \
    note(what, begin_ns_);                                            \
    if (result_ != CUDA_SUCCESS) {                                    \
      fprintf(stderr, "planned: %s: error %d\n", what, (int)result_); \
      exit(3);                                                        \
    }                                                                 \
  } while (0)

static void find(void* library, const char* name, void* where) {
  void* const symbol = dlsym(library, name);
  if (symbol == NULL) exit(6);
  memcpy(where, &symbol, sizeof symbol);
}

static void start(void) {
  const char* const path = getenv("PLANNED_DRIVER");
  void* const library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  CUmodule module = NULL;
  lines = malloc(sizeof *lines * LINES_MAX);
  if (library == NULL || lines == NULL) {
    fprintf(stderr, "planned: %s\n", dlerror());
    exit(6);
  }
  find(library, "cuInit", &driver.init);
  find(library, "cuDevicePrimaryCtxRetain", &driver.retain);
  find(library, "cuCtxSetCurrent", &driver.set_current);
  find(library, "cuModuleLoadData", &driver.load);
  find(library, "cuModuleUnload", &driver.unload);
  find(library, "cuModuleGetFunction", &driver.function);
  find(library, "cuStreamCreate", &driver.stream);
  find(library, "cuLaunchKernel", &driver.launch);
  find(library, "cuStreamSynchronize", &driver.wait);
  find(library, "cuMemAlloc_v2", &driver.alloc);
  find(library, "cuMemFree_v2", &driver.free);
  CALL("other", driver.init(0));
  CALL("other", driver.retain(&context, 0));
  CALL("other", driver.set_current(context));
  CALL("load", driver.load(&module, kernels));
  CALL("other", driver.function(&hold, module, "hold"));
  CALL("other", driver.function(&tick, module, "tick"));
  CALL("other", driver.function(&long_one, module, "long_one"));
  CALL("other", driver.stream(&stream, 1));
}

static void launch(CUfunction kernel) {
  CALL("launch", driver.launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

static void wait_for_it(void) {
  CALL("wait", driver.wait(stream));
}

static void pause_for(int64_t ns) {
  const int64_t begin = now_ns();
  const struct timespec time = {ns / 1000000000, ns % 1000000000};
  nanosleep(&time, NULL); /* allowed: the pause is what is planned */
  note("pause", begin);
}

static CUdeviceptr allocate(void) {
  CUdeviceptr memory = 0;
  CALL("alloc", driver.alloc(&memory, 1 << 20));
  return memory;
}

static void round_of_the_plan(void) {
  CUdeviceptr idle_memory = 0, busy_memory = 0;
  CUmodule module = NULL;
  phase = "chain";
  for (int i = 0; i < 4; ++i) {
    launch(hold);
    wait_for_it();
  }
  phase = "pause";
  launch(hold);
  wait_for_it();
  pause_for(8000000);
  phase = "alloc";
  launch(hold);
  wait_for_it();
  idle_memory = allocate();
  phase = "load";
  launch(hold);
  wait_for_it();
  CALL("load", driver.load(&module, kernels));
  phase = "queue";
  for (int i = 0; i < 6; ++i)
    launch(hold);
  wait_for_it();
  phase = "busy";
  launch(long_one);
  busy_memory = allocate();
  wait_for_it();
  phase = "give_back";
  launch(long_one);
  CALL("free", driver.free(idle_memory));
  CALL("free", driver.free(busy_memory));
  CALL("other", driver.unload(module));
  wait_for_it();
}

/* Seeded: the same pauses in each run. */
static void launch_now_and_then(double seconds) {
  const int64_t until = now_ns() + (int64_t)(seconds * 1e9);
  uint64_t random = 0x9e3779b97f4a7c15ULL;
  phase = "ticks";
  while (now_ns() < until) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    for (unsigned i = 0; i <= random % 3; ++i)
      launch(tick);
    wait_for_it();
    pause_for(10000000 + (int64_t)(random >> 32) % 240000000);
  }
}

/* Another thread is in the middle of launches when the program becomes another one. */
static _Atomic int launched;

static void* launch_for_ever(void* unused) {
  (void)unused;
  if (driver.set_current(context) != CUDA_SUCCESS) exit(9);
  for (;;) {
    if (driver.launch(hold, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL) != CUDA_SUCCESS) exit(9);
    ++launched;
  }
}

static void become(char** arguments) {
  pthread_t thread;
  char* next[] = {arguments[0], (char*)"count", arguments[2], arguments[3], NULL};
  for (int i = 0; i < atoi(arguments[3]); ++i) { /* allowed: C, and the caller is the test */
    launch(hold);
    wait_for_it();
  }
  if (pthread_create(&thread, NULL, launch_for_ever, NULL) != 0) exit(7);
  while (launched < 50)
    sched_yield();
  execv("/proc/self/exe", next);
  exit(8);
}

int main(int count, char** arguments) {
  if (count != 4) return 2;
  start();
  if (strcmp(arguments[1], "plan") == 0) {
    for (int i = 0; i < atoi(arguments[3]); ++i) /* allowed: C, and the caller is the test */
      round_of_the_plan();
  } else if (strcmp(arguments[1], "ticks") == 0) {
    launch_now_and_then(atof(arguments[3])); /* allowed: likewise */
  } else if (strcmp(arguments[1], "exec") == 0) {
    become(arguments);
  } else {
    phase = "count";
    for (int i = 0; i < atoi(arguments[3]); ++i) /* allowed: likewise */
      launch(hold);
    wait_for_it();
  }
  write_lines(arguments[2]);
  printf("done %zu\n", line_count);
  return 0;
}
