// SPDX-License-Identifier: Apache-2.0
#include "softcuda/cublas/internal/kernels.h"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "common/no_destructor.h"

namespace kansoku::softcuda::cublas {
namespace {

// PTX of kernels/, a constant each; kernels_ptx() in CMakeLists.txt writes them.
#include "softcuda/cublas/kGemmBF16.inc"
#include "softcuda/cublas/kGemmF16.inc"
#include "softcuda/cublas/kGemmF32.inc"
#include "softcuda/cublas/kGemmF64.inc"
#include "softcuda/cublas/kGemmS8.inc"
#include "softcuda/cublas/kSolveF32.inc"

constexpr const char* kTexts[] = {kGemmF32, kGemmF64, kGemmF16, kGemmBF16, kGemmS8, kSolveF32};

// By the context's id, which no later context has: its modules end with it.
using ContextId = unsigned long long;
struct Loaded {
  std::mutex mutex;
  std::map<std::pair<ContextId, Text>, cuda::CUmodule> modules;
  std::map<std::tuple<ContextId, Text, const char*>, cuda::CUfunction> functions;
};
Loaded& loaded() {
  static NoDestructor<Loaded> all;
  return all.get();
}

}  // namespace

cuda::CUresult function_of(const Driver& driver, Kernel kernel, cuda::CUfunction& function) {
  ContextId context = 0;
  if (const auto status = driver.context_id(nullptr, &context); status != cuda::CUDA_SUCCESS)
    return status;
  Loaded& all = loaded();
  const std::scoped_lock lock(all.mutex);
  const auto found = all.functions.find({context, kernel.text, kernel.name});
  if (found != all.functions.end()) {
    function = found->second;
    return cuda::CUDA_SUCCESS;
  }
  const auto nth = static_cast<std::size_t>(kernel.text);
  static_assert(std::size(kTexts) == static_cast<std::size_t>(Text::kSolve) + 1);
  const std::pair module_key(context, kernel.text);
  auto module = all.modules.find(module_key);
  if (module == all.modules.end()) {
    cuda::CUmodule made = nullptr;
    if (const auto status = driver.module_load(&made, kTexts[nth]); status != cuda::CUDA_SUCCESS) {
      log_once(fmt::format("the driver refused the kernels: error {}", static_cast<int>(status)));
      return status;
    }
    module = all.modules.emplace(module_key, made).first;
  }
  const auto status = driver.module_function(&function, module->second, kernel.name);
  if (status != cuda::CUDA_SUCCESS) {
    log_once(fmt::format("the driver refused {}: error {}", kernel.name, static_cast<int>(status)));
    return status;
  }
  all.functions.emplace(std::tuple(context, kernel.text, kernel.name), function);
  return cuda::CUDA_SUCCESS;
}

}  // namespace kansoku::softcuda::cublas
