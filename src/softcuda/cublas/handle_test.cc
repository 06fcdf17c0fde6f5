// SPDX-License-Identifier: Apache-2.0
// Handles and their settings, refusals, contexts, and both libraries.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <string>

#include "softcuda/cublas/cublas_for_test.h"

extern "C" cublasStatus_t create_in_c(cublasStatus_t (*create)(cublasHandle_t*),
                                      cublasStatus_t (*destroy)(cublasHandle_t));

namespace kansoku::softcuda::cublas {
namespace {

using ::testing::HasSubstr;

constexpr int kInvalid = CUBLAS_STATUS_INVALID_VALUE;
constexpr int kNotInitialized = CUBLAS_STATUS_NOT_INITIALIZED;

using HandleTest = CublasTest;

/// A number that is no enumerator, as a program in C may pass it.
template <class Enumeration>
__attribute__((no_sanitize("enum"))) Enumeration no_enumerator(int value) {
  Enumeration result;
  static_assert(sizeof result == sizeof value);
  std::memcpy(&result, &value, sizeof result);
  return result;
}

TEST_F(HandleTest, KeepsItsSettings) {
  cudaStream_t stream = nullptr;
  EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasGetStream_v2)(handle_, &stream));
  EXPECT_EQ(stream, nullptr);
  EXPECT_EQ(drive("cuStreamCreate", &stream, 0U), 0);
  EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasSetStream_v2)(handle_, stream));
  cudaStream_t got = nullptr;
  EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasGetStream_v2)(handle_, &got));
  EXPECT_EQ(got, stream);
  EXPECT_CUBLAS(kInvalid, KANSOKU_CUBLAS(cublasGetStream_v2)(handle_, nullptr));
  EXPECT_EQ(drive("cuStreamDestroy_v2", stream), 0);

  cublasPointerMode_t pointers{};
  EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasGetPointerMode_v2)(handle_, &pointers));
  EXPECT_EQ(pointers, CUBLAS_POINTER_MODE_HOST);
  EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasSetPointerMode_v2)(handle_, CUBLAS_POINTER_MODE_DEVICE));
  EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasGetPointerMode_v2)(handle_, &pointers));
  EXPECT_EQ(pointers, CUBLAS_POINTER_MODE_DEVICE);

  cublasAtomicsMode_t atomics{};
  EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasSetAtomicsMode)(handle_, CUBLAS_ATOMICS_ALLOWED));
  EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasGetAtomicsMode)(handle_, &atomics));
  EXPECT_EQ(atomics, CUBLAS_ATOMICS_ALLOWED);

  cublasMath_t math{};
  EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasGetMathMode)(handle_, &math));
  EXPECT_EQ(math, CUBLAS_DEFAULT_MATH);
  const auto both = static_cast<cublasMath_t>(CUBLAS_TF32_TENSOR_OP_MATH |
                                              CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
  EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasSetMathMode)(handle_, both));
  EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasGetMathMode)(handle_, &math));
  EXPECT_EQ(math, both);
}

TEST_F(HandleTest, HasAHeaderForC) {
  EXPECT_CUBLAS(0, create_in_c(KANSOKU_CUBLAS(cublasCreate_v2), KANSOKU_CUBLAS(cublasDestroy_v2)));
}

TEST_F(HandleTest, RefusesSettingsThatAreNone) {
  EXPECT_CUBLAS(kInvalid, KANSOKU_CUBLAS(cublasSetPointerMode_v2)(
                              handle_, no_enumerator<cublasPointerMode_t>(2)));
  EXPECT_CUBLAS(kInvalid, KANSOKU_CUBLAS(cublasSetAtomicsMode)(
                              handle_, no_enumerator<cublasAtomicsMode_t>(2)));
  EXPECT_CUBLAS(kInvalid,
                KANSOKU_CUBLAS(cublasSetMathMode)(handle_, no_enumerator<cublasMath_t>(4)));
  auto* const memory = static_cast<std::byte*>(allocate(1024));
  EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasSetWorkspace_v2)(handle_, memory, 1024));
  EXPECT_CUBLAS(kInvalid, KANSOKU_CUBLAS(cublasSetWorkspace_v2)(handle_, memory + 16, 512));
}

