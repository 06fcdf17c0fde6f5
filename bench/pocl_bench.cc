// SPDX-License-Identifier: Apache-2.0
#define CL_TARGET_OPENCL_VERSION 120
#include "pocl_bench.h"

#include <CL/cl.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

namespace kansoku::bench {
namespace {

constexpr std::string_view kPlatformName = "Portable Computing Language";
constexpr const char* kHint = "apt-get install pocl-opencl-icd";

template <auto release>
struct Releaser {
  template <class T>
  void operator()(T* object) const {
    static_cast<void>(release(object));
  }
};
using Device = std::unique_ptr<_cl_device_id, Releaser<clReleaseDevice>>;
using Context = std::unique_ptr<_cl_context, Releaser<clReleaseContext>>;
using Queue = std::unique_ptr<_cl_command_queue, Releaser<clReleaseCommandQueue>>;
using Program = std::unique_ptr<_cl_program, Releaser<clReleaseProgram>>;
using KernelHandle = std::unique_ptr<_cl_kernel, Releaser<clReleaseKernel>>;
using Buffer = std::unique_ptr<_cl_mem, Releaser<clReleaseMemObject>>;

Result<void> checked(cl_int status, std::string_view call) {
  if (status == CL_SUCCESS) return {};
  return Error{Code::kUnavailable, fmt::format("{}: OpenCL error {}", call, status), kHint};
}

/// A text of a platform or a device.
template <class Object, class Query>
std::string text_of(Query query, Object object, cl_uint what) {
  std::array<char, 1024> text{};
  if (query(object, what, text.size() - 1, text.data(), nullptr) != CL_SUCCESS) return "";
  return text.data();
}

Result<cl_platform_id> find_platform() {
  std::array<cl_platform_id, 16> platforms{};
  cl_uint count = 0;
  // The loader's status if there are no drivers is not in cl.h.
  constexpr cl_int kPlatformNotFound = -1001;
  const cl_int status = clGetPlatformIDs(platforms.size(), platforms.data(), &count);
  if (status != kPlatformNotFound) TRY_VOID(checked(status, "list platforms"));
  for (cl_uint i = 0; i < count && i < platforms.size(); ++i) {
    if (text_of(clGetPlatformInfo, platforms[i], CL_PLATFORM_NAME) == kPlatformName)
      return platforms[i];
  }
  return Error{Code::kUnavailable, fmt::format("none of {} OpenCL platforms is PoCL", count),
               kHint};
}

/// The device itself, or so many of its compute units.
Result<Device> take_cores(cl_device_id whole, cl_uint cores) {
  cl_uint have = 0;
  TRY_VOID(checked(clGetDeviceInfo(whole, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof have, &have, nullptr),
                   "count compute units"));
  if (have == cores) return Device(whole);
  if (have < cores)
    return Error{Code::kUnavailable, fmt::format("{} compute units, {} wanted", have, cores)};
  const std::array<cl_device_partition_property, 4> how{CL_DEVICE_PARTITION_BY_COUNTS,
                                                        static_cast<intptr_t>(cores),
                                                        CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
  cl_device_id part = nullptr;
  TRY_VOID(checked(clCreateSubDevices(whole, how.data(), 1, &part, nullptr),
                   fmt::format("take {} of {} compute units", cores, have)));
  return Device(part);
}

}  // namespace

struct Pocl::State {
  std::string name;
  Device device;
  Context context;
  Queue queue;
};

struct Pocl::Kernel::State {
  cl_command_queue queue{nullptr};  // the Pocl's
  Program program;
  KernelHandle kernel;
  std::vector<Buffer> buffers;  // by argument; null: a value
  std::vector<std::size_t> buffer_bytes;
  std::array<std::size_t, 3> global{}, local{};
};

Pocl::Kernel::Kernel(std::unique_ptr<State> state) : state_(std::move(state)) {}
Pocl::Kernel::Kernel(Kernel&&) noexcept = default;
Pocl::Kernel& Pocl::Kernel::operator=(Kernel&&) noexcept = default;
Pocl::Kernel::~Kernel() = default;

Result<void> Pocl::Kernel::run() {
  TRY_VOID(checked(
      clEnqueueNDRangeKernel(state_->queue, state_->kernel.get(), 3, nullptr, state_->global.data(),
                             state_->local.data(), 0, nullptr, nullptr),
      "launch a kernel"));
  return checked(clFinish(state_->queue), "wait for a kernel");
}

Result<void> Pocl::Kernel::clear(std::size_t argument) {
  const cl_uchar zero = 0;
  TRY_VOID(checked(
      clEnqueueFillBuffer(state_->queue, state_->buffers[argument].get(), &zero, sizeof zero, 0,
                          state_->buffer_bytes[argument], 0, nullptr, nullptr),
      "clear a buffer"));
  return checked(clFinish(state_->queue), "clear a buffer");
}

Result<void> Pocl::Kernel::fetch(std::size_t argument) {
  cl_int status = CL_SUCCESS;
  cl_mem buffer = state_->buffers[argument].get();
  void* const mapped =
      clEnqueueMapBuffer(state_->queue, buffer, CL_TRUE, CL_MAP_READ, 0,
                         state_->buffer_bytes[argument], 0, nullptr, nullptr, &status);
  TRY_VOID(checked(status, "map a buffer"));
  TRY_VOID(checked(clEnqueueUnmapMemObject(state_->queue, buffer, mapped, 0, nullptr, nullptr),
                   "unmap a buffer"));
  return checked(clFinish(state_->queue), "unmap a buffer");
}

Pocl::Pocl(std::unique_ptr<State> state) : state_(std::move(state)) {}
Pocl::Pocl(Pocl&&) noexcept = default;
Pocl& Pocl::operator=(Pocl&&) noexcept = default;
Pocl::~Pocl() = default;

const std::string& Pocl::name() const {
  return state_->name;
}

Result<Pocl> Pocl::open(std::uint32_t cores) {
  // Read once by PoCL, so to be set before its first call.
  setenv("POCL_KERNEL_CACHE", "0", 0);
  TRY(cl_platform_id const platform, find_platform());
  cl_device_id whole = nullptr;
  TRY_VOID(checked(clGetDeviceIDs(platform, CL_DEVICE_TYPE_CPU, 1, &whole, nullptr),
                   "find PoCL's processor device"));
  auto state = std::make_unique<State>();
  state->name = fmt::format("{}, {}", text_of(clGetPlatformInfo, platform, CL_PLATFORM_VERSION),
                            text_of(clGetDeviceInfo, whole, CL_DEVICE_NAME));
  TRY(state->device, take_cores(whole, cores));
  cl_int status = CL_SUCCESS;
  cl_device_id device = state->device.get();
  state->context.reset(clCreateContext(nullptr, 1, &device, nullptr, nullptr, &status));
  TRY_VOID(checked(status, "create a context"));
  state->queue.reset(clCreateCommandQueue(state->context.get(), device, 0, &status));
  TRY_VOID(checked(status, "create a queue"));
  return Pocl(std::move(state));
}

namespace {

Result<Program> compile(cl_context context, cl_device_id device, const std::string& source) {
  cl_int status = CL_SUCCESS;
  const char* text = source.data();
  const std::size_t bytes = source.size();
  Program program(clCreateProgramWithSource(context, 1, &text, &bytes, &status));
  TRY_VOID(checked(status, "create a program"));
  if (clBuildProgram(program.get(), 1, &device, "", nullptr, nullptr) != CL_SUCCESS) {
    std::vector<char> log(std::size_t{64} * 1024);
    static_cast<void>(clGetProgramBuildInfo(program.get(), device, CL_PROGRAM_BUILD_LOG,
                                            log.size() - 1, log.data(), nullptr));
    return Error{Code::kCorrupt, fmt::format("compile OpenCL C: {}", log.data())};
  }
  return program;
}

/// The buffer of a span: the same bytes, so both sides read and write memory of one kind.
Result<Buffer> wrap(cl_context context, std::span<std::byte> bytes) {
  cl_int status = CL_SUCCESS;
  Buffer buffer(clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, bytes.size(),
                               bytes.data(), &status));
  TRY_VOID(checked(status, "create a buffer"));
  return buffer;
}

Result<Buffer> set_argument(cl_context context, cl_kernel kernel, cl_uint index,
                            const KernelArgument& argument) {
  if (argument.buffer.empty()) {
    TRY_VOID(checked(clSetKernelArg(kernel, index, argument.value.size(), argument.value.data()),
                     "set a value"));
    return Buffer();
  }
  TRY(Buffer buffer, wrap(context, argument.buffer));
  cl_mem handle = buffer.get();
  TRY_VOID(checked(clSetKernelArg(kernel, index, sizeof handle, &handle), "set a buffer"));
  return buffer;
}

}  // namespace

Result<Pocl::Kernel> Pocl::build(const std::string& source, const KernelLaunch& launch) {
  auto made = std::make_unique<Kernel::State>();
  made->queue = state_->queue.get();
  TRY(made->program, compile(state_->context.get(), state_->device.get(), source));
  cl_kernel kernel = nullptr;
  TRY_VOID(checked(clCreateKernelsInProgram(made->program.get(), 1, &kernel, nullptr),
                   "create a kernel"));
  made->kernel.reset(kernel);
  for (cl_uint i = 0; i < launch.arguments.size(); ++i) {
    const KernelArgument& argument = launch.arguments[i];
    TRY(Buffer buffer, set_argument(state_->context.get(), kernel, i, argument));
    made->buffers.push_back(std::move(buffer));
    made->buffer_bytes.push_back(argument.buffer.size());
  }
  for (std::size_t i = 0; i < 3; ++i) {
    made->local[i] = launch.block[i];
    made->global[i] = std::size_t{launch.grid[i]} * launch.block[i];
  }
  return Kernel(std::move(made));
}

}  // namespace kansoku::bench
