// SPDX-License-Identifier: Apache-2.0
#include "gpu/activity/internal/names.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace kansoku::gpu::activity {
namespace {

struct CategoryClass {
  std::string_view category;
  OpClass what;
};
// The capitalised names are those of PyTorch until 1.11.
constexpr std::array kOpCategories{
    CategoryClass{"kernel", OpClass::kKernel},
    CategoryClass{"Kernel", OpClass::kKernel},
    CategoryClass{"gpu_memcpy", OpClass::kCopy},
    CategoryClass{"Memcpy", OpClass::kCopy},
    CategoryClass{"gpu_memset", OpClass::kSet},
    CategoryClass{"Memset", OpClass::kSet},
    CategoryClass{"cuda_graph", OpClass::kGraph},
    CategoryClass{"gpu_host_function", OpClass::kHostFunction},
    CategoryClass{"gpu_wait", OpClass::kWait},
};
constexpr std::array<std::string_view, 4> kCudaCategories{"cuda", "cuda_runtime", "cuda_driver",
                                                          "Runtime"};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

struct CallPrefix {
  std::string_view prefix;  // behind "cuda" or "cu"
  CallClass what;
};
// The first that fits holds: the longer before the shorter.
constexpr std::array kCallPrefixes{
    CallPrefix{"Launch", CallClass::kLaunch},
    CallPrefix{"GraphLaunch", CallClass::kLaunch},
    CallPrefix{"Memcpy", CallClass::kCopy},
    CallPrefix{"Memset", CallClass::kSet},
    CallPrefix{"MallocHost", CallClass::kHostAlloc},
    CallPrefix{"HostAlloc", CallClass::kHostAlloc},
    CallPrefix{"HostRegister", CallClass::kHostAlloc},
    CallPrefix{"HostUnregister", CallClass::kHostAlloc},
    CallPrefix{"FreeHost", CallClass::kHostAlloc},
    CallPrefix{"MemHost", CallClass::kHostAlloc},
    CallPrefix{"MemAllocHost", CallClass::kHostAlloc},
    CallPrefix{"MemFreeHost", CallClass::kHostAlloc},
    CallPrefix{"Malloc", CallClass::kAlloc},
    CallPrefix{"MemAlloc", CallClass::kAlloc},
    CallPrefix{"MemCreate", CallClass::kAlloc},
    CallPrefix{"Free", CallClass::kFree},
    CallPrefix{"MemFree", CallClass::kFree},
    CallPrefix{"MemRelease", CallClass::kFree},
    CallPrefix{"DeviceSynchronize", CallClass::kSync},
    CallPrefix{"ThreadSynchronize", CallClass::kSync},
    CallPrefix{"CtxSynchronize", CallClass::kSync},
    CallPrefix{"StreamSynchronize", CallClass::kSync},
    CallPrefix{"EventSynchronize", CallClass::kSync},
    CallPrefix{"ModuleLoad", CallClass::kModule},
    CallPrefix{"LibraryLoad", CallClass::kModule},
    CallPrefix{"Link", CallClass::kModule},
};

struct TypeBytes {
  std::string_view name;
  std::uint32_t bytes;
};
// NCCL's names (our packs), PyTorch's scalar types (its profiler).
constexpr std::array kTypes{
    TypeBytes{"int8", 1},      TypeBytes{"uint8", 1},         TypeBytes{"int32", 4},
    TypeBytes{"uint32", 4},    TypeBytes{"int64", 8},         TypeBytes{"uint64", 8},
    TypeBytes{"float16", 2},   TypeBytes{"float32", 4},       TypeBytes{"float64", 8},
    TypeBytes{"bfloat16", 2},  TypeBytes{"float8e4m3", 1},    TypeBytes{"float8e5m2", 1},
    TypeBytes{"byte", 1},      TypeBytes{"char", 1},          TypeBytes{"bool", 1},
    TypeBytes{"short", 2},     TypeBytes{"half", 2},          TypeBytes{"int", 4},
    TypeBytes{"float", 4},     TypeBytes{"long", 8},          TypeBytes{"double", 8},
    TypeBytes{"long int", 8},  TypeBytes{"float8_e4m3fn", 1}, TypeBytes{"float8_e5m2", 1},
    TypeBytes{"c10::half", 2}, TypeBytes{"c10::bfloat16", 2},
};

// The longer before the shorter that it begins with.
constexpr std::array<std::string_view, 10> kCollectiveWords{
    "allreduce", "reducescatter", "allgather", "alltoall", "broadcast",
    "sendrecv",  "reduce",        "send",      "recv",     "barrier"};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

std::string_view op_class_name(OpClass what) {
  constexpr std::array<std::string_view, kOpClassCount> kNames{
      "kernel", "collective", "copy", "set", "graph", "host_function", "wait"};
  return kNames[static_cast<std::size_t>(what)];
}

std::optional<OpClass> op_class_of(std::string_view category) {
  for (const CategoryClass& row : kOpCategories) {
    if (row.category == category) return row.what;
  }
  return std::nullopt;
}

bool is_cuda_category(std::string_view category) {
  return std::find(kCudaCategories.begin(), kCudaCategories.end(), category) !=
         kCudaCategories.end();
}

bool is_foreign_category(std::string_view category) {
  constexpr std::array<std::string_view, 10> kOthers{"python_function",
                                                     "user_annotation",
                                                     "gpu_user_annotation",
                                                     "cuda_sync",
                                                     "overhead",
                                                     "cpu_instant_event",
                                                     "Trace",
                                                     "ac2g",
                                                     "fwdbwd",
                                                     "external_correlation"};
  return !op_class_of(category) && !is_cuda_category(category) && !is_operator_category(category) &&
         !is_own_category(category) &&
         std::find(kOthers.begin(), kOthers.end(), category) == kOthers.end();
}

bool is_operator_category(std::string_view category) {
  return category == "cpu_op" || category == "Operator" || category == "torch-ops";
}

bool is_own_category(std::string_view category) {
  return category.starts_with("kansoku.");
}

bool is_range_category(std::string_view category) {
  return category == "user_annotation";
}

bool is_device_clock(std::string_view track) {
  return track.ends_with(", device clock");
}

CallKind call_kind_of(std::string_view function) {
  std::string_view rest = function;
  if (rest.starts_with("cuda")) {
    rest.remove_prefix(4);
  } else if (rest.starts_with("cu")) {
    rest.remove_prefix(2);
  } else if (rest.starts_with("hip")) {
    rest.remove_prefix(3);
  } else {
    return {};
  }
  for (const CallPrefix& row : kCallPrefixes) {
    if (!rest.starts_with(row.prefix)) continue;
    const bool is_async = has(rest, "Async") || has(rest, "Batch");
    return {row.what, row.what == CallClass::kSync || (row.what == CallClass::kCopy && !is_async)};
  }
  return {};
}

std::string_view copy_kind_of(std::string_view name) {
  constexpr std::string_view kWord = "Memcpy ";
  if (!name.starts_with(kWord)) return {};
  name.remove_prefix(kWord.size());
  return name.substr(0, name.find(' '));
}

std::uint32_t type_bytes_of(std::string_view type) {
  const std::string word = lower(type);
  for (const TypeBytes& row : kTypes) {
    if (row.name == word) return row.bytes;
  }
  return 0;
}

std::string collective_of(std::string_view name) {
  std::string word = lower(name.substr(0, std::min<std::size_t>(name.size(), 120)));
  std::erase(word, '_');
  for (const std::string_view known : kCollectiveWords) {
    if (has(word, known)) return std::string(known);
  }
  return {};
}

}  // namespace kansoku::gpu::activity
