// SPDX-License-Identifier: Apache-2.0
// Sequences of driver calls whose arguments are live handles, dead ones and ones that never were,
// sizes of all kinds, pointers into known memory, and hostile images. Nothing may crash or hang.
// Arguments that a driver cannot check are not tried: host pointers without memory, waits that
// nobody ends.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "cuda/abi.h"
#include "cuda/fatbin.h"
#include "softcuda/at_the_end_for_test.h"
#include "softcuda/kernels_for_test.h"

namespace kansoku::softcuda {

// NOLINTNEXTLINE(google-build-using-namespace): calls of the interface and nothing else.
using namespace cuda;
extern "C" {
#define KANSOKU_ENTRY_POINT(result, name, parameters) result name parameters;
#include "softcuda/entry_points.inc"
#undef KANSOKU_ENTRY_POINT
}

namespace {

constexpr std::size_t kHostBytes = std::size_t{16} << 20;  // more than a device has
constexpr std::size_t kCallsMax = 48;

/// The bytes of the input; zeros when they are used up.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  [[nodiscard]] bool is_empty() const { return at_ >= size_; }
  std::uint8_t next() { return is_empty() ? 0 : data_[at_++]; }
  template <class T>
  T number() {
    T value{};
    for (std::size_t i = 0; i < sizeof value; ++i)
      value = static_cast<T>(value | static_cast<T>(static_cast<T>(next()) << (8 * i)));
    return value;
  }
  std::string rest() {
    std::string text(reinterpret_cast<const char*>(data_) + at_, size_ - at_);
    at_ = size_;
    return text;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_, at_{0};
};

/// Handles of one kind that were given, whether they still live or not.
template <class Handle>
class Handles {
 public:
  void add(Handle handle) {
    if (all_.size() < 32) all_.push_back(handle);
  }
  Handle pick(Bytes& bytes) const {
    const std::uint8_t choice = bytes.next();
    if (choice == 255) return reinterpret_cast<Handle>(std::uintptr_t{0x5a5a5a5a50});
    if (choice == 254 || all_.empty()) return nullptr;
    return all_[choice % all_.size()];
  }
  [[nodiscard]] const std::vector<Handle>& all() const { return all_; }

 private:
  std::vector<Handle> all_;
};

/// One run.
struct Session {
  Bytes bytes;
  Handles<CUcontext> contexts;
  Handles<CUstream> streams;
  Handles<CUevent> events;
  Handles<CUmodule> modules;
  Handles<CUfunction> functions;
  Handles<CUlibrary> libraries;
  Handles<CUkernel> kernels;
  Handles<CUgraph> graphs;
  Handles<CUgraphNode> nodes;
  Handles<CUgraphExec> execs;
  Handles<CUmemoryPool> pools;
  std::vector<CUmemGenericAllocationHandle> physical;
  std::vector<std::pair<CUdeviceptr, std::size_t>> reserved;
  std::vector<CUdeviceptr> pointers;

  Session(const std::uint8_t* data, std::size_t size) : bytes(data, size) {
    streams.add(nullptr);
    streams.add(kLegacyStream);
    streams.add(kPerThreadStream);
  }

