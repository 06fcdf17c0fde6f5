// SPDX-License-Identifier: Apache-2.0
// Images, modules, functions and the linker.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cuda/fatbin.h"
#include "softcuda/driver_for_test.h"

namespace kansoku::softcuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ModuleTest : public DriverTest {
 protected:
  /// What its kernel `store` writes.
  std::uint32_t stored(CUmodule module, const char* name = "store") {
    CUfunction function = nullptr;
    EXPECT_CU(0, cuModuleGetFunction(&function, module, name));
    const CUdeviceptr out = allocate(4);
    EXPECT_CU(0, launch(function, {}, nullptr, out, 9U));
    const auto value = read(out);
    EXPECT_CU(0, cuMemFree_v2(out));
    return value;
  }
  std::string write_file(const std::string& name, std::string_view bytes) {
    const std::string path =
        (std::filesystem::temp_directory_path() / (name + "_" + std::to_string(getpid()))).string();
    std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
    files_.push_back(path);
    return path;
  }
  void TearDown() override {
    for (const std::string& path : files_)
      std::filesystem::remove(path);
    DriverTest::TearDown();
  }

 private:
  std::vector<std::string> files_;
};

/// A kernel that the software device does not know, beside one that it does.
constexpr const char* kHalfKnown =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry strange() { wgmma.fence.sync.aligned; ret; }\n"
    ".visible .entry plain() { ret; }\n";

/// A kernel `store` that writes `value` whatever it is told to.
std::string text_storing(int value) {
  return ".version 8.0\n.target sm_80\n.address_size 64\n"
         ".visible .entry store(.param .u64 out, .param .u32 v)\n{\n"
         "\t.reg .b32 %r<2>; .reg .b64 %rd<2>;\n\tld.param.u64 %rd1, [out];\n\tmov.u32 %r1, " +
         std::to_string(value) + ";\n\tst.global.u32 [%rd1], %r1;\n\tret;\n}\n";
}

struct Wrapper {
  std::uint32_t magic, version;
  const void* data;
  const void* link;
};

TEST_F(ModuleTest, AKernelThatCannotRunIsRefusedAlone) {
  COVERS(cuModuleLoadData, cuModuleGetFunction, cuModuleGetFunctionCount, cuLibraryLoadData,
         cuLibraryGetKernel, cuKernelGetFunction);
  CUmodule module = nullptr;
  OK(cuModuleLoadData(&module, kHalfKnown));
  unsigned count = 0;
  OK(cuModuleGetFunctionCount(&count, module));
  EXPECT_EQ(count, 2U);
  CUfunction function = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_PTX, cuModuleGetFunction(&function, module, "strange"));
  OK(cuModuleGetFunction(&function, module, "plain"));
  EXPECT_CU(0, launch(function, {}, nullptr));
  OK(cuCtxSynchronize());
  OK(cuModuleUnload(module));
  CUlibrary library = nullptr;
  OK(cuLibraryLoadData(&library, kHalfKnown, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  OK(cuLibraryGetKernel(&kernel, library, "strange"));
  EXPECT_CU(CUDA_ERROR_INVALID_PTX, cuKernelGetFunction(&function, kernel));
  OK(cuLibraryGetKernel(&kernel, library, "plain"));
  OK(cuKernelGetFunction(&function, kernel));
  OK(cuLibraryUnload(library));
}

TEST_F(ModuleTest, FromText) {
  COVERS(cuModuleLoadData, cuModuleGetFunction, cuModuleUnload);
  CUmodule module = nullptr;
  OK(cuModuleLoadData(&module, kTestKernels));
  EXPECT_EQ(stored(module), 9U);
  CUfunction function = nullptr, again = nullptr;
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "absent"));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuModuleGetFunction(&function, module, nullptr));
  OK(cuModuleGetFunction(&function, module, "iota"));
  OK(cuModuleGetFunction(&again, module, "iota"));
  EXPECT_EQ(function, again);
  OK(cuModuleUnload(module));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunction(&again, module, "iota"));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, launch(function, {}, nullptr, CUdeviceptr{0}, 0U));
}

TEST_F(ModuleTest, FromFatbinsInEveryCompression) {
  COVERS(cuModuleLoadData, cuModuleLoadFatBinary);
  for (const Compression compression :
       {Compression::kNone, Compression::kLz4, Compression::kZstd}) {
    const auto fatbin = write_fatbin(
        {{text_storing(60), 60}, {text_storing(80), 80}, {text_storing(90), 90}}, compression);
    ASSERT_TRUE(fatbin);
    CUmodule module = nullptr;
    OK(cuModuleLoadFatBinary(&module, fatbin->data()));
    EXPECT_EQ(stored(module), 80U) << compression_name(compression);
    OK(cuModuleUnload(module));
    const Wrapper wrapper{kWrapperMagic, 1, fatbin->data(), nullptr};
    OK(cuModuleLoadData(&module, &wrapper));
    EXPECT_EQ(stored(module), 80U);
    OK(cuModuleUnload(module));
  }
}

