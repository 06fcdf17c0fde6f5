// SPDX-License-Identifier: Apache-2.0
#include "softcuda/cublas/internal/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

#include "common/no_destructor.h"
#include "softcuda/telemetry/log.h"

namespace kansoku::softcuda::cublas {
namespace {

constexpr int kWantedVersion = 12000;  // all these functions are older

using Lookup = cuda::CUresult (*)(const char* name, void** function, int version,
                                  std::uint64_t flags);

struct Row {
  const char* name;
  std::size_t offset;  // of the pointer in Driver
};
constexpr Row kFunctions[] = {
    {"cuInit", offsetof(Driver, init)},
    {"cuDeviceGet", offsetof(Driver, device_get)},
    {"cuDevicePrimaryCtxRetain", offsetof(Driver, primary_retain)},
    {"cuDevicePrimaryCtxRelease", offsetof(Driver, primary_release)},
    {"cuCtxGetCurrent", offsetof(Driver, context_current)},
    {"cuCtxPushCurrent", offsetof(Driver, context_push)},
    {"cuCtxPopCurrent", offsetof(Driver, context_pop)},
    {"cuCtxGetId", offsetof(Driver, context_id)},
    {"cuModuleLoadData", offsetof(Driver, module_load)},
    {"cuModuleGetFunction", offsetof(Driver, module_function)},
    {"cuLaunchKernel", offsetof(Driver, launch)},
};
static_assert(sizeof(kFunctions) / sizeof(Row) == sizeof(Driver) / sizeof(void*));

bool find_functions(Driver& found) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    log_line(fmt::format("cublas: no driver: {}", dlerror()));
    return false;
  }
  const auto look_up = reinterpret_cast<Lookup>(dlsym(library, "cuGetProcAddress"));
  for (const Row& row : kFunctions) {
    void* function = nullptr;
    if (look_up == nullptr ||
        look_up(row.name, &function, kWantedVersion, 0) != cuda::CUDA_SUCCESS ||
        function == nullptr) {
      log_line(fmt::format("cublas: libcuda.so.1 has no {}", row.name));
      return false;
    }
    std::memcpy(reinterpret_cast<char*>(&found) + row.offset, &function, sizeof function);
  }
  return true;
}

}  // namespace

const Driver* driver() {
  static Driver functions;
  static const bool kIsThere = find_functions(functions);
  return kIsThere ? &functions : nullptr;
}

void log_once(std::string_view text) {
  static std::mutex mutex;
  static NoDestructor<std::set<std::string, std::less<>>> said;
  const std::scoped_lock lock(mutex);
  if (said.get().emplace(text).second) log_line(fmt::format("cublas: {}", text));
}

}  // namespace kansoku::softcuda::cublas