TEST_F(HandleTest, WithoutAHandle) {
  int value = 0;
  const float one = 1;
  EXPECT_CUBLAS(kInvalid, KANSOKU_CUBLAS(cublasCreate_v2)(nullptr));
  EXPECT_CUBLAS(kNotInitialized, KANSOKU_CUBLAS(cublasDestroy_v2)(nullptr));
  EXPECT_CUBLAS(kNotInitialized, KANSOKU_CUBLAS(cublasGetVersion_v2)(nullptr, &value));
  EXPECT_CUBLAS(kNotInitialized, KANSOKU_CUBLAS(cublasSetStream_v2)(nullptr, nullptr));
  EXPECT_CUBLAS(kNotInitialized, KANSOKU_CUBLAS(cublasSetWorkspace_v2)(nullptr, nullptr, 0));
  EXPECT_CUBLAS(kNotInitialized,
                KANSOKU_CUBLAS(cublasSgemm_v2)(nullptr, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one,
                                               nullptr, 1, nullptr, 1, &one, nullptr, 1));
  EXPECT_CUBLAS(kNotInitialized, KANSOKU_CUBLAS(cublasStrsm_v2)(
                                     nullptr, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N,
                                     CUBLAS_DIAG_UNIT, 1, 1, &one, nullptr, 1, nullptr, 1));
}

/// cublasGemmStridedBatchedEx of one 4 x 3 product with k = 2, but for what a case changes.
struct Call {
  int transa{0}, transb{0}, m{4}, n{3}, k{2}, lda{4}, ldb{2}, ldc{4}, batch_count{1};
  cudaDataType a{CUDA_R_32F}, b{CUDA_R_32F}, c{CUDA_R_32F};
  int compute{CUBLAS_COMPUTE_32F}, algorithm{CUBLAS_GEMM_DEFAULT};
  bool has_alpha{true}, has_beta{true}, has_c{true};
};
int status_of(cublasHandle_t handle, void* memory, const Call& c) {
  const float one = 1;
  return KANSOKU_CUBLAS(cublasGemmStridedBatchedEx)(
      handle, no_enumerator<cublasOperation_t>(c.transa),
      no_enumerator<cublasOperation_t>(c.transb), c.m, c.n, c.k, c.has_alpha ? &one : nullptr,
      memory, c.a, c.lda, 0, memory, c.b, c.ldb, 0, c.has_beta ? &one : nullptr,
      c.has_c ? memory : nullptr, c.c, c.ldc, 0, c.batch_count,
      no_enumerator<cublasComputeType_t>(c.compute), no_enumerator<cublasGemmAlgo_t>(c.algorithm));
}

TEST_F(HandleTest, ProductsRefuseWhatIsOutOfRange) {
  void* const memory = stored(std::vector<float>(64, 1));
  const auto status = [&](void (*change)(Call&)) {
    Call call;
    change(call);
    return status_of(handle_, memory, call);
  };
  const std::uint64_t before = launches();
  EXPECT_EQ(status([](Call& c) { c.m = -1; }), kInvalid);
  EXPECT_EQ(status([](Call& c) { c.n = -1; }), kInvalid);
  EXPECT_EQ(status([](Call& c) { c.k = -1; }), kInvalid);
  EXPECT_EQ(status([](Call& c) { c.batch_count = -1; }), kInvalid);
  EXPECT_EQ(status([](Call& c) { c.lda = 3; }), kInvalid);
  EXPECT_EQ(status([](Call& c) { c.transa = 1, c.lda = 1; }), kInvalid);  // A is k x m then
  EXPECT_EQ(status([](Call& c) { c.ldb = 1; }), kInvalid);
  EXPECT_EQ(status([](Call& c) { c.transb = 1; }), kInvalid);  // B is n x k then
  EXPECT_EQ(status([](Call& c) { c.ldc = 3; }), kInvalid);
  EXPECT_EQ(status([](Call& c) { c.transa = 3; }), kInvalid);
  EXPECT_EQ(status([](Call& c) { c.transb = -1; }), kInvalid);
  EXPECT_EQ(status([](Call& c) { c.has_alpha = false; }), kInvalid);
  EXPECT_EQ(status([](Call& c) { c.has_beta = false; }), kInvalid);
  EXPECT_EQ(status([](Call& c) { c.has_c = false; }), kInvalid);
  EXPECT_EQ(status([](Call& c) { c.algorithm = 24; }), kInvalid);
  EXPECT_EQ(status([](Call& c) { c.m = 0; }), 0);  // nothing to do
  EXPECT_EQ(status([](Call& c) { c.batch_count = 0; }), 0);
  EXPECT_EQ(launches(), before);
  EXPECT_EQ(status([](Call&) {}), 0);
  EXPECT_EQ(launches(), before + 1);
}