TEST_F(ModuleTest, WhatIsNoneForThisDevice) {
  COVERS(cuModuleLoadData);
  CUmodule module = nullptr;
  const auto newer = write_fatbin({{text_storing(1), 90}}, Compression::kNone);
  ASSERT_TRUE(newer);
  EXPECT_CU(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&module, newer->data()));
  const char elf[64] = "\177ELF\2\1\1";
  EXPECT_CU(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&module, elf));
  const Wrapper relocatable{kWrapperMagic, 2, nullptr, nullptr};
  EXPECT_CU(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&module, &relocatable));
}

TEST_F(ModuleTest, Rubbish) {
  COVERS(cuModuleLoadData);
  CUmodule module = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&module, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(nullptr, kTestKernels));
  EXPECT_CU(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, ""));
  EXPECT_CU(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "\1\2\3"));
  EXPECT_CU(CUDA_ERROR_INVALID_PTX, cuModuleLoadData(&module, "x"));
  EXPECT_CU(CUDA_ERROR_INVALID_PTX, cuModuleLoadData(&module, "this is no PTX"));
  EXPECT_CU(CUDA_ERROR_INVALID_PTX,
            cuModuleLoadData(&module,
                             ".version 8.0\n.target sm_80\n.address_size 64\n"
                             ".visible .entry k() { no.such.op; ret; }\n"));
  EXPECT_CU(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
            cuModuleLoadData(&module, ".version 99.0\n.target sm_80\n.address_size 64\n"));
  auto fatbin = write_fatbin({{text_storing(1), 80}}, Compression::kZstd);
  ASSERT_TRUE(fatbin);
  std::string cut = *fatbin;
  cut[16 + 8] = '\xff';  // an entry that is longer than its container
  EXPECT_CU(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, cut.data()));
  EXPECT_EQ(module, nullptr);
}

TEST_F(ModuleTest, LogsOfTheCompiler) {
  COVERS(cuModuleLoadDataEx);
  char error[256] = "before", info[16] = "before";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {error, reinterpret_cast<void*>(sizeof error), info,
                    reinterpret_cast<void*>(sizeof info)};
  CUmodule module = nullptr;
  const char* const wrong =
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n no.such.op;\n "
      "ret;\n}\n";
  EXPECT_CU(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&module, wrong, 4, options, values));
  EXPECT_THAT(error, HasSubstr("line 6"));
  EXPECT_EQ(reinterpret_cast<std::size_t>(values[1]), std::strlen(error));
  EXPECT_STREQ(info, "");
  // A buffer that is too small gets what fits.
  values[1] = reinterpret_cast<void*>(5);
  EXPECT_CU(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&module, wrong, 4, options, values));
  EXPECT_EQ(std::strlen(error), 4U);
  values[1] = reinterpret_cast<void*>(sizeof error);
  OK(cuModuleLoadDataEx(&module, kTestKernels, 4, options, values));
  EXPECT_STREQ(error, "");
  EXPECT_EQ(stored(module), 9U);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuModuleLoadDataEx(&module, kTestKernels, 1, nullptr, nullptr));
}

