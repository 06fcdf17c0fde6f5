// SPDX-License-Identifier: Apache-2.0
// The driver's interface: codes for arguments that cannot be, modules of PTX text, fills of three
// widths, virtual memory, contexts.
#include <cuda.h>

#include "device.h"

namespace gpu_check {

namespace {

const char* driver_error_name(int error) {
  const char* name = nullptr;
  cuGetErrorName(static_cast<CUresult>(error), &name);
  return name == nullptr ? "no error's number" : name;
}
#define DRIVER_NEED(call)                                                                         \
  do {                                                                                            \
    const CUresult status_ = (call);                                                              \
    c.need(std::string(#call) + " gives " + driver_error_name(status_), status_ == CUDA_SUCCESS); \
  } while (false)
#define EXPECT_DRIVER(wanted, call) c.error(#call, (call), (wanted), driver_error_name)

constexpr char kModule[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 variable[4] = {11, 22, 33, 44};
.visible .entry scale(.param .u64 out, .param .u32 factor, .param .u64 wide)
{
  .reg .b32 %r<6>;
  .reg .b64 %d<8>;
  ld.param.u64 %d1, [out];
  ld.param.u32 %r1, [factor];
  ld.param.u64 %d2, [wide];
  cvta.to.global.u64 %d3, %d1;
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %d4, %r2, 4;
  mov.u64 %d5, variable;
  add.u64 %d6, %d5, %d4;
  ld.global.u32 %r3, [%d6];
  mul.lo.u32 %r4, %r3, %r1;
  cvt.u32.u64 %r5, %d2;
  add.u32 %r4, %r4, %r5;
  add.u64 %d7, %d3, %d4;
  st.global.u32 [%d7], %r4;
  ret;
}
)";

// The context of the runtime is current from the first call that needs a device.
void begin(Check& c) {
  NEED(cudaFree(nullptr));
}

class Memory {
 public:
  Memory(Check& c, std::size_t bytes) { DRIVER_NEED(cuMemAlloc(&at, bytes)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { cuMemFree(at); }
  CUdeviceptr at{0};
};

template <class T>
std::vector<T> read_back(Check& c, CUdeviceptr from, std::size_t count) {
  std::vector<T> values(count);
  DRIVER_NEED(cuMemcpyDtoH(values.data(), from, count * sizeof(T)));
  return values;
}

CUmemAllocationProp device_memory() {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = 0;
  return properties;
}
std::size_t granule_of(Check& c, const CUmemAllocationProp& properties) {
  std::size_t granule = 0;
  DRIVER_NEED(
      cuMemGetAllocationGranularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  return granule;
}

__global__ void write_word(u32* where, u32 value) {
  *where = value;
}

}  // namespace

GPU_CHECK_BODY(driver, arguments) {
  begin(c);
  int count = 0, value = 0;
  CUdevice device = 0;
  CUdeviceptr memory = 0;
  const char* text = nullptr;
  EXPECT_DRIVER(CUDA_ERROR_INVALID_VALUE, cuInit(1));
  DRIVER_NEED(cuDeviceGetCount(&count));
  EXPECT_DRIVER(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, count));
  EXPECT_DRIVER(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&memory, 0));
  EXPECT_DRIVER(CUDA_ERROR_INVALID_VALUE, cuGetErrorName(static_cast<CUresult>(54321), &text));
  EXPECT_DRIVER(CUDA_ERROR_INVALID_VALUE,
                cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(100000), 0));
}

GPU_CHECK_BODY(driver, module_of_ptx) {
  begin(c);
  CUmodule module = nullptr;
  CUfunction scale = nullptr, missing = nullptr;
  CUdeviceptr variable = 0;
  std::size_t bytes = 0;
  EXPECT_DRIVER(CUDA_SUCCESS, cuModuleLoadData(&module, kModule));
  EXPECT_DRIVER(CUDA_SUCCESS, cuModuleGetFunction(&scale, module, "scale"));
  EXPECT_DRIVER(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&missing, module, "no_such_kernel"));
  EXPECT_DRIVER(CUDA_SUCCESS, cuModuleGetGlobal(&variable, &bytes, module, "variable"));
  c.equal("bytes of the variable", (long long)bytes, 16);
  const u32 second = 1000;
  DRIVER_NEED(cuMemcpyHtoD(variable + 4, &second, 4));
  Memory out(c, 16);
  u32 factor = 3;
  u64 wide = 7;
  void* arguments[] = {&out.at, &factor, &wide};
  EXPECT_DRIVER(CUDA_SUCCESS,
                cuLaunchKernel(scale, 1, 1, 1, 4, 1, 1, 0, nullptr, arguments, nullptr));
  c.all_equal("values by kernelParams", read_back<u32>(c, out.at, 4),
              std::vector<u32>{40, 3007, 106, 139});
  // The same arguments as one buffer: each lies at its natural alignment.
  struct {
    CUdeviceptr out;
    u32 factor;
    u32 padding;
    u64 wide;
  } buffer = {out.at, 2, 0, 1};
  std::size_t buffer_bytes = sizeof buffer;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &buffer_bytes, CU_LAUNCH_PARAM_END};
  EXPECT_DRIVER(CUDA_SUCCESS, cuLaunchKernel(scale, 1, 1, 1, 4, 1, 1, 0, nullptr, nullptr, extra));
  c.all_equal("values by a buffer", read_back<u32>(c, out.at, 4),
              std::vector<u32>{23, 2001, 67, 89});
  EXPECT_DRIVER(CUDA_SUCCESS, cuModuleUnload(module));
}

GPU_CHECK_BODY(driver, ptx_errors) {
  begin(c);
  CUmodule module = nullptr;
  EXPECT_DRIVER(CUDA_ERROR_INVALID_PTX,
                cuModuleLoadData(&module,
                                 ".version 7.0\n.target sm_80\n.address_size 64\n"
                                 ".visible .entry k()\n{\n  no.such.instruction;\n}\n"));
  EXPECT_DRIVER(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
                cuModuleLoadData(&module,
                                 ".version 99.0\n.target sm_80\n.address_size 64\n"
                                 ".visible .entry k()\n{\n  ret;\n}\n"));
}

GPU_CHECK_BODY(driver, fills_of_three_widths) {
  begin(c);
  Memory memory(c, 64);
  DRIVER_NEED(cuMemsetD8(memory.at, 0, 64));
  EXPECT_DRIVER(CUDA_SUCCESS, cuMemsetD8(memory.at + 1, 0x5a, 3));
  EXPECT_DRIVER(CUDA_SUCCESS, cuMemsetD16(memory.at + 6, 0x1234, 3));
  EXPECT_DRIVER(CUDA_SUCCESS, cuMemsetD32(memory.at + 16, 0xdeadbeef, 2));
  EXPECT_DRIVER(CUDA_ERROR_INVALID_VALUE, cuMemsetD16(memory.at + 1, 1, 1));
  EXPECT_DRIVER(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(memory.at + 2, 1, 1));
  c.all_equal("words", read_back<u32>(c, memory.at, 7),
              std::vector<u32>{0x5a5a5a00, 0x12340000, 0x12341234, 0, 0xdeadbeef, 0xdeadbeef, 0});
}

GPU_CHECK_BODY(driver, address_ranges) {
  begin(c);
  Memory memory(c, 1000);
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  EXPECT_DRIVER(CUDA_SUCCESS, cuMemGetAddressRange(&base, &bytes, memory.at + 500));
  c.is_true("the range begins at the allocation", base == memory.at);
  c.is_true("it has the bytes, within a granule", bytes >= 1000 && bytes <= 2 << 20);
  unsigned type = 0;
  EXPECT_DRIVER(CUDA_SUCCESS,
                cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory.at));
  c.equal("its type", type, CU_MEMORYTYPE_DEVICE);
}

