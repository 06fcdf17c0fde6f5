// SPDX-License-Identifier: Apache-2.0
// Libraries and their kernels, which all contexts share.
#include <gmock/gmock.h>

#include <filesystem>

#include "softcuda/driver_for_test.h"

namespace kansoku::softcuda {
namespace {

class LibraryTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    OK(cuLibraryLoadData(&library_, kTestKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  }
  void TearDown() override {
    if (library_ != nullptr) {
      EXPECT_CU(0, cuLibraryUnload(library_));
    }
    DriverTest::TearDown();
  }
  CUkernel library_kernel(const char* name) {
    CUkernel kernel = nullptr;
    EXPECT_CU(0, cuLibraryGetKernel(&kernel, library_, name));
    return kernel;
  }
  std::uint32_t stored(CUkernel kernel, std::uint32_t value) {
    const CUdeviceptr out = allocate(4);
    EXPECT_CU(0, launch(reinterpret_cast<CUfunction>(kernel), {}, nullptr, out, value));
    return read(out);
  }

  CUlibrary library_{nullptr};
};

TEST(Library, LinkersFindItByItsShortName) {
  const std::filesystem::path library(KANSOKU_SOFTCUDA_LIBRARY);
  EXPECT_EQ(std::filesystem::read_symlink(library.parent_path() / "libcuda.so"),
            library.filename());
}

TEST_F(LibraryTest, KernelsRunInEveryContext) {
  COVERS(cuLibraryGetKernel, cuKernelGetFunction, cuLibraryUnload);
  const CUkernel kernel = library_kernel("store");
  EXPECT_EQ(kernel, library_kernel("store"));
  EXPECT_EQ(stored(kernel, 5), 5U);
  CUfunction first = nullptr, second = nullptr;
  OK(cuKernelGetFunction(&first, kernel));
  CUcontext other = nullptr;
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  OK(cuCtxSetCurrent(other));
  EXPECT_EQ(stored(kernel, 6), 6U);
  OK(cuKernelGetFunction(&second, kernel));
  EXPECT_NE(first, second);
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, launch(first, {}, nullptr, CUdeviceptr{0}, 1U));
  EXPECT_CU(CUDA_ERROR_NOT_FOUND,
            cuLibraryGetKernel(const_cast<CUkernel*>(&kernel), library_, "absent"));
  OK(cuLibraryUnload(library_));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuLibraryUnload(library_));
  library_ = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuKernelGetFunction(&first, kernel));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE,
            launch(reinterpret_cast<CUfunction>(kernel), {}, nullptr, CUdeviceptr{0}, 1U));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, launch(second, {}, nullptr, CUdeviceptr{0}, 1U));
}

TEST_F(LibraryTest, NeedsNoContextAndOutlivesIt) {
  COVERS(cuLibraryLoadData);
  OK(cuCtxSetCurrent(nullptr));
  CUlibrary library = nullptr;
  OK(cuLibraryLoadData(&library, kTestKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  OK(cuLibraryGetKernel(&kernel, library, "store"));
  CUfunction function = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuKernelGetFunction(&function, kernel));
  OK(cuCtxSetCurrent(context_));
  EXPECT_EQ(stored(kernel, 1), 1U);
  OK(cuDevicePrimaryCtxReset_v2(0));
  OK(cuDevicePrimaryCtxRetain(&context_, 0));
  OK(cuCtxSetCurrent(context_));
  EXPECT_EQ(stored(kernel, 2), 2U);
  OK(cuLibraryUnload(library));
}

TEST_F(LibraryTest, Enumerates) {
  COVERS(cuLibraryGetKernelCount, cuLibraryEnumerateKernels, cuKernelGetName, cuKernelGetLibrary);
  unsigned count = 0;
  OK(cuLibraryGetKernelCount(&count, library_));
  EXPECT_EQ(count, 17U);
  std::vector<CUkernel> kernels(count);
  OK(cuLibraryEnumerateKernels(kernels.data(), count, library_));
  const char* name = nullptr;
  OK(cuKernelGetName(&name, kernels[0]));
  EXPECT_STREQ(name, "iota");
  EXPECT_EQ(kernels[1], library_kernel("store"));
  CUlibrary owner = nullptr;
  OK(cuKernelGetLibrary(&owner, kernels[1]));
  EXPECT_EQ(owner, library_);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuLibraryEnumerateKernels(nullptr, 1, library_));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE,
            cuKernelGetName(&name, reinterpret_cast<CUkernel>(kernel("store"))));
}

