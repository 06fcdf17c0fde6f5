// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "softcuda/runtime/internal/state.h"

namespace kansoku::cudart {

LookUp find_driver() {
  // Never closed: its threads may run until the process ends.
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  return reinterpret_cast<LookUp>(dlsym(library, "cuGetProcAddress_v2"));
}

}  // namespace kansoku::cudart
