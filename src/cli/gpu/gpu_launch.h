// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/gpu/gpu_arguments.h"
#include "common/result.h"
#include "common/time.h"
#include "cuda/device.h"

namespace kansoku::cli {

/// A kernel as PTX declares it.
struct GpuKernel {
  std::string name;
  std::vector<cuda::KernelInfo::Parameter> parameters;
};
/// Those of a module that have a body, in its order.
[[nodiscard]] std::vector<GpuKernel> kernels_of(const gpu::ptx::Module& module);
/// The one of that name, or the only one if the name is empty. kNotFound says how to name one.
[[nodiscard]] Result<GpuKernel> choose_kernel(const std::string& path, const std::string& name,
                                              const std::vector<GpuKernel>& kernels);

/// One launch on a device, whichever it is.
struct GpuLaunch {
  std::vector<std::string> images;  // the first that has the kernel is used
  GpuKernel kernel;                 // its parameters count where the driver does not tell them
  cuda::LaunchShape shape;
  Nanos limit{};  // of the kernel; 0: none
};

/// How to wait for a kernel. A GPU's kernel cannot be ended: `on_limit` is called with the message
/// for the user when it has passed the limit, before anything of the device is given back, which
/// may wait for the kernel; it need not return.
struct GpuWait {
  const Clock& clock;
  std::function<void(BootTime)> sleep_until;
  std::function<void(const Error&)> on_limit;
};

/// Loads, allocates and uploads, launches, waits, downloads into the arguments, and gives back.
/// Gives the kernel's milliseconds between two events of the device. kTimeout beyond the limit;
/// errors of the device as it gives them. May block.
[[nodiscard]] Result<double> launch_on(cuda::Device& device, const GpuLaunch& launch,
                                       std::vector<GpuArgument>& arguments, const GpuWait& wait);

}  // namespace kansoku::cli