int refuse_types() {
  cublasHandle_t handle = nullptr;
  if (KANSOKU_CUBLAS(cublasCreate_v2)(&handle) != CUBLAS_STATUS_SUCCESS) return 1;
  Call mixed;
  mixed.b = CUDA_R_16F;
  Call sum;
  sum.compute = CUBLAS_COMPUTE_16F;
  Call complex;
  complex.a = complex.b = complex.c = CUDA_C_32F;
  for (const Call& call : {mixed, mixed, sum, complex, mixed}) {
    if (status_of(handle, nullptr, call) != CUBLAS_STATUS_NOT_SUPPORTED) return 2;
  }
  return 0;
}
const Child kRefuseTypes{"refuse_types", refuse_types};

TEST(Log, NamesEachMissingCombinationOnce) {
  const std::string log =
      std::filesystem::temp_directory_path() / fmt::format("kansoku-cublas-log-{}", getpid());
  std::filesystem::remove(log);
  EXPECT_EQ(run_child("refuse_types", {"KANSOKU_SOFTGPU_LOG=" + log}), 0);
  std::ifstream file(log);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_THAT(text, HasSubstr("cublasGemmStridedBatchedEx with the types A 0, B 2, C 0 "
                              "(cudaDataType) and compute type 68 is not supported"));
  EXPECT_THAT(text, HasSubstr("A 0, B 0, C 0 (cudaDataType) and compute type 64"));
  EXPECT_THAT(text, HasSubstr("A 4, B 4, C 4 (cudaDataType) and compute type 68"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
  std::filesystem::remove(log);
}

/// No context is current: the handle keeps the first device's, and finds it at each call.
int multiply_without_context() {
  cublasHandle_t handle = nullptr;
  if (KANSOKU_CUBLAS(cublasCreate_v2)(&handle) != CUBLAS_STATUS_SUCCESS) return 1;
  cuda::CUcontext current = nullptr, primary = nullptr;
  if (drive("cuCtxGetCurrent", &current) != 0 || current != nullptr) return 2;
  if (drive("cuDevicePrimaryCtxRetain", &primary, 0) != 0) return 3;
  if (drive("cuCtxPushCurrent_v2", primary) != 0) return 4;
  std::uint64_t memory = 0;
  if (drive("cuMemAlloc_v2", &memory, std::size_t{16}) != 0) return 5;
  const float values[] = {6, 7, 0, 0};
  if (drive("cuMemcpyHtoD_v2", memory, static_cast<const void*>(values), sizeof values) != 0)
    return 6;
  if (drive("cuCtxPopCurrent_v2", &current) != 0) return 7;
  auto* const at = reinterpret_cast<float*>(memory);
  const float one = 1, zero = 0;
  if (KANSOKU_CUBLAS(cublasSgemm_v2)(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, at, 1, at + 1,
                                     1, &zero, at + 2, 1) != CUBLAS_STATUS_SUCCESS)
    return 8;
  if (drive("cuCtxGetCurrent", &current) != 0 || current != nullptr) return 9;
  if (drive("cuCtxPushCurrent_v2", primary) != 0) return 10;
  float got = 0;
  if (drive("cuMemcpyDtoH_v2", static_cast<void*>(&got), memory + 8, sizeof got) != 0) return 11;
  if (KANSOKU_CUBLAS(cublasDestroy_v2)(handle) != CUBLAS_STATUS_SUCCESS) return 12;
  return got == 42 ? 0 : 13;
}
const Child kWithoutContext{"multiply_without_context", multiply_without_context};

TEST(Context, TheFirstDevicesIfNoneIsCurrent) {
  EXPECT_EQ(run_child("multiply_without_context", {}), 0);
}

/// Two devices: work goes where the handle was made, whatever is current later.
int multiply_on_second_device() {
  if (drive("cuInit", 0U) != 0) return 1;
  cuda::CUcontext contexts[2] = {};
  for (int device : {0, 1}) {
    if (drive("cuDevicePrimaryCtxRetain", &contexts[device], device) != 0) return 2;
  }
  if (drive("cuCtxSetCurrent", contexts[1]) != 0) return 3;
  cublasHandle_t handle = nullptr;
  if (KANSOKU_CUBLAS(cublasCreate_v2)(&handle) != CUBLAS_STATUS_SUCCESS) return 4;
  std::uint64_t memory = 0;
  if (drive("cuMemAlloc_v2", &memory, std::size_t{16}) != 0) return 5;
  if (drive("cuMemsetD32_v2", memory, 0x40400000U, std::size_t{4}) != 0) return 6;  // 3.0
  if (drive("cuCtxSetCurrent", contexts[0]) != 0) return 7;
  auto* const at = reinterpret_cast<float*>(memory);
  const float one = 1, zero = 0;
  if (KANSOKU_CUBLAS(cublasSgemm_v2)(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, at, 1, at + 1,
                                     1, &zero, at + 2, 1) != CUBLAS_STATUS_SUCCESS)
    return 8;
  cuda::CUcontext current = nullptr;
  if (drive("cuCtxGetCurrent", &current) != 0 || current != contexts[0]) return 9;
  if (drive("cuCtxSetCurrent", contexts[1]) != 0) return 10;
  float got = 0;
  if (drive("cuMemcpyDtoH_v2", static_cast<void*>(&got), memory + 8, sizeof got) != 0) return 11;
  return got == 9 ? 0 : 12;
}
const Child kSecondDevice{"multiply_on_second_device", multiply_on_second_device};

TEST(Context, TheOneOfCreation) {
  EXPECT_EQ(run_child("multiply_on_second_device", {"KANSOKU_SOFTGPU_DEVICES=2"}), 0);
}

/// After a reset the kernels are loaded anew.
int multiply_after_reset() {
  if (drive("cuInit", 0U) != 0) return 1;
  for (int round = 0; round < 2; ++round) {
    cuda::CUcontext context = nullptr;
    if (drive("cuDevicePrimaryCtxRetain", &context, 0) != 0) return 2;
    if (drive("cuCtxSetCurrent", context) != 0) return 3;
    cublasHandle_t handle = nullptr;
    if (KANSOKU_CUBLAS(cublasCreate_v2)(&handle) != CUBLAS_STATUS_SUCCESS) return 4;
    std::uint64_t memory = 0;
    if (drive("cuMemAlloc_v2", &memory, std::size_t{16}) != 0) return 5;
    if (drive("cuMemsetD32_v2", memory, 0x40400000U, std::size_t{4}) != 0) return 6;
    auto* const at = reinterpret_cast<float*>(memory);
    const float one = 1, zero = 0;
    if (KANSOKU_CUBLAS(cublasSgemm_v2)(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, at, 1,
                                       at + 1, 1, &zero, at + 2, 1) != CUBLAS_STATUS_SUCCESS)
      return 7;
    float got = 0;
    if (drive("cuMemcpyDtoH_v2", static_cast<void*>(&got), memory + 8, sizeof got) != 0) return 8;
    if (got != 9) return 9;
    if (drive("cuDevicePrimaryCtxReset_v2", 0) != 0) return 10;
    if (KANSOKU_CUBLAS(cublasDestroy_v2)(handle) != CUBLAS_STATUS_SUCCESS) return 11;
  }
  return 0;
}
const Child kAfterReset{"multiply_after_reset", multiply_after_reset};

TEST(Context, KernelsAreLoadedAnewAfterAReset) {
  EXPECT_EQ(run_child("multiply_after_reset", {}), 0);
}

TEST(Status, HasNamesAndTexts) {
  std::set<std::string> names, texts;
  for (const int status : {0, 1, 3, 7, 8, 11, 13, 14, 15, 16}) {
    names.insert(KANSOKU_CUBLAS(cublasGetStatusName)(no_enumerator<cublasStatus_t>(status)));
    texts.insert(KANSOKU_CUBLAS(cublasGetStatusString)(no_enumerator<cublasStatus_t>(status)));
  }
  EXPECT_EQ(names.size(), 10U);
  EXPECT_EQ(texts.size(), 10U);
  EXPECT_STREQ(KANSOKU_CUBLAS(cublasGetStatusName)(CUBLAS_STATUS_NOT_SUPPORTED),
               "CUBLAS_STATUS_NOT_SUPPORTED");
  EXPECT_NE(KANSOKU_CUBLAS(cublasGetStatusString)(no_enumerator<cublasStatus_t>(2)), nullptr);
}

std::string output_of(const std::string& command) {
  std::FILE* const stream = popen(command.c_str(), "re");
  std::string text;
  char part[4096];
  while (const std::size_t got = std::fread(part, 1, sizeof part, stream))
    text.append(part, got);
  EXPECT_EQ(pclose(stream), 0) << command;
  return text;
}

TEST_F(HandleTest, Versions) {
  int version = 0;
  EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasGetVersion_v2)(handle_, &version));
  EXPECT_EQ(version, CUBLAS_VERSION);
  EXPECT_EQ(version / 100, 1204);
  EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasGetProperty)(MAJOR_VERSION, &version));
  EXPECT_EQ(version, 12);
  EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasGetProperty)(MINOR_VERSION, &version));
  EXPECT_EQ(version, 4);
  EXPECT_CUBLAS(kInvalid,
                KANSOKU_CUBLAS(cublasGetProperty)(no_enumerator<libraryPropertyType>(3), &version));

  void* const newer = dlopen(KANSOKU_SOFTCUDA_CUBLAS13, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(newer, nullptr) << dlerror();
  const auto property =
      reinterpret_cast<decltype(&cublasGetProperty)>(dlsym(newer, "cublasGetProperty"));
  EXPECT_CUBLAS(0, property(MAJOR_VERSION, &version));
  EXPECT_EQ(version, 13);
}

TEST(Library, ExportsTheInterfaceAndLinksNoDriver) {
  for (const std::string path : {KANSOKU_SOFTCUDA_CUBLAS, KANSOKU_SOFTCUDA_CUBLAS13}) {
    const std::string symbols = output_of("nm -D --defined-only " + path);
    EXPECT_EQ(std::count(symbols.begin(), symbols.end(), '\n'), 29) << symbols;
    std::size_t of_interface = 0;
    for (std::size_t at = 0; (at = symbols.find(" T cublas", at)) != std::string::npos; ++at)
      ++of_interface;
    EXPECT_EQ(of_interface, 29U) << symbols;
    const std::string needs = output_of("readelf -dW " + path);
    EXPECT_THAT(needs, HasSubstr("NODELETE"));
    EXPECT_THAT(needs, HasSubstr("[" + std::filesystem::path(path).filename().string() + "]"));
    EXPECT_THAT(needs, ::testing::Not(HasSubstr("libcuda")));
  }
}

}  // namespace
}  // namespace kansoku::softcuda::cublas
