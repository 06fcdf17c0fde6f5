/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h as a program uses it, in C, C++ and CUDA C++: names that the newest forms have, types that
 * agree with the runtime's where that is included, too, before or behind. */
#if defined(RUNTIME_FIRST)
#include <cuda_runtime.h>
#endif
#include <cuda.h>
#if defined(RUNTIME_LAST)
#include <cuda_runtime.h>
#endif

#if defined(RUNTIME_FIRST) || defined(RUNTIME_LAST)
CUstream of_runtime(cudaStream_t stream) {
  return stream;
}
cudaGraph_t of_driver(CUgraph graph) {
  return graph;
}
cudaUUID_t same_structure(CUuuid uuid) {
  return uuid;
}
CUfunction function_of(cudaFunction_t function) {
  return function;
}
#endif
#ifdef __CUDA__
__global__ void add(int* sum) {
  atomicAdd(sum, 1);
}
#endif

#define TRY(call)                                   \
  do {                                              \
    const CUresult status = (call);                 \
    if (status != CUDA_SUCCESS) return (int)status; \
  } while (0)

int main(void) {
  CUdevice device;
  CUcontext context;
  CUdeviceptr pointer;
  CUstream stream;
  CUgraph graph;
  CUgraphExec executable;
  CUstreamCaptureStatus capturing;
  CUmemAllocationProp wanted = {};
  CUmemAccessDesc access = {};
  CUmemGenericAllocationHandle memory;
  CUdriverProcAddressQueryResult found;
  CUfunc_cache cache;
  void* function;
  const char* text;
  size_t bytes;
  unsigned char answer = 0;
  int count;
  TRY(cuInit(0));
  TRY(cuDeviceGetCount(&count));
  TRY(cuDeviceGet(&device, 0));
  TRY(cuDevicePrimaryCtxRetain(&context, device));
  TRY(cuCtxSetCurrent(context));
  TRY(cuCtxGetCacheConfig(&cache));
  TRY(cuMemAlloc(&pointer, 64));
  TRY(cuMemsetD8(pointer, 7, 64));
  TRY(cuMemcpyDtoH(&answer, pointer + 63, 1));
  TRY(cuMemFree(pointer));
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = device;
  TRY(cuMemGetAllocationGranularity(&bytes, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  TRY(cuMemAddressReserve(&pointer, bytes, 0, 0, 0));
  TRY(cuMemCreate(&memory, bytes, &wanted, 0));
  TRY(cuMemMap(pointer, bytes, 0, memory, 0));
  access.location = wanted.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  TRY(cuMemSetAccess(pointer, bytes, &access, 1));
  TRY(cuMemUnmap(pointer, bytes));
  TRY(cuMemRelease(memory));
  TRY(cuMemAddressFree(pointer, bytes));
  TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  TRY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  TRY(cuStreamIsCapturing(stream, &capturing));
  TRY(cuStreamEndCapture(stream, &graph));
  TRY(cuGraphInstantiate(&executable, graph, 0));
  TRY(cuGraphLaunch(executable, stream));
  TRY(cuStreamSynchronize(stream));
  TRY(cuGetProcAddress("cuMemAlloc", &function, 12040, CU_GET_PROC_ADDRESS_DEFAULT, &found));
  TRY(cuGetErrorString(CUDA_ERROR_NOT_READY, &text));
  if (answer != 7 || capturing != CU_STREAM_CAPTURE_STATUS_ACTIVE) return 1000;
  return found == CU_GET_PROC_ADDRESS_SUCCESS && function != NULL ? 0 : 1001;
}
