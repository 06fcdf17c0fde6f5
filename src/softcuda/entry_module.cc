// SPDX-License-Identifier: Apache-2.0
// Modules, libraries, kernels and their attributes, the linker.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "gpu/ptx/parser.h"
#include "softcuda/internal/runtime.h"

namespace kansoku::softcuda {
namespace {

constexpr std::size_t kOptionsMax = 64;

/// Copies text into the buffer that JIT options name, and says how much of it was used.
void write_log(std::string_view text, unsigned count, const CUjit_option* options, void** values,
               CUjit_option buffer_option, CUjit_option size_option) {
  char* buffer = nullptr;
  void** size = nullptr;
  for (unsigned i = 0; i < count && i < kOptionsMax; ++i) {
    if (options[i] == buffer_option) buffer = static_cast<char*>(values[i]);
    if (options[i] == size_option) size = &values[i];
  }
  if (buffer == nullptr || size == nullptr) return;
  const auto bytes = static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(*size) & 0xffffffff);
  if (bytes == 0) return;
  const std::size_t taken = std::min(text.size(), bytes - 1);
  std::memcpy(buffer, text.data(), taken);
  buffer[taken] = '\0';
  *size = reinterpret_cast<void*>(taken);
}

CUresult load_module(CUmodule* handle, const void* image, unsigned count,
                     const CUjit_option* options, void** values) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (handle == nullptr || (count != 0 && (options == nullptr || values == nullptr)))
    return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Module> module;
  std::string log;
  const CUresult status = load_image(context, image, module, log);
  if (count != 0) {
    write_log(log, count, options, values, CU_JIT_ERROR_LOG_BUFFER,
              CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
    write_log("", count, options, values, CU_JIT_INFO_LOG_BUFFER,
              CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
  }
  if (status != CUDA_SUCCESS) {
    log_line(fmt::format("load module: {}", log));
    return status;
  }
  *handle = runtime()->modules.add<CUmodule>(std::move(module));
  return CUDA_SUCCESS;
}

Result<std::string> file_text(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{Code::kNotFound, "not there"};
  std::stringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

/// The same handle for the same kernel of a module each time.
CUresult function_of(const std::shared_ptr<Module>& module, CUmodule module_handle,
                     CUlibrary library_handle, std::size_t kernel, CUfunction* handle) {
  const std::scoped_lock lock(module->functions_mutex);
  if (const auto function = module->functions[kernel].lock()) {
    *handle = reinterpret_cast<CUfunction>(function.get());
    return CUDA_SUCCESS;
  }
  auto function = std::make_shared<Function>();
  function->module = module;
  function->kernel = kernel;
  function->module_handle = module_handle;
  function->library_handle = library_handle;
  module->functions[kernel] = function;
  *handle = runtime()->functions.add<CUfunction>(std::move(function));
  return CUDA_SUCCESS;
}

CUresult find_function(const std::shared_ptr<Module>& module, CUmodule module_handle,
                       CUlibrary library_handle, const char* name, CUfunction* handle) {
  if (handle == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto kernel = module->program->find_kernel(name);
  if (!kernel) return CUDA_ERROR_NOT_FOUND;
  return function_of(module, module_handle, library_handle, *kernel, handle);
}

CUresult find_variable(const Module& module, const char* name, CUdeviceptr* pointer,
                       std::size_t* bytes) {
  if (name == nullptr || (pointer == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const auto range = module.program->find_variable(name);
  if (!range) return CUDA_ERROR_NOT_FOUND;
  if (pointer != nullptr) *pointer = range->begin;
  if (bytes != nullptr) *bytes = range->end - range->begin;
  return CUDA_SUCCESS;
}

CUresult find_module(CUmodule handle, std::shared_ptr<Module>& module) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  module = runtime()->modules.find(handle);
  return module == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
CUresult find_library(CUlibrary handle, std::shared_ptr<Library>& library) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  library = runtime()->libraries.find(handle);
  return library == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
/// CUkernel and CUfunction are the same here.
template <class Handle>
CUresult find_function(Handle handle, std::shared_ptr<Function>& function) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  function = runtime()->functions.find(handle);
  return function == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult attribute_of(const Function& function, CUfunction_attribute attribute, int* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const gpu::exec::KernelInfo& info = function.info();
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: {
      const auto& most = info.bounds.max_threads;
      *value = most[0] == 0 ? 1024 : static_cast<int>(most[0] * most[1] * most[2]);
      return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(info.shared_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: {
      std::uint64_t bytes = 0;
      for (const auto& variable : function.module->program->module().variables)
        bytes += variable.space == gpu::ptx::Space::kConst ? variable.bytes() : 0;
      *value = static_cast<int>(bytes);
      return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = static_cast<int>(info.local_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = static_cast<int>(std::min(info.registers, 255U));
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = 80;  // of the architecture
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      const int set = function.dynamic_shared_max;
      *value = set > 0 ? set : 48 * 1024 - static_cast<int>(std::min(info.shared_bytes, 49152U));
      return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = function.carveout;
      return CUDA_SUCCESS;
    default:
      *value = 0;
      return attribute < 0 || attribute > 15 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  }
}

CUresult set_attribute(Function& function, CUfunction_attribute attribute, int value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 ||
          static_cast<std::uint32_t>(value) + function.info().shared_bytes > 227 * 1024)
        return CUDA_ERROR_INVALID_VALUE;
      function.dynamic_shared_max = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      function.carveout = value;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult param_of(const Function& function, std::size_t index, std::size_t* offset,
                  std::size_t* bytes) {
  const gpu::exec::KernelInfo& info = function.info();
  if (offset == nullptr || index >= info.param_offsets.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = info.param_offsets[index];
  if (bytes != nullptr) *bytes = info.param_bytes[index];
  return CUDA_SUCCESS;
}

}  // namespace

KANSOKU_ENTRY cuModuleLoadData(CUmodule* module, const void* image) {
  return load_module(module, image, 0, nullptr, nullptr);
}
KANSOKU_ENTRY cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count,
                                 CUjit_option* options, void** values) {
  return load_module(module, image, count, options, values);
}
KANSOKU_ENTRY cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  return load_module(module, image, 0, nullptr, nullptr);
}
KANSOKU_ENTRY cuModuleLoad(CUmodule* module, const char* path) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto text = file_text(path);
  if (!text) return CUDA_ERROR_FILE_NOT_FOUND;
  if (text->size() < 16) return CUDA_ERROR_INVALID_IMAGE;
  return load_module(module, text->c_str(), 0, nullptr, nullptr);
}

KANSOKU_ENTRY cuModuleUnload(CUmodule handle) {
  std::shared_ptr<Module> module;
  KANSOKU_CU_TRY(find_module(handle, module));
  // Kernels that run keep it.
  if (const auto context = module->context.lock()) static_cast<void>(context->synchronize());
  runtime()->functions.remove_if(
      [&](const Function& function) { return function.module == module; });
  runtime()->modules.remove(handle);
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
  std::shared_ptr<Module> module;
  KANSOKU_CU_TRY(find_module(handle, module));
  return find_function(module, handle, nullptr, name, function);
}
KANSOKU_ENTRY cuModuleGetFunctionCount(unsigned* count, CUmodule handle) {
  std::shared_ptr<Module> module;
  KANSOKU_CU_TRY(find_module(handle, module));
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(module->program->kernels().size());
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuModuleEnumerateFunctions(CUfunction* functions, unsigned count, CUmodule handle) {
  std::shared_ptr<Module> module;
  KANSOKU_CU_TRY(find_module(handle, module));
  if (functions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count && i < module->program->kernels().size(); ++i)
    KANSOKU_CU_TRY(function_of(module, handle, nullptr, i, &functions[i]));
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuModuleGetGlobal_v2(CUdeviceptr* pointer, std::size_t* bytes, CUmodule handle,
                                   const char* name) {
  std::shared_ptr<Module> module;
  KANSOKU_CU_TRY(find_module(handle, module));
  return find_variable(*module, name, pointer, bytes);
}
KANSOKU_ENTRY cuModuleGetLoadingMode(int* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = 1;  // eager
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuLibraryLoadData(CUlibrary* handle, const void* code, CUjit_option* options,
                                void** values, unsigned count, const void*, const void*, unsigned) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUmodule module = nullptr;
  KANSOKU_CU_TRY(load_module(&module, code, count, options, values));
  auto library = std::make_shared<Library>();
  library->module = runtime()->modules.find(module);
  library->module_handle = module;
  *handle = runtime()->libraries.add<CUlibrary>(std::move(library));
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuLibraryLoadFromFile(CUlibrary* handle, const char* path, CUjit_option* options,
                                    void** values, unsigned count, const void*, const void*,
                                    unsigned) {
  if (handle == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto text = file_text(path);
  if (!text) return CUDA_ERROR_FILE_NOT_FOUND;
  if (text->size() < 16) return CUDA_ERROR_INVALID_IMAGE;
  CUmodule module = nullptr;
  KANSOKU_CU_TRY(load_module(&module, text->c_str(), count, options, values));
  auto library = std::make_shared<Library>();
  library->module = runtime()->modules.find(module);
  library->module_handle = module;
  *handle = runtime()->libraries.add<CUlibrary>(std::move(library));
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuLibraryUnload(CUlibrary handle) {
  std::shared_ptr<Library> library;
  KANSOKU_CU_TRY(find_library(handle, library));
  if (const auto context = library->module->context.lock())
    static_cast<void>(context->synchronize());
  runtime()->functions.remove_if(
      [&](const Function& function) { return function.module == library->module; });
  runtime()->modules.remove(library->module_handle);
  runtime()->libraries.remove(handle);
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuLibraryGetKernel(CUkernel* kernel, CUlibrary handle, const char* name) {
  std::shared_ptr<Library> library;
  KANSOKU_CU_TRY(find_library(handle, library));
  CUfunction function = nullptr;
  if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KANSOKU_CU_TRY(find_function(library->module, library->module_handle, handle, name, &function));
  *kernel = reinterpret_cast<CUkernel>(function);
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuLibraryGetKernelCount(unsigned* count, CUlibrary handle) {
  std::shared_ptr<Library> library;
  KANSOKU_CU_TRY(find_library(handle, library));
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(library->module->program->kernels().size());
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuLibraryEnumerateKernels(CUkernel* kernels, unsigned count, CUlibrary handle) {
  std::shared_ptr<Library> library;
  KANSOKU_CU_TRY(find_library(handle, library));
  if (kernels == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count && i < library->module->program->kernels().size(); ++i) {
    CUfunction function = nullptr;
    KANSOKU_CU_TRY(function_of(library->module, library->module_handle, handle, i, &function));
    kernels[i] = reinterpret_cast<CUkernel>(function);
  }
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuLibraryGetModule(CUmodule* module, CUlibrary handle) {
  std::shared_ptr<Library> library;
  KANSOKU_CU_TRY(find_library(handle, library));
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = library->module_handle;
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuLibraryGetGlobal(CUdeviceptr* pointer, std::size_t* bytes, CUlibrary handle,
                                 const char* name) {
  std::shared_ptr<Library> library;
  KANSOKU_CU_TRY(find_library(handle, library));
  return find_variable(*library->module, name, pointer, bytes);
}

KANSOKU_ENTRY cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  std::shared_ptr<Function> found;
  KANSOKU_CU_TRY(find_function(kernel, found));
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuKernelGetLibrary(CUlibrary* library, CUkernel kernel) {
  std::shared_ptr<Function> found;
  KANSOKU_CU_TRY(find_function(kernel, found));
  if (library == nullptr || found->library_handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *library = found->library_handle;
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuKernelGetName(const char** name, CUkernel kernel) {
  std::shared_ptr<Function> found;
  KANSOKU_CU_TRY(find_function(kernel, found));
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = found->info().name.c_str();
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel,
                                   CUdevice) {
  std::shared_ptr<Function> found;
  KANSOKU_CU_TRY(find_function(kernel, found));
  return attribute_of(*found, attribute, value);
}
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
KANSOKU_ENTRY cuKernelSetCacheConfig(CUkernel kernel, int, CUdevice) {
  std::shared_ptr<Function> found;
  return find_function(kernel, found);
}

KANSOKU_ENTRY cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  std::shared_ptr<Function> found;
  KANSOKU_CU_TRY(find_function(function, found));
  return attribute_of(*found, attribute, value);
}
KANSOKU_ENTRY cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  std::shared_ptr<Function> found;
  KANSOKU_CU_TRY(find_function(function, found));
  return set_attribute(*found, attribute, value);
}
KANSOKU_ENTRY cuFuncSetCacheConfig(CUfunction function, int) {
  std::shared_ptr<Function> found;
  return find_function(function, found);
}
KANSOKU_ENTRY cuFuncSetSharedMemConfig(CUfunction function, int) {
  std::shared_ptr<Function> found;
  return find_function(function, found);
}
KANSOKU_ENTRY cuFuncGetModule(CUmodule* module, CUfunction function) {
  std::shared_ptr<Function> found;
  KANSOKU_CU_TRY(find_function(function, found));
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = found->module_handle;
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuFuncGetName(const char** name, CUfunction function) {
  std::shared_ptr<Function> found;
  KANSOKU_CU_TRY(find_function(function, found));
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = found->info().name.c_str();
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuFuncGetParamInfo(CUfunction function, std::size_t index, std::size_t* offset,
                                 std::size_t* bytes) {
  std::shared_ptr<Function> found;
  KANSOKU_CU_TRY(find_function(function, found));
  return param_of(*found, index, offset, bytes);
}
KANSOKU_ENTRY cuFuncIsLoaded(int* state, CUfunction function) {
  std::shared_ptr<Function> found;
  KANSOKU_CU_TRY(find_function(function, found));
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = 1;
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuFuncLoad(CUfunction function) {
  std::shared_ptr<Function> found;
  return find_function(function, found);
}

// The linker takes one PTX text: what it gives is that text.

KANSOKU_ENTRY cuLinkCreate_v2(unsigned, CUjit_option*, void**, void** state) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = runtime()->links.add<void*>(std::make_shared<Link>());
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuLinkAddData_v2(void* state, int type, void* data, std::size_t bytes, const char*,
                               unsigned, CUjit_option*, void**) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  const auto link = runtime()->links.find(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (data == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  constexpr int kInputPtx = 1;
  if (type != kInputPtx || !link->text.empty()) {
    log_line("link: the software device links one PTX text and nothing else");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  link->text.assign(static_cast<const char*>(data), strnlen(static_cast<const char*>(data), bytes));
  return gpu::ptx::parse_module(link->text) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}
KANSOKU_ENTRY cuLinkComplete(void* state, void** image, std::size_t* bytes) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  const auto link = runtime()->links.find(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (image == nullptr || link->text.empty()) return CUDA_ERROR_INVALID_VALUE;
  *image = link->text.data();
  if (bytes != nullptr) *bytes = link->text.size() + 1;
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuLinkDestroy(void* state) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return runtime()->links.remove(state) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

}  // namespace kansoku::softcuda
