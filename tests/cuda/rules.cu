// SPDX-License-Identifier: Apache-2.0
// rules SECTION FILE: does each kind of operation that a rule of docs/measurements/cuda.md counts,
// in known numbers, and writes them down as it counts them itself: calls and those that returned 0,
// operations with their bytes, runs of kernels. rules --list names the sections. Status 77: the
// device has no such thing, and the reason is printed.
#include <cublas_v2.h>
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

constexpr char kModule[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 variable[4] = {11, 22, 33, 44};
.visible .entry store(.param .u64 out)
{
  .reg .b64 %d<3>;
  ld.param.u64 %d1, [out];
  cvta.to.global.u64 %d2, %d1;
  st.global.u32 [%d2], 7;
  ret;
}
.visible .entry other(.param .u64 out)
{
  .reg .b64 %d<3>;
  ld.param.u64 %d1, [out];
  cvta.to.global.u64 %d2, %d1;
  st.global.u32 [%d2], 8;
  ret;
}
.visible .entry fault(.param .u64 out)
{
  trap;
  ret;
}
)";

struct Sum {
  unsigned long long count = 0, second = 0;
};
std::map<std::string, Sum> calls, did, ran, unrun;

CUresult note(const char* name, CUresult result) {
  ++calls[name].count;
  if (result == CUDA_SUCCESS) ++calls[name].second;
  return result;
}
void done(const char* what, unsigned long long bytes, unsigned long long times = 1) {
  did[what].count += times;
  did[what].second += bytes * times;
}
void kernels(const char* name, unsigned long long times = 1) {
  ran[name].count += times;
  did["kernel"].count += times;
}

