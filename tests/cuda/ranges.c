/* SPDX-License-Identifier: Apache-2.0 */
/* A program with ranges of NVTX around its launches. It writes down what it did,
 * "range NAME THREAD BEGIN END LAUNCHES" a line, on the boot clock, by its own reading just outside
 * of each range. RANGES_DRIVER: the driver's path [libcuda.so.1]. NVTX_HEADER: NVIDIA's header
 * instead of the software GPU's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"

#ifndef NVTX_HEADER
#define NVTX_HEADER <nvtx3/nvToolsExt.h>
#endif
#include NVTX_HEADER

/* Long enough for three readings of the clock of events. */
#define LASTS_NS 2000000000LL

static const char kernels[] =
    ".version 7.0\n.target sm_61\n.address_size 64\n"
    ".visible .entry forward()\n{\n\tret;\n}\n"
    ".visible .entry backward()\n{\n\tret;\n}\n";

static struct {
  CUresult (*init)(unsigned);
  CUresult (*retain)(CUcontext*, CUdevice);
  CUresult (*set_current)(CUcontext);
  CUresult (*load)(CUmodule*, const void*);
  CUresult (*function)(CUfunction*, CUmodule, const char*);
  CUresult (*stream)(CUstream*, unsigned);
  CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     unsigned, CUstream, void**, void**);
  CUresult (*wait)(CUstream);
} driver;
static CUcontext context;
static CUstream streams[2];
static CUfunction forward, backward;
static nvtxDomainHandle_t domain;
static nvtxStringHandle_t registered;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void note(const char* name, int64_t begin_ns, int launches) {
  const int64_t end_ns = now_ns();
  pthread_mutex_lock(&lock);
  printf("range %s %d %lld %lld %d\n", name, (int)gettid(), (long long)begin_ns, (long long)end_ns,
         launches);
  pthread_mutex_unlock(&lock);
}

static void need(int is_right, const char* what) {
  if (is_right) return;
  fprintf(stderr, "ranges: %s\n", what);
  exit(3);
}

static void launch(CUfunction function, int stream, int count) {
  for (int i = 0; i < count; ++i)
    need(driver.launch(function, 1, 1, 1, 1, 1, 1, 0, streams[stream], NULL, NULL) == 0, "launch");
}

static void step(int number) {
  char name[32];
  nvtxEventAttributes_t inner;
  memset(&inner, 0, sizeof inner);
  inner.version = NVTX_VERSION;
  inner.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  inner.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  inner.message.registered = registered;
  snprintf(name, sizeof name, "step_%d", number % 3);
  const int64_t begin_ns = now_ns();
  nvtxRangePushA(name);
  const int64_t forward_ns = now_ns();
  nvtxRangePushW(L"forw\u00e4rts");
  launch(forward, 0, 3);
  nvtxRangePop();
  note("forw\u00e4rts", forward_ns, 3);
  const int64_t backward_ns = now_ns();
  nvtxDomainRangePushEx(domain, &inner);
  launch(backward, 0, 1);
  launch(backward, 1, 1);
  nvtxDomainRangePop(domain);
  note("backward", backward_ns, 2);
  need(driver.wait(streams[0]) == 0 && driver.wait(streams[1]) == 0, "wait");
  nvtxMarkA("done");
  nvtxRangePop();
  note(name, begin_ns, 5);
}

static void* other_thread(void* unused) {
  (void)unused;
  need(driver.set_current(context) == 0, "context");
  const int64_t begin_ns = now_ns();
  nvtxRangePushA("other_thread");
  launch(forward, 1, 4);
  need(driver.wait(streams[1]) == 0, "wait");
  nvtxRangePop();
  note("other_thread", begin_ns, 4);
  return NULL;
}

static void find(void* library, const char* name, void* where) {
  void* const symbol = dlsym(library, name);
  need(symbol != NULL, name);
  memcpy(where, &symbol, sizeof symbol);
}

static void start(void) {
  const char* const path = getenv("RANGES_DRIVER");
  void* const library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  CUmodule module = NULL;
  need(library != NULL, "no driver");
  find(library, "cuInit", &driver.init);
  find(library, "cuDevicePrimaryCtxRetain", &driver.retain);
  find(library, "cuCtxSetCurrent", &driver.set_current);
  find(library, "cuModuleLoadData", &driver.load);
  find(library, "cuModuleGetFunction", &driver.function);
  find(library, "cuStreamCreate", &driver.stream);
  find(library, "cuLaunchKernel", &driver.launch);
  find(library, "cuStreamSynchronize", &driver.wait);
  need(driver.init(0) == 0, "cuInit");
  need(driver.retain(&context, 0) == 0 && driver.set_current(context) == 0, "context");
  need(driver.load(&module, kernels) == 0, "kernels");
  need(driver.function(&forward, module, "forward") == 0, "forward");
  need(driver.function(&backward, module, "backward") == 0, "backward");
  need(driver.stream(&streams[0], 1) == 0 && driver.stream(&streams[1], 1) == 0, "stream");
}

int main(void) {
  pthread_t thread;
  domain = nvtxDomainCreateA("model"); /* before CUDA, as libraries do */
  registered = nvtxDomainRegisterStringA(domain, "backward");
  const int levels[] = {nvtxRangePushA("setup"), nvtxRangePushA("cuda")};
  start();
  printf("levels %d %d %d", levels[0], levels[1], nvtxRangePop());
  printf(" %d\n", nvtxRangePop());
  const int64_t begin_ns = now_ns();
  const nvtxRangeId_t id = nvtxRangeStartA("whole");
  for (int i = 0; i < 3 || now_ns() - begin_ns < LASTS_NS; ++i) {
    const struct timespec pause = {0, 20000000};
    step(i);
    nanosleep(&pause, NULL); /* allowed: a program that is not always at work */
  }
  need(pthread_create(&thread, NULL, other_thread, NULL) == 0, "thread");
  pthread_join(thread, NULL);
  nvtxRangeEnd(id);
  note("whole", begin_ns, 0);
  return 0;
}
