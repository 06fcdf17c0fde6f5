// SPDX-License-Identifier: Apache-2.0
#include "softcuda/nccl/internal/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <string_view>

namespace kansoku::softcuda::nccl {
namespace {

constexpr std::string_view kDeviceName = "Kansoku software device";  // how its name begins

void* find_symbol(const char* symbol) {
  if (void* const found = dlsym(RTLD_DEFAULT, symbol); found != nullptr) return found;
  // Loaded by somebody for himself, or not yet. It stays: threads of streams may run to the end.
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  return library == nullptr ? nullptr : dlsym(library, symbol);
}

/// Makes a context current, and what was current before again at its end.
template <class GetCurrent, class SetCurrent>
class Inside {
 public:
  Inside(GetCurrent get, SetCurrent set, cuda::CUcontext context) : set_(set) {
    const cuda::CUresult got = get(&before_);
    if (got != cuda::CUDA_SUCCESS || before_ == context) return;
    result_ = set(context);
    is_changed_ = result_ == cuda::CUDA_SUCCESS;
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() {
    if (is_changed_) static_cast<void>(set_(before_));
  }
  [[nodiscard]] cuda::CUresult result() const { return result_; }

 private:
  SetCurrent set_;
  cuda::CUcontext before_{nullptr};
  cuda::CUresult result_{cuda::CUDA_SUCCESS};
  bool is_changed_{false};
};

}  // namespace

Status cuda_status(std::string_view operation, cuda::CUresult code) {
  const char* const name = cuda::error_name(code);
  return {ncclUnhandledCudaError,
          fmt::format("{}: {} ({})", operation, name == nullptr ? "unknown error" : name,
                      static_cast<int>(code))};
}

Status Driver::load(Driver& driver) {
// NOLINTBEGIN(bugprone-macro-parentheses): names and lists of parameters
#define KANSOKU_NCCL_X(field, symbol, parameters)                                           \
  driver.call_.field = reinterpret_cast<cuda::CUresult(*) parameters>(find_symbol(symbol)); \
  if (driver.call_.field == nullptr)                                                        \
    return {ncclUnhandledCudaError, "load libcuda.so.1: it is not found or lacks " symbol};
  KANSOKU_NCCL_DRIVER_FUNCTIONS(KANSOKU_NCCL_X)
#undef KANSOKU_NCCL_X
  // NOLINTEND(bugprone-macro-parentheses)
  if (const auto code = driver.call_.init(0); code != cuda::CUDA_SUCCESS)
    return cuda_status("initialise the driver", code);
  cuda::CUdevice device = 0;
  if (const auto code = driver.call_.device_get(&device, 0); code != cuda::CUDA_SUCCESS)
    return cuda_status("get device 0", code);
  std::array<char, 256> name{};
  if (const auto code = driver.call_.device_name(name.data(), int{name.size()} - 1, device);
      code != cuda::CUDA_SUCCESS)
    return cuda_status("get the name of device 0", code);
  if (!std::string_view(name.data()).starts_with(kDeviceName)) {
    return {
        ncclInvalidUsage,
        fmt::format("this libnccl.so.2 is for Kansoku's software device, and device 0 is \"{}\"",
                    name.data())};
  }
  return {};
}

Status Driver::current(DeviceContext& into) const {
  if (const auto code = call_.ctx_get_current(&into.context); code != cuda::CUDA_SUCCESS)
    return cuda_status("get the current context", code);
  if (into.context == nullptr) return primary(0, into);
  if (const auto code = call_.ctx_device(&into.device); code != cuda::CUDA_SUCCESS)
    return cuda_status("get the current device", code);
  return {};
}

Status Driver::primary(int device, DeviceContext& into) const {
  into.device = device;
  cuda::CUdevice handle = 0;
  if (const auto code = call_.device_get(&handle, device); code != cuda::CUDA_SUCCESS)
    return cuda_status(fmt::format("get device {}", device), code);
  if (const auto code = call_.primary_retain(&into.context, handle); code != cuda::CUDA_SUCCESS)
    return cuda_status(fmt::format("retain the primary context of device {}", device), code);
  return {};
}

Status Driver::device_count(int& count) const {
  const auto code = call_.device_count(&count);
  return code == cuda::CUDA_SUCCESS ? Status() : cuda_status("count devices", code);
}

Status Driver::check_array(cuda::CUcontext context, const std::byte* array,
                           std::size_t bytes) const {
  const Inside inside(call_.ctx_get_current, call_.ctx_set_current, context);
  for (const std::byte* const at : {array, array + bytes - 1}) {
    int type = 0;
    const auto code = call_.pointer_attribute(&type, cuda::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                              reinterpret_cast<cuda::CUdeviceptr>(at));
    if (code == cuda::CUDA_SUCCESS) continue;
    if (code != cuda::CUDA_ERROR_INVALID_VALUE) return cuda_status("query an array", code);
    return {ncclInvalidArgument,
            fmt::format("the array of {} bytes at {} is not in the device's memory", bytes,
                        static_cast<const void*>(array))};
  }
  return {};
}

Status Driver::enqueue(cuda::CUcontext context, cuda::CUstream stream, cuda::CUhostFn function,
                       void* user_data) const {
  const Inside inside(call_.ctx_get_current, call_.ctx_set_current, context);
  if (inside.result() != cuda::CUDA_SUCCESS)
    return cuda_status("set the communicator's context", inside.result());
  auto capturing = cuda::CU_STREAM_CAPTURE_STATUS_NONE;
  if (const auto code = call_.stream_is_capturing(stream, &capturing); code != cuda::CUDA_SUCCESS)
    return cuda_status("query the stream", code);
  if (capturing != cuda::CU_STREAM_CAPTURE_STATUS_NONE)
    return {ncclInvalidUsage, "the stream is being captured, which the stand-in does not support"};
  const auto code = call_.launch_host(stream, function, user_data);
  return code == cuda::CUDA_SUCCESS ? Status() : cuda_status("enqueue on the stream", code);
}

cuda::CUresult Driver::query(cuda::CUcontext context, cuda::CUstream stream) const {
  const Inside inside(call_.ctx_get_current, call_.ctx_set_current, context);
  return inside.result() == cuda::CUDA_SUCCESS ? call_.stream_query(stream) : inside.result();
}

}  // namespace kansoku::softcuda::nccl
