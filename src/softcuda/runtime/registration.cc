// SPDX-License-Identifier: Apache-2.0
// Functions that compilers call before main and behind it: images, their kernels and variables.
#include <algorithm>

#include "softcuda/runtime/internal/state.h"

using namespace kansoku::cudart;  // NOLINT(google-build-using-namespace)

namespace {

/// The image behind a handle; null if there is none. The state's mutex is held.
Image* find_image(State& all, void** handle) {
  const auto found = all.images.find(handle);
  return found == all.images.end() ? nullptr : found->second.get();
}

void add_symbol(std::unordered_map<const void*, Symbol> State::*kind, void** handle,
                const void* host, const char* name) {
  State& all = state();
  const std::scoped_lock lock(all.mutex);
  Image* const image = find_image(all, handle);
  if (image == nullptr || host == nullptr || name == nullptr) return;
  (all.*kind)[host] = {image, name};
  ++all.epoch;
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): names of the interface.
extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  State& all = state();
  const std::scoped_lock lock(all.mutex);
  auto image = std::make_unique<Image>();
  image->wrapper = wrapper;
  void** const handle = reinterpret_cast<void**>(image.get());
  all.images.emplace(handle, std::move(image));
  return handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}

/// Managed variables have their memory from here on; the rest is loaded when it is needed.
char __cudaInitModule(void** handle) {
  if (enter() != cudaSuccess) return 0;
  const void* shadow = nullptr;
  {
    State& all = state();
    const std::scoped_lock lock(all.mutex);
    const Image* const image = find_image(all, handle);
    if (image == nullptr) return 0;
    if (image->managed.empty()) return 1;
    shadow = image->managed.front().host;
  }
  Place place;
  return enter_variable(shadow, place) == cudaSuccess ? 1 : 0;
}

void __cudaUnregisterFatBinary(void** handle) {
  // A process that ends does not wait for its kernels; and in a child of fork that ends, the mutex
  // may be held by a thread that is not there.
  if (is_ending()) return;
  std::unique_ptr<Image> image;
  {
    State& all = state();
    const std::scoped_lock lock(all.mutex);
    const auto found = all.images.find(handle);
    if (found == all.images.end()) return;
    image = std::move(found->second);
    const auto is_its = [&](const auto& row) { return row.second.image == image.get(); };
    std::erase_if(all.kernels, is_its);
    std::erase_if(all.variables, is_its);
    all.images.erase(found);
    ++all.epoch;
  }
  // The image is of a library that is closed.
  for (const auto& [context, loaded] : image->modules) {
    if (loaded.module != nullptr) driver().cuModuleUnload(loaded.module);
  }
}

void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  add_symbol(&State::kernels, handle, host, name);
}
void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, std::size_t, int,
                       int) {
  add_symbol(&State::variables, handle, host, name);
}
void __cudaRegisterManagedVar(void** handle, void** host, char*, const char* name, int, std::size_t,
                              int, int) {
  add_symbol(&State::variables, handle, host, name);
  State& all = state();
  const std::scoped_lock lock(all.mutex);
  Image* const image = find_image(all, handle);
  if (image != nullptr && host != nullptr && name != nullptr)
    image->managed.push_back({host, name});
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
