// SPDX-License-Identifier: Apache-2.0
#include "cli/gpu/gpu_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace kansoku::cli {
namespace {

// Between two looks at a kernel: as long as it ran so far, within these.
constexpr Nanos kLookMin = std::chrono::microseconds{50}, kLookMax = std::chrono::milliseconds{10};

struct Loaded {
  cuda::OwnedModule module;
  cuda::KernelId kernel;
};

/// The first image that has the kernel. An executable has a fatbin for each file that it was made
/// of, and one without code for this device need not be the one that is wanted.
Result<Loaded> load(cuda::Device& device, const GpuLaunch& launch) {
  std::optional<Error> refused, missing;
  for (const std::string& image : launch.images) {
    auto module = cuda::make_module(device, image);
    if (!module) {
      if (module.error().code != Code::kUnsupported) return module.error();
      refused = module.error();
      continue;
    }
    const auto kernel = device.find_kernel(module->get(), launch.kernel.name);
    if (kernel) return Loaded{std::move(*module), *kernel};
    if (kernel.error().code != Code::kNotFound) return kernel.error();
    missing = kernel.error();
  }
  if (refused) return *refused;
  if (missing) return *missing;
  return Error{Code::kNotFound, fmt::format("find kernel {}: no image", launch.kernel.name)};
}

Result<std::vector<cuda::OwnedMemory>> upload_all(cuda::Device& device,
                                                  std::vector<GpuArgument>& arguments) {
  std::vector<cuda::OwnedMemory> buffers;
  for (GpuArgument& argument : arguments) {
    if (!argument.is_buffer) continue;
    TRY(auto memory, cuda::make_memory(device, argument.bytes.size()));
    argument.address = memory.get();
    TRY_VOID(cuda::upload(device, argument.address, as_bytes(argument.bytes)));
    buffers.push_back(std::move(memory));
  }
  return buffers;
}

Result<cuda::KernelArguments> lay_out(cuda::Device& device, cuda::KernelId kernel,
                                      const GpuKernel& declared,
                                      const std::vector<GpuArgument>& arguments) {
  TRY(const auto info, device.kernel_info(kernel));
  const auto& parameters = info.parameters.empty() ? declared.parameters : info.parameters;
  if (parameters.empty() && !arguments.empty()) {
    return Error{Code::kUnsupported,
                 fmt::format("kernel {}: {} arguments are given, and neither the driver nor PTX "
                             "tells of parameters",
                             declared.name, arguments.size()),
                 "drivers tell since CUDA 12.4; or give the PTX that the machine code was made of"};
  }
  return lay_out_arguments(declared.name, parameters, arguments);
}

/// Until the event's record is done, or the limit is over.
Result<void> wait_for(cuda::Device& device, cuda::EventId event, const GpuLaunch& launch,
                      const GpuWait& wait) {
  const BootTime begin = wait.clock.now();
  while (true) {
    TRY(const bool is_done, device.is_done(event));
    if (is_done) return {};
    const BootTime now = wait.clock.now();
    if (launch.limit > Nanos{} && now - begin >= launch.limit) {
      Error error{
          Code::kTimeout,
          fmt::format("time-out: kernel {} still runs after {:.1f} s", launch.kernel.name,
                      static_cast<double>((now - begin).count()) * 1e-9),
          "a kernel of a GPU cannot be ended but with its process; --limit gives it more time"};
      if (wait.on_limit) wait.on_limit(error);
      return error;
    }
    const BootTime next = now + std::clamp(now - begin, kLookMin, kLookMax);
    wait.sleep_until(launch.limit > Nanos{} ? std::min(next, begin + launch.limit) : next);
  }
}

}  // namespace

std::vector<GpuKernel> kernels_of(const gpu::ptx::Module& module) {
  std::vector<GpuKernel> kernels;
  for (const gpu::ptx::Function& function : module.functions) {
    if (function.is_entry && function.has_body)
      kernels.push_back({function.name, declared_parameters(function)});
  }
  return kernels;
}

Result<GpuKernel> choose_kernel(const std::string& path, const std::string& name,
                                const std::vector<GpuKernel>& kernels) {
  if (!name.empty()) {
    const auto found = std::find_if(kernels.begin(), kernels.end(),
                                    [&](const GpuKernel& one) { return one.name == name; });
    return found == kernels.end() ? GpuKernel{name, {}} : *found;
  }
  if (kernels.empty()) return Error{Code::kNotFound, fmt::format("{} has no kernel", path)};
  const bool has_several = std::any_of(kernels.begin(), kernels.end(), [&](const GpuKernel& one) {
    return one.name != kernels[0].name;
  });
  if (!has_several) return kernels[0];
  return Error{Code::kNotFound, fmt::format("{} has several kernels", path),
               "name one with --kernel; kansoku gpu list shows them"};
}

Result<double> launch_on(cuda::Device& device, const GpuLaunch& launch,
                         std::vector<GpuArgument>& arguments, const GpuWait& wait) {
  TRY(const auto loaded, load(device, launch));
  TRY(const auto buffers, upload_all(device, arguments));
  TRY(const auto laid_out, lay_out(device, loaded.kernel, launch.kernel, arguments));
  TRY(const auto stream, cuda::make_stream(device));
  TRY(const auto begin, cuda::make_event(device));
  TRY(const auto end, cuda::make_event(device));
  TRY_VOID(device.record(begin.get(), stream.get()));
  TRY_VOID(device.launch(loaded.kernel, launch.shape, laid_out, stream.get()));
  TRY_VOID(device.record(end.get(), stream.get()));
  TRY_VOID(wait_for(device, end.get(), launch, wait));
  TRY_VOID(device.synchronize(stream.get()));
  TRY(const double ms, device.elapsed_ms(begin.get(), end.get()));
  for (GpuArgument& argument : arguments) {
    if (!argument.is_buffer) continue;
    TRY_VOID(cuda::download(
        device, std::as_writable_bytes(std::span(argument.bytes.data(), argument.bytes.size())),
        argument.address));
  }
  return ms;
}

}  // namespace kansoku::cli
