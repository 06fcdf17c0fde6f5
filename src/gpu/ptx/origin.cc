// SPDX-License-Identifier: Apache-2.0
#include "gpu/ptx/origin.h"

#include <fmt/format.h>

namespace kansoku::gpu::ptx {
namespace {

/// The name behind the first `.entry`; empty if there is none.
std::string_view first_kernel(std::string_view text) {
  constexpr std::string_view kEntry = ".entry", kBlank = " \t\r\n";
  const std::size_t at = text.find(kEntry);
  if (at == std::string_view::npos) return {};
  const std::size_t begin = text.find_first_not_of(kBlank, at + kEntry.size());
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_first_of("( \t\r\n{", begin) - begin);
}

/// NVIDIA's compilers sign what they write, in a comment before the first directive.
bool is_of_nvidia(std::string_view text) {
  const std::string_view head = text.substr(0, text.find(".version"));
  return head.find("NVIDIA NVVM Compiler") != std::string_view::npos ||
         head.find("Cuda compilation tools") != std::string_view::npos;
}

}  // namespace

Result<void> check_origin(std::string_view untrusted) {
  if (!is_of_nvidia(untrusted)) return {};
  return Error{kansoku::Code::kUnsupported,
               fmt::format("PTX of kernel {} was made by nvcc; the software "
                           "GPU executes PTX of clang and LLVM only: "
                           "compile with softgpu-clang",
                           first_kernel(untrusted))};
}

}  // namespace kansoku::gpu::ptx
