// SPDX-License-Identifier: Apache-2.0
// The table of the driver's entry points.
#include <algorithm>
#include <array>
#include <string_view>

#include "capture/outside/call.h"

namespace kansoku::capture::outside {
namespace {

using enum Kind;
using enum Action;

constexpr Entry copy(std::string_view name, std::string_view direction, bool waits = false) {
  return {.name = name, .kind = kCopy, .direction = direction, .waits = waits};
}
constexpr Entry set(std::string_view name, std::uint8_t bytes) {
  return {.name = name, .kind = kSet, .element_bytes = bytes};
}
constexpr Entry memory(std::string_view name, Kind kind, bool is_host = false) {
  return {.name = name, .kind = kind, .is_host_memory = is_host};
}
constexpr Entry wait(std::string_view name, Kind kind, Scope scope) {
  return {.name = name, .kind = kind, .scope = scope};
}

constexpr std::array kEntries{
    // Work of the device, and of streams.
    Entry{"cuLaunchKernel", kLaunch},
    Entry{"cuLaunchKernelEx", kLaunch},
    Entry{"cuLaunchCooperativeKernel", kLaunch},
    Entry{"cuLaunchCooperativeKernelMultiDevice", kLaunch},
    Entry{"cuLaunch", kLaunch},
    Entry{"cuLaunchGrid", kLaunch},
    Entry{"cuLaunchGridAsync", kLaunch},
    Entry{"cuGraphLaunch", kGraphLaunch},
    Entry{"cuLaunchHostFunc", kHostFunction},
    Entry{"cuStreamAddCallback", kHostFunction},
    Entry{"cuStreamWaitValue32", kStreamMemory},
    Entry{"cuStreamWaitValue64", kStreamMemory},
    Entry{"cuStreamWriteValue32", kStreamMemory},
    Entry{"cuStreamWriteValue64", kStreamMemory},
    Entry{"cuStreamBatchMemOp", kStreamMemory},
    // Copies. One from the host may return before it is over.
    copy("cuMemcpyHtoD", "HtoD"),
    copy("cuMemcpyDtoH", "DtoH", true),
    copy("cuMemcpyDtoD", "DtoD"),
    copy("cuMemcpy", ""),
    copy("cuMemcpyHtoDAsync", "HtoD"),
    copy("cuMemcpyDtoHAsync", "DtoH"),
    copy("cuMemcpyDtoDAsync", "DtoD"),
    copy("cuMemcpyAsync", ""),
    copy("cuMemcpyPeer", "DtoD"),
    copy("cuMemcpyPeerAsync", "DtoD"),
    copy("cuMemcpyDtoA", "DtoD"),
    copy("cuMemcpyHtoA", "HtoD"),
    copy("cuMemcpyAtoD", "DtoD"),
    copy("cuMemcpyAtoH", "DtoH", true),
    copy("cuMemcpyAtoA", "DtoD"),
    copy("cuMemcpyHtoAAsync", "HtoD"),
    copy("cuMemcpyAtoHAsync", "DtoH"),
    copy("cuMemcpy2D", "", true),
    copy("cuMemcpy2DUnaligned", "", true),
    copy("cuMemcpy2DAsync", ""),
    copy("cuMemcpy3D", "", true),
    copy("cuMemcpy3DPeer", ""),
    copy("cuMemcpy3DAsync", ""),
    copy("cuMemcpy3DPeerAsync", ""),
    copy("cuMemcpyBatchAsync", ""),
    copy("cuMemcpy3DBatchAsync", ""),
    set("cuMemsetD8", 1),
    set("cuMemsetD16", 2),
    set("cuMemsetD32", 4),
    set("cuMemsetD8Async", 1),
    set("cuMemsetD16Async", 2),
    set("cuMemsetD32Async", 4),
    set("cuMemsetD2D8", 1),
    set("cuMemsetD2D16", 2),
    set("cuMemsetD2D32", 4),
    set("cuMemsetD2D8Async", 1),
    set("cuMemsetD2D16Async", 2),
    set("cuMemsetD2D32Async", 4),
    // Memory. Addresses alone hold none, and mapping moves none.
    memory("cuMemAlloc", kAlloc),
    memory("cuMemAllocPitch", kAlloc),
    memory("cuMemAllocManaged", kAlloc),
    memory("cuMemAllocAsync", kAlloc),
    memory("cuMemAllocFromPoolAsync", kAlloc),
    memory("cuMemCreate", kAlloc),
    memory("cuMemHostAlloc", kAlloc, true),
    memory("cuMemAllocHost", kAlloc, true),
    memory("cuMemFree", kFree),
    memory("cuMemFreeAsync", kFree),
    memory("cuMemRelease", kFree),
    memory("cuMemFreeHost", kFree, true),
    memory("cuMemAddressReserve", kMap),
    memory("cuMemAddressFree", kMap),
    memory("cuMemMap", kMap),
    memory("cuMemUnmap", kMap),
    memory("cuMemHostRegister", kMap, true),
    memory("cuMemHostUnregister", kMap, true),
    memory("cuMemAdvise", kAdvise),
    memory("cuMemPrefetchAsync", kAdvise),
    memory("cuMemPrefetchBatchAsync", kAdvise),
    memory("cuMemDiscardBatchAsync", kAdvise),
    memory("cuMemDiscardAndPrefetchBatchAsync", kAdvise),
    // Waits and questions.
    wait("cuCtxSynchronize", kSync, Scope::kContext),
    wait("cuStreamSynchronize", kSync, Scope::kStream),
    wait("cuEventSynchronize", kSync, Scope::kEvent),
    wait("cuStreamQuery", kQuery, Scope::kStream),
    wait("cuEventQuery", kQuery, Scope::kEvent),
    Entry{"cuEventRecord", kEventRecord},
    Entry{"cuEventRecordWithFlags", kEventRecord},
    Entry{"cuStreamWaitEvent", kStreamWait},
    // Handles of kernels.
    Entry{"cuModuleLoad", kLoad, kModuleLoad},
    Entry{"cuModuleLoadData", kLoad, kModuleLoad},
    Entry{"cuModuleLoadDataEx", kLoad, kModuleLoad},
    Entry{"cuModuleLoadFatBinary", kLoad, kModuleLoad},
    Entry{"cuModuleUnload", kLoad, kModuleUnload},
    Entry{"cuLibraryLoadData", kLoad, kLibraryLoad},
    Entry{"cuLibraryLoadFromFile", kLoad, kLibraryLoad},
    Entry{"cuLibraryUnload", kLoad, kLibraryUnload},
    Entry{"cuModuleGetFunction", kLookup, kGetFunction},
    Entry{"cuLibraryGetKernel", kLookup, kGetKernel},
    Entry{"cuLibraryGetModule", kLookup, kLibraryGetModule},
    Entry{"cuKernelGetFunction", kLookup, kKernelGetFunction},
    Entry{"cuFuncGetName", kLookup, kTellName},
    Entry{"cuKernelGetName", kLookup, kTellName},
    Entry{"cuCtxCreate", kContext},
    Entry{"cuCtxDestroy", kContext, kContextEnd},
    Entry{"cuDevicePrimaryCtxReset", kContext, kContextEnd},
    Entry{"cuDevicePrimaryCtxRelease", kContext, kContextEnd},
    Entry{"cuStreamDestroy", kContext, kStreamEnd},
    Entry{"cuDevicePrimaryCtxRetain", kContext, kContextRetain},
    // The runtime, for names alone.
    Entry{"cudaLaunchKernel", kOther, kRuntimeLaunch},
    Entry{"cudaLaunchKernelExC", kOther, kRuntimeLaunch},
    Entry{"cudaLaunchCooperativeKernel", kOther, kRuntimeLaunch},
    Entry{"__cudaRegisterFunction", kOther, kRegisterStub},
    Entry{"__cudaUnregisterFatBinary", kOther, kForgetStubs},
    // Graphs.
    Entry{"cuStreamBeginCapture", kGraph, kBeginCapture},
    Entry{"cuStreamBeginCaptureToGraph", kGraph, kBeginCapture},
    Entry{"cuStreamEndCapture", kGraph, kEndCapture},
    Entry{"cuGraphCreate", kGraph, kGraphCreate},
    Entry{"cuGraphAddKernelNode", kGraph, kAddKernelNode},
    Entry{"cuGraphAddChildGraphNode", kGraph, kAddChildGraph},
    Entry{"cuGraphClone", kGraph, kCloneGraph},
    Entry{"cuGraphAddNode", kGraph, kAddAnyNode},
    Entry{"cuGraphDestroyNode", kGraph, kChangeNode},
    Entry{"cuGraphKernelNodeSetParams", kGraph, kChangeNode},
    Entry{"cuGraphNodeSetParams", kGraph, kChangeNode},
    Entry{"cuGraphExecKernelNodeSetParams", kGraph, kChangeExec},
    Entry{"cuGraphExecNodeSetParams", kGraph, kChangeExec},
    Entry{"cuGraphExecChildGraphNodeSetParams", kGraph, kChangeExec},
    Entry{"cuGraphNodeSetEnabled", kGraph, kChangeExec},
    Entry{"cuGraphInstantiate", kGraph, kInstantiate},
    Entry{"cuGraphInstantiateWithFlags", kGraph, kInstantiate},
    Entry{"cuGraphInstantiateWithParams", kGraph, kInstantiate},
    Entry{"cuGraphExecUpdate", kGraph, kUpdateExec},
    Entry{"cuGraphDestroy", kGraph, kGraphEnd},
    Entry{"cuGraphExecDestroy", kGraph, kExecEnd},
};

constexpr Entry kUnknown{};

constexpr std::array<std::string_view, 19> kKindNames{
    "other",  "launch", "graph_launch", "host_function", "stream_memory",
    "copy",   "set",    "alloc",        "free",          "map",
    "advise", "sync",   "query",        "event_record",  "stream_wait",
    "load",   "lookup", "graph",        "context"};

std::string_view base_of(std::string_view function) {
  for (const std::string_view suffix : {"_ptsz", "_ptds"})
    if (function.ends_with(suffix)) function.remove_suffix(suffix.size());
  const std::size_t size = function.size();
  const bool has_version = size > 3 && function[size - 3] == '_' && function[size - 2] == 'v' &&
                           function[size - 1] >= '1' && function[size - 1] <= '9';
  if (has_version) function.remove_suffix(3);
  return function;
}

}  // namespace

std::string_view kind_name(Kind kind) {
  return kKindNames.at(static_cast<std::size_t>(kind));
}

const Entry& entry_of(std::string_view function) {
  const std::string_view base = base_of(function);
  const auto found = std::find_if(kEntries.begin(), kEntries.end(),
                                  [&](const Entry& entry) { return entry.name == base; });
  return found == kEntries.end() ? kUnknown : *found;
}

bool is_per_thread(std::string_view function) {
  return function.ends_with("_ptsz") || function.ends_with("_ptds");
}

}  // namespace kansoku::capture::outside
