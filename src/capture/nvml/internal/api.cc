// SPDX-License-Identifier: Apache-2.0
#include "capture/nvml/internal/api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <initializer_list>

#include "sys/trust.h"

namespace kansoku::capture::nvml::api {
namespace {

void* find(void* library, std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    if (void* const found = dlsym(library, name)) return found;
  }
  return nullptr;
}

}  // namespace

Result<Api> load(const std::string& library) {
  TRY_VOID(sys::check_loadable(library));
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return Error{Code::kUnavailable,
                 fmt::format("load NVML {}: {}", library, why == nullptr ? "unknown" : why),
                 "install NVIDIA's driver, which includes it; in a container, mount it "
                 "(NVIDIA_DRIVER_CAPABILITIES=utility)"};
  }
  Api out;
  const char* missing = nullptr;
#define KANSOKU_NVML_LOAD(name, parameters, ...) \
  out.name = reinterpret_cast<int(*) parameters>(find(handle, {__VA_ARGS__}));
#define KANSOKU_NVML_LOAD_NEEDED(name, parameters, ...) \
  KANSOKU_NVML_LOAD(name, parameters, __VA_ARGS__)      \
  if (out.name == nullptr && missing == nullptr) missing = #name;
  KANSOKU_NVML_NEEDED(KANSOKU_NVML_LOAD_NEEDED)
  KANSOKU_NVML_OPTIONAL(KANSOKU_NVML_LOAD)
#undef KANSOKU_NVML_LOAD_NEEDED
#undef KANSOKU_NVML_LOAD
  if (missing != nullptr) {
    return Error{Code::kUnavailable,
                 fmt::format("load NVML {}: it has no function to {}", library, missing),
                 "install driver 450 or later"};
  }
  return out;
}

Error start_error(int status) {
  switch (status) {
    case kDriverNotLoaded:
      return Error{Code::kUnavailable, "start NVML: NVIDIA's kernel driver is not loaded",
                   "check `dmesg` and `lsmod`"};
    case kNoPermission:
      return Error{Code::kPermission, "start NVML: no permission",
                   "make /dev/nvidiactl readable and writable"};
    case kVersionMismatch:
      return Error{Code::kUnavailable, "start NVML: library and kernel driver differ in version",
                   "restart the host after an update of the driver"};
    default:
      return Error{Code::kUnavailable, fmt::format("start NVML: status {}", status),
                   "run nvidia-smi: it should fail too and print more"};
  }
}

}  // namespace kansoku::capture::nvml::api
