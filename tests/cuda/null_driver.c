/* SPDX-License-Identifier: Apache-2.0 */
/* A driver that does nothing, at no cost: what is left of a call is the caller's. Every stream
 * operation is complete at once; the event clock is the boot clock. For measurements and tests of
 * the library that stands before a driver. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "cuda.h"

#define EXPORT __attribute__((visibility("default")))
static int context_object, function_object, stream_object;

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

EXPORT CUresult cuInit(unsigned flags) {
  (void)flags;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = (CUcontext)&context_object;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  (void)context;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  (void)stream;
  return cuCtxGetCurrent(context);
}
EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  (void)stream;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  (void)flags, (void)priority;
  *stream = (CUstream)&stream_object;
  return CUDA_SUCCESS;
}
/* A driver knows its events, also those that a program never destroys. */
struct event {
  double time_ms;
  struct event* next;
};
static struct event* _Atomic events;
EXPORT CUresult cuEventCreate(CUevent* event, unsigned flags) {
  (void)flags;
  struct event* const made = calloc(1, sizeof *made);
  if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  made->next = atomic_load(&events);
  while (!atomic_compare_exchange_weak(&events, &made->next, made)) {
  }
  *event = (CUevent)made;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
  (void)stream;
  ((struct event*)event)->time_ms = now_ms();
  return CUDA_SUCCESS;
}
EXPORT CUresult cuEventQuery(CUevent event) {
  (void)event;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamQuery(CUstream stream) {
  (void)stream;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** params,
                                 void** extra) {
  (void)config, (void)function, (void)params, (void)extra;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuEventElapsedTime(float* ms, CUevent begin, CUevent end) {
  *ms = (float)(((const struct event*)end)->time_ms - ((const struct event*)begin)->time_ms);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  (void)mode;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  (void)module, (void)name;
  *function = (CUfunction)&function_object;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                               unsigned grid_z, unsigned block_x, unsigned block_y,
                               unsigned block_z, unsigned shared_bytes, CUstream stream,
                               void** params, void** extra) {
  (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y;
  (void)block_z, (void)shared_bytes, (void)stream, (void)params, (void)extra;
  return CUDA_SUCCESS;
}