  std::size_t size() {
    constexpr std::array<std::size_t, 12> kSizes{
        0, 1, 3, 4, 64, 4096, 100'000, 2 << 20, 8 << 20, SIZE_MAX, SIZE_MAX / 2, SIZE_MAX - 4095};
    const std::uint8_t choice = bytes.next();
    return choice < kSizes.size() ? kSizes[choice] : choice * std::size_t{16};
  }
  std::size_t small() { return bytes.next() % 16; }
  /// Pointer of a device or pinned, allocated or freed, perhaps off by some.
  CUdeviceptr pointer() {
    const std::uint8_t choice = bytes.next();
    if (choice >= 250) return choice == 255 ? 0 : choice * std::uint64_t{4096};
    const CUdeviceptr base = pointers.empty() ? 4096 : pointers[choice % pointers.size()];
    return base + (bytes.next() % 4 == 0 ? bytes.number<std::uint16_t>() : 0);
  }
  static std::byte* host() {
    static std::vector<std::byte> memory(kHostBytes);
    return memory.data();
  }
};

void add_pointer(Session& s, CUresult status, CUdeviceptr pointer) {
  if (status == CUDA_SUCCESS && s.pointers.size() < 64) s.pointers.push_back(pointer);
}

// Images.

/// As cuModuleLoadData may get it: with nothing readable behind it, whatever its header says. It is
/// no wrapper, whose pointers would have to point somewhere.
std::string no_wrapper(std::string image) {
  std::uint32_t magic = 0;
  std::memcpy(&magic, image.data(), std::min(image.size(), sizeof magic));
  if (magic == kWrapperMagic) image[0] = '.';
  return image;
}

AtTheEnd image(Session& s) {
  const std::uint8_t choice = s.bytes.next();
  const std::uint8_t kind = choice % 5;
  const bool is_cut = choice >= 250;
  if (kind == 4) return AtTheEnd(no_wrapper(s.bytes.rest()));
  std::string made = kTestKernels;
  if (kind != 0) made = write_fatbin({{made, 80}}, static_cast<Compression>(kind - 1)).value();
  for (std::uint8_t changes = s.bytes.next() % 8; changes > 0; --changes) {
    const std::size_t at = s.bytes.number<std::uint16_t>() % made.size();
    made[at] = static_cast<char>(s.bytes.next());
  }
  if (is_cut) made.resize(s.bytes.number<std::uint16_t>() % made.size());
  return AtTheEnd(no_wrapper(std::move(made)));
}

void add_functions(Session& s, CUmodule module) {
  CUfunction functions[24] = {};
  static_cast<void>(cuModuleEnumerateFunctions(functions, 24, module));
  for (const CUfunction function : functions) {
    if (function != nullptr) s.functions.add(function);
  }
}

void load_module(Session& s) {
  CUmodule module = nullptr;
  char log[32] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(std::size_t{s.bytes.next()} % sizeof log)};
  if (cuModuleLoadDataEx(&module, image(s).get(), 2, options, values) != CUDA_SUCCESS) return;
  s.modules.add(module);
  add_functions(s, module);
}

void load_library(Session& s) {
  CUlibrary library = nullptr;
  if (cuLibraryLoadData(&library, image(s).get(), nullptr, nullptr, 0, nullptr, nullptr, 0) !=
      CUDA_SUCCESS)
    return;
  s.libraries.add(library);
  CUkernel kernels[8] = {};
  static_cast<void>(cuLibraryEnumerateKernels(kernels, 8, library));
  for (const CUkernel kernel : kernels) {
    if (kernel == nullptr) continue;
    s.kernels.add(kernel);
    s.functions.add(reinterpret_cast<CUfunction>(kernel));
  }
}

/// Arguments as a buffer of the right size: pointers and small numbers.
struct Arguments {
  std::vector<std::uint64_t> words;
  std::size_t bytes{0};
  std::array<void*, 5> extra{};