[[noreturn]] void wrong(const char* what, int line, int result) {
  std::fprintf(stderr, "rules:%d: %s gives %d\n", line, what, result);
  std::exit(1);
}
#define NAME_(text) #text
#define NAME(text) NAME_(text)
// By the name that the library exports, which the header's plain name stands for.
#define CALL(function, ...) note(NAME(function), function(__VA_ARGS__))
#define OK(function, ...)                                                               \
  do {                                                                                  \
    const CUresult result_ = CALL(function, __VA_ARGS__);                               \
    if (result_ != CUDA_SUCCESS) wrong(#function, __LINE__, static_cast<int>(result_)); \
  } while (false)
#define FAILS(function, ...)                                                        \
  do {                                                                              \
    if (CALL(function, __VA_ARGS__) == CUDA_SUCCESS) wrong(#function, __LINE__, 0); \
  } while (false)

CUcontext context;
CUmodule module;
CUfunction store, other, fault;
CUstream stream;
CUdeviceptr memory;
constexpr std::size_t kBytes = 1 << 16;
std::vector<char> host(kBytes, 1);

void begin() {
  OK(cuInit, 0);
  OK(cuDevicePrimaryCtxRetain, &context, 0);
  OK(cuCtxSetCurrent, context);
  OK(cuModuleLoadData, &module, kModule);
  OK(cuModuleGetFunction, &store, module, "store");
  OK(cuModuleGetFunction, &other, module, "other");
  OK(cuModuleGetFunction, &fault, module, "fault");
  OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  OK(cuMemAlloc, &memory, kBytes);
}

CUresult launch(CUfunction function, unsigned threads = 1) {
  void* arguments[] = {&memory};
  return CALL(cuLaunchKernel, function, 1, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr);
}
#define LAUNCH(function)                                                        \
  do {                                                                          \
    if (launch(function) != CUDA_SUCCESS) wrong("cuLaunchKernel", __LINE__, 1); \
  } while (false)

void wait() {
  OK(cuStreamSynchronize, stream);
}

// A call that returns an error is a call, and no operation.
int failures() {
  for (int i = 0; i < 5; ++i)
    LAUNCH(store);
  kernels("store", 5);
  for (int i = 0; i < 3; ++i)
    if (launch(store, 4096) == CUDA_SUCCESS) wrong("a block of 4096 threads", __LINE__, 0);
  wait();
  OK(cuMemcpyHtoD, memory, host.data(), 100);
  OK(cuMemcpyHtoDAsync, memory, host.data(), 200, stream);
  done("copy_HtoD", 100);
  done("copy_HtoD", 200);
  OK(cuMemcpyDtoH, host.data(), memory, 300);
  done("copy_DtoH", 300);
  FAILS(cuMemcpyHtoD, memory + kBytes - 1, host.data(), 100);
  FAILS(cuMemcpyHtoDAsync, memory, nullptr, 100, stream);
  FAILS(cuMemcpyDtoH, host.data(), 0, 100);
  OK(cuMemsetD32, memory, 1, 10);
  OK(cuMemsetD8Async, memory, 1, 3, stream);
  done("set", 40);
  done("set", 3);
  FAILS(cuMemsetD32, memory + 1, 1, 10);
  FAILS(cuMemsetD8, memory, 1, kBytes + 1);
  CUdeviceptr much = 0;
  FAILS(cuMemAlloc, &much, std::size_t{1} << 60);
  FAILS(cuMemFree, memory + 4);
  wait();
  return 0;
}

// Without bytes it is a call, and no operation.
int zero() {
  OK(cuMemcpyHtoD, memory, host.data(), 0);
  OK(cuMemcpyDtoH, host.data(), memory, 0);
  OK(cuMemcpyDtoD, memory, memory + 64, 0);
  OK(cuMemcpyHtoDAsync, memory, host.data(), 0, stream);
  OK(cuMemcpyDtoHAsync, host.data(), memory, 0, stream);
  OK(cuMemcpyAsync, memory, memory + 64, 0, stream);
  OK(cuMemsetD8, memory, 1, 0);
  OK(cuMemsetD32Async, memory, 1, 0, stream);
  OK(cuMemsetD2D8Async, memory, 64, 1, 8, 0, stream);
  OK(cuMemsetD2D32, memory, 64, 1, 0, 8);
  CUDA_MEMCPY2D flat{};
  flat.srcMemoryType = flat.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  flat.srcDevice = memory;
  flat.dstDevice = memory + 1024;
  flat.srcPitch = flat.dstPitch = 64;
  flat.WidthInBytes = 8;
  OK(cuMemcpy2DAsync, &flat, stream);
  OK(cuMemcpyHtoDAsync, memory, host.data(), 24, stream);  // beside one that has some
  done("copy_HtoD", 24);
  wait();
  return 0;
}

// Bytes are width x height x depth, whatever the pitch.
int boxes() {
  CUdeviceptr pitched = 0;
  std::size_t pitch = 0;
  OK(cuMemAllocPitch, &pitched, &pitch, 100, 30, 4);
  CUDA_MEMCPY2D flat{};
  flat.srcMemoryType = CU_MEMORYTYPE_HOST;
  flat.srcHost = host.data();
  flat.srcPitch = 128;
  flat.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  flat.dstDevice = pitched;
  flat.dstPitch = pitch;
  flat.WidthInBytes = 100;
  flat.Height = 30;
  OK(cuMemcpy2D, &flat);
  OK(cuMemcpy2DAsync, &flat, stream);
  OK(cuMemcpy2DUnaligned, &flat);
  done("copy_HtoD", 3000, 3);
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = memory;
  box.dstDevice = memory + kBytes / 2;
  box.srcPitch = box.dstPitch = 64;
  box.srcHeight = box.dstHeight = 16;
  box.WidthInBytes = 20;
  box.Height = 5;
  box.Depth = 3;
  OK(cuMemcpy3D, &box);
  OK(cuMemcpy3DAsync, &box, stream);
  done("copy_DtoD", 300, 2);
  box.dstMemoryType = CU_MEMORYTYPE_HOST;
  box.dstHost = host.data();
  OK(cuMemcpy3D, &box);
  done("copy_DtoH", 300);
  OK(cuMemsetD2D8, memory, 64, 1, 10, 5);
  OK(cuMemsetD2D16, memory, 64, 1, 10, 5);
  OK(cuMemsetD2D32Async, memory, 64, 1, 10, 5, stream);
  done("set", 50);
  done("set", 100);
  done("set", 200);
  wait();
  OK(cuMemFree, pitched);
  return 0;
}

using BatchOld = CUresult(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*, size_t*,
                          size_t, size_t*, CUstream);
using BatchNew = CUresult(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*, size_t*,
                          size_t, CUstream);
using BoxesNew = CUresult(size_t, CUDA_MEMCPY3D_BATCH_OP*, unsigned long long, CUstream);

// Newer than the headers may be: asked for as the runtime does.
template <class Function>
Function* newer(const char* name, int version) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status{};
  if (CALL(cuGetProcAddress, name, &found, version, 0, &status) != CUDA_SUCCESS) return nullptr;
  return reinterpret_cast<Function*>(found);
}

CUmemcpy3DOperand place(CUdeviceptr address) {
  CUmemcpy3DOperand out{};
  out.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  out.op.ptr.ptr = address;
  return out;
}

// A batch is one call, and as many operations as it has copies with bytes; all of them or, if one
// is wrong, none.
int batch() {
  auto* const old_batch = newer<BatchOld>("cuMemcpyBatchAsync", 12080);
  auto* const new_batch = newer<BatchNew>("cuMemcpyBatchAsync", 13000);
  auto* const new_boxes = newer<BoxesNew>("cuMemcpy3DBatchAsync", 13000);
  if (old_batch == nullptr || new_batch == nullptr || new_boxes == nullptr) {
    std::printf("batches of copies: this driver has none\n");
    return 77;
  }
  CUdeviceptr to[9], from[9];
  size_t bytes[9], first = 0, failed = 0;
  for (size_t i = 0; i < 9; ++i) {
    to[i] = memory + 4096 + 256 * i;
    from[i] = memory + 256 * i;
    bytes[i] = 10 + i;
  }
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  const auto check = [](CUresult result, int line) {
    if (result != CUDA_SUCCESS) wrong("a batch", line, static_cast<int>(result));
  };
  check(note("cuMemcpyBatchAsync",
             old_batch(to, from, bytes, 3, &attributes, &first, 1, &failed, stream)),
        __LINE__);
  done("copy_DtoD", 10);
  done("copy_DtoD", 11);
  done("copy_DtoD", 12);
  bytes[1] = 0;
  check(
      note("cuMemcpyBatchAsync_v2", new_batch(to, from, bytes, 3, &attributes, &first, 1, stream)),
      __LINE__);
  done("copy_DtoD", 10);
  done("copy_DtoD", 12);
  bytes[1] = 11;
  to[2] = memory + kBytes - 4;
  if (note("cuMemcpyBatchAsync_v2",
           new_batch(to, from, bytes, 3, &attributes, &first, 1, stream)) == CUDA_SUCCESS)
    wrong("a batch beyond the end", __LINE__, 0);
  CUDA_MEMCPY3D_BATCH_OP box{};
  box.src = place(memory);
  box.dst = place(memory + kBytes / 2);
  box.extent = {20, 5, 3};
  box.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  check(note("cuMemcpy3DBatchAsync_v2", new_boxes(1, &box, 0, stream)), __LINE__);
  done("copy_DtoD", 300);
  wait();
  return 0;
}

// More than can be read from outside: the operations are known there, the bytes are not.
int long_batch() {
  auto* const new_batch = newer<BatchNew>("cuMemcpyBatchAsync", 13000);
  if (new_batch == nullptr) return 77;
  CUdeviceptr to[9], from[9];
  size_t bytes[9], first = 0;
  for (size_t i = 0; i < 9; ++i) {
    to[i] = memory + 4096 + 256 * i;
    from[i] = memory + 256 * i;
    bytes[i] = 10;
  }
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  if (note("cuMemcpyBatchAsync_v2",
           new_batch(to, from, bytes, 9, &attributes, &first, 1, stream)) != CUDA_SUCCESS)
    wrong("a batch", __LINE__, 1);
  done("copy_DtoD", 10, 9);
  wait();
  return 0;
}

// Advice on the place of managed memory: calls, and no copies.
int advice() {
  CUdeviceptr managed = 0;
  OK(cuMemAllocManaged, &managed, 4096, CU_MEM_ATTACH_GLOBAL);
#if CUDA_VERSION < 13000
  OK(cuMemAdvise, managed, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, 0);
  OK(cuMemAdvise, managed, 4096, CU_MEM_ADVISE_UNSET_READ_MOSTLY, 0);
  FAILS(cuMemAdvise, memory, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, 0);
  OK(cuMemPrefetchAsync, managed, 4096, 0, stream);
  OK(cuMemPrefetchAsync, managed, 4096, CU_DEVICE_CPU, stream);
  FAILS(cuMemPrefetchAsync, memory, 4096, 0, stream);
#endif
  wait();
  OK(cuMemFree, managed);
  return 0;
}

// Copies of a load that fill variables are the driver's own.
int modules() {
  CUmodule more[3] = {};
  for (CUmodule& one : more)
    OK(cuModuleLoadData, &one, kModule);
  CUmodule none = nullptr;
  FAILS(cuModuleLoadData, &none, "this is no module");
  CUfunction function = nullptr;
  FAILS(cuModuleGetFunction, &function, module, "nothing_of_that_name");
  OK(cuModuleGetFunction, &function, more[0], "store");
  LAUNCH(function);
  kernels("store");
  wait();
  CUdeviceptr variable = 0;
  size_t bytes = 0;
  OK(cuModuleGetGlobal, &variable, &bytes, more[1], "variable");
  OK(cuMemcpyDtoH, host.data(), variable, bytes);
  done("copy_DtoH", 16);
  for (CUmodule one : more)
    OK(cuModuleUnload, one);
  return 0;
}

CUgraph captured(CUfunction function) {
  CUgraph graph = nullptr;
  OK(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  LAUNCH(function);
  LAUNCH(function);
  OK(cuMemsetD8Async, memory, 0, 10, stream);
  OK(cuMemcpyDtoDAsync, memory + 64, memory, 20, stream);
  OK(cuMemcpyDtoDAsync, memory + 64, memory, 0, stream);  // not even a node
  OK(cuStreamEndCapture, stream, &graph);
  return graph;
}
// Work of one launch of such a graph.
void done_captured(const char* name, unsigned long long times) {
  kernels(name, 2 * times);
  done("set", 10, times);
  done("copy_DtoD", 20, times);
}
void launch_graph(CUgraphExec exec, int times) {
  for (int i = 0; i < times; ++i)
    OK(cuGraphLaunch, exec, stream);
  wait();
}
CUDA_KERNEL_NODE_PARAMS node_of(CUfunction function, void** arguments) {
  CUDA_KERNEL_NODE_PARAMS out{};
  out.func = function;
  out.gridDimX = out.gridDimY = out.gridDimZ = 1;
  out.blockDimX = out.blockDimY = out.blockDimZ = 1;
  out.kernelParams = arguments;
  return out;
}

// Captured work does not run; nodes run with each launch, those of child graphs, too.
int graphs() {
  CUgraph first = captured(store), second = captured(other), whole = nullptr, clone = nullptr;
  CUgraphExec exec = nullptr, exec_whole = nullptr, exec_clone = nullptr;
  OK(cuGraphInstantiateWithFlags, &exec, first, 0);
  launch_graph(exec, 3);
  done_captured("store", 3);
  CUgraphExecUpdateResultInfo info{};
  OK(cuGraphExecUpdate, exec, second, &info);
  launch_graph(exec, 4);
  done_captured("other", 4);
  void* arguments[] = {&memory};
  const CUDA_KERNEL_NODE_PARAMS kernel = node_of(store, arguments);
  CUgraphNode node = nullptr, child = nullptr;
  OK(cuGraphCreate, &whole, 0);
  OK(cuGraphAddKernelNode, &node, whole, nullptr, 0, &kernel);
  OK(cuGraphAddChildGraphNode, &child, whole, &node, 1, second);
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = memory;
  fill.elementSize = 4;
  fill.width = 6;
  fill.height = 1;
  OK(cuGraphAddMemsetNode, &node, whole, &child, 1, &fill, context);
  OK(cuGraphInstantiateWithFlags, &exec_whole, whole, 0);
  launch_graph(exec_whole, 2);
  kernels("store", 2);
  done("set", 24, 2);
  done_captured("other", 2);
  OK(cuGraphClone, &clone, first);
  OK(cuGraphInstantiateWithFlags, &exec_clone, clone, 0);
  launch_graph(exec_clone, 1);
  done_captured("store", 1);
  done("graph", 0, 10 + 2);  // a child graph is one, too
  for (CUgraph graph : {first, second, whole, clone})
    OK(cuGraphDestroy, graph);
  launch_graph(exec_whole, 1);  // its sources are gone
  kernels("store");
  done("set", 24);
  done_captured("other", 1);
  done("graph", 0, 2);
  for (CUgraphExec one : {exec, exec_whole, exec_clone})
    OK(cuGraphExecDestroy, one);
  return 0;
}

// A node of a graph that is switched off: from then on what it runs is not known, and is not said.
int changed_graph() {
  void* arguments[] = {&memory};
  const CUDA_KERNEL_NODE_PARAMS kernel = node_of(store, arguments);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode nodes[2] = {};
  OK(cuGraphCreate, &graph, 0);
  OK(cuGraphAddKernelNode, &nodes[0], graph, nullptr, 0, &kernel);
  OK(cuGraphAddKernelNode, &nodes[1], graph, nodes, 1, &kernel);
  OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
  launch_graph(exec, 2);
  kernels("store", 4);
  OK(cuGraphNodeSetEnabled, exec, nodes[1], 0);
  launch_graph(exec, 3);
  kernels("store", 3);
  done("graph", 0, 5);
  unrun["unknown_graph"].count = 3;
  OK(cuGraphExecDestroy, exec);
  OK(cuGraphDestroy, graph);
  return 0;
}

// Calls of a library to the driver are the program's.
int library() {
  cublasHandle_t handle = nullptr;
  if (cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) wrong("cublasCreate", __LINE__, 1);
  const float one = 1, zero = 0;
  auto* const matrix = reinterpret_cast<float*>(memory);
  for (int i = 0; i < 3; ++i)
    if (cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 16, 16, 16, &one, matrix, 16, matrix + 256,
                    16, &zero, matrix + 512, 16) != CUBLAS_STATUS_SUCCESS)
      wrong("cublasSgemm", __LINE__, i);
  CALL(cuCtxSynchronize);
  cublasDestroy(handle);
  calls.clear();  // it does not know which calls the library made
  return 0;
}

int arrays() {
  using Create = CUresult(void**, const void*);
  struct {
    size_t width, height;
    unsigned format, channels;
  } descriptor{64, 64, 0x01, 1};
  void* array = nullptr;
  auto* const create = newer<Create>("cuArrayCreate", 13000);
  const CUresult result = create == nullptr ? CUDA_ERROR_NOT_FOUND : create(&array, &descriptor);
  if (result == CUDA_SUCCESS) {
    std::printf("arrays: this device has them, and copies of them have no numbers here\n");
    return 77;
  }
  std::printf("arrays: this device has none (%d)\n", static_cast<int>(result));
  return 77;
}

int loops() {
  using Create = CUresult(unsigned long long*, CUgraph, CUcontext, unsigned, unsigned);
  unsigned long long handle = 0;
  CUgraph graph = nullptr;
  OK(cuGraphCreate, &graph, 0);
  auto* const create = newer<Create>("cuGraphConditionalHandleCreate", 13000);
  const CUresult result =
      create == nullptr ? CUDA_ERROR_NOT_FOUND : create(&handle, graph, context, 0, 0);
  if (result == CUDA_SUCCESS) {
    std::printf("loops: this device has them, and their nodes have no numbers here\n");
    return 77;
  }
  std::printf("loops: this device has no conditional nodes (%d)\n", static_cast<int>(result));
  return 77;
}

// Each launch of a chain counts as one of its kernel, however many share a time.
int chains() {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = &attribute;
  void* arguments[] = {&memory};
  for (int round = 0; round < 20; ++round) {
    LAUNCH(store);
    for (int i = 0; i < 4; ++i) {
      config.numAttrs = i % 4 != 3 ? 1 : 0;
      OK(cuLaunchKernelEx, &config, i % 2 == 0 ? other : store, arguments, nullptr);
    }
    config.blockDimX = 4096;
    FAILS(cuLaunchKernelEx, &config, other, arguments, nullptr);
    config.blockDimX = 1;
    if (round % 3 == 0) wait();
  }
  kernels("store", 20 * 3);
  kernels("other", 20 * 2);
  wait();
  return 0;
}

// A kernel that fails on the device was launched: only later calls tell of its error. The last
// thing that the context does.
int device_error() {
  LAUNCH(store);
  kernels("store");
  wait();
  LAUNCH(fault);
  unrun["kernel fault"].count = 1;
  FAILS(cuStreamSynchronize, stream);
  return 0;
}

struct Section {
  const char* name;
  int (*run)();
};
constexpr Section kSections[] = {{"failures", failures},
                                 {"zero", zero},
                                 {"boxes", boxes},
                                 {"batch", batch},
                                 {"long_batch", long_batch},
                                 {"advice", advice},
                                 {"modules", modules},
                                 {"graphs", graphs},
                                 {"changed_graph", changed_graph},
                                 {"library", library},
                                 {"arrays", arrays},
                                 {"loops", loops},
                                 {"chains", chains},
                                 {"device_error", device_error}};

bool write(const char* path) {
  std::FILE* const file = std::fopen(path, "we");
  if (file == nullptr) return false;
  for (const auto& [name, sum] : calls)
    std::fprintf(file, "call %s %llu %llu\n", name.c_str(), sum.count, sum.second);
  for (const auto& [name, sum] : did)
    std::fprintf(file, "did %s %llu %llu\n", name.c_str(), sum.count, sum.second);
  for (const auto& [name, sum] : ran)
    std::fprintf(file, "kernel %s %llu\n", name.c_str(), sum.count);
  for (const auto& [name, sum] : unrun)
    std::fprintf(file, "unrun %s %llu\n", name.c_str(), sum.count);
  return std::fclose(file) == 0;
}

}  // namespace

int main(int count, char** words) {
  if (count == 2 && std::strcmp(words[1], "--list") == 0) {
    for (const Section& section : kSections)
      std::printf("%s\n", section.name);
    return 0;
  }
  for (const Section& section : kSections) {
    if (count != 3 || std::strcmp(words[1], section.name) != 0) continue;
    begin();
    const int status = section.run();
    if (status != 0) return status;
    return write(words[2]) ? 0 : 1;
  }
  std::fprintf(stderr, "usage: rules --list | SECTION FILE\n");
  return 2;
}
