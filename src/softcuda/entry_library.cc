// SPDX-License-Identifier: Apache-2.0
// Libraries: images of the process, of which every context gets a module when it first needs one.
#include <algorithm>

#include "softcuda/internal/images.h"

namespace kansoku::softcuda {
namespace {

CUresult load(CUlibrary* handle, const Image& image, const JitOptions& options) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr || !options.is_sound()) return CUDA_ERROR_INVALID_VALUE;
  auto library = std::make_shared<Library>();
  std::string log;
  CUresult status = text_of(image, library->text, log);
  if (status == CUDA_SUCCESS) status = kernels_of(library->text, library->kernels, log);
  report(options, status, log);
  if (status != CUDA_SUCCESS) return status;
  *handle = runtime()->libraries.add<CUlibrary>(std::move(library));
  return CUDA_SUCCESS;
}

CUresult find_library(CUlibrary handle, std::shared_ptr<Library>& library) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  library = runtime()->libraries.find(handle);
  return library == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

/// The library's module in the context.
CUresult module_in(Library& library, const std::shared_ptr<Context>& context,
                   Library::Loaded& loaded) {
  const std::scoped_lock lock(library.mutex);
  Library::Loaded& its = library.modules[context->id];
  if (its.module == nullptr) {
    std::string log;
    const CUresult status = load_text(context, library.text, its.module, log);
    report({}, status, log);
    if (status != CUDA_SUCCESS) {
      library.modules.erase(context->id);
      return status;
    }
    its.context = context;
    its.handle = runtime()->modules.add<CUmodule>(its.module);
  }
  loaded = its;
  return CUDA_SUCCESS;
}

CUresult find_loaded(CUlibrary handle, Library::Loaded& loaded) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  std::shared_ptr<Library> library;
  KANSOKU_CU_TRY(find_library(handle, library));
  return module_in(*library, context, loaded);
}

/// The same handle for the same kernel each time.
CUkernel kernel_of(const std::shared_ptr<Library>& library, CUlibrary handle, std::size_t index) {
  const std::scoped_lock lock(library->mutex);
  CUkernel& kernel = library->handles[index];
  if (kernel == nullptr) {
    auto made = std::make_shared<Kernel>();
    made->library = library;
    made->library_handle = handle;
    made->index = index;
    kernel = runtime()->kernels.add<CUkernel>(std::move(made));
  }
  return kernel;
}

CUresult find_library_kernel(CUkernel handle, std::shared_ptr<Kernel>& kernel) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  kernel = runtime()->kernels.find(handle);
  return kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult find_function(CUkernel handle, std::shared_ptr<Function>& function) {
  return softcuda::find_function(reinterpret_cast<CUfunction>(handle), nullptr, function);
}

}  // namespace