  Arguments(Session& s, CUfunction function) {
    std::size_t offset = 0, length = 0;
    for (std::size_t i = 0;
         i < 64 && cuFuncGetParamInfo(function, i, &offset, &length) == CUDA_SUCCESS; ++i)
      bytes = offset + length;
    words.resize(bytes / 8 + 1);
    for (std::uint64_t& word : words)
      word = s.bytes.next() % 2 == 0 ? s.pointer() : s.bytes.next();
    extra = {reinterpret_cast<void*>(1), words.data(), reinterpret_cast<void*>(2), &bytes, nullptr};
  }
};

unsigned extent(Session& s) {
  const std::uint8_t choice = s.bytes.next();
  if (choice == 255) return 0x7fffffff;
  return choice > 200 ? choice * 8U : choice % 4;
}

void launch(Session& s) {
  const CUfunction function = s.functions.pick(s.bytes);
  Arguments arguments(s, function);
  const CUstream stream = s.streams.pick(s.bytes);
  CUlaunchAttribute attribute{};
  attribute.id = static_cast<CUlaunchAttributeID>(s.bytes.next() % 10);
  attribute.value.cooperative = s.bytes.next() % 3;
  CUlaunchConfig config{};
  config.gridDimX = extent(s);
  config.gridDimY = extent(s);
  config.gridDimZ = 1;
  config.blockDimX = extent(s);
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = static_cast<unsigned>(s.size());
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = s.bytes.next() % 2;
  static_cast<void>(cuLaunchKernelEx(&config, function, nullptr, arguments.extra.data()));
}

// Copies.

void copy_line(Session& s) {
  const std::size_t bytes = s.size();
  const CUstream stream = s.streams.pick(s.bytes);
  const CUdeviceptr a = s.pointer(), b = s.pointer();
  switch (s.bytes.next() % 6) {
    case 0:
      static_cast<void>(cuMemcpyHtoDAsync_v2(a, Session::host(), bytes, stream));
      break;
    case 1:
      static_cast<void>(cuMemcpyDtoHAsync_v2(Session::host(), a, bytes, stream));
      break;
    case 2:
      static_cast<void>(cuMemcpyDtoDAsync_v2(a, b, bytes, stream));
      break;
    case 3:
      static_cast<void>(cuMemcpyHtoD_v2(a, Session::host(), bytes));
      break;
    case 4:
      static_cast<void>(cuMemcpyPeerAsync(a, s.contexts.pick(s.bytes), b, s.contexts.pick(s.bytes),
                                          bytes, stream));
      break;
    default:
      static_cast<void>(cuMemcpyDtoH_v2(Session::host(), a, bytes));
  }
}

void copy_box(Session& s) {
  CUDA_MEMCPY3D box{};
  const auto type = [&] { return static_cast<CUmemorytype>(s.bytes.next() % 6); };
  box.srcMemoryType = type();
  box.dstMemoryType = type();
  box.srcDevice = s.pointer();
  box.dstDevice = s.pointer();
  box.srcHost = Session::host();
  box.dstHost = Session::host();
  // Both sides' extents of a host's memory are the program's affair, so they stay small then.
  const bool has_host =
      box.srcMemoryType == CU_MEMORYTYPE_HOST || box.dstMemoryType == CU_MEMORYTYPE_HOST ||
      box.srcMemoryType == CU_MEMORYTYPE_UNIFIED || box.dstMemoryType == CU_MEMORYTYPE_UNIFIED;
  const auto number = [&] { return has_host ? s.small() : s.size(); };
  for (std::size_t CUDA_MEMCPY3D::*const member :
       {&CUDA_MEMCPY3D::srcXInBytes, &CUDA_MEMCPY3D::srcY, &CUDA_MEMCPY3D::srcZ,
        &CUDA_MEMCPY3D::srcPitch, &CUDA_MEMCPY3D::srcHeight, &CUDA_MEMCPY3D::dstXInBytes,
        &CUDA_MEMCPY3D::dstY, &CUDA_MEMCPY3D::dstZ, &CUDA_MEMCPY3D::dstPitch,
        &CUDA_MEMCPY3D::dstHeight, &CUDA_MEMCPY3D::WidthInBytes, &CUDA_MEMCPY3D::Height,
        &CUDA_MEMCPY3D::Depth})
    box.*member = number();
  // An address that is no device's would be taken for the host's.
  if (box.srcMemoryType == CU_MEMORYTYPE_UNIFIED) box.srcDevice = 0;
  if (box.dstMemoryType == CU_MEMORYTYPE_UNIFIED) box.dstDevice = 0;
  if (s.bytes.next() % 2 == 0) {
    static_cast<void>(cuMemcpy3DAsync_v2(&box, s.streams.pick(s.bytes)));
    return;
  }
  CUgraphNode node = nullptr;
  const CUgraph graph = s.graphs.pick(s.bytes);
  if (cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &box, nullptr) == CUDA_SUCCESS)
    s.nodes.add(node);
}

void fill(Session& s) {
  const CUdeviceptr to = s.pointer();
  const CUstream stream = s.streams.pick(s.bytes);
  const std::size_t pitch = s.size(), width = s.size(), height = s.size();
  switch (s.bytes.next() % 4) {
    case 0:
      static_cast<void>(cuMemsetD8Async(to, 1, width, stream));
      break;
    case 1:
      static_cast<void>(cuMemsetD32Async(to, 1, width, stream));
      break;
    case 2:
      static_cast<void>(cuMemsetD2D16Async(to, pitch, 1, width, height, stream));
      break;
    default:
      static_cast<void>(cuMemsetD2D32_v2(to, pitch, 1, width, height));
  }
}

// Memory.

void allocate(Session& s) {
  CUdeviceptr pointer = 0;
  void* host = nullptr;
  std::size_t pitch = 0;
  const std::size_t bytes = s.size();
  const CUstream stream = s.streams.pick(s.bytes);
  CUresult status = CUDA_ERROR_UNKNOWN;
  switch (s.bytes.next() % 6) {
    case 0:
      status = cuMemAllocAsync(&pointer, bytes, stream);
      break;
    case 1:
      status = cuMemAllocManaged(&pointer, bytes, 1);
      break;
    case 2:
      status = cuMemAllocPitch_v2(&pointer, &pitch, bytes, s.size(), 4);
      break;
    case 3:
      // The host's memory is not limited by the device's.
      status = cuMemAllocHost_v2(&host, bytes % (std::size_t{1} << 20));
      pointer = reinterpret_cast<std::uintptr_t>(host);
      break;
    case 4:
      status = cuMemAllocFromPoolAsync(&pointer, bytes, s.pools.pick(s.bytes), stream);
      break;
    default:
      status = cuMemAlloc_v2(&pointer, bytes);
  }
  add_pointer(s, status, pointer);
}

void free_memory(Session& s) {
  const CUdeviceptr pointer = s.pointer();
  const std::uint8_t choice = s.bytes.next() % 4;
  if (choice == 0) static_cast<void>(cuMemFreeAsync(pointer, s.streams.pick(s.bytes)));
  if (choice == 1) static_cast<void>(cuMemFreeHost(reinterpret_cast<void*>(pointer)));
  if (choice >= 2) static_cast<void>(cuMemFree_v2(pointer));
}

void register_host(Session& s) {
  std::byte* const at = Session::host() + s.small() * 4096;
  if (s.bytes.next() % 2 == 0) {
    const std::size_t bytes = s.small() * 1000;
    add_pointer(s, cuMemHostRegister_v2(at, bytes, 0), reinterpret_cast<std::uintptr_t>(at));
  } else {
    static_cast<void>(cuMemHostUnregister(at));
  }
}

void ask_pointer(Session& s) {
  std::uint64_t data[4] = {};
  const CUdeviceptr pointer = s.pointer();
  static_cast<void>(
      cuPointerGetAttribute(data, static_cast<CUpointer_attribute>(s.bytes.next()), pointer));
  CUdeviceptr begin = 0;
  std::size_t length = 0;
  static_cast<void>(cuMemGetAddressRange_v2(&begin, &length, pointer));
  static_cast<void>(cuMemAdvise(pointer, s.size(), s.bytes.next(), s.bytes.next() % 4 - 1));
}

void virtual_memory(Session& s) {
  const CUmemAccessDesc access{{1, s.bytes.next() % 2}, s.bytes.next() % 4};
  const CUmemAllocationProp prop{1, 0, {1, s.bytes.next() % 2}, nullptr, {}};
  const CUdeviceptr at =
      s.reserved.empty() ? s.pointer() : s.reserved[s.bytes.next() % s.reserved.size()].first;
  const std::size_t granules = (s.bytes.next() % 3) * (std::size_t{2} << 20);
  CUmemGenericAllocationHandle handle =
      s.physical.empty() ? 12345 : s.physical[s.bytes.next() % s.physical.size()];
  CUdeviceptr reserved = 0;
  switch (s.bytes.next() % 8) {
    case 0:
      if (cuMemAddressReserve(&reserved, granules, 0, 0, 0) != CUDA_SUCCESS) return;
      s.reserved.emplace_back(reserved, granules);
      add_pointer(s, CUDA_SUCCESS, reserved);
      break;
    case 1:
      if (cuMemCreate(&handle, granules, &prop, 0) == CUDA_SUCCESS) s.physical.push_back(handle);
      break;
    case 2:
      static_cast<void>(cuMemMap(at, granules, 0, handle, 0));
      break;
    case 3:
      static_cast<void>(cuMemSetAccess(at, granules, &access, 1));
      break;
    case 4:
      static_cast<void>(cuMemUnmap(at, granules));
      break;
    case 5:
      static_cast<void>(cuMemRelease(handle));
      break;
    case 6:
      if (cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(s.pointer())) ==
          CUDA_SUCCESS)
        s.physical.push_back(handle);
      break;
    default:
      static_cast<void>(cuMemAddressFree(at, granules));
  }
}