TEST_F(ModuleTest, FromFiles) {
  COVERS(cuModuleLoad);
  CUmodule module = nullptr;
  const std::string path = KANSOKU_SOURCE_DIR "/tests/data/ptx/vector_add.ptx";
  OK(cuModuleLoad(&module, path.c_str()));
  CUfunction function = nullptr;
  OK(cuModuleGetFunction(&function, module, "vector_add"));
  const CUdeviceptr a = allocate(64), b = allocate(64), c = allocate(64);
  const float one = 1.5F, two = 2.25F;
  std::uint32_t bits[2] = {};
  std::memcpy(&bits[0], &one, 4);
  std::memcpy(&bits[1], &two, 4);
  OK(cuMemsetD32_v2(a, bits[0], 16));
  OK(cuMemsetD32_v2(b, bits[1], 16));
  OK(launch(function, {1, 32}, nullptr, a, b, c, 16));
  EXPECT_THAT(read<float>(c, 16), ::testing::Each(3.75F));
  EXPECT_CU(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&module, "/nowhere/at.ptx"));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuModuleLoad(&module, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_IMAGE, cuModuleLoad(&module, write_file("h4_empty", "").c_str()));
  // A container of which the end is missing, and a wrapper, which would point into nowhere.
  const auto fatbin = write_fatbin({{text_storing(3), 80}}, Compression::kLz4);
  ASSERT_TRUE(fatbin);
  OK(cuModuleLoad(&module, write_file("h4_whole", *fatbin).c_str()));
  EXPECT_EQ(stored(module), 3U);
  EXPECT_CU(CUDA_ERROR_INVALID_IMAGE,
            cuModuleLoad(&module, write_file("h4_cut", fatbin->substr(0, 40)).c_str()));
  const Wrapper wrapper{kWrapperMagic, 1, reinterpret_cast<void*>(64), nullptr};
  const std::string_view bytes(reinterpret_cast<const char*>(&wrapper), sizeof wrapper);
  EXPECT_CU(CUDA_ERROR_INVALID_IMAGE,
            cuModuleLoad(&module, write_file("h4_wrapper", bytes).c_str()));
}

TEST_F(ModuleTest, VariablesAreInMemory) {
  COVERS(cuModuleGetGlobal_v2);
  CUmodule module = nullptr;
  OK(cuModuleLoadData(&module, kTestKernels));
  CUdeviceptr counter = 0, table = 0, area = 0;
  std::size_t bytes = 0;
  OK(cuModuleGetGlobal_v2(&counter, &bytes, module, "counter"));
  EXPECT_EQ(bytes, 4U);
  EXPECT_EQ(read(counter), 7U);
  OK(cuModuleGetGlobal_v2(&table, &bytes, module, "table"));
  EXPECT_EQ(bytes, 16U);
  OK(cuModuleGetGlobal_v2(&area, nullptr, module, "area"));
  EXPECT_EQ(area % 8, 0U);
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal_v2(&area, &bytes, module, "absent"));
  const std::uint32_t values[4] = {100, 200, 300, 400};
  OK(cuMemcpyHtoD_v2(table, values, sizeof values));
  CUfunction function = nullptr;
  OK(cuModuleGetFunction(&function, module, "variables"));
  const CUdeviceptr out = allocate(16);
  OK(launch(function, {1, 4}, nullptr, out));
  EXPECT_THAT(read(out, 4), ElementsAre(108, 208, 308, 408));
  EXPECT_EQ(read(counter), 8U);
  // They are the module's: the program cannot free them, and every module has its own.
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(counter));
  CUmodule second = nullptr;
  CUdeviceptr other = 0;
  OK(cuModuleLoadData(&second, kTestKernels));
  OK(cuModuleGetGlobal_v2(&other, &bytes, second, "counter"));
  EXPECT_NE(other, counter);
  EXPECT_EQ(read(other), 7U);
  OK(cuModuleUnload(module));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(counter, 1, 1));
}

TEST_F(ModuleTest, Enumerates) {
  COVERS(cuModuleGetFunctionCount, cuModuleEnumerateFunctions, cuModuleGetLoadingMode,
         cuFuncGetName, cuFuncGetModule, cuFuncIsLoaded, cuFuncLoad);
  const std::string two = text_storing(1) + ".visible .entry second() { ret; }\n";
  CUmodule module = nullptr, owner = nullptr;
  OK(cuModuleLoadData(&module, two.c_str()));
  unsigned count = 0;
  OK(cuModuleGetFunctionCount(&count, module));
  EXPECT_EQ(count, 2U);
  CUfunction functions[3] = {};
  OK(cuModuleEnumerateFunctions(functions, 3, module));
  EXPECT_EQ(functions[2], nullptr);
  const char* name = nullptr;
  OK(cuFuncGetName(&name, functions[1]));
  EXPECT_STREQ(name, "second");
  OK(cuFuncGetModule(&owner, functions[1]));
  EXPECT_EQ(owner, module);
  int state = 0;
  OK(cuFuncIsLoaded(&state, functions[0]));
  EXPECT_EQ(state, 1);
  OK(cuFuncLoad(functions[0]));
  int mode = 0;
  OK(cuModuleGetLoadingMode(&mode));
  EXPECT_EQ(mode, 1);
  OK(cuModuleUnload(module));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuFuncGetName(&name, functions[1]));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuFuncLoad(functions[1]));
}