TEST_F(LibraryTest, ModulesAndVariablesAreTheContexts) {
  COVERS(cuLibraryGetModule, cuLibraryGetGlobal);
  CUmodule module = nullptr;
  OK(cuLibraryGetModule(&module, library_));
  CUfunction function = nullptr;
  OK(cuModuleGetFunction(&function, module, "variables"));
  CUdeviceptr counter = 0, other_counter = 0;
  std::size_t bytes = 0;
  OK(cuLibraryGetGlobal(&counter, &bytes, library_, "counter"));
  EXPECT_EQ(bytes, 4U);
  const CUdeviceptr out = allocate(16);
  OK(launch(function, {1, 4}, nullptr, out));
  EXPECT_EQ(read(counter), 8U);
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, cuLibraryGetGlobal(&counter, &bytes, library_, "absent"));
  CUcontext other = nullptr;
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  OK(cuCtxSetCurrent(other));
  OK(cuLibraryGetGlobal(&other_counter, &bytes, library_, "counter"));
  EXPECT_NE(other_counter, counter);
  EXPECT_EQ(read(other_counter), 7U);
}

TEST_F(LibraryTest, AttributesOfKernels) {
  COVERS(cuKernelGetAttribute, cuKernelSetAttribute, cuKernelGetParamInfo, cuKernelSetCacheConfig);
  const CUkernel kernel = library_kernel("shared_end");
  int value = 0;
  OK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel, 0));
  EXPECT_EQ(value, 48 * 1024);
  OK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60 * 1024, kernel, 0));
  CUfunction function = nullptr;
  OK(cuKernelGetFunction(&function, kernel));
  OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
  EXPECT_EQ(value, 60 * 1024);
  const CUdeviceptr out = allocate(4);
  OK(launch(reinterpret_cast<CUfunction>(kernel), {1, 1, 60 * 1024}, nullptr, out, 60 * 1024));
  EXPECT_EQ(read(out), 77U);
  std::size_t offset = 0, bytes = 0;
  OK(cuKernelGetParamInfo(kernel, 1, &offset, &bytes));
  EXPECT_EQ(offset, 8U);
  EXPECT_EQ(bytes, 4U);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuKernelGetParamInfo(kernel, 2, &offset, &bytes));
  OK(cuKernelSetCacheConfig(kernel, 2, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuKernelSetCacheConfig(kernel, 7, 0));
}

TEST_F(LibraryTest, FromFilesAndFromRubbish) {
  COVERS(cuLibraryLoadFromFile);
  CUlibrary library = nullptr;
  const std::string path = KANSOKU_SOURCE_DIR "/tests/data/ptx/reduction.ptx";
  OK(cuLibraryLoadFromFile(&library, path.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  OK(cuLibraryGetKernel(&kernel, library, "reduce_sum"));
  OK(cuLibraryUnload(library));
  EXPECT_CU(CUDA_ERROR_FILE_NOT_FOUND,
            cuLibraryLoadFromFile(&library, "/nowhere", nullptr, nullptr, 0, nullptr, nullptr, 0));
  char log[128] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  EXPECT_CU(CUDA_ERROR_INVALID_PTX,
            cuLibraryLoadData(&library, "no PTX", options, values, 2, nullptr, nullptr, 0));
  EXPECT_NE(log[0], '\0');
}

}  // namespace
}  // namespace kansoku::softcuda