void pool(Session& s) {
  CUmemoryPool pool = nullptr;
  std::uint64_t value = s.bytes.next() % 2;
  CUmemPoolProps properties{};
  properties.allocType = 1;
  properties.location = {1, s.bytes.next() % 3};
  properties.maxSize = s.size();
  switch (s.bytes.next() % 5) {
    case 0:
      if (cuMemPoolCreate(&pool, &properties) == CUDA_SUCCESS) s.pools.add(pool);
      break;
    case 1:
      static_cast<void>(cuMemPoolDestroy(s.pools.pick(s.bytes)));
      break;
    case 2:
      static_cast<void>(cuDeviceSetMemPool(s.bytes.next() % 3, s.pools.pick(s.bytes)));
      break;
    case 3:
      if (cuDeviceGetMemPool(&pool, s.bytes.next() % 3) == CUDA_SUCCESS) s.pools.add(pool);
      break;
    default: {
      const auto attribute = static_cast<CUmemPool_attribute>(s.bytes.next());
      static_cast<void>(cuMemPoolSetAttribute(s.pools.pick(s.bytes), attribute, &value));
      static_cast<void>(cuMemPoolGetAttribute(s.pools.pick(s.bytes), attribute, &value));
    }
  }
}

// Streams, events, contexts.

void stream(Session& s) {
  CUstream stream = nullptr;
  CUstreamCaptureMode mode = static_cast<CUstreamCaptureMode>(s.bytes.next() % 4);
  CUgraph graph = nullptr;
  const CUstream picked = s.streams.pick(s.bytes);
  switch (s.bytes.next() % 10) {
    case 0:
    case 1:
      if (cuStreamCreate(&stream, s.bytes.next() % 3) == CUDA_SUCCESS) s.streams.add(stream);
      break;
    case 2:
      static_cast<void>(cuStreamDestroy_v2(picked));
      break;
    case 3:
      static_cast<void>(cuStreamSynchronize(picked));
      break;
    case 4:
      static_cast<void>(cuStreamQuery(picked));
      break;
    case 5:
      static_cast<void>(cuStreamBeginCapture_v2(picked, mode));
      break;
    case 6:
      if (cuStreamEndCapture(picked, &graph) == CUDA_SUCCESS) s.graphs.add(graph);
      break;
    case 7:
      static_cast<void>(cuThreadExchangeStreamCaptureMode(&mode));
      break;
    case 8: {
      const CUgraphNode node = s.nodes.pick(s.bytes);
      static_cast<void>(cuStreamBeginCaptureToGraph(picked, s.graphs.pick(s.bytes), &node, nullptr,
                                                    s.bytes.next() % 2, mode));
      break;
    }
    default:
      static_cast<void>(cuLaunchHostFunc(
          picked, [](void*) {}, nullptr));
  }
}

