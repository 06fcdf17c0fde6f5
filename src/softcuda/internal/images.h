// SPDX-License-Identifier: Apache-2.0
#pragma once

// Images and their contents, for modules and libraries.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/result.h"
#include "softcuda/internal/runtime.h"

namespace kansoku::softcuda {

/// An image as the program gives it. `bytes`: where it ends, if that is known.
struct Image {
  const void* data{nullptr};
  std::size_t bytes{SIZE_MAX};
};
/// PTX text of an image (PTX text, fatbin or its wrapper); `log` gets the text of a JIT log.
[[nodiscard]] CUresult text_of(const Image& image, std::string& text, std::string& log);
/// Names of the kernels of a PTX text, as its module will number them.
/// The status for a kernel that is not there, or that cannot run, which is logged with its reason.
[[nodiscard]] CUresult refused(const Error& error);
[[nodiscard]] CUresult kernels_of(const std::string& text, std::vector<std::string>& names,
                                  std::string& log);
/// PTX text as a loaded module.
[[nodiscard]] CUresult load_text(const std::shared_ptr<Context>& context, const std::string& text,
                                 std::shared_ptr<Module>& module, std::string& log);
/// A file with an image; a zero follows it.
[[nodiscard]] CUresult read_image(const char* path, std::string& bytes);

/// Options of a JIT compiler, as the interface passes them.
struct JitOptions {
  unsigned count{0};
  const CUjit_option* options{nullptr};
  void** values{nullptr};
  [[nodiscard]] bool is_sound() const {
    return count == 0 || (options != nullptr && values != nullptr);
  }
};
/// Writes the log to where the options want it, and to the process's own if `status` is an error.
void report(const JitOptions& options, CUresult status, const std::string& log);

struct ModuleHandle {
  std::shared_ptr<Module> module;
  CUmodule handle{nullptr};
};
/// The same handle for the same kernel of a module each time. `settings`: null for its own.
[[nodiscard]] CUfunction function_of(const ModuleHandle& module, const gpu::exec::Program& program,
                                     std::size_t kernel, std::shared_ptr<KernelSettings> settings);
/// In entry_library.cc: a kernel as a function of the context, its library loaded if need be.
[[nodiscard]] CUresult function_of(const Kernel& kernel, const std::shared_ptr<Context>& context,
                                   CUfunction* handle);

[[nodiscard]] CUresult find_variable(const std::shared_ptr<Module>& module, const char* name,
                                     CUdeviceptr* pointer, std::size_t* bytes);
/// Threads of a block that the kernel may have at most.
[[nodiscard]] std::uint32_t threads_max(const gpu::exec::KernelInfo& info);
[[nodiscard]] CUresult attribute_of(const Function& function, CUfunction_attribute attribute,
                                    int* value);
[[nodiscard]] CUresult set_attribute(Function& function, CUfunction_attribute attribute, int value);
[[nodiscard]] CUresult param_of(const Function& function, std::size_t index, std::size_t* offset,
                                std::size_t* bytes);

}  // namespace kansoku::softcuda
