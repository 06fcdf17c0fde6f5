// SPDX-License-Identifier: Apache-2.0
// Entry points by name and version, errors by number, and what is not there.
#include <fmt/format.h>

#include <cstring>
#include <set>

#include "common/no_destructor.h"
#include "softcuda/internal/entry_table.h"
#include "softcuda/internal/runtime.h"

namespace kansoku::softcuda {
namespace {

constexpr std::uint64_t kFlagPerThread = 2, kLookupFlagsMask = 3;
enum Query : int { kFound = 0, kNoSuchSymbol = 1, kVersionTooOld = 2 };

/// The form with the greatest first version that is not above the asked one.
CUresult look_up(const char* name, void** function, int version, std::uint64_t flags, int* query) {
  if (name == nullptr || function == nullptr || (flags & ~kLookupFlagsMask) != 0 ||
      version > kDriverVersion)
    return CUDA_ERROR_INVALID_VALUE;
  *function = nullptr;
  const EntryRow *plain = nullptr, *per_thread = nullptr;
  bool is_known = false;
  for (unsigned long i = 0; i < kEntryRowCount; ++i) {
    const EntryRow& row = kEntryRows[i];
    if (std::strcmp(row.base, name) != 0) continue;
    is_known = true;
    if (row.first_version > version) continue;
    const EntryRow*& best = row.is_per_thread ? per_thread : plain;
    if (best == nullptr || row.first_version > best->first_version) best = &row;
  }
  const EntryRow* best = plain;
  if ((flags & kFlagPerThread) != 0 && per_thread != nullptr) best = per_thread;
  if (query != nullptr)
    *query = best != nullptr ? kFound : is_known ? kVersionTooOld : kNoSuchSymbol;
  if (best == nullptr) return CUDA_ERROR_NOT_FOUND;
  *function = reinterpret_cast<void*>(best->function);
  return CUDA_SUCCESS;
}

}  // namespace

int not_supported(const char* name) {
  static std::mutex mutex;
  static NoDestructor<std::set<std::string>> said;
  const std::scoped_lock lock(mutex);
  if (said.get().insert(name).second)
    log_line(fmt::format("{} is not supported by the software device", name));
  return CUDA_ERROR_NOT_SUPPORTED;
}

KANSOKU_ENTRY cuGetProcAddress(const char* name, void** function, int version,
                               std::uint64_t flags) {
  return look_up(name, function, version, flags, nullptr);
}
KANSOKU_ENTRY cuGetProcAddress_v2(const char* name, void** function, int version,
                                  std::uint64_t flags, int* query) {
  return look_up(name, function, version, flags, query);
}

KANSOKU_ENTRY cuGetErrorName(CUresult code, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = error_name(code);
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
KANSOKU_ENTRY cuGetErrorString(CUresult code, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = error_text(code);
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/// NVIDIA's runtime proves here that it talks to NVIDIA's driver. This one is not, and says so.
KANSOKU_ENTRY cuGetExportTable(const void** table, const CUuuid*) {
  if (table == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *table = nullptr;
  static std::once_flag once;
  std::call_once(once, [] {
    log_line("NVIDIA's runtime needs NVIDIA's driver; link Kansoku's stand-in libcudart");
  });
  return CUDA_ERROR_NOT_FOUND;
}

/// Kansoku's own: how many kernels the executor was given, on all devices.
extern "C" std::uint64_t kansoku_softgpu_launches() {
  std::uint64_t launches = 0;
  if (runtime() != nullptr) {
    for (const auto& device : runtime()->devices)
      launches += device->launches;
  }
  return launches;
}

}  // namespace kansoku::softcuda