void capture_info(Session& s) {
  CUstreamCaptureStatus status{};
  std::uint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* after = nullptr;
  std::size_t count = 0;
  if (cuStreamGetCaptureInfo_v2(s.streams.pick(s.bytes), &status, &id, &graph, &after, &count) !=
          CUDA_SUCCESS ||
      status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return;
  s.graphs.add(graph);
  for (std::size_t i = 0; i < count; ++i)
    s.nodes.add(after[i]);
}

void event(Session& s) {
  CUevent event = nullptr;
  const CUevent picked = s.events.pick(s.bytes);
  const CUstream stream = s.streams.pick(s.bytes);
  float ms = 0;
  switch (s.bytes.next() % 7) {
    case 0:
    case 1:
      if (cuEventCreate(&event, s.bytes.next() % 4) == CUDA_SUCCESS) s.events.add(event);
      break;
    case 2:
      static_cast<void>(cuEventRecordWithFlags(picked, stream, s.bytes.next() % 2));
      break;
    case 3:
      static_cast<void>(cuStreamWaitEvent(stream, picked, s.bytes.next() % 2));
      break;
    case 4:
      static_cast<void>(cuEventSynchronize(picked));
      break;
    case 5:
      static_cast<void>(cuEventElapsedTime(&ms, picked, s.events.pick(s.bytes)));
      break;
    default:
      static_cast<void>(cuEventDestroy_v2(picked));
  }
}

void value(Session& s) {
  const CUstream stream = s.streams.pick(s.bytes);
  const CUdeviceptr pointer = s.pointer();
  const unsigned flags = s.bytes.next() % 6;
  static_cast<void>(cuStreamWriteValue32_v2(stream, pointer, s.bytes.next(), flags));
  static_cast<void>(cuStreamWriteValue64_v2(stream, pointer, s.bytes.next(), flags));
}

void context(Session& s) {
  CUcontext context = nullptr;
  const CUcontext picked = s.contexts.pick(s.bytes);
  const CUdevice device = s.bytes.next() % 3;
  switch (s.bytes.next() % 10) {
    case 0:
      if (s.contexts.all().size() < 8 &&
          cuCtxCreate_v2(&context, s.bytes.next() % 5, device) == CUDA_SUCCESS)
        s.contexts.add(context);
      break;
    case 1:
      static_cast<void>(cuCtxDestroy_v2(picked));
      break;
    case 2:
      static_cast<void>(cuCtxPushCurrent_v2(picked));
      break;
    case 3:
      static_cast<void>(cuCtxPopCurrent_v2(nullptr));
      break;
    case 4:
    case 5:
      static_cast<void>(cuCtxSetCurrent(picked));
      break;
    case 6:
      static_cast<void>(cuDevicePrimaryCtxReset_v2(device));
      break;
    case 7:
      if (cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS) s.contexts.add(context);
      break;
    case 8:
      static_cast<void>(cuCtxEnablePeerAccess(picked, 0));
      break;
    default:
      static_cast<void>(cuCtxSynchronize_v2(picked));
  }
}

// Graphs.

void add_node(Session& s) {
  CUgraphNode node = nullptr;
  const CUgraph graph = s.graphs.pick(s.bytes);
  const CUgraphNode after[2] = {s.nodes.pick(s.bytes), s.nodes.pick(s.bytes)};
  const std::size_t count = s.bytes.next() % 3;
  CUresult status = CUDA_ERROR_UNKNOWN;
  switch (s.bytes.next() % 7) {
    case 0: {
      CUDA_KERNEL_NODE_PARAMS params{};
      params.func = s.functions.pick(s.bytes);
      Arguments arguments(s, params.func);
      params.gridDimX = params.gridDimY = params.gridDimZ = 1;
      params.blockDimX = extent(s);
      params.blockDimY = params.blockDimZ = 1;
      params.extra = arguments.extra.data();
      status = cuGraphAddKernelNode_v2(&node, graph, after, count, &params);
      break;
    }
    case 1: {
      const CUDA_MEMSET_NODE_PARAMS params{s.pointer(),         s.size(), 1,
                                           s.bytes.next() % 5U, s.size(), s.size()};
      status = cuGraphAddMemsetNode(&node, graph, after, count, &params, nullptr);
      break;
    }
    case 2:
      status = cuGraphAddChildGraphNode(&node, graph, after, count, s.graphs.pick(s.bytes));
      break;
    case 3:
      status = cuGraphAddEventRecordNode(&node, graph, after, count, s.events.pick(s.bytes));
      break;
    case 4:
      status = cuGraphAddEventWaitNode(&node, graph, after, count, s.events.pick(s.bytes));
      break;
    default:
      status = cuGraphAddEmptyNode(&node, graph, after, count);
  }
  if (status == CUDA_SUCCESS) s.nodes.add(node);
}

void graph(Session& s) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  const CUgraph picked = s.graphs.pick(s.bytes);
  const CUgraphNode from = s.nodes.pick(s.bytes), to = s.nodes.pick(s.bytes);
  CUgraphNode some[4] = {};
  std::size_t count = 4;
  switch (s.bytes.next() % 12) {
    case 0:
    case 1:
      if (cuGraphCreate(&graph, 0) == CUDA_SUCCESS) s.graphs.add(graph);
      break;
    case 2:
      if (cuGraphClone(&graph, picked) == CUDA_SUCCESS) s.graphs.add(graph);
      break;
    case 3:
      static_cast<void>(cuGraphDestroy(picked));
      break;
    case 4:
      static_cast<void>(cuGraphAddDependencies(picked, &from, &to, 1));
      break;
    case 5:
      static_cast<void>(cuGraphRemoveDependencies(picked, &from, &to, 1));
      break;
    case 6:
      static_cast<void>(cuGraphDestroyNode(from));
      break;
    case 7:
      if (cuGraphChildGraphNodeGetGraph(from, &graph) == CUDA_SUCCESS) s.graphs.add(graph);
      break;
    case 8:
      static_cast<void>(cuGraphGetNodes(picked, some, &count));
      for (const CUgraphNode node : some) {
        if (node != nullptr) s.nodes.add(node);
      }
      break;
    default:
      if (cuGraphInstantiateWithFlags(&exec, picked, s.bytes.next() % 3) == CUDA_SUCCESS)
        s.execs.add(exec);
  }
}

