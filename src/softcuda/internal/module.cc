// SPDX-License-Identifier: Apache-2.0
// Images and launches: what the program hands in, checked.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <sstream>

#include "common/parse.h"
#include "cuda/fatbin.h"
#include "gpu/ptx/origin.h"
#include "gpu/ptx/parser.h"
#include "gpu/ptx/verifier.h"
#include "softcuda/internal/images.h"
#include "softcuda/internal/readable.h"

namespace kansoku::softcuda {
namespace {

constexpr std::uint32_t kPtxMajorMax = 9;

/// The 24 bytes that nvcc and clang put into .nvFatBinSegment.
struct Wrapper {
  std::uint32_t magic, version;
  const void* data;
  const void* link;
};

/// How many of `bytes` an image has.
std::size_t there_of(const Image& image, std::size_t bytes) {
  return image.bytes == SIZE_MAX ? readable_bytes(image.data, bytes) : std::min(bytes, image.bytes);
}

/// The bytes at the beginning, as far as a text that ends before leaves them.
std::uint32_t magic_of(const Image& image) {
  std::uint32_t magic = 0;
  const auto* const bytes = static_cast<const char*>(image.data);
  std::memcpy(&magic, bytes, strnlen(bytes, there_of(image, sizeof magic)));
  return magic;
}

/// PTX text ends with a zero, or where its file or memory does.
std::string text_until_zero(const Image& image) {
  constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  const auto* const begin = static_cast<const char*>(image.data);
  std::string text;
  while (text.size() <= gpu::ptx::kTextBytesMax) {
    const std::size_t left = image.bytes == SIZE_MAX ? SIZE_MAX : image.bytes - text.size();
    const std::size_t there = there_of({begin + text.size(), left}, kPieceBytes);
    const std::size_t length = strnlen(begin + text.size(), there);
    text.append(begin + text.size(), length);
    if (length < kPieceBytes) break;
  }
  return text;
}

CUresult text_of_fatbin(const Image& image, std::string& text, std::string& log) {
  constexpr std::size_t kHeaderBytes = 16;
  const auto* const bytes = static_cast<const std::byte*>(image.data);
  const auto size = fatbin_bytes({bytes, there_of(image, kHeaderBytes)});
  if (!size || there_of(image, *size) < *size) {
    log = size ? "the fatbin is longer than the file or the memory that it lies in"
               : size.error().what;
    return CUDA_ERROR_INVALID_IMAGE;
  }
  const auto entries = read_fatbin({bytes, *size});
  if (!entries) {
    log = entries.error().what;
    return CUDA_ERROR_INVALID_IMAGE;
  }
  auto ptx = best_ptx(*entries, static_cast<std::uint32_t>(runtime()->architecture));
  if (!ptx) {
    log = ptx.error().what;
    return ptx.error().code == Code::kNotFound ? CUDA_ERROR_NO_BINARY_FOR_GPU
                                               : CUDA_ERROR_INVALID_IMAGE;
  }
  text = std::move(*ptx);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult text_of(const Image& image, std::string& text, std::string& log) {
  if (image.data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Image inner = image;
  constexpr std::uint32_t kElfMagic = 0x464c457f;
  std::uint32_t magic = magic_of(inner);
  // A file cannot point to what was compiled into a program.
  if (magic == kWrapperMagic && image.bytes == SIZE_MAX) {
    Wrapper wrapper{};
    if (there_of(image, sizeof wrapper) < sizeof wrapper) {
      log = "the wrapper of a fatbin is cut off";
      return CUDA_ERROR_INVALID_IMAGE;
    }
    std::memcpy(&wrapper, image.data, sizeof wrapper);
    if (wrapper.version != 1 || wrapper.data == nullptr) {
      log =
          "relocatable device code (-rdc=true) needs a PTX linker, which the software device lacks";
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    inner.data = wrapper.data;
    magic = magic_of(inner);
  }
  if (magic == kFatbinMagic) return text_of_fatbin(inner, text, log);
  if (magic == kElfMagic) {
    log = "machine code only (an ELF image): the software device executes PTX";
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  const unsigned char first =
      there_of(inner, 1) == 0 ? 0 : *static_cast<const unsigned char*>(inner.data);
  if (std::isprint(first) == 0 && std::isspace(first) == 0) {
    log = "neither PTX text nor a fatbin";
    return CUDA_ERROR_INVALID_IMAGE;
  }
  text = text_until_zero(inner);
  return CUDA_SUCCESS;
}

namespace {

/// Version behind `.version`, the first directive of a text. Texts of a newer version may hold
/// directives that the parser does not know, so this is looked at before.
struct PtxVersion {
  std::uint32_t major{0}, minor{0};
};
PtxVersion version_of(std::string_view text) {
  constexpr std::string_view kDirective = ".version", kBlank = " \t\r\n\v\f";
  const auto skip = [&text](std::size_t bytes) {
    text.remove_prefix(std::min(bytes, text.size()));
  };
  while (true) {
    skip(text.find_first_not_of(kBlank));
    if (text.starts_with("//")) {
      skip(text.find('\n'));
    } else if (text.starts_with("/*")) {
      const std::size_t end = text.find("*/", 2);
      skip(end == std::string_view::npos ? end : end + 2);
    } else {
      break;
    }
  }
  if (!text.starts_with(kDirective)) return {};
  skip(kDirective.size());
  skip(text.find_first_not_of(kBlank));
  const std::string_view number = text.substr(0, text.find_first_not_of("0123456789."));
  const std::size_t dot = number.find('.');
  if (dot == std::string_view::npos) return {};
  return {parse_int<std::uint32_t>(number.substr(0, dot)).value_or(0),
          parse_int<std::uint32_t>(number.substr(dot + 1)).value_or(0)};
}

CUresult parse(const std::string& text, gpu::ptx::Module& module, std::string& log) {
  if (const auto origin = gpu::ptx::check_origin(text); !origin) {
    log = origin.error().what;
    return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  }
  const PtxVersion version = version_of(text);
  if (version.major == 0) {
    log = "ptx: no .version at the beginning";
    return CUDA_ERROR_INVALID_PTX;
  }
  if (version.major > kPtxMajorMax) {
    log = fmt::format("ptx version {}.{}: at most {}.x is known", version.major, version.minor,
                      kPtxMajorMax);
    return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  }
  auto parsed = gpu::ptx::parse_module(text);
  if (!parsed) {
    log = parsed.error().what;
    return CUDA_ERROR_INVALID_PTX;
  }
  for (const gpu::ptx::Diagnostic& diagnostic : gpu::ptx::verify(*parsed))
    log += fmt::format("ptx line {}: {}\n", diagnostic.place.line, diagnostic.message);
  if (!log.empty()) return CUDA_ERROR_INVALID_PTX;
  module = std::move(*parsed);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult kernels_of(const std::string& text, std::vector<std::string>& names, std::string& log) {
  gpu::ptx::Module parsed;
  KANSOKU_CU_TRY(parse(text, parsed, log));
  for (const gpu::ptx::Function& function : parsed.functions) {
    if (function.is_entry) names.push_back(function.name);
  }
  return CUDA_SUCCESS;
}

CUresult load_text(const std::shared_ptr<Context>& context, const std::string& text,
                   std::shared_ptr<Module>& module, std::string& log) {
  gpu::ptx::Module parsed;
  KANSOKU_CU_TRY(parse(text, parsed, log));
  auto made = std::make_shared<Module>();
  made->context = context;
  auto program = gpu::exec::Program::load(std::move(parsed), context->device->memory);
  if (!program) {
    log = program.error().what;
    return program.error().code == Code::kLimit ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX;
  }
  // One kernel that cannot run says so when it is looked up; a module of nothing else is no use.
  const auto& kernels = program->kernels();
  const bool has_usable = std::any_of(kernels.begin(), kernels.end(),
                                      [](const auto& kernel) { return kernel.refusal.empty(); });
  if (!kernels.empty() && !has_usable) {
    log = kernels.front().refusal;
    return CUDA_ERROR_INVALID_PTX;
  }
  made->program = std::make_shared<const gpu::exec::Program>(std::move(*program));
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
  constexpr std::uintptr_t kBuffer = 1, kBufferBytes = 2;
  for (std::size_t i = 0; i < kPairsMax && extra[2 * i] != nullptr; ++i) {
    const auto key = reinterpret_cast<std::uintptr_t>(extra[2 * i]);
    void* const value = extra[2 * i + 1];
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (key != kBuffer && key != kBufferBytes) return CUDA_ERROR_INVALID_VALUE;
    if (key == kBuffer) buffer = value;
    if (key == kBufferBytes) std::memcpy(&bytes, value, sizeof bytes);
  }
  if (buffer == nullptr || bytes != info.params_total_bytes) return CUDA_ERROR_INVALID_VALUE;
  if (bytes != 0) std::memcpy(launch.params.data(), buffer, bytes);
  return CUDA_SUCCESS;
}

}  // namespace

/// Dynamic shared memory that a kernel may have without asking for more.
static std::uint32_t dynamic_shared_default(const gpu::exec::KernelInfo& info) {
  return gpu::exec::kSharedBytesDefaultMax -
         std::min(gpu::exec::kSharedBytesDefaultMax, info.shared_bytes);
}

CUresult make_launch(const std::shared_ptr<Function>& function, KernelLaunch& launch, void** params,
                     void** extra) {
  launch.function = function;
  const gpu::exec::KernelInfo& info = function->info;
  std::uint64_t threads = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    if (launch.grid[i] == 0 || launch.grid[i] > gpu::exec::kGridExtentMax[i] ||
        launch.block[i] == 0 || launch.block[i] > gpu::exec::kBlockExtentMax[i])
      return CUDA_ERROR_INVALID_VALUE;
    threads *= launch.block[i];
  }
  if (threads > gpu::exec::kThreadsPerBlockMax) return CUDA_ERROR_INVALID_VALUE;
  const auto& required = info.bounds.required_threads;
  if (required[0] != 0 && required != launch.block) return CUDA_ERROR_INVALID_VALUE;
  const auto& most = info.bounds.max_threads;
  if (most[0] != 0 && threads > std::uint64_t{most[0]} * most[1] * most[2])
    return CUDA_ERROR_INVALID_VALUE;
  // More than 48 KiB only if the program asked for it.
  const int allowed = function->settings->dynamic_shared_max;
  const std::uint32_t dynamic_max =
      allowed >= 0 ? static_cast<std::uint32_t>(allowed) : dynamic_shared_default(info);
  if (launch.shared_bytes > dynamic_max || info.shared_bytes > gpu::exec::kSharedBytesMax ||
      launch.shared_bytes > gpu::exec::kSharedBytesMax - info.shared_bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (launch.is_cooperative) {
    const std::uint64_t blocks = std::uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
    const std::uint64_t resident =
        std::uint64_t{gpu::exec::kSmCount} *
        gpu::exec::resident_blocks_per_sm(info, static_cast<std::uint32_t>(threads),
                                          launch.shared_bytes);
    if (blocks > resident) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  return take_arguments(info, launch, params, extra);
}

namespace {

constexpr std::size_t kOptionsMax = 64;

/// Copies text into the buffer that JIT options name, and says how much of it was used.
void write_log(std::string_view text, const JitOptions& jit, CUjit_option buffer_option,
               CUjit_option size_option) {
  char* buffer = nullptr;
  void** size = nullptr;
  for (unsigned i = 0; i < jit.count && i < kOptionsMax; ++i) {
    if (jit.options[i] == buffer_option) buffer = static_cast<char*>(jit.values[i]);
    if (jit.options[i] == size_option) size = &jit.values[i];
  }
  if (buffer == nullptr || size == nullptr) return;
  const auto bytes = static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(*size) & 0xffffffff);
  if (bytes == 0) return;
  const std::size_t taken = std::min(text.size(), bytes - 1);
  std::memcpy(buffer, text.data(), taken);
  buffer[taken] = '\0';
  *size = reinterpret_cast<void*>(taken);
}

}  // namespace

void report(const JitOptions& options, CUresult status, const std::string& log) {
  write_log(log, options, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
  write_log("", options, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
  if (status != CUDA_SUCCESS) log_line(fmt::format("load module: {}", log));
}

CUresult read_image(const char* path, std::string& bytes) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::stringstream text;
  text << file.rdbuf();
  bytes = std::move(text).str();
  return bytes.empty() ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
}

CUresult refused(const Error& error) {
  if (error.code != Code::kUnsupported) return CUDA_ERROR_NOT_FOUND;
  log_line(error.what);
  return CUDA_ERROR_INVALID_PTX;
}

CUfunction function_of(const ModuleHandle& owner, const gpu::exec::Program& program,
                       std::size_t kernel, std::shared_ptr<KernelSettings> settings) {
  Module& module = *owner.module;
  const std::scoped_lock lock(module.functions_mutex);
  if (const auto function = module.functions[kernel].lock())
    return reinterpret_cast<CUfunction>(function.get());
  auto function = std::make_shared<Function>();
  function->module = owner.module;
  function->kernel = kernel;
  function->info = program.kernels()[kernel];
  function->module_handle = owner.handle;
  function->settings =
      settings != nullptr ? std::move(settings) : std::make_shared<KernelSettings>();
  module.functions[kernel] = function;
  return runtime()->functions.add<CUfunction>(std::move(function));
}

CUresult find_function(CUfunction handle, std::shared_ptr<Context> context,
                       std::shared_ptr<Function>& function) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  function = runtime()->functions.find(handle);
  if (function != nullptr) return CUDA_SUCCESS;
  const auto kernel = runtime()->kernels.find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (context == nullptr) KANSOKU_CU_TRY(enter(context));
  CUfunction its = nullptr;
  KANSOKU_CU_TRY(function_of(*kernel, context, &its));
  function = runtime()->functions.find(its);
  return function == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult find_variable(const std::shared_ptr<Module>& module, const char* name,
                       CUdeviceptr* pointer, std::size_t* bytes) {
  if (name == nullptr || (pointer == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const auto program = module->get();
  if (program == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto range = program->find_variable(name);
  if (!range) return CUDA_ERROR_NOT_FOUND;
  if (pointer != nullptr) *pointer = range->begin;
  if (bytes != nullptr) *bytes = range->end - range->begin;
  return CUDA_SUCCESS;
}

std::uint32_t threads_max(const gpu::exec::KernelInfo& info) {
  for (const auto& bound : {info.bounds.required_threads, info.bounds.max_threads}) {
    if (bound[0] != 0) return bound[0] * bound[1] * bound[2];
  }
  return gpu::exec::kThreadsPerBlockMax;
}

CUresult attribute_of(const Function& function, CUfunction_attribute attribute, int* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const gpu::exec::KernelInfo& info = function.info;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = static_cast<int>(threads_max(info));
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(info.shared_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: {
      std::uint64_t bytes = 0;
      const auto program = function.module->get();
      if (program == nullptr) return CUDA_ERROR_INVALID_HANDLE;
      for (const auto& variable : program->module().variables)
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
      *value = runtime()->architecture;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      const int set = function.settings->dynamic_shared_max;
      *value = set >= 0 ? set : static_cast<int>(dynamic_shared_default(info));
      return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = function.settings->carveout;
      return CUDA_SUCCESS;
    default:
      *value = 0;
      return attribute < 0 || attribute > 15 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  }
}

CUresult set_attribute(Function& function, CUfunction_attribute attribute, int value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || static_cast<std::uint32_t>(value) + function.info.shared_bytes >
                           gpu::exec::kSharedBytesMax)
        return CUDA_ERROR_INVALID_VALUE;
      function.settings->dynamic_shared_max = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      function.settings->carveout = value;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult param_of(const Function& function, std::size_t index, std::size_t* offset,
                  std::size_t* bytes) {
  const gpu::exec::KernelInfo& info = function.info;
  if (offset == nullptr || index >= info.param_offsets.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = info.param_offsets[index];
  if (bytes != nullptr) *bytes = info.param_bytes[index];
  return CUDA_SUCCESS;
}

}  // namespace kansoku::softcuda
