// SPDX-License-Identifier: Apache-2.0
// Images and launches: what the program hands in, checked.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cuda/fatbin.h"
#include "gpu/ptx/parser.h"
#include "gpu/ptx/verifier.h"
#include "softcuda/internal/runtime.h"

namespace kansoku::softcuda {
namespace {

constexpr std::uint32_t kArchitecture = 80;
constexpr std::uint32_t kPtxMajorMax = 9;
constexpr std::size_t kThreadsMax = 1024;
constexpr std::uint32_t kSharedDefaultMax = 48 * 1024, kSharedOptInMax = 227 * 1024;

/// The 24 bytes that nvcc and clang put into .nvFatBinSegment.
struct Wrapper {
  std::uint32_t magic, version;
  const void* data;
  const void* link;
};

/// PTX text from whatever was given.
CUresult text_of(const void* image, std::string& text, std::string& log) {
  std::uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  const void* data = image;
  if (magic == kWrapperMagic) {
    Wrapper wrapper{};
    std::memcpy(&wrapper, image, sizeof wrapper);
    if (wrapper.version != 1 || wrapper.data == nullptr) {
      log =
          "relocatable device code (-rdc=true) needs a PTX linker, which the software device lacks";
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    data = wrapper.data;
    std::memcpy(&magic, data, sizeof magic);
  }
  if (magic == kFatbinMagic) {
    const auto* const bytes = static_cast<const std::byte*>(data);
    const auto size = fatbin_bytes({bytes, 16});
    if (!size) {
      log = size.error().what;
      return CUDA_ERROR_INVALID_IMAGE;
    }
    const auto entries = read_fatbin({bytes, *size});
    if (!entries) {
      log = entries.error().what;
      return CUDA_ERROR_INVALID_IMAGE;
    }
    auto ptx = best_ptx(*entries, kArchitecture);
    if (!ptx) {
      log = ptx.error().what;
      return ptx.error().code == Code::kNotFound ? CUDA_ERROR_NO_BINARY_FOR_GPU
                                                 : CUDA_ERROR_INVALID_IMAGE;
    }
    text = std::move(*ptx);
    return CUDA_SUCCESS;
  }
  if (std::memcmp(data, "\177ELF", 4) == 0) {
    log = "machine code only (an ELF image): the software device executes PTX";
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  const auto* const begin = static_cast<const char*>(data);
  text.assign(begin, strnlen(begin, gpu::ptx::kTextBytesMax));
  return CUDA_SUCCESS;
}

}  // namespace

CUresult load_image(const std::shared_ptr<Context>& context, const void* image,
                    std::shared_ptr<Module>& module, std::string& log) {
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::string text;
  KANSOKU_CU_TRY(text_of(image, text, log));
  auto parsed = gpu::ptx::parse_module(text);
  if (!parsed) {
    log = parsed.error().what;
    return CUDA_ERROR_INVALID_PTX;
  }
  if (parsed->version_major > kPtxMajorMax) {
    log = fmt::format("ptx version {}.{}: at most {}.x is known", parsed->version_major,
                      parsed->version_minor, kPtxMajorMax);
    return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  }
  for (const gpu::ptx::Diagnostic& diagnostic : gpu::ptx::verify(*parsed))
    log += fmt::format("ptx line {}: {}\n", diagnostic.place.line, diagnostic.message);
  if (!log.empty()) return CUDA_ERROR_INVALID_PTX;
  auto made = std::make_shared<Module>();
  made->context = context;
  auto program = gpu::exec::Program::load(std::move(*parsed), context->device->memory);
  if (!program) {
    log = program.error().what;
    return program.error().code == Code::kLimit ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX;
  }
  made->program = std::move(*program);
  context->device->note_memory();
  module = std::move(made);
  return CUDA_SUCCESS;
}

namespace {

CUresult take_arguments(const gpu::exec::KernelInfo& info, KernelLaunch& launch, void** params,
                        void** extra) {
  launch.params.assign(info.params_total_bytes, std::byte{0});
  if (params != nullptr) {
    for (std::size_t i = 0; i < info.param_bytes.size(); ++i) {
      if (params[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      std::memcpy(launch.params.data() + info.param_offsets[i], params[i], info.param_bytes[i]);
    }
    return CUDA_SUCCESS;
  }
  if (extra == nullptr)
    return info.params_total_bytes == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  const void* buffer = nullptr;
  std::size_t bytes = 0;
  constexpr std::size_t kPairsMax = 16;
  for (std::size_t i = 0; i < kPairsMax && extra[2 * i] != nullptr; ++i) {
    const auto key = reinterpret_cast<std::uintptr_t>(extra[2 * i]);
    void* const value = extra[2 * i + 1];
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (key == 1) buffer = value;
    if (key == 2) std::memcpy(&bytes, value, sizeof bytes);
  }
  if (buffer == nullptr || bytes != info.params_total_bytes) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(launch.params.data(), buffer, bytes);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult make_launch(const std::shared_ptr<Function>& function, KernelLaunch& launch, void** params,
                     void** extra) {
  launch.function = function;
  const gpu::exec::KernelInfo& info = function->info();
  std::uint64_t threads = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    constexpr std::uint32_t kGridMax[] = {0x7fffffff, 65535, 65535};
    constexpr std::uint32_t kBlockMax[] = {1024, 1024, 64};
    if (launch.grid[i] == 0 || launch.grid[i] > kGridMax[i] || launch.block[i] == 0 ||
        launch.block[i] > kBlockMax[i])
      return CUDA_ERROR_INVALID_VALUE;
    threads *= launch.block[i];
  }
  if (threads > kThreadsMax) return CUDA_ERROR_INVALID_VALUE;
  const auto& required = info.bounds.required_threads;
  if (required[0] != 0 && required != launch.block) return CUDA_ERROR_INVALID_VALUE;
  const auto& most = info.bounds.max_threads;
  if (most[0] != 0 && threads > std::uint64_t{most[0]} * most[1] * most[2])
    return CUDA_ERROR_INVALID_VALUE;
  // More than 48 KiB only if the program asked for it.
  const int allowed = function->dynamic_shared_max;
  const std::uint32_t dynamic_max =
      allowed > 0 ? static_cast<std::uint32_t>(allowed)
                  : kSharedDefaultMax - std::min(kSharedDefaultMax, info.shared_bytes);
  if (launch.shared_bytes > dynamic_max || info.shared_bytes > kSharedOptInMax ||
      launch.shared_bytes > kSharedOptInMax - info.shared_bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (launch.is_cooperative) {
    const std::uint64_t blocks = std::uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
    const std::uint64_t resident =
        std::uint64_t{16} * gpu::exec::resident_blocks_per_sm(
                                info, static_cast<std::uint32_t>(threads), launch.shared_bytes);
    if (blocks > resident) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  return take_arguments(info, launch, params, extra);
}

}  // namespace kansoku::softcuda