void graph_exec(Session& s) {
  const CUgraphExec exec = s.execs.pick(s.bytes);
  const CUgraphNode node = s.nodes.pick(s.bytes);
  CUgraphExecUpdateResultInfo info{};
  CUDA_KERNEL_NODE_PARAMS params{};
  switch (s.bytes.next() % 6) {
    case 0:
      static_cast<void>(cuGraphExecUpdate_v2(exec, s.graphs.pick(s.bytes), &info));
      break;
    case 1:
      static_cast<void>(cuGraphNodeSetEnabled(exec, node, s.bytes.next() % 2));
      break;
    case 2:
      static_cast<void>(cuGraphExecDestroy(exec));
      break;
    case 3:
      if (cuGraphKernelNodeGetParams_v2(node, &params) == CUDA_SUCCESS)
        static_cast<void>(cuGraphExecKernelNodeSetParams_v2(exec, node, &params));
      break;
    default:
      static_cast<void>(cuGraphLaunch(exec, s.streams.pick(s.bytes)));
  }
}

// Modules.

void unload(Session& s) {
  if (s.bytes.next() % 2 == 0) {
    static_cast<void>(cuModuleUnload(s.modules.pick(s.bytes)));
  } else {
    static_cast<void>(cuLibraryUnload(s.libraries.pick(s.bytes)));
  }
}

