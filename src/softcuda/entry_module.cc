// SPDX-License-Identifier: Apache-2.0
// Modules, functions and their attributes, the linker.
#include <cstring>

#include "gpu/ptx/parser.h"
#include "softcuda/internal/images.h"

namespace kansoku::softcuda {
namespace {

CUresult load_module(CUmodule* handle, const Image& image, const JitOptions& options) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (handle == nullptr || !options.is_sound()) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Module> module;
  std::string log, text;
  CUresult status = text_of(image, text, log);
  if (status == CUDA_SUCCESS) status = load_text(context, text, module, log);
  report(options, status, log);
  if (status != CUDA_SUCCESS) return status;
  *handle = runtime()->modules.add<CUmodule>(std::move(module));
  return CUDA_SUCCESS;
}

CUresult find_module_kernel(const std::shared_ptr<Module>& module, CUmodule module_handle,
                            const char* name, CUfunction* handle) {
  if (handle == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto program = module->get();
  if (program == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto kernel = program->find_kernel(name);
  if (!kernel) return refused(kernel.error());
  *handle = function_of({module, module_handle}, *program, *kernel, nullptr);
  return CUDA_SUCCESS;
}

CUresult find_module(CUmodule handle, std::shared_ptr<Module>& module) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  module = runtime()->modules.find(handle);
  return module == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
}  // namespace

KANSOKU_ENTRY cuModuleLoadData(CUmodule* module, const void* image) {
  return load_module(module, {image}, {});
}
KANSOKU_ENTRY cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count,
                                 CUjit_option* options, void** values) {
  return load_module(module, {image}, {count, options, values});
}
KANSOKU_ENTRY cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  return load_module(module, {image}, {});
}
KANSOKU_ENTRY cuModuleLoad(CUmodule* module, const char* path) {
  std::string bytes;
  KANSOKU_CU_TRY(read_image(path, bytes));
  return load_module(module, {bytes.c_str(), bytes.size() + 1}, {});
}

KANSOKU_ENTRY cuModuleUnload(CUmodule handle) {
  std::shared_ptr<Module> module;
  KANSOKU_CU_TRY(find_module(handle, module));
  // Kernels that run keep it.
  if (const auto context = module->context.lock()) static_cast<void>(context->wait_for_all());
  runtime()->functions.remove_if(
      [&](const Function& function) { return function.module == module; });
  runtime()->modules.remove(handle);
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
  std::shared_ptr<Module> module;
  KANSOKU_CU_TRY(find_module(handle, module));
  return find_module_kernel(module, handle, name, function);
}
KANSOKU_ENTRY cuModuleGetFunctionCount(unsigned* count, CUmodule handle) {
  std::shared_ptr<Module> module;
  KANSOKU_CU_TRY(find_module(handle, module));
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto program = module->get();
  if (program == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(program->kernels().size());
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuModuleEnumerateFunctions(CUfunction* functions, unsigned count, CUmodule handle) {
  std::shared_ptr<Module> module;
  KANSOKU_CU_TRY(find_module(handle, module));
  if (functions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto program = module->get();
  if (program == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (unsigned i = 0; i < count && i < program->kernels().size(); ++i)
    functions[i] = function_of({module, handle}, *program, i, nullptr);
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuModuleGetGlobal_v2(CUdeviceptr* pointer, std::size_t* bytes, CUmodule handle,
                                   const char* name) {
  std::shared_ptr<Module> module;
  KANSOKU_CU_TRY(find_module(handle, module));
  return find_variable(module, name, pointer, bytes);
}
KANSOKU_ENTRY cuModuleGetLoadingMode(int* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = 1;  // eager
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  std::shared_ptr<Function> found;
  KANSOKU_CU_TRY(find_function(function, nullptr, found));
  return attribute_of(*found, attribute, value);
}
KANSOKU_ENTRY cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  std::shared_ptr<Function> found;
  KANSOKU_CU_TRY(find_function(function, nullptr, found));
  return set_attribute(*found, attribute, value);
}
KANSOKU_ENTRY cuFuncSetCacheConfig(CUfunction function, int config) {
  std::shared_ptr<Function> found;
  KANSOKU_CU_TRY(find_function(function, nullptr, found));
  return config < 0 || config > 3 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
KANSOKU_ENTRY cuFuncSetSharedMemConfig(CUfunction function, int config) {
  std::shared_ptr<Function> found;
  KANSOKU_CU_TRY(find_function(function, nullptr, found));
  return config < 0 || config > 2 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
KANSOKU_ENTRY cuFuncGetModule(CUmodule* module, CUfunction function) {
  std::shared_ptr<Function> found;
  KANSOKU_CU_TRY(find_function(function, nullptr, found));
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = found->module_handle;
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuFuncGetName(const char** name, CUfunction function) {
  std::shared_ptr<Function> found;
  KANSOKU_CU_TRY(find_function(function, nullptr, found));
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = found->info.name.c_str();
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuFuncGetParamInfo(CUfunction function, std::size_t index, std::size_t* offset,
                                 std::size_t* bytes) {
  std::shared_ptr<Function> found;
  KANSOKU_CU_TRY(find_function(function, nullptr, found));
  return param_of(*found, index, offset, bytes);
}
KANSOKU_ENTRY cuFuncIsLoaded(int* state, CUfunction function) {
  std::shared_ptr<Function> found;
  KANSOKU_CU_TRY(find_function(function, nullptr, found));
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = 1;
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuFuncLoad(CUfunction function) {
  std::shared_ptr<Function> found;
  return find_function(function, nullptr, found);
}

// The linker takes one PTX text: what it gives is that text.

KANSOKU_ENTRY cuLinkCreate_v2(unsigned, CUjit_option*, void**, void** state) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto link = std::make_shared<Link>();
  link->context = context;
  *state = runtime()->links.add<void*>(std::move(link));
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
  if (gpu::ptx::parse_module(link->text)) return CUDA_SUCCESS;
  link->text.clear();
  return CUDA_ERROR_INVALID_PTX;
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