CUresult function_of(const Kernel& kernel, const std::shared_ptr<Context>& context,
                     CUfunction* handle) {
  Library::Loaded loaded;
  KANSOKU_CU_TRY(module_in(*kernel.library, context, loaded));
  const auto program = loaded.module->get();
  if (program == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const auto index = program->find_kernel(kernel.library->kernels[kernel.index]);
  if (!index) return refused(index.error());
  *handle = function_of({loaded.module, loaded.handle}, *program, *index, kernel.settings);
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* options,
                                void** values, unsigned count, const void*, void**, unsigned) {
  return load(library, {code}, {count, options, values});
}
KANSOKU_ENTRY cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option* options,
                                    void** values, unsigned count, const void*, void**, unsigned) {
  std::string bytes;
  KANSOKU_CU_TRY(read_image(path, bytes));
  return load(library, {bytes.c_str(), bytes.size() + 1}, {count, options, values});
}
KANSOKU_ENTRY cuLibraryUnload(CUlibrary handle) {
  std::shared_ptr<Library> library;
  KANSOKU_CU_TRY(find_library(handle, library));
  std::map<std::uint64_t, Library::Loaded> modules;
  {
    const std::scoped_lock lock(library->mutex);
    modules.swap(library->modules);
  }
  for (const auto& [id, loaded] : modules) {
    if (const auto context = loaded.context.lock()) static_cast<void>(context->wait_for_all());
    runtime()->functions.remove_if(
        [&its = loaded.module](const Function& function) { return function.module == its; });
    runtime()->modules.remove(loaded.handle);
  }
  runtime()->kernels.remove_if([&](const Kernel& kernel) { return kernel.library == library; });
  runtime()->libraries.remove(handle);
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuLibraryGetKernel(CUkernel* kernel, CUlibrary handle, const char* name) {
  std::shared_ptr<Library> library;
  KANSOKU_CU_TRY(find_library(handle, library));
  if (kernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = std::find(library->kernels.begin(), library->kernels.end(), name);
  if (found == library->kernels.end()) return CUDA_ERROR_NOT_FOUND;
  *kernel = kernel_of(library, handle, static_cast<std::size_t>(found - library->kernels.begin()));
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuLibraryGetKernelCount(unsigned* count, CUlibrary handle) {
  std::shared_ptr<Library> library;
  KANSOKU_CU_TRY(find_library(handle, library));
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(library->kernels.size());
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuLibraryEnumerateKernels(CUkernel* kernels, unsigned count, CUlibrary handle) {
  std::shared_ptr<Library> library;
  KANSOKU_CU_TRY(find_library(handle, library));
  if (kernels == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count && i < library->kernels.size(); ++i)
    kernels[i] = kernel_of(library, handle, i);
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuLibraryGetModule(CUmodule* module, CUlibrary handle) {
  Library::Loaded loaded;
  KANSOKU_CU_TRY(find_loaded(handle, loaded));
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = loaded.handle;
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuLibraryGetGlobal(CUdeviceptr* pointer, std::size_t* bytes, CUlibrary handle,
                                 const char* name) {
  Library::Loaded loaded;
  KANSOKU_CU_TRY(find_loaded(handle, loaded));
  return find_variable(loaded.module, name, pointer, bytes);
}

KANSOKU_ENTRY cuKernelGetFunction(CUfunction* function, CUkernel handle) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  std::shared_ptr<Kernel> kernel;
  KANSOKU_CU_TRY(find_library_kernel(handle, kernel));
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return function_of(*kernel, context, function);
}
KANSOKU_ENTRY cuKernelGetLibrary(CUlibrary* library, CUkernel handle) {
  std::shared_ptr<Kernel> kernel;
  KANSOKU_CU_TRY(find_library_kernel(handle, kernel));
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *library = kernel->library_handle;
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuKernelGetName(const char** name, CUkernel handle) {
  std::shared_ptr<Kernel> kernel;
  KANSOKU_CU_TRY(find_library_kernel(handle, kernel));
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = kernel->library->kernels[kernel->index].c_str();
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel,
                                   CUdevice) {
  std::shared_ptr<Function> found;
  KANSOKU_CU_TRY(find_function(kernel, found));
  return attribute_of(*found, attribute, value);
}
/// Devices are alike: what is set for one is set for all.
KANSOKU_ENTRY cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                                   CUdevice) {
  std::shared_ptr<Function> found;
  KANSOKU_CU_TRY(find_function(kernel, found));
  return set_attribute(*found, attribute, value);
}
KANSOKU_ENTRY cuKernelGetParamInfo(CUkernel kernel, std::size_t index, std::size_t* offset,
                                   std::size_t* bytes) {
  std::shared_ptr<Function> found;
  KANSOKU_CU_TRY(find_function(kernel, found));
  return param_of(*found, index, offset, bytes);
}
KANSOKU_ENTRY cuKernelSetCacheConfig(CUkernel handle, int config, CUdevice) {
  std::shared_ptr<Kernel> kernel;
  KANSOKU_CU_TRY(find_library_kernel(handle, kernel));
  return config < 0 || config > 3 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace kansoku::softcuda