void ask_function(Session& s) {
  const CUfunction function = s.functions.pick(s.bytes);
  const auto attribute = static_cast<CUfunction_attribute>(s.bytes.next() % 17);
  int number = 0, grid = 0;
  const char* name = nullptr;
  CUfunction found = nullptr;
  CUdeviceptr pointer = 0;
  std::size_t length = 0;
  static_cast<void>(cuFuncGetAttribute(&number, attribute, function));
  static_cast<void>(cuFuncSetAttribute(function, attribute, static_cast<int>(s.size())));
  static_cast<void>(cuFuncGetName(&name, function));
  static_cast<void>(cuOccupancyMaxPotentialBlockSize(&grid, &number, function, nullptr, s.size(),
                                                     s.bytes.next()));
  static_cast<void>(cuKernelGetFunction(&found, s.kernels.pick(s.bytes)));
  const CUmodule module = s.modules.pick(s.bytes);
  add_pointer(s, cuModuleGetGlobal_v2(&pointer, &length, module, "area"), pointer);
}

using Call = void (*)(Session&);
constexpr Call kCalls[] = {load_module, load_library, launch,       launch,         launch,
                           copy_line,   copy_box,     fill,         allocate,       allocate,
                           free_memory, ask_pointer,  pool,         virtual_memory, virtual_memory,
                           stream,      stream,       capture_info, event,          value,
                           context,     add_node,     add_node,     graph,          graph,
                           graph_exec,  unload,       ask_function, register_host};