TEST_F(ModuleTest, AttributesOfFunctions) {
  COVERS(cuFuncGetAttribute, cuFuncSetAttribute, cuFuncSetCacheConfig, cuFuncSetSharedMemConfig);
  const auto attribute = [this](const char* name, CUfunction_attribute which) {
    int value = -1;
    EXPECT_CU(0, cuFuncGetAttribute(&value, which, kernel(name)));
    return value;
  };
  EXPECT_EQ(attribute("iota", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 1024);
  EXPECT_EQ(attribute("up_to_128", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 128);
  EXPECT_EQ(attribute("of_64", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 64);
  EXPECT_EQ(attribute("iota", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 0);
  EXPECT_EQ(attribute("shared_static", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 1024);
  EXPECT_EQ(attribute("iota", CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES), 16);
  EXPECT_EQ(attribute("iota", CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES), 0);
  EXPECT_GT(attribute("iota", CU_FUNC_ATTRIBUTE_NUM_REGS), 0);
  EXPECT_EQ(attribute("iota", CU_FUNC_ATTRIBUTE_BINARY_VERSION), 80);
  EXPECT_EQ(attribute("shared_static", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES), 47 * 1024);
  const CUfunction function = kernel("shared_end");
  OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50));
  EXPECT_EQ(attribute("shared_end", CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT), 50);
  // What is set is what a launch may use.
  const CUdeviceptr out = allocate(4);
  OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 * 1024));
  EXPECT_EQ(attribute("shared_end", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES), 100 * 1024);
  OK(launch(function, {1, 1, 100 * 1024}, nullptr, out, 100 * 1024));
  EXPECT_EQ(read(out), 77U);
  OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, launch(function, {1, 1, 16}, nullptr, out, 16));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NUM_REGS, 4));
  int value = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(77), function));
  OK(cuFuncSetCacheConfig(function, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuFuncSetCacheConfig(function, 9));
  OK(cuFuncSetSharedMemConfig(function, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuFuncSetSharedMemConfig(function, 9));
}

TEST_F(ModuleTest, ParametersOfFunctions) {
  COVERS(cuFuncGetParamInfo);
  const CUfunction function = kernel("sum");  // u64, u8, u16, u32, u64
  const std::size_t offsets[] = {0, 8, 10, 12, 16}, sizes[] = {8, 1, 2, 4, 8};
  for (std::size_t i = 0; i < 5; ++i) {
    std::size_t offset = 99, bytes = 99;
    OK(cuFuncGetParamInfo(function, i, &offset, &bytes));
    EXPECT_EQ(offset, offsets[i]) << i;
    EXPECT_EQ(bytes, sizes[i]) << i;
    OK(cuFuncGetParamInfo(function, i, &offset, nullptr));
  }
  std::size_t offset = 0, bytes = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(function, 5, &offset, &bytes));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(kernel("nothing"), 0, &offset, &bytes));
}

TEST_F(ModuleTest, LinkerPassesOneTextThrough) {
  COVERS(cuLinkCreate_v2, cuLinkAddData_v2, cuLinkComplete, cuLinkDestroy);
  void* link = nullptr;
  OK(cuLinkCreate_v2(0, nullptr, nullptr, &link));
  void* image = nullptr;
  std::size_t bytes = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuLinkComplete(link, &image, &bytes));
  std::string text = text_storing(123), wrong = "no PTX";
  EXPECT_CU(CUDA_ERROR_INVALID_PTX,
            cuLinkAddData_v2(link, 1, wrong.data(), wrong.size() + 1, "name", 0, nullptr, nullptr));
  OK(cuLinkAddData_v2(link, 1, text.data(), text.size() + 1, "name", 0, nullptr, nullptr));
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED,
            cuLinkAddData_v2(link, 1, text.data(), text.size() + 1, "second", 0, nullptr, nullptr));
  OK(cuLinkComplete(link, &image, &bytes));
  EXPECT_EQ(bytes, text.size() + 1);
  CUmodule module = nullptr;
  OK(cuModuleLoadData(&module, image));
  EXPECT_EQ(stored(module), 123U);
  OK(cuLinkDestroy(link));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuLinkDestroy(link));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuLinkComplete(link, &image, &bytes));
}

TEST_F(ModuleTest, AModuleIsOfItsContext) {
  COVERS(cuModuleLoadData);
  const CUfunction function = kernel("nothing");
  CUcontext other = nullptr;
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  OK(cuCtxSetCurrent(other));
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, launch(function, {}, nullptr));
}

TEST_F(ModuleTest, TooLargeForTheDevice) {
  COVERS(cuModuleLoadData);
  const std::string text =
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .b8 large[67108865];\n";
  CUmodule module = nullptr;
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuModuleLoadData(&module, text.c_str()));
}

}  // namespace
}  // namespace kansoku::softcuda