GPU_CHECK_BODY(driver, contexts) {
  begin(c);
  CUcontext runtime = nullptr, primary = nullptr, current = nullptr;
  DRIVER_NEED(cuCtxGetCurrent(&runtime));
  DRIVER_NEED(cuDevicePrimaryCtxRetain(&primary, 0));
  c.is_true("the runtime's context is the primary one", runtime != nullptr && runtime == primary);
  EXPECT_DRIVER(CUDA_SUCCESS, cuCtxPushCurrent(primary));
  EXPECT_DRIVER(CUDA_SUCCESS, cuCtxPopCurrent(&current));
  c.is_true("what was pushed comes back", current == primary);
  EXPECT_DRIVER(CUDA_SUCCESS, cuCtxSetCurrent(nullptr));
  CUdeviceptr memory = 0;
  EXPECT_DRIVER(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&memory, 4));
  EXPECT_DRIVER(CUDA_SUCCESS, cuCtxSetCurrent(primary));
  DRIVER_NEED(cuDevicePrimaryCtxRelease(0));
}

GPU_CHECK_BODY(virtual_memory, maps_one_allocation_twice) {
  begin(c);
  const CUmemAllocationProp properties = device_memory();
  const std::size_t granule = granule_of(c, properties);
  c.is_true("the granule is a power of two", granule > 0 && (granule & (granule - 1)) == 0);
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr range = 0;
  EXPECT_DRIVER(CUDA_SUCCESS, cuMemCreate(&handle, granule, &properties, 0));
  EXPECT_DRIVER(CUDA_SUCCESS, cuMemAddressReserve(&range, 2 * granule, 0, 0, 0));
  EXPECT_DRIVER(CUDA_SUCCESS, cuMemMap(range, granule, 0, handle, 0));
  EXPECT_DRIVER(CUDA_SUCCESS, cuMemMap(range + granule, granule, 0, handle, 0));
  CUmemAccessDesc access = {};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  EXPECT_DRIVER(CUDA_SUCCESS, cuMemSetAccess(range, 2 * granule, &access, 1));
  write_word<<<1, 1>>>(reinterpret_cast<u32*>(range) + 5, 77);
  NEED(cudaDeviceSynchronize());
  c.equal("the word in the second mapping", read_back<u32>(c, range + granule + 20, 1)[0], 77);
  EXPECT_DRIVER(CUDA_SUCCESS, cuMemUnmap(range, 2 * granule));
  EXPECT_DRIVER(CUDA_SUCCESS, cuMemRelease(handle));
  EXPECT_DRIVER(CUDA_SUCCESS, cuMemAddressFree(range, 2 * granule));
}

GPU_CHECK_BODY(virtual_memory, arguments) {
  begin(c);
  const CUmemAllocationProp properties = device_memory();
  const std::size_t granule = granule_of(c, properties);
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr range = 0;
  EXPECT_DRIVER(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, granule + 1, &properties, 0));
  EXPECT_DRIVER(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&range, granule + 1, 0, 0, 0));
  EXPECT_DRIVER(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&range, 0, 0, 0, 0));
}

GPU_CHECK_BODY(virtual_memory, no_access_before_it_is_set) {
  begin(c);
  const CUmemAllocationProp properties = device_memory();
  const std::size_t granule = granule_of(c, properties);
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr range = 0;
  DRIVER_NEED(cuMemCreate(&handle, granule, &properties, 0));
  DRIVER_NEED(cuMemAddressReserve(&range, granule, 0, 0, 0));
  DRIVER_NEED(cuMemMap(range, granule, 0, handle, 0));
  write_word<<<1, 1>>>(reinterpret_cast<u32*>(range), 77);
  EXPECT_ERROR(cudaErrorIllegalAddress, cudaDeviceSynchronize());
}

}  // namespace gpu_check