/// Everything that the run made goes.
void clean_up(Session& s) {
  auto mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  static_cast<void>(cuThreadExchangeStreamCaptureMode(&mode));
  for (const CUcontext context : s.contexts.all())
    static_cast<void>(cuCtxDestroy_v2(context));
  for (const CUgraphExec exec : s.execs.all())
    static_cast<void>(cuGraphExecDestroy(exec));
  for (const CUgraph graph : s.graphs.all())
    static_cast<void>(cuGraphDestroy(graph));
  for (const CUlibrary library : s.libraries.all())
    static_cast<void>(cuLibraryUnload(library));
  for (const CUmemoryPool pool : s.pools.all())
    static_cast<void>(cuMemPoolDestroy(pool));
  for (CUdevice device = 0; device < 2; ++device) {
    static_cast<void>(cuDevicePrimaryCtxReset_v2(device));
    while (cuDevicePrimaryCtxRelease_v2(device) == CUDA_SUCCESS) {
    }
  }
  while (cuCtxPopCurrent_v2(nullptr) == CUDA_SUCCESS) {
  }
  CUcontext context = nullptr;
  if (cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS) std::abort();
  static_cast<void>(cuCtxSetCurrent(context));
  for (const auto& [pointer, bytes] : s.reserved) {
    constexpr std::size_t kGranule = std::size_t{2} << 20;
    static_cast<void>(cuMemUnmap(pointer, bytes));
    for (std::size_t i = 0; i < bytes; i += kGranule)
      static_cast<void>(cuMemUnmap(pointer + i, kGranule));
    static_cast<void>(cuMemAddressFree(pointer, bytes));
  }
  for (const CUmemGenericAllocationHandle handle : s.physical)
    static_cast<void>(cuMemRelease(handle));
  // A pool's memory outlives the context it was allocated in.
  for (const CUdeviceptr pointer : s.pointers)
    static_cast<void>(cuMemFree_v2(pointer));
  static_cast<void>(cuDevicePrimaryCtxRelease_v2(0));
  static_cast<void>(cuCtxSetCurrent(nullptr));
}

void start() {
  std::string folder =
      (std::filesystem::temp_directory_path() / "kansoku-softcuda-fuzz-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) std::abort();
  const std::pair<const char*, const char*> settings[] = {
      {"KANSOKU_SOFTGPU_DIR", folder.c_str()}, {"KANSOKU_SOFTGPU_DEVICES", "2"},
      {"KANSOKU_SOFTGPU_MEMORY", "8M"},        {"KANSOKU_SOFTGPU_WORKERS", "1"},
      {"KANSOKU_SOFTGPU_TIME_LIMIT", "100ms"}, {"KANSOKU_SOFTGPU_LOG", "off"}};
  for (const auto& [name, text] : settings)
    setenv(name, text, 1);
  if (cuInit(0) != CUDA_SUCCESS) std::abort();
  std::error_code error;
  std::filesystem::remove_all(folder, error);  // mapped files stay
}

/// All that is free at the end was free at the beginning: nothing is lost.
std::size_t free_bytes() {
  CUcontext context = nullptr;
  std::size_t bytes = 0;
  if (cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS) std::abort();
  static_cast<void>(cuCtxSetCurrent(context));
  static_cast<void>(cuMemGetInfo_v2(&bytes, nullptr));
  static_cast<void>(cuDevicePrimaryCtxRelease_v2(0));
  static_cast<void>(cuCtxSetCurrent(nullptr));
  return bytes;
}

}  // namespace
}  // namespace kansoku::softcuda

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kansoku::softcuda;
  static const bool is_started = (start(), true);
  static_cast<void>(is_started);
  Session session(data, size);
  CUcontext context = nullptr;
  if (cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS) std::abort();
  static_cast<void>(cuCtxSetCurrent(context));
  session.contexts.add(context);
  CUmodule module = nullptr;
  if (cuModuleLoadData(&module, kTestKernels) != CUDA_SUCCESS) std::abort();
  session.modules.add(module);
  add_functions(session, module);
  for (std::size_t i = 0; i < kCallsMax && !session.bytes.is_empty(); ++i)
    kCalls[session.bytes.next() % std::size(kCalls)](session);
  clean_up(session);
  if (free_bytes() != std::size_t{8} << 20) std::abort();
  return 0;
}
